use std::time::Duration;

use bytes::Bytes;
use glommio::{LocalExecutorBuilder, Placement};
use palisade_wal::{DiskResult, OpId};

use super::*;
use crate::server::inbox::Event;
use crate::server::sys::{self, Epoll};
use crate::server::tests::scratch;

fn on_executor<T: Send + 'static>(
    run: impl AsyncFnOnce(Disk, Rc<Inbox>, Arc<Metrics>) -> T + Send + 'static,
    dir: &Path,
) -> T {
    let dir = dir.to_owned();
    let builder = LocalExecutorBuilder::new(Placement::Unbound).io_memory(1 << 20);
    let handle = builder.spawn(move || async move {
        let inbox = Rc::new(Inbox::default());
        let metrics = Arc::new(Metrics::default());
        let disk = Disk::open(&dir, Rc::clone(&inbox), Arc::clone(&metrics)).await.unwrap();
        run(disk, inbox, metrics).await
    });
    handle.unwrap().join().unwrap()
}

/// Waits as a core does: for the ring in an epoll set, and for the executor's files in between.
async fn wait(disk: &mut Disk, inbox: &Inbox) -> Vec<Event> {
    let set = Epoll::new().unwrap();
    set.add(disk, sys::READ, 1).unwrap();
    loop {
        let events = inbox.take();
        if !events.is_empty() {
            return events;
        }
        let mut events = [sys::NO_EVENT];
        if disk.files_wanted() == Wanted::Nobody {
            set.wait(&mut events, Duration::from_secs(10)).unwrap();
        } else {
            glommio::timer::sleep(Duration::from_micros(100)).await;
        }
        disk.reap();
    }
}

async fn done(disk: &mut Disk, inbox: &Inbox, op: DiskOp) -> Result<(), DiskFault> {
    run(disk, inbox, op).await.map(|bytes| assert!(bytes.is_empty(), "only a read gives bytes"))
}

async fn run(disk: &mut Disk, inbox: &Inbox, op: DiskOp) -> DiskResult {
    disk.start(Owner::Shard, op);
    match wait(disk, inbox).await.pop() {
        Some(Event::Disk { result, .. }) => result,
        other => panic!("{other:?}"),
    }
}

fn create(id: u64, file: &str, size: u64, byte: u8, ahead: bool) -> DiskOp {
    let header = Bytes::from(vec![byte; 4096]);
    DiskOp::Create { id: OpId(id), file: file.to_owned(), size, header, ahead }
}

#[test]
fn what_is_reported_done_is_in_the_file() {
    let dir = scratch();
    let path = dir.path().to_owned();
    on_executor(
        async |mut disk, inbox, metrics| {
            let file = "wal-1".to_owned();
            done(&mut disk, &inbox, create(1, &file, 3 << 20, 7, true)).await.unwrap();
            let parts = vec![
                (8192, vec![Bytes::from(vec![1; 100]), Bytes::from(vec![2; 8092])]),
                (4096, vec![Bytes::from(vec![3; 4096])]),
            ];
            let syncs = metrics.syncs.get();
            done(&mut disk, &inbox, DiskOp::Write { id: OpId(2), file: file.clone(), parts }).await.unwrap();
            assert_eq!(metrics.syncs.get(), syncs + 1, "one sync for all parts");
            let cut = DiskOp::Truncate { id: OpId(3), file, len: 1 << 20 };
            done(&mut disk, &inbox, cut).await.unwrap();
        },
        &path,
    );
    let bytes = std::fs::read(path.join("wal-1")).unwrap();
    assert_eq!(bytes.len(), 1 << 20);
    assert!(bytes[..4096].iter().all(|b| *b == 7));
    assert!(bytes[4096..8192].iter().all(|b| *b == 3));
    assert!(bytes[8192..8292].iter().all(|b| *b == 1));
    assert!(bytes[8292..16384].iter().all(|b| *b == 2));
    assert!(bytes[16384..].iter().all(|b| *b == 0));
    assert!(!path.join("probe.tmp").exists());
}

