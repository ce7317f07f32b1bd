//! Lock sets against a server of a few lines: in which order it is asked, and what is left when one of the
//! keys is not to be had.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::time::Duration;

use kit::{HELD, Order, SESSION, Server};
use palisade_client::{AcquireError, CallError, LostReason, Session, SetError};
use palisade_types::{Outcome, Ticket};
use palisade_wire::{Push, Request, Wait};

async fn session(server: &Server) -> Session {
    server.client().session().open().await.unwrap()
}

/// The key of the next acquire that the server sees, with its ticket and wait.
async fn next_acquire(server: &mut Server) -> (String, Ticket, Wait) {
    match server.sees(|r| matches!(r, Request::Acquire { .. })).await {
        Request::Acquire { key, ticket, wait, .. } => (key.to_string(), ticket, wait),
        _ => unreachable!(),
    }
}

#[tokio::test]
async fn the_keys_of_a_set_are_acquired_in_the_order_of_their_bytes_and_released_together() {
    let mut server = Server::start().await;
    let session = session(&server).await;
    // 'ä' begins with byte 0xc3, and upper case comes before lower case.
    let request = session.set().advisory("ä").fenced("b", "db").advisory("a/1").advisory("B").advisory("a");
    let set = request.acquire().await.unwrap();
    let order = ["B", "a", "a/1", "b", "ä"];
    let mut tickets = Vec::new();
    for key in order {
        let (asked, ticket, wait) = next_acquire(&mut server).await;
        assert_eq!((asked.as_str(), wait), (key, Wait::Forever));
        tickets.push(ticket);
    }
    assert!(set.fences().map(|fence| fence.key().to_string()).eq(order));
    assert_eq!(set.fence("b").unwrap().to_string(), "b@9/9");
    assert!(set.fence("c").is_none() && set.is_valid() && !set.remaining().is_zero());
    set.release().await.unwrap();
    for ticket in tickets.into_iter().rev() {
        server.sees(|r| *r == Request::Release { session: SESSION, ticket }).await;
    }
}

#[tokio::test]
async fn a_set_that_cannot_be_had_holds_nothing_and_asks_for_nothing_behind_the_key_it_lacks() {
    let mut server = Server::start().await;
    let session = session(&server).await;
    let request = session.set().advisory("z").advisory(HELD).advisory("a").advisory("b").no_wait();
    match request.acquire().await.unwrap_err() {
        SetError::Acquire { key, error: AcquireError::Held { .. } } => assert_eq!(key, HELD),
        other => panic!("{other:?}"),
    }
    let (first, second) = (next_acquire(&mut server).await, next_acquire(&mut server).await);
    assert_eq!((first.0.as_str(), second.0.as_str()), ("a", "b"));
    let mut left = vec![first.1, second.1];
    while !left.is_empty() {
        let seen = server.sees(|r| matches!(r, Request::Release { .. } | Request::Acquire { .. })).await;
        match seen {
            Request::Release { ticket, .. } => left.retain(|open| *open != ticket),
            Request::Acquire { key, .. } => assert_eq!(&*key, HELD, "nothing behind it is asked for"),
            _ => unreachable!(),
        }
    }
}

#[tokio::test]
async fn a_set_whose_time_runs_out_or_that_is_dropped_releases_what_it_had() {
    let mut server = Server::start().await;
    let session = session(&server).await;
    let error = session.set().advisory(HELD).advisory("a").wait(Duration::from_millis(80)).acquire().await;
    match error.unwrap_err() {
        SetError::Acquire { key, error: AcquireError::TimedOut } => assert_eq!(key, HELD),
        other => panic!("{other:?}"),
    }
    let (key, ticket, _) = next_acquire(&mut server).await;
    assert_eq!(key, "a");
    server.sees(|r| *r == Request::Release { session: SESSION, ticket }).await;

    let acquire = tokio::spawn(session.set().advisory(HELD).advisory("b").acquire());
    let (key, ticket, _) = next_acquire(&mut server).await;
    assert_eq!(key, "b");
    let (key, waits, wait) = next_acquire(&mut server).await;
    assert_eq!((key.as_str(), wait), (HELD, Wait::Forever));
    acquire.abort();
    assert!(acquire.await.unwrap_err().is_cancelled());
    let mut left = vec![ticket, waits];
    while !left.is_empty() {
        match server.sees(|r| matches!(r, Request::Release { .. } | Request::Cancel { .. })).await {
            Request::Release { ticket, .. } | Request::Cancel { ticket, .. } => left.retain(|t| *t != ticket),
            _ => unreachable!(),
        }
    }
}

#[tokio::test]
async fn a_set_is_lost_with_one_of_its_locks_also_while_it_waits_for_others() {
    let mut server = Server::start().await;
    let session = session(&server).await;
    let forced = |ticket| Order::Push(Push::Finished { session: SESSION, ticket, outcome: Outcome::Forced });
    let set = session.set().advisory("b").advisory("a").acquire().await.unwrap();
    next_acquire(&mut server).await;
    let (key, ticket, _) = next_acquire(&mut server).await;
    let lost = set.lost();
    server.order(forced(ticket));
    assert_eq!(lost.await, (key, LostReason::Finished(Outcome::Forced)));
    assert!(!set.is_valid() && set.remaining().is_zero());
    assert!(matches!(set.release().await, Err(CallError::SessionLost(_))));

    let acquire = tokio::spawn(session.set().advisory(HELD).advisory("c").acquire());
    let (_, ticket, _) = next_acquire(&mut server).await;
    assert_eq!(next_acquire(&mut server).await.0, HELD);
    server.order(forced(ticket));
    let error = acquire.await.unwrap().unwrap_err();
    let reason = LostReason::Finished(Outcome::Forced);
    assert_eq!(error, SetError::Lost { key: "c".to_owned(), reason });
    assert!(!error.is_final());
}

#[tokio::test]
async fn a_set_that_makes_no_sense_is_refused_before_anything_is_asked() {
    let mut server = Server::start().await;
    let session = session(&server).await;
    let acquire = |request: palisade_client::SetRequest| async { request.acquire().await.unwrap_err() };
    assert_eq!(acquire(session.set()).await, SetError::Empty);
    let twice = acquire(session.set().advisory("k").advisory("a").fenced("k", "db")).await;
    assert_eq!(twice, SetError::Duplicate { key: "k".to_owned() });
    assert!(twice.is_final() && twice.to_string().contains("key k twice"));
    let unnamed = acquire(session.set().advisory("a").advisory("")).await;
    assert!(matches!(&unnamed, SetError::Acquire { error: AcquireError::Call(CallError::Name { .. }), .. }));
    assert!(unnamed.is_final());
    session.close().await.unwrap();
    let first = server.sees(|r| matches!(r, Request::Acquire { .. } | Request::CloseSession { .. })).await;
    assert_eq!(first, Request::CloseSession { session: SESSION }, "no acquire came before");
}
