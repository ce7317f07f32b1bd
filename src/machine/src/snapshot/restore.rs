//! A machine from the chunks of a snapshot. Bytes are checked first (checksum, format, archive), then every
//! field by itself, and at the end everything against everything.

use alloc::boxed::Box;
use alloc::vec::Vec;

use palisade_types::limits::VALUE_BYTES_MAX;
use palisade_types::{
    ClusterLimits, Epoch, Key, LogIndex, Mutants, Name, NodeId, OperatorAct, SessionId, SessionToken,
    ShardId, Term, Ticket, Value,
};
use rkyv::option::ArchivedOption;
use rkyv::rancor;
use rkyv::string::ArchivedString;
use rkyv::vec::ArchivedVec;

use super::{SnapshotFault, code, section, unframe, v1};
use crate::TICKET_MAX;
use crate::claims::{Claim, List};
use crate::ended::EndedSession;
use crate::holders::{Group, Hold};
use crate::locks::{History, Lock, Tenure, When};
use crate::machine::Machine;
use crate::open::Open;
use crate::operate;
use crate::session::{Life, Session};
use crate::slab::Slot;
use crate::tickets::Tickets;
use crate::values;

/// Takes the chunks of a snapshot, in their order, and makes the machine of them.
pub struct Restore {
    pub(super) limits: ClusterLimits,
    pub(super) shard: ShardId,
    pub(super) hash_seed: u64,
    pub(super) mutants: Mutants,
    /// Chunks taken so far.
    chunks: u32,
    section: u16,
    pub(super) head: Option<Box<Head>>,
    pub(super) parts: Parts,
}

pub(super) struct Head {
    pub(super) applied: LogIndex,
    pub(super) epoch_floor: Epoch,
    pub(super) resources_last: u64,
    pub(super) wanted: List,
    pub(super) unwanted: List,
    counts: [u64; section::COUNTED],
    had: [u64; section::COUNTED],
}

/// What has come, each record checked by itself.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) free: [Vec<Slot>; 5],
    pub(super) sessions: Vec<(Slot, Session)>,
    pub(super) locks: Vec<(Slot, Lock)>,
    pub(super) histories: Vec<(Slot, History)>,
    pub(super) claims: Vec<(Slot, Claim)>,
    pub(super) holds: Vec<(Slot, Hold)>,
    pub(super) groups: Vec<(Slot, Group)>,
    pub(super) candidates: Vec<(Slot, Value, Option<Value>)>,
    pub(super) idle: Vec<Slot>,
    pub(super) due: Vec<Slot>,
    pub(super) ended: Vec<EndedSession>,
    pub(super) acts: Vec<operate::Record>,
    pub(super) values: Vec<(Key, values::Value)>,
    pub(super) ending: Vec<Key>,
    pub(super) resources: Vec<(u64, Name, Key)>,
}

const FIELD: &str = "a field is out of range";

impl Restore {
    /// For a machine with these limits, see [`Machine::new`].
    pub fn new(limits: ClusterLimits, shard: ShardId, hash_seed: u64, mutants: Mutants) -> Restore {
        Restore {
            limits,
            shard,
            hash_seed,
            mutants,
            chunks: 0,
            section: section::HEAD,
            head: None,
            parts: Parts::default(),
        }
    }

    /// Takes the next chunk. Costs time in proportion to its bytes.
    ///
    /// # Errors
    /// When it is not the next chunk of a snapshot of this machine's shard; this is of no use then.
    pub fn push(&mut self, chunk: &[u8]) -> Result<(), SnapshotFault> {
        let number = self.chunks;
        let (at, count, archive) = unframe(number, chunk)?;
        self.chunks = number.saturating_add(1);
        let misplaced = |what| SnapshotFault::Misplaced { chunk: number, what };
        if self.head.is_none() != (at == section::HEAD) {
            return Err(misplaced("the head comes first, and once"));
        }
        if at < self.section || at > section::LAST {
            return Err(misplaced("its section does not follow"));
        }
        self.section = at;
        let len = match at {
            section::HEAD => self.take_head(number, &archive)?,
            _ => self.parts.take(at, number, &archive)?,
        };
        if len != count as usize {
            return Err(SnapshotFault::Damaged { chunk: number, what: "its count differs" });
        }
        let Some(head) = self.head.as_mut().filter(|_| at != section::HEAD) else { return Ok(()) };
        let at = usize::from(at) - 1;
        head.had[at] += len as u64;
        if head.had[at] > head.counts[at] {
            return Err(misplaced("more records than the head says"));
        }
        Ok(())
    }

