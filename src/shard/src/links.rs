//! Which connection speaks for which session: only one that has presented the session's token may
//! use it, and grants are pushed there.

use alloc::collections::{BTreeMap, BTreeSet};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use palisade_types::{ConnId, SessionId};

/// The attachments of a leader. Gone with its leadership.
#[derive(Debug)]
pub(crate) struct Links {
    /// Asked by every request; never iterated.
    conn_of: HashMap<SessionId, ConnId, FixedState>,
    sessions_of: BTreeMap<ConnId, BTreeSet<SessionId>>,
}

impl Links {
    /// Nothing attached. The seed of the hash changes nothing that can be seen.
    pub(crate) fn new(hash_seed: u64) -> Links {
        let conn_of = HashMap::with_hasher(FixedState::with_seed(hash_seed));
        Links { conn_of, sessions_of: BTreeMap::new() }
    }

    /// The connection has proved that it owns the session; an older connection loses it.
    pub(crate) fn attach(&mut self, conn: ConnId, session: SessionId) {
        self.detach(session);
        self.conn_of.insert(session, conn);
        self.sessions_of.entry(conn).or_default().insert(session);
    }

    /// The session ended, or moved to another connection.
    pub(crate) fn detach(&mut self, session: SessionId) {
        let Some(conn) = self.conn_of.remove(&session) else { return };
        if let Some(sessions) = self.sessions_of.get_mut(&conn) {
            sessions.remove(&session);
            if sessions.is_empty() {
                self.sessions_of.remove(&conn);
            }
        }
    }

    /// The connection is closed.
    pub(crate) fn close(&mut self, conn: ConnId) {
        for session in self.sessions_of.remove(&conn).unwrap_or_default() {
            self.conn_of.remove(&session);
        }
    }

    /// The connection that speaks for a session.
    pub(crate) fn conn_of(&self, session: SessionId) -> Option<ConnId> {
        self.conn_of.get(&session).copied()
    }

    /// Whether this connection speaks for that session.
    pub(crate) fn owns(&self, conn: ConnId, session: SessionId) -> bool {
        self.conn_of(session) == Some(conn)
    }

    /// How many sessions are attached.
    pub(crate) fn sessions(&self) -> usize {
        self.conn_of.len()
    }

    /// Connections with a session.
    pub(crate) fn conns(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.sessions_of.keys().copied()
    }

    /// Forgets all: this node no longer leads.
    pub(crate) fn clear(&mut self) {
        self.conn_of.clear();
        self.sessions_of.clear();
    }
}
