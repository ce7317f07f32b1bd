//! A small value that changes rarely and must never be lost or go back: two alternating
//! generations, each in two pages of their own.
//!
//! Generation `g` lives in slot `g % 2`, pages `2 * slot` and `2 * slot + 1`. One copy is written and
//! synced before the other is begun, first the one that is unreadable or older, and the value is in
//! force once both are. So however often it crashes, at most one page of a slot is unreadable, and
//! then the other says what happened: an older generation (the new one was never in force) or the
//! new one (it may have been). Two unreadable copies in one slot are no work of crashes: what they
//! held may have been the newest value, and the file is refused.

use alloc::string::ToString;
use alloc::vec::Vec;
use bytes::Bytes;
use palisade_types::{DecodeError, Reader, Writer};

use crate::error::RecoverError;
use crate::page::{self, Owner, PAGE, PageFault};

const COPIES: usize = 4;

/// Bytes of a slots file.
pub const SLOTS_BYTES: usize = COPIES * PAGE;

/// A value that a slots file can hold.
pub trait SlotValue: Clone + PartialEq {
    /// The first four bytes of its pages.
    const MAGIC: [u8; 4];
    /// The format number of its pages. What older ones do not have reads as zeros.
    const FORMAT: u16 = page::FORMAT;

    /// Appends its fields, less than 4000 bytes.
    fn encode(&self, w: &mut Writer<'_>);

    /// Reads its fields.
    ///
    /// # Errors
    /// When they make no sense.
    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError>;
}

/// A slots file as it stands: what is in force, and what would be written next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slots<T> {
    owner: Owner,
    generation: u64,
    value: T,
    incomplete: bool,
    /// For each slot, which of its copies is to be overwritten first: one that is not needed.
    first: [usize; 2],
}

/// The next generation, to be written in order: one copy, a sync, the other copy, a sync.
#[derive(Clone, Debug)]
pub struct Staged<T> {
    generation: u64,
    value: T,
    /// Offset and page of each copy, in the order to be written.
    pub copies: [(u64, Bytes); 2],
}

fn seal_copy<T: SlotValue>(owner: &Owner, generation: u64, copy: usize, value: &T) -> Vec<u8> {
    page::seal_as(T::FORMAT, T::MAGIC, copy as u16, owner, |w| {
        w.u64(generation);
        value.encode(w);
    })
}

impl<T: SlotValue> Slots<T> {
    /// A new file: its bytes, and how it stands.
    pub fn create(owner: Owner, value: T) -> (Vec<u8>, Slots<T>) {
        let pages: Vec<Vec<u8>> =
            (0..COPIES).map(|copy| seal_copy(&owner, copy as u64 / 2, copy, &value)).collect();
        (page::concat(&pages), Slots { owner, generation: 1, value, incomplete: false, first: [0, 0] })
    }

    /// Reads a file's bytes. `file` is its name, for messages.
    ///
    /// # Errors
    /// [`RecoverError::GenerationLost`] when the newest value may be lost, [`RecoverError::Foreign`],
    /// [`RecoverError::Newer`], or [`RecoverError::Damaged`] when the generations do not fit together.
    pub fn read(owner: Owner, file: &str, bytes: &[u8]) -> Result<Slots<T>, RecoverError> {
        let mut copies: [Option<(u64, T)>; COPIES] = [None, None, None, None];
        for (copy, place) in copies.iter_mut().enumerate() {
            *place = read_copy(owner, file, bytes, copy)?;
        }
        let mut slots: [Option<(u64, T)>; 2] = [None, None];
        for slot in 0..2 {
            let best = match (&copies[2 * slot], &copies[2 * slot + 1]) {
                (None, None) => {
                    let offset = (2 * slot * PAGE) as u64;
                    return Err(RecoverError::GenerationLost { file: file.to_string(), offset });
                }
                (Some(a), Some(b)) => {
                    if b.0 > a.0 {
                        b
                    } else {
                        a
                    }
                }
                (Some(one), None) | (None, Some(one)) => one,
            };
            slots[slot] = Some(best.clone());
        }
        let (Some(even), Some(odd)) = (slots[0].take(), slots[1].take()) else {
            unreachable!("both slots were filled above");
        };
        let (newest, before) = if even.0 > odd.0 { (even, odd) } else { (odd, even) };
        if newest.0 != before.0 + 1 {
            return Err(RecoverError::Damaged {
                file: file.to_string(),
                offset: 0,
                what: "its generations do not follow one another".to_string(),
            });
        }
        let slot = (newest.0 % 2) as usize;
        let whole = |copy: usize, value: &(u64, T)| copies[copy].as_ref().is_some_and(|c| c == value);
        let incomplete = !(whole(2 * slot, &newest)
            && whole(2 * slot + 1, &newest)
            && whole(2 - 2 * slot, &before)
            && whole(3 - 2 * slot, &before));
        let generation = |copy: usize| copies[copy].as_ref().map(|c| c.0);
        let first = [0, 2].map(|slot| usize::from(generation(slot) > generation(slot + 1)));
        Ok(Slots { owner, generation: newest.0, value: newest.1, incomplete, first })
    }

    /// The value in force.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// How often the value was written; 1 in a new file.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// A copy is unreadable or was never finished: write the value anew before building on it.
    pub fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Prepares the next generation.
    pub fn stage(&self, value: T) -> Staged<T> {
        let generation = self.generation + 1;
        let slot = (generation % 2) as usize;
        let first = 2 * slot + self.first[slot];
        let page = |copy: usize| {
            let bytes = seal_copy(&self.owner, generation, copy, &value);
            ((copy * PAGE) as u64, Bytes::from(bytes))
        };
        Staged { generation, copies: [page(first), page(first ^ 1)], value }
    }

    /// Both copies of the staged generation are durable: it is in force.
    ///
    /// # Panics
    /// When it is not the next one.
    pub fn commit(&mut self, staged: Staged<T>) {
        assert!(staged.generation == self.generation + 1, "generations are written one after the other");
        self.first[(staged.generation % 2) as usize] = 0;
        self.generation = staged.generation;
        self.value = staged.value;
        self.incomplete = false;
    }
}

type Copy<T> = Option<(u64, T)>;

fn read_copy<T: SlotValue>(
    owner: Owner,
    file: &str,
    bytes: &[u8],
    copy: usize,
) -> Result<Copy<T>, RecoverError> {
    let page = match page::open_upto(T::FORMAT, bytes, copy * PAGE, T::MAGIC) {
        Ok(page) => page,
        Err(PageFault::Bad) => return Ok(None),
        Err(PageFault::Newer(format)) => return Err(RecoverError::Newer { file: file.to_string(), format }),
    };
    crate::error::check_owner(file, &page.owner, &owner)?;
    let mut fields = page.fields;
    let Ok(generation) = fields.u64() else { return Ok(None) };
    // A copy in another's place, or of the wrong slot, is none.
    if usize::from(page.kind) != copy || (generation % 2) as usize != copy / 2 {
        return Ok(None);
    }
    Ok(T::decode(&mut fields).ok().map(|value| (generation, value)))
}
