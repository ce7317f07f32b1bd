//! One test for each rule of the Raft paper (Ongaro and Ousterhout, extended version), and for the
//! sections of Ongaro's thesis that are followed, named by section.

use palisade_raft::{
    Append, AppendReply, AppendResult, Config, ConfigError, Message, PreVote, PreVoteReply, ProgressState,
    Raft, Restored, Role, RoundError, Vote, VoteReply,
};
use palisade_types::{Block, HardState, LogIndex, Mutant, Mutants, NodeId, ShardId, Term, Time};

use crate::cluster::{Cluster, Packet, log_of_terms};

fn packet(from: u32, to: u32, message: Message) -> Packet {
    Packet { from: NodeId(from), to: NodeId(to), message }
}

fn vote(term: u64, last_term: u64, last_index: u64) -> Message {
    let (term, last_term, last_index) = (Term(term), Term(last_term), LogIndex(last_index));
    Message::Vote(Vote { term, last_term, last_index, invited: false })
}

/// An Append of blocks of this log, those after index `prev`; every block holds one command.
fn append(term: u64, log: &[Block], prev: u64, commit: u64) -> Message {
    let prev_term = if prev == 0 { Term(0) } else { log[prev as usize - 1].term() };
    Message::Append(Append {
        term: Term(term),
        prev_term,
        prev_index: LogIndex(prev),
        commit: LogIndex(commit),
        round: 0,
        blocks: log[prev as usize..].to_vec(),
    })
}

/// What a node sends in answer to one message, its disk being instantaneous.
fn answer(cluster: &mut Cluster, from: u32, to: u32, message: Message) -> Vec<Message> {
    cluster.judge.trusting = true;
    cluster.deliver(packet(from, to, message));
    cluster.ready(to);
    while cluster.persist(to, usize::MAX) || cluster.ready(to) {}
    cluster.take_packets(Some(to), Some(from)).into_iter().map(|p| p.message).collect()
}

fn granted(answers: &[Message]) -> bool {
    matches!(answers, [Message::VoteReply(VoteReply { granted: true, .. })])
}

fn terms(log: &[Block]) -> Vec<u64> {
    log.iter().map(|b| b.term().0).collect()
}

fn wait(cluster: &mut Cluster, millis: u64) {
    cluster.now = Time(cluster.now.0 + millis * 1_000_000);
}

#[test]
fn s5_1_a_message_of_an_older_term_changes_nothing_and_teaches_the_term() {
    let mut cluster = Cluster::with_logs(&[&[5], &[], &[]], 1, |_| ());
    let answers = answer(&mut cluster, 2, 1, append(4, &log_of_terms(&[4, 4]), 0, 2));
    assert!(matches!(
        answers[..],
        [Message::AppendReply(AppendReply { term: Term(5), result: AppendResult::Rejected { .. }, .. })]
    ));
    assert_eq!((cluster.status(1).leader, cluster.status(1).last), (None, LogIndex(1)));
    assert!(!granted(&answer(&mut cluster, 2, 1, vote(4, 9, 9))));
}

#[test]
fn s5_1_a_later_term_makes_a_leader_a_follower() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    let reply = Message::VoteReply(VoteReply { term: Term(9), granted: false });
    cluster.deliver(packet(2, 1, reply));
    assert_eq!((cluster.status(1).role, cluster.status(1).term), (Role::Follower, Term(9)));
}

#[test]
fn s5_2_a_node_votes_once_a_term_also_across_a_restart() {
    let mut cluster = Cluster::new(3);
    assert!(granted(&answer(&mut cluster, 2, 1, vote(1, 0, 0))));
    assert!(!granted(&answer(&mut cluster, 3, 1, vote(1, 0, 0))));
    cluster.restart(1);
    assert!(!granted(&answer(&mut cluster, 3, 1, vote(1, 0, 0))));
    assert!(granted(&answer(&mut cluster, 2, 1, vote(1, 0, 0))), "a repeated request is answered alike");
}

