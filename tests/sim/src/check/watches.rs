//! The watch rules: what watchers are told, held against the events of the committed log.
//!
//! - W1: a change that is told is in the committed log, as it is told.
//! - W2: nothing that is selected is left out, unless the stream says that changes were coalesced, or
//!   begins anew and says why.
//! - W3: nothing is told twice, and nothing out of the order of revisions, whichever nodes tell it and
//!   whatever became of them.
//! - W4: the present state is that of the committed log at the revision it is told for.
//! - W5: a cursor claims no more than was told.
//! - W6: no node breaks the protocol of watches.
//! - W7: in the end everybody has been told everything.
//! - W8: a stream begins anew only if it must, and says why: because it was asked to, because the present
//!   state was not whole when the connection broke, or because more has happened since its cursor than a
//!   node keeps.
//!
//! W9, of observers of elections, is in [`super::observers`].

use palisade_client_core::{Listing, WatchItem};
use palisade_machine::Applied;
use palisade_machine::model::Model;
use palisade_types::{Block, Cursor, Event, Happened, Key, LogIndex, Selector, Writer};
use palisade_wire::Push;

use super::observers::Observing;
use super::view::View;
use super::{Checked, Violation, demand};
use crate::node::SHARD;

/// The events of the committed log, as the naive machine tells them.
pub struct Committed {
    model: Model,
    /// What they come to.
    view: View,
    replayed: usize,
    /// In the order of the log.
    events: Vec<Event>,
    last: LogIndex,
    /// So many events every node keeps at least.
    kept: usize,
    /// The newest snapshot that a node has begun behind: of what was before, it knows no event.
    begun_behind: LogIndex,
}

impl Committed {
    /// Of an empty log, on nodes with histories of so many events. They forget them a segment at a time.
    pub fn new(history: usize) -> Committed {
        let model = Model::new(crate::node::limits(), SHARD);
        let (view, events) = (View::default(), Vec::new());
        Committed {
            model,
            view,
            replayed: 0,
            events,
            last: LogIndex(0),
            kept: history / 2,
            begun_behind: LogIndex(0),
        }
    }

    /// A node has begun behind a snapshot, at a start or by an installation.
    pub fn on_begun_behind(&mut self, snapshot: LogIndex) {
        self.begun_behind = self.begun_behind.max(snapshot);
    }

    /// Whether so much has happened since a revision that nodes may have forgotten some of it.
    fn may_be_forgotten(&self, revision: LogIndex) -> bool {
        revision < self.begun_behind || self.events.len() - self.after(revision) >= self.kept
    }

    /// Takes in what was committed meanwhile. `blocks` is the whole committed log.
    ///
    /// # Errors
    /// R5 when a command does not apply; W4 when the events do not come to what the state is.
    pub fn replay(&mut self, blocks: &[Block]) -> Checked {
        let mut effects = Vec::new();
        let before = self.last;
        while let Some(block) = blocks.get(self.replayed) {
            self.replayed += 1;
            for (place, command) in block.commands().enumerate() {
                self.last = LogIndex(block.first().0 + place as u64);
                effects.clear();
                let at = Applied { index: self.last, clock_ms: block.clock_ms() };
                self.model
                    .apply(at, command, &mut effects)
                    .map_err(|e| Violation::new("R5", e.to_string()))?;
                self.model.news().iter().for_each(|event| self.view.learn(event));
                self.events.extend_from_slice(self.model.news());
            }
        }
        if self.last == before {
            return Ok(());
        }
        let mut state = View::default();
        self.model.present().iter().for_each(|row| state.learn(row));
        let known = self.view.of_keys();
        demand(known == state, "W4", || {
            format!("at {} the events come to {known:?}, the state is {state:?}", self.last)
        })
    }

    /// What is known of one key alone.
    pub fn view_of(&self, key: &Key, upto: LogIndex) -> View {
        self.view(&Selector::Key(key.clone()), upto)
    }

