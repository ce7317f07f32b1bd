//! Whether a part of the demo ended as it should: decided from what stands in the database, and not from what
//! the workers believe.

use super::books::{Page, Verdict};

/// What is judged.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// The epoch under which the paused worker read, and tried to write when it woke up.
    pub(super) stale: u64,
    /// The epoch of the worker that wrote meanwhile.
    pub(super) newer: u64,
    /// What the paused worker was told.
    pub(super) told: Verdict,
    /// The books at the end.
    pub(super) page: Page,
}

/// The late write was refused, and the books are right.
///
/// # Errors
/// With a sentence that says what is not so.
pub(super) fn with_fence(case: &Case) -> Result<(), String> {
    happened(case)?;
    let Case { stale, page, .. } = case;
    if let Some(entry) = page.entries.iter().find(|entry| entry.epoch == *stale) {
        return Err(format!("the late write of {} under the stale epoch {stale} was taken", entry.worker));
    }
    if case.told == Verdict::Written {
        return Err("the paused worker was told that its late write was taken".to_owned());
    }
    let epochs: Vec<u64> = page.entries.iter().map(|entry| entry.epoch).collect();
    if !epochs.is_sorted() {
        return Err(format!("an older epoch wrote after a newer one: {epochs:?}"));
    }
    if page.floor != epochs.last().copied() {
        return Err(format!(
            "the floor is {:?}, and the last write had epoch {:?}",
            page.floor,
            epochs.last()
        ));
    }
    match page.should_be() {
        right if right == page.balance => Ok(()),
        right => Err(format!("the balance is {} and should be {right}", page.balance)),
    }
}

/// The late write was taken, and the books are wrong.
///
/// # Errors
/// With a sentence that says what is not so.
pub(super) fn without_fence(case: &Case) -> Result<(), String> {
    happened(case)?;
    let Case { stale, newer, page, .. } = case;
    let place = |epoch: &u64| page.entries.iter().position(|entry| entry.epoch == *epoch);
    match place(stale) {
        None => return Err("the late write is not in the books".to_owned()),
        Some(late) if place(newer) > Some(late) => {
            return Err("the write that was to be late came first".to_owned());
        }
        Some(_) => (),
    }
    match page.should_be() {
        right if right != page.balance => Ok(()),
        right => Err(format!("the balance is {right}, which is right: nothing was lost")),
    }
}

/// What both parts have in common: somebody newer has written.
fn happened(case: &Case) -> Result<(), String> {
    let Case { stale, newer, page, .. } = case;
    if stale >= newer {
        return Err(format!("the epoch did not rise: {stale}, then {newer}"));
    }
    if !page.entries.iter().any(|entry| entry.epoch == *newer) {
        return Err("the write of the second holder is not in the books".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use palisade_fence::Fence;

    use super::super::books::Books;
    use super::*;

    const KEY: &str = "k";

    fn fence(epoch: u64) -> Fence {
        format!("{KEY}@{epoch}/{epoch}").parse().unwrap()
    }

    /// The story as the workers write it, with a fence that is checked or not.
    fn story(path: &Path, checked: bool) -> Case {
        let mut books = Books::create(path).unwrap();
        let read = books.balance().unwrap();
        books.write(&fence(2), checked, "B", (read, -30)).unwrap();
        let told = books.write(&fence(1), checked, "A", (read, 50)).unwrap();
        if told != Verdict::Written {
            let read = books.balance().unwrap();
            assert_eq!(books.write(&fence(3), checked, "A", (read, 50)).unwrap(), Verdict::Written);
        }
        Case { stale: 1, newer: 2, told, page: books.page(KEY).unwrap() }
    }

    fn case(checked: bool) -> Case {
        let dir = tempfile::tempdir().unwrap();
        story(&dir.path().join("books.db"), checked)
    }

    fn says(verdict: Result<(), String>, word: &str) {
        let said = verdict.unwrap_err();
        assert!(said.contains(word), "{word:?} is not in: {said}");
    }

    #[test]
    fn a_refusal_with_the_fence_and_a_lost_update_without_it_are_what_is_to_be_seen() {
        let fenced = case(true);
        assert_eq!((fenced.told, fenced.page.balance), (Verdict::Refused { floor: 2 }, 120));
        assert_eq!(with_fence(&fenced), Ok(()));
        let bare = case(false);
        assert_eq!((bare.told, bare.page.balance, bare.page.should_be()), (Verdict::Written, 150, 120));
        assert_eq!(without_fence(&bare), Ok(()));
    }

    #[test]
    fn a_fence_that_does_not_hold_is_found_in_the_books_whatever_the_workers_say() {
        let bare = case(false);
        says(with_fence(&bare), "stale epoch 1 was taken");
        says(with_fence(&Case { told: Verdict::Refused { floor: 2 }, ..bare }), "stale epoch 1 was taken");
        let fenced = case(true);
        says(with_fence(&Case { told: Verdict::Written, ..fenced.clone() }), "was told");
        let mut lost = fenced.clone();
        lost.page.balance = 150;
        says(with_fence(&lost), "should be 120");
        let mut low = fenced.clone();
        low.page.floor = Some(2);
        says(with_fence(&low), "floor");
        let mut never = fenced.clone();
        never.page.entries.retain(|entry| entry.epoch != 2);
        says(with_fence(&never), "second holder");
        let mut mixed = fenced;
        mixed.page.entries.swap(0, 1);
        says(with_fence(&mixed), "older epoch");
    }

    #[test]
    fn without_a_fence_books_that_are_right_show_nothing() {
        let fenced = case(true);
        says(without_fence(&fenced), "not in the books");
        let mut right = case(false);
        right.page.balance = 120;
        says(without_fence(&right), "nothing was lost");
        let mut early = case(false);
        early.page.entries.swap(0, 1);
        says(without_fence(&early), "came first");
        says(without_fence(&Case { newer: 1, ..case(false) }), "did not rise");
    }
}
