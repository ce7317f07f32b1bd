//! The client against a server of a few lines that speaks the real protocol: what the handles do, and
//! what the server gets to see of it.

mod kit;

use std::time::Duration;

use kit::{HELD, Order, PRESENT, SESSION, STUBBORN, Server, holder, worker};
use palisade_client::{AcquireError, CallError, Cause, Client, ClientConfig, LogIndex, LostReason};
use palisade_types::{OperatorAct, Outcome, Refusal, Ticket};
use palisade_wire::{Push, Request};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

#[tokio::test]
async fn a_guard_carries_its_fence_and_releases_when_dropped() {
    let mut server = Server::start().await;
    let session = server.client().session().ttl(Duration::from_secs(20)).owner("me").open().await.unwrap();
    assert_eq!((session.id(), session.ttl(), session.is_short()), (SESSION, Duration::from_secs(20), true));
    let guard = session.fenced("k", "db").acquire().await.unwrap();
    assert_eq!(guard.fence().to_string(), "k@9/9");
    assert!(guard.is_valid() && guard.remaining() <= guard.grace());
    let asked = server.sees(|r| matches!(r, Request::Acquire { .. })).await;
    let Request::Acquire { ticket: drawn, resource, .. } = asked else { unreachable!() };
    assert_eq!(resource.as_deref(), Some("db"));
    drop(guard);
    let released = server.sees(|r| matches!(r, Request::Release { .. })).await;
    assert_eq!(released, Request::Release { session: SESSION, ticket: drawn });
}

#[tokio::test]
async fn a_release_is_confirmed_and_the_last_handle_closes_the_session() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    drop(session);
    guard.release().await.unwrap();
    server.sees(|r| *r == Request::CloseSession { session: SESSION }).await;
}

#[tokio::test]
async fn an_acquire_that_does_not_wait_learns_who_holds_the_key() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    match session.advisory(HELD).no_wait().acquire().await {
        Err(AcquireError::Held { holder: Some(seen), waiting: 2 }) => assert_eq!(seen, holder()),
        other => panic!("{other:?}"),
    }
    assert!(session.advisory(HELD).try_acquire().await.unwrap().is_none());
    assert!(session.advisory("free").try_acquire().await.unwrap().is_some());
}

#[tokio::test]
async fn a_waiter_whose_lock_an_operator_took_before_it_heard_of_it_is_told_so() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let (queued_in, mut queued) = mpsc::unbounded_channel();
    let waiting = session.advisory(HELD).wait(Duration::from_secs(60));
    let acquire = tokio::spawn(waiting.on_queued(move |q| queued_in.send(q.place).unwrap()).acquire());
    assert_eq!(queued.recv().await, Some(2));
    let forced = Push::Finished { session: SESSION, ticket: Ticket(1), outcome: Outcome::Forced };
    server.order(Order::Push(forced));
    let error = acquire.await.unwrap().unwrap_err();
    assert_eq!(error, AcquireError::Taken);
    assert!(!error.is_final() && error.to_string().contains("operator"));
}

#[tokio::test]
async fn a_report_that_fails_halfway_says_as_of_when_and_how_far_it_came() {
    let mut server = Server::start().await;
    let operator = server.client().operator("ops").unwrap();
    let as_of = operator.as_of().await.unwrap();
    assert_eq!(as_of, PRESENT);
    let failed = operator.report_owner_dead("worker", None, as_of, "gone").await.unwrap_err();
    assert_eq!((failed.as_of, failed.ended), (as_of, vec![worker(11), worker(12)]));
    assert!(matches!(failed.error, CallError::Refused(Refusal::BadRequest { .. })));
    let is_report = |r: &Request| matches!(r, Request::Operate { act: OperatorAct::ReportDead { session }, .. } if session.opened == STUBBORN);
    server.sees(is_report).await;
    let done = operator.report_owner_dead("worker", None, LogIndex(12), "gone").await.unwrap();
    assert_eq!((done.as_of, done.ended), (LogIndex(12), vec![worker(11), worker(12)]));
}

#[tokio::test]
async fn a_report_as_of_a_revision_that_is_not_yet_ends_nobody() {
    let server = Server::start().await;
    let operator = server.client().operator("ops").unwrap();
    let failed = operator.report_owner_dead("worker", None, PRESENT.next(), "gone").await.unwrap_err();
    assert_eq!(failed.error, CallError::Beyond { asked: PRESENT.next(), end: PRESENT });
    assert!(failed.ended.is_empty() && failed.error.is_final());
}

