//! Signed fences: only what the cluster granted is verified, and what is not moves no floor.
#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::collections::HashMap;

use palisade_fence::{
    ClusterIdentity, Epoch, Fence, FenceGate, FencedFile, Key, KeyError, Ledger, NoKeys, PublicKey,
    RedbLedger, Signature, SignedFence, Signer, SigningKey, Verifier, message,
};

/// The secrets of the first two test vectors of RFC 8032, as `openssl genpkey` would write them.
const ONE: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";
const TWO: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIEzNCJso/5banbbDRuwRTg9bijGfNaumJNqM9u1PuKb7
-----END PRIVATE KEY-----
";
/// The public part of the first, as `openssl pkey -pubout` writes it.
const ONE_PUBLIC: &str = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=
-----END PUBLIC KEY-----
";
const CLUSTER: ClusterIdentity = ClusterIdentity(0x77b1_c0de_00c0_ffee);

fn key(pem: &str) -> SigningKey {
    SigningKey::from_pem(pem).unwrap()
}

fn signer(pem: &str) -> Signer {
    Signer::new(CLUSTER, key(pem))
}

fn verifier() -> Verifier {
    Verifier::new(CLUSTER, [PublicKey::from_pem(ONE_PUBLIC).unwrap()]).unwrap()
}

fn fence(key: &str, epoch: u64, barrier: u64) -> Fence {
    Fence::new(Key::new(key).unwrap(), Epoch(epoch), Epoch(barrier)).unwrap()
}

