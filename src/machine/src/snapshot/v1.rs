//! The records of format 1. Released: never edited, whatever becomes of the machine's own records; a change is
//! a new format beside this one.

use palisade_types::{Name, Value};
use rkyv::rancor::{Fallible, Source};
use rkyv::ser::Writer;
use rkyv::string::{ArchivedString, StringResolver};
use rkyv::vec::{ArchivedVec, VecResolver};
use rkyv::with::{ArchiveWith, Map, SerializeWith};
use rkyv::{Archive, Place, Serialize};

use alloc::vec::Vec;

/// A name is archived as its text.
pub(crate) struct Text;

impl ArchiveWith<Name> for Text {
    type Archived = ArchivedString;
    type Resolver = StringResolver;

    fn resolve_with(name: &Name, resolver: StringResolver, out: Place<ArchivedString>) {
        ArchivedString::resolve_from_str(name, resolver, out);
    }
}

impl<S: Fallible<Error: Source> + Writer + ?Sized> SerializeWith<Name, S> for Text {
    fn serialize_with(name: &Name, serializer: &mut S) -> Result<StringResolver, S::Error> {
        ArchivedString::serialize_from_str(name, serializer)
    }
}

/// A value is archived as its bytes.
pub(crate) struct Bytes;

impl ArchiveWith<Value> for Bytes {
    type Archived = ArchivedVec<u8>;
    type Resolver = VecResolver;

    fn resolve_with(value: &Value, resolver: VecResolver, out: Place<ArchivedVec<u8>>) {
        ArchivedVec::resolve_from_len(value.len(), resolver, out);
    }
}

impl<S: Fallible + rkyv::ser::Allocator + Writer + ?Sized> SerializeWith<Value, S> for Bytes {
    fn serialize_with(value: &Value, serializer: &mut S) -> Result<VecResolver, S::Error> {
        ArchivedVec::<u8>::serialize_from_slice(&value[..], serializer)
    }
}

#[derive(Archive, Serialize, Clone, Copy)]
pub(crate) struct List {
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) len: u32,
}

/// What stands nowhere else, and how many records follow.
#[derive(Archive, Serialize)]
pub(crate) struct Head {
    pub(crate) shard: u64,
    pub(crate) applied: u64,
    pub(crate) epoch_floor: u64,
    pub(crate) resources_last: u64,
    pub(crate) wanted: List,
    pub(crate) unwanted: List,
    /// The limits of the cluster, in the order of their declaration.
    pub(crate) limits: [u64; 8],
    /// Records in each section from [`super::section::FREE_SESSIONS`] on.
    pub(crate) counts: [u64; super::section::COUNTED],
}

#[derive(Archive, Serialize, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) last: u64,
    pub(crate) len: u16,
    pub(crate) outcome: u8,
}

#[derive(Archive, Serialize)]
pub(crate) struct Session {
    pub(crate) slot: u32,
    pub(crate) opened: u64,
    pub(crate) token: u128,
    /// 0: it lives, and `detail` is its TTL in milliseconds. Else the code of the cause of its end.
    pub(crate) life: u8,
    pub(crate) detail: u64,
    #[rkyv(with = Map<Text>)]
    pub(crate) owner: Option<Name>,
    #[rkyv(with = Map<Text>)]
    pub(crate) incarnation: Option<Name>,
    pub(crate) low: u64,
    pub(crate) ranges: Vec<(u64, u64)>,
    pub(crate) newest: Run,
    pub(crate) older: Vec<Run>,
}

#[derive(Archive, Serialize)]
pub(crate) struct Lock {
    pub(crate) slot: u32,
    #[rkyv(with = Text)]
    pub(crate) key: Name,
    #[rkyv(with = Map<Text>)]
    pub(crate) resource: Option<Name>,
    pub(crate) epoch: u64,
    pub(crate) holder: u32,
    pub(crate) queue: List,
    /// Of a key that is held: its group of holders. Else, and of one that is held alone, nothing that
    /// means anything.
    pub(crate) group: u32,
    pub(crate) class: u8,
    pub(crate) is_due: bool,
}

#[derive(Archive, Serialize)]
pub(crate) struct Tenure {
    pub(crate) session: u64,
    pub(crate) epoch: u64,
    pub(crate) granted: (u64, u64),
    pub(crate) ended: (u64, u64),
    pub(crate) how: u8,
    pub(crate) detail: u64,
}

#[derive(Archive, Serialize)]
pub(crate) struct History {
    pub(crate) slot: u32,
    pub(crate) tenures: Vec<Tenure>,
}

#[derive(Archive, Serialize)]
pub(crate) struct Claim {
    pub(crate) slot: u32,
    pub(crate) session: u32,
    pub(crate) lock: u32,
    pub(crate) ticket: u64,
    pub(crate) state: u8,
    pub(crate) flags: u8,
    pub(crate) prev: u32,
    pub(crate) next: u32,
    pub(crate) hold: u32,
    pub(crate) since: (u64, u64),
    #[rkyv(with = Map<Text>)]
    pub(crate) resource: Option<Name>,
}

#[derive(Archive, Serialize)]
pub(crate) struct Hold {
    pub(crate) slot: u32,
    pub(crate) claim: u32,
    pub(crate) epoch: u64,
    pub(crate) barrier: u64,
    pub(crate) was: u64,
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

#[derive(Archive, Serialize)]
pub(crate) struct Group {
    pub(crate) slot: u32,
    pub(crate) head: u32,
    pub(crate) tail: u32,
    pub(crate) len: u32,
    pub(crate) ending: u32,
}

#[derive(Archive, Serialize)]
pub(crate) struct Candidate {
    pub(crate) claim: u32,
    #[rkyv(with = Bytes)]
    pub(crate) campaign: Value,
    #[rkyv(with = Map<Bytes>)]
    pub(crate) proclaimed: Option<Value>,
}

#[derive(Archive, Serialize)]
pub(crate) struct Ended {
    pub(crate) opened: u64,
    pub(crate) token: u128,
    pub(crate) cause: u8,
    pub(crate) detail: u64,
}

#[derive(Archive, Serialize)]
pub(crate) struct Act {
    pub(crate) revision: u64,
    pub(crate) clock_ms: u64,
    pub(crate) act: u8,
    /// Of a session its id within the shard; of a key the epoch; of a hand-over the term.
    pub(crate) number: u64,
    /// Of a session its shard; of a hand-over to whom, or 0.
    pub(crate) place: u64,
    #[rkyv(with = Map<Text>)]
    pub(crate) key: Option<Name>,
    #[rkyv(with = Text)]
    pub(crate) by: Name,
    #[rkyv(with = Text)]
    pub(crate) reason: Name,
}

#[derive(Archive, Serialize)]
pub(crate) struct Ephemeral {
    #[rkyv(with = Text)]
    pub(crate) key: Name,
    #[rkyv(with = Bytes)]
    pub(crate) value: Value,
    pub(crate) session: u64,
    #[rkyv(with = Map<Text>)]
    pub(crate) owner: Option<Name>,
    pub(crate) created: u64,
    pub(crate) modified: u64,
    /// 0: its session lives. Else the code of the cause of its end.
    pub(crate) ending: u8,
    pub(crate) detail: u64,
}

#[derive(Archive, Serialize)]
pub(crate) struct EndingKey {
    #[rkyv(with = Text)]
    pub(crate) key: Name,
}

#[derive(Archive, Serialize)]
pub(crate) struct ResourceClaim {
    pub(crate) number: u64,
    #[rkyv(with = Text)]
    pub(crate) resource: Name,
    #[rkyv(with = Text)]
    pub(crate) key: Name,
}