#[test]
fn s5_2_a_majority_elects_and_a_minority_does_not() {
    let mut cluster = Cluster::new(5);
    wait(&mut cluster, 3000);
    cluster.tick(1);
    cluster.settle(&[1, 2]);
    assert_eq!((cluster.status(1).role, cluster.status(1).term), (Role::PreCandidate, Term(0)));
    cluster.elect(1, &[1, 2, 3]);
    assert_eq!(cluster.status(1).term, Term(1));
}

#[test]
fn s5_2_a_candidate_returns_to_follower_when_another_leads_its_term() {
    let mut cluster = Cluster::new(3);
    wait(&mut cluster, 3000);
    cluster.tick(1);
    cluster.ready(1);
    let yes = Message::PreVoteReply(PreVoteReply { term: Term(0), asked: Term(1), granted: true });
    cluster.deliver(packet(2, 1, yes));
    assert_eq!(cluster.status(1).role, Role::Candidate);
    answer(&mut cluster, 3, 1, append(1, &log_of_terms(&[1]), 0, 0));
    let status = cluster.status(1);
    assert_eq!((status.role, status.leader, status.term), (Role::Follower, Some(NodeId(3)), Term(1)));
}

#[test]
fn s5_2_a_split_vote_ends_in_a_later_term() {
    let mut cluster = Cluster::new(4);
    // Nodes 1 and 2 each get themselves and one other.
    for (candidate, friend) in [(1, 3), (2, 4)] {
        cluster.node(candidate).disk.hard_state =
            HardState { term: Term(1), vote: Some(NodeId(candidate)), commit: LogIndex(0) };
        cluster.restart(candidate);
        assert!(granted(&answer(&mut cluster, candidate, friend, vote(1, 0, 0))));
    }
    cluster.run(&[1, 2, 3, 4], 6_000);
    assert_eq!(cluster.leaders().len(), 1);
    assert!(cluster.status(1).term > Term(1));
}

#[test]
fn s5_2_heartbeats_keep_followers_from_standing() {
    let mut cluster = Cluster::new(3);
    cluster.elect(2, &[1, 2, 3]);
    cluster.run(&[1, 2, 3], 30_000);
    assert_eq!((cluster.leaders(), cluster.status(3).term), (vec![2], Term(1)));
    assert_eq!(cluster.status(3).leader, Some(NodeId(2)));
}

#[test]
fn s5_3_a_block_is_committed_once_a_majority_holds_it_and_then_applied_everywhere() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    let block = cluster.propose(1, "x").unwrap();
    cluster.settle(&[1]);
    assert!(cluster.status(1).commit < block.last(), "one copy of three is no commit");
    wait(&mut cluster, 100);
    cluster.tick(1);
    cluster.settle(&[1, 2]);
    assert_eq!(cluster.node(1).applied.last(), Some(&block));
    cluster.run(&[1, 2, 3], 300);
    for id in 1..=3 {
        assert_eq!(cluster.node(id).applied.last(), Some(&block), "node {id}");
    }
}

#[test]
fn s5_3_blocks_without_a_matching_predecessor_are_refused_with_a_hint() {
    let mut cluster = Cluster::with_logs(&[&[1, 1, 2], &[], &[]], 1, |_| ());
    let log = log_of_terms(&[1, 1, 1, 1, 1, 3]);
    let answers = answer(&mut cluster, 2, 1, append(3, &log, 5, 0));
    let result =
        AppendResult::Rejected { prev_index: LogIndex(5), hint_index: LogIndex(2), hint_term: Term(1) };
    assert_eq!(answers, [Message::AppendReply(AppendReply { term: Term(3), round: 0, result })]);
    assert_eq!(cluster.status(1).last, LogIndex(3), "a refusal cuts nothing");
}

#[test]
fn s5_3_a_conflict_is_cut_and_replaced() {
    let mut cluster = Cluster::with_logs(&[&[1, 2, 2, 2], &[], &[]], 1, |_| ());
    let log = log_of_terms(&[1, 3]);
    answer(&mut cluster, 2, 1, append(3, &log, 1, 0));
    assert_eq!(cluster.node(1).memory(), log);
    assert_eq!(cluster.node(1).disk.blocks, log);
}

