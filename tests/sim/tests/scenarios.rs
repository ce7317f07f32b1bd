//! Stories told by hand on the same world, with all its checkers on.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::time::Duration;

use palisade_sim::check::Violation;
use palisade_sim::network::Shape;
use palisade_sim::options::Options;
use palisade_sim::trace::Story;
use palisade_sim::world::World;
use palisade_types::{Mutant, Mutants};
use palisade_wire::Wait;

const SECOND: Duration = Duration::from_secs(1);

fn serving(seed: u64, nodes: usize, clients: usize) -> World {
    let mut world = World::by_hand(seed, nodes, clients);
    assert!(world.pass_until(10 * SECOND, |w| w.serving().is_some()).unwrap(), "somebody serves");
    world
}

#[test]
fn a_zombie_writer_is_refused() {
    let mut w = serving(1, 3, 2);
    let short = w.client_opens(0, 2 * SECOND).unwrap();
    let first = w.client_acquires(0, short, "ledger", Wait::No).unwrap();
    assert!(w.pass_until(5 * SECOND, |w| w.fence(0, first).is_some()).unwrap());
    let old = w.fence(0, first).unwrap();

    w.pause_client(0, None);
    let other = w.client_opens(1, 5 * SECOND).unwrap();
    let second = w.client_acquires(1, other, "ledger", Wait::Forever).unwrap();
    assert!(w.pass_until(10 * SECOND, |w| w.fence(1, second).is_some()).unwrap(), "the lease runs out");
    let new = w.fence(1, second).unwrap();
    assert!(new.epoch() > old.epoch());
    w.write_under(1, second);
    w.pass(SECOND).unwrap();
    let accepted = w.resource().accepted;

    w.client_wakes(0).unwrap();
    assert!(!w.has_claim(0, first), "the client is told that it lost the lock as soon as it looks");
    w.pass(SECOND).unwrap();
    assert_eq!((w.resource().zombies_refused, w.resource().accepted), (1, accepted));
    assert!(w.fence(1, second).is_some(), "the new holder is undisturbed");
}

#[test]
fn killing_all_nodes_loses_no_acknowledged_grant() {
    let mut w = serving(2, 3, 2);
    let session = w.client_opens(0, 10 * SECOND).unwrap();
    let keys = ["a", "b", "c", "d", "e"];
    let claims = keys.map(|key| w.client_acquires(0, session, key, Wait::No).unwrap());
    let all_held = |w: &World| claims.iter().all(|c| w.fence(0, *c).is_some());
    assert!(w.pass_until(5 * SECOND, all_held).unwrap());
    let fences = claims.map(|c| w.fence(0, c).unwrap());

    for round in 0..4 {
        for node in 0..3 {
            w.crash_node(node, Some(Duration::from_millis(200 * (node as u64 + 1)))).unwrap();
        }
        assert!(w.pass_until(10 * SECOND, |w| w.serving().is_some()).unwrap(), "round {round}");
        w.pass(3 * SECOND).unwrap();
        assert!(all_held(&w), "round {round}: the session lives on and its locks with it");
        let leader = w.serving().unwrap();
        for (key, fence) in keys.iter().zip(&fences) {
            let d = w.describe(leader, key).unwrap();
            let holder = &d.holders[0];
            assert_eq!((Some(holder.session), holder.epoch), (w.session(0, session), fence.epoch()));
        }
    }
    let other = w.client_opens(1, 10 * SECOND).unwrap();
    let again = w.client_acquires(1, other, "a", Wait::Forever).unwrap();
    w.pass(SECOND).unwrap();
    assert!(w.fence(1, again).is_none(), "the key is held");
    w.client_releases(0, claims[0]).unwrap();
    assert!(w.pass_until(5 * SECOND, |w| w.fence(1, again).is_some()).unwrap());
    assert_eq!(w.fence(1, again).unwrap().epoch().0, fences[0].epoch().0 + 1);
}

/// A leader that is not heard, or does not hear, is replaced, and clients go on with the new one.
fn leader_cut_off(seed: u64, shape: Shape) {
    let mut w = serving(seed, 3, 1);
    let session = w.client_opens(0, 10 * SECOND).unwrap();
    let held = w.client_acquires(0, session, "k", Wait::No).unwrap();
    assert!(w.pass_until(5 * SECOND, |w| w.fence(0, held).is_some()).unwrap());
    let old = w.serving().unwrap();
    let cut = w.network_mut().draw_cut(shape, Some(old));
    let cut = w.make_cut(cut, None);
    let replaced = |w: &World| w.serving().is_some_and(|n| n != old);
    assert!(w.pass_until(15 * SECOND, replaced).unwrap(), "another leads");
    let before = w.committed();
    let more = w.client_acquires(0, session, "more", Wait::No).unwrap();
    assert!(w.pass_until(15 * SECOND, |w| w.fence(0, more).is_some()).unwrap(), "and serves");
    assert!(w.committed() > before);
    assert!(w.fence(0, held).is_some(), "the lock taken before is held still");
    w.heal(cut);
    w.pass(5 * SECOND).unwrap();
    let term = w.term();
    w.pass(20 * SECOND).unwrap();
    assert_eq!(w.term(), term, "the old leader comes back in peace");
}

