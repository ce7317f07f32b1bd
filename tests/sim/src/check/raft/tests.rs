use palisade_types::block::Seal;
use palisade_types::{BlockBuilder, ShardId};

use super::*;

fn block(term: u64, after: Option<&Block>) -> Block {
    let mut b = BlockBuilder::new();
    b.push(|v| v.push(term as u8));
    b.seal(Seal {
        shard: ShardId(0),
        term: Term(term),
        first: after.map_or(LogIndex(1), |b| b.last().next()),
        clock_ms: 0,
        prev_chain: after.map_or(0, Block::chain),
    })
}

fn status(role: Role, term: u64, last: &Block, commit: u64) -> Status {
    Status {
        id: NodeId(1),
        role,
        term: Term(term),
        vote: None,
        leader: None,
        last: last.last(),
        last_term: last.term(),
        base: LogIndex(0),
        snapshot: LogIndex(0),
        durable: LogIndex(0),
        commit: LogIndex(commit),
        delivered: LogIndex(0),
        voters: Vec::new(),
    }
}

fn start(c: &mut RaftCheck, node: usize, hard_state: HardState, blocks: &[Block]) -> Checked {
    c.on_start(node, hard_state, None, Edge::default(), blocks)
}

fn snapshot(b: &Block) -> SnapshotId {
    let (bytes, chunks, digest) = (9, 1, 7);
    let Edge { index: last, term, chain, clock_ms } = b.edge();
    SnapshotId { last, term, chain, clock_ms, bytes, chunks, digest }
}

/// Three nodes that hold one block of term 1, durable at the first two.
fn cluster() -> (RaftCheck, Block) {
    let mut c = RaftCheck::new(3);
    let b = block(1, None);
    for node in 0..3 {
        start(&mut c, node, HardState::default(), &[]).unwrap();
        c.on_accepted(node, None, None, std::slice::from_ref(&b)).unwrap();
    }
    let hard_state = HardState { term: Term(1), ..HardState::default() };
    for node in 0..2 {
        c.on_durable(node, Some(hard_state), None, &[Entry::from(&b)]).unwrap();
    }
    (c, b)
}

fn rule(checked: Checked) -> &'static str {
    checked.unwrap_err().rule
}

#[test]
fn two_leaders_of_a_term_are_seen() {
    let (mut c, b) = cluster();
    c.on_status(0, &status(Role::Leader, 1, &b, 0)).unwrap();
    assert_eq!(rule(c.on_status(1, &status(Role::Leader, 1, &b, 0))), "R1");
}

#[test]
fn a_commit_that_is_on_too_few_disks_is_seen() {
    let (mut c, b) = cluster();
    c.on_status(0, &status(Role::Leader, 1, &b, 1)).unwrap();
    let more = block(1, Some(&b));
    c.on_accepted(0, None, None, std::slice::from_ref(&more)).unwrap();
    c.on_durable(0, None, None, &[Entry::from(&more)]).unwrap();
    assert_eq!(rule(c.on_status(0, &status(Role::Leader, 1, &more, 2))), "R6");
}

#[test]
fn a_leader_without_what_is_committed_is_seen() {
    let (mut c, b) = cluster();
    c.on_status(0, &status(Role::Leader, 1, &b, 1)).unwrap();
    c.on_accepted(2, None, Some(LogIndex(0)), &[]).unwrap();
    let empty = Status { last: LogIndex(0), ..status(Role::Leader, 2, &b, 0) };
    assert_eq!(rule(c.on_status(2, &empty)), "R4");
}

#[test]
fn another_history_under_the_same_index_and_term_is_seen() {
    let (mut c, b) = cluster();
    let (x, y) = (block(2, Some(&b)), block(1, Some(&b)));
    c.on_accepted(0, None, None, &[x]).unwrap();
    c.on_accepted(1, None, None, std::slice::from_ref(&y)).unwrap();
    let mut other = BlockBuilder::new();
    other.push(|v| v.push(9));
    let seal =
        Seal { shard: ShardId(0), term: Term(1), first: y.first(), clock_ms: 0, prev_chain: b.chain() };
    assert_eq!(rule(c.on_accepted(2, None, None, &[other.seal(seal)])), "R3");
}