#[test]
fn s5_3_what_matches_is_never_cut() {
    let mut cluster = Cluster::new(3);
    let log = log_of_terms(&[1, 1, 1, 1]);
    answer(&mut cluster, 2, 1, append(1, &log, 0, 0));
    // An older, shorter message of the same leader comes late, then an empty one.
    for late in [append(1, &log[..2], 0, 0), append(1, &log[..1], 1, 0)] {
        let answers = answer(&mut cluster, 2, 1, late);
        let result = AppendResult::Accepted { verified: LogIndex(4), durable: LogIndex(4) };
        assert_eq!(answers, [Message::AppendReply(AppendReply { term: Term(1), round: 0, result })]);
        assert_eq!(cluster.node(1).memory(), log);
    }
}

#[test]
fn s5_3_a_follower_commits_no_further_than_this_leader_has_proved() {
    let mut cluster = Cluster::with_logs(&[&[1, 2, 2], &[], &[]], 1, |_| ());
    // The tail at 2 and 3 is another leader's; commit 3 is about the present leader's log.
    let answers = answer(&mut cluster, 2, 1, append(3, &log_of_terms(&[1]), 1, 3));
    let result = AppendResult::Accepted { verified: LogIndex(1), durable: LogIndex(1) };
    assert_eq!(answers, [Message::AppendReply(AppendReply { term: Term(3), round: 0, result })]);
    assert_eq!(cluster.status(1).commit, LogIndex(1));
}

#[test]
fn s5_3_figure_7_every_kind_of_follower_is_brought_in_line() {
    let leader: &[u64] = &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6];
    let followers: [&[u64]; 6] = [
        &[1, 1, 1, 4, 4, 5, 5, 6, 6],
        &[1, 1, 1, 4],
        &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 6],
        &[1, 1, 1, 4, 4, 5, 5, 6, 6, 6, 7, 7],
        &[1, 1, 1, 4, 4, 4, 4],
        &[1, 1, 1, 2, 2, 2, 3, 3, 3, 3, 3],
    ];
    let logs: Vec<&[u64]> = std::iter::once(leader).chain(followers).collect();
    let mut cluster = Cluster::with_logs(&logs, 1, |_| ());
    for id in 1..=7 {
        cluster.node(id).disk.hard_state.term = Term(7);
        cluster.restart(id);
    }
    // Those whose logs are not newer elect it; (c) and (d) are away meanwhile.
    cluster.elect(1, &[1, 2, 3, 6, 7]);
    cluster.run(&[1, 2, 3, 4, 5, 6, 7], 1_000);
    let log = cluster.node(1).memory();
    assert_eq!(terms(&log), [leader, &[8]].concat());
    for id in 2..=7 {
        assert_eq!(cluster.node(id).disk.blocks, log, "node {id}");
        assert_eq!(cluster.status(id).commit, LogIndex(11));
    }
}

#[test]
fn s5_3_backing_up_takes_one_message_a_conflicting_term_at_most() {
    let mine: Vec<u64> = [vec![1], vec![9; 300]].concat();
    let theirs: Vec<u64> = [vec![1], vec![2; 100], vec![3; 200]].concat();
    let mut cluster = Cluster::with_logs(&[&mine, &theirs, &mine], 1, |_| ());
    cluster.elect(1, &[1, 3]);
    cluster.trace.clear();
    wait(&mut cluster, 100);
    cluster.tick(1);
    cluster.settle(&[1, 2]);
    let rejections = cluster.trace.iter().filter(|l| l.contains("rejected")).count();
    assert_eq!(rejections, 1, "{:#?}", cluster.trace);
    assert_eq!(cluster.node(2).memory(), cluster.node(1).memory());
}

#[test]
fn s5_4_1_votes_go_only_to_logs_as_new_as_the_own_later_term_first_longer_second() {
    for (last_term, last_index, expected) in
        [(1, 9, false), (2, 2, false), (2, 3, true), (2, 4, true), (3, 1, true), (0, 0, false)]
    {
        let mut cluster = Cluster::with_logs(&[&[1, 2, 2], &[], &[]], 1, |_| ());
        let answers = answer(&mut cluster, 2, 1, vote(4, last_term, last_index));
        assert_eq!(granted(&answers), expected, "candidate with {last_index}@{last_term}");
    }
}