fn signed(pem: &str, fence: Fence) -> SignedFence {
    SignedFence { signature: signer(pem).sign(&fence), fence }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The vector of PROTOCOL.md. The signature was made by `openssl pkeyutl -sign -rawin` of these bytes.
#[test]
fn the_bytes_and_the_signature_are_those_of_the_vector() {
    let granted = fence("orders/größe@1", 12, 7);
    let bytes = "70616c69736164652d66656e63652f31eeffc000dec0b1770c0000000000000007000000000000001000\
                 6f72646572732f6772c3b6c39f654031";
    assert_eq!(hex(&message(CLUSTER, &granted)), bytes);
    let signature = "c53399bc5bf4bc76591f4472affb7bed3c437970da7538f03b3f7e4b7806d06dbb0c4957aee90523a766fc8472492b96\
                     24b63502c2580e9697c01e082b67f108";
    assert_eq!(signer(ONE).sign(&granted).to_string(), signature);
    let shown: SignedFence = format!("{signature} orders/größe@1@12/7").parse().unwrap();
    assert_eq!(verifier().verify(shown).unwrap().fence(), &granted);
}

#[test]
fn no_flipped_bit_is_verified() {
    let granted = signed(ONE, fence("k@2/x", 0x1234, 0x1200));
    assert!(verifier().verify(granted.clone()).is_ok());
    for bit in 0..512 {
        let mut bad = granted.clone();
        bad.signature.0[bit / 8] ^= 1 << (bit % 8);
        assert!(verifier().verify(bad).is_err(), "bit {bit} of the signature");
    }
    let mut fences = Vec::new();
    for bit in 0..64 {
        let (epoch, barrier) = (granted.fence.epoch(), granted.fence.barrier());
        fences.push((granted.fence.key().to_string(), epoch.0 ^ (1 << bit), barrier.0));
        fences.push((granted.fence.key().to_string(), epoch.0, barrier.0 ^ (1 << bit)));
    }
    for at in 0..granted.fence.key().len() * 8 {
        let mut name = granted.fence.key().as_bytes().to_vec();
        name[at / 8] ^= 1 << (at % 8);
        fences.extend(String::from_utf8(name).ok().map(|name| (name, 0x1234, 0x1200)));
    }
    let mut tried = 0;
    for (name, epoch, barrier) in fences {
        // Many are no fences at all.
        let Some(other) =
            Key::new(&name).ok().and_then(|key| Fence::new(key, Epoch(epoch), Epoch(barrier)).ok())
        else {
            continue;
        };
        tried += 1;
        assert!(
            verifier().verify(SignedFence { fence: other, ..granted.clone() }).is_err(),
            "{name} {epoch}"
        );
    }
    assert!(tried > 90, "{tried}");
    for bit in 0..64 {
        let other = ClusterIdentity(CLUSTER.0 ^ (1 << bit));
        let elsewhere = Verifier::new(other, [key(ONE).public()]).unwrap();
        assert!(elsewhere.verify(granted.clone()).is_err(), "bit {bit} of the cluster");
    }
}

/// Fences whose fields say the same when they are put together carelessly.
fn alike() -> Vec<(ClusterIdentity, Fence)> {
    let mut all = Vec::new();
    for name in ["k", "k@1", "k@1/1", "1", "11", "k1", "k@11", "@", "/", "k\u{20}", "ключ", "ü", "u\u{308}"]
    {
        for (epoch, barrier) in [(1, 1), (11, 1), (11, 11), (1 << 40, 11), ((1 << 63) - 1, 1)] {
            for cluster in [0, 1, 11, u64::MAX] {
                all.push((ClusterIdentity(cluster), fence(name, epoch, barrier)));
            }
        }
    }
    // A key that reads like the numbers which follow it.
    for tail in [&b"\x31\x31"[..], b"1\x31\x31"] {
        all.push((ClusterIdentity(1), fence(std::str::from_utf8(tail).unwrap(), 1, 1)));
    }
    all.sort_by_key(|(cluster, fence)| (*cluster, fence.to_string()));
    all.dedup();
    all
}

/// Whether no two fences have the same bytes.
fn tells_all_apart(bytes: impl Fn(ClusterIdentity, &Fence) -> Vec<u8>) -> Result<(), String> {
    let mut seen = HashMap::new();
    for (cluster, fence) in alike() {
        let text = format!("{fence} of {cluster}");
        if let Some(other) = seen.insert(bytes(cluster, &fence), text.clone()) {
            return Err(format!("{text} and {other}"));
        }
    }
    Ok(())
}

#[test]
fn no_two_fences_have_the_same_bytes_and_a_format_that_confuses_fields_is_found() {
    assert_eq!(tells_all_apart(message), Ok(()));
    let without = |from: usize, to: usize| {
        move |cluster, fence: &Fence| {
            let mut bytes = message(cluster, fence);
            bytes.drain(from..to.min(bytes.len()));
            bytes
        }
    };
    for (what, from, to) in [("cluster", 16, 24), ("epoch", 24, 32), ("barrier", 32, 40), ("key", 42, 9999)] {
        assert!(tells_all_apart(without(from, to)).is_err(), "without the {what}");
    }
    let joined = |cluster: ClusterIdentity, fence: &Fence| {
        format!("{}{}{}{}", fence.key(), fence.epoch(), fence.barrier(), cluster.0).into_bytes()
    };
    assert!(tells_all_apart(joined).is_err(), "fields without an end");
}

/// Attacks on a verifier of the fence `k@12/7` of this cluster; says which one succeeds.
fn attack(verifies: impl Fn(&SignedFence) -> bool) -> Result<(), &'static str> {
    let granted = signed(ONE, fence("k", 12, 7));
    if !verifies(&granted) {
        return Err("a grant is refused");
    }
    let shown = |fence| SignedFence { fence, ..granted.clone() };
    let elsewhere = Signer::new(ClusterIdentity(5), key(ONE)).sign(&granted.fence);
    for (what, bad) in [
        ("epoch", shown(fence("k", 1 << 62, 7))),
        ("barrier", shown(fence("k", 12, 12))),
        ("key", shown(fence("another", 12, 7))),
        ("cluster", SignedFence { signature: elsewhere, ..granted.clone() }),
        ("signer", signed(TWO, granted.fence.clone())),
        ("signature", SignedFence { signature: Signature([0; 64]), ..granted.clone() }),
    ] {
        if verifies(&bad) {
            return Err(what);
        }
    }
    Ok(())
}

