//! Random sequences of commands: machine, twin and model must agree on every effect and every read.

use super::*;
use palisade_types::{Epoch, NodeId, OperatorAct, Rng, Term, Value};
use std::collections::BTreeMap;
use std::string::String;

/// What a world is like: how many of everything, and how often what is done.
struct Shape {
    limits: ClusterLimits,
    tokens: u64,
    keys: u64,
    commands: u64,
    /// Of a thousand commands, how many end a session.
    ends: u64,
    /// Whether tickets are mostly new, rather than drawn again and again.
    fresh: bool,
    /// Of a thousand acquires, how many are shared.
    shared: u64,
}

struct Run {
    world: World,
    rng: Rng,
    keys: Vec<Key>,
    /// Every session ever opened, with the next ticket it would draw.
    sessions: Vec<(SessionId, u64)>,
    reached: BTreeMap<String, u64>,
}

impl Run {
    /// Mostly a live session, now and then one that may have ended.
    fn session(&mut self) -> usize {
        let live: Vec<SessionId> = self.world.machine.sessions_iter().map(|s| s.session).collect();
        if live.is_empty() || self.rng.per_mille(50) {
            return self.rng.below(self.sessions.len() as u64) as usize;
        }
        let id = live[self.rng.below(live.len() as u64) as usize];
        self.sessions.iter().position(|s| s.0 == id).unwrap()
    }

    fn command(&mut self, shape: &Shape) -> Command {
        let rng = &mut self.rng;
        if self.sessions.is_empty() || rng.per_mille(60) {
            let tags =
                |rng: &mut Rng| rng.per_mille(500).then(|| name(["x", "yy", "zzz"][rng.below(3) as usize]));
            let token = SessionToken(u128::from(rng.below(shape.tokens)));
            let ttl_ms = [0, 500, 40_000, 3][(rng.below(1000) / 300) as usize];
            return Command::OpenSession { token, ttl_ms, owner: tags(rng), incarnation: tags(rng) };
        }
        if rng.per_mille(30) {
            return Command::Sweep { releases: rng.below(4) as u32 };
        }
        let at = self.session();
        let (session, next) = self.sessions[at];
        let rng = &mut self.rng;
        if rng.per_mille(shape.ends) {
            let silent_ms = rng.below(9_000);
            let cause = if rng.per_mille(300) { Cause::Closed } else { Cause::Expired { silent_ms } };
            let release_now = [0, 1, 2, 50, 60][rng.below(5) as usize];
            return Command::EndSession { session, cause, release_now };
        }
        if rng.per_mille(60) {
            let key = self.keys[rng.below(shape.keys) as usize].clone();
            let last = self.world.machine.describe(&key, 0).epoch.0;
            let epoch = Epoch(last.saturating_sub([0, 0, 0, 1, 2, 4, 9][rng.below(7) as usize]));
            let (rows, _) = self.world.machine.list_sessions(None, 1_000);
            let closed = rows.iter().find(|row| row.quarantined && rng.per_mille(700));
            let session = closed.map_or(session, |row| row.session);
            let act = match rng.below(7) {
                0 => OperatorAct::ReportDead { session },
                1 => OperatorAct::Evict { session },
                2 => OperatorAct::Retire { key, epoch },
                3 => {
                    let to = rng.per_mille(500).then(|| NodeId(rng.between(1, 3) as u32));
                    OperatorAct::Transfer { term: Term(rng.between(1, 9)), to }
                }
                _ => OperatorAct::ForceRelease { key, epoch },
            };
            let release_now = rng.below(3) as u32;
            let release_now = act.ends().map_or(0, |_| release_now);
            return Command::Operator { by: name("ops"), reason: name("test"), act, release_now };
        }
        let low = if shape.fresh { next.saturating_sub(3) } else { u64::from(!rng.per_mille(20)) };
        let ticket = if rng.per_mille(400) { next } else { rng.between(low.min(next), next + 1) };
        if ticket == next {
            self.sessions[at].1 += 1;
        }
        let ticket = Ticket(ticket);
        let held = |t: &u64| {
            matches!(self.world.machine.claim(session, Ticket(*t)), Some(crate::ClaimView::Held(_)))
        };
        let other = (1..next).rev().find(held).filter(|_| rng.per_mille(800));
        let other = Ticket(other.unwrap_or_else(|| rng.between(low.min(next), next + 1)));
        let value = |rng: &mut Rng| Value::from(["", "v", "w"][rng.below(3) as usize].as_bytes());
        match rng.below(26) {
            20 | 21 => {
                let key = self.keys[rng.below(shape.keys) as usize].clone();
                let value = std::vec![rng.below(250) as u8; [0, 1, 9, 16_384][rng.below(4) as usize]];
                Command::Put { session, ticket, key, value: value.into() }
            }
            22 | 23 => {
                let key = self.keys[rng.below(shape.keys) as usize].clone();
                Command::Delete { session, ticket, key }
            }
            24 | 25 => {
                let key = self.keys[rng.below(shape.keys) as usize].clone();
                Command::ClaimResource { resource: name(["bucket", "db", "x"][rng.below(3) as usize]), key }
            }
            0..=10 => {
                let key = self.keys[rng.below(shape.keys) as usize].clone();
                let class = if rng.per_mille(150) { Class::Fenced } else { Class::Advisory };
                let resource = rng.per_mille(300).then(|| name(["db", "bucket"][rng.below(2) as usize]));
                let mode = if rng.per_mille(shape.shared) { Mode::Shared } else { Mode::Exclusive };
                let on_death = if rng.per_mille(300) { OnDeath::Quarantine } else { OnDeath::Release };
                let wait = rng.per_mille(700);
                Command::Acquire { session, ticket, key, class, resource, mode, wait, on_death }
            }
            11 | 12 => {
                let key = self.keys[rng.below(shape.keys) as usize].clone();
                Command::Campaign { session, ticket, key, value: value(rng), wait: rng.per_mille(700) }
            }
            13 => Command::Proclaim { session, ticket, leads: other, value: value(rng) },
            14 | 15 => Command::Downgrade { session, ticket, holds: other },
            16 | 17 => Command::Release { session, ticket },
            _ => Command::Cancel { session, ticket, timeout: rng.per_mille(500) },
        }
    }