/// Figure 8, up to the moment when the term-2 block is on three of five disks under the leader of term 4.
fn figure_8(mutants: Mutants) -> Cluster {
    let logs: [&[u64]; 5] = [&[1, 2], &[1, 2], &[1], &[1], &[1, 3]];
    let mut cluster = Cluster::with_logs(&logs, 1, |config| {
        config.mutants = mutants;
        config.append_bytes_max = 1;
    });
    for id in [1, 2, 3, 4, 5] {
        cluster.node(id).disk.hard_state.term = Term(3);
        cluster.restart(id);
    }
    // Node 1 leads term 4 with the votes of 2 and 3; its first own block reaches nobody yet.
    wait(&mut cluster, 3000);
    cluster.tick(1);
    while cluster.status(1).role != Role::Leader {
        for id in [1, 2, 3] {
            cluster.ready(id);
            cluster.persist(id, usize::MAX);
        }
        for p in cluster.take_packets(None, None) {
            if p.to.0 <= 3 {
                cluster.deliver(p);
            }
        }
    }
    for _ in 0..20 {
        for id in [2, 3] {
            cluster.ready(id);
            cluster.persist(id, usize::MAX);
        }
        // The leader's disk is slow: its own block of term 4 is not on it.
        cluster.ready(1);
        for p in cluster.take_packets(None, None) {
            let own =
                matches!(&p.message, Message::Append(m) if m.blocks.iter().any(|b| b.term() == Term(4)));
            if p.to.0 <= 3 && !own {
                cluster.deliver(p);
            }
        }
        wait(&mut cluster, 100);
        cluster.tick(1);
    }
    cluster
}

#[test]
fn s5_4_2_figure_8_blocks_of_older_terms_are_not_committed_by_counting() {
    let mut cluster = figure_8(Mutants::NONE);
    let with_term_2 =
        cluster.nodes.values().filter(|n| n.disk.blocks.iter().any(|b| b.term() == Term(2))).count();
    assert_eq!(with_term_2, 3, "a majority holds the block of term 2");
    assert_eq!(cluster.status(1).commit, LogIndex(0));
    // So node 5, whose last term is 3, may still win and replace it.
    wait(&mut cluster, 3000);
    cluster.wire.clear();
    cluster.run(&[3, 4, 5], 6000);
    cluster.run(&[2, 3, 4, 5], 1000);
    assert_eq!(cluster.status(5).role, Role::Leader);
    assert_eq!(terms(&cluster.node(2).memory())[..2], [1, 3]);
}

#[test]
fn s5_4_2_figure_8_goes_wrong_when_they_are() {
    let outcome = std::panic::catch_unwind(|| figure_8(Mutants::only(Mutant::B6)));
    assert!(outcome.is_err());
}

#[test]
fn s5_4_2_a_leader_begins_with_an_empty_command_of_its_own_term_which_commits_what_was_there() {
    let mut cluster = Cluster::with_logs(&[&[1, 1], &[1, 1], &[1]], 1, |_| ());
    cluster.elect(1, &[1, 2, 3]);
    assert_eq!(terms(&cluster.node(1).applied), [1, 1, 2]);
    let first = cluster.node(1).applied[2].clone();
    assert_eq!(first.commands().collect::<Vec<_>>(), [b""]);
}

#[test]
fn s5_5_a_repeated_message_is_harmless() {
    let mut cluster = Cluster::new(3);
    let log = log_of_terms(&[1, 1, 1]);
    let once = answer(&mut cluster, 2, 1, append(1, &log, 0, 1));
    let again = answer(&mut cluster, 2, 1, append(1, &log, 0, 1));
    assert_eq!(once.last(), again.last());
    assert_eq!(cluster.node(1).disk.blocks, log);
}

#[test]
fn figure_2_a_vote_leaves_only_once_it_is_durable() {
    let mut cluster = Cluster::new(3);
    cluster.deliver(packet(2, 1, vote(1, 0, 0)));
    cluster.ready(1);
    assert!(cluster.wire.is_empty());
    cluster.persist(1, 1);
    cluster.ready(1);
    assert!(granted(&[cluster.wire[0].message.clone()]));
}

