//! Stories of elections and long-lived sessions, told by hand on whole clusters with all checkers on.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::time::Duration;

use palisade_sim::network::Shape;
use palisade_sim::world::World;
use palisade_types::Rng;
use palisade_wire::Wait;

const SECOND: Duration = Duration::from_secs(1);

fn serving(seed: u64, nodes: usize, clients: usize) -> World {
    let mut world = World::by_hand(seed, nodes, clients);
    assert!(world.pass_until(10 * SECOND, |w| w.serving().is_some()).unwrap(), "somebody serves");
    world
}

/// How many wait for a key, and who holds it, as the leader has applied.
fn seen(w: &World, key: &str) -> (u32, u32) {
    let d = w.serving().and_then(|leader| w.describe(leader, key)).unwrap();
    (d.holding, d.waiting)
}

#[test]
fn a_candidate_whose_session_ends_is_out_and_is_never_told_that_it_leads() {
    let mut w = serving(11, 3, 3);
    let first = w.client_opens(0, 20 * SECOND).unwrap();
    let leads = w.client_campaigns(0, first, "scheduler", Wait::Forever).unwrap();
    assert!(w.pass_until(5 * SECOND, |w| w.fence(0, leads).is_some()).unwrap());
    let second = w.client_opens(1, 2 * SECOND).unwrap();
    let zombie = w.client_campaigns(1, second, "scheduler", Wait::Forever).unwrap();
    assert!(w.pass_until(5 * SECOND, |w| seen(w, "scheduler") == (1, 1)).unwrap());
    let third = w.client_opens(2, 20 * SECOND).unwrap();
    let next = w.client_campaigns(2, third, "scheduler", Wait::Forever).unwrap();
    assert!(w.pass_until(5 * SECOND, |w| seen(w, "scheduler") == (1, 2)).unwrap());
    let epoch = w.fence(0, leads).unwrap().epoch();

    w.pause_client(1, None);
    assert!(
        w.pass_until(10 * SECOND, |w| seen(w, "scheduler") == (1, 1)).unwrap(),
        "its candidacy ends with it"
    );
    w.client_releases(0, leads).unwrap();
    assert!(
        w.pass_until(5 * SECOND, |w| w.fence(2, next).is_some()).unwrap(),
        "the next one that lives leads"
    );
    assert_eq!(w.fence(2, next).unwrap().epoch().0, epoch.0 + 1, "no epoch went to the dead");
    w.client_wakes(1).unwrap();
    assert!(!w.has_claim(1, zombie), "its campaign is over as soon as it looks");
    w.client_releases(2, next).unwrap();
    w.pass(10 * SECOND).unwrap();
    assert_eq!(seen(&w, "scheduler"), (0, 0));
    assert!(!w.has_claim(1, zombie) && w.fence(1, zombie).is_none());
}

/// Something happens to the leader of the moment.
fn disturb(w: &mut World, rng: &mut Rng) {
    let Some(leader) = w.serving() else { return };
    match rng.below(4) {
        0 => w.crash_node(leader, Some(Duration::from_millis(rng.between(50, 800)))).unwrap(),
        which => {
            let shape = [Shape::Mute, Shape::Deaf, Shape::Isolate][which as usize - 1];
            let cut = w.network_mut().draw_cut(shape, Some(leader));
            let end = w.now() + Duration::from_millis(rng.between(200, 4_000));
            w.make_cut(cut, Some(end));
        }
    }
}

