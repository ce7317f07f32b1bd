//! The gate of a resource that only one process writes to: the rule, kept durably, around each write.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use palisade_types::{Epoch, Fence, Key, Name};

use crate::error::Failed;
use crate::ledger::Ledger;
use crate::operation::{Begun, OperationId, Past};
use crate::shown::Shown;

/// How an operation failed, which its register must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undone<E> {
    /// Certainly nothing has happened: a retry may do it.
    NotDone(E),
    /// Nobody knows, for example because an answer did not come in time. A retry is told so
    /// ([`Past::Unknown`]) until [`FenceGate::settle`].
    Unknown(E),
}

/// What became of an operation that shall be done once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Once<T, E> {
    /// It was done now.
    Done(T),
    /// It was attempted before, and not again.
    Before(Past),
    /// It was attempted now and failed.
    Failed(Undone<E>),
}

/// Lets writes through that show a fence not yet superseded, one at a time for each key. It protects what nobody
/// writes to but through it; writers in other processes need a rule at the resource itself, or `palisade gate`.
///
/// The floor is raised durably *before* the write begins, and no other write of its key runs between: a crash in the middle
/// leaves a floor that refuses more than it would have to, never less.
#[derive(Debug)]
pub struct FenceGate<L, F = Fence> {
    ledger: L,
    only: Option<Key>,
    turns: Turns,
    shown: PhantomData<fn(&F)>,
}

impl<L: Ledger> FenceGate<L> {
    /// A gate for a resource that is protected by one key: fences of any other are refused.
    pub fn of(key: Key, ledger: L) -> FenceGate<L> {
        FenceGate { ledger, only: Some(key), turns: Turns::default(), shown: PhantomData }
    }

    /// A gate for many resources, each protected by a key of its own. The caller makes sure that a fence's key is the one
    /// that protects what is written.
    pub fn of_many(ledger: L) -> FenceGate<L> {
        FenceGate { ledger, only: None, turns: Turns::default(), shown: PhantomData }
    }

    /// The same gate for fences whose signature was verified, and no others: an epoch that somebody invented raises no floor,
    /// and a program that forgets to verify does not compile.
    ///
    /// ```no_run
    /// # use palisade_fence::{FenceGate, Key, PublicKey, RedbLedger, Verifier};
    /// # fn example(key: Key, ledger: RedbLedger, pem: &str, shown: &str) -> Result<(), Box<dyn std::error::Error>> {
    /// let gate = FenceGate::of(key, ledger).require_signed();
    /// let verifier = Verifier::new("77b1c0de00c0ffee".parse()?, [PublicKey::from_pem(pem)?])?;
    /// // A writer shows both as one text: the signature, a space, the fence.
    /// let fence = verifier.verify(shown.parse()?)?;
    /// gate.protect(&fence, || { /* write */ })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// ```compile_fail
    /// # use palisade_fence::{Fence, FenceGate, Key, RedbLedger};
    /// # fn example(key: Key, ledger: RedbLedger, fence: &Fence) -> Result<(), Box<dyn std::error::Error>> {
    /// let gate = FenceGate::of(key, ledger).require_signed();
    /// gate.protect(fence, || ())?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "signed")]
    pub fn require_signed(self) -> FenceGate<L, crate::VerifiedFence> {
        FenceGate { ledger: self.ledger, only: self.only, turns: self.turns, shown: PhantomData }
    }
}

impl<L: Ledger, F: Shown> FenceGate<L, F> {
    /// What the gate remembers by.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// Runs the write if the fence is not superseded. While it runs no other write of this key does; it blocks
    /// until its turn comes. The write must be over when it returns: what it leaves running in the background is not protected.
    ///
    /// # Errors
    /// [`Failed::Refused`] and [`Failed::WrongKey`] are final. The write has not begun.
    pub fn protect<T>(&self, fence: &F, write: impl FnOnce() -> T) -> Result<T, Failed<L::Error>> {
        let fence = fence.as_fence();
        self.check_key(fence)?;
        let turn = self.turns.of(fence.key());
        let _mine = turn.lock().unwrap_or_else(PoisonError::into_inner);
        self.ledger.admit(fence)?;
        Ok(write())
    }

    /// Runs the operation if the fence is not superseded and nobody has attempted it before, under whatever epoch. One that
    /// panics, or whose process dies, is on record as of unknown outcome.
    ///
    /// # Errors
    /// As for [`FenceGate::protect`]; and [`Failed::Ledger`] when the operation was done and that could not be recorded, so that
    /// its outcome counts as unknown.
    pub fn once<T, E>(
        &self,
        fence: &F,
        resource: &Name,
        operation: &OperationId,
        write: impl FnOnce() -> Result<T, Undone<E>>,
    ) -> Result<Once<T, E>, Failed<L::Error>> {
        let fence = fence.as_fence();
        self.check_key(fence)?;
        let turn = self.turns.of(fence.key());
        let _mine = turn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Begun::Before(past) = self.ledger.begin(fence, resource, operation)? {
            return Ok(Once::Before(past));
        }
        match write() {
            Ok(value) => {
                self.ledger.done(resource, operation, fence.epoch()).map_err(Failed::Ledger)?;
                Ok(Once::Done(value))
            }
            Err(undone) => {
                if matches!(undone, Undone::NotDone(_)) {
                    self.ledger.not_done(resource, operation).map_err(Failed::Ledger)?;
                }
                Ok(Once::Failed(undone))
            }
        }
    }

    /// Says what became of an operation of unknown outcome, after looking at the resource itself. The fence must not be
    /// superseded: whoever settles acts. Answers with the epoch under which the operation is on record as done from now
    /// on, if it is: what was done once stays so, whatever a look that came too late has seen.
    ///
    /// # Errors
    /// As for [`FenceGate::protect`].
    pub fn settle(
        &self,
        fence: &F,
        resource: &Name,
        operation: &OperationId,
        was_done: bool,
    ) -> Result<Option<Epoch>, Failed<L::Error>> {
        let epoch = fence.as_fence().epoch();
        let settle = || match was_done {
            true => self.ledger.done(resource, operation, epoch).map(|()| Some(epoch)),
            false => self.ledger.not_done(resource, operation),
        };
        self.protect(fence, settle)?.map_err(Failed::Ledger)
    }

    fn check_key(&self, fence: &Fence) -> Result<(), Failed<L::Error>> {
        match &self.only {
            Some(wanted) if wanted != fence.key() => {
                Err(Failed::WrongKey { wanted: wanted.clone(), shown: fence.key().clone() })
            }
            _ => Ok(()),
        }
    }
}

/// One lock for each key in use.
#[derive(Debug, Default)]
struct Turns(Mutex<HashMap<Key, Arc<Mutex<()>>>>);

impl Turns {
    fn of(&self, key: &Key) -> Arc<Mutex<()>> {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever is in a turn or waits for it holds a second count.
        if turns.len() >= 1024 {
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        }
        turns.entry(key.clone()).or_default().clone()
    }
}