#[test]
fn figure_2_a_candidate_asks_and_counts_itself_only_once_its_vote_is_durable() {
    let mut cluster = Cluster::new(1);
    wait(&mut cluster, 3000);
    cluster.tick(1);
    cluster.ready(1);
    assert_eq!(cluster.status(1).role, Role::Candidate);
    cluster.persist(1, 1);
    assert_eq!(cluster.status(1).role, Role::Leader);
    let mut three = Cluster::new(3);
    wait(&mut three, 3000);
    three.tick(1);
    three.ready(1);
    three.wire.clear();
    let yes = Message::PreVoteReply(PreVoteReply { term: Term(0), asked: Term(1), granted: true });
    three.deliver(packet(2, 1, yes));
    three.ready(1);
    assert!(three.wire.is_empty(), "the request waits");
    three.persist(1, 1);
    three.ready(1);
    assert_eq!(three.wire.len(), 2);
}

#[test]
fn figure_2_an_append_is_claimed_only_once_it_is_durable_and_then_without_being_asked() {
    let mut cluster = Cluster::new(3);
    let log = log_of_terms(&[1]);
    answer(&mut cluster, 2, 1, append(1, &log[..0], 0, 0));
    cluster.deliver(packet(2, 1, append(1, &log, 0, 1)));
    cluster.ready(1);
    assert!(cluster.wire.is_empty());
    let claim = |durable| {
        let result = AppendResult::Accepted { verified: LogIndex(1), durable: LogIndex(durable) };
        Message::AppendReply(AppendReply { term: Term(1), round: 0, result })
    };
    // A heartbeat is answered at once, and claims nothing of what is only in memory.
    cluster.deliver(packet(2, 1, append(1, &log, 1, 1)));
    cluster.ready(1);
    assert_eq!(cluster.wire.pop().unwrap().message, claim(0));
    cluster.persist(1, 1);
    cluster.ready(1);
    assert_eq!(cluster.wire.pop().unwrap().message, claim(1));
}

#[test]
fn the_end_of_a_write_from_before_a_truncation_counts_for_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.deliver(packet(2, 1, append(1, &log_of_terms(&[1, 1, 1]), 0, 0)));
    cluster.ready(1);
    cluster.deliver(packet(3, 1, append(2, &log_of_terms(&[2, 2]), 0, 0)));
    cluster.ready(1);
    cluster.persist(1, 1);
    assert_eq!(cluster.status(1).durable, LogIndex(0), "the first write held other blocks");
    cluster.persist(1, 1);
    assert_eq!(cluster.status(1).durable, LogIndex(2));
}

#[test]
fn a_restored_log_of_a_later_term_raises_the_term_and_clears_the_vote() {
    let config = Config::new(NodeId(1), ShardId(0), vec![NodeId(1), NodeId(2), NodeId(3)]);
    let hard_state = HardState { term: Term(1), vote: Some(NodeId(2)), commit: LogIndex(0) };
    let restored = Restored { hard_state, blocks: log_of_terms(&[1, 7]), ..Restored::default() };
    let mut raft = Raft::new(config, restored, 1, Time::ZERO).unwrap();
    assert_eq!((raft.status().term, raft.status().vote), (Term(7), None));
    let hard = raft.take_ready().persist.unwrap().hard_state.unwrap();
    assert_eq!((hard.term, hard.vote), (Term(7), None));
}

#[test]
fn thesis_10_2_1_a_leader_may_commit_on_two_followers_word_but_not_on_one() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    let block = cluster.propose(1, "x").unwrap();
    cluster.ready(1);
    let to_one: Vec<Packet> = cluster.take_packets(Some(1), Some(2));
    let to_other: Vec<Packet> = cluster.take_packets(Some(1), Some(3));
    for (id, packets) in [(2, to_one), (3, to_other)] {
        assert!(cluster.status(1).commit < block.last());
        packets.into_iter().for_each(|p| cluster.deliver(p));
        cluster.settle_follower(id);
        cluster.take_packets(None, Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    }
    assert_eq!(cluster.status(1).commit, block.last());
    assert!(cluster.status(1).durable < block.last(), "its own disk is still busy");
}

