//! Bugs that other systems have shipped, switched on one at a time: the rules must find each of them
//! within the seeds given here. A simulator that finds none of them would prove nothing.

use palisade_sim::options::Profile;
use palisade_sim::runner::{Job, run};
use palisade_sim::trace::Story;
use palisade_types::Mutant;

/// How many seeds a bug may take.
const SEEDS_MAX: u64 = 150;

/// The profile whose seeds hunt this bug.
fn profile(mutant: Mutant) -> Profile {
    match mutant {
        Mutant::B8 => Profile::SlowDisk,
        Mutant::B6 | Mutant::B14 => Profile::Elections,
        Mutant::B20 | Mutant::D1 => Profile::Pauses,
        Mutant::F2 | Mutant::F3 | Mutant::H1 | Mutant::H2 | Mutant::H3 => Profile::Leases,
        Mutant::W1 | Mutant::W2 | Mutant::W3 | Mutant::W4 | Mutant::W5 | Mutant::S2 => Profile::Watches,
        Mutant::B1
        | Mutant::B3
        | Mutant::B4
        | Mutant::B9
        | Mutant::B12
        | Mutant::B13
        | Mutant::B22
        | Mutant::B24
        | Mutant::B25
        | Mutant::B36
        | Mutant::B40
        | Mutant::P1
        | Mutant::P2
        | Mutant::P3
        | Mutant::P4
        | Mutant::S1
        | Mutant::S3
        | Mutant::O1
        | Mutant::O2
        | Mutant::F1
        | Mutant::H4
        | Mutant::L1
        | Mutant::L2
        | Mutant::L3
        | Mutant::L4
        | Mutant::E1
        | Mutant::R1
        | Mutant::V1
        | Mutant::V2
        | Mutant::C5
        | Mutant::C10
        | Mutant::C12
        | Mutant::C13
        | Mutant::C14 => Profile::Swarm,
    }
}

fn hunt(mutant: Mutant) {
    hunt_with(mutant, Job::new);
}

fn hunt_in_raft(mutant: Mutant) {
    hunt_with(mutant, Job::raft);
}

fn hunt_with(mutant: Mutant, job: fn(Profile, u64) -> Job) {
    for seed in 0..SEEDS_MAX {
        if let Err(failure) = run(job(profile(mutant), seed).with(mutant), Story::No) {
            println!("{mutant:?} killed by seed {seed} ({}): {failure}", profile(mutant).name());
            return;
        }
    }
    panic!("{mutant:?} survived {SEEDS_MAX} seeds");
}

#[test]
fn an_acknowledgement_before_the_disk_is_found() {
    hunt(Mutant::B1);
}

#[test]
fn a_vote_before_the_disk_is_found() {
    hunt(Mutant::B3);
}

#[test]
fn deleting_what_matches_is_found() {
    hunt(Mutant::B4);
}

#[test]
fn committing_older_terms_by_counting_is_found() {
    hunt(Mutant::B6);
}

#[test]
fn a_stale_disk_completion_is_found() {
    hunt(Mutant::B8);
}

#[test]
fn entries_durable_before_their_term_are_found() {
    hunt(Mutant::B9);
}

#[test]
fn a_leader_that_counts_itself_too_early_is_found() {
    hunt(Mutant::B13);
}

#[test]
fn success_reported_for_another_s_entry_is_found() {
    hunt(Mutant::B14);
}

#[test]
fn deadlines_kept_from_an_earlier_term_are_found() {
    hunt(Mutant::B20);
}

#[test]
fn an_expiry_beside_a_renewal_that_nobody_has_read_is_found() {
    hunt(Mutant::D1);
}

#[test]
fn a_grant_to_the_dead_is_found() {
    hunt(Mutant::B22);
}

#[test]
fn a_conflicting_tail_behind_an_installed_snapshot_is_found() {
    hunt_in_raft(Mutant::B24);
}

#[test]
fn chunks_of_two_snapshots_taken_for_one_are_found() {
    hunt_in_raft(Mutant::B40);
}

#[test]
fn an_installation_that_raises_nothing_is_found() {
    hunt_in_raft(Mutant::S1);
}

#[test]
fn a_forced_release_of_another_grant_is_found() {
    hunt(Mutant::O1);
}

