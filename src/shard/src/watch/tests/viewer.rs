//! A watcher that believes nothing: it holds what it is told against the rules.

use super::*;

/// What a watcher has been told, held against the rules as it comes in.
#[derive(Debug, Default)]
pub(super) struct Viewer {
    pub(super) upto: LogIndex,
    /// A push was continued, so the next may share its last revision.
    pub(super) open: bool,
    pub(super) last: LogIndex,
    /// It began with the present state.
    pub(super) whole: bool,
    pub(super) listed: bool,
    pub(super) holders: BTreeMap<(Key, Epoch), SessionId>,
    pub(super) sessions: BTreeMap<SessionId, u32>,
    /// What leaders say, and ephemeral keys.
    pub(super) leaders: BTreeMap<(Key, Epoch), Value>,
    pub(super) values: BTreeMap<Key, (SessionId, Value)>,
    pub(super) changes: Vec<(LogIndex, Option<Key>)>,
    pub(super) coalesced: usize,
    pub(super) progress: usize,
    pub(super) ended: bool,
}

impl Viewer {
    pub(super) fn push(&mut self, push: &Push) {
        assert!(!self.ended, "nothing follows the end");
        match push {
            Push::Events { present, coalesced, continued, upto, events, .. } => {
                assert!(events.bytes().len() <= EVENTS_BYTES_MAX);
                assert!(*upto >= self.upto, "never back: {upto} after {}", self.upto);
                let mut revision = LogIndex(0);
                for event in events.decode().expect("events") {
                    assert!(event.revision >= revision, "in the order of revisions");
                    revision = event.revision;
                    assert!(!event.what.is_present() || *present);
                    if !event.what.is_present() && !*present {
                        let again = self.open && event.revision == self.last;
                        assert!(event.revision > self.upto || again, "each once");
                    }
                    self.learn(event, *coalesced);
                }
                self.last = self.last.max(revision);
                self.open = *continued;
                self.listed |= *present && !continued;
                self.coalesced += usize::from(*coalesced);
                self.upto = *upto;
            }
            Push::Progress { upto, .. } => {
                assert!(*upto >= self.upto && !self.open);
                self.upto = *upto;
                self.progress += 1;
            }
            Push::WatchEnded { why: WatchEnd::Resync, oldest, .. } => {
                assert!(*oldest > self.upto, "what is missing is really gone");
                self.ended = true;
            }
            other => panic!("{other:?} is not for watchers"),
        }
    }

    pub(super) fn learn(&mut self, event: Event, coalesced: bool) {
        if let (Some((_, barrier)), Some(key)) = (event.what.grant(), &event.key) {
            let before = self.holders.len();
            self.holders.retain(|(of, epoch), _| of != key || *epoch >= barrier);
            self.leaders.retain(|(of, epoch), _| of != key || *epoch >= barrier);
            assert!(coalesced || self.holders.len() == before, "who left was said to leave: {event:?}");
        }
        let of = |epoch| (event.key.clone().expect("a key"), epoch);
        self.learn_values(&event, coalesced);
        match event.what {
            Happened::Held { epoch, .. } | Happened::Leads { epoch, .. } => {
                self.holders.insert(of(epoch), event.session);
                return;
            }
            Happened::SessionLives { ttl_ms } => {
                self.sessions.insert(event.session, ttl_ms);
                return;
            }
            Happened::Free { .. } | Happened::Stands { .. } => return,
            _ => {}
        }
        self.changes.push((event.revision, event.key.clone()));
        match event.what {
            Happened::Proclaimed { epoch, .. } => {
                let before = self.holders.insert(of(epoch), event.session);
                assert!(before == Some(event.session) || !self.whole || coalesced, "{event:?}");
            }
            Happened::Granted { epoch, .. } | Happened::Elected { epoch, .. } => {
                let before = self.holders.insert(of(epoch), event.session);
                assert!(before.is_none() || coalesced);
            }
            Happened::Released { epoch, .. } => {
                let before = self.holders.remove(&of(epoch));
                let unknown = before.is_none() && !self.whole;
                assert!(before == Some(event.session) || unknown || coalesced);
            }
            Happened::SessionOpened { ttl_ms } => {
                self.sessions.insert(event.session, ttl_ms);
            }
            Happened::SessionEnded { .. } => {
                self.sessions.remove(&event.session);
            }
            _ => {}
        }
    }
}

impl Viewer {
    fn learn_values(&mut self, event: &Event, coalesced: bool) {
        let Some(key) = event.key.clone() else { return };
        match &event.what {
            Happened::Leads { epoch, value, .. }
            | Happened::Elected { epoch, value }
            | Happened::Proclaimed { epoch, value } => {
                self.leaders.insert((key, *epoch), value.clone());
            }
            Happened::Released { epoch, .. } => {
                self.leaders.remove(&(key, *epoch));
            }
            Happened::Stands { value, .. } | Happened::Put { value, .. } => {
                self.values.insert(key, (event.session, value.clone()));
            }
            Happened::Deleted | Happened::Vanished { .. } => {
                let before = self.values.remove(&key);
                assert!(before.is_some() || !self.whole || coalesced, "{event:?}");
            }
            _ => {}
        }
    }

    /// Knows exactly what the state is.
    pub(super) fn compare(&self, machine: &Machine, selector: &Selector) {
        let mut wanted = Viewer::default();
        let rest = machine.present(selector, &Place::Start, 100_000, |row| wanted.learn(row, false));
        assert_eq!(rest, None);
        assert_eq!(self.holders, wanted.holders, "{selector}");
        assert_eq!(self.leaders, wanted.leaders, "{selector}");
        assert_eq!(self.values, wanted.values, "{selector}");
    }
}