#[test]
fn a_verifier_that_looks_at_less_than_all_is_found() {
    let real = |signed: &SignedFence| verifier().verify(signed.clone()).is_ok();
    assert_eq!(attack(real), Ok(()));
    // Each takes what it does not look at for what was granted.
    let ignoring = |change: fn(&Fence) -> Fence| {
        move |signed: &SignedFence| real(&SignedFence { fence: change(&signed.fence), ..signed.clone() })
    };
    assert_eq!(attack(ignoring(|f| fence(f.key(), 12, f.barrier().0))), Err("epoch"));
    assert_eq!(attack(ignoring(|f| fence(f.key(), f.epoch().0, 7))), Err("barrier"));
    assert_eq!(attack(ignoring(|f| fence("k", f.epoch().0, f.barrier().0))), Err("key"));
    let of = |cluster| Verifier::new(ClusterIdentity(cluster), [key(ONE).public()]).unwrap();
    let any_cluster = |signed: &SignedFence| real(signed) || of(5).verify(signed.clone()).is_ok();
    assert_eq!(attack(any_cluster), Err("cluster"));
    let any_key = Verifier::new(CLUSTER, [ONE, TWO].map(|pem| key(pem).public())).unwrap();
    assert_eq!(attack(|signed| any_key.verify(signed.clone()).is_ok()), Err("signer"));
    assert_eq!(attack(|_| true), Err("epoch"));
}

#[test]
fn while_a_key_is_replaced_both_are_accepted_and_then_the_old_one_is_refused() {
    let (old, new) = (signed(ONE, fence("k", 1, 1)), signed(TWO, fence("k", 2, 2)));
    let accepts = |keys: &[&str]| {
        let verifier = Verifier::new(CLUSTER, keys.iter().map(|pem| key(pem).public())).unwrap();
        [&old, &new].map(|signed| verifier.verify(signed.clone()).is_ok())
    };
    assert_eq!(accepts(&[ONE]), [true, false]);
    assert_eq!(accepts(&[ONE, TWO]), [true, true]);
    assert_eq!(accepts(&[TWO, ONE]), [true, true]);
    assert_eq!(accepts(&[TWO]), [false, true]);
    assert_eq!(Verifier::new(CLUSTER, []).unwrap_err(), NoKeys);
}

#[test]
fn an_invented_epoch_moves_no_floor() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = RedbLedger::open(&dir.path().join("ledger")).unwrap();
    let gate = FenceGate::of(Key::new("k").unwrap(), ledger).require_signed();
    let granted = signed(ONE, fence("k", 12, 12));
    let invented = SignedFence { fence: fence("k", u64::MAX / 2, u64::MAX / 2), ..granted.clone() };
    let refused = verifier().verify(invented.clone()).unwrap_err();
    assert_eq!((&refused.fence, refused.cluster), (&invented.fence, CLUSTER));
    assert_eq!(gate.ledger().floor(granted.fence.key()).unwrap(), 0);
    let verified = verifier().verify(granted).unwrap();
    gate.protect(&verified, || ()).unwrap();
    assert_eq!(gate.ledger().floor(verified.fence().key()).unwrap(), 12);

    let file = FencedFile::new(dir.path().join("data"), Key::new("k").unwrap()).require_signed();
    file.write(&verified, b"content").unwrap();
    assert_eq!(file.read().unwrap().unwrap(), b"content");
}

#[test]
fn what_is_no_key_is_refused() {
    assert_eq!(SigningKey::from_pem(ONE_PUBLIC).unwrap_err(), KeyError::Private);
    assert_eq!(PublicKey::from_pem(ONE).unwrap_err(), KeyError::Public);
    assert_eq!(PublicKey::from_pem(ONE_PUBLIC).unwrap(), key(ONE).public());
    assert_eq!(PublicKey::from_pem(&ONE_PUBLIC.replace('\n', "\r\n")).unwrap(), key(ONE).public());
    let x25519 = ONE.replace("MC4CAQAwBQYDK2VwBCIE", "MC4CAQAwBQYDK2VuBCIE");
    let two_at_once = format!("{ONE}{TWO}");
    for bad in
        ["", "nonsense", &ONE[..60], &x25519, &two_at_once, &ONE.replace("PRIVATE", "ENCRYPTED PRIVATE")]
    {
        assert_eq!(SigningKey::from_pem(bad).unwrap_err(), KeyError::Private, "{bad}");
    }
    // The neutral element: under it one signature fits every message.
    let weak = "-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=
-----END PUBLIC KEY-----
";
    assert_eq!(PublicKey::from_pem(weak).unwrap_err(), KeyError::Weak);
    let shown = format!("{:?} {}", key(ONE), key(ONE).public());
    assert!(shown.contains("d75a9801") && !shown.contains("9d61b19d"), "{shown}");
}