    fn note(&mut self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::SessionOpened { session, .. } = effect {
                self.sessions.push((*session, 1));
            }
            if let Effect::Reply(Reply::Granted { fence, .. }) | Effect::Granted { fence, .. } = effect
                && fence.barrier() < fence.epoch()
            {
                *self.reached.entry("barrier below epoch".into()).or_insert(0) += 1;
            }
            let text = std::format!("{effect:?}");
            let mut words = text.split([' ', '(', ')', '{']).filter(|w| !w.is_empty());
            let mut kind = String::from(words.next().unwrap_or(""));
            for _ in 0..2 {
                if matches!(kind.rsplit(' ').next(), Some("Reply" | "Refused")) {
                    kind = std::format!("{kind} {}", words.next().unwrap_or(""));
                }
            }
            *self.reached.entry(kind).or_insert(0) += 1;
        }
    }
}

/// Runs one world; returns how often each kind of effect was seen.
fn run(seed: u64, shape: &Shape) -> BTreeMap<String, u64> {
    let run = run_world(seed, shape, true);
    run.reached
}

/// Commands, each with where it stands.
pub(super) type Log = Vec<(Applied, Vec<u8>)>;

/// The commands of a few worlds, and their limits.
pub(super) fn logs(seeds: u64) -> Vec<(ClusterLimits, Log)> {
    let mut logs = Vec::new();
    for seed in 0..seeds {
        for (i, shape) in shapes().iter().enumerate() {
            let run = run_world(seed * 4 + i as u64, shape, false);
            logs.push((shape.limits, run.world.log));
        }
    }
    logs
}

fn run_world(seed: u64, shape: &Shape, is_compared: bool) -> Run {
    let keys: Vec<Key> = (0..shape.keys).map(|n| name(&std::format!("key {n}"))).collect();
    let world = World::with(shape.limits);
    let mut run = Run { world, rng: Rng::new(seed), keys, sessions: Vec::new(), reached: BTreeMap::new() };
    for n in 0..shape.commands {
        let command = run.command(shape);
        run.world.clock_ms += run.rng.below(50);
        let is_unknown = match &command {
            Command::Operator { act: OperatorAct::Retire { key, .. }, .. } => {
                run.world.machine.describe(key, 0).class.is_none()
            }
            _ => false,
        };
        let effects = run.world.apply(&command);
        run.note(&effects);
        let done = match (&command, &effects[..]) {
            (Command::Downgrade { .. }, [Effect::Reply(Reply::Granted { .. }), ..]) => {
                "Reply Granted again as shared"
            }
            (Command::Proclaim { .. }, [Effect::Reply(Reply::Finished { .. })]) => "proclaimed",
            (Command::Operator { act: OperatorAct::Retire { .. }, .. }, [Effect::Reply(reply)])
                if is_unknown && *reply == (Reply::OperatorDone { action: LogIndex(run.world.index) }) =>
            {
                "claims of a key without a record withdrawn"
            }
            _ => "",
        };
        *run.reached.entry(done.into()).or_insert(0) += 1;
        *run.reached.entry("quarantine".into()).or_insert(0) +=
            run.world.machine.counts().quarantined_sessions;
        if is_compared {
            run.world.machine.check();
        }
        if run.world.machine.backlog_len() > 0 {
            *run.reached.entry("backlog".into()).or_insert(0) += 1;
        }
        if is_compared && (n % 16 == 0 || n + 1 == shape.commands) {
            run.world.compare(&run.keys);
            compare_claims(&run);
        }
    }
    *run.reached.entry("floor".into()).or_insert(0) += run.world.machine.epoch_floor().0;
    run
}