#[test]
fn a_retired_key_that_forgets_its_epoch_is_found() {
    hunt(Mutant::O2);
}

#[test]
fn a_retirement_that_leaves_the_claims_is_found() {
    hunt(Mutant::R1);
}

#[test]
fn a_value_that_outlives_its_session_is_found() {
    hunt(Mutant::V1);
}

#[test]
fn a_put_over_another_s_key_is_found() {
    hunt(Mutant::V2);
}

#[test]
fn a_follower_that_does_not_ask_the_leader_is_found() {
    hunt(Mutant::F1);
}

#[test]
fn a_lease_that_runs_from_its_answers_is_found() {
    hunt(Mutant::F2);
}

#[test]
fn a_lease_that_outlives_a_stall_is_found() {
    hunt(Mutant::F3);
}

#[test]
fn a_watch_that_misses_what_follows_its_cursor_is_found() {
    hunt(Mutant::W1);
}

#[test]
fn a_forgotten_history_that_is_not_admitted_is_found() {
    hunt(Mutant::W2);
}

#[test]
fn a_node_that_takes_a_watch_back_in_time_is_found() {
    hunt(Mutant::W3);
}

#[test]
fn a_proclamation_that_is_told_to_nobody_is_found() {
    hunt(Mutant::W4);
}

#[test]
fn an_ephemeral_key_that_vanishes_in_silence_is_found() {
    hunt(Mutant::W5);
}

#[test]
fn a_snapshot_without_finished_tickets_is_found() {
    hunt(Mutant::B12);
}

#[test]
fn a_snapshot_that_is_named_one_block_too_early_is_found() {
    hunt(Mutant::B25);
}

#[test]
fn a_snapshot_without_the_floor_of_the_epochs_is_found() {
    hunt(Mutant::P1);
}

#[test]
fn a_snapshot_with_its_queues_backwards_is_found() {
    hunt(Mutant::P2);
}

#[test]
fn a_snapshot_without_ended_sessions_is_found() {
    hunt(Mutant::P3);
}

#[test]
fn a_snapshot_in_which_later_commands_show_is_found() {
    hunt(Mutant::P4);
}

#[test]
fn watchers_who_are_not_told_of_an_installation_are_found() {
    hunt(Mutant::S2);
}

#[test]
fn a_log_that_is_cut_behind_a_snapshot_that_is_not_durable_is_found() {
    hunt(Mutant::S3);
}

#[test]
fn every_mutant_has_its_test() {
    // It has one in the tests of Raft itself: here whatever it does is soon set right.
    let elsewhere = Mutant::B36;
    let source = include_str!("mutants.rs");
    let of_the_log = |m: &Mutant| Mutant::OF_THE_LOG.contains(m);
    for mutant in Mutant::ALL.into_iter().filter(|m| !of_the_log(m) && *m != elsewhere) {
        let hunted = |how: &str| source.contains(&format!("{how}(Mutant::{mutant:?});"));
        assert!(hunted("hunt") || hunted("hunt_in_raft"), "{mutant:?} is hunted by no test");
    }
}

#[test]
fn sharers_that_shut_each_other_out_are_found() {
    hunt(Mutant::L1);
}

#[test]
fn a_downgrade_without_a_new_epoch_is_found() {
    hunt(Mutant::L2);
}

#[test]
fn a_quarantine_that_nobody_keeps_is_found() {
    hunt(Mutant::L3);
}

#[test]
fn a_reader_that_overtakes_a_writer_is_found() {
    hunt(Mutant::L4);
}

#[test]
fn a_proclamation_that_is_lost_is_found() {
    hunt(Mutant::E1);
}

#[test]
fn a_lease_that_is_kept_while_leadership_is_handed_over_is_found() {
    hunt(Mutant::H1);
}

#[test]
fn an_invitation_that_counts_in_any_term_is_found() {
    hunt(Mutant::H2);
}

#[test]
fn a_lease_that_comes_back_when_a_hand_over_is_given_up_is_found() {
    hunt(Mutant::H3);
}

#[test]
fn a_leader_that_proposes_while_it_hands_over_is_found() {
    hunt(Mutant::H4);
}
