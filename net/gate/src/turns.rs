//! The requests of one key, one after the other, and the outcomes that are unknown.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use palisade_fence::{Epoch, Key};
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// A write that may still take effect.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unknown {
    epoch: Epoch,
    until: Instant,
}

/// What is known of a key between its requests.
#[derive(Debug, Default)]
pub(crate) struct State {
    unknown: Option<Unknown>,
}

/// All keys with requests or unknown outcomes.
#[derive(Debug)]
pub(crate) struct Turns {
    keys: Mutex<HashMap<Key, Arc<tokio::sync::Mutex<State>>>>,
    queue: usize,
    within: Duration,
    upstream_max: Duration,
}

/// Idle keys are forgotten when there are so many.
const KEYS_KEPT: usize = 4096;

impl Turns {
    /// At most `queue` requests of a key wait, each at most `within`; an unknown outcome counts for `upstream_max`.
    pub(crate) fn new(queue: usize, within: Duration, upstream_max: Duration) -> Turns {
        Turns { keys: Mutex::default(), queue, within, upstream_max }
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<Key, Arc<tokio::sync::Mutex<State>>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The outcome of this write was unknown when the gate was started.
    pub(crate) fn was_in_flight(&self, key: Key, epoch: Epoch) {
        let unknown = Some(Unknown { epoch, until: Instant::now() + self.upstream_max });
        self.keys().insert(key, Arc::new(tokio::sync::Mutex::new(State { unknown })));
    }

    /// Waits for a turn of this key. `None` if too many wait, or for too long.
    pub(crate) async fn wait(&self, key: &Key) -> Option<Turn> {
        let slot = {
            let mut keys = self.keys();
            if keys.len() >= KEYS_KEPT {
                let now = Instant::now();
                keys.retain(|_, slot| {
                    let idle = |state: &State| state.unknown.is_none_or(|u| u.until <= now);
                    Arc::strong_count(slot) > 1 || slot.try_lock().is_ok_and(|state| !idle(&state))
                });
            }
            let slot = keys.entry(key.clone()).or_default();
            // The map has one count, and whoever has the turn or waits for it one each.
            if Arc::strong_count(slot) > self.queue + 1 {
                return None;
            }
            Arc::clone(slot)
        };
        let state = tokio::time::timeout(self.within, slot.lock_owned()).await.ok()?;
        Some(Turn { state, upstream_max: self.upstream_max, departed: None })
    }
}

/// The turn of one request. One that is dropped after its write has departed and before its outcome was known leaves it
/// unknown, whatever ended it.
#[derive(Debug)]
pub(crate) struct Turn {
    state: OwnedMutexGuard<State>,
    upstream_max: Duration,
    departed: Option<Epoch>,
}

impl Turn {
    /// The earlier write that keeps this epoch back, and for how long still.
    pub(crate) fn held_back(&mut self, epoch: Epoch) -> Option<(Epoch, Duration)> {
        let unknown = self.state.unknown?;
        let left = unknown.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.state.unknown = None;
            return None;
        }
        (epoch > unknown.epoch).then_some((unknown.epoch, left))
    }

    /// The write is about to be forwarded.
    pub(crate) fn departs(&mut self, epoch: Epoch) {
        self.departed = Some(epoch);
    }

    /// Its outcome is known. Returns whether nothing of this key is unknown any more.
    pub(crate) fn arrived(&mut self) -> bool {
        self.departed = None;
        self.state.unknown.is_none()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(epoch) = self.departed {
            // Of two unknown outcomes the higher epoch is held back by neither less, and by the later end.
            let epoch = self.state.unknown.map_or(epoch, |before| before.epoch.min(epoch));
            self.state.unknown = Some(Unknown { epoch, until: Instant::now() + self.upstream_max });
        }
    }
}