    /// The machine of all chunks.
    ///
    /// # Errors
    /// When some are missing, or the records contradict each other.
    pub fn finish(mut self) -> Result<Machine, SnapshotFault> {
        let missing = |what| SnapshotFault::Misplaced { chunk: self.chunks, what };
        let Some(head) = self.head.take() else { return Err(missing("there is no chunk")) };
        if head.had != head.counts {
            return Err(missing("fewer records than the head says"));
        }
        self.build(*head)
    }

    fn take_head(&mut self, chunk: u32, archive: &[u8]) -> Result<usize, SnapshotFault> {
        let heads = records::<v1::ArchivedHead>(chunk, archive)?;
        let [head] = heads.as_slice() else {
            return Err(SnapshotFault::Damaged { chunk, what: "there is one head" });
        };
        let l = &self.limits;
        let limits = [
            u64::from(l.sessions),
            u64::from(l.keys_per_session),
            u64::from(l.waiters_per_key),
            u64::from(l.idle_keys),
            u64::from(l.claims),
            u64::from(l.ended_sessions),
            l.state_bytes,
            u64::from(l.resource_claims),
        ];
        if head.shard.to_native() != u64::from(self.shard.0) {
            return Err(SnapshotFault::Foreign("its shard"));
        }
        if head.limits.map(|limit| limit.to_native()) != limits {
            return Err(SnapshotFault::Foreign("a limit of its cluster"));
        }
        let floor = head.epoch_floor.to_native();
        if floor > Epoch::MAX.0 {
            return Err(SnapshotFault::Damaged { chunk, what: FIELD });
        }
        self.head = Some(Box::new(Head {
            applied: LogIndex(head.applied.to_native()),
            epoch_floor: Epoch(floor),
            resources_last: head.resources_last.to_native(),
            wanted: list(&head.wanted),
            unwanted: list(&head.unwanted),
            counts: head.counts.map(|count| count.to_native()),
            had: [0; section::COUNTED],
        }));
        Ok(1)
    }
}

/// The records of a chunk, in place.
fn records<T>(chunk: u32, archive: &[u8]) -> Result<&ArchivedVec<T>, SnapshotFault>
where
    T: rkyv::Portable
        + for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, rancor::Error>>,
{
    rkyv::access::<ArchivedVec<T>, rancor::Error>(archive)
        .map_err(|_| SnapshotFault::Damaged { chunk, what: "it is no archive of its section" })
}

