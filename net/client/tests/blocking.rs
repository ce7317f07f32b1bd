//! The blocking front against the same server, which has a thread of its own here.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kit::{CLUSTER, HELD, Order, SESSION, Server, holder};
use palisade_client::blocking::Client;
use palisade_client::{
    AcquireError, CallError, Cause, ClientConfig, ConnectError, Cursor, Happened, Listing, LogIndex,
    LostReason, ObserveError, Refusal, Selector, ShutDownError, WatchError, WatchItem,
};
use palisade_types::{ClusterIdentity, ShardId};
use palisade_wire::{Push, Request};

const PATIENCE: Duration = Duration::from_secs(30);

/// Does something with a client of a server that runs meanwhile; then the server must see this.
fn with_server(work: impl FnOnce(Client, &dyn Fn(Order)), sees: impl Fn(&Request) -> bool + Send + 'static) {
    let (endpoint_in, endpoint) = mpsc::channel();
    let (order_in, mut orders) = tokio::sync::mpsc::unbounded_channel();
    let server = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut server = Server::start().await;
            endpoint_in.send(server.endpoint.clone()).unwrap();
            while let Some(order) = orders.recv().await {
                server.order(order);
            }
            server.sees(sees).await;
        });
    });
    let endpoint = endpoint.recv_timeout(PATIENCE).unwrap();
    work(Client::connect(ClientConfig::new([endpoint])).unwrap(), &|order| order_in.send(order).unwrap());
    drop(order_in);
    server.join().unwrap();
}

#[test]
fn calls_wait_for_their_answers_and_a_close_has_arrived_when_it_returns() {
    let work = |client: Client, _: &dyn Fn(Order)| {
        let session = client.session().ttl(Duration::from_secs(20)).owner("me").open().unwrap();
        assert_eq!((session.id(), session.is_valid()), (SESSION, true));
        let guard = session.fenced("k", "db").acquire().unwrap();
        assert_eq!(guard.fence().to_string(), "k@9/9");
        assert!(guard.is_valid());
        assert_eq!(guard.lost_within(Duration::ZERO), None);
        assert!(guard.write_deadline() < guard.remaining());
        let shown = guard.protect(Duration::from_secs(5), |fence| fence.to_string());
        assert_eq!(shown, Ok("k@9/9".to_owned()));
        let late = guard.protect(Duration::from_secs(20), |_| panic!("it must not begin")).unwrap_err();
        assert!(!late.is_final() && late.left < late.needs && late.lost.is_none(), "{late}");
        guard.release().unwrap();
        match session.advisory(HELD).no_wait().acquire() {
            Err(AcquireError::Held { holder: Some(seen), waiting: 2 }) => assert_eq!(seen, holder()),
            other => panic!("{other:?}"),
        }
        assert!(session.advisory(HELD).try_acquire().unwrap().is_none());
        let refused = client.describe("k").unwrap_err();
        assert!(matches!(refused, CallError::Refused(Refusal::BadRequest { .. })));
        let asked = client.wait_for(async |client| client.describe("k").await);
        assert_eq!(asked.unwrap_err(), refused);
        session.close().unwrap();
    };
    with_server(work, |r| *r == Request::CloseSession { session: SESSION });
}

#[test]
fn the_thread_closes_what_was_dropped() {
    let work = |client: Client, _: &dyn Fn(Order)| {
        let session = client.session().open().unwrap();
        let guard = session.advisory("k").acquire().unwrap();
        drop((client, session));
        assert!(guard.is_valid(), "the guard keeps its session");
    };
    with_server(work, |r| *r == Request::CloseSession { session: SESSION });
}

#[test]
fn a_loss_is_told_to_whoever_waits_and_whoever_does_not() {
    let work = |client: Client, order: &dyn Fn(Order)| {
        let session = client.session().open().unwrap();
        let guard = session.advisory("k").acquire().unwrap();
        let (told_in, told) = mpsc::channel();
        guard.on_lost(move |reason| told_in.send(reason).unwrap());
        let cause = Cause::Expired { silent_ms: 77 };
        order(Order::Push(Push::SessionEnded { session: SESSION, cause }));
        let lost = LostReason::Ended(cause);
        assert_eq!(guard.lost_within(PATIENCE), Some(lost.clone()));
        assert_eq!(told.recv_timeout(PATIENCE), Ok(lost.clone()));
        assert!(!guard.is_valid());
        assert_eq!(guard.release(), Err(CallError::SessionLost(lost)));
    };
    with_server(work, |r| matches!(r, Request::Acquire { .. }));
}