#[test]
fn writes_side_by_side_end_each_once_and_reuse_no_buffer_in_flight() {
    const WRITES: u64 = 12;
    let dir = scratch();
    let path = dir.path().to_owned();
    on_executor(
        async |mut disk, inbox, _| {
            done(&mut disk, &inbox, create(1, "wal-1", 4 << 20, 0, false)).await.unwrap();
            for round in 0..3 {
                for n in 0..WRITES {
                    let pages = usize::try_from(n).unwrap() + 1;
                    let bytes = Bytes::from(vec![(round * 64 + n + 1) as u8; pages * 4096]);
                    let parts = vec![((1 + n * 16) * 4096, vec![bytes])];
                    let op = DiskOp::Write { id: OpId(round * 64 + n + 2), file: "wal-1".into(), parts };
                    disk.start(Owner::Shard, op);
                }
                let mut ended = Vec::new();
                while ended.len() < WRITES as usize {
                    for event in wait(&mut disk, &inbox).await {
                        match event {
                            Event::Disk { id, result: Ok(_), .. } => ended.push(id.0),
                            other => panic!("{other:?}"),
                        }
                    }
                }
                ended.sort_unstable();
                assert_eq!(ended, (0..WRITES).map(|n| round * 64 + n + 2).collect::<Vec<_>>());
            }
        },
        &path,
    );
    let bytes = std::fs::read(path.join("wal-1")).unwrap();
    for n in 0..WRITES {
        let at = usize::try_from((1 + n * 16) * 4096).unwrap();
        let pages = usize::try_from(n).unwrap() + 1;
        assert!(bytes[at..at + pages * 4096].iter().all(|b| *b == (2 * 64 + n + 1) as u8), "write {n}");
    }
}

#[test]
fn files_are_not_polled_for_completion() {
    let dir = scratch();
    let path = dir.path().join("wal-1");
    let shown = on_executor(
        async |mut disk, inbox, _| {
            done(&mut disk, &inbox, create(1, "wal-1", 1 << 20, 0, false)).await.unwrap();
            format!("{:?}", glommio::io::DmaFile::open(path).await.unwrap())
        },
        dir.path(),
    );
    assert!(shown.contains("NonPollable"), "{shown}");
}

#[test]
fn a_file_is_read_renamed_and_removed() {
    let dir = scratch();
    let path = dir.path().to_owned();
    on_executor(
        async |mut disk, inbox, _| {
            let write = |id, file: &str, byte| {
                let parts = vec![(4096, vec![Bytes::from(vec![byte; 8192])])];
                DiskOp::Write { id: OpId(id), file: file.to_owned(), parts }
            };
            done(&mut disk, &inbox, create(1, "snap-1.tmp", 4096, 7, false)).await.unwrap();
            done(&mut disk, &inbox, write(2, "snap-1.tmp", 8)).await.unwrap();
            let rename = DiskOp::Rename { id: OpId(3), file: "snap-1.tmp".into(), to: "snap-1".into() };
            done(&mut disk, &inbox, rename).await.unwrap();
            // A second of the same name is another file.
            done(&mut disk, &inbox, create(4, "snap-1.tmp", 4096, 9, false)).await.unwrap();
            done(&mut disk, &inbox, write(5, "snap-1.tmp", 10)).await.unwrap();
            let read = |id, file: &str, offset| DiskOp::Read {
                id: OpId(id),
                file: file.to_owned(),
                offset,
                len: 132 << 10,
            };
            let bytes = run(&mut disk, &inbox, read(6, "snap-1", 0)).await.unwrap();
            assert_eq!((bytes.len(), bytes[0], bytes[4096]), (12288, 7, 8), "as far as the file goes");
            let bytes = run(&mut disk, &inbox, read(7, "snap-1.tmp", 4096)).await.unwrap();
            assert_eq!((bytes.len(), bytes[0]), (8192, 10));
            for id in [8, 9] {
                let remove = DiskOp::Remove { id: OpId(id), file: "snap-1.tmp".into() };
                done(&mut disk, &inbox, remove).await.unwrap();
            }
            let fault = run(&mut disk, &inbox, read(10, "snap-1.tmp", 0)).await.unwrap_err();
            let expected = DiskFault::Io { file: "snap-1.tmp".into(), op: "open", errno: libc::ENOENT };
            assert_eq!(fault, expected);
        },
        &path,
    );
    assert_eq!(std::fs::read(path.join("snap-1")).unwrap().len(), 12288);
    assert!(!path.join("snap-1.tmp").exists());
}

#[test]
fn a_failure_names_the_file() {
    let dir = scratch();
    let fault = on_executor(
        async |mut disk, inbox, _| {
            let op = DiskOp::Truncate { id: OpId(1), file: "wal-9".into(), len: 0 };
            done(&mut disk, &inbox, op).await.unwrap_err()
        },
        dir.path(),
    );
    let expected = DiskFault::Io { file: "wal-9".into(), op: "open", errno: libc::ENOENT };
    assert_eq!(fault, expected);
}
