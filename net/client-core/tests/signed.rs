//! The signature of a grant reaches whoever made the claim, by whichever way the grant came.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod kit;

use kit::{World, fence};
use palisade_client_core::Event;
use palisade_types::{Reply, Signature, Ticket};
use palisade_wire::{Push, Request, VERSION_MAX, Wait, encode_reply_in};

const TTL: u64 = 30_000;

#[test]
fn a_signature_comes_with_an_answer_a_push_and_a_downgrade() {
    let [first, second, third] = [1, 2, 3].map(|n| Signature([n; 64]));
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let reply = |w: &mut World, id, ticket, epoch, signature: &Signature| {
        let mut bytes = Vec::new();
        let reply = Reply::Granted { session, ticket, fence: fence(epoch) };
        encode_reply_in(VERSION_MAX, &reply, Some(signature), id, &mut bytes);
        w.bytes(&bytes);
    };
    let claim = w.acquire(handle, Wait::No);
    let (id, ticket) = w.acquire_request();
    assert_eq!(w.core.signature(claim), None);
    reply(&mut w, id, ticket, 3, &first);
    assert_eq!(w.take_events(), [Event::ClaimGranted { claim, fence: fence(3) }]);
    assert_eq!(w.core.signature(claim), Some(first));

    w.core.downgrade(w.now, claim);
    w.run();
    let (id, request) = w.request();
    assert!(matches!(request, Request::Downgrade { .. }), "{request:?}");
    assert_eq!(w.core.signature(claim), Some(first), "that of the fence it still holds under");
    reply(&mut w, id, Ticket(2), 4, &third);
    assert_eq!(w.take_events(), [Event::ClaimDowngraded { claim, fence: fence(4) }]);
    assert_eq!(w.core.signature(claim), Some(third));

    let (waiting, ticket) = w.queued(handle, session, Wait::Forever);
    let mut bytes = Vec::new();
    Push::Granted { session, ticket, fence: fence(8) }.encode_in(VERSION_MAX, Some(&second), &mut bytes);
    w.bytes(&bytes);
    assert_eq!(w.take_events(), [Event::ClaimGranted { claim: waiting, fence: fence(8) }]);
    assert_eq!(w.core.signature(waiting), Some(second));
    // What is repeated later and signed otherwise, or not at all, changes nothing for a holder that has shown the first.
    w.push(Push::Granted { session, ticket, fence: fence(8) });
    assert_eq!((w.take_events().len(), w.core.signature(waiting)), (0, Some(second)));
}

#[test]
fn a_grant_that_is_not_signed_has_no_signature() {
    let mut w = World::new();
    let (handle, session) = w.open(TTL);
    let (claim, _) = w.granted(handle, session);
    assert_eq!(w.core.signature(claim), None);
}
