//! Shutting down when a signal comes. One test alone: a signal reaches everybody in the process who listens.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use kit::{SESSION, Server};
use palisade_client::{ClientConfig, LostReason, Termination, blocking};
use palisade_wire::Request;
use rustix::process::{Signal, getpid, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

async fn until_closed(server: &mut Server) {
    server.sees(|r| matches!(r, Request::Release { .. })).await;
    server.sees(|r| *r == Request::CloseSession { session: SESSION }).await;
}

#[test]
fn a_signal_ends_the_work_then_the_lock_then_the_session() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut termination = Termination::listen().unwrap();
        let mut server = Server::start().await;
        let session = server.client().session().open().await.unwrap();
        let shutting_down = tokio::spawn(session.shut_down_at_signal(PATIENCE).unwrap());
        let guard = session.advisory("k").acquire().await.unwrap();

        // Nothing to shut down by then: neither kept open nor an error.
        let mut gone_server = Server::start().await;
        let gone = gone_server.client().session().open().await.unwrap();
        let gone = tokio::spawn({
            let at_signal = gone.shut_down_at_signal(PATIENCE).unwrap();
            drop(gone);
            at_signal
        });
        gone_server.sees(|r| *r == Request::CloseSession { session: SESSION }).await;

        kill_process(getpid(), Signal::TERM).unwrap();
        assert_eq!(guard.lost().await, LostReason::ShuttingDown);
        termination.received().await;
        termination.received().await;
        drop(guard);
        assert_eq!(shutting_down.await.unwrap(), Ok(()));
        assert_eq!(gone.await.unwrap(), Ok(()));
        until_closed(&mut server).await;
    });

    // The same without an executor, by the other signal.
    let (endpoint_in, endpoint) = mpsc::channel();
    let server = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut server = Server::start().await;
            endpoint_in.send(server.endpoint.clone()).unwrap();
            until_closed(&mut server).await;
        });
    });
    let endpoint = endpoint.recv_timeout(PATIENCE).unwrap();
    let client = blocking::Client::connect(ClientConfig::new([endpoint])).unwrap();
    let session = client.session().open().unwrap();
    let (told_in, told) = mpsc::channel();
    session.shut_down_at_signal(PATIENCE, move |end| told_in.send(end).unwrap()).unwrap();
    let guard = session.advisory("k").acquire().unwrap();
    kill_process(getpid(), Signal::INT).unwrap();
    assert_eq!(guard.lost_within(PATIENCE), Some(LostReason::ShuttingDown));
    assert!(told.try_recv().is_err(), "the guard is still there");
    drop(guard);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Ok(())));
    server.join().unwrap();
}