#[tokio::test]
async fn dropping_a_pending_acquire_withdraws_it() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let (queued_in, mut queued) = mpsc::unbounded_channel();
    let acquire = session.advisory(HELD).on_queued(move |q| queued_in.send(q.place).unwrap()).acquire();
    tokio::select! {
        end = acquire => panic!("{end:?}"),
        place = queued.recv() => assert_eq!(place, Some(2)),
    }
    let given_up = |r: &Request| matches!(r, Request::Cancel { .. } | Request::Release { .. });
    server.sees(given_up).await;
}

/// U25: an application that asks nothing and looks at nothing keeps its session for many TTLs.
#[tokio::test]
async fn a_session_is_renewed_while_the_application_polls_nothing() {
    let mut server = Server::start().await;
    let session = server.client().session().ttl(Duration::from_millis(500)).open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    for _ in 0..15 {
        let renewed = server.sees(|r| matches!(r, Request::Renew { .. })).await;
        assert_eq!(renewed, Request::Renew { sessions: vec![SESSION] });
    }
    assert!(guard.is_valid());
}

#[tokio::test]
async fn a_guard_is_lost_with_the_cause_when_the_cluster_ends_the_session() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    let cause = Cause::Expired { silent_ms: 77 };
    server.order(Order::Push(Push::SessionEnded { session: SESSION, cause }));
    assert_eq!(guard.lost().await, LostReason::Ended(cause));
    assert_eq!(session.lost().await, LostReason::Ended(cause));
    let late = guard.protect(Duration::ZERO, |_| async { panic!("it must not begin") }).await.unwrap_err();
    assert_eq!((late.is_final(), late.lost), (true, Some(LostReason::Ended(cause))));
    assert!(!guard.is_valid() && guard.grace().is_zero());
    assert_eq!(guard.release().await, Err(CallError::SessionLost(LostReason::Ended(cause))));
    let again = session.advisory("k").acquire().await;
    assert_eq!(again.unwrap_err(), AcquireError::Call(CallError::SessionLost(LostReason::Ended(cause))));
}

#[tokio::test]
async fn a_guard_is_lost_when_no_renewal_is_answered() {
    let mut server = Server::start().await;
    let session = server.client().session().ttl(Duration::from_millis(600)).open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    server.sees(|r| matches!(r, Request::Renew { .. })).await;
    server.order(Order::IgnoreRenewals);
    assert_eq!(guard.lost().await, LostReason::DeadlinePassed);
    assert!(!guard.is_valid() && guard.remaining().is_zero());
    assert!(guard.grace() <= Duration::from_millis(60), "the margin is a tenth of the TTL");
}

#[tokio::test]
async fn closing_a_session_loses_the_guards_that_are_left() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    session.close().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::Closed);
    assert!(!guard.is_valid());
}

#[tokio::test]
async fn a_refused_read_is_told_apart_from_a_cluster_out_of_reach() {
    let server = Server::start().await;
    let refused = server.client().describe("k").await.unwrap_err();
    assert!(matches!(refused, CallError::Refused(Refusal::BadRequest { .. })) && refused.is_final());
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut config = ClientConfig::new([nobody.local_addr().unwrap().to_string()]);
    drop(nobody);
    config.call_timeout = Duration::from_millis(50);
    let unreachable = Client::connect(config).unwrap().describe("k").await.unwrap_err();
    assert!(
        matches!(&unreachable, CallError::Unavailable { last, .. } if last.contains("127.0.0.1")),
        "{unreachable}"
    );
    assert!(!unreachable.is_final());
}

#[test]
fn guards_are_lost_when_the_runtime_ends() {
    let runtime = |f: &mut dyn FnMut(&tokio::runtime::Runtime)| {
        f(&tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap());
    };
    let mut held = None;
    runtime(&mut |rt| {
        held = Some(rt.block_on(async {
            let server = Server::start().await;
            server.client().session().open().await.unwrap().advisory("k").acquire().await.unwrap()
        }));
    });
    let guard = held.unwrap();
    assert!(!guard.is_valid(), "nobody renews any more");
    runtime(&mut |rt| assert_eq!(rt.block_on(guard.lost()), LostReason::Stopped));
}
