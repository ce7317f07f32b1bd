//! Who watches what: watchers of the same selector form a group, and an event is matched with groups,
//! not with watchers. A key is looked up once as it is, and once for each length that a watched prefix
//! has.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use palisade_types::{Event, Events, Key, Name, Selector};

/// A group remembers the numbers of so many of its last events; whoever is further behind looks
/// through the history.
const RECENT_MAX: usize = 64;

/// The watchers of one selector.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) selector: Selector,
    /// Numbers of watchers.
    pub(crate) members: Vec<u64>,
    /// While its news go round: the members before this one have got them.
    pub(crate) turn: usize,
    /// Its news go round.
    pub(crate) busy: bool,
    /// More has happened since they began to.
    pub(crate) again: bool,
    /// The numbers of its last events.
    pub(crate) recent: VecDeque<u64>,
    /// All its events from this number on are in `recent`.
    pub(crate) since: u64,
    /// The last batch that was made of them: from this event, up to this number.
    pub(crate) batch: Option<(u64, u64, Events)>,
}

/// All groups, found by what they watch.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    all: Vec<Option<Group>>,
    free: Vec<usize>,
    keys: BTreeMap<Key, usize>,
    prefixes: BTreeMap<Name, usize>,
    /// How many prefixes have so many bytes.
    lengths: BTreeMap<usize, usize>,
    every_key: Option<usize>,
    sessions: Option<usize>,
    /// Those whose news go round, or are about to.
    pub(crate) busy: VecDeque<usize>,
}

impl Groups {
    /// All events before this number are forgotten, whether or not they went round.
    pub(crate) fn forget(&mut self, start: u64) {
        for group in self.all.iter_mut().flatten() {
            group.recent.clear();
            group.since = start;
            group.batch = None;
        }
    }

    /// A group that exists.
    pub(crate) fn get(&self, at: usize) -> &Group {
        self.all[at].as_ref().expect("a group lives as long as it has members")
    }

    /// The same, to change it.
    pub(crate) fn get_mut(&mut self, at: usize) -> &mut Group {
        self.all[at].as_mut().expect("a group lives as long as it has members")
    }

    /// The group of a selector, made if there is none; `end` is the number of the next event.
    pub(crate) fn join(&mut self, selector: &Selector, watcher: u64, end: u64) -> usize {
        let at = self.find(selector).unwrap_or_else(|| self.insert(selector, end));
        self.get_mut(at).members.push(watcher);
        at
    }

    fn find(&self, selector: &Selector) -> Option<usize> {
        match selector {
            Selector::Key(key) => self.keys.get(key).copied(),
            Selector::Prefix(prefix) => self.prefixes.get(prefix).copied(),
            Selector::Keys => self.every_key,
            Selector::Sessions => self.sessions,
        }
    }

    fn insert(&mut self, selector: &Selector, end: u64) -> usize {
        let group = Group {
            selector: selector.clone(),
            members: Vec::new(),
            turn: 0,
            busy: false,
            again: false,
            recent: VecDeque::new(),
            since: end,
            batch: None,
        };
        let at = self.free.pop().unwrap_or(self.all.len());
        match self.all.get_mut(at) {
            Some(place) => *place = Some(group),
            None => self.all.push(Some(group)),
        }
        match selector {
            Selector::Key(key) => drop(self.keys.insert(key.clone(), at)),
            Selector::Prefix(prefix) => {
                self.prefixes.insert(prefix.clone(), at);
                *self.lengths.entry(prefix.len()).or_default() += 1;
            }
            Selector::Keys => self.every_key = Some(at),
            Selector::Sessions => self.sessions = Some(at),
        }
        at
    }

    /// Takes a member out, by where it stands; tells which member stands there now. A member that has
    /// not had its turn does not lose it.
    pub(crate) fn leave(&mut self, at: usize, place: usize, mut moved: impl FnMut(u64, usize)) {
        let group = self.get_mut(at);
        let mut place = place;
        if place < group.turn {
            // The gap goes to the end of those who have had their turn.
            group.turn -= 1;
            group.members.swap(place, group.turn);
            moved(group.members[place], place);
            place = group.turn;
        }
        group.members.swap_remove(place);
        if let Some(&member) = group.members.get(place) {
            moved(member, place);
        }
        if group.members.is_empty() {
            self.remove(at);
        }
    }

    fn remove(&mut self, at: usize) {
        let Some(group) = self.all[at].take() else { return };
        match &group.selector {
            Selector::Key(key) => drop(self.keys.remove(key)),
            Selector::Prefix(prefix) => {
                self.prefixes.remove(prefix);
                if let Some(count) = self.lengths.get_mut(&prefix.len()) {
                    *count -= 1;
                    if *count == 0 {
                        self.lengths.remove(&prefix.len());
                    }
                }
            }
            Selector::Keys => self.every_key = None,
            Selector::Sessions => self.sessions = None,
        }
        if group.busy {
            self.busy.retain(|busy| *busy != at);
        }
        self.free.push(at);
    }

    /// An event has got this number: the groups that watch it have news.
    pub(crate) fn tell(&mut self, event: &Event, number: u64) {
        let Some(key) = &event.key else {
            if let Some(at) = self.sessions {
                self.has_news(at, number);
            }
            return;
        };
        if let Some(&at) = self.keys.get(key) {
            self.has_news(at, number);
        }
        if let Some(at) = self.every_key {
            self.has_news(at, number);
        }
        let mut from = 0;
        while let Some((&length, _)) = self.lengths.range(from..=key.len()).next() {
            let group = key.get(..length).and_then(|beginning| self.prefixes.get(beginning));
            if let Some(&at) = group {
                self.has_news(at, number);
            }
            from = length + 1;
            if from > key.len() {
                break;
            }
        }
    }

    fn has_news(&mut self, at: usize, number: u64) {
        let group = self.get_mut(at);
        if group.recent.len() == RECENT_MAX
            && let Some(oldest) = group.recent.pop_front()
        {
            group.since = oldest + 1;
        }
        group.recent.push_back(number);
        if group.busy {
            group.again = true;
            return;
        }
        (group.busy, group.turn) = (true, 0);
        self.busy.push_back(at);
    }
}