#[test]
fn giving_a_guard_up_is_no_loss() {
    let work = |client: Client, _: &dyn Fn(Order)| {
        let session = client.session().open().unwrap();
        // Many rounds: whether a watcher could hear of its guard's end is a race of two threads.
        for released in [true, false].into_iter().cycle().take(400) {
            let guard = session.advisory("k").acquire().unwrap();
            let (told_in, told) = mpsc::channel();
            guard.on_lost(move |reason| told_in.send(reason).unwrap());
            if released {
                guard.release().unwrap();
            } else {
                drop(guard);
            }
            assert_eq!(told.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
        }
        session.close().unwrap();
    };
    with_server(work, |r| *r == Request::CloseSession { session: SESSION });
}

#[test]
fn a_configuration_that_makes_no_sense_is_refused_at_once() {
    let none: [&str; 0] = [];
    assert!(matches!(Client::connect(ClientConfig::new(none)), Err(ConnectError::Config(_))));
}

#[test]
fn ephemeral_keys_are_put_deleted_read_and_listed() {
    let work = |client: Client, _: &dyn Fn(Order)| {
        let session = client.session().open().unwrap();
        session.put("svc/a", "v").unwrap();
        session.delete("svc/a").unwrap();
        assert_eq!(client.get("free").unwrap().value, None);
        assert_eq!(client.list("svc/").unwrap().len(), 3);
        assert_eq!(client.values("svc/", Some("svc/2"), 9).unwrap().rows.len(), 1);
    };
    with_server(work, |r| matches!(r, Request::Delete { .. }));
}

#[test]
fn a_session_is_shut_down_when_the_thread_that_holds_a_guard_has_stopped() {
    let work = |client: Client, _: &dyn Fn(Order)| {
        let session = client.session().open().unwrap();
        let guard = session.advisory("k").acquire().unwrap();
        let remain = session.shut_down(Duration::from_millis(1)).unwrap_err();
        assert!(matches!(remain, ShutDownError::GuardsRemain { left: 1, .. }), "{remain}");
        let worker = thread::spawn(move || {
            let reason = guard.lost_within(PATIENCE);
            guard.release().unwrap();
            reason
        });
        assert_eq!(session.shut_down(PATIENCE), Ok(()));
        assert_eq!(worker.join().unwrap(), Some(LostReason::ShuttingDown));
    };
    with_server(work, |r| *r == Request::CloseSession { session: SESSION });
}

fn cursor(cluster: ClusterIdentity, revision: u64) -> Cursor {
    Cursor::new(cluster, ShardId(0), LogIndex(revision))
}

#[test]
fn a_watch_is_iterated_over_item_by_item_and_ends_after_its_first_error() {
    let work = |client: Client, _: &dyn Fn(Order)| {
        let selector = Selector::key("k").unwrap();
        let mut watch = client.watch(selector.clone()).start();
        // The client may go; its thread lives as long as the watch.
        let other = client.watch(selector.clone()).after(cursor(ClusterIdentity(99), 3)).start();
        let now = client.watch(selector).from_now().start();
        drop(client);
        let items: Vec<WatchItem> = watch.by_ref().take(4).map(Result::unwrap).collect();
        assert_eq!(items[0], WatchItem::Listing(Listing::Asked));
        assert!(matches!(&items[1], WatchItem::Row(row) if matches!(row.what, Happened::Held { .. })));
        assert_eq!(items[2], WatchItem::Listed { cursor: cursor(CLUSTER, 12) });
        match &items[3] {
            WatchItem::Change { event, coalesced: false, cursor: Some(upto) } => {
                assert!(matches!(event.what, Happened::Released { .. }));
                assert_eq!(*upto, cursor(CLUSTER, 13));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(watch.next_within(Duration::ZERO), Ok(None), "nothing else happens");
        let told: Vec<_> = other.collect();
        assert_eq!(told, [Err(WatchError::ClusterReset)], "the error once, and no more");
        let stands = now.take(1).next();
        assert_eq!(stands, Some(Ok(WatchItem::Progress { cursor: cursor(CLUSTER, 12) })));
    };
    with_server(work, |r| matches!(r, Request::Watch { cursor: Some(_), .. }));
}

#[test]
fn an_observer_is_iterated_over_leader_by_leader_and_ends_after_its_first_error() {
    let work = |client: Client, _: &dyn Fn(Order)| {
        let mut observer = client.observe("election").unwrap().start();
        let told: Vec<_> = observer.by_ref().take(3).map(Result::unwrap).collect();
        let said = told.iter().map(|told| {
            let leader = told.leader.as_ref().unwrap();
            (leader.fence.to_string(), String::from_utf8(leader.value.to_vec()).unwrap(), told.present)
        });
        let wanted = [
            ("election@1/1", "one", Some(Listing::Asked)),
            ("election@2/2", "two", None),
            ("election@2/2", "two, ready", None),
        ];
        let wanted = wanted.map(|(fence, value, why)| (fence.to_owned(), value.to_owned(), why));
        assert_eq!(said.collect::<Vec<_>>(), wanted, "the leader changed in one step");
        assert_eq!(observer.cursor(), Some(&cursor(CLUSTER, 14)));
        assert_eq!(observer.next_within(Duration::ZERO), Ok(None));
        let other = client.observe("election").unwrap().after(cursor(ClusterIdentity(99), 3)).start();
        let told: Vec<_> = other.collect();
        assert_eq!(told, [Err(ObserveError::Watch(WatchError::ClusterReset))]);
        let told: Vec<_> = client.observe("k").unwrap().start().collect();
        assert!(
            matches!(&told[..], [Err(ObserveError::NotAnElection(error))] if *error.key == *"k"),
            "{told:?}"
        );
        assert!(client.observe("").is_err());
    };
    with_server(work, |r| matches!(r, Request::Watch { cursor: Some(_), .. }));
}
