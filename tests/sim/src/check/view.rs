//! What somebody knows who was told all that happened, or was shown the present state.

use std::collections::BTreeMap;

use palisade_types::{Epoch, Event, Happened, Key, LogIndex, SessionId, Value};

/// Who holds what, what leaders say, the ephemeral keys, and who lives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    holders: BTreeMap<(Key, Epoch), SessionId>,
    leaders: BTreeMap<(Key, Epoch), Value>,
    /// Whose, when it was put first and last, and the value.
    values: BTreeMap<Key, (SessionId, LogIndex, LogIndex, Value)>,
    sessions: BTreeMap<SessionId, u32>,
}

impl View {
    /// Takes in a change, or a row of a present state.
    pub fn learn(&mut self, event: &Event) {
        let Some(key) = &event.key else { return self.learn_session(event) };
        if let Some((_, barrier)) = event.what.grant() {
            // Also where the ends of their grants were coalesced into what came later.
            self.holders.retain(|(of, epoch), _| of != key || *epoch >= barrier);
            self.leaders.retain(|(of, epoch), _| of != key || *epoch >= barrier);
        }
        match &event.what {
            Happened::Held { epoch, .. } | Happened::Granted { epoch, .. } => {
                self.holders.insert((key.clone(), *epoch), event.session);
            }
            Happened::Leads { epoch, value, .. }
            | Happened::Elected { epoch, value }
            | Happened::Proclaimed { epoch, value } => {
                self.holders.insert((key.clone(), *epoch), event.session);
                self.leaders.insert((key.clone(), *epoch), value.clone());
            }
            Happened::Released { epoch, .. } => {
                self.holders.remove(&(key.clone(), *epoch));
                self.leaders.remove(&(key.clone(), *epoch));
            }
            Happened::Stands { created, modified, value, .. } => {
                self.values.insert(key.clone(), (event.session, *created, *modified, value.clone()));
            }
            Happened::Put { created, value } => {
                self.values.insert(key.clone(), (event.session, *created, event.revision, value.clone()));
            }
            Happened::Deleted | Happened::Vanished { .. } => {
                self.values.remove(key);
            }
            _ => {}
        }
    }

    fn learn_session(&mut self, event: &Event) {
        match event.what {
            Happened::SessionLives { ttl_ms } | Happened::SessionOpened { ttl_ms } => {
                self.sessions.insert(event.session, ttl_ms);
            }
            Happened::SessionEnded { .. } => {
                self.sessions.remove(&event.session);
            }
            _ => {}
        }
    }

    /// The same without the sessions.
    pub fn of_keys(&self) -> View {
        View { sessions: BTreeMap::new(), ..self.clone() }
    }

    /// Who leads an election, under which epoch, and what it says.
    pub fn leader(&self, election: &Key) -> Option<(Epoch, SessionId, &Value)> {
        let from = (election.clone(), Epoch(0));
        let ((key, epoch), value) = self.leaders.range(from..).next()?;
        let session = self.holders.get(&(key.clone(), *epoch))?;
        (key == election).then_some((*epoch, *session, value))
    }
}