#[test]
fn a_campaign_that_fails_leaves_no_candidate_behind_wherever_the_leader_changes() {
    let mut changed = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut w = serving(100 + seed, 3, 2);
        let first = w.client_opens(0, 30 * SECOND).unwrap();
        let leads = w.client_campaigns(0, first, "scheduler", Wait::Forever).unwrap();
        assert!(w.pass_until(5 * SECOND, |w| w.fence(0, leads).is_some()).unwrap());
        let epoch = w.fence(0, leads).unwrap().epoch();
        let second = w.client_opens(1, 30 * SECOND).unwrap();
        assert!(w.pass_until(5 * SECOND, |w| w.session(1, second).is_some()).unwrap());
        let term = w.term();
        // Its time to wait runs out, or the application drops the campaign and waits for nothing.
        let gives_up = seed % 2 == 1;
        for round in 0..3 {
            let wait = rng.between(1, 600);
            let wanted = if gives_up { Wait::Forever } else { Wait::Millis(wait as u32) };
            let campaign = w.client_campaigns(1, second, "scheduler", wanted).unwrap();
            // Somewhere between the request and the end of the wait, or right after it.
            w.pass(Duration::from_micros(rng.below(wait * 1_200))).unwrap();
            disturb(&mut w, &mut rng);
            if gives_up {
                w.pass(Duration::from_millis(rng.below(300))).unwrap();
                w.client_abandons(1, campaign).unwrap();
            }
            let over = |w: &World| !w.has_claim(1, campaign);
            assert!(w.pass_until(25 * SECOND, over).unwrap(), "seed {seed}, round {round}: it fails in time");
            if !gives_up {
                // It is told so only once no trace of it can lead any more, whoever is the leader then.
                assert!(w.pass_until(15 * SECOND, |w| w.serving().is_some()).unwrap());
                assert_eq!(seen(&w, "scheduler"), (1, 0), "seed {seed}, round {round}");
            }
        }
        w.pass(15 * SECOND).unwrap();
        assert_eq!(seen(&w, "scheduler"), (1, 0), "seed {seed}: whoever gave up is gone");
        w.client_releases(0, leads).unwrap();
        w.pass(5 * SECOND).unwrap();
        assert_eq!(seen(&w, "scheduler"), (0, 0), "seed {seed}: nobody leads by an old campaign");
        let last = w.describe(w.serving().unwrap(), "scheduler").unwrap().epoch;
        assert_eq!(last, epoch, "seed {seed}: and nobody has led");
        changed += u32::from(w.term() > term);
    }
    assert!(changed >= 20, "the leader changed in {changed} of 40 stories only");
}

#[test]
fn a_candidate_with_a_short_ttl_does_not_lead_before_the_deadline_of_a_leader_with_a_long_one() {
    for seed in 0..10 {
        let mut w = serving(200 + seed, 3, 2);
        let long = w.client_opens(0, 15 * SECOND).unwrap();
        let leads = w.client_campaigns(0, long, "scheduler", Wait::Forever).unwrap();
        assert!(w.pass_until(5 * SECOND, |w| w.fence(0, leads).is_some()).unwrap());
        let short = w.client_opens(1, 2 * SECOND).unwrap();
        let candidate = w.client_campaigns(1, short, "scheduler", Wait::Forever).unwrap();
        w.pause_client(0, None);
        // It renews at a third of its TTL, so that two thirds at least are left, but for the margin of 1 s.
        w.pass(8 * SECOND).unwrap();
        assert!(w.fence(0, leads).is_some(), "seed {seed}: the leader may still believe in its lead");
        let early =
            w.pass_until(30 * SECOND, |w| w.fence(0, leads).is_none() || w.fence(1, candidate).is_some());
        assert!(early.unwrap());
        assert!(w.fence(1, candidate).is_none(), "seed {seed}: the leader's deadline comes first");
        assert!(w.pass_until(30 * SECOND, |w| w.fence(1, candidate).is_some()).unwrap());
        assert!(w.fence(0, leads).is_none());
    }
}

#[test]
fn a_session_that_is_renewed_outlives_elections_that_follow_each_other() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let mut w = serving(300 + seed, 3, 1);
        let session = w.client_opens(0, 10 * SECOND).unwrap();
        let held = w.client_acquires(0, session, "k", Wait::No).unwrap();
        assert!(w.pass_until(5 * SECOND, |w| w.fence(0, held).is_some()).unwrap());
        let (fence, term) = (w.fence(0, held), w.term());
        for round in 0..12 {
            assert!(w.pass_until(10 * SECOND, |w| w.serving().is_some()).unwrap());
            let leader = w.serving().unwrap();
            w.crash_node(leader, Some(Duration::from_millis(rng.between(100, 1_000)))).unwrap();
            // Long before a TTL is over, so that deadlines that are not begun anew would be missed.
            w.pass(Duration::from_millis(rng.between(3_000, 5_000))).unwrap();
            assert_eq!(
                w.fence(0, held),
                fence,
                "seed {seed}, round {round}: the lock is held, the session lives"
            );
        }
        assert!(w.term() >= term + 8, "seed {seed}: the leader changed again and again");
    }
}
