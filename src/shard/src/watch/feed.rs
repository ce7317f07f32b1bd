//! Telling: a turn's worth of deliveries, first the news that go round in groups, then those who look
//! by themselves, then marks for those who have heard nothing for long.

use alloc::vec::Vec;

use palisade_machine::{Machine, Place};
use palisade_types::{ConnId, Event, Events, LogIndex, Time, Writer};
use palisade_wire::{Push, WatchEnd};

use super::scan::{Reach, Scan, forward, newest};
use super::{State, WatchConfig, Watches};

/// Events that one step looks at.
const STEP: usize = 4_096;
/// Bytes of events in a push, about: an event more may be in it.
const PUSH_BYTES: usize = 32 << 10;
/// Records looked at before the room in a page is looked at again.
const ROWS: usize = 16;
/// Records looked at for one page.
const PAGE: usize = 1_024;

/// What a turn has to work with.
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    /// The revision of the state.
    pub(crate) applied: LogIndex,
    pub(crate) machine: &'a Machine,
    /// This node knows a leader, so that it cannot be cut off for long without noticing.
    pub(crate) in_touch: bool,
    pub(crate) pushes: &'a mut Vec<(ConnId, Push)>,
}

/// What is left to do in a turn.
struct Budget {
    deliveries: usize,
    looks: usize,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.deliveries == 0 || self.looks == 0
    }
}

impl Watches {
    /// Tells as much as a turn may.
    pub(crate) fn feed(&mut self, mut turn: Turn<'_>) {
        if self.watchers.is_empty() {
            // Only numbers of watches that have ended.
            self.work.clear();
            self.checks.clear();
            return;
        }
        self.turn += 1;
        let mut left =
            Budget { deliveries: self.config.deliveries_per_turn, looks: self.config.looks_per_turn };
        self.end_waits(turn.applied);
        // Those who look by themselves get their share, however much goes round.
        let reserve = if self.work.is_empty() { 0 } else { left.deliveries / 2 };
        left.deliveries -= reserve;
        self.go_round(&mut turn, &mut left);
        left.deliveries += reserve;
        for _ in 0..self.work.len() {
            if left.is_spent() {
                return;
            }
            let Some(number) = self.work.pop_front() else { break };
            self.step(number, &mut turn, &mut left);
        }
        self.mark_progress(&mut turn, &mut left);
    }

    fn end_waits(&mut self, applied: LogIndex) {
        while let Some(&(revision, number)) = self.waiting.first().filter(|(r, _)| *r <= applied) {
            self.waiting.pop_first();
            match self.watchers.get(&number).map(|w| &w.state) {
                Some(State::Waiting(_, true)) => self.put_to_work(number, State::Listing(Place::Start)),
                Some(State::Waiting(_, false)) => self.go_on(number, revision),
                _ => {}
            }
        }
    }

    /// Lets the news of groups go round, member by member.
    fn go_round(&mut self, turn: &mut Turn<'_>, left: &mut Budget) {
        while left.deliveries > 0
            && let Some(&at) = self.groups.busy.front()
        {
            let group = self.groups.get_mut(at);
            if let Some(&member) = group.members.get(group.turn) {
                group.turn += 1;
                left.deliveries -= 1;
                self.bring(member, at, turn);
                continue;
            }
            group.batch = None;
            self.groups.busy.pop_front();
            let group = self.groups.get_mut(at);
            group.turn = 0;
            group.busy = core::mem::take(&mut group.again);
            if group.busy {
                self.groups.busy.push_back(at);
            }
        }
    }

    /// Brings a live watcher its group's news.
    fn bring(&mut self, number: u64, at: usize, turn: &mut Turn<'_>) {
        let Some(watcher) = self.watchers.get(&number) else { return };
        if !matches!(watcher.state, State::Live) {
            return;
        }
        let (conn, next) = (watcher.conn, watcher.next);
        let group = self.groups.get(at);
        let first = group.recent.partition_point(|&event| event < next);
        let Some(&event) = group.recent.get(first) else { return };
        if next < group.since {
            return self.put_to_work(number, State::Behind);
        }
        // Nothing before it was for this watcher.
        self.moved(number, event, LogIndex(0));
        if !self.has_room(conn) {
            return self.put_to_work(number, State::Behind);
        }
        let Some(events) = self.batch(at, event, first) else {
            return self.put_to_work(number, State::Behind);
        };
        let end = self.history.end();
        self.tell(number, events, (end, turn.applied), Flags::default(), turn);
    }

