//! Calls, which are reads and operators' actions: asked until answered, refused for good or for lack of
//! room, or dropped by the caller.

use alloc::boxed::Box;
use palisade_types::reply::{Consistency, ReadMark};
use palisade_types::{Refusal, Reply, RequestId, Time};
use palisade_wire::{Query, Request};

use crate::api::{CallId, CallRequest, Event, ReadFrom};
use crate::core::Core;
use crate::net::What;
use crate::session::{retry_after, session_is_full};
use crate::timers::Item;

/// A call that is not answered yet.
#[derive(Debug)]
pub(crate) struct Call {
    request_body: Request,
    needs_leader: bool,
    /// On its way on the present connection.
    pub(crate) request: Option<RequestId>,
    /// It keeps a connection to a node that does not lead until it is answered, whoever waits for the
    /// leader meanwhile.
    pub(crate) stays: bool,
    retry_at: Time,
    attempts: u32,
    timer: Time,
}

impl Call {
    pub(crate) fn needs_leader(&self) -> bool {
        self.needs_leader
    }

    /// Whether the connection must wait for it.
    pub(crate) fn keeps_link(&self) -> bool {
        !self.needs_leader && self.stays
    }
}

impl Core {
    /// Asks. The call is repeated until it is answered, or refused for good or for lack of room; a caller that no longer
    /// waits says so with [`Core::drop_call`].
    pub fn call(&mut self, now: Time, request: CallRequest) -> CallId {
        self.run_timers(now);
        let read = |consistency, query| Request::Read { consistency, query };
        let (request_body, needs_leader) = match request {
            CallRequest::Read { query, from } => {
                (read(Consistency::Linearizable, query), from == ReadFrom::Leader)
            }
            CallRequest::ReadByLease { query } => (read(Consistency::Lease, query), true),
            CallRequest::ReadStale { query } => (read(Consistency::Stale, query), false),
            CallRequest::Status => (Request::Status, false),
            CallRequest::Operate { by, reason, act } => (Request::Operate { by, reason, act }, true),
        };
        let id = CallId(self.new_handle());
        // Calls that any node answers, one after the other without end, must not keep those waiting
        // who need the leader: one that is made on such a connection is answered there if it can be.
        let stays = !self.on_the_way_to_leader();
        let call = Call {
            request_body,
            needs_leader,
            request: None,
            stays,
            retry_at: now,
            attempts: 0,
            timer: Time::FAR,
        };
        self.calls.insert(id, call);
        self.wanting.push_back(Item::Call(id));
        self.settle(now);
        id
    }

    /// Forgets a call; its answer is not reported any more.
    pub fn drop_call(&mut self, call: CallId) {
        if let Some(mut gone) = self.calls.remove(&call) {
            self.timers.set(Item::Call(call), &mut gone.timer, Time::FAR);
        }
    }

    pub(crate) fn call_send(&mut self, now: Time, id: CallId) {
        let leader = self.leader_link();
        let Some(call) = self.calls.get(&id) else { return };
        if call.request.is_some() || call.retry_at > now || (call.needs_leader() && !leader) {
            return;
        }
        let body = call.request_body.clone();
        let request = self.send(now, What::Call(id), &body);
        if let Some(call) = self.calls.get_mut(&id) {
            call.request = Some(request);
        }
    }

    pub(crate) fn call_reply(&mut self, id: CallId, reply: Reply) -> bool {
        let Some(call) = self.calls.get(&id) else { return true };
        let fits = match (&call.request_body, &reply) {
            (Request::Read { consistency, query }, reply) => answers(*consistency, query, reply),
            (Request::Status, Reply::Status(_)) | (Request::Operate { .. }, Reply::OperatorDone { .. }) => {
                true
            }
            _ => false,
        };
        if fits {
            self.drop_call(id);
            self.event(Event::CallDone { call: id, result: Ok(Box::new(reply)) });
        }
        fits
    }

    pub(crate) fn call_refused(&mut self, now: Time, id: CallId, refusal: Refusal) {
        // Room that is lacking comes by what others do, if at all: the caller decides whether to wait for it.
        if refusal.is_final() || session_is_full(&refusal) {
            if self.calls.contains_key(&id) {
                self.drop_call(id);
                self.event(Event::CallDone { call: id, result: Err(refusal) });
            }
            return;
        }
        let Some(call) = self.calls.get_mut(&id) else { return };
        call.request = None;
        call.retry_at = now + retry_after(&refusal, call.attempts, &self.config, &mut self.rng);
        call.attempts += 1;
        self.timers.set(Item::Call(id), &mut call.timer, call.retry_at);
    }

    pub(crate) fn call_due(&mut self, _now: Time, id: CallId) {
        let Some(call) = self.calls.get_mut(&id) else { return };
        self.timers.set(Item::Call(id), &mut call.timer, Time::FAR);
        self.wanting.push_back(Item::Call(id));
    }
}

/// Whether this is an answer to that read. One that is older than was asked for is none.
fn answers(asked: Consistency, query: &Query, reply: &Reply) -> bool {
    let read: ReadMark = match (query, reply) {
        (Query::Describe { .. }, Reply::Described { read, .. })
        | (Query::ListLocks { .. }, Reply::Locks { read, .. })
        | (Query::ListSessions { .. }, Reply::Sessions { read, .. })
        | (Query::ListOperatorActs { .. }, Reply::OperatorActs { read, .. })
        | (Query::Get { .. }, Reply::Value { read, .. })
        | (Query::ListValues { .. }, Reply::Values { read, .. })
        | (Query::ListResources { .. }, Reply::Resources { read, .. }) => *read,
        _ => return false,
    };
    match asked {
        Consistency::Linearizable => read.consistency == Consistency::Linearizable,
        Consistency::Lease => read.consistency != Consistency::Stale,
        Consistency::Stale => true,
    }
}
