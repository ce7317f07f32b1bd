//! The core: inputs and calls in, actions out.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::{String, ToString};
use palisade_types::{Refusal, Reply, RequestId, Rng, SessionId, Signature, Ticket, Time};
use palisade_wire::{Frame, Frames, Push, Request, ServerHello};

use crate::api::{
    Action, CallId, ClaimId, Event, Input, LinkError, LinkId, LostReason, SessionHandle, WriteId,
};
use crate::call::Call;
use crate::claim::Claim;
use crate::config::{CoreConfig, NoEndpoints};
use crate::greeting::Incoming;
use crate::net::{Net, Pending, Stage, Up, What};
use crate::resources::Registry;
use crate::session::Session;
use crate::timers::{Item, Timers};
use crate::write::Write;

/// A client of one cluster: any number of sessions, claims and reads over one connection.
#[derive(Debug)]
pub struct Core {
    pub(crate) config: CoreConfig,
    pub(crate) rng: Rng,
    pub(crate) net: Net,
    pub(crate) sessions: BTreeMap<SessionHandle, Session>,
    pub(crate) by_id: BTreeMap<SessionId, SessionHandle>,
    pub(crate) claims: BTreeMap<ClaimId, Claim>,
    pub(crate) calls: BTreeMap<CallId, Call>,
    pub(crate) writes: BTreeMap<WriteId, Write>,
    pub(crate) registry: Registry,
    pub(crate) timers: Timers,
    /// Who may have something to send. Whether it has is looked up when its turn comes.
    pub(crate) wanting: VecDeque<Item>,
    /// Some session is due for a renewal.
    pub(crate) renewals_due: bool,
    pub(crate) next_handle: u64,
    actions: VecDeque<Action>,
}

impl Core {
    /// A client that has nothing to do yet, and so does not connect. The seed is for jitter.
    ///
    /// # Errors
    /// [`NoEndpoints`] when the configuration names no server.
    pub fn new(config: CoreConfig, seed: u64, now: Time) -> Result<Core, NoEndpoints> {
        if config.endpoints.is_empty() {
            return Err(NoEndpoints);
        }
        let mut rng = Rng::new(seed);
        let net = Net::new(&config, &mut rng, now);
        Ok(Core {
            config,
            rng,
            net,
            sessions: BTreeMap::new(),
            by_id: BTreeMap::new(),
            claims: BTreeMap::new(),
            calls: BTreeMap::new(),
            writes: BTreeMap::new(),
            registry: Registry::default(),
            timers: Timers::default(),
            wanting: VecDeque::new(),
            renewals_due: false,
            next_handle: 0,
            actions: VecDeque::new(),
        })
    }

    /// Takes an input. Deadlines that have passed come first, whatever the input is.
    pub fn handle(&mut self, now: Time, input: Input<'_>) {
        self.run_timers(now);
        match input {
            Input::Tick => self.check_link(now),
            Input::Connected { link } => self.net.connected(now, link),
            Input::Disconnected { link } => {
                if self.net.is_current(link) {
                    self.drop_link(now, LinkError::Closed);
                }
            }
            Input::Received { link, bytes } => self.received(now, link, bytes),
        }
        self.settle(now);
    }

    /// The next thing to do, until there is none.
    pub fn poll_action(&mut self) -> Option<Action> {
        if let Some(action) = self.actions.pop_front() {
            return Some(action);
        }
        let link = self.net.link.as_mut()?;
        if link.out.is_empty() {
            return None;
        }
        Some(Action::Send { link: link.id, bytes: ::core::mem::take(&mut link.out) })
    }

    /// When to hand over [`Input::Tick`]; [`Time::FAR`] when nothing is due.
    pub fn next_deadline(&self) -> Time {
        let net = match &self.net.link {
            Some(link) => link.deadline(&self.config),
            None if self.wants_link() => self.net.rest_until,
            None => Time::FAR,
        };
        net.min(self.timers.next())
    }

    /// Whether nothing is left to do: no session, no read, no release on its way.
    pub fn is_idle(&self) -> bool {
        self.sessions.is_empty() && self.calls.is_empty()
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.actions.push_back(Action::Event(event));
    }

