//! Handles and guards between threads and runtimes, and after the runtime of their client has ended.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Waker};
use std::thread;
use std::time::Duration;

use kit::{HELD, Order, SESSION, Server};
use palisade_client::{AcquireError, CallError, Client, Guard, LostReason, Selector, Session, WatchError};
use palisade_types::Ticket;
use palisade_wire::Request;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(30);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A server with a thread and a runtime of its own, which tells of every request.
fn server() -> (String, mpsc::Receiver<Request>) {
    let (endpoint_in, endpoint) = mpsc::channel();
    let (seen_in, seen) = mpsc::channel();
    thread::spawn(move || {
        runtime().block_on(async {
            let mut server = Server::start().await;
            endpoint_in.send(server.endpoint.clone()).unwrap();
            while seen_in.send(server.any().await).is_ok() {}
        });
    });
    (endpoint.recv_timeout(PATIENCE).unwrap(), seen)
}

fn sees(seen: &mpsc::Receiver<Request>, like: impl Fn(&Request) -> bool) {
    while !like(&seen.recv_timeout(PATIENCE).expect("the server sees such a request")) {}
}

fn client(endpoint: &str) -> Client {
    Client::connect(palisade_client::ClientConfig::new([endpoint])).unwrap()
}

/// A client whose runtime runs on a thread of its own until the sender is dropped.
fn elsewhere(endpoint: String) -> (Session, oneshot::Sender<()>, thread::JoinHandle<()>) {
    let (session_in, session) = mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = thread::spawn(move || {
        runtime().block_on(async {
            session_in.send(client(&endpoint).session().open().await.unwrap()).unwrap();
            let _ = stopped.await;
        });
    });
    (session.recv_timeout(PATIENCE).unwrap(), stop, thread)
}

fn is_release(ticket: u64) -> impl Fn(&Request) -> bool {
    move |request| *request == Request::Release { session: SESSION, ticket: Ticket(ticket) }
}

#[test]
fn a_guard_is_released_by_whoever_has_it_on_whatever_thread_and_runtime() {
    let (endpoint, seen) = server();
    let (session, _stop, _thread) = elsewhere(endpoint);
    let acquired = |key: &str| runtime().block_on(session.advisory(key).acquire()).unwrap();
    // Acquired on one runtime, released on another, of a client that runs on a third.
    let guard = acquired("a");
    runtime().block_on(guard.release()).unwrap();
    sees(&seen, is_release(1));
    // Dropped on a thread that has no runtime at all.
    let guard = acquired("b");
    thread::spawn(move || drop(guard)).join().unwrap();
    sees(&seen, is_release(2));
    // A wait that was polled once and is dropped out of any runtime.
    let mut waiting = Box::pin(session.advisory(HELD).acquire());
    assert!(Pin::new(&mut waiting).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    sees(&seen, |r| matches!(r, Request::Acquire { .. }));
    drop(waiting);
    sees(&seen, is_release(3));
    // The last handle closes the session, wherever it goes.
    thread::spawn(move || drop(session)).join().unwrap();
    sees(&seen, |r| *r == Request::CloseSession { session: SESSION });
}

#[test]
fn a_loss_is_heard_of_on_any_runtime() {
    let (endpoint, _seen) = server();
    let (session, stop, thread) = elsewhere(endpoint);
    let guard = runtime().block_on(session.advisory("k").acquire()).unwrap();
    let watcher = thread::spawn(move || runtime().block_on(guard.lost()));
    drop(stop);
    thread.join().unwrap();
    assert_eq!(watcher.join().unwrap(), LostReason::Stopped);
}

/// Everything a client can give, made on a runtime that has ended since.
struct Left {
    client: Client,
    session: Session,
    guard: Guard,
    leadership: palisade_client::Leadership,
    waiting: Pin<Box<dyn Future<Output = Result<Guard, AcquireError>>>>,
    read: Pin<Box<dyn Future<Output = bool>>>,
    watch: palisade_client::Watch,
}

fn left() -> Left {
    let runtime = runtime();
    runtime.block_on(async {
        let mut server = Server::start().await;
        let client = server.client();
        let session = client.session().open().await.unwrap();
        let guard = session.advisory("k").acquire().await.unwrap();
        let leadership = session.campaign("e", "me").lead().await.unwrap();
        let watch = client.watch(Selector::prefix("").unwrap()).start();
        let waiter = session.clone();
        let mut waiting: Pin<Box<dyn Future<Output = _>>> =
            Box::pin(async move { waiter.advisory(HELD).acquire().await });
        let reader = client.clone();
        let mut read: Pin<Box<dyn Future<Output = bool>>> =
            Box::pin(async move { reader.get("k").await.is_ok() });
        for _ in 0..2 {
            let mut context = Context::from_waker(Waker::noop());
            assert!(waiting.as_mut().poll(&mut context).is_pending());
            assert!(read.as_mut().poll(&mut context).is_pending());
        }
        server.sees(|r| matches!(r, Request::Acquire { .. })).await;
        server.order(Order::IgnoreRenewals);
        Left { client, session, guard, leadership, waiting, read, watch }
    })
}

#[test]
fn what_is_dropped_after_the_runtime_has_ended_does_no_harm() {
    drop(left());
    // In each order, and within another runtime.
    let Left { client, session, guard, leadership, waiting, read, watch } = left();
    drop(client);
    drop(session);
    drop(waiting);
    drop(read);
    drop(watch);
    let other = runtime();
    let _inside = other.enter();
    drop(guard);
    drop(leadership);
}

#[test]
fn what_is_asked_after_the_runtime_has_ended_says_that_the_client_has_stopped() {
    let Left { client, session, guard, leadership, waiting, read: _read, mut watch } = left();
    assert!(!guard.is_valid() && !leadership.is_valid() && !session.is_valid(), "nobody renews");
    assert!(guard.grace() > Duration::ZERO, "and nobody else has it before the lease ends");
    runtime().block_on(async {
        assert_eq!(guard.lost().await, LostReason::Stopped);
        assert_eq!(waiting.await.map(drop), Err(CallError::Stopped.into()));
        assert_eq!(session.advisory("l").acquire().await.map(drop), Err(CallError::Stopped.into()));
        assert_eq!(leadership.proclaim("still me").await, Err(CallError::Stopped));
        assert_eq!(leadership.resign().await, Err(CallError::Stopped));
        assert_eq!(guard.release().await, Err(CallError::Stopped));
        assert_eq!(watch.next().await.map(drop), Err(WatchError::Stopped));
        assert_eq!(client.describe("k").await.map(drop), Err(CallError::Stopped));
        assert_eq!(session.shut_down(PATIENCE).await, Err(CallError::Stopped.into()));
        assert_eq!(session.close().await, Err(CallError::Stopped));
    });
}
