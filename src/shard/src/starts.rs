//! Which start of a member is let in: so that a directory that went back in time, or of which there are two,
//! does not take part (DESIGN section 11).
//!
//! Every start of a node draws a nonce and stores it, with the number of the start, before anything is sent. The
//! node shows its last [`palisade_types::STARTS_MAX`] nonces; each peer stores the start it lets in before it lets it
//! in. A start is let in if it is the one on record or one that follows it: with the nonce on record at
//! its place in what is shown. An old copy of the directory was not there at the later starts. It
//! draws other nonces for the same numbers, so wherever a later start is on record it is found out,
//! however often it is started, and so is the second of two copies.
//!
//! What that proves, and what it does not. Of a start that is rolled back, every vote and every block it
//! confirmed was counted by a peer that had let it in, and that peer has it on record: no peer that
//! counted on the lost start ever counts on the copy. A peer that never saw the lost start has nothing to
//! hold against the copy. Two quorums of three nodes may meet in the rolled-back node alone, so records
//! at those who saw it are not enough: the others must hear of them before they count. Therefore hellos
//! also carry what the sender has on record of all members, and a record heard of refuses like one's own.
//! A copy is let in only where nobody that has seen a later start has been heard since: another node
//! is then out of reach while this one is rolled back, two faults at a time.
//!
//! And a copy taken during a start, brought back before the next one, is the next one: nothing here tells
//! it from a node that was killed.

use palisade_types::{Start, Starts};

/// What to do about the start that a peer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Showing {
    /// The start on record.
    Same,
    /// A start that follows the one on record, or the first one: to be stored before the peer is let in.
    Later(Start),
    /// It has no nonce, and none is on record: of a version that draws none.
    Plain,
}

/// Why a start is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Astray {
    /// What is shown cannot have followed what is on record.
    #[error(
        "shows start {shown}, which does not follow start {known} that has been let in: its directory is an old copy \
         (a backup, a snapshot), or one of two copies. Stop it and do not start this directory again: replace \
         the node under a new number"
    )]
    Outdated {
        /// The number of the start that is shown.
        shown: u64,
        /// The number of the start on record.
        known: u64,
    },
    /// The record is older than all that is shown.
    #[error(
        "shows start {shown} and cannot prove any more that it follows start {known}: let it meet the other members, \
         or replace the node under a new number"
    )]
    Unproven {
        /// The number of the start that is shown.
        shown: u64,
        /// The number of the start on record.
        known: u64,
    },
}

impl Astray {
    /// Whether it is certain, and will be so at any later time.
    pub fn is_final(&self) -> bool {
        matches!(self, Astray::Outdated { .. })
    }
}

