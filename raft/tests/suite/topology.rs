//! Networks that stay broken for good: as long as some quorum can talk, there is one leader, its term
//! stays, and work commits (bug B31 of the catalogue).

use palisade_types::Time;

use crate::cluster::Cluster;

/// Time passes with only these links, each in one direction.
fn run(cluster: &mut Cluster, links: &[(u32, u32)], millis: u64) {
    let end = Time(cluster.now.0 + millis * 1_000_000);
    let ids = cluster.ids();
    while cluster.now < end {
        let mut moved = true;
        while moved {
            moved = false;
            for &id in &ids {
                moved |= cluster.ready(id) | cluster.persist(id, usize::MAX);
            }
            for packet in cluster.take_packets(None, None) {
                if links.contains(&(packet.from.0, packet.to.0)) {
                    moved = true;
                    cluster.deliver(packet);
                }
            }
        }
        // Messages take a millisecond, and so nodes act at moments of their own.
        cluster.now = Time(cluster.now.0 + 1_000_000);
        for &id in &ids {
            if cluster.node(id).raft.next_deadline() <= cluster.now {
                cluster.tick(id);
            }
        }
    }
}

fn both(pairs: &[(u32, u32)]) -> Vec<(u32, u32)> {
    pairs.iter().flat_map(|&(a, b)| [(a, b), (b, a)]).collect()
}

/// After a settling time, one of `able` leads, stays leader in one term, and commits.
fn works(size: usize, links: &[(u32, u32)], able: &[u32]) {
    for first in [None, Some(1), Some(size as u32)] {
        let mut cluster = Cluster::new(size);
        let all = cluster.ids();
        if let Some(leader) = first {
            cluster.elect(leader, &all);
        }
        run(&mut cluster, links, 15_000);
        let leaders = cluster.leaders();
        assert_eq!(leaders.len(), 1, "one leader, first {first:?}");
        assert!(able.contains(&leaders[0]), "{leaders:?}");
        let term = cluster.status(leaders[0]).term;
        assert!(term.0 <= 6, "term {term} after one failure");
        let block = cluster.propose(leaders[0], "x").expect("it leads");
        let round = cluster.round(leaders[0]).expect("it has committed in its term");
        run(&mut cluster, links, 15_000);
        assert_eq!((cluster.leaders(), cluster.status(leaders[0]).term), (leaders.clone(), term));
        assert_eq!(cluster.status(leaders[0]).commit, block.last());
        assert_eq!(cluster.node(leaders[0]).confirmed, Some(round.id));
    }
}

#[test]
fn a_bridge_between_two_that_cannot_talk() {
    works(3, &both(&[(1, 2), (2, 3)]), &[1, 2, 3]);
}

#[test]
fn a_star_of_five() {
    works(5, &both(&[(3, 1), (3, 2), (3, 4), (3, 5)]), &[3]);
}

#[test]
fn a_bridge_of_five() {
    works(5, &both(&[(1, 2), (4, 5), (1, 3), (2, 3), (4, 3), (5, 3)]), &[1, 2, 3, 4, 5]);
}

#[test]
fn one_node_cut_off() {
    works(3, &both(&[(1, 2)]), &[1, 2]);
}

#[test]
fn a_node_that_can_only_speak() {
    let mut links = both(&[(1, 2)]);
    links.extend([(3, 1), (3, 2)]);
    works(3, &links, &[1, 2]);
}

#[test]
fn a_node_that_can_only_listen() {
    let mut links = both(&[(1, 2)]);
    links.extend([(1, 3), (2, 3)]);
    works(3, &links, &[1, 2]);
}

#[test]
fn one_direction_of_one_link_lost() {
    let mut links = both(&[(1, 2), (2, 3)]);
    links.push((1, 3));
    works(3, &links, &[1, 2, 3]);
}
