//! Lock sets against real nodes: whoever asks for the same keys in whatever order gets them in the end, and
//! one that is given up leaves nothing behind.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use palisade_client::blocking::{Client, Session};
use palisade_client::{AcquireError, ClientConfig, SetError};

use crate::support::{Cluster, one_cluster, until};

/// Sets that wait for longer than this are taken for a deadlock.
const STUCK: Duration = Duration::from_secs(60);
const KEYS: [&str; 5] = ["set/a", "set/b", "set/c", "set/d", "set/e"];
const CLIENTS: u64 = 3;
const ROUNDS: usize = 150;

fn open(endpoints: &[String]) -> (Client, Session) {
    let client = Client::connect(ClientConfig::new(endpoints)).expect("a client");
    let session = client.session().open().expect("a session");
    (client, session)
}

/// The keys in an order of its own.
fn shuffled(rng: &mut palisade_types::Rng) -> Vec<&'static str> {
    let mut left = KEYS.to_vec();
    let mut order = Vec::new();
    while !left.is_empty() {
        order.push(left.swap_remove(rng.below(left.len() as u64) as usize));
    }
    order
}

#[test]
fn sets_of_the_same_keys_in_any_order_never_wait_for_each_other_in_a_circle() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let endpoints = cluster.endpoints();
    let inside = Mutex::new(());
    let last = Mutex::new(Vec::new());
    let work = |seed: u64| {
        let (_client, session) = open(&endpoints);
        let mut rng = palisade_types::Rng::new(seed);
        for round in 0..ROUNDS {
            let named = shuffled(&mut rng);
            let request = named.iter().fold(session.set(), |set, key| set.fenced(*key, "store"));
            let set = request.wait(STUCK).acquire().unwrap_or_else(|e| panic!("{round}, {named:?}: {e}"));
            let alone = inside.try_lock().expect("nobody else has the set");
            let epochs: Vec<u64> = set.fences().map(|fence| fence.epoch().0).collect();
            let mut last = last.lock().expect("nobody panics here");
            assert!(last.iter().zip(&epochs).all(|(before, now)| before < now), "{last:?}, then {epochs:?}");
            *last = epochs;
            drop((alone, last));
            if round % 2 == 0 { drop(set) } else { set.release().expect("released") }
        }
    };
    thread::scope(|scope| {
        for seed in 0..CLIENTS {
            let work = &work;
            scope.spawn(move || work(seed));
        }
    });
    let all = last.into_inner().expect("nobody panicked");
    assert_eq!(all, [CLIENTS * ROUNDS as u64; KEYS.len()], "every key was granted once a set");
}

#[test]
fn a_set_that_is_given_up_midway_leaves_no_key_held_or_awaited() {
    let _one = one_cluster();
    let cluster = Cluster::start();
    let (client, holder) = open(&cluster.endpoints());
    let (_other, session) = open(&cluster.endpoints());
    let guard = holder.advisory(KEYS[3]).acquire().expect("free");
    let idle = |but: &str| {
        let page = client.locks(None, 100).expect("a page");
        page.rows.iter().all(|row| row.key.as_str() == but || (row.holding, row.waiting) == (0, 0))
    };
    let request = || KEYS.iter().rev().fold(session.set(), |set, key| set.advisory(*key));
    let held = request().no_wait().acquire().expect_err("one is held");
    assert!(matches!(&held, SetError::Acquire { key, error: AcquireError::Held { .. } } if key == KEYS[3]));
    until("what was granted is free", || idle(KEYS[3]).then_some(()));
    let late = request().wait(Duration::from_millis(50)).acquire().expect_err("one is held");
    assert!(matches!(&late, SetError::Acquire { key, error: AcquireError::TimedOut } if key == KEYS[3]));
    until("what was granted is free", || idle(KEYS[3]).then_some(()));
    guard.release().expect("released");
    let set = request().acquire().expect("all are free");
    assert_eq!(set.fences().count(), KEYS.len());
    drop(set);
    until("all are free", || idle("").then_some(()));
}
