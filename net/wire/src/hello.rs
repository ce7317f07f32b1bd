//! How a connection begins: who is there, and whether they can talk. These frames keep their layout
//! in every version of the protocol, so that two versions can tell each other apart.

use alloc::string::String;
use alloc::vec::Vec;
use palisade_types::{
    Acquaintance, ClusterId, DecodeError, Incarnation, NodeId, Reader, RequestId, STARTS_MAX, Start,
    StartNonce, Starts, Writer,
};

use crate::frame::{Frame, begin};
use crate::parts::{opt_incarnation, opt_node, plain, put_opt_incarnation, put_opt_node, put_text, text};
use crate::{ADDRESS_BYTES_MAX, CREDENTIALS_BYTES_MAX, Kind, MEMBERS_MAX, MessageError};

/// The first field of every hello: the bytes `PLSD`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"PLSD");
/// The protocol version this build speaks.
pub const VERSION: u16 = 2;
/// The oldest version this build speaks.
pub const VERSION_MIN: u16 = 1;
/// From this version on a grant may carry a signature, and a node's status the identity of its cluster.
pub const VERSION_SIGNED: u16 = 2;
/// The newest version this build speaks.
pub const VERSION_MAX: u16 = VERSION;

/// The newest version that both sides speak, if there is one: the other side's range is given.
pub fn common_version(min: u16, max: u16) -> Option<u16> {
    let version = max.min(VERSION_MAX);
    (version >= min.max(VERSION_MIN)).then_some(version)
}

/// A client's first frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientHello {
    /// The oldest protocol version it speaks.
    pub version_min: u16,
    /// The newest.
    pub version_max: u16,
    /// The cluster it means; `None` takes whichever answers.
    pub cluster: Option<ClusterId>,
    /// Proof of who it is; empty for none. At most [`CREDENTIALS_BYTES_MAX`] bytes.
    pub credentials: Vec<u8>,
}

/// A node and where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which node.
    pub node: NodeId,
    /// `host:port`, for clients and peers.
    pub address: String,
}

/// The answer to [`ClientHello`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHello {
    /// The protocol version of everything that follows.
    pub version: u16,
    /// Who answers.
    pub node: NodeId,
    /// Which cluster this is.
    pub cluster: ClusterId,
    /// How many shards the cluster has.
    pub shards: u32,
    /// The leader, if known.
    pub leader: Option<NodeId>,
    /// All nodes; at most [`MEMBERS_MAX`].
    pub members: Vec<Member>,
    /// The longest frame this server takes, header included, in bytes.
    pub frame_bytes_max: u32,
    /// The most unanswered requests a connection may have; beyond them the server stops reading.
    pub inflight_max: u32,
    /// The lower bound of the election timeout, in milliseconds: a TTL below three of them may not
    /// outlast a failover.
    pub election_timeout_ms: u32,
}

/// A peer's first frame, and the answer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerHello {
    /// The oldest protocol version it speaks.
    pub version_min: u16,
    /// The newest.
    pub version_max: u16,
    /// Its cluster.
    pub cluster: ClusterId,
    /// How many shards its cluster has.
    pub shards: u32,
    /// Who it is.
    pub node: NodeId,
    /// The incarnation of its directory.
    pub incarnation: Incarnation,
    /// Its starts. A node of a version that draws no nonces shows their number alone.
    pub starts: Starts,
    /// The incarnation it knows of the node it talks to, if it has met it.
    pub expects: Option<Incarnation>,
    /// The latest start that it has let in of each member, that of the node it talks to among them; at most
    /// [`MEMBERS_MAX`].
    pub known: Vec<Acquaintance>,
}

/// Why a server will not talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedReason {
    /// No common protocol version.
    Version,
    /// It belongs to another cluster, or one with another number of shards.
    Cluster,
    /// The credentials do not suffice.
    Credentials,
    /// It has as many connections as it may have.
    Full,
    /// It is shutting down.
    Stopping,
    /// The peer is no member, or not the incarnation that was met before.
    Stranger,
    /// The first frame was no hello.
    Malformed,
    /// An earlier start of the peer is still connected: two processes have one directory or a copy of it, or
    /// the end of the earlier one has not been noticed yet.
    Twice,
    /// The peer's directory is an old copy, or was formatted anew: it is not let in, now or later, and is to
    /// end.
    Outdated,
}

impl RefusedReason {
    fn number(self) -> u16 {
        match self {
            RefusedReason::Version => 1,
            RefusedReason::Cluster => 2,
            RefusedReason::Credentials => 3,
            RefusedReason::Full => 4,
            RefusedReason::Stopping => 5,
            RefusedReason::Stranger => 6,
            RefusedReason::Malformed => 7,
            RefusedReason::Twice => 8,
            RefusedReason::Outdated => 9,
        }
    }