#[test]
fn what_was_durable_and_is_gone_after_a_restart_is_seen() {
    let (mut c, b) = cluster();
    let hard_state = HardState { term: Term(1), ..HardState::default() };
    c.on_stop(0);
    start(&mut c, 0, hard_state, std::slice::from_ref(&b)).unwrap();
    c.on_stop(0);
    assert_eq!(rule(start(&mut c, 0, hard_state, &[])), "R9");
    c.on_stop(1);
    assert_eq!(rule(start(&mut c, 1, HardState::default(), &[b])), "R7");
}

#[test]
fn a_leader_that_cuts_its_log_and_a_block_durable_before_its_term_are_seen() {
    let (mut c, b) = cluster();
    c.on_status(0, &status(Role::Leader, 1, &b, 0)).unwrap();
    assert_eq!(rule(c.on_accepted(0, Some(Term(1)), Some(LogIndex(0)), &[])), "R2");
    let later = block(2, Some(&b));
    assert_eq!(rule(c.on_durable(1, None, None, &[Entry::from(&later)])), "R14");
}

#[test]
fn a_snapshot_of_what_was_not_committed_and_two_of_one_index_are_seen() {
    let (mut c, b) = cluster();
    assert_eq!(rule(c.on_snapshot(0, snapshot(&b))), "R8");
    c.on_status(0, &status(Role::Leader, 1, &b, 1)).unwrap();
    c.on_snapshot(0, snapshot(&b)).unwrap();
    assert_eq!(rule(c.on_snapshot(1, SnapshotId { digest: 8, ..snapshot(&b) })), "S7");
}

#[test]
fn a_log_cut_behind_nothing_and_one_that_does_not_meet_its_snapshot_are_seen() {
    let (mut c, b) = cluster();
    c.on_status(0, &status(Role::Leader, 1, &b, 1)).unwrap();
    let cut = Status { base: LogIndex(1), ..status(Role::Leader, 1, &b, 1) };
    assert_eq!(rule(c.on_status(0, &cut)), "R8");
    let hard_state = HardState { term: Term(1), ..HardState::default() };
    c.on_stop(0);
    assert_eq!(rule(c.on_start(0, hard_state, None, b.edge(), &[])), "R8");
    c.on_start(0, hard_state, Some(snapshot(&b)), b.edge(), &[]).unwrap();
    c.on_stop(0);
    assert_eq!(rule(start(&mut c, 0, hard_state, &[b])), "R8", "the snapshot is gone");
}

#[test]
fn a_snapshot_that_is_installed_without_being_on_the_disk_is_seen() {
    let (mut c, b) = cluster();
    c.on_status(0, &status(Role::Leader, 1, &b, 1)).unwrap();
    c.on_stop(2);
    start(&mut c, 2, HardState::default(), &[]).unwrap();
    assert_eq!(rule(c.on_installing(2, None, snapshot(&b))), "R8");
    c.on_snapshot(2, snapshot(&b)).unwrap();
    c.on_installing(2, None, snapshot(&b)).unwrap();
    c.on_installed(2, snapshot(&b)).unwrap();
    assert_eq!(rule(c.on_installed(2, snapshot(&b))), "R5");
}
#[test]
fn two_states_at_one_index_are_seen() {
    let (mut c, _) = cluster();
    c.on_state(0, LogIndex(1), 7).unwrap();
    c.on_state(1, LogIndex(1), 7).unwrap();
    c.on_state(1, LogIndex(2), 8).unwrap();
    assert_eq!(rule(c.on_state(2, LogIndex(1), 8)), "R5");
}
