//! Taking a snapshot: the state is fixed at once and given chunk by chunk, between commands.

use alloc::boxed::Box;
use alloc::vec::Vec;

use palisade_types::{Key, Mutant, OperatorAct};
use rkyv::api::high::HighSerializer;
use rkyv::rancor;
use rkyv::ser::allocator::ArenaHandle;
use rkyv::util::AlignedVec;

use super::{code, frame, records, section, v1};
use crate::machine::Machine;
use crate::operate;
use crate::slab::Slot;

/// A chunk ends with the record that fills it: about so many bytes. The largest record, a campaign with two
/// values of 16 KiB, still leaves it far below the most that a chunk may have.
const BYTES: usize = 24 << 10;
/// The most places of records that are looked at for a chunk.
const PLACES: u32 = 2_048;
/// Slots of a chunk of nothing but slots.
const SLOTS: usize = 4_096;

/// What a machine that is being archived knows of it.
pub(crate) struct Freeze {
    section: u16,
    head: Option<v1::Head>,
    /// A copy: sweeps keep it short.
    due: Vec<Slot>,
    due_given: usize,
}

impl Machine {
    /// Fixes the state as it is now, to be given by [`Machine::next_chunk`]. What changes from now on is
    /// copied before its first change.
    ///
    /// # Panics
    /// When it is frozen already.
    pub fn freeze(&mut self) {
        assert!(!self.is_frozen(), "one snapshot at a time");
        let is_leaky = self.mutants.has(Mutant::P4);
        let head = self.snapshot_head();
        let due: Vec<Slot> = self.due.iter().copied().collect();
        self.frozen = Some(Box::new(Freeze { section: section::HEAD, head: Some(head), due, due_given: 0 }));
        self.sessions.records.freeze(is_leaky);
        self.locks.freeze(is_leaky);
        self.claims.records.freeze(is_leaky);
        self.holders.freeze(is_leaky);
        self.candidates.freeze();
        self.ended.freeze();
        self.acts.freeze();
        self.values.freeze();
        self.resources.freeze();
    }

    /// Whether a snapshot is being taken.
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Gives a freeze up: what was copied for it goes.
    pub fn thaw(&mut self) {
        self.frozen = None;
        self.sessions.records.thaw();
        self.locks.thaw();
        self.claims.records.thaw();
        self.holders.thaw();
        self.candidates.thaw();
        self.ended.thaw();
        self.acts.thaw();
        self.values.thaw();
        self.resources.thaw();
    }

    /// The next chunk of the state as it was at the freeze: at most
    /// [`palisade_types::SNAPSHOT_CHUNK_MAX`] bytes. `None` when all were given: the freeze is over. The same
    /// state gives the same chunks on every replica, whatever commands come between.
    ///
    /// A call does bounded work: it archives some 24 KiB or looks at some 2,000 places.
    pub fn next_chunk(&mut self) -> Option<Vec<u8>> {
        let mut freeze = self.frozen.take()?;
        while freeze.section <= section::LAST {
            if let Some(chunk) = self.chunk_of(&mut freeze) {
                self.frozen = Some(freeze);
                return Some(chunk);
            }
            freeze.section += 1;
        }
        self.thaw();
        None
    }

    fn snapshot_head(&self) -> v1::Head {
        let l = &self.limits;
        let numbers =
            [l.sessions, l.keys_per_session, l.waiters_per_key, l.idle_keys, l.claims, l.ended_sessions];
        let mut limits = [0; 8];
        for (to, from) in limits.iter_mut().zip(numbers) {
            *to = u64::from(from);
        }
        (limits[6], limits[7]) = (l.state_bytes, u64::from(l.resource_claims));
        let is_missing = |mutant| self.mutants.has(mutant);
        v1::Head {
            shard: u64::from(self.shard.0),
            applied: self.applied.0,
            epoch_floor: if is_missing(Mutant::P1) { 0 } else { self.locks.epoch_floor.0 },
            resources_last: self.resources.last(),
            wanted: records::list(&self.wanted),
            unwanted: records::list(&self.unwanted),
            limits,
            counts: self.snapshot_counts(),
        }
    }

    fn snapshot_counts(&self) -> [u64; section::COUNTED] {
        let (holds, groups) = (self.holders.holds(), self.holders.groups_slab());
        let ended = if self.mutants.has(Mutant::P3) { 0 } else { self.ended.len() };
        [
            self.sessions.records.free_len(),
            self.locks.records.free_len(),
            self.claims.records.free_len(),
            holds.free_len(),
            groups.free_len(),
            self.sessions.records.len(),
            self.locks.records.len(),
            self.locks.records.len(),
            self.claims.records.len(),
            holds.len(),
            groups.len(),
            self.candidates.len(),
            self.locks.idle_len() as usize,
            self.due.len(),
            ended,
            self.acts.len(),
            self.values.len(),
            self.values.ending_len(),
            self.resources.len(),
        ]
        .map(|count| count as u64)
    }

