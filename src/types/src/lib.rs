#![no_std]
//! The vocabulary every part of Palisade shares: identifiers, time, names, fences, blocks of
//! commands, replies, limits. This crate decides nothing and does nothing; all other crates may
//! import it, it imports none of them.

extern crate alloc;

pub mod block;
pub mod cause;
pub mod codec;
pub mod event;
pub mod fence;
pub mod happened;
pub mod hard_state;
pub mod hash;
pub mod ids;
pub mod limits;
pub mod mutant;
pub mod name;
pub mod operator;
pub mod random;
pub mod refusal;
pub mod reply;
pub mod signature;
pub mod snapshot;
pub mod starts;
pub mod time;
pub mod value;
pub mod watch;

pub use block::{Block, BlockBuilder, BlockError};
pub use cause::{Cause, TransitionKind};
pub use codec::{DecodeError, Reader, Writer};
pub use event::{Event, Events};
pub use fence::{Fence, FenceError, Floor, Refused};
pub use happened::Happened;
pub use hard_state::HardState;
pub use ids::{
    ClusterId, ConnId, Epoch, Incarnation, LogIndex, NodeId, RequestId, SessionId, SessionToken, ShardId,
    StartNonce, Term, Ticket,
};
pub use limits::ClusterLimits;
pub use mutant::{Mutant, Mutants};
pub use name::{Key, Name, NameError};
pub use operator::{ActRef, OperatorAct, OperatorRow};
pub use random::Rng;
pub use refusal::Refusal;
pub use reply::{
    Class, Description, HolderInfo, LockRow, Mode, OnDeath, Outcome, Reply, ResourceRow, SessionRow,
    Standing, Transition, ValueRow, WaiterInfo,
};
pub use signature::{Signature, SignedFence};
pub use snapshot::{Edge, SNAPSHOT_CHUNK_MAX, SnapshotId};
pub use starts::{Acquaintance, STARTS_MAX, Start, Starts};
pub use time::Time;
pub use value::Value;
pub use watch::{ClusterIdentity, ClusterIdentityError, Cursor, CursorError, Selector};
