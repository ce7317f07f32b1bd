//! Slots files, identity and boot record.

use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use palisade_types::{Acquaintance, Incarnation, NodeId, ShardId, Start, StartNonce, Starts};

use super::identity;
use crate::*;

const NODE: ShardId = ShardId(u32::MAX);

fn value(boots: u64) -> BootRecord {
    BootRecord {
        starts: Starts { number: boots, nonces: vec![StartNonce(7), StartNonce(boots.into())] },
        members: vec![(NodeId(1), Incarnation(5)), (NodeId(3), Incarnation(boots.into()))],
        known: vec![Acquaintance { node: NodeId(3), start: Start { number: 4, nonce: StartNonce(9) } }],
    }
}

fn read(bytes: &[u8]) -> Result<Slots<BootRecord>, RecoverError> {
    read_boot(&identity(), bytes)
}

fn write(file: &mut [u8], copy: &(u64, bytes::Bytes)) {
    file[copy.0 as usize..copy.0 as usize + PAGE].copy_from_slice(&copy.1);
}

/// A file written `times` times over.
fn written(times: u64) -> Vec<u8> {
    let mut file = boot_file(&identity());
    let mut slots = read(&file).unwrap();
    for boots in 1..=times {
        let staged = slots.stage(value(boots));
        staged.copies.iter().for_each(|copy| write(&mut file, copy));
        slots.commit(staged);
    }
    file
}

#[test]
fn a_new_file_holds_the_initial_value_twice_over() {
    let file = boot_file(&identity());
    assert_eq!(file.len(), SLOTS_BYTES);
    let slots = read(&file).unwrap();
    assert_eq!(
        (slots.value(), slots.generation(), slots.is_incomplete()),
        (&BootRecord::default(), 1, false)
    );
}

#[test]
fn the_newest_value_is_read_back() {
    for times in 0..5 {
        let slots = read(&written(times)).unwrap();
        assert_eq!(
            (slots.value().starts.number, slots.generation(), slots.is_incomplete()),
            (times, times + 1, false)
        );
    }
}

#[test]
fn any_single_bad_page_changes_nothing() {
    for times in 1..4 {
        for page in 0..4 {
            let mut file = written(times);
            file[page * PAGE + 60] ^= 1;
            let slots = read(&file).unwrap();
            assert_eq!((slots.value(), slots.is_incomplete()), (&value(times), true));
        }
    }
}

#[test]
fn two_bad_copies_of_a_generation_mean_a_new_node_id() {
    for times in 0..4 {
        for slot in 0..2 {
            let mut file = written(times);
            file[slot * 2 * PAGE + 60] ^= 1;
            file[(slot * 2 + 1) * PAGE + 60] ^= 1;
            let fault = RecoverError::GenerationLost {
                file: BOOT_FILE.to_string(),
                offset: (slot * 2 * PAGE) as u64,
            };
            assert_eq!(read(&file).unwrap_err(), fault);
            assert!(fault.to_string().contains("replace this node under a new id"));
        }
    }
    let file = written(2);
    for len in [0, 1, PAGE, 2 * PAGE, 3 * PAGE - 1] {
        assert!(matches!(read(&file[..len]), Err(RecoverError::GenerationLost { .. })), "{len}");
    }
}

/// Every sequence of writes that crash before, in or after each of their two copies, five in a row,
/// each followed by a start that writes the value anew.
#[test]
fn no_row_of_torn_writes_loses_a_value_or_refuses_the_file() {
    for sequence in 0..6usize.pow(5) {
        let mut file = boot_file(&identity());
        let mut acknowledged = 0;
        let mut choice = sequence;
        for attempt in 1..=5 {
            let mut slots = read(&file).unwrap();
            assert!(slots.value().starts.number >= acknowledged, "sequence {sequence}");
            acknowledged = slots.value().starts.number;
            let staged = slots.stage(value(attempt));
            let [first, second] = &staged.copies;
            match choice % 6 {
                0 => {}
                1 => file[first.0 as usize + 9] ^= 0x55,
                2 => write(&mut file, first),
                3 => {
                    write(&mut file, first);
                    file[second.0 as usize + 9] ^= 0x55;
                }
                _ => {
                    write(&mut file, first);
                    write(&mut file, second);
                    slots.commit(staged);
                    acknowledged = attempt;
                }
            }
            choice /= 6;
        }
        assert!(read(&file).unwrap().value().starts.number >= acknowledged);
    }
}

