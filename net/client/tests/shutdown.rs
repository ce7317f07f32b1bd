//! Shutting a session down: guards are told first, locks go when the work under them has ended, and what
//! is lost is renewed no more.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::time::Duration;

use kit::{HELD, SESSION, Server};
use palisade_client::{AcquireError, CallError, Client, LostReason, ShutDownError};
use palisade_wire::Request;
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(30);

/// Everything sent so far, in order: up to a read that is asked at this moment.
async fn so_far(server: &mut Server, client: &Client) -> Vec<Request> {
    let _ = client.describe("mark").await;
    until(server, |r| matches!(r, Request::Read { .. })).await
}

/// Everything sent up to the first of a kind.
async fn until(server: &mut Server, like: impl Fn(&Request) -> bool) -> Vec<Request> {
    let mut all = Vec::new();
    while !all.last().is_some_and(&like) {
        all.push(server.sees(|_| true).await);
    }
    all
}

fn is_release(request: &Request) -> bool {
    matches!(request, Request::Release { .. })
}

fn is_close(request: &Request) -> bool {
    *request == Request::CloseSession { session: SESSION }
}

#[tokio::test]
async fn a_lock_is_released_when_the_work_under_it_has_ended_and_the_session_closed_after_that() {
    let mut server = Server::start().await;
    let client = server.client();
    let session = client.session().open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    let (told_in, told) = oneshot::channel();
    let (end, ended) = oneshot::channel::<()>();
    let work = tokio::spawn(async move {
        told_in.send(guard.lost().await).unwrap();
        assert!(!guard.is_valid() && guard.remaining().is_zero());
        assert!(guard.grace() > Duration::ZERO, "nobody else has it yet");
        // It does not heed the loss for a while.
        ended.await.unwrap();
        drop(guard);
    });
    let closing = session.clone();
    let shutting_down = tokio::spawn(async move { closing.shut_down(PATIENCE).await });
    assert_eq!(told.await, Ok(LostReason::ShuttingDown));
    assert_eq!(session.lost().await, LostReason::ShuttingDown);
    let sent = so_far(&mut server, &client).await;
    assert!(!sent.iter().any(|r| is_release(r) || is_close(r)), "{sent:?}");
    assert!(!shutting_down.is_finished());
    end.send(()).unwrap();
    work.await.unwrap();
    assert_eq!(shutting_down.await.unwrap(), Ok(()));
    let sent = until(&mut server, is_close).await;
    assert!(sent.iter().any(is_release), "{sent:?}");
    assert_eq!(session.lost().await, LostReason::ShuttingDown, "the first reason stays");
    assert_eq!(session.shut_down(PATIENCE).await, Ok(()), "done is done");
}

#[tokio::test]
async fn a_release_that_is_waited_for_is_confirmed_although_the_guard_was_told() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.fenced("k", "db").acquire().await.unwrap();
    let work = tokio::spawn(async move {
        guard.lost().await;
        guard.release().await
    });
    assert_eq!(session.shut_down(PATIENCE).await, Ok(()));
    assert_eq!(work.await.unwrap(), Ok(()));
    let sent = until(&mut server, is_close).await;
    assert!(sent.iter().any(is_release), "{sent:?}");
}

#[tokio::test]
async fn a_leader_resigns_when_it_is_told() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let leadership = session.campaign("e", "me").lead().await.unwrap();
    let led = tokio::spawn(async move {
        let reason = leadership.lost().await;
        let said = leadership.proclaim("still me").await;
        assert_eq!(said, Err(CallError::SessionLost(LostReason::ShuttingDown)));
        leadership.resign().await.unwrap();
        reason
    });
    session.shut_down(PATIENCE).await.unwrap();
    assert_eq!(led.await.unwrap(), LostReason::ShuttingDown);
    let sent = until(&mut server, is_close).await;
    assert!(sent.iter().any(is_release), "{sent:?}");
    assert!(!sent.iter().any(|r| matches!(r, Request::Proclaim { .. })), "{sent:?}");
}

