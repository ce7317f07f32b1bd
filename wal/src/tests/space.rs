//! Full and failing disks.

use palisade_types::Time;

use super::{Run, SMALL_SEGMENT};
use crate::*;

const EIO: i32 = 5;
const EROFS: i32 = 30;

#[test]
fn a_full_disk_stops_the_log_at_the_end_of_the_segment_and_lets_it_go_on_when_there_is_room() {
    let mut run = Run::fresh();
    let full = run.disk.used() + PAGE as u64;
    run.disk.set_quota(Some(full));
    let end = |run: &mut Run| {
        run.begin();
        let Some(id) = run.open_ops.pop_front() else { return false };
        let result = run.disk.complete(id);
        run.wal.on_done(run.now, id, result).unwrap();
        true
    };
    for _ in 0..6 {
        run.append(1, 10);
        while end(&mut run) {}
    }
    assert!(run.wal.is_out_of_space());
    assert_eq!(run.wal.durable(), 4, "the segment took four");
    assert!(!run.wal.is_idle());
    // Each second it tries again, not sooner.
    assert_eq!(run.wal.next_deadline(), Time::from_millis(1000));
    run.now = Time::from_millis(999);
    assert!(run.wal.poll_op(run.now).is_none());
    run.now = Time::from_millis(1000);
    assert!(end(&mut run) && run.wal.is_out_of_space());
    run.disk.set_quota(None);
    run.now = Time::from_millis(2000);
    while end(&mut run) {}
    assert!(!run.wal.is_out_of_space());
    assert_eq!(run.wal.durable(), 6);
    assert_eq!(run.recovered().blocks, run.log);
    assert_eq!(run.wal.next_deadline(), Time::from_millis(2010), "only the seal is due");
}

#[test]
fn a_start_on_a_full_disk_waits_for_room() {
    let mut run = Run::start(super::formatted(), 1);
    run.disk.set_quota(Some(SMALL_SEGMENT));
    run.append(1, 10);
    run.begin();
    let id = run.open_ops.pop_front().unwrap();
    let result = run.disk.complete(id);
    assert!(matches!(result, Err(DiskFault::NoSpace { .. })));
    run.wal.on_done(run.now, id, result).unwrap();
    assert!(run.wal.is_out_of_space() && run.wal.poll_op(run.now).is_none());
    run.disk.set_quota(None);
    run.pass(1000);
    assert_eq!(run.wal.durable(), 1);
    assert_eq!(run.recovered().blocks, run.log);
}

#[test]
fn a_failed_write_ends_the_log_and_is_not_acknowledged() {
    // A device that fails, and a file system that was remounted read-only.
    for (errno, after) in [EIO, EROFS].into_iter().flat_map(|e| (0..3).map(move |after| (e, after))) {
        let mut run = Run::fresh();
        run.append(1, 10);
        run.disk.fail_in(after, errno);
        let fault = loop {
            run.begin();
            let id = run.open_ops.pop_front().unwrap();
            let result = run.disk.complete(id);
            if let Err(fault) = run.wal.on_done(run.now, id, result) {
                break fault;
            }
        };
        assert!(matches!(fault, DiskFault::Io { errno: seen, .. } if seen == errno), "{fault}");
        assert_eq!(run.wal.durable(), 0);
        run.disk.crash(&mut palisade_types::Rng::new(after.into()));
        assert!(run.recovered().blocks.len() <= 1);
    }
}
