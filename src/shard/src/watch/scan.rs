//! Looking through the history for one watcher: a bounded step.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Range;

use palisade_types::{Epoch, Event, Events, LogIndex, Selector};

use super::history::{History, revision_of};

/// Where the session stands in an encoded event.
const SESSION_AT: Range<usize> = 9..21;

/// What a step found.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) events: Events,
    /// The number of the next event to be looked at.
    pub(crate) next: u64,
    /// All has been found up to this revision.
    pub(crate) upto: LogIndex,
    /// The last event found shares its revision with what comes next.
    pub(crate) continued: bool,
    /// Changes are left out that newer ones make say nothing: see [`newest`].
    pub(crate) coalesced: bool,
    /// Events looked at.
    pub(crate) looked: usize,
}

/// How far a step goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    /// Events looked at.
    pub(crate) events: usize,
    /// Bytes found; one event may exceed it.
    pub(crate) bytes: usize,
}

/// Gathers encoded events.
#[derive(Default)]
struct Found {
    bytes: Vec<u8>,
    count: u32,
    last: Option<LogIndex>,
}

impl Found {
    fn add(&mut self, encoded: &[u8]) {
        self.bytes.extend_from_slice(encoded);
        self.count += 1;
        self.last = Some(revision_of(encoded));
    }

    fn end(self, history: &History, next: u64, looked: usize, applied: LogIndex) -> Scan {
        let (upto, continued) = match (history.get(next), next.checked_sub(1).and_then(|n| history.get(n))) {
            (Some(ahead), Some(behind)) if revision_of(ahead) == revision_of(behind) => {
                (revision_of(ahead).prev(), self.last == Some(revision_of(ahead)))
            }
            (Some(_), Some(behind)) => (revision_of(behind), false),
            (Some(ahead), None) => (revision_of(ahead).prev(), false),
            (None, _) => (applied, false),
        };
        let events = Events::new(self.count, self.bytes.into());
        Scan { events, next, upto, continued, coalesced: false, looked }
    }
}

/// All that is selected, from a number on. `applied` is the revision of the state.
pub(crate) fn forward(
    history: &History,
    selector: &Selector,
    from: u64,
    reach: Reach,
    applied: LogIndex,
) -> Scan {
    let (mut found, mut next, mut looked) = (Found::default(), from, 0);
    while looked < reach.events
        && let Some(encoded) = history.get(next)
    {
        if selector.selects(encoded) {
            if found.count > 0 && found.bytes.len() + encoded.len() > reach.bytes {
                break;
            }
            found.add(encoded);
        }
        next += 1;
        looked += 1;
    }
    found.end(history, next, looked, applied)
}

/// What of the changes that are selected, from a number on, still says something: of one grant, one
/// session or one ephemeral key only the newest, and of a key no grant that a newer one's barrier shows to
/// be over. A proclamation names its leader, so it stands for the grant before it too.
pub(crate) fn newest(
    history: &History,
    selector: &Selector,
    from: u64,
    reach: Reach,
    applied: LogIndex,
) -> Scan {
    let mut looked = 0;
    let mut span = reach.events as u64;
    loop {
        let to = history.end().min(from + span);
        looked += (to - from) as usize;
        let (mut seen, mut kept, mut all, mut bytes) = (Seen::default(), Vec::new(), 0_u64, 0);
        for number in (from..to).rev() {
            let Some(encoded) = history.get(number).filter(|e| selector.selects(e)) else { continue };
            all += 1;
            if seen.is_news(encoded) {
                kept.push(encoded);
                bytes += encoded.len();
            }
        }
        if bytes > reach.bytes && to - from > 1 {
            span = (to - from) / 2;
            continue;
        }
        let mut found = Found::default();
        kept.iter().rev().for_each(|encoded| found.add(encoded));
        let coalesced = all > kept.len() as u64;
        return Scan { coalesced, ..found.end(history, to, looked, applied) };
    }
}

/// What newer events say already.
#[derive(Default)]
struct Seen<'a> {
    sessions: BTreeSet<&'a [u8]>,
    /// Of each key: nobody below this epoch holds it, and of these grants the newest change is known.
    keys: BTreeMap<&'a [u8], (Epoch, BTreeSet<Epoch>)>,
    /// Ephemeral keys, which may have the names of others.
    values: BTreeSet<&'a [u8]>,
}

impl<'a> Seen<'a> {
    /// Takes in an event that is older than all before; whether it says anything that those do not.
    fn is_news(&mut self, encoded: &'a [u8]) -> bool {
        let key = Event::key_in(encoded);
        if key.is_empty() {
            return self.sessions.insert(&encoded[SESSION_AT]);
        }
        if Event::is_of_value(encoded) {
            return self.values.insert(key);
        }
        let Some((epoch, barrier)) = Event::grant_in(encoded) else { return true };
        let (over, known) = self.keys.entry(key).or_default();
        let is_news = epoch >= *over && known.insert(epoch);
        *over = (*over).max(barrier);
        is_news
    }
}
