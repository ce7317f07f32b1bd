//! The 128-bit non-cryptographic hash behind chains and state digests: XXH3, from `xxhash-rust`.

pub use xxhash_rust::xxh3::Xxh3;

/// The chain hash of a block: its bytes (which hold the previous chain hash) hashed.
pub fn hash128(bytes: &[u8]) -> u128 {
    xxhash_rust::xxh3::xxh3_128(bytes)
}
