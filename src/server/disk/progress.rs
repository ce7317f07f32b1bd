//! Writing to the last byte: what follows when the kernel writes less than it was asked to.

use palisade_wal::{DiskFault, PAGE};

/// How far a stretch of whole pages has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    at: u64,
    /// Pages in all, and those that are surely written.
    pages: usize,
    done: usize,
}

/// What follows from the end of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// All is written.
    Done,
    /// It is to be written again from this page on: the last page reached may be torn.
    Again(usize),
}

impl Progress {
    /// Nothing written yet of so many pages from byte `at` on.
    pub(super) fn new(at: u64, pages: usize) -> Progress {
        Progress { at, pages, done: 0 }
    }

    /// Where the stretch begins, in bytes.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Whether all is written.
    pub(super) fn is_done(&self) -> bool {
        self.done == self.pages
    }

    /// Takes in that a write from the last page asked for on wrote `n` bytes.
    ///
    /// # Errors
    /// [`DiskFault::Short`] when nothing more is written by trying.
    pub(super) fn advance(&mut self, file: &str, n: usize) -> Result<Next, DiskFault> {
        let pages = n / PAGE;
        if self.done + pages >= self.pages {
            self.done = self.pages;
            return Ok(Next::Done);
        }
        if pages == 0 {
            let (wanted, written) = (self.pages * PAGE, self.done * PAGE + n);
            let file = file.to_owned();
            return Err(DiskFault::Short { file, wanted: wanted as u64, written: written as u64 });
        }
        self.done += pages;
        Ok(Next::Again(self.done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_write_goes_on_from_the_page_it_may_have_torn() {
        let mut part = Progress::new(0, 4);
        assert_eq!(part.advance("f", PAGE + 1), Ok(Next::Again(1)));
        assert_eq!(part.advance("f", 2 * PAGE + 4095), Ok(Next::Again(3)));
        let stuck = DiskFault::Short { file: "f".to_owned(), wanted: 4 * 4096, written: 3 * 4096 + 100 };
        assert_eq!(part.advance("f", 100), Err(stuck));
        assert!(!part.is_done());
        assert_eq!(part.advance("f", PAGE), Ok(Next::Done));
        assert_eq!(part, Progress { at: 0, pages: 4, done: 4 });
    }
}
