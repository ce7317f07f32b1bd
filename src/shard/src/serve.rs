//! What a confirmed round serves: reads of the applied state, renewals, attachments, expiries.

use palisade_types::reply::Consistency;
use palisade_types::{ConnId, Outcome, Refusal, Reply, RequestId, SessionId, SessionToken, Time};
use palisade_wire::Push;

use crate::action::Actions;
use crate::rounds::Item;
use crate::shard::Shard;

impl Shard {
    /// Serves every round that is confirmed and whose read index is applied.
    pub(crate) fn serve_rounds(&mut self, now: Time, out: &mut Actions) {
        loop {
            let items = self.rounds.take_served(self.applied);
            if items.is_empty() {
                return;
            }
            for item in items {
                self.serve(now, item, out);
            }
        }
    }

    fn serve(&mut self, now: Time, item: Item, out: &mut Actions) {
        match item {
            Item::Read(read) => self.answer_read(now, Consistency::Linearizable, &read, out),
            Item::Renew { conn, id, sessions, mut refused, arrived } => {
                for session in sessions {
                    if self.clocks.renew(session, arrived) {
                        self.counters.renewals += 1;
                    } else if let Some(cause) = self.machine.ended(session) {
                        refused.push(Refusal::SessionEnded { session, cause });
                    } else {
                        // Its end is in the log: attaching again will tell.
                        refused.push(Refusal::NotAttached { session });
                    }
                }
                out.replies.push((conn, id, Reply::Renewed { refused }));
            }
            Item::Attach { conn, id, token, session } => self.attach(conn, id, token, session, out),
            Item::Claim { conn, id, resource, key } => self.serve_claim(conn, id, resource, key, out),
            Item::Expire(session) => self.expire(now, session),
        }
    }

    /// A connection that shows the session's token may use it. This is no renewal.
    fn attach(
        &mut self,
        conn: ConnId,
        id: RequestId,
        token: SessionToken,
        session: SessionId,
        out: &mut Actions,
    ) {
        let reply = match self.machine.session(session) {
            Some(view) if view.token == token => {
                self.links.attach(conn, session);
                // It was said when it happened, on a connection that may have been gone.
                let outcome = Outcome::Forced;
                let missed = self.machine.forced(session);
                let news = missed.map(|ticket| (conn, Push::Finished { session, ticket, outcome }));
                out.pushes.extend(news);
                Reply::Attached { session, ttl_ms: view.ttl_ms }
            }
            Some(_) => {
                Reply::Refused(Refusal::BadRequest { reason: "the token is not that session's".into() })
            }
            None => Reply::Refused(self.machine.gone(session)),
        };
        out.replies.push((conn, id, reply));
    }
}
