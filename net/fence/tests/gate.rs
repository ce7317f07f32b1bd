//! The gate and its ledger, and that the tests would find the two classic bugs: to check the fence before instead of
//! with the write, and to forget the floor on a restart.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use palisade_fence::{
    Begun, Epoch, Failed, Fence, FenceGate, Floor, Key, Ledger, Name, NotLowered, Once, OperationId, Past,
    RedbLedger, Undone,
};

/// Long enough that a writer which is not held up has written.
const HELD_UP: Duration = Duration::from_millis(200);
const DEADLINE: Duration = Duration::from_secs(30);

fn fence(epoch: u64) -> Fence {
    Fence::new(Key::new("k").unwrap(), Epoch(epoch), Epoch(epoch)).unwrap()
}

/// Something to protect writes with.
trait Protect: Send + Sync {
    /// Runs the write if the fence is admitted; says whether it ran.
    fn protect(&self, fence: &Fence, write: &mut dyn FnMut()) -> bool;
}

impl<L: Ledger + Send + Sync> Protect for FenceGate<L> {
    fn protect(&self, fence: &Fence, write: &mut dyn FnMut()) -> bool {
        match FenceGate::protect(self, fence, write) {
            Ok(()) => true,
            Err(Failed::Refused(_)) => false,
            Err(e) => panic!("{e}"),
        }
    }
}

/// A bug: the fence is checked, and then the write happens.
struct ChecksBefore(RedbLedger);

impl Protect for ChecksBefore {
    fn protect(&self, fence: &Fence, write: &mut dyn FnMut()) -> bool {
        if self.0.admit(fence).is_err() {
            return false;
        }
        write();
        true
    }
}

/// A zombie is stopped when it has been admitted and has not written yet; its successor writes; the zombie goes on. Says
/// what is wrong with the order of what was written.
fn a_zombie_between_check_and_write(gate: &dyn Protect) -> Result<(), String> {
    let written = Mutex::new(Vec::new());
    let (entered, in_write) = mpsc::channel();
    let (go_on, stopped) = mpsc::channel::<()>();
    let (wrote, successor) = mpsc::channel();
    std::thread::scope(|scope| {
        let written = &written;
        scope.spawn(move || {
            gate.protect(&fence(1), &mut || {
                entered.send(()).unwrap();
                stopped.recv_timeout(DEADLINE).unwrap();
                written.lock().unwrap().push(1);
            })
        });
        in_write.recv_timeout(DEADLINE).unwrap();
        scope.spawn(move || {
            gate.protect(&fence(2), &mut || written.lock().unwrap().push(2));
            wrote.send(()).unwrap();
        });
        // It either waits for its turn or has written by now.
        let _ = successor.recv_timeout(HELD_UP);
        go_on.send(()).unwrap();
    });
    match written.into_inner().unwrap()[..] {
        [1, 2] => Ok(()),
        ref other => Err(format!("written in the order {other:?}")),
    }
}

#[test]
fn a_zombie_stopped_in_the_middle_of_its_write_cannot_write_after_its_successor() {
    let dir = tempfile::tempdir().unwrap();
    let gate = FenceGate::of_many(RedbLedger::open(&dir.path().join("ledger")).unwrap());
    assert_eq!(a_zombie_between_check_and_write(&gate), Ok(()));
    assert!(gate.protect(&fence(1), || ()).is_err(), "and not later");
}

#[test]
fn a_gate_that_checks_before_instead_of_with_the_write_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let gate = ChecksBefore(RedbLedger::open(&dir.path().join("ledger")).unwrap());
    assert!(a_zombie_between_check_and_write(&gate).is_err());
}

/// A bug: the floors are kept in memory.
#[derive(Default)]
struct Forgetful(Mutex<HashMap<Key, Floor>>);

impl Ledger for Forgetful {
    type Error = Infallible;

    fn admit(&self, fence: &Fence) -> Result<(), Failed<Infallible>> {
        let mut floors = self.0.lock().unwrap();
        let floor = floors.entry(fence.key().clone()).or_default();
        *floor = floor.admit(fence)?;
        Ok(())
    }

    fn begin(&self, fence: &Fence, _: &Name, _: &OperationId) -> Result<Begun, Failed<Infallible>> {
        self.admit(fence).map(|()| Begun::New)
    }

    fn done(&self, _: &Name, _: &OperationId, _: Epoch) -> Result<(), Infallible> {
        Ok(())
    }

    fn not_done(&self, _: &Name, _: &OperationId) -> Result<Option<Epoch>, Infallible> {
        Ok(None)
    }

    fn floor(&self, key: &Key) -> Result<u64, Infallible> {
        Ok(self.0.lock().unwrap().get(key).map_or(0, |f| f.0))
    }
}

/// The gate's process restarts between the successor's write and the zombie's.
fn a_restart_in_between<L: Ledger + Send + Sync>(open: impl Fn() -> L) -> Result<(), String> {
    let gate = FenceGate::of_many(open());
    gate.protect(&fence(2), || ()).map_err(|e| e.to_string())?;
    drop(gate);
    let gate = FenceGate::of_many(open());
    match gate.protect(&fence(1), || ()) {
        Err(Failed::Refused(refused)) if refused.floor == 2 => Ok(()),
        Err(e) => Err(e.to_string()),
        Ok(()) => Err("the zombie was let in".to_owned()),
    }
}

#[test]
fn a_floor_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    assert_eq!(a_restart_in_between(|| RedbLedger::open(&path).unwrap()), Ok(()));
    assert_eq!(RedbLedger::open(&path).unwrap().floor(fence(1).key()).unwrap(), 2);
}

