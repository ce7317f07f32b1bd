//! The shard: what it holds, how inputs enter, when it wants to be called again.

use alloc::vec::Vec;
use core::time::Duration;

use palisade_machine::{Effect, Machine};
use palisade_raft::{ConfigError, Raft, Restored, Role};
use palisade_types::{BlockBuilder, Edge, LogIndex, NodeId, SnapshotId, Term, Time};
use palisade_wal::{Recovered, Wal};

use crate::action::{Actions, Note, Stop};
use crate::budget::Budget;
use crate::clock::ClusterClock;
use crate::clocks::Clocks;
use crate::config::ShardConfig;
use crate::drains::Drains;
use crate::handover::HandOver;
use crate::input::Input;
use crate::leases::Leases;
use crate::links::Links;
use crate::pace::{Bounds, Pace};
use crate::pending::{Origin, Pending};
use crate::remote::Remote;
use crate::rounds::{Item, Rounds};
use crate::snapshots::Snapshots;
use crate::stages::Stages;
use crate::waits::Waits;
use crate::watch::{WatchCounters, Watches};

/// How often a leader looks at its backlog of sweeps.
const SWEEP_EVERY: Duration = Duration::from_millis(5);

/// How long a follower may leave committed blocks for a turn that comes anyway.
const APPLY_WITHIN: Duration = Duration::from_millis(2);

/// One Raft group wired to its log and its state machine.
///
/// The driver hands in everything that happened ([`Shard::handle`]), calls [`Shard::finish_turn`]
/// and then [`Shard::apply_turn`] once each, carries out the [`Actions`] after either, and comes back
/// with the next inputs or at [`Shard::next_deadline`]. Time is the driver's and must not go back.
/// Where reads by lease are allowed, a turn begins with [`Shard::lease_time`] and calls
/// [`Shard::serve_leases`] between its last input and [`Shard::finish_turn`].
pub struct Shard {
    pub(crate) config: ShardConfig,
    pub(crate) raft: Raft,
    pub(crate) wal: Wal,
    pub(crate) machine: Machine,
    /// Commands of this turn and those that wait for the disk, not yet in the log.
    pub(crate) open: BlockBuilder,
    pub(crate) open_origins: Vec<Origin>,
    /// When the first command joined the open block.
    pub(crate) opened_at: Time,
    pub(crate) pace: Pace,
    pub(crate) pending: Pending,
    pub(crate) rounds: Rounds,
    pub(crate) remote: Remote,
    pub(crate) leases: Leases,
    pub(crate) handover: HandOver,
    pub(crate) clocks: Clocks,
    pub(crate) drains: Drains,
    pub(crate) waits: Waits,
    pub(crate) links: Links,
    pub(crate) watches: Watches,
    pub(crate) budget: Budget,
    pub(crate) clock: ClusterClock,
    pub(crate) applied: LogIndex,
    pub(crate) applied_chain: u128,
    pub(crate) applied_term: Term,
    pub(crate) snapshots: Snapshots,
    /// The term this node leads in.
    pub(crate) leading: Option<Term>,
    /// It has applied an entry of that term: clocks run, rounds may start.
    pub(crate) serving: bool,
    pub(crate) sweeping: bool,
    pub(crate) persisted: u64,
    /// The last turn left committed blocks for this one.
    pub(crate) deferred: bool,
    /// This turn gave the disk something to do.
    pub(crate) fed_disk: bool,
    pub(crate) effects: Vec<Effect>,
    pub(crate) counters: Counters,
    pub(crate) stages: Stages,
    pub(crate) seen: Time,
}