    pub(crate) fn new_handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle
    }

    fn wants_link(&self) -> bool {
        !self.is_idle()
    }

    /// Lets every deadline that has passed act.
    pub(crate) fn run_timers(&mut self, now: Time) {
        while let Some(item) = self.timers.due(now) {
            match item {
                Item::Session(handle) => self.session_due(now, handle),
                Item::Claim(claim) => self.claim_due(now, claim),
                Item::Call(call) => self.call_due(now, call),
                Item::Write(write) => self.write_due(now, write),
                Item::Post(post) => self.post_due(post),
            }
        }
    }

    fn check_link(&mut self, now: Time) {
        let Some(link) = &self.net.link else { return };
        if now < link.deadline(&self.config) {
            return;
        }
        let error = match link.stage {
            Stage::Dialing | Stage::Greeting => LinkError::Timeout,
            Stage::Up(_) => LinkError::Silent,
        };
        self.drop_link(now, error);
    }

    /// Gives up the connection because it failed.
    fn drop_link(&mut self, now: Time, error: LinkError) {
        if let Some(endpoint) = self.hang_up(error) {
            self.net.failed(now, endpoint, &self.config, &mut self.rng);
        }
    }

    /// Leaves a server that does not lead.
    pub(crate) fn leave(&mut self, now: Time, leader: Option<palisade_types::NodeId>) {
        let from = self.net.link.as_ref().and_then(|l| l.up()).map(|up| up.node);
        if self.hang_up(LinkError::NotLeader { leader }).is_some() {
            self.net.hinted(now, from, leader, &self.config, &mut self.rng);
        }
    }

    fn hang_up(&mut self, error: LinkError) -> Option<String> {
        let link = self.net.link.take()?;
        if error != LinkError::Closed {
            self.actions.push_back(Action::Hangup { link: link.id });
        }
        self.event(Event::LinkDown { endpoint: link.endpoint.clone(), error });
        self.wanting.clear();
        self.renewals_due = false;
        self.detach_sessions();
        self.detach_claims();
        self.detach_writes();
        self.detach_posts();
        self.calls.values_mut().for_each(|call| call.request = None);
        Some(link.endpoint)
    }

    fn received(&mut self, now: Time, id: LinkId, bytes: &[u8]) {
        let Some(link) = self.net.link.as_mut().filter(|l| l.id == id) else { return };
        link.heard = now;
        let mut held = ::core::mem::take(&mut link.rest);
        let whole = if held.is_empty() {
            bytes
        } else {
            held.extend_from_slice(bytes);
            &held
        };
        let mut frames = Frames::new(whole);
        loop {
            let result = match frames.next_frame() {
                Ok(Some(frame)) => self.frame(now, &frame),
                Ok(None) => break,
                Err(error) => Err(LinkError::Protocol(error.to_string())),
            };
            if let Err(error) = result {
                self.drop_link(now, error);
            }
            if !self.net.is_current(id) {
                return;
            }
        }
        let rest = &whole[frames.consumed()..];
        if let Some(link) = self.net.link.as_mut() {
            link.rest = rest.to_vec();
        }
    }

    fn frame(&mut self, now: Time, frame: &Frame<'_>) -> Result<(), LinkError> {
        match Incoming::of(frame)? {
            Incoming::Hello(hello) => self.greeted(&hello),
            Incoming::Reply(id, reply, signature) => self.reply(now, id, reply, signature),
            Incoming::Push(push, signature) => {
                self.push(now, push, signature);
                Ok(())
            }
        }
    }

    fn greeted(&mut self, hello: &ServerHello) -> Result<(), LinkError> {
        self.net.greeted(hello)?;
        let Some(link) = &self.net.link else { return Ok(()) };
        let endpoint = link.endpoint.clone();
        self.event(Event::LinkUp { endpoint, node: hello.node, leader: hello.leader });
        self.everybody_wants();
        Ok(())
    }

    /// On a new connection, and on one whose node has become the leader, everybody asks again.
    fn everybody_wants(&mut self) {
        self.wanting.extend(self.sessions.keys().map(|handle| Item::Session(*handle)));
        self.wanting.extend(self.calls.keys().map(|call| Item::Call(*call)));
        self.wanting.extend(self.registry.posts().map(Item::Post));
    }

    fn reply(
        &mut self,
        now: Time,
        id: RequestId,
        reply: Reply,
        signature: Option<Signature>,
    ) -> Result<(), LinkError> {
        let up = self.net.link.as_mut().and_then(|l| l.up_mut());
        let Some(Pending { what, sent }) = up.and_then(|up| up.pending.remove(&id)) else {
            return Err(LinkError::Protocol("an answer to nothing that was asked".to_string()));
        };
        if let Reply::Refused(refusal) = reply {
            self.refused(now, id, what, refusal);
            return Ok(());
        }
        self.net.succeeded();
        let fits = match what {
            What::Session(handle) => self.session_reply(now, handle, id, &reply),
            What::Renew(handles) => self.renew_reply(now, &handles, sent, reply),
            What::Claim(claim) => self.claim_reply(now, claim, id, reply, signature),
            What::Call(call) => self.call_reply(call, reply),
            What::Write(write) => self.write_reply(write, &reply),
            What::Post(post) => self.post_reply(post, reply),
        };
        if fits { Ok(()) } else { Err(LinkError::Protocol("an answer to another question".to_string())) }
    }

    fn refused(&mut self, now: Time, id: RequestId, what: What, refusal: Refusal) {
        if let Refusal::NotLeader { leader } | Refusal::Interrupted { leader } = refusal {
            self.leave(now, leader);
            return;
        }
        if let Refusal::SessionEnded { session, cause } = &refusal
            && let Some(handle) = self.by_id.get(session)
        {
            self.lose_session(*handle, &LostReason::Ended(*cause));
            return;
        }
        match what {
            What::Session(handle) => self.session_refused(now, handle, id, refusal),
            What::Renew(handles) => self.renew_refused(now, &handles, &refusal),
            What::Claim(claim) => self.claim_refused(now, claim, id, refusal),
            What::Call(call) => self.call_refused(now, call, refusal),
            What::Write(write) => self.write_refused(now, write, id, refusal),
            What::Post(post) => self.post_refused(now, post, &refusal),
        }
    }

    fn push(&mut self, now: Time, push: Push, signature: Option<Signature>) {
        match push {
            Push::Granted { session, ticket, fence } => {
                if let Some(claim) = self.find_claim(session, ticket) {
                    self.claim_granted(now, claim, fence, signature);
                }
            }
            Push::Finished { session, ticket, outcome } => {
                if let Some(claim) = self.find_claim(session, ticket) {
                    self.claim_finished(now, claim, outcome);
                }
            }
            Push::SessionEnded { session, cause } => {
                if let Some(handle) = self.by_id.get(&session) {
                    self.lose_session(*handle, &LostReason::Ended(cause));
                }
            }
            Push::LeaderChanged { leader } => self.leader_changed(now, leader),
            // Watches have connections of their own.
            Push::Events { .. } | Push::Progress { .. } | Push::WatchEnded { .. } => {}
        }
    }

    fn leader_changed(&mut self, now: Time, leader: Option<palisade_types::NodeId>) {
        let needs_leader = self.needs_leader();
        let Some(up) = self.net.link.as_mut().and_then(|l| l.up_mut()) else { return };
        let led = up.leads();
        up.leader = leader;
        match (up.leads(), led) {
            (true, true) => self.renew_all(now),
            (true, false) => self.everybody_wants(),
            (false, _) if needs_leader => self.leave(now, leader),
            (false, _) => {}
        }
    }

    fn find_claim(&self, session: SessionId, ticket: Ticket) -> Option<ClaimId> {
        self.sessions.get(self.by_id.get(&session)?)?.tickets.get(&ticket).copied()
    }

    fn needs_leader(&self) -> bool {
        !self.sessions.is_empty() || self.calls.values().any(|call| call.needs_leader())
    }

    /// Whether the connection is to a node that does not lead, though somebody needs the leader.
    pub(crate) fn on_the_way_to_leader(&self) -> bool {
        let up = self.net.link.as_ref().and_then(|l| l.up());
        up.is_some_and(|up| !up.leads()) && self.needs_leader()
    }

    /// Whether requests of sessions can be sent.
    pub(crate) fn leader_link(&self) -> bool {
        self.net.link.as_ref().and_then(|l| l.up()).is_some_and(Up::leads)
    }

    /// Sends a request on the connection; there must be one that has greeted.
    pub(crate) fn send(&mut self, now: Time, what: What, request: &Request) -> RequestId {
        let id = self.net.next_request();
        let link = self.net.link.as_mut().expect("requests are sent only while a connection is up");
        request.encode(id, &mut link.out);
        let up = link.up_mut().expect("requests are sent only after the greeting");
        up.pending.insert(id, Pending { what, sent: now });
        id
    }

    /// After every input and call: connects, moves on, or sends what is to be sent.
    pub(crate) fn settle(&mut self, now: Time) {
        if self.on_the_way_to_leader()
            && !self.calls.values().any(Call::keeps_link)
            && let Some(up) = self.net.link.as_ref().and_then(|l| l.up())
        {
            let leader = up.leader;
            self.leave(now, leader);
        }
        match &self.net.link {
            None if self.wants_link() && now >= self.net.rest_until => {
                let (link, endpoint) = self.net.dial(now);
                self.actions.push_back(Action::Dial { link, endpoint });
            }
            Some(link) if link.up().is_some() => self.pump(now),
            _ => {}
        }
    }

    /// Sends what wants to be sent, renewals first, the rest as far as the server takes it.
    fn pump(&mut self, now: Time) {
        if self.renewals_due {
            self.send_renewals(now);
        }
        while self.net.link.as_ref().and_then(|l| l.up()).is_some_and(|up| up.pending.len() < up.inflight_max)
        {
            match self.wanting.pop_front() {
                None => break,
                Some(Item::Session(handle)) => self.session_send(now, handle),
                Some(Item::Claim(claim)) => self.claim_send(now, claim),
                Some(Item::Call(call)) => self.call_send(now, call),
                Some(Item::Write(write)) => self.write_send(now, write),
                Some(Item::Post(post)) => self.post_send(now, post),
            }
        }
    }
}
