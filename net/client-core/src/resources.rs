//! Claims to resources: beside the first acquire of a key that names its resource, the client puts the pair
//! on record, once, and hears whether another key is there. No acquire waits for it.
//!
//! What is asked lives as long as a claim (a lock asked for) wants to know it. What was answered is
//! remembered for the whole client, up to a bound, and not asked again: so a conflict that is mended stays
//! a warning to a client that has met it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use palisade_types::{Key, Name, Refusal, Reply, RequestId, Time};
use palisade_wire::Request;

use crate::api::{ClaimId, Conflict, Event};
use crate::core::Core;
use crate::net::What;
use crate::session::{retry_after, session_is_full};
use crate::timers::Item;

/// How many answers are remembered; the oldest is forgotten first, and asked for again when it is needed.
const ANSWERS_MAX: usize = 1_024;

/// A question to the registry. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PostId(u64);

/// What a claim knows of its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// It has not asked.
    Nothing,
    /// It waits for the answer.
    Asked(PostId),
    /// It has been told all there is to tell, or does not want to know.
    All,
}

/// A question that is not answered yet.
#[derive(Debug)]
struct Post {
    resource: Name,
    key: Key,
    /// The claims that want to know.
    waiting: BTreeSet<ClaimId>,
    /// On its way on the present connection.
    request: Option<RequestId>,
    retry_at: Time,
    attempts: u32,
    timer: Time,
}

#[derive(Debug)]
enum Pair {
    Asked(PostId),
    Answered(Option<Conflict>),
}

/// The pairs of resources and keys that this client has met.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    pairs: BTreeMap<(Name, Key), Pair>,
    posts: BTreeMap<PostId, Post>,
    /// Those that are answered, oldest answer first.
    answered: VecDeque<(Name, Key)>,
}

impl Registry {
    /// All questions that are not answered.
    pub(crate) fn posts(&self) -> impl Iterator<Item = PostId> {
        self.posts.keys().copied()
    }

    fn answer(&mut self, pair: (Name, Key), conflict: Option<Conflict>) {
        self.pairs.insert(pair.clone(), Pair::Answered(conflict));
        self.answered.push_back(pair);
        if self.answered.len() > ANSWERS_MAX
            && let Some(oldest) = self.answered.pop_front()
        {
            self.pairs.remove(&oldest);
        }
    }
}

impl Core {
    /// The acquire of this claim has been sent: the claim to its resource follows, unless it was made before.
    pub(crate) fn claim_resource(&mut self, id: ClaimId) {
        let Some(claim) = self.claims.get_mut(&id).filter(|claim| claim.told == Told::Nothing) else {
            return;
        };
        let Some(resource) = claim.spec.resource.clone() else { return };
        let pair = (resource, claim.spec.key.clone());
        claim.told = Told::All;
        match self.registry.pairs.get(&pair) {
            Some(Pair::Answered(None)) => {}
            Some(Pair::Answered(Some(conflict))) => {
                let conflict = conflict.clone();
                self.event(Event::ClaimConflict { claim: id, conflict });
            }
            Some(&Pair::Asked(post)) => {
                claim.told = Told::Asked(post);
                if let Some(post) = self.registry.posts.get_mut(&post) {
                    post.waiting.insert(id);
                }
            }
            None => {
                let post = PostId(self.new_handle());
                if let Some(claim) = self.claims.get_mut(&id) {
                    claim.told = Told::Asked(post);
                }
                self.registry.pairs.insert(pair.clone(), Pair::Asked(post));
                let (resource, key) = pair;
                let asked = Post {
                    resource,
                    key,
                    waiting: BTreeSet::from([id]),
                    request: None,
                    retry_at: Time::ZERO,
                    attempts: 0,
                    timer: Time::FAR,
                };
                self.registry.posts.insert(post, asked);
                self.wanting.push_back(Item::Post(post));
            }
        }
    }

    /// A claim does not want to know any more. A question that is on its way is still heard of, lest it is
    /// asked again with the next acquire.
    pub(crate) fn leave_post(&mut self, claim: ClaimId, told: Told) {
        let Told::Asked(id) = told else { return };
        if let Some(claim) = self.claims.get_mut(&claim) {
            claim.told = Told::All;
        }
        let Some(post) = self.registry.posts.get_mut(&id) else { return };
        post.waiting.remove(&claim);
        if post.waiting.is_empty() && post.request.is_none() {
            self.remove_post(id);
        }
    }

    fn remove_post(&mut self, id: PostId) -> Option<Post> {
        let mut post = self.registry.posts.remove(&id)?;
        self.timers.set(Item::Post(id), &mut post.timer, Time::FAR);
        self.registry.pairs.remove(&(post.resource.clone(), post.key.clone()));
        Some(post)
    }

    /// Without a connection nothing is on its way, and what nobody wants to know is asked no more.
    pub(crate) fn detach_posts(&mut self) {
        self.registry.posts.values_mut().for_each(|post| post.request = None);
        let unwanted = |(id, post): (&PostId, &Post)| post.waiting.is_empty().then_some(*id);
        let unwanted: alloc::vec::Vec<PostId> = self.registry.posts.iter().filter_map(unwanted).collect();
        for id in unwanted {
            self.remove_post(id);
        }
    }

    pub(crate) fn post_due(&mut self, id: PostId) {
        let Some(post) = self.registry.posts.get_mut(&id) else { return };
        self.timers.set(Item::Post(id), &mut post.timer, Time::FAR);
        self.wanting.push_back(Item::Post(id));
    }

    pub(crate) fn post_send(&mut self, now: Time, id: PostId) {
        let leader = self.leader_link();
        let Some(post) = self.registry.posts.get(&id) else { return };
        if !leader || post.request.is_some() || post.retry_at > now {
            return;
        }
        let request = Request::ClaimResource { resource: post.resource.clone(), key: post.key.clone() };
        let sent = self.send(now, What::Post(id), &request);
        if let Some(post) = self.registry.posts.get_mut(&id) {
            post.request = Some(sent);
        }
    }

    /// Takes the registry's answer. False when it is another.
    pub(crate) fn post_reply(&mut self, id: PostId, reply: Reply) -> bool {
        let Reply::ResourceClaimed { keys, other, .. } = reply else { return false };
        let Some(Post { resource, key, waiting, .. }) = self.remove_post(id) else { return true };
        let conflict = other.map(|other| Conflict { resource: resource.clone(), other, keys });
        self.registry.answer((resource, key.clone()), conflict.clone());
        for claim in &waiting {
            if let Some(claim) = self.claims.get_mut(claim) {
                claim.told = Told::All;
            }
        }
        if let Some(conflict) = conflict {
            self.event(Event::ResourceConflict { key, conflict: conflict.clone() });
            for claim in waiting {
                self.event(Event::ClaimConflict { claim, conflict: conflict.clone() });
            }
        }
        true
    }

    pub(crate) fn post_refused(&mut self, now: Time, id: PostId, refusal: &Refusal) {
        let Some(post) = self.registry.posts.get_mut(&id) else { return };
        post.request = None;
        // Where there is no room for a claim nobody is warned: the next acquire asks again.
        if refusal.is_final() || session_is_full(refusal) || post.waiting.is_empty() {
            self.remove_post(id);
            return;
        }
        post.retry_at = now + retry_after(refusal, post.attempts, &self.config, &mut self.rng);
        post.attempts += 1;
        self.timers.set(Item::Post(id), &mut post.timer, post.retry_at);
    }
}