/// The views of sessions and claims agree with the listings, which agree with the model.
fn compare_claims(run: &Run) {
    let machine = &run.world.machine;
    let (mut rows, _) = machine.list_sessions(None, 1_000);
    rows.retain(|row| !row.quarantined);
    let views: Vec<_> = machine.sessions_iter().collect();
    assert_eq!(rows.len(), views.len());
    for (row, view) in rows.iter().zip(views) {
        assert_eq!((row.session, row.held, row.waiting), (view.session, view.held, view.waiting));
        assert_eq!(row.values, view.values);
        assert_eq!(machine.session(view.session), Some(view));
        assert_eq!(machine.ended(view.session), None);
        let next = run.sessions.iter().find(|s| s.0 == view.session).unwrap().1;
        let open = (0..=next + 1).filter_map(|t| machine.claim(view.session, Ticket(t)));
        let (mut held, mut queued) = (0, 0);
        for claim in open {
            match claim {
                crate::ClaimView::Held(fence) => {
                    let holders = machine.describe(fence.key(), 0).holders;
                    let mut mine = holders.iter().filter(|h| h.session == view.session);
                    assert!(mine.any(|h| h.epoch == fence.epoch()), "{fence} is of a holder");
                    assert!(fence.barrier() <= holders[0].epoch, "nobody holds below {fence}");
                    held += 1;
                }
                crate::ClaimView::Queued => queued += 1,
            }
        }
        assert_eq!((held, queued), (view.held, view.waiting));
    }
    for &(session, _) in &run.sessions {
        assert_eq!(machine.ended(session), run.world.model.ended(session));
    }
}

fn small() -> ClusterLimits {
    ClusterLimits {
        sessions: 6,
        keys_per_session: 5,
        waiters_per_key: 4,
        idle_keys: 3,
        claims: 18,
        ended_sessions: 5,
        state_bytes: 20_000,
        resource_claims: 6,
    }
}

fn shapes() -> [Shape; 4] {
    let roomy = ClusterLimits { idle_keys: 4, ended_sessions: 30, ..ClusterLimits::default() };
    [
        Shape { limits: small(), tokens: 30, keys: 7, commands: 1_000, ends: 30, fresh: false, shared: 300 },
        Shape {
            limits: small(),
            tokens: 1_000_000,
            keys: 4,
            commands: 1_000,
            ends: 60,
            fresh: true,
            shared: 700,
        },
        Shape {
            limits: roomy,
            tokens: 1_000_000,
            keys: 3,
            commands: 1_500,
            ends: 15,
            fresh: true,
            shared: 500,
        },
        Shape { limits: roomy, tokens: 40, keys: 90, commands: 2_000, ends: 10, fresh: true, shared: 800 },
    ]
}

#[test]
fn random_commands_have_the_same_effects_as_in_the_model() {
    let shapes = shapes();
    let mut reached = BTreeMap::new();
    for seed in 0..20 {
        for (i, shape) in shapes.iter().enumerate() {
            for (kind, count) in run(seed * 4 + i as u64, shape) {
                *reached.entry(kind).or_insert(0) += count;
            }
        }
    }
    for kind in [
        "Granted",
        "Reply Granted",
        "Reply Queued",
        "Reply Denied",
        "Reply Finished",
        "Reply Opened",
        "Reply SessionClosed",
        "SessionOpened",
        "SessionEnded",
        "Reply Refused SessionEnded",
        "Reply Refused SessionFull",
        "Reply Refused QuotaExceeded",
        "Reply Refused BadRequest",
        "Reply Refused ClassMismatch",
        "Reply Refused TicketMismatch",
        "Reply Refused TicketFinished",
        "Reply Refused NotHeld",
        "Reply Refused InUse",
        "Reply OperatorDone",
        "Reply PutDone",
        "Reply Deleted",
        "Reply Refused OwnedByOther",
        "Reply ResourceClaimed",
        "Forced",
        "barrier below epoch",
        "quarantine",
        "Reply Granted again as shared",
        "proclaimed",
        "backlog",
        "floor",
    ] {
        let count: u64 = reached.get(kind).copied().unwrap_or(0);
        assert!(count >= 60, "{kind} was reached {count} times only: {reached:#?}");
    }
    let withdrawn = reached.get("claims of a key without a record withdrawn");
    assert!(withdrawn.is_some_and(|count| *count >= 10), "{reached:#?}");
}