#[test]
fn thesis_9_6_a_node_that_was_cut_off_neither_raises_its_term_nor_disturbs_the_leader() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    let start = cluster.now;
    cluster.run(&[1, 2], 30_000);
    // Meanwhile node 3 was alone for as long.
    cluster.now = start;
    cluster.run(&[3], 30_000);
    assert_eq!(cluster.status(3).term, Term(1));
    cluster.run(&[1, 2, 3], 5_000);
    assert_eq!((cluster.leaders(), cluster.status(1).term), (vec![1], Term(1)));
}

#[test]
fn thesis_9_6_a_refused_pre_vote_teaches_the_later_term_and_a_granted_one_changes_nothing() {
    let mut cluster = Cluster::with_logs(&[&[], &[], &[]], 1, |_| ());
    cluster.node(2).disk.hard_state.term = Term(8);
    cluster.restart(2);
    let ask = Message::PreVote(PreVote { term: Term(1), last_term: Term(0), last_index: LogIndex(0) });
    let reply = |answers: &[Message]| match answers {
        [Message::PreVoteReply(m)] => *m,
        other => panic!("{other:?}"),
    };
    let refused = reply(&answer(&mut cluster, 1, 2, ask.clone()));
    assert_eq!((refused.term, refused.granted), (Term(8), false));
    let granted = reply(&answer(&mut cluster, 1, 3, ask));
    assert_eq!((granted.term, granted.granted), (Term(0), true));
    assert_eq!((cluster.status(3).term, cluster.status(3).vote), (Term(0), None));
    cluster.deliver(packet(2, 1, Message::PreVoteReply(refused)));
    assert_eq!(cluster.status(1).term, Term(8));
}

#[test]
fn thesis_9_6_answers_to_an_old_pre_vote_start_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    let stale = PreVoteReply { term: Term(0), asked: Term(1), granted: true };
    for from in [2, 3] {
        cluster.deliver(packet(from, 1, Message::PreVoteReply(stale)));
        cluster.deliver(packet(from, 1, Message::VoteReply(VoteReply { term: Term(1), granted: true })));
    }
    assert_eq!((cluster.status(1).role, cluster.status(1).term), (Role::Leader, Term(1)));
}

#[test]
fn thesis_4_2_3_who_hears_a_leader_refuses_votes_and_keeps_its_term() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    for voter in [1, 2] {
        assert!(answer(&mut cluster, 3, voter, vote(9, 9, 9)).is_empty(), "node {voter}");
        assert_eq!(cluster.status(voter).term, Term(1));
    }
    wait(&mut cluster, 1001);
    assert!(granted(&answer(&mut cluster, 3, 2, vote(9, 9, 9))), "after a long silence it votes");
}

#[test]
fn thesis_6_2_a_leader_without_a_quorum_steps_down() {
    let mut cluster = Cluster::new(5);
    cluster.elect(1, &[1, 2, 3, 4, 5]);
    cluster.run(&[1, 2], 1_500);
    assert_eq!(cluster.leaders(), [1]);
    cluster.run(&[1, 2], 600);
    assert!(cluster.leaders().is_empty());
    assert!(cluster.propose(1, "x").is_err());
}

#[test]
fn a_leader_whose_disk_hangs_steps_down_and_does_not_stand_again() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    cluster.propose(1, "x").unwrap();
    cluster.ready(1);
    // Only its disk hangs; the others answer.
    for _ in 0..25 {
        wait(&mut cluster, 100);
        cluster.tick(1);
        cluster.ready(1);
        cluster.take_packets(Some(1), None).into_iter().for_each(|p| cluster.deliver(p));
        cluster.settle_follower(2);
        cluster.take_packets(Some(2), Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    }
    assert_eq!(cluster.status(1).role, Role::Follower);
    cluster.wire.clear();
    for _ in 0..100 {
        wait(&mut cluster, 100);
        cluster.tick(1);
        cluster.ready(1);
    }
    assert!(cluster.wire.is_empty(), "no heartbeat, no candidacy");
    cluster.persist(1, usize::MAX);
    cluster.run(&[1, 2, 3], 5_000);
    assert_eq!(cluster.leaders().len(), 1);
}

