//! What every connection does alike, be it that of sessions and calls or that of a watch: it greets, and
//! takes what a server sends apart.

use alloc::collections::BTreeMap;
use alloc::string::ToString;
use alloc::vec::Vec;
use palisade_types::{Reply, RequestId, Signature, Time};
use palisade_wire::{
    ClientHello, Frame, Group, HelloRefused, Kind, MessageError, ProtocolError, Push, ServerHello,
    VERSION_MAX, VERSION_MIN, decode_reply, signature_of,
};

use crate::api::{LinkError, LinkId};
use crate::net::{Net, Stage, Up};

/// What a server sends that is no refusal to talk.
pub(crate) enum Incoming {
    Hello(ServerHello),
    /// With the signature of a grant that is signed.
    Reply(RequestId, Reply, Option<Signature>),
    /// Likewise.
    Push(Push, Option<Signature>),
}

impl Incoming {
    /// Of a frame. A server that will not talk, or talks something else, is to be left.
    pub(crate) fn of(frame: &Frame<'_>) -> Result<Incoming, LinkError> {
        let bad = |error: MessageError| LinkError::Protocol(error.to_string());
        match (frame.kind, frame.kind.group()) {
            (Kind::ServerHello, _) => Ok(Incoming::Hello(ServerHello::decode(frame).map_err(bad)?)),
            (Kind::HelloRefused, _) => {
                let HelloRefused { reason, text } = HelloRefused::decode(frame).map_err(bad)?;
                Err(LinkError::Refused { reason, text })
            }
            (Kind::ProtocolError, _) => {
                Err(LinkError::Protocol(ProtocolError::decode(frame).map_err(bad)?.text))
            }
            (_, Group::Reply) => {
                let reply = decode_reply(frame).map_err(bad)?;
                Ok(Incoming::Reply(frame.id, reply, signature_of(frame).map_err(bad)?))
            }
            (_, Group::Push) => {
                Ok(Incoming::Push(Push::decode(frame).map_err(bad)?, signature_of(frame).map_err(bad)?))
            }
            _ => Err(bad(MessageError::Unexpected { found: frame.kind })),
        }
    }
}

impl Net {
    /// Whether it is about the present connection.
    pub(crate) fn is_current(&self, link: LinkId) -> bool {
        self.link.as_ref().is_some_and(|l| l.id == link)
    }

    /// The connection is made: greets.
    pub(crate) fn connected(&mut self, now: Time, link: LinkId) {
        let cluster = self.cluster;
        let Some(link) = self.link.as_mut().filter(|l| l.id == link) else { return };
        if !matches!(link.stage, Stage::Dialing) {
            return;
        }
        let (version_min, version_max) = (VERSION_MIN, VERSION_MAX);
        ClientHello { version_min, version_max, cluster, credentials: Vec::new() }.encode(&mut link.out);
        link.stage = Stage::Greeting;
        link.heard = now;
    }

    /// The greeting is answered: the connection can be used, if it is the cluster that was meant.
    pub(crate) fn greeted(&mut self, hello: &ServerHello) -> Result<(), LinkError> {
        let greeting = self.link.as_ref().is_some_and(|l| matches!(l.stage, Stage::Greeting));
        if !greeting || !(VERSION_MIN..=VERSION_MAX).contains(&hello.version) {
            return Err(LinkError::Protocol("a greeting that fits nothing".to_string()));
        }
        if self.cluster.is_some_and(|cluster| cluster != hello.cluster) {
            return Err(LinkError::OtherCluster);
        }
        self.learn(hello);
        if let Some(link) = self.link.as_mut() {
            let inflight_max = (hello.inflight_max as usize).max(1);
            let pending = BTreeMap::new();
            link.stage = Stage::Up(Up { node: hello.node, leader: hello.leader, inflight_max, pending });
        }
        Ok(())
    }
}