#[test]
fn a_ledger_that_forgets_on_a_restart_is_found() {
    assert!(a_restart_in_between(Forgetful::default).is_err());
}

/// A ledger whose file is given back on each open.
fn gate(path: &Path) -> FenceGate<RedbLedger> {
    FenceGate::of(Key::new("k").unwrap(), RedbLedger::open(path).unwrap())
}

#[test]
fn an_operation_happens_once_across_epochs_and_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let (orders, order) = (Name::new("orders").unwrap(), OperationId::new("order 17").unwrap());
    let mut sent = 0;
    let mut send = || {
        sent += 1;
        Ok::<_, Undone<()>>(())
    };
    assert_eq!(gate(&path).once(&fence(1), &orders, &order, &mut send).unwrap(), Once::Done(()));
    let before = Once::Before(Past::Done { epoch: Epoch(1) });
    assert_eq!(gate(&path).once(&fence(1), &orders, &order, &mut send).unwrap(), before);
    assert_eq!(gate(&path).once(&fence(2), &orders, &order, &mut send).unwrap(), before);
    // The ids of another resource are others.
    let invoices = Name::new("invoices").unwrap();
    assert_eq!(gate(&path).once(&fence(2), &invoices, &order, &mut send).unwrap(), Once::Done(()));
    assert!(matches!(gate(&path).once(&fence(1), &orders, &order, &mut send), Err(Failed::Refused(_))));
    assert_eq!(sent, 2);
    let ledger = RedbLedger::open(&path).unwrap();
    assert_eq!(ledger.forget_operations(&orders, Duration::from_secs(3600)).unwrap(), 0, "none is so old");
}

#[test]
fn who_dies_in_the_middle_leaves_an_unknown_outcome_that_only_a_look_settles() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let (orders, order) = (Name::new("orders").unwrap(), OperationId::new("order 17").unwrap());
    let never = || -> Result<(), Undone<()>> { panic!("it must not be attempted") };
    let died = std::panic::catch_unwind(|| {
        gate(&path).once(&fence(1), &orders, &order, || -> Result<(), Undone<()>> { panic!("power cut") })
    });
    assert!(died.is_err());
    let unknown = Once::Before(Past::Unknown { epoch: Epoch(1) });
    assert_eq!(gate(&path).once(&fence(2), &orders, &order, never).unwrap(), unknown);
    // A superseded holder settles nothing.
    assert!(matches!(gate(&path).settle(&fence(1), &orders, &order, true), Err(Failed::Refused(_))));
    assert_eq!(gate(&path).settle(&fence(2), &orders, &order, false).unwrap(), None);
    let timed_out = || Err::<(), _>(Undone::Unknown("no answer"));
    let once = gate(&path).once(&fence(2), &orders, &order, timed_out).unwrap();
    assert_eq!(once, Once::Failed(Undone::Unknown("no answer")));
    let unknown = Once::Before(Past::Unknown { epoch: Epoch(2) });
    assert_eq!(gate(&path).once(&fence(2), &orders, &order, never).unwrap(), unknown);
    assert_eq!(gate(&path).settle(&fence(3), &orders, &order, true).unwrap(), Some(Epoch(3)));
    // A look that came too late takes nothing off the record.
    assert_eq!(gate(&path).settle(&fence(3), &orders, &order, false).unwrap(), Some(Epoch(3)));
    let done = Once::Before(Past::Done { epoch: Epoch(3) });
    assert_eq!(gate(&path).once(&fence(3), &orders, &order, never).unwrap(), done);
}

#[test]
fn what_certainly_was_not_done_can_be_tried_again() {
    let dir = tempfile::tempdir().unwrap();
    let gate = gate(&dir.path().join("ledger"));
    let (orders, order) = (Name::new("orders").unwrap(), OperationId::new("order 17").unwrap());
    let refused = || Err::<(), _>(Undone::NotDone("connection refused"));
    let once = gate.once(&fence(1), &orders, &order, refused).unwrap();
    assert_eq!(once, Once::Failed(Undone::NotDone("connection refused")));
    let once = gate.once(&fence(1), &orders, &order, || Ok::<_, Undone<()>>(7)).unwrap();
    assert_eq!(once, Once::Done(7));
}

#[test]
fn a_gate_of_one_key_refuses_fences_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let other = Fence::new(Key::new("other").unwrap(), Epoch(9), Epoch(9)).unwrap();
    let gate = gate(&dir.path().join("ledger"));
    assert!(matches!(gate.protect(&other, || ()), Err(Failed::WrongKey { .. })));
}

#[test]
fn a_floor_that_an_invented_epoch_has_raised_can_be_lowered_by_hand() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger");
    let gate = FenceGate::of_many(RedbLedger::open(&path).unwrap());
    gate.protect(&fence(u64::MAX / 2), || ()).unwrap();
    assert!(gate.protect(&fence(8), || ()).is_err());
    let key = fence(1).key().clone();
    assert_eq!(gate.ledger().lower_floor(&key, Epoch(7)).unwrap(), u64::MAX / 2);
    for to in [7, 8] {
        let refused = gate.ledger().lower_floor(&key, Epoch(to)).unwrap_err();
        assert!(matches!(refused, NotLowered::NotAbove { floor: 7, .. }), "{refused}");
    }
    drop(gate);
    let gate = FenceGate::of_many(RedbLedger::open(&path).unwrap());
    assert!(gate.protect(&fence(6), || ()).is_err(), "no lower than was asked");
    gate.protect(&fence(8), || ()).unwrap();
}