#[test]
fn a_page_in_anothers_place_is_no_copy() {
    let file = written(3);
    let mut swapped = file.clone();
    swapped[..PAGE].copy_from_slice(&file[PAGE..2 * PAGE]);
    assert!(read(&swapped).unwrap().is_incomplete());
    swapped[PAGE..2 * PAGE].copy_from_slice(&file[2 * PAGE..3 * PAGE]);
    assert!(matches!(read(&swapped), Err(RecoverError::GenerationLost { .. })));
}

#[test]
fn a_slots_file_of_another_kind_or_owner_is_refused() {
    let hard = initial_hard_state(&identity(), ShardId(0));
    assert!(matches!(read(&hard), Err(RecoverError::GenerationLost { .. })));
    let other = Identity { incarnation: Incarnation(1), ..identity() };
    let foreign = RecoverError::Foreign { file: BOOT_FILE.to_string(), whose: "incarnation of this node" };
    assert_eq!(read_boot(&other, &written(1)).unwrap_err(), foreign);
    assert_eq!(identity().owner(NODE).node, NodeId(2));
}

#[test]
fn an_identity_is_read_from_either_copy() {
    let file = identity_file(&identity());
    assert_eq!(read_identity(&file).unwrap(), IdentityRead { identity: identity(), copy_damaged: false });
    for at in [100, PAGE + 100] {
        let mut bad = file.clone();
        bad[at] ^= 4;
        assert_eq!(read_identity(&bad).unwrap(), IdentityRead { identity: identity(), copy_damaged: true });
    }
    let mut bad = file.clone();
    (bad[100], bad[PAGE + 100]) = (bad[100] ^ 4, bad[PAGE + 100] ^ 4);
    assert!(matches!(read_identity(&bad), Err(RecoverError::Damaged { offset: 0, .. })));
    assert!(matches!(read_identity(b""), Err(RecoverError::Damaged { .. })));
    let other = identity_file(&Identity { node: NodeId(9), ..identity() });
    let mixed = [&file[..PAGE], &other[PAGE..]].concat();
    assert!(matches!(read_identity(&mixed), Err(RecoverError::Damaged { .. })));
}

/// Format 1 of BOOT, byte by byte: what an older version left opens, and the next start begins the chain.
#[test]
fn a_boot_record_of_the_format_before_is_read_and_written_anew_in_the_present_one() {
    let mut file = Vec::new();
    for copy in 0..4u16 {
        let page = crate::page::seal_as(1, *b"PBOT", copy, &identity().owner(NODE), |w| {
            w.u64(6 + u64::from(copy / 2));
            w.u64(17);
            w.u32(1);
            w.u32(3);
            w.u128(33);
        });
        file.extend_from_slice(&page);
    }
    let slots = read(&file).unwrap();
    let mut record = BootRecord {
        starts: Starts { number: 17, nonces: vec![] },
        members: vec![(NodeId(3), Incarnation(33))],
        known: vec![],
    };
    assert_eq!((slots.value(), slots.is_incomplete()), (&record, false));
    record.starts.begin(StartNonce(0xabcd));
    slots.stage(record.clone()).copies.iter().for_each(|copy| write(&mut file, copy));
    assert_eq!(read(&file).unwrap().value(), &record);
    let version = |page: usize| u16::from_le_bytes([file[page * PAGE + 4], file[page * PAGE + 5]]);
    assert_eq!([version(0), version(1), version(2), version(3)], [2, 2, 1, 1]);
}

/// Format 2 of BOOT, byte by byte.
#[test]
fn the_boot_record_has_these_bytes() {
    let file = written(1);
    let fields = &file[48..];
    let mut expected = Vec::new();
    expected.extend_from_slice(&2u64.to_le_bytes()); // generation
    expected.extend_from_slice(&1u64.to_le_bytes()); // starts
    expected.extend_from_slice(&2u32.to_le_bytes()); // members
    for (node, incarnation) in [(1u32, 5u128), (3, 1)] {
        expected.extend_from_slice(&node.to_le_bytes());
        expected.extend_from_slice(&incarnation.to_le_bytes());
    }
    expected.extend_from_slice(&2u32.to_le_bytes()); // nonces
    expected.extend_from_slice(&7u128.to_le_bytes());
    expected.extend_from_slice(&1u128.to_le_bytes());
    expected.extend_from_slice(&1u32.to_le_bytes()); // known starts
    expected.extend_from_slice(&3u32.to_le_bytes());
    expected.extend_from_slice(&4u64.to_le_bytes());
    expected.extend_from_slice(&9u128.to_le_bytes());
    assert_eq!(&fields[..expected.len()], &expected[..]);
    assert_eq!(u16::from_le_bytes([file[4], file[5]]), 2);
    assert!(fields[expected.len()..PAGE - 52].iter().all(|b| *b == 0));
}