#[tokio::test]
async fn nothing_is_renewed_after_the_loss_and_nothing_released_while_the_work_goes_on() {
    let mut server = Server::start().await;
    let client = server.client();
    let session = client.session().ttl(Duration::from_secs(2)).open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    server.sees(|r| matches!(r, Request::Renew { .. })).await;
    let closing = session.clone();
    let shutting_down = tokio::spawn(async move { closing.shut_down(PATIENCE).await });
    assert_eq!(guard.lost().await, LostReason::ShuttingDown);
    // What was on its way before the loss.
    so_far(&mut server, &client).await;
    // The work never ends, so the lease does.
    let lost = CallError::SessionLost(LostReason::DeadlinePassed);
    assert_eq!(shutting_down.await.unwrap(), Err(ShutDownError::Call(lost)));
    let sent = so_far(&mut server, &client).await;
    assert!(matches!(sent[..], [Request::Read { .. }]), "{sent:?}");
    assert_eq!(guard.lost().await, LostReason::ShuttingDown);
    drop(guard);
    let sent = so_far(&mut server, &client).await;
    assert!(!sent.iter().any(is_release), "somebody else may hold it by now: {sent:?}");
}

#[tokio::test]
async fn guards_that_remain_are_counted_and_released_when_they_are_dropped_after_all() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guards =
        [session.advisory("a").acquire().await.unwrap(), session.advisory("b").acquire().await.unwrap()];
    match session.shut_down(Duration::from_millis(1)).await {
        Err(error @ ShutDownError::GuardsRemain { left: 2, .. }) => assert!(!error.is_final()),
        other => panic!("{other:?}"),
    }
    drop(guards);
    assert_eq!(session.shut_down(PATIENCE).await, Ok(()));
    let sent = until(&mut server, is_close).await;
    assert_eq!(sent.iter().filter(|r| is_release(r)).count(), 2, "{sent:?}");
}

#[tokio::test]
async fn who_waits_is_withdrawn_and_nothing_new_is_begun() {
    let mut server = Server::start().await;
    let client = server.client();
    let session = client.session().open().await.unwrap();
    let waiter = session.clone();
    let waiting = tokio::spawn(async move { waiter.advisory(HELD).acquire().await.map(drop) });
    server.sees(|r| matches!(r, Request::Acquire { .. })).await;
    let guard = session.advisory("k").acquire().await.unwrap();
    let closing = session.clone();
    let shutting_down = tokio::spawn(async move { closing.shut_down(PATIENCE).await });
    guard.lost().await;
    let over = CallError::SessionLost(LostReason::ShuttingDown);
    assert_eq!(waiting.await.unwrap(), Err(AcquireError::Call(over.clone())));
    assert_eq!(session.advisory("l").acquire().await.map(drop), Err(AcquireError::Call(over.clone())));
    assert_eq!(session.put("l", "v").await, Err(over));
    let sent = so_far(&mut server, &client).await;
    assert_eq!(sent.iter().filter(|r| is_release(r)).count(), 1, "the wait is withdrawn: {sent:?}");
    assert!(!sent.iter().any(|r| matches!(r, Request::Put { .. })), "{sent:?}");
    drop(guard);
    assert_eq!(shutting_down.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_session_that_is_closed_or_lost_says_which() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    session.clone().close().await.unwrap();
    assert_eq!(session.shut_down(PATIENCE).await, Ok(()));

    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let cause = palisade_client::Cause::Expired { silent_ms: 7 };
    server.order(kit::Order::Push(palisade_wire::Push::SessionEnded { session: SESSION, cause }));
    session.lost().await;
    let lost = CallError::SessionLost(LostReason::Ended(cause));
    assert_eq!(session.shut_down(PATIENCE).await, Err(ShutDownError::Call(lost)));
}

#[tokio::test]
async fn an_end_of_the_session_ends_the_wait_for_guards() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.advisory("k").acquire().await.unwrap();
    let closing = session.clone();
    let shutting_down = tokio::spawn(async move { closing.shut_down(PATIENCE).await });
    guard.lost().await;
    let cause = palisade_client::Cause::Evicted { action: palisade_client::LogIndex(9) };
    server.order(kit::Order::Push(palisade_wire::Push::SessionEnded { session: SESSION, cause }));
    let lost = CallError::SessionLost(LostReason::Ended(cause));
    assert_eq!(shutting_down.await.unwrap(), Err(ShutDownError::Call(lost)));
}