    /// What happened to an election from one revision on and before another.
    pub fn changes_of_election<'a>(
        &'a self,
        election: &'a Key,
        (from, to): (LogIndex, LogIndex),
    ) -> impl Iterator<Item = &'a Event> {
        let (first, end) = (self.after(from.prev()), self.after(to.prev()));
        let events = self.events.get(first..end).unwrap_or_default().iter();
        let changes = |event: &&Event| !matches!(event.what, Happened::Retired { .. });
        events
            .filter(|event| event.key.as_ref() == Some(election) && !event.what.is_of_value())
            .filter(changes)
    }

    /// Where the events behind a revision begin.
    fn after(&self, revision: LogIndex) -> usize {
        self.events.partition_point(|event| event.revision <= revision)
    }

    fn holds(&self, event: &Event) -> bool {
        let of_revision = &self.events[self.after(event.revision.prev())..self.after(event.revision)];
        of_revision.contains(event)
    }

    /// What somebody knows who was told all that is selected up to a revision.
    fn view(&self, selector: &Selector, upto: LogIndex) -> View {
        let mut view = View::default();
        let all = &self.events[..self.after(upto)];
        all.iter().filter(|event| selects(selector, event)).for_each(|event| view.learn(event));
        view
    }

    /// A node pushes something for a watch.
    ///
    /// # Errors
    /// W1 when it did not happen.
    pub fn on_push(&self, push: &Push) -> Checked {
        let Push::Events { events, present, upto, .. } = push else { return Ok(()) };
        let events = events.decode().map_err(|e| Violation::new("W6", e.to_string()))?;
        for event in &events {
            let fits = if event.what.is_present() { *present } else { self.holds(event) };
            demand(fits, "W1", || format!("{event:?} is told, and is not in the committed log"))?;
        }
        demand(*upto <= self.last, "W5", || {
            format!("all is said to be told up to {upto}, {} is committed", self.last)
        })
    }
}

fn selects(selector: &Selector, event: &Event) -> bool {
    let mut bytes = Vec::new();
    event.encode(&mut Writer(&mut bytes));
    selector.selects(&bytes)
}

/// What one watcher has been told.
#[derive(Debug)]
pub struct Stream {
    selector: Selector,
    /// Of an election: the observer on top of it.
    observing: Option<Observing>,
    /// All is told up to here; unknown before the first cursor.
    known: Option<LogIndex>,
    /// Of the events behind that, so many.
    ahead: usize,
    /// What it knows, if it began with the present state.
    view: Option<View>,
    listing: bool,
    /// Changes told.
    pub told: u64,
    /// Changes that stand for others.
    pub coalesced: u64,
    /// How often it began anew.
    pub anew: u64,
}

impl Stream {
    /// A stream that goes on behind a revision, or begins now, or with the present state.
    pub fn new(selector: Selector, known: Option<LogIndex>) -> Stream {
        let observing = match &selector {
            Selector::Key(key) if key.starts_with("election") => Some(Observing::new(key.clone())),
            _ => None,
        };
        Stream {
            selector,
            observing,
            known,
            ahead: 0,
            view: None,
            listing: false,
            told: 0,
            coalesced: 0,
            anew: 0,
        }
    }

    /// The application died, and goes on behind the cursor it had kept, with what it knew then.
    pub fn restart(&mut self, committed: &Committed, cursor: LogIndex) {
        self.observing.iter_mut().for_each(Observing::restart);
        self.known = Some(cursor);
        self.ahead = 0;
        self.listing = false;
        if self.view.is_some() {
            self.view = Some(committed.view(&self.selector, cursor));
        }
    }

    /// Where its application goes on when it dies, given where its watch would: an observer says it itself.
    pub fn keeps(&self, cursor: Option<Cursor>) -> Option<Cursor> {
        match &self.observing {
            Some(observing) => observing.cursor().cloned(),
            None => cursor,
        }
    }

    /// What an observer on top of it has told.
    pub fn observed(&self) -> u64 {
        self.observing.as_ref().map_or(0, |observing| observing.told)
    }

