//! The warning that another key protects the same resource.

mod kit;

use kit::Server;
use palisade_wire::Request;

#[tokio::test]
async fn a_guard_warns_of_another_key_of_its_resource_and_asks_once() {
    let mut server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let guard = session.fenced("k", "shared").acquire().await.unwrap();
    let conflict = guard.conflicted().await.expect("another key is there");
    assert_eq!((conflict.resource.as_str(), conflict.other.as_str(), conflict.keys), ("shared", "other", 2));
    assert_eq!(guard.conflict(), Some(conflict.clone()));
    let asked = server.sees(|r| matches!(r, Request::ClaimResource { .. })).await;
    let Request::ClaimResource { resource, key } = asked else { unreachable!() };
    assert_eq!((resource.as_str(), key.as_str()), ("shared", "k"));
    let again = session.fenced("k", "shared").shared().acquire().await.unwrap();
    assert_eq!(again.conflicted().await, Some(conflict));
}

#[tokio::test]
async fn a_guard_without_a_conflict_warns_of_nothing_and_says_so_when_it_is_over() {
    let server = Server::start().await;
    let session = server.client().session().open().await.unwrap();
    let (alone, bare) =
        (session.fenced("k", "db").acquire().await.unwrap(), session.advisory("l").acquire().await.unwrap());
    assert_eq!((alone.conflict(), bare.conflict()), (None, None));
    assert_eq!(bare.conflicted().await, None);
    let told = alone.conflicted();
    alone.release().await.unwrap();
    assert_eq!(told.await, None);
}
