//! Values in the streams: large ones, and keys that are lock, election and ephemeral key at once.

use super::*;

const LARGE: usize = 16 * 1024;

#[test]
fn pushes_with_large_values_fit_their_frame_whether_listed_live_or_behind() {
    let mut w = World::new();
    let a = w.open();
    let long = "x".repeat(500);
    w.watch(1, 1, Selector::Keys, From::Now);
    w.watch(2, 1, Selector::Keys, From::Now);
    w.watches.congested(ConnId(2));
    let mut ticket = 0;
    for n in 0..40 {
        ticket += 2;
        let key = std::format!("{long}{n:02}");
        w.campaign(a, ticket, &key, [LARGE, 0, 1_000][n % 3]);
        w.put(a, ticket + 1, &key, [1_023, LARGE, LARGE - 1][n % 3]);
        if n % 5 == 0 {
            w.turns();
        }
    }
    w.turns();
    w.watch(3, 1, Selector::Keys, From::Present);
    w.watch(3, 2, key(&std::format!("{long}01")), From::Present);
    w.watches.cleared(ConnId(2));
    w.turns();
    for conn in 1..=3 {
        w.viewer(conn, 1).compare(&w.machine, &Selector::Keys);
    }
    assert_eq!((w.viewer(3, 1).values.len(), w.viewer(3, 1).leaders.len()), (40, 40));
    let one = w.viewer(3, 2);
    assert_eq!((one.values.len(), one.leaders.len(), one.listed), (1, 1, true));
    assert_eq!(w.viewer(2, 1).changes, w.viewer(1, 1).changes);
}

#[test]
fn the_newest_of_a_lock_says_nothing_of_the_ephemeral_key_of_the_same_name() {
    let config = WatchConfig { coalesce_behind: 10, ..WatchConfig::default() };
    let mut w = World::with(config);
    let a = w.open();
    w.watch(1, 1, Selector::Keys, From::Present);
    w.turns();
    w.watches.congested(ConnId(1));
    w.put(a, 1, "k", 1);
    w.campaign(a, 2, "e", 1);
    w.put(a, 3, "e", 2);
    w.proclaim(a, 4, 2, 3);
    let mut ticket = 10;
    w.churn(a, &mut ticket, "k", 30);
    w.put(a, 5, "gone", 9);
    w.delete(a, 6, "gone");
    w.watches.cleared(ConnId(1));
    w.turns();
    let told = w.viewer(1, 1);
    assert!(told.coalesced > 0);
    assert_eq!(told.values.keys().map(|k| k.as_str()).collect::<Vec<_>>(), ["e", "k"]);
    assert_eq!(told.leaders.values().collect::<Vec<_>>(), [&of_size(3)], "the newest alone says who leads");
    // k put, e proclaimed, e put, k released for the last time, gone deleted.
    assert_eq!(told.changes.len(), 5, "{told:?}");
    told.compare(&w.machine, &Selector::Keys);
}

#[test]
fn who_is_far_behind_in_bytes_is_told_the_newest_before_it_is_forgotten() {
    let (history_events, coalesce_behind) = (100_000, 50_000);
    let config =
        WatchConfig { history_events, coalesce_behind, history_bytes: 1 << 20, ..WatchConfig::default() };
    let mut w = World::with(config);
    let a = w.open();
    for conn in 1..=2 {
        w.watch(conn, 1, Selector::Keys, From::Present);
    }
    w.turns();
    for conn in 1..=2 {
        w.watches.congested(ConnId(conn));
    }
    for n in 0..150 {
        w.put(a, n + 1, ["a", "b"][n as usize % 2], 5_000);
    }
    w.watches.cleared(ConnId(1));
    w.turns();
    assert_eq!((w.viewer(1, 1).coalesced, w.viewer(1, 1).changes.len()), (1, 2));
    for n in 150..400 {
        w.put(a, n + 1, "a", 5_000);
    }
    w.watches.cleared(ConnId(2));
    w.turns();
    assert!(w.viewer(2, 1).ended, "what it missed is gone, and it is told so");
    w.viewer(1, 1).compare(&w.machine, &Selector::Keys);
}