    fn from_number(number: u16) -> Result<RefusedReason, DecodeError> {
        Ok(match number {
            1 => RefusedReason::Version,
            2 => RefusedReason::Cluster,
            3 => RefusedReason::Credentials,
            4 => RefusedReason::Full,
            5 => RefusedReason::Stopping,
            6 => RefusedReason::Stranger,
            7 => RefusedReason::Malformed,
            8 => RefusedReason::Twice,
            9 => RefusedReason::Outdated,
            other => return Err(DecodeError::Unknown { what: "reason", value: u64::from(other) }),
        })
    }

    /// Whether trying again, here or at another node of the list, is useless.
    pub fn is_final(self) -> bool {
        match self {
            RefusedReason::Full | RefusedReason::Stopping | RefusedReason::Twice => false,
            RefusedReason::Version
            | RefusedReason::Cluster
            | RefusedReason::Credentials
            | RefusedReason::Stranger
            | RefusedReason::Malformed
            | RefusedReason::Outdated => true,
        }
    }
}

/// The answer of a server that will not talk. The connection is closed after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloRefused {
    /// Why.
    pub reason: RefusedReason,
    /// The same for people; cut at [`crate::TEXT_BYTES_MAX`] bytes.
    pub text: String,
}

/// What the other side sent is not this protocol. The connection is closed after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProtocolError {
    /// What was wrong, for people; cut at [`crate::TEXT_BYTES_MAX`] bytes.
    pub text: String,
}

fn body<'a>(frame: &Frame<'a>, kind: Kind) -> Result<Reader<'a>, MessageError> {
    if frame.kind != kind {
        return Err(MessageError::Unexpected { found: frame.kind });
    }
    Ok(Reader::new(frame.body))
}

fn magic(r: &mut Reader<'_>) -> Result<(), DecodeError> {
    match r.u32()? {
        MAGIC => Ok(()),
        other => Err(DecodeError::Unknown { what: "magic", value: u64::from(other) }),
    }
}

impl ClientHello {
    /// Appends the message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let open = begin(out, Kind::ClientHello, RequestId(0));
        let mut w = Writer(out);
        w.u32(MAGIC);
        w.u16(self.version_min);
        w.u16(self.version_max);
        w.bool(self.cluster.is_some());
        if let Some(cluster) = self.cluster {
            w.u128(cluster.0);
        }
        w.bytes(&self.credentials);
        open.finish(out);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// When the frame is another message, or malformed. A range of versions this build does not
    /// speak is no error here: see [`common_version`].
    pub fn decode(frame: &Frame<'_>) -> Result<ClientHello, MessageError> {
        let mut r = body(frame, Kind::ClientHello)?;
        let mut read = || {
            magic(&mut r)?;
            let (version_min, version_max) = (r.u16()?, r.u16()?);
            let cluster = if r.bool("presence")? { Some(ClusterId(r.u128()?)) } else { None };
            let credentials = r.bytes("credentials", CREDENTIALS_BYTES_MAX)?.to_vec();
            // A later version may add fields: they are behind what this one knows.
            Ok(ClientHello { version_min, version_max, cluster, credentials })
        };
        read().map_err(|error| MessageError::Body { kind: frame.kind, error })
    }
}

impl ServerHello {
    /// Appends the message as one frame. At most [`MEMBERS_MAX`] members; more is a bug and panics.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.members.len() <= MEMBERS_MAX, "{} members", self.members.len());
        let open = begin(out, Kind::ServerHello, RequestId(0));
        let mut w = Writer(out);
        w.u32(MAGIC);
        w.u16(self.version);
        w.u32(self.node.0);
        w.u128(self.cluster.0);
        w.u32(self.shards);
        put_opt_node(&mut w, self.leader);
        w.u32(self.frame_bytes_max);
        w.u32(self.inflight_max);
        w.u32(self.election_timeout_ms);
        w.u16(self.members.len() as u16);
        for member in &self.members {
            w.u32(member.node.0);
            w.name(&member.address[..member.address.floor_char_boundary(ADDRESS_BYTES_MAX)]);
        }
        open.finish(out);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// When the frame is another message, or malformed.
    pub fn decode(frame: &Frame<'_>) -> Result<ServerHello, MessageError> {
        let mut r = body(frame, Kind::ServerHello)?;
        let mut read = || {
            magic(&mut r)?;
            let version = r.u16()?;
            let (node, cluster, shards) = (NodeId(r.u32()?), ClusterId(r.u128()?), r.u32()?);
            let leader = opt_node(&mut r)?;
            let (frame_bytes_max, inflight_max, election_timeout_ms) = (r.u32()?, r.u32()?, r.u32()?);
            let members = members(&mut r)?;
            Ok(ServerHello {
                version,
                node,
                cluster,
                shards,
                leader,
                members,
                frame_bytes_max,
                inflight_max,
                election_timeout_ms,
            })
        };
        read().map_err(|error| MessageError::Body { kind: frame.kind, error })
    }
}

