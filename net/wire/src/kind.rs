//! The kinds of frames and their numbers.

use crate::{BODY_BYTES_MAX, EVENTS_BODY_BYTES_MAX, REQUEST_BODY_BYTES_MAX};

/// Who sends a kind of frame, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Opens a connection, or says why it is closed.
    Handshake,
    /// From a client; carries a request id.
    Request,
    /// From a server; carries the id of the request it answers.
    Reply,
    /// From a server, unasked.
    Push,
    /// Between nodes.
    Peer,
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $number:literal, $group:ident;)*) => {
        /// What a frame holds. The numbers are part of the protocol and never change their meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Kind {
            $($(#[$doc])* $name = $number,)*
        }

        impl Kind {
            /// All kinds, in the order of their numbers.
            pub const ALL: &'static [Kind] = &[$(Kind::$name),*];

            /// The kind with this number.
            pub fn from_number(number: u16) -> Option<Kind> {
                match number {
                    $($number => Some(Kind::$name),)*
                    _ => None,
                }
            }

            /// Who sends it, and what for.
            pub fn group(self) -> Group {
                match self {
                    $(Kind::$name => Group::$group,)*
                }
            }
        }
    };
}

kinds! {
    /// A client's first frame.
    ClientHello = 0x0001, Handshake;
    /// The answer to it.
    ServerHello = 0x0002, Handshake;
    /// A peer's first frame, and the answer to it.
    PeerHello = 0x0003, Handshake;
    /// The answer of a server that will not talk; the connection is closed after it.
    HelloRefused = 0x0004, Handshake;
    /// What the other side sent is not this protocol; the connection is closed after it.
    ProtocolError = 0x0005, Handshake;

    /// [`crate::Request::OpenSession`].
    OpenSession = 0x0101, Request;
    /// [`crate::Request::Attach`].
    Attach = 0x0102, Request;
    /// [`crate::Request::Renew`].
    Renew = 0x0103, Request;
    /// [`crate::Request::CloseSession`].
    CloseSession = 0x0104, Request;
    /// [`crate::Request::Acquire`].
    Acquire = 0x0110, Request;
    /// [`crate::Request::Release`].
    Release = 0x0111, Request;
    /// [`crate::Request::Cancel`].
    Cancel = 0x0112, Request;
    /// Turns an exclusive grant into a shared one.
    Downgrade = 0x0113, Request;
    /// Asks to lead an election.
    Campaign = 0x0114, Request;
    /// Changes the value of a leader.
    Proclaim = 0x0115, Request;
    /// [`crate::Request::Describe`].
    Describe = 0x0120, Request;
    /// [`crate::Request::ListLocks`].
    ListLocks = 0x0121, Request;
    /// [`crate::Request::ListSessions`].
    ListSessions = 0x0122, Request;
    /// [`crate::Request::Status`].
    Status = 0x0123, Request;
    /// [`crate::Request::Operate`].
    Operate = 0x0130, Request;
    /// [`crate::Request::ListOperatorActs`].
    ListOperatorActs = 0x0131, Request;
    /// [`crate::Request::Put`].
    Put = 0x0140, Request;
    /// [`crate::Request::Delete`].
    Delete = 0x0141, Request;
    /// [`crate::Request::Get`].
    Get = 0x0142, Request;
    /// [`crate::Request::ListValues`].
    ListValues = 0x0143, Request;

    /// [`crate::Request::Watch`].
    Watch = 0x0150, Request;
    /// [`crate::Request::Unwatch`].
    Unwatch = 0x0151, Request;

    /// [`crate::Request::ClaimResource`].
    ClaimResource = 0x0160, Request;
    /// [`crate::Query::ListResources`].
    ListResources = 0x0161, Request;

    /// `Reply::Opened`.
    Opened = 0x0201, Reply;
    /// `Reply::Attached`.
    Attached = 0x0202, Reply;
    /// `Reply::Renewed`.
    Renewed = 0x0203, Reply;
    /// `Reply::SessionClosed`.
    SessionClosed = 0x0204, Reply;
    /// `Reply::Granted`.
    Granted = 0x0210, Reply;
    /// `Reply::Queued`.
    Queued = 0x0211, Reply;
    /// `Reply::Denied`.
    Denied = 0x0212, Reply;
    /// `Reply::Finished`.
    Finished = 0x0213, Reply;
    /// `Reply::Described`.
    Described = 0x0220, Reply;
    /// `Reply::Locks`.
    Locks = 0x0221, Reply;
    /// `Reply::Sessions`.
    Sessions = 0x0222, Reply;
    /// `Reply::Status`.
    StatusIs = 0x0223, Reply;
    /// `Reply::OperatorDone`.
    OperatorDone = 0x0230, Reply;
    /// `Reply::OperatorActs`.
    OperatorActs = 0x0231, Reply;
    /// `Reply::PutDone`.
    PutDone = 0x0240, Reply;
    /// `Reply::Deleted`.
    Deleted = 0x0241, Reply;
    /// `Reply::Value`.
    Value = 0x0242, Reply;
    /// `Reply::Values`.
    Values = 0x0243, Reply;
    /// `Reply::Watching`.
    Watching = 0x0250, Reply;
    /// `Reply::Unwatched`.
    Unwatched = 0x0251, Reply;
    /// `Reply::ResourceClaimed`.
    ResourceClaimed = 0x0260, Reply;
    /// `Reply::Resources`.
    Resources = 0x0261, Reply;
    /// `Reply::Refused`.
    Refused = 0x02ff, Reply;

    /// [`crate::Push::Granted`].
    PushGranted = 0x0301, Push;
    /// [`crate::Push::Finished`].
    PushFinished = 0x0302, Push;
    /// [`crate::Push::SessionEnded`].
    PushSessionEnded = 0x0303, Push;
    /// [`crate::Push::LeaderChanged`].
    PushLeaderChanged = 0x0304, Push;
    /// [`crate::Push::Events`].
    PushEvents = 0x0310, Push;
    /// [`crate::Push::Progress`].
    PushProgress = 0x0311, Push;
    /// [`crate::Push::WatchEnded`].
    PushWatchEnded = 0x0312, Push;

    /// Traffic between nodes; the body is theirs.
    Peer = 0x0401, Peer;
}

impl Kind {
    /// Its number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The longest body it may have, in bytes.
    pub fn body_bytes_max(self) -> usize {
        if self == Kind::PushEvents {
            return EVENTS_BODY_BYTES_MAX;
        }
        match self.group() {
            Group::Handshake | Group::Request | Group::Push => REQUEST_BODY_BYTES_MAX,
            Group::Reply | Group::Peer => BODY_BYTES_MAX,
        }
    }
}
