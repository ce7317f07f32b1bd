//! What a peer of an earlier version is sent, and what one of this version makes of it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod samples;

use palisade_types::{Reply, Signature};
use palisade_wire::{Push, VERSION, VERSION_MAX, VERSION_MIN, decode_reply, encode_reply_in, signature_of};
use samples::{Message, all, only_frame};

fn sample(name: &str) -> Message {
    all().into_iter().find(|(n, _)| n == name).unwrap().1
}

#[test]
fn what_version_1_knows_has_the_bytes_it_had() {
    assert_eq!((VERSION_MIN, VERSION_MAX, VERSION), (1, 2, 2));
    let signature = Signature([9; 64]);
    for (name, message) in all() {
        let Message::Reply(id, reply) = &message else { continue };
        let [mut old, mut new, mut signed] = [vec![], vec![], vec![]];
        encode_reply_in(1, reply, Some(&signature), *id, &mut old);
        encode_reply_in(2, reply, None, *id, &mut new);
        encode_reply_in(2, reply, Some(&signature), *id, &mut signed);
        assert_eq!(new, message.encode(), "{name}");
        assert_eq!(Message::decode(&only_frame(&new)).unwrap(), message, "{name}");
        match reply {
            // Nothing but what version 2 puts behind it is left out.
            Reply::Status(status) => {
                assert_eq!(only_frame(&old).body, &only_frame(&new).body[..only_frame(&new).body.len() - 17]);
                let Reply::Status(read) = decode_reply(&only_frame(&old)).unwrap() else { panic!("{name}") };
                assert_eq!((read.cluster, read.boot), (None, status.boot));
            }
            Reply::Granted { .. } => {
                assert_eq!(old, new);
                assert_eq!(signature_of(&only_frame(&signed)), Ok(Some(signature)));
                assert_eq!(signature_of(&only_frame(&new)), Ok(None));
            }
            _ => assert_eq!((&old, &signed), (&new, &new), "{name}"),
        }
    }
}

#[test]
fn a_pushed_grant_is_signed_in_version_2_alone() {
    let Message::Push(granted @ Push::Granted { .. }) = sample("push granted") else { panic!("no grant") };
    let signature = Signature([9; 64]);
    let [mut old, mut new] = [vec![], vec![]];
    granted.encode_in(1, Some(&signature), &mut old);
    granted.encode_in(2, Some(&signature), &mut new);
    assert_eq!(old, Message::Push(granted.clone()).encode());
    assert_eq!(signature_of(&only_frame(&new)), Ok(Some(signature)));
    assert_eq!(Push::decode(&only_frame(&new)).unwrap(), granted);
}