impl Parts {
    /// Takes the records of a chunk; how many there were.
    fn take(&mut self, at: u16, chunk: u32, archive: &[u8]) -> Result<usize, SnapshotFault> {
        fn all<A, T>(
            chunk: u32,
            archive: &[u8],
            to: &mut Vec<T>,
            of: impl Fn(&A) -> Option<T>,
        ) -> Result<usize, SnapshotFault>
        where
            A: rkyv::Portable
                + for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, rancor::Error>>,
        {
            let records = records::<A>(chunk, archive)?;
            for record in records.iter() {
                to.push(of(record).ok_or(SnapshotFault::Damaged { chunk, what: FIELD })?);
            }
            Ok(records.len())
        }
        let slot = |slot: &rkyv::Archived<u32>| Some(slot.to_native());
        match at {
            section::FREE_SESSIONS..=section::FREE_GROUPS => {
                let free = &mut self.free[usize::from(at - section::FREE_SESSIONS)];
                all(chunk, archive, free, slot)
            }
            section::SESSIONS => all(chunk, archive, &mut self.sessions, session),
            section::LOCKS => all(chunk, archive, &mut self.locks, lock),
            section::HISTORIES => all(chunk, archive, &mut self.histories, history),
            section::CLAIMS => all(chunk, archive, &mut self.claims, claim),
            section::HOLDS => all(chunk, archive, &mut self.holds, hold),
            section::GROUPS => all(chunk, archive, &mut self.groups, group),
            section::CANDIDATES => all(chunk, archive, &mut self.candidates, candidate),
            section::IDLE => all(chunk, archive, &mut self.idle, slot),
            section::DUE => all(chunk, archive, &mut self.due, slot),
            section::ENDED => all(chunk, archive, &mut self.ended, ended),
            section::ACTS => all(chunk, archive, &mut self.acts, act),
            section::VALUES => all(chunk, archive, &mut self.values, ephemeral),
            section::ENDING_VALUES => {
                all(chunk, archive, &mut self.ending, |key: &v1::ArchivedEndingKey| name(&key.key))
            }
            _ => all(chunk, archive, &mut self.resources, |claim: &v1::ArchivedResourceClaim| {
                Some((claim.number.to_native(), name(&claim.resource)?, name(&claim.key)?))
            }),
        }
    }
}

fn name(text: &ArchivedString) -> Option<Name> {
    Name::new(text.as_str()).ok()
}

/// A name that may be absent; `None` when it is there and no name.
fn maybe(text: &ArchivedOption<ArchivedString>) -> Option<Option<Name>> {
    match text {
        ArchivedOption::None => Some(None),
        ArchivedOption::Some(text) => Some(Some(name(text)?)),
    }
}

fn value(bytes: &ArchivedVec<u8>) -> Option<Value> {
    (bytes.len() <= VALUE_BYTES_MAX).then(|| Value::from(bytes.as_slice()))
}

fn list(list: &v1::ArchivedList) -> List {
    List { head: list.head.to_native(), tail: list.tail.to_native(), len: list.len.to_native() }
}

type Pair = rkyv::Archived<(u64, u64)>;

fn when(when: &Pair) -> When {
    When { revision: LogIndex(when.0.to_native()), clock_ms: when.1.to_native() }
}

fn session(s: &v1::ArchivedSession) -> Option<(Slot, Session)> {
    let life = match (s.life, s.detail.to_native()) {
        (0, ttl_ms) => Life::Live { ttl_ms: u32::try_from(ttl_ms).ok()?, values: 0 },
        (cause, detail) => Life::Ended(code::to_cause(cause, detail)?),
    };
    let run = |run: &v1::ArchivedRun| {
        Some((run.last.to_native(), run.len.to_native(), code::to_outcome(run.outcome)?))
    };
    let runs: Option<Vec<_>> = s.older.iter().chain([&s.newest]).map(run).collect();
    let ranges = s.ranges.iter().map(|range| (range.0.to_native(), range.1.to_native())).collect();
    let record = Session {
        opened: LogIndex(s.opened.to_native()),
        open: Open::default(),
        tickets: Tickets::restored(s.low.to_native(), ranges, runs?)?,
        life,
        token: SessionToken(s.token.to_native()),
        owner: maybe(&s.owner)?,
        incarnation: maybe(&s.incarnation)?,
    };
    Some((s.slot.to_native(), record))
}

fn lock(l: &v1::ArchivedLock) -> Option<(Slot, Lock)> {
    let epoch = Epoch(l.epoch.to_native());
    let record = Lock {
        key: name(&l.key)?,
        resource: maybe(&l.resource)?,
        epoch,
        holder: l.holder.to_native(),
        queue: list(&l.queue),
        beside: l.group.to_native(),
        class: code::to_class(l.class)?,
        is_due: l.is_due,
    };
    (epoch > Epoch(0) && epoch <= Epoch::MAX).then_some((l.slot.to_native(), record))
}