#[test]
fn thesis_6_4_a_new_leader_gives_no_read_index_before_it_has_committed_in_its_term() {
    let mut cluster = Cluster::new(3);
    assert_eq!(cluster.round(1), Err(RoundError::NotLeader { leader: None }));
    cluster.elect(1, &[1, 2, 3]);
    assert!(cluster.round(1).is_ok());
    wait(&mut cluster, 3000);
    cluster.tick(2);
    while cluster.status(2).role != Role::Leader {
        cluster.settle_follower(2);
        cluster.take_packets(Some(2), Some(3)).into_iter().for_each(|p| cluster.deliver(p));
        cluster.settle_follower(3);
        cluster.take_packets(Some(3), Some(2)).into_iter().for_each(|p| cluster.deliver(p));
    }
    assert_eq!(cluster.round(2), Err(RoundError::NotReady));
}

#[test]
fn thesis_6_4_a_round_is_confirmed_by_a_quorum_of_answers_sent_after_it_began() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    // An answer under way from before the round proves nothing about it.
    cluster.now = cluster.node(1).raft.next_deadline();
    cluster.tick(1);
    cluster.ready(1);
    cluster.take_packets(Some(1), None).into_iter().for_each(|p| cluster.deliver(p));
    cluster.settle_follower(2);
    let round = cluster.round(1).unwrap();
    cluster.take_packets(Some(2), Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(1);
    assert_eq!(cluster.node(1).confirmed, None);
    cluster.take_packets(Some(1), Some(2)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.settle_follower(2);
    cluster.take_packets(Some(2), Some(1)).into_iter().for_each(|p| cluster.deliver(p));
    cluster.ready(1);
    assert_eq!(cluster.node(1).confirmed, Some(round.id));
}

#[test]
fn thesis_6_4_lost_rounds_are_repeated_with_heartbeats() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    let round = cluster.round(1).unwrap();
    cluster.ready(1);
    cluster.wire.clear();
    cluster.run(&[1, 2, 3], 150);
    assert_eq!(cluster.node(1).confirmed, Some(round.id));
}

#[test]
fn one_voter_alone_commits_after_its_disk_and_confirms_at_once() {
    let mut cluster = Cluster::new(1);
    cluster.elect(1, &[1]);
    let block = cluster.propose(1, "x").unwrap();
    cluster.ready(1);
    assert!(cluster.status(1).commit < block.last());
    cluster.persist(1, 1);
    assert_eq!(cluster.status(1).commit, block.last());
    let round = cluster.round(1).unwrap();
    cluster.ready(1);
    assert_eq!(cluster.node(1).confirmed, Some(round.id));
    cluster.run(&[1], 60_000);
    assert_eq!(cluster.leaders(), [1]);
}

#[test]
fn a_late_answer_never_lowers_progress_and_one_of_another_term_moves_nothing() {
    let mut cluster = Cluster::new(3);
    cluster.elect(1, &[1, 2, 3]);
    cluster.propose(1, "x").unwrap();
    cluster.settle(&[1, 2, 3]);
    let before = cluster.status(1).voters;
    let reply = |term, result| Message::AppendReply(AppendReply { term: Term(term), round: 0, result });
    let rejected =
        AppendResult::Rejected { prev_index: LogIndex(1), hint_index: LogIndex(0), hint_term: Term(0) };
    let older = AppendResult::Accepted { verified: LogIndex(1), durable: LogIndex(1) };
    let beyond = AppendResult::Accepted { verified: LogIndex(99), durable: LogIndex(99) };
    for stale in [reply(1, rejected), reply(1, older), reply(1, beyond), reply(0, beyond)] {
        cluster.deliver(packet(2, 1, stale));
    }
    assert_eq!(cluster.status(1).voters, before);
}