fn members(r: &mut Reader<'_>) -> Result<Vec<Member>, DecodeError> {
    let count = usize::from(r.u16()?);
    if count > MEMBERS_MAX {
        return Err(DecodeError::TooLong { what: "the list of members", max: MEMBERS_MAX });
    }
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        members.push(Member { node: NodeId(r.u32()?), address: plain(r, "address", ADDRESS_BYTES_MAX)? });
    }
    Ok(members)
}

fn nonces(r: &mut Reader<'_>) -> Result<Vec<StartNonce>, DecodeError> {
    let count = usize::from(r.u16()?);
    if count > STARTS_MAX {
        return Err(DecodeError::TooLong { what: "the list of starts", max: STARTS_MAX });
    }
    (0..count).map(|_| Ok(StartNonce(r.u128()?))).collect()
}

fn known(r: &mut Reader<'_>) -> Result<Vec<Acquaintance>, DecodeError> {
    let count = usize::from(r.u16()?);
    if count > MEMBERS_MAX {
        return Err(DecodeError::TooLong { what: "the list of known starts", max: MEMBERS_MAX });
    }
    let one = |r: &mut Reader<'_>| {
        let node = NodeId(r.u32()?);
        Ok(Acquaintance { node, start: Start { number: r.u64()?, nonce: StartNonce(r.u128()?) } })
    };
    (0..count).map(|_| one(r)).collect()
}

impl PeerHello {
    /// Appends the message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let open = begin(out, Kind::PeerHello, RequestId(0));
        let mut w = Writer(out);
        w.u32(MAGIC);
        w.u16(self.version_min);
        w.u16(self.version_max);
        w.u128(self.cluster.0);
        w.u32(self.shards);
        w.u32(self.node.0);
        w.u128(self.incarnation.0);
        w.u64(self.starts.number);
        put_opt_incarnation(&mut w, self.expects);
        w.u16(self.starts.nonces.len() as u16);
        self.starts.nonces.iter().for_each(|nonce| w.u128(nonce.0));
        w.u16(self.known.len() as u16);
        for known in &self.known {
            w.u32(known.node.0);
            w.u64(known.start.number);
            w.u128(known.start.nonce.0);
        }
        open.finish(out);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// When the frame is another message, or malformed.
    pub fn decode(frame: &Frame<'_>) -> Result<PeerHello, MessageError> {
        let mut r = body(frame, Kind::PeerHello)?;
        let mut read = || {
            magic(&mut r)?;
            let mut hello = PeerHello {
                version_min: r.u16()?,
                version_max: r.u16()?,
                cluster: ClusterId(r.u128()?),
                shards: r.u32()?,
                node: NodeId(r.u32()?),
                incarnation: Incarnation(r.u128()?),
                starts: Starts { number: r.u64()?, nonces: Vec::new() },
                expects: opt_incarnation(&mut r)?,
                known: Vec::new(),
            };
            // The first versions ended here.
            if r.remaining() > 0 {
                hello.starts.nonces = nonces(&mut r)?;
                hello.known = known(&mut r)?;
            }
            Ok(hello)
        };
        read().map_err(|error| MessageError::Body { kind: frame.kind, error })
    }
}

impl HelloRefused {
    /// Appends the message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let open = begin(out, Kind::HelloRefused, RequestId(0));
        let mut w = Writer(out);
        w.u16(self.reason.number());
        put_text(&mut w, &self.text);
        open.finish(out);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// When the frame is another message, or malformed.
    pub fn decode(frame: &Frame<'_>) -> Result<HelloRefused, MessageError> {
        let mut r = body(frame, Kind::HelloRefused)?;
        let mut read =
            || Ok(HelloRefused { reason: RefusedReason::from_number(r.u16()?)?, text: text(&mut r)? });
        read().map_err(|error| MessageError::Body { kind: frame.kind, error })
    }
}

impl ProtocolError {
    /// Appends the message as one frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let open = begin(out, Kind::ProtocolError, RequestId(0));
        put_text(&mut Writer(out), &self.text);
        open.finish(out);
    }

    /// Reads the message.
    ///
    /// # Errors
    /// When the frame is another message, or malformed.
    pub fn decode(frame: &Frame<'_>) -> Result<ProtocolError, MessageError> {
        let mut r = body(frame, Kind::ProtocolError)?;
        let text = text(&mut r).map_err(|error| MessageError::Body { kind: frame.kind, error })?;
        Ok(ProtocolError { text })
    }
}
