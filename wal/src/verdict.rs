//! The decision table: what a batch is that cannot be read (RELIABILITY of storage: a torn tail is
//! dropped, damage is refused; the two are told apart by what was written around the batch).

/// What surrounds batch N, the first that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Something that is whole says that N had been synced: a later batch, the header of a segment
    /// opened after it, the hard state.
    pub(crate) sealed: bool,
    /// A commit index was on record that the log before N does not reach.
    pub(crate) hinted: bool,
    /// The mark of N is whole.
    pub(crate) marked: bool,
    /// No header and no mark of a batch after N exists: with one batch in flight at a time, N was
    /// the last one begun.
    pub(crate) in_flight: bool,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was acknowledged, or more is lost than one crash explains: refuse.
    Damaged,
    /// Its mark is whole: a crash that persisted the mark first, or rot within milliseconds of a
    /// crash. Dropped as torn, and counted apart.
    Suspect,
    /// It was never acknowledged: dropped.
    Torn,
}

/// The table, row by row.
pub(crate) fn judge(e: Evidence) -> Verdict {
    match (e.sealed, e.hinted, e.marked, e.in_flight) {
        (true, _, _, _) => Verdict::Damaged,
        (_, true, _, _) => Verdict::Damaged,
        (false, false, _, false) => Verdict::Damaged,
        (false, false, true, true) => Verdict::Suspect,
        (false, false, false, true) => Verdict::Torn,
    }
}