#[test]
fn what_is_in_flight_is_bounded_and_a_loss_is_found_by_the_next_heartbeat() {
    let mut cluster = Cluster::with_logs(&[&[], &[], &[]], 1, |config| config.inflight_messages_max = 4);
    cluster.elect(1, &[1, 2, 3]);
    for _ in 0..10 {
        cluster.propose(1, "x").unwrap();
    }
    cluster.ready(1);
    let sent = cluster.take_packets(Some(1), Some(2));
    assert_eq!(sent.len(), 4);
    cluster.wire.clear();
    assert!(cluster.status(1).voters.iter().all(|v| v.state == ProgressState::Replicate));
    cluster.run(&[1, 2, 3], 300);
    assert_eq!(cluster.status(2).commit, LogIndex(11));
    assert_eq!(cluster.node(2).memory(), cluster.node(1).memory());
}

#[test]
fn a_large_backlog_of_committed_blocks_is_handed_out_in_slices_each_block_once() {
    let mut cluster = Cluster::with_logs(&[&[1; 500]], 1, |config| config.committed_blocks_max = 7);
    cluster.elect(1, &[1]);
    assert_eq!(cluster.node(1).applied.len(), 501);
    let applications = cluster.trace.iter().filter(|l| l.contains("applies")).count();
    assert_eq!(applications, 501_usize.div_ceil(7));
}

#[test]
#[should_panic(expected = "diverged")]
fn a_proof_that_logs_have_diverged_stops_the_node() {
    let mut cluster = Cluster::with_logs(&[&[1, 1], &[], &[]], 1, |_| ());
    // A log that claims block 2@1 behind a different first block.
    let mut foreign = log_of_terms(&[1, 1, 1]);
    let mut builder = palisade_types::BlockBuilder::new();
    builder.push(|bytes| bytes.extend_from_slice(b"foreign"));
    foreign[2] = builder.seal(palisade_types::block::Seal {
        shard: ShardId(0),
        term: Term(1),
        first: LogIndex(3),
        clock_ms: 0,
        prev_chain: 12345,
    });
    cluster.deliver(packet(2, 1, append(1, &foreign, 2, 0)));
}

#[test]
fn malformed_messages_and_strangers_are_ignored() {
    let mut cluster = Cluster::new(3);
    let log = log_of_terms(&[1, 1, 1]);
    let gap = Append {
        term: Term(1),
        prev_term: Term(0),
        prev_index: LogIndex(0),
        commit: LogIndex(3),
        round: 0,
        blocks: vec![log[0].clone(), log[2].clone()],
    };
    let no_term = Append { prev_index: LogIndex(5), blocks: Vec::new(), ..gap.clone() };
    for bad in [gap, no_term] {
        assert!(answer(&mut cluster, 2, 1, Message::Append(bad)).is_empty());
    }
    assert!(answer(&mut cluster, 9, 2, append(5, &log, 0, 3)).is_empty());
    assert_eq!((cluster.status(1).last, cluster.status(2).term), (LogIndex(0), Term(0)));
}

#[test]
fn configurations_and_logs_that_cannot_be_are_refused() {
    let voters = |ids: &[u32]| ids.iter().map(|&i| NodeId(i)).collect::<Vec<_>>();
    let good = Config::new(NodeId(1), ShardId(0), voters(&[1, 2, 3]));
    assert_eq!(good.validate(), Ok(()));
    let bad = |change: &dyn Fn(&mut Config)| {
        let mut config = good.clone();
        change(&mut config);
        config.validate().unwrap_err()
    };
    assert_eq!(bad(&|c| c.id = NodeId(4)), ConfigError::NotAVoter(NodeId(4)));
    assert_eq!(bad(&|c| c.voters = voters(&[1, 2, 2])), ConfigError::VoterTwice(NodeId(2)));
    assert_eq!(bad(&|c| c.voters = voters(&[0, 1])), ConfigError::NodeZero);
    assert_eq!(bad(&|c| c.heartbeat = c.election_min), ConfigError::Times);
    assert_eq!(bad(&|c| c.append_bytes_max = 0), ConfigError::Zero("append_bytes_max"));
    let restored = Restored { blocks: log_of_terms(&[1, 1, 1])[1..].to_vec(), ..Restored::default() };
    let error = Raft::new(good, restored, 1, Time::ZERO).unwrap_err();
    assert_eq!(error, ConfigError::BrokenLog(LogIndex(2)));
}