fn history(h: &v1::ArchivedHistory) -> Option<(Slot, History)> {
    let mut history = History::EMPTY;
    let mut last = None;
    for t in h.tenures.iter() {
        let tenure = Tenure {
            session: LogIndex(t.session.to_native()),
            epoch: Epoch(t.epoch.to_native()),
            granted: when(&t.granted),
            ended: when(&t.ended),
            how: code::to_how(t.how, t.detail.to_native())?,
        };
        let place = Some(history.record(tenure));
        if place <= last {
            return None;
        }
        last = place;
    }
    Some((h.slot.to_native(), history))
}

fn claim(c: &v1::ArchivedClaim) -> Option<(Slot, Claim)> {
    let ticket = Ticket(c.ticket.to_native());
    if ticket == Ticket(0) || ticket > TICKET_MAX || c.flags > 15 {
        return None;
    }
    let record = Claim {
        session: c.session.to_native(),
        lock: c.lock.to_native(),
        ticket,
        state: code::to_state(c.state)?,
        flags: c.flags,
        prev: c.prev.to_native(),
        next: c.next.to_native(),
        beside: c.hold.to_native(),
        since: when(&c.since),
        resource: maybe(&c.resource)?,
    };
    Some((c.slot.to_native(), record))
}

fn hold(h: &v1::ArchivedHold) -> Option<(Slot, Hold)> {
    let numbers = [h.epoch.to_native(), h.barrier.to_native(), h.was.to_native()];
    let hold = Hold::restored(h.claim.to_native(), numbers, h.prev.to_native(), h.next.to_native());
    Some((h.slot.to_native(), hold))
}

fn group(g: &v1::ArchivedGroup) -> Option<(Slot, Group)> {
    let (head, tail) = (g.head.to_native(), g.tail.to_native());
    Some((g.slot.to_native(), Group::restored(head, tail, g.len.to_native(), g.ending.to_native())))
}

fn candidate(c: &v1::ArchivedCandidate) -> Option<(Slot, Value, Option<Value>)> {
    let proclaimed = match &c.proclaimed {
        ArchivedOption::None => None,
        ArchivedOption::Some(bytes) => Some(value(bytes)?),
    };
    Some((c.claim.to_native(), value(&c.campaign)?, proclaimed))
}

fn ended(e: &v1::ArchivedEnded) -> Option<EndedSession> {
    let cause = code::to_cause(e.cause, e.detail.to_native())?;
    let (opened, token) = (LogIndex(e.opened.to_native()), SessionToken(e.token.to_native()));
    Some(EndedSession { opened, token, cause })
}

fn act(a: &v1::ArchivedAct) -> Option<operate::Record> {
    let number = a.number.to_native();
    let session = || -> Option<SessionId> {
        let shard = ShardId(a.place.to_native().try_into().ok()?);
        Some(SessionId { shard, opened: LogIndex(number) })
    };
    let key = maybe(&a.key)?;
    let act = match (a.act, key) {
        (1, None) => OperatorAct::ReportDead { session: session()? },
        (2, None) => OperatorAct::Evict { session: session()? },
        (3, Some(key)) => OperatorAct::ForceRelease { key, epoch: Epoch(number) },
        (4, Some(key)) => OperatorAct::Retire { key, epoch: Epoch(number) },
        (5, None) => {
            let to = NodeId(a.place.to_native().try_into().ok()?);
            OperatorAct::Transfer { term: Term(number), to: (to.0 != 0).then_some(to) }
        }
        _ => return None,
    };
    Some(operate::Record {
        revision: LogIndex(a.revision.to_native()),
        clock_ms: a.clock_ms.to_native(),
        act,
        by: name(&a.by)?,
        reason: name(&a.reason)?,
    })
}

fn ephemeral(v: &v1::ArchivedEphemeral) -> Option<(Key, values::Value)> {
    let ending = match v.ending {
        0 => None,
        cause => Some(code::to_cause(cause, v.detail.to_native())?),
    };
    let record = values::Value {
        bytes: value(&v.value)?,
        session: LogIndex(v.session.to_native()),
        owner: maybe(&v.owner)?,
        created: LogIndex(v.created.to_native()),
        modified: LogIndex(v.modified.to_native()),
        ending,
    };
    (record.created <= record.modified).then_some((name(&v.key)?, record))
}