    /// The next chunk of the section that is being given, `None` when it is over.
    fn chunk_of(&mut self, freeze: &mut Freeze) -> Option<Vec<u8>> {
        let at = freeze.section;
        match at {
            section::HEAD => freeze.head.take().map(|head| chunk(at, &[head].into())),
            section::FREE_SESSIONS => self.sessions.records.give_free(SLOTS).map(|v| chunk(at, &v)),
            section::FREE_LOCKS => self.locks.records.give_free(SLOTS).map(|v| chunk(at, &v)),
            section::FREE_CLAIMS => self.claims.records.give_free(SLOTS).map(|v| chunk(at, &v)),
            section::FREE_HOLDS => self.holders.holds_mut().give_free(SLOTS).map(|v| chunk(at, &v)),
            section::FREE_GROUPS => self.holders.groups_mut().give_free(SLOTS).map(|v| chunk(at, &v)),
            section::SESSIONS => self.session_chunk(),
            section::LOCKS => self.lock_chunk(),
            section::HISTORIES => {
                self.locks.histories_mut().give(BYTES, PLACES, records::history_size).map(|v| chunk(at, &v))
            }
            section::CLAIMS => self.claim_chunk(),
            section::HOLDS => self.holders.holds_mut().give(BYTES, PLACES, |_| 40).map(|v| chunk(at, &v)),
            section::GROUPS => self.holders.groups_mut().give(BYTES, PLACES, |_| 20).map(|v| chunk(at, &v)),
            section::CANDIDATES => self.candidates.give(BYTES).map(|v| chunk(at, &v)),
            section::IDLE => self.locks.give_idle(SLOTS).map(|v| chunk(at, &v)),
            section::DUE => {
                let (from, to) = (freeze.due_given, freeze.due.len().min(freeze.due_given + SLOTS));
                freeze.due_given = to;
                (from < to).then(|| chunk(at, &freeze.due[from..to].to_vec()))
            }
            _ => self.plain_chunk(at),
        }
    }

    fn session_chunk(&mut self) -> Option<Vec<u8>> {
        let mut sessions = self.sessions.records.give(BYTES, PLACES, records::session_size)?;
        if self.mutants.has(Mutant::B12) {
            for session in &mut sessions {
                (session.low, session.newest) = (0, v1::Run { last: 0, len: 0, outcome: 0 });
                session.ranges.clear();
                session.older.clear();
            }
        }
        Some(chunk(section::SESSIONS, &sessions))
    }

    fn lock_chunk(&mut self) -> Option<Vec<u8>> {
        let mut locks = self.locks.records.give(BYTES, PLACES, records::lock_size)?;
        if self.mutants.has(Mutant::P2) {
            let queues = locks.iter_mut().map(|lock| &mut lock.queue);
            queues.for_each(|queue| core::mem::swap(&mut queue.head, &mut queue.tail));
        }
        Some(chunk(section::LOCKS, &locks))
    }

    fn claim_chunk(&mut self) -> Option<Vec<u8>> {
        let mut claims = self.claims.records.give(BYTES, PLACES, records::claim_size)?;
        if self.mutants.has(Mutant::P2) {
            let queued = claims.iter_mut().filter(|claim| claim.state == 0);
            queued.for_each(|claim| core::mem::swap(&mut claim.prev, &mut claim.next));
        }
        Some(chunk(section::CLAIMS, &claims))
    }

    /// Of what is no slab.
    fn plain_chunk(&mut self, at: u16) -> Option<Vec<u8>> {
        match at {
            section::ENDED if self.mutants.has(Mutant::P3) => None,
            section::ENDED => {
                let ended = self.ended.give(BYTES)?;
                let archived = ended.into_iter().map(|ended| {
                    let (cause, detail) = code::cause(ended.cause);
                    v1::Ended { opened: ended.opened.0, token: ended.token.0, cause, detail }
                });
                Some(chunk(at, &archived.collect()))
            }
            section::ACTS => self.acts.give(BYTES).map(|acts| chunk(at, &acts.iter().map(act).collect())),
            section::VALUES => {
                let values = self.values.give(BYTES)?;
                let archived = values.into_iter().map(|(key, value)| {
                    let (ending, detail) = value.ending.map_or((0, 0), code::cause);
                    v1::Ephemeral {
                        key,
                        value: value.bytes,
                        session: value.session.0,
                        owner: value.owner,
                        created: value.created.0,
                        modified: value.modified.0,
                        ending,
                        detail,
                    }
                });
                Some(chunk(at, &archived.collect()))
            }
            section::ENDING_VALUES => {
                let keys = self.values.give_ending(BYTES)?;
                Some(chunk(at, &keys.into_iter().map(|key: Key| v1::EndingKey { key }).collect()))
            }
            section::RESOURCES => {
                let claims = self.resources.give(BYTES)?;
                let archived = claims.into_iter();
                let archived =
                    archived.map(|(number, (resource, key))| v1::ResourceClaim { number, resource, key });
                Some(chunk(at, &archived.collect()))
            }
            _ => None,
        }
    }
}

fn act(record: &operate::Record) -> v1::Act {
    let (act, place, number, key) = match &record.act {
        OperatorAct::ReportDead { session } => (1, session.shard.0, session.opened.0, None),
        OperatorAct::Evict { session } => (2, session.shard.0, session.opened.0, None),
        OperatorAct::ForceRelease { key, epoch } => (3, 0, epoch.0, Some(key.clone())),
        OperatorAct::Retire { key, epoch } => (4, 0, epoch.0, Some(key.clone())),
        OperatorAct::Transfer { term, to } => (5, to.map_or(0, |node| node.0), term.0, None),
    };
    v1::Act {
        revision: record.revision.0,
        clock_ms: record.clock_ms,
        act,
        number,
        place: u64::from(place),
        key,
        by: record.by.clone(),
        reason: record.reason.clone(),
    }
}

/// A chunk of these records.
fn chunk<T>(section: u16, records: &Vec<T>) -> Vec<u8>
where
    T: for<'a> rkyv::Serialize<HighSerializer<AlignedVec, ArenaHandle<'a>, rancor::Error>>,
{
    let archive = rkyv::to_bytes::<rancor::Error>(records).expect("memory takes what records have");
    frame(section, records.len() as u32, &archive)
}