    /// Where the next event is looked for.
    fn next<'a>(&self, committed: &'a Committed) -> Option<&'a Event> {
        let from = committed.after(self.known?);
        committed.events[from..].iter().filter(|event| selects(&self.selector, event)).nth(self.ahead)
    }

    /// The watcher is told something.
    ///
    /// # Errors
    /// The rule it breaks.
    pub fn on_item(&mut self, committed: &Committed, item: &WatchItem) -> Checked {
        self.check(committed, item)?;
        match &mut self.observing {
            Some(observing) => observing.on_item(committed, item),
            None => Ok(()),
        }
    }

    fn check(&mut self, committed: &Committed, item: &WatchItem) -> Checked {
        match item {
            WatchItem::Listing(why) => {
                let fits = match why {
                    Listing::Asked => self.known.is_none() && !self.listing,
                    Listing::Interrupted => self.listing,
                    Listing::Compacted | Listing::Lagged => {
                        self.listing || self.known.is_none_or(|known| committed.may_be_forgotten(known))
                    }
                };
                demand(fits, "W8", || format!("a watch begins anew ({why:?}) without need: {self:?}"))?;
                self.anew += 1;
                (self.listing, self.view) = (true, Some(View::default()));
                Ok(())
            }
            WatchItem::Row(event) => {
                demand(self.listing, "W4", || format!("{event:?} out of place"))?;
                self.learn(event);
                Ok(())
            }
            WatchItem::Listed { cursor } => {
                self.listing = false;
                self.move_to(committed, cursor.revision(SHARD))
            }
            WatchItem::Change { event, coalesced, cursor } => {
                self.change(committed, event, *coalesced)?;
                match cursor {
                    Some(cursor) => self.move_within(committed, cursor.revision(SHARD), event),
                    None => Ok(()),
                }
            }
            WatchItem::Progress { cursor } => {
                let upto = cursor.revision(SHARD);
                if self.known.is_some() && upto.is_some_and(|upto| Some(upto) > self.known) {
                    let missing = self.next(committed).filter(|event| Some(event.revision) <= upto);
                    demand(missing.is_none(), "W2", || {
                        format!("all is said to be told up to {upto:?}, but {missing:?} was not: {self:?}")
                    })?;
                }
                self.move_to(committed, upto)
            }
        }
    }

    fn learn(&mut self, event: &Event) {
        if let Some(view) = &mut self.view {
            view.learn(event);
        }
    }

    fn change(&mut self, committed: &Committed, event: &Event, coalesced: bool) -> Checked {
        self.told += 1;
        self.coalesced += u64::from(coalesced);
        demand(committed.holds(event), "W1", || format!("{event:?} is in no committed log"))?;
        demand(selects(&self.selector, event), "W1", || format!("{event:?} was not asked for"))?;
        self.learn(event);
        if self.listing || self.known.is_none() {
            return Ok(());
        }
        while let Some(next) = self.next(committed) {
            self.ahead += 1;
            if next == event {
                return Ok(());
            }
            demand(coalesced, "W2", || format!("{event:?} is told, {next:?} was left out: {self:?}"))?;
        }
        Err(Violation::new("W3", format!("{event:?} is told again, or too late: {self:?}")))
    }

    /// A cursor that comes with a change: it may be in the midst of what a push tells.
    fn move_within(&mut self, committed: &Committed, upto: Option<LogIndex>, event: &Event) -> Checked {
        let (Some(upto), Some(known)) = (upto, self.known) else {
            self.known = upto.or(self.known);
            return Ok(());
        };
        demand(upto <= event.revision && upto >= known, "W5", || {
            format!("the cursor {upto} comes with {event:?}, after {known}")
        })?;
        let from = committed.after(known);
        let passed = committed.events[from..committed.after(upto)].iter();
        let passed = passed.filter(|event| selects(&self.selector, event)).count();
        demand(passed <= self.ahead, "W5", || {
            format!("the cursor {upto} passes over what was not told: {self:?}")
        })?;
        (self.known, self.ahead) = (Some(upto), self.ahead - passed);
        Ok(())
    }

    /// All is told up to a revision.
    fn move_to(&mut self, committed: &Committed, upto: Option<LogIndex>) -> Checked {
        let Some(upto) = upto else { return Err(Violation::new("W5", "a cursor of nothing".to_string())) };
        demand(self.known.is_none_or(|known| known <= upto), "W3", || {
            format!("a watch went back to {upto}: {self:?}")
        })?;
        (self.known, self.ahead) = (Some(upto), 0);
        let Some(view) = &self.view else { return Ok(()) };
        let wanted = committed.view(&self.selector, upto);
        demand(*view == wanted, "W4", || format!("at {upto} it knows {view:?}, it should {wanted:?}"))
    }

    /// The run is over.
    ///
    /// # Errors
    /// W7 when something was never told.
    pub fn finish(&self, committed: &Committed) -> Checked {
        let missing = self.next(committed);
        demand(!self.listing && self.known.is_some() && missing.is_none(), "W7", || {
            format!("{missing:?} was never told, or nothing at all: {self:?}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_begins_anew_without_need_is_found() {
        let committed = Committed::new(16);
        let rule = |stream: &mut Stream, why| {
            stream.on_item(&committed, &WatchItem::Listing(why)).map_err(|e| e.rule)
        };
        for why in [Listing::Asked, Listing::Interrupted, Listing::Compacted, Listing::Lagged] {
            let mut known = Stream::new(Selector::Keys, Some(LogIndex(0)));
            assert_eq!(rule(&mut known, why), Err("W8"), "{why:?}");
        }
        let mut new = Stream::new(Selector::Keys, None);
        assert_eq!(rule(&mut new, Listing::Interrupted), Err("W8"));
        assert_eq!(rule(&mut new, Listing::Asked), Ok(()));
        assert_eq!(rule(&mut new, Listing::Interrupted), Ok(()), "the connection broke before it was whole");
        assert_eq!(rule(&mut new, Listing::Asked), Err("W8"));
    }
}