/// Counts since the start, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Blocks this node sealed as a leader.
    pub blocks_sealed: u64,
    /// Commands applied.
    pub commands_applied: u64,
    /// Blocks applied.
    pub blocks_applied: u64,
    /// Renewals acknowledged, sessions counted.
    pub renewals: u64,
    /// Reads answered, of any consistency and by any role.
    pub reads: u64,
    /// Those of them that a leader told this node the index for.
    pub follower_reads: u64,
    /// Those of them that asked for no more than what this node had applied.
    pub stale_reads: u64,
    /// Those of them that this node answered by its lease.
    pub lease_reads: u64,
    /// Confirmation rounds started.
    pub rounds: u64,
    /// Sessions this node decided to expire.
    pub expiries: u64,
    /// Changes of leadership seen by this node.
    pub leader_changes: u64,
    /// Requests answered `Busy` or `QuotaExceeded`.
    pub turned_away: u64,
    /// Milliseconds of stalls credited to sessions.
    pub stalled_ms: u64,
    /// Operators' actions answered as done by this node.
    pub operator_acts: u64,
    /// Snapshots of the own state that became durable.
    pub snapshots_taken: u64,
    /// Snapshots of a leader that took the place of the own state.
    pub snapshots_installed: u64,
    /// Chunks of snapshots read for other nodes and sent.
    pub snapshot_chunks_sent: u64,
    /// Steps of making a snapshot, or of taking one in.
    pub snapshot_slices: u64,
    /// Leaderships this node began to hand over.
    pub hand_overs: u64,
    /// Those of them that nobody took in time.
    pub hand_overs_given_up: u64,
}

impl Shard {
    /// A shard from what its log held, and the state that its newest snapshot holds, if there is one:
    /// see [`crate::read_state`]. `seed` is drawn anew at each start.
    ///
    /// # Errors
    /// When the consensus configuration contradicts itself, or log and snapshot do not meet.
    ///
    /// # Panics
    /// When the state is not that of the snapshot.
    pub fn new(
        config: ShardConfig,
        recovered: Recovered,
        state: Option<Machine>,
        seed: u64,
        now: Time,
    ) -> Result<Shard, ConfigError> {
        let start = recovered.snapshot.map_or(Edge::default(), |id| id.edge());
        let machine = state
            .unwrap_or_else(|| Machine::new(config.limits, config.shard, config.hash_seed, config.mutants));
        assert_eq!(machine.applied(), start.index, "the state is that of the snapshot");
        let restored = Restored {
            hard_state: recovered.hard_state,
            snapshot: recovered.snapshot,
            base: recovered.base,
            blocks: recovered.blocks,
        };
        let bounds =
            Bounds { light: config.light_commands, full: config.block_commands, gap: config.block_gap };
        let mut shard = Shard {
            raft: Raft::new(config.raft.clone(), restored, seed, now)?,
            wal: Wal::open(config.wal.clone(), recovered.tail, now),
            machine,
            open: BlockBuilder::new(),
            open_origins: Vec::new(),
            opened_at: now,
            pace: Pace::new(bounds, now),
            pending: Pending::default(),
            rounds: Rounds::default(),
            remote: Remote::default(),
            leases: Leases::default(),
            handover: HandOver::default(),
            clocks: Clocks::default(),
            drains: Drains::new(config.client_cores),
            waits: Waits::default(),
            links: Links::new(config.hash_seed),
            watches: Watches::new(config.watch, config.shard, config.hash_seed, config.mutants),
            budget: Budget::new(config.releases_per_second, now),
            clock: ClusterClock::default(),
            applied: start.index,
            applied_chain: start.chain,
            applied_term: start.term,
            snapshots: Snapshots::default(),
            leading: None,
            serving: false,
            sweeping: false,
            persisted: 0,
            deferred: false,
            fed_disk: false,
            effects: Vec::new(),
            counters: Counters::default(),
            stages: Stages::default(),
            seen: now,
            config,
        };
        shard.persisted = shard.wal.durable();
        if start.index > LogIndex(0) {
            shard.clock.observe(now, start.clock_ms);
            shard.watches.begin_behind(start.index);
        }
        Ok(shard)
    }

    /// Takes one thing that happened.
    pub fn handle(&mut self, now: Time, input: Input, out: &mut Actions) {
        self.pass_time(now, out);
        match input {
            Input::Request { conn, id, request } => self.handle_request(now, conn, id, request, out),
            Input::ConnClosed { conn } => {
                self.links.close(conn);
                self.watches.close(conn);
            }
            Input::Congested { conn } => self.watches.congested(conn),
            Input::Cleared { conn } => self.watches.cleared(conn),
            Input::Drained { core, drain } => {
                for session in self.drains.drained(core, drain) {
                    self.rounds.join(Item::Expire(session));
                }
            }
            Input::Peer { from, message } => self.raft.step(now, from, message),
            Input::HandOver => self.hand_over(now, out),
            Input::Disk { id, result } => {
                if let Err(fault) = self.wal.on_done(now, id, result) {
                    out.stop.get_or_insert(Stop::Disk(fault));
                }
            }
        }
    }