/// Judges what a member shows by the start on record here, and by those that other members have on record.
///
/// # Errors
/// Why it is not let in. What others have on record only refuses or, where the own record is too old, proves.
pub fn judge(known: Option<Start>, heard: &[Start], shown: &Starts) -> Result<Showing, Astray> {
    let mut proven = false;
    for record in known.iter().chain(heard) {
        match shown.nonce_of(record.number) {
            Some(nonce) if nonce == record.nonce => proven = true,
            None if shown.number > record.number => {}
            _ => return Err(Astray::Outdated { shown: shown.number, known: record.number }),
        }
    }
    let Some(present) = shown.present() else {
        // Without a nonce nothing was proven, and nothing may be on record.
        return match known.iter().chain(heard).next() {
            None => Ok(Showing::Plain),
            Some(record) => Err(Astray::Unproven { shown: shown.number, known: record.number }),
        };
    };
    match known {
        Some(record) if record == present => Ok(Showing::Same),
        Some(record) if !proven => Err(Astray::Unproven { shown: shown.number, known: record.number }),
        _ => Ok(Showing::Later(present)),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;
    use palisade_types::{STARTS_MAX, StartNonce};

    use super::*;

    /// Every history of at most `deep` starts: at each the nonce is one of two, as in a fork.
    fn histories(deep: u32) -> Vec<Starts> {
        let mut all = vec![Starts::default()];
        let mut at = 0;
        while let Some(before) = all.get(at).cloned() {
            at += 1;
            if before.number < u64::from(deep) {
                for fork in 0..2 {
                    let mut next = before.clone();
                    next.begin(StartNonce(u128::from(before.number) * 2 + fork + 1));
                    all.push(next);
                }
            }
        }
        all
    }

    fn is_in(record: Start, history: &Starts) -> bool {
        history.nonce_of(record.number) == Some(record.nonce)
    }

    /// All of what may be on record, what others may have on record, and what may be shown: let in is exactly
    /// who has all records behind it.
    #[test]
    fn a_start_is_let_in_exactly_if_it_follows_all_that_is_on_record() {
        let all = histories(4);
        let mut seen = [0; 4];
        for shown in all.iter().filter(|h| h.number > 0) {
            for known in all.iter().map(Starts::present) {
                for heard in all.iter().map(Starts::present) {
                    let follows = known.iter().chain(&heard).all(|r| is_in(*r, shown));
                    let heard: Vec<Start> = heard.into_iter().collect();
                    let verdict = judge(known, &heard, shown);
                    match verdict {
                        Ok(Showing::Same) => assert!(follows && known == shown.present()),
                        Ok(Showing::Later(start)) => {
                            assert!(follows && known != shown.present() && Some(start) == shown.present());
                        }
                        Ok(Showing::Plain) => panic!("it has a nonce"),
                        Err(why) => assert!(!follows && why.is_final(), "{known:?} {heard:?} {shown:?}"),
                    }
                    let kind = match verdict {
                        Ok(Showing::Same) => 0,
                        Ok(_) => 1,
                        Err(_) => 2 + usize::from(known.is_some_and(|k| k.number == shown.number)),
                    };
                    seen[kind] += 1;
                }
            }
        }
        assert!(seen.iter().all(|n| *n > 50), "{seen:?}");
    }

    /// A directory is copied at any start; original and copy go on for any number of starts. Once a peer has
    /// let in a start of one that the other does not have, it never lets in the other.
    #[test]
    fn an_old_copy_never_comes_in_where_a_later_start_was_let_in() {
        for copied_at in 1..6u64 {
            for original_goes_on in 1..6u64 {
                for copy_goes_on in 1..(STARTS_MAX as u64) - 8 {
                    let mut original = Starts::default();
                    (0..copied_at).for_each(|n| original.begin(StartNonce(u128::from(n) + 1)));
                    let mut copy = original.clone();
                    (0..original_goes_on).for_each(|n| original.begin(StartNonce(1_000 + u128::from(n))));
                    (0..copy_goes_on).for_each(|n| copy.begin(StartNonce(2_000 + u128::from(n))));
                    assert!(judge(original.present(), &[], &copy).unwrap_err().is_final());
                    let heard = original.present().into_iter().collect::<Vec<_>>();
                    assert!(judge(None, &heard, &copy).unwrap_err().is_final());
                }
            }
        }
    }

    #[test]
    fn who_missed_more_starts_than_are_shown_waits_for_the_word_of_another_member() {
        let mut starts = Starts::default();
        starts.begin(StartNonce(1));
        let first = starts.present();
        (2..=STARTS_MAX as u128).for_each(|n| starts.begin(StartNonce(n)));
        let before_last = starts.present();
        assert!(matches!(judge(first, &[], &starts), Ok(Showing::Later(_))));
        starts.begin(StartNonce(77));
        let refused = judge(first, &[], &starts).unwrap_err();
        assert!(matches!(refused, Astray::Unproven { shown: 33, known: 1 }) && !refused.is_final());
        let heard: Vec<Start> = before_last.into_iter().collect();
        assert_eq!(judge(first, &heard, &starts), Ok(Showing::Later(starts.present().unwrap())));
    }

    #[test]
    fn a_version_without_nonces_is_let_in_until_it_has_shown_one() {
        let plain = Starts { number: 5, nonces: vec![] };
        assert_eq!(judge(None, &[], &plain), Ok(Showing::Plain));
        let known = Start { number: 4, nonce: StartNonce(4) };
        assert!(!judge(Some(known), &[], &plain).unwrap_err().is_final());
        // And its first start with one begins the chain, where nothing is on record.
        let mut starts = plain;
        starts.begin(StartNonce(6));
        assert_eq!(judge(None, &[], &starts), Ok(Showing::Later(starts.present().unwrap())));
        assert!(!judge(Some(known), &[], &starts).unwrap_err().is_final());
    }
}