    /// The events of a group from one of its last on, made once for all who are told the same; nothing
    /// if they are too many for one push, or forgotten.
    fn batch(&mut self, at: usize, first: u64, place: usize) -> Option<Events> {
        let end = self.history.end();
        let group = self.groups.get(at);
        if let Some((from, to, events)) = &group.batch
            && (*from, *to) == (first, end)
        {
            return Some(events.clone());
        }
        let (mut bytes, mut count) = (Vec::new(), 0);
        for &number in group.recent.iter().skip(place) {
            bytes.extend_from_slice(self.history.get(number)?);
            count += 1;
            if bytes.len() > PUSH_BYTES && count > 1 {
                return None;
            }
        }
        let events = Events::new(count, bytes.into());
        self.groups.get_mut(at).batch = Some((first, end, events.clone()));
        Some(events)
    }

    /// One step of a watcher that looks by itself.
    fn step(&mut self, number: u64, turn: &mut Turn<'_>, left: &mut Budget) {
        let Some(watcher) = self.watchers.get(&number) else { return };
        let conn = watcher.conn;
        if !self.has_room(conn) {
            // Not in this turn, or not before the connection takes more.
            match self.conns.get_mut(&conn).filter(|c| c.congested) {
                Some(conn) => conn.parked.push(number),
                None => self.work.push_back(number),
            }
            return;
        }
        let Some(watcher) = self.watchers.get(&number) else { return };
        if watcher.next < self.history.start() {
            return self.resync(number, turn, left);
        }
        match &watcher.state {
            State::Behind => self.catch_up(number, turn, left),
            State::Listing(place) => {
                let place = place.clone();
                self.list(number, place, turn, left);
            }
            State::Live | State::Waiting(..) => {}
        }
    }

    fn catch_up(&mut self, number: u64, turn: &mut Turn<'_>, left: &mut Budget) {
        let Some(watcher) = self.watchers.get(&number) else { return };
        let selector = &self.groups.get(watcher.group).selector;
        let reach = Reach { events: STEP.min(left.looks), bytes: PUSH_BYTES };
        let look = if self.is_far_behind(watcher.next) { newest } else { forward };
        let found = look(&self.history, selector, watcher.next, reach, turn.applied);
        self.spend(left, &found);
        let is_live = found.next == self.history.end();
        let Scan { events, next, upto, continued, coalesced, .. } = found;
        let flags = Flags { present: false, coalesced, continued };
        if events.count() > 0 {
            self.tell(number, events, (next, upto), flags, turn);
        } else {
            self.moved(number, next, upto);
        }
        match is_live {
            true => self.set_state(number, State::Live),
            false => self.work.push_back(number),
        }
    }

    /// In events, or where they are large in bytes: before what comes next is forgotten.
    fn is_far_behind(&self, next: u64) -> bool {
        let WatchConfig { history_events, history_bytes, coalesce_behind, .. } = self.config;
        let events = self.history.end() - next;
        let (kept, behind) = (history_events.max(1) as u64, coalesce_behind as u64);
        events > behind
            || (behind < kept
                && self.history.bytes_from(next) > (history_bytes as u64).saturating_mul(behind) / kept)
    }

    fn spend(&self, left: &mut Budget, found: &Scan) {
        left.looks = left.looks.saturating_sub(found.looked.max(1));
        left.deliveries = left.deliveries.saturating_sub(1);
    }

