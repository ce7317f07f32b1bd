//! What a signed fence costs: the server, for each grant; the resource, for each write that shows one.

#[allow(dead_code, reason = "no bench needs all of it")]
mod common;

use std::hint::black_box;

use criterion::Criterion;
use palisade_fence::{ClusterIdentity, Fence, SignedFence, Signer, SigningKey, Verifier};

/// The secret of the first test vector of RFC 8032.
const PEM: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g
-----END PRIVATE KEY-----
";

fn signing(c: &mut Criterion) {
    let cluster = ClusterIdentity(0x77b1_c0de_00c0_ffee);
    let key = SigningKey::from_pem(PEM).expect("a key");
    let verifier = Verifier::new(cluster, [key.public()]).expect("one key");
    let signer = Signer::new(cluster, key);
    let fence: Fence = "invoices/run/2026-11@1234567/1234567".parse().expect("a fence");
    let signed = SignedFence { signature: signer.sign(&fence), fence: fence.clone() };
    let mut group = c.benchmark_group("signing");
    group.bench_function("sign a fence", |b| b.iter(|| signer.sign(black_box(&fence))));
    group.bench_function("verify a fence", |b| b.iter(|| verifier.verify(black_box(signed.clone()))));
    group.finish();
}

fn main() {
    common::run(&[signing]);
}
