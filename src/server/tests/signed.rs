//! Which grants are signed, on whose connections, and that what is signed is the grant.

use std::os::unix::fs::OpenOptionsExt;

use palisade_fence::{ClusterIdentity, PublicKey, Signature, SignedFence, SigningKey, Verifier};
use palisade_types::{Class, Fence, Mode, OnDeath, SessionId, Value};
use palisade_wire::{Push, VERSION_MAX, VERSION_SIGNED, Wait, decode_reply, signature_of};

use super::*;

const PEM: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";

fn public() -> PublicKey {
    SigningKey::from_pem(PEM).unwrap().public()
}

/// A node that signs, and the directory of its key.
fn signing_node() -> (Node, tempfile::TempDir) {
    let keys = scratch();
    let path = keys.path().join("fence.pem");
    let mut file = std::fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(&path).unwrap();
    file.write_all(PEM.as_bytes()).unwrap();
    let node = node(|config| config.fence_signing_key = Some(path.canonicalize().unwrap()));
    node.serving();
    (node, keys)
}

/// A client with a session.
struct Client {
    link: Link,
    session: SessionId,
    sent: u64,
}

impl Client {
    fn new(node: &Node, version_max: u16, token: u128) -> Client {
        let mut link = node.connect();
        link.send(|out| ClientHello { version_max, ..client_hello() }.encode(out));
        assert_eq!(link.frame().unwrap().0, Kind::ServerHello);
        let mut client = Client { link, session: SessionId::default(), sent: 0 };
        let token = SessionToken(token);
        let open = Request::OpenSession { token, ttl_ms: 0, owner: None, incarnation: None };
        let (Reply::Opened { session, .. }, None) = client.ask(&open) else { panic!("not opened") };
        client.session = session;
        client
    }

    /// The answer, and the signature it carries.
    fn ask(&mut self, request: &Request) -> (Reply, Option<Signature>) {
        self.sent += 1;
        let id = RequestId(self.sent);
        self.link.send(|out| request.encode(id, out));
        loop {
            let (_, answers, bytes) = self.link.frame().unwrap();
            if answers == id {
                let frame = Frames::new(&bytes).next_frame().unwrap().unwrap();
                return (decode_reply(&frame).unwrap(), signature_of(&frame).unwrap());
            }
        }
    }

    fn granted(&mut self, request: &Request) -> (Fence, Option<Signature>) {
        match self.ask(request) {
            (Reply::Granted { fence, .. }, signature) => (fence, signature),
            other => panic!("{other:?}"),
        }
    }

    fn pushed(&mut self) -> (Fence, Option<Signature>) {
        loop {
            let (kind, _, bytes) = self.link.frame().unwrap();
            if kind == Kind::PushGranted {
                let frame = Frames::new(&bytes).next_frame().unwrap().unwrap();
                let Push::Granted { fence, .. } = Push::decode(&frame).unwrap() else { panic!("{frame:?}") };
                return (fence, signature_of(&frame).unwrap());
            }
        }
    }

    fn acquire(&self, ticket: u64, class: Class, key: &str, wait: Wait) -> Request {
        Request::Acquire {
            session: self.session,
            ticket: Ticket(ticket),
            key: Name::new(key).unwrap(),
            class,
            resource: Some(Name::new("r").unwrap()),
            mode: Mode::Exclusive,
            on_death: OnDeath::Release,
            wait,
        }
    }

    fn identity(&mut self) -> Option<ClusterIdentity> {
        match self.ask(&Request::Status) {
            (Reply::Status(status), _) => status.cluster,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn whatever_hands_a_fence_to_its_owner_is_signed() {
    let (node, _keys) = signing_node();
    let mut first = Client::new(&node, VERSION_MAX, 1);
    let verifier = Verifier::new(first.identity().unwrap(), [public()]).unwrap();
    let check = |what: &str, (fence, signature): (Fence, Option<Signature>)| {
        let signature = signature.unwrap_or_else(|| panic!("{what} is not signed"));
        verifier.verify(SignedFence { fence: fence.clone(), signature }).unwrap();
        (fence, signature)
    };
    let session = first.session;
    let acquire = first.acquire(1, Class::Fenced, "k", Wait::No);
    let granted = first.granted(&acquire);
    assert_eq!(check("a grant", granted), check("a repeated answer", first.granted(&acquire)));
    let cancelled = first.granted(&Request::Cancel { session, ticket: Ticket(1) });
    check("a grant that came before the cancel", cancelled);
    let downgrade = Request::Downgrade { session, ticket: Ticket(2), holds: Ticket(1) };
    let (shared, _) = check("a downgrade", first.granted(&downgrade));
    assert_eq!(shared.epoch().0, 2);
    check("a repeated downgrade", first.granted(&downgrade));

    let mut second = Client::new(&node, VERSION_MAX, 2);
    let waits = second.acquire(1, Class::Fenced, "k", Wait::Forever);
    assert!(matches!(second.ask(&waits).0, Reply::Queued { .. }));
    first.ask(&Request::Release { session, ticket: Ticket(2) });
    let pushed = check("a pushed grant", second.pushed());
    assert_eq!(pushed, check("the answer to its repetition", second.granted(&waits)));

    let value = Value::from(b"here".as_slice());
    let key = Name::new("election").unwrap();
    let campaign = Request::Campaign { session, ticket: Ticket(3), key, value, wait: Wait::No };
    check("a leadership", first.granted(&campaign));
    assert_eq!(node.view.metrics.fences_signed.get(), 8);
}

#[test]
fn advisory_grants_and_those_to_clients_of_version_1_are_not_signed() {
    let (node, _keys) = signing_node();
    let mut client = Client::new(&node, VERSION_MAX, 1);
    let advisory = client.acquire(1, Class::Advisory, "a", Wait::No);
    assert_eq!(client.granted(&advisory).1, None);
    let mut old = Client::new(&node, VERSION_SIGNED - 1, 2);
    let acquire = old.acquire(1, Class::Fenced, "k", Wait::No);
    assert_eq!(old.granted(&acquire).1, None);
    assert_eq!(old.identity(), None, "its status ends before that");
    let waits = old.acquire(2, Class::Advisory, "a", Wait::Forever);
    assert!(matches!(old.ask(&waits).0, Reply::Queued { .. }));
    client.ask(&Request::Release { session: client.session, ticket: Ticket(1) });
    assert_eq!(old.pushed().1, None);
    assert_eq!(node.view.metrics.fences_signed.get(), 0);
}

#[test]
fn without_a_key_nothing_is_signed() {
    let node = node(|_| ());
    node.serving();
    let mut client = Client::new(&node, VERSION_MAX, 1);
    assert!(client.identity().is_some());
    let acquire = client.acquire(1, Class::Fenced, "k", Wait::No);
    assert_eq!(client.granted(&acquire).1, None);
}
