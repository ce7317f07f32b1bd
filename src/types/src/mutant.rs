//! Bugs that can be switched on in the simulator, to show that the tests would find them. The
//! numbers are those of the catalogue of Raft and lock-server bugs kept in `tests/SIMULATION.md`; the D
//! is one of deadlines, the O
//! are bugs of what operators do, the V bugs of ephemeral keys, the L and E those of locks and elections, the F
//! those of reads, the H those of handing over, the W those of watches, the R those of the registry of resources, the S
//! and P those of snapshots, the C storage faults that snapshots and the log behind them must stand.
//! No configuration file, flag or message can reach this: a server always runs with none.

/// A bug that other systems have shipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mutant {
    /// A follower acknowledges entries before they are on its disk.
    B1 = 1,
    /// A vote leaves before term and vote are durable.
    B3 = 3,
    /// An append deletes everything after its previous index, also what matches.
    B4 = 4,
    /// Entries of an older term are committed by counting.
    B6 = 6,
    /// A disk completion from before a truncation counts for what was written after it.
    B8 = 8,
    /// Entries of a term reach the disk before the term itself.
    B9 = 9,
    /// The leader counts its own copy before its disk has it.
    B13 = 13,
    /// A request is answered with success because its index was committed, whoever's entry is there.
    B14 = 14,
    /// Finished tickets are missing from a snapshot: a command that is sent again runs again.
    B12 = 12,
    /// A snapshot shows records that changed while it was taken as they are then.
    P4 = 67,
    /// The floor of the epochs is missing from a snapshot.
    P1 = 64,
    /// Queues come out of a snapshot backwards.
    P2 = 65,
    /// Ended sessions are missing from a snapshot: a token opens a second session.
    P3 = 66,
    /// A leader acts on session deadlines it kept from an earlier term.
    B20 = 20,
    /// A lock is granted to a waiter whose session has ended.
    B22 = 22,
    /// A snapshot is installed over a log whose conflicting tail stays.
    B24 = 24,
    /// A snapshot is labelled one block earlier than the state in it.
    B25 = 25,
    /// A request whose previous index lies before the log is taken for a conflict.
    B36 = 44,
    /// Chunks of two snapshots are taken for one.
    B40 = 40,
    /// An installed snapshot does not raise what is committed and applied.
    S1 = 41,
    /// A state is exchanged for a snapshot's without a word to those who watch.
    S2 = 42,
    /// A log is cut behind a snapshot that is not durable yet.
    S3 = 43,
    /// A session that is due is ended without a mark that all that has arrived was read.
    D1 = 62,
    /// A forced release meets whoever holds the key, whatever the epoch.
    O1 = 33,
    /// A retired key starts again at the epoch it had.
    O2 = 34,
    /// A shared grant shuts out the holders it joins.
    L1 = 56,
    /// A downgrade keeps its epoch: exclusive writes still under way stay admitted.
    L2 = 57,
    /// A key is freed although its holder, which expired, asked for quarantine.
    L3 = 58,
    /// A shared claim joins the holders past an exclusive one that waits.
    L4 = 59,
    /// A proclamation is acknowledged and not kept.
    E1 = 60,
    /// A retired key keeps its claims to resources.
    R1 = 61,
    /// An ephemeral key outlives its session.
    V1 = 48,
    /// A put overwrites another session's key.
    V2 = 49,
    /// A follower answers a linearizable read by its own commit index, without asking the leader.
    F1 = 45,
    /// A lease runs from when its answers came, not from when its heartbeat was sent.
    F2 = 46,
    /// A stall of the leader is credited to its lease, as it is to sessions.
    F3 = 47,
    /// A leader keeps its lease while it hands over.
    H1 = 68,
    /// An invitation to lead counts in whatever term it arrives.
    H2 = 69,
    /// A leader that gives a hand-over up takes its lease back.
    H3 = 70,
    /// A leader that hands over goes on proposing.
    H4 = 71,
    /// A watch that goes on behind a revision misses the next one.
    W1 = 50,
    /// A watch that goes on behind what is no longer kept begins at the oldest that is, in silence.
    W2 = 51,
    /// A node that is behind a watch's cursor does not wait: it tells again what is known.
    W3 = 52,
    /// A proclamation is told to no watcher.
    W4 = 53,
    /// An ephemeral key that goes with its session is told to no watcher.
    W5 = 54,
    /// A snapshot's file is taken because its header is whole and its length fits.
    C5 = 35,
    /// What a new snapshot replaces is removed before the new one's name is durable.
    C10 = 36,
    /// Behind a snapshot that the log contradicts, the log's tail is kept.
    C12 = 37,
    /// A log that begins behind the snapshot's end is joined to it.
    C13 = 38,
    /// Segments that were left behind below the log's beginning are read as part of it.
    C14 = 39,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 50] = [
        Mutant::B1,
        Mutant::B3,
        Mutant::B4,
        Mutant::B6,
        Mutant::B8,
        Mutant::B9,
        Mutant::B13,
        Mutant::B14,
        Mutant::B12,
        Mutant::P4,
        Mutant::P1,
        Mutant::P2,
        Mutant::P3,
        Mutant::B20,
        Mutant::B22,
        Mutant::B24,
        Mutant::B25,
        Mutant::B36,
        Mutant::B40,
        Mutant::S1,
        Mutant::S2,
        Mutant::S3,
        Mutant::D1,
        Mutant::O1,
        Mutant::O2,
        Mutant::L1,
        Mutant::L2,
        Mutant::L3,
        Mutant::L4,
        Mutant::E1,
        Mutant::R1,
        Mutant::V1,
        Mutant::V2,
        Mutant::F1,
        Mutant::F2,
        Mutant::F3,
        Mutant::H1,
        Mutant::H2,
        Mutant::H3,
        Mutant::H4,
        Mutant::W1,
        Mutant::W2,
        Mutant::W3,
        Mutant::W4,
        Mutant::W5,
        Mutant::C5,
        Mutant::C10,
        Mutant::C12,
        Mutant::C13,
        Mutant::C14,
    ];

    /// Those of the log on disk whose tests are beside it, in `wal/src/tests/rot.rs`.
    pub const OF_THE_LOG: [Mutant; 5] = [Mutant::C5, Mutant::C10, Mutant::C12, Mutant::C13, Mutant::C14];
}

/// Which bugs are switched on. None, outside the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Mutants(u128);

impl Mutants {
    /// No bug: what ships.
    pub const NONE: Mutants = Mutants(0);

    /// One bug.
    pub const fn only(m: Mutant) -> Mutants {
        Mutants(1 << m as u8)
    }

    /// Whether that bug is on.
    #[inline]
    pub const fn has(self, m: Mutant) -> bool {
        self.0 & (1 << m as u8) != 0
    }
}