    /// Acts on what is due and seals the open block if the disk is free: what disks and peers are to
    /// do. Carry that out before [`Shard::apply_turn`].
    pub fn finish_turn(&mut self, now: Time, out: &mut Actions) {
        self.pass_time(now, out);
        self.raft.tick(now);
        self.note_hand_over(out);
        self.act_on_due(now, out);
        self.give_up_reads(now, out);
        self.run_urgent(now, out);
        self.note_stages(now, out);
        self.fed_disk = !out.disk.is_empty();
    }

    /// When to begin another turn if nothing happens before.
    pub fn next_deadline(&self) -> Time {
        if self.raft.has_urgent() {
            return self.seen;
        }
        let mut next = self.raft.next_deadline().min(self.wal.next_deadline());
        next = next.min(self.watches.next_deadline(self.seen));
        if self.raft.has_committed() {
            // Nobody waits for what a follower applies: the turn that ends the disk's work will do.
            let patience = self.deferred && self.leading.is_none() && self.remote.applying() == 0;
            next = next.min(if patience { self.seen + APPLY_WITHIN } else { self.seen });
        }
        if self.serving {
            next = next.min(self.clocks.next()).min(self.waits.next());
            if self.machine.has_backlog() && !self.sweeping {
                next = next.min(self.seen + SWEEP_EVERY);
            }
        }
        next = next.min(self.remote.next(self.read_patience()));
        if self.has_slices() {
            next = next.min(self.seen);
        }
        if !self.open.is_empty() && self.wal.is_idle() && self.raft.takes_proposals() {
            next = next.min(self.pace.next());
        }
        next
    }

    /// Applied up to here.
    pub fn applied(&self) -> LogIndex {
        self.applied
    }

    /// The chain hash of the last block applied.
    pub fn applied_chain(&self) -> u128 {
        self.applied_chain
    }

    /// The newest snapshot on the own disk.
    pub fn snapshot(&self) -> Option<SnapshotId> {
        self.wal.snapshot()
    }

    /// The state machine, for checkers and reads of this node's own state.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The consensus, for checkers.
    pub fn raft(&self) -> &Raft {
        &self.raft
    }

    /// The log, for checkers and metrics.
    pub fn wal(&self) -> &Wal {
        &self.wal
    }

    /// Counts since the start.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Counts of watches since the start.
    pub fn watch_counters(&self) -> WatchCounters {
        self.watches.counters()
    }

    /// How far this leader is behind with ending silent sessions: the age of the oldest deadline that has
    /// passed while its session lives. Zero when all is in time, and at a node that does not lead.
    pub fn expiry_lag(&self) -> Duration {
        self.clocks.lag(self.seen)
    }

    /// The leader this node knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.raft.leader()
    }

    /// Whether this node leads and has applied an entry of its own term.
    pub fn is_serving(&self) -> bool {
        self.serving
    }

    /// Asserts what must hold between calls: the parts' own invariants and how they relate.
    ///
    /// # Panics
    /// When one does not hold: this is a bug or damaged memory.
    pub fn check(&self) {
        self.raft.check();
        self.machine.check();
        let status = self.raft.status();
        assert!(self.applied <= status.commit, "applied {} beyond commit {}", self.applied, status.commit);
        assert!(!self.serving || self.leading.is_some(), "serving without leading");
        assert_eq!(self.applied, self.machine.applied(), "the state is that of what was applied");
        assert_eq!(self.open.count() as usize, self.open_origins.len(), "every command has an origin");
        if self.serving {
            assert_eq!(status.role, Role::Leader, "serving while {:?}", status.role);
            assert!(
                self.clocks.len() as u64 >= self.machine.counts().sessions,
                "a live session without a clock"
            );
        }
    }

    /// Credits a stall of this node: what it could not have heard is no silence.
    fn pass_time(&mut self, now: Time, out: &mut Actions) {
        assert!(now >= self.seen, "time goes back");
        let gap = now.since(self.seen);
        self.seen = now;
        if self.leading.is_some() && gap > self.config.stall_min {
            self.clocks.credit(gap);
            self.counters.stalled_ms += gap.as_millis() as u64;
            out.notes.push(Note::Stalled { ms: gap.as_millis() as u64 });
        }
    }
}