#[test]
fn a_leader_that_is_not_heard_is_replaced() {
    leader_cut_off(3, Shape::Mute);
}

#[test]
fn a_leader_that_does_not_hear_is_replaced() {
    leader_cut_off(4, Shape::Deaf);
}

#[test]
fn a_follower_that_hears_the_leader_no_more_deposes_nobody() {
    let mut w = serving(5, 3, 1);
    w.pass(5 * SECOND).unwrap();
    let leader = w.serving().unwrap();
    let (cut_off, term) = ((leader + 1) % 3, w.term());
    let directions = vec![(leader, cut_off), (cut_off, leader)];
    let cut = w.network_mut().cut("between the leader and one follower".into(), directions);
    w.make_cut(cut, None);
    w.pass(60 * SECOND).unwrap();
    assert_eq!(
        (w.serving(), w.term()),
        (Some(leader), term),
        "it still reaches the other follower, to no avail"
    );
}

#[test]
fn a_leader_whose_disk_hangs_is_replaced() {
    let mut w = serving(6, 3, 1);
    let session = w.client_opens(0, 10 * SECOND).unwrap();
    let held = w.client_acquires(0, session, "k", Wait::No).unwrap();
    assert!(w.pass_until(5 * SECOND, |w| w.fence(0, held).is_some()).unwrap());
    let old = w.serving().unwrap();
    w.slow_disk(old, 3_600 * SECOND);
    // Something to write, or nobody would notice.
    let more = w.client_acquires(0, session, "more", Wait::No).unwrap();
    let replaced = |w: &World| w.serving().is_some_and(|n| n != old);
    assert!(w.pass_until(30 * SECOND, replaced).unwrap(), "another leads");
    assert!(w.pass_until(10 * SECOND, |w| w.fence(0, more).is_some()).unwrap(), "and serves");
    assert!(w.fence(0, held).is_some(), "the session outlived the change");
}

#[test]
fn a_lone_node_that_loses_power_keeps_what_it_acknowledged() {
    let mut w = serving(7, 1, 1);
    let session = w.client_opens(0, 10 * SECOND).unwrap();
    for round in 1..=20_u64 {
        let claim = w.client_acquires(0, session, "k", Wait::Forever).unwrap();
        assert!(w.pass_until(10 * SECOND, |w| w.fence(0, claim).is_some()).unwrap(), "round {round}");
        assert_eq!(w.fence(0, claim).unwrap().epoch().0, round, "no epoch is lost or given twice");
        w.client_releases(0, claim).unwrap();
        w.crash_node(0, Some(Duration::from_millis(50))).unwrap();
    }
}

/// Plays until a renewal lies unread when its session's deadline passes. Says whether the session
/// lives.
fn outlives_its_deadline(mutants: Mutants) -> Result<bool, Violation> {
    let mut options = Options::by_hand(8, 3, 1);
    options.mutants = mutants;
    options.shard.expiry_slack = SECOND;
    let mut w = World::new(options, Story::Keep);
    w.begin();
    w.pass_until(10 * SECOND, |w| w.serving().is_some())?;
    let handle = w.client_opens(0, 2 * SECOND)?;
    let held = w.client_acquires(0, handle, "k", Wait::No)?;
    w.pass_until(5 * SECOND, |w| w.fence(0, held).is_some())?;
    let (leader, session) = (w.serving().unwrap(), w.session(0, handle).unwrap());
    w.deafen_node(leader, None);
    assert!(w.pass_until(SECOND, |w| w.lies_unread(leader, session))?, "the client renews");
    w.pass(3 * SECOND)?;
    let alive = w.lives(leader, session);
    w.node_hears(leader)?;
    w.pass(100 * Duration::from_millis(1))?;
    Ok(alive && w.lives(leader, session))
}

#[test]
fn a_renewal_in_the_buffer_of_a_socket_holds_expiry_back() {
    assert_eq!(outlives_its_deadline(Mutants::NONE), Ok(true));
    let broken = outlives_its_deadline(Mutants::only(Mutant::D1)).unwrap_err();
    assert_eq!(broken.rule, "S11", "{broken}");
}

/// However late, a session whose client is dead ends once the sockets are read.
#[test]
fn sockets_that_are_read_again_let_the_dead_go() {
    let mut w = serving(9, 3, 1);
    let handle = w.client_opens(0, 2 * SECOND).unwrap();
    assert!(w.pass_until(5 * SECOND, |w| w.session(0, handle).is_some()).unwrap());
    let (leader, session) = (w.serving().unwrap(), w.session(0, handle).unwrap());
    w.pause_client(0, None);
    w.pass(Duration::from_millis(200)).unwrap();
    w.deafen_node(leader, None);
    w.pass(3 * SECOND).unwrap();
    assert!(w.lives(leader, session), "a mark is owed");
    w.node_hears(leader).unwrap();
    w.pass(Duration::from_millis(100)).unwrap();
    assert!(!w.lives(leader, session));
}
