//! Quorum arithmetic against its definition, for every small case (bug B26 of the catalogue).

use palisade_raft::{Membership, Tally};
use palisade_types::NodeId;

/// All ways to give each of `n` voters one of `values` values.
fn assignments(n: u32, values: u32) -> impl Iterator<Item = Vec<u32>> {
    (0..values.pow(n)).map(move |code| (0..n).map(|i| code / values.pow(i) % values).collect())
}

fn voters(n: u32) -> Membership {
    Membership::new((1..=n).map(NodeId).collect())
}

#[test]
fn what_a_quorum_has_reached_is_the_highest_value_held_by_more_than_half() {
    for n in 1..=7 {
        let membership = voters(n);
        for values in assignments(n, 4) {
            let held = |v: u32| 2 * values.iter().filter(|&&x| x >= v).count() > n as usize;
            let naive = (0..4).rev().find(|&v| held(v)).expect("all hold 0");
            let reached = membership.reached(|node| values[node.0 as usize - 1]);
            assert_eq!(reached, naive, "{values:?}");
        }
    }
}

#[test]
fn a_vote_is_won_or_lost_exactly_when_no_further_answer_can_change_it() {
    for n in 1..=7 {
        let membership = voters(n);
        for answers in assignments(n, 3) {
            let count = |what| answers.iter().filter(|&&a| a == what).count();
            let (yes, open) = (count(1), count(2));
            let naive = match () {
                () if 2 * yes > n as usize => Tally::Won,
                () if 2 * (yes + open) <= n as usize => Tally::Lost,
                () => Tally::Open,
            };
            let tally = membership.tally(|node| match answers[node.0 as usize - 1] {
                0 => Some(false),
                1 => Some(true),
                _ => None,
            });
            assert_eq!(tally, naive, "{answers:?}");
        }
    }
}

#[test]
fn any_two_quorums_share_a_voter() {
    for n in 1..=15 {
        assert!(2 * voters(n).majority() > n as usize);
    }
}

#[test]
fn voters_are_kept_in_order_and_once() {
    let membership = Membership::new([3, 1, 2, 3].map(NodeId).to_vec());
    assert_eq!(membership.voters(), [1, 2, 3].map(NodeId));
    assert!(membership.contains(NodeId(2)) && !membership.contains(NodeId(4)));
}