    /// A page of the present state; before it what has changed of the pages before.
    fn list(&mut self, number: u64, place: Place, turn: &mut Turn<'_>, left: &mut Budget) {
        let Some(watcher) = self.watchers.get(&number) else { return };
        let (next, end) = (watcher.next, self.history.end());
        if place != Place::Start && next < end {
            let selector = &self.groups.get(watcher.group).selector;
            let reach = Reach { events: STEP.min(left.looks), bytes: PUSH_BYTES };
            let found = forward(&self.history, selector, next, reach, turn.applied);
            self.spend(left, &found);
            let changes = found.events.decode().expect("the history holds events");
            let told: Events = changes.into_iter().filter(|event| place.is_past(event)).collect();
            let flags = Flags { present: true, coalesced: false, continued: true };
            match told.count() {
                0 => self.moved(number, found.next, found.upto),
                _ => self.tell(number, told, (found.next, found.upto), flags, turn),
            }
            return self.work.push_back(number);
        }
        let Some(watcher) = self.watchers.get(&number) else { return };
        let selector = &self.groups.get(watcher.group).selector;
        let (mut bytes, mut count, mut looked) = (Vec::new(), 0, 0);
        let mut at = Some(place);
        while let Some(from) = &at
            && bytes.len() < PUSH_BYTES / 2
            && looked < PAGE
        {
            at = turn.machine.present(selector, from, ROWS, |row: Event| {
                row.encode(&mut Writer(&mut bytes));
                count += 1;
            });
            looked += ROWS;
        }
        left.looks = left.looks.saturating_sub(looked);
        left.deliveries -= 1;
        let flags = Flags { present: true, coalesced: false, continued: at.is_some() };
        match (count, &at) {
            (0, Some(_)) => self.moved(number, end, turn.applied),
            _ => self.tell(number, Events::new(count, bytes.into()), (end, turn.applied), flags, turn),
        }
        match at {
            Some(place) => self.put_to_work(number, State::Listing(place)),
            None => self.set_state(number, State::Live),
        }
    }

    /// What the watcher has not been told is no longer kept.
    fn resync(&mut self, number: u64, turn: &mut Turn<'_>, left: &mut Budget) {
        let Some(watcher) = self.watchers.get(&number) else { return };
        left.deliveries -= 1;
        self.counters.resyncs += 1;
        let (watch, oldest) = (watcher.id, self.history.floor());
        turn.pushes.push((watcher.conn, Push::WatchEnded { watch, why: WatchEnd::Resync, oldest }));
        self.remove(number);
    }

    /// Tells those who have heard nothing for long how far they have seen.
    fn mark_progress(&mut self, turn: &mut Turn<'_>, left: &mut Budget) {
        while left.deliveries > 0
            && let Some(&(_, number)) = self.checks.front().filter(|(at, _)| *at <= turn.now)
        {
            self.checks.pop_front();
            let end = self.history.end();
            let Some(watcher) = self.watchers.get_mut(&number) else { continue };
            self.checks.push_back((turn.now + self.config.progress / 2, number));
            if core::mem::take(&mut watcher.spoke) || !matches!(watcher.state, State::Live) {
                continue;
            }
            // News that go round will come to it by themselves.
            let told = self.groups.get(watcher.group).recent.back().is_none_or(|&last| last < watcher.next);
            let takes = self.conns.get(&watcher.conn).is_some_and(|conn| !conn.congested);
            if !told {
                continue;
            }
            (watcher.next, watcher.upto) = (end, watcher.upto.max(turn.applied));
            if !takes || !turn.in_touch {
                continue;
            }
            left.deliveries -= 1;
            self.counters.deliveries += 1;
            turn.pushes.push((watcher.conn, Push::Progress { watch: watcher.id, upto: turn.applied }));
        }
    }

    /// Whether a connection takes more in this turn.
    fn has_room(&self, conn: ConnId) -> bool {
        let Some(conn) = self.conns.get(&conn) else { return false };
        let told = if conn.told.0 == self.turn { conn.told.1 } else { 0 };
        !conn.congested && told < self.config.bytes_per_turn
    }

    fn moved(&mut self, number: u64, next: u64, upto: LogIndex) {
        if let Some(watcher) = self.watchers.get_mut(&number) {
            watcher.next = next;
            watcher.upto = watcher.upto.max(upto);
        }
    }

    /// Delivers events and moves the watcher on: to the event with this number, having been told all
    /// up to this revision.
    fn tell(
        &mut self,
        number: u64,
        events: Events,
        (next, upto): (u64, LogIndex),
        Flags { present, coalesced, continued }: Flags,
        turn: &mut Turn<'_>,
    ) {
        self.moved(number, next, upto);
        let Some(watcher) = self.watchers.get_mut(&number) else { return };
        watcher.spoke = true;
        self.counters.deliveries += 1;
        self.counters.coalesced += u64::from(coalesced);
        if let Some(conn) = self.conns.get_mut(&watcher.conn) {
            let before = if conn.told.0 == self.turn { conn.told.1 } else { 0 };
            conn.told = (self.turn, before + events.bytes().len());
        }
        let (watch, upto) = (watcher.id, watcher.upto);
        let push = Push::Events { watch, present, coalesced, continued, upto, events };
        turn.pushes.push((watcher.conn, push));
    }
}

#[derive(Clone, Copy, Default)]
struct Flags {
    present: bool,
    coalesced: bool,
    continued: bool,
}
