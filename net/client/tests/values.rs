//! Ephemeral keys through the client's handles, against a server of a few lines.

mod kit;

use kit::{HELD, SESSION, Server, holder, value_row};
use palisade_client::CallError;
use palisade_types::{Key, Refusal, Ticket};
use palisade_wire::{Push, Query, Request};

#[tokio::test]
async fn a_put_is_sent_with_its_bytes_and_done_when_the_server_says_so() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    session.put("svc/a", [0, 255, 10]).await.unwrap();
    let put = server.sees(|r| matches!(r, Request::Put { .. })).await;
    let key = Key::new("svc/a").unwrap();
    let value = [0, 255, 10].into();
    assert_eq!(put, Request::Put { session: SESSION, ticket: Ticket(1), key: key.clone(), value });
    session.delete("svc/a").await.unwrap();
    let delete = server.sees(|r| matches!(r, Request::Delete { .. })).await;
    assert_eq!(delete, Request::Delete { session: SESSION, ticket: Ticket(2), key });
}

#[tokio::test]
async fn whose_the_key_is_comes_with_the_refusal_and_the_ticket_is_finished() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let owned = Refusal::OwnedByOther { session: holder().session, owner: holder().owner };
    assert_eq!(session.put(HELD, "v").await, Err(CallError::Refused(owned.clone())));
    server.sees(|r| matches!(r, Request::Release { ticket: Ticket(1), .. })).await;
    assert_eq!(session.delete(HELD).await, Err(CallError::Refused(owned)));
}

#[tokio::test]
async fn what_the_server_would_not_take_is_refused_before_it_is_sent() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let long = session.put("k", vec![0; 16_385]).await.unwrap_err();
    assert!(matches!(&long, CallError::Refused(Refusal::BadRequest { .. })) && long.is_final(), "{long}");
    assert!(matches!(session.put("", "v").await, Err(CallError::Name { .. })));
    session.put("k", vec![0; 16_384]).await.unwrap();
}

#[tokio::test]
async fn a_put_on_a_lost_session_says_why_it_is_lost() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let cause = palisade_client::Cause::Expired { silent_ms: 7 };
    server.order(kit::Order::Push(Push::SessionEnded { session: SESSION, cause }));
    let reason = session.lost().await;
    assert_eq!(session.put("k", "v").await, Err(CallError::SessionLost(reason)));
}

#[tokio::test]
async fn a_get_finds_a_value_or_none_and_a_list_reads_every_page() {
    let mut server = Server::start().await;
    let client = server.client();
    assert_eq!(client.get(HELD).await.unwrap().value, Some(value_row(HELD)));
    assert_eq!(client.get("free").await.unwrap().value, None);
    let keys = ["svc/1", "svc/2", "svc/3"].map(value_row);
    assert_eq!(client.list("svc/").await.unwrap(), keys);
    let second = server
        .sees(|r| matches!(r, Request::Read { query: Query::ListValues { after: Some(_), .. }, .. }))
        .await;
    let Request::Read { query: Query::ListValues { prefix, after, .. }, .. } = second else { unreachable!() };
    assert_eq!((prefix.as_deref(), after.as_deref()), (Some("svc/"), Some("svc/2")));
    assert!(client.values("", None, 2).await.unwrap().more);
}
