//! The bytes of commands.

use super::*;
use alloc::vec;
use palisade_types::limits::VALUE_BYTES_MAX;
use palisade_types::name::NAME_BYTES_MAX;
use palisade_types::{DecodeError, Epoch, Mode, OnDeath, OperatorAct, Value};

fn operator(act: OperatorAct, release_now: u32) -> Command {
    let longest = name(&"o".repeat(NAME_BYTES_MAX));
    Command::Operator { by: longest.clone(), reason: longest, act, release_now }
}

fn samples() -> Vec<Command> {
    let session = SessionId { shard: ShardId(3), opened: LogIndex(77) };
    let ticket = Ticket(9);
    let longest = name(&"k".repeat(NAME_BYTES_MAX));
    vec![
        Command::OpenSession { token: SessionToken(5), ttl_ms: 0, owner: None, incarnation: Some(name("i")) },
        Command::OpenSession {
            token: SessionToken(u128::MAX),
            ttl_ms: 30_000,
            owner: Some(longest.clone()),
            incarnation: Some(longest.clone()),
        },
        Command::EndSession { session, cause: Cause::Closed, release_now: 50 },
        Command::EndSession { session, cause: Cause::Expired { silent_ms: 31_000 }, release_now: 0 },
        Command::Sweep { releases: 50 },
        Command::Acquire {
            session,
            ticket,
            key: name("a@b"),
            class: Class::Advisory,
            resource: None,
            mode: Mode::Shared,
            wait: false,
            on_death: OnDeath::Release,
        },
        Command::Acquire {
            session,
            ticket,
            key: longest.clone(),
            class: Class::Fenced,
            resource: Some(longest.clone()),
            mode: Mode::Exclusive,
            wait: true,
            on_death: OnDeath::Quarantine,
        },
        Command::Downgrade { session, ticket, holds: Ticket(8) },
        Command::Campaign {
            session,
            ticket,
            key: longest.clone(),
            value: Value::from(&[0xff; VALUE_BYTES_MAX][..]),
            wait: true,
        },
        Command::Put { session, ticket, key: name("a@b"), value: Value::from(&[][..]) },
        Command::Put { session, ticket, key: name("a"), value: Value::from(&[0, 255][..]) },
        Command::Delete { session, ticket, key: name("a@b") },
        Command::Proclaim { session, ticket, leads: Ticket(8), value: Value::from(&b"v"[..]) },
        Command::ClaimResource { resource: longest.clone(), key: longest.clone() },
        Command::ClaimResource { resource: name("db"), key: name("a@b") },
        Command::Release { session, ticket },
        Command::Cancel { session, ticket, timeout: true },
        Command::Cancel { session, ticket, timeout: false },
        operator(OperatorAct::ReportDead { session }, 50),
        operator(OperatorAct::Evict { session }, 0),
        operator(OperatorAct::ForceRelease { key: longest.clone(), epoch: Epoch(7) }, 0),
        operator(OperatorAct::Retire { key: name("a@b"), epoch: Epoch(8) }, 0),
    ]
}

#[test]
fn every_command_decodes_to_itself_and_is_no_longer_than_promised() {
    let mut longest = 0;
    for command in samples() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        assert_eq!(Command::decode(&bytes), Ok(command.clone()));
        longest = longest.max(bytes.len());
    }
    assert_eq!(longest, Command::BYTES_MAX, "the longest reaches the limit exactly");
    let value = Value::from(&[7; VALUE_BYTES_MAX + 1][..]);
    let session = SessionId { shard: ShardId(3), opened: LogIndex(77) };
    let mut bytes = Vec::new();
    Command::Put { session, ticket: Ticket(9), key: name("k"), value }.encode(&mut bytes);
    let too_long = DecodeError::TooLong { what: "value", max: VALUE_BYTES_MAX };
    assert_eq!(Command::decode(&bytes), Err(too_long));
}

#[test]
fn cut_and_lengthened_commands_are_refused() {
    for command in samples() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Command::decode(&bytes[..len]).is_err(), "{command:?} cut to {len}");
        }
        bytes.push(0);
        assert_eq!(Command::decode(&bytes), Err(DecodeError::Trailing(1)));
    }
}

#[test]
fn a_flipped_bit_gives_an_error_or_another_command_whose_bytes_these_are() {
    for command in samples() {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        if bytes.len() > VALUE_BYTES_MAX {
            continue;
        }
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(other) = Command::decode(&bytes) {
                let mut again = Vec::new();
                other.encode(&mut again);
                assert_eq!(again, bytes, "no two byte strings are one command");
                assert_ne!(other, command, "bit {bit}");
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
