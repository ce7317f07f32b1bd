//! The format as `FORMAT.md` gives it, byte by byte.

use alloc::vec;
use alloc::vec::Vec;
use palisade_types::hash::hash128;
use palisade_types::{LogIndex, Term, Time};

use super::{Run, SHARD, config, formatted, hard, identity, recover};
use crate::*;

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().unwrap())
}

/// Checks what all pages have in common.
fn check_page(page: &[u8], magic: &[u8; 4], kind: u16, shard: u32) {
    let format = if magic == b"PBOT" { 2 } else { 1 };
    assert_eq!((&page[..4], u16_at(page, 4), u16_at(page, 6)), (&magic[..], format, kind));
    check_owner(page, shard);
    assert_eq!(u32_at(page, 4092), crc32fast::hash(&page[..4092]));
}

fn check_owner(record: &[u8], shard: u32) {
    assert_eq!((u128_at(record, 8), u128_at(record, 24)), (0xC1, 0x1C), "cluster, incarnation");
    assert_eq!((u32_at(record, 40), u32_at(record, 44)), (2, shard), "node, shard");
}

/// Two batches in a first segment.
fn small_log() -> Run {
    let recovered = recover(&formatted()).unwrap();
    let mut run = Run::start(formatted(), 1);
    run.wal = Wal::open(config(7), recovered.tail, Time::ZERO);
    run.settle();
    run.append(3, 10);
    run.settle();
    let next = super::block(&run.log, 4, 2, 5);
    run.log.push(next.clone());
    run.wal.append(2, Some(hard(4, 3)), None, vec![next], LogIndex(1));
    run.settle();
    run
}

#[test]
fn the_segment_header() {
    let run = small_log();
    let file = run.disk.read(&segment_file(SHARD, 1)).unwrap();
    check_page(&file[..PAGE], b"PSEG", 1, 0);
    assert_eq!((u64_at(&file, 48), u64_at(&file, 72), u64_at(&file, 80)), (1, file.len() as u64, 0));
    assert_eq!((u64_at(&file, 88), u128_at(&file, 96)), (1, 0), "first batch, chain before it");
    assert!(file[112..4092].iter().all(|b| *b == 0));
}

#[test]
fn the_batch() {
    let run = small_log();
    let file = run.disk.read(&segment_file(SHARD, 1)).unwrap();
    let (first, second) = (&file[36864..36864 + PAGE], &file[40960..40960 + PAGE]);
    for (number, batch) in [first, second].into_iter().enumerate() {
        let (number, block) = (number as u64 + 1, run.log[number].bytes());
        assert_eq!((&batch[..4], u16_at(batch, 4), u16_at(batch, 6)), (&b"PBAT"[..], 1, 0));
        check_owner(batch, 0);
        assert_eq!(u128_at(batch, 48), u128_at(&file, 56), "salt");
        assert_eq!((u64_at(batch, 64), u64_at(batch, 72)), (1, 32768 + 4096 * number), "segment, offset");
        assert_eq!((u64_at(batch, 80), u64_at(batch, 120)), (number, number - 1), "number, durable_upto");
        assert_eq!((u32_at(batch, 152), u32_at(batch, 156)), (block.len() as u32, 1), "body, blocks");
        assert_eq!(u32_at(batch, 160), crc32fast::hash(block));
        assert_eq!(u32_at(batch, 164), crc32fast::hash(&batch[..164]));
        assert_eq!(&batch[168..168 + block.len()], &block[..]);
        assert!(batch[168 + block.len()..].iter().all(|b| *b == 0));
    }
    assert_eq!((u64_at(second, 88), u64_at(second, 96), u64_at(second, 104)), (2, 3, 4), "first, last, term");
    assert_eq!((u64_at(second, 112), u64_at(second, 128)), (0, 1), "truncate_after, commit_hint");
    assert_eq!((u128_at(first, 136), u128_at(second, 136)), (0, hash128(&first[..168])), "chain");
}

#[test]
fn a_cut_sets_flag_and_field() {
    let mut run = small_log();
    run.wal.append(3, None, Some(LogIndex(1)), vec![], LogIndex(1));
    run.settle();
    let file = run.disk.read(&segment_file(SHARD, 1)).unwrap();
    let batch = &file[45056..];
    assert_eq!((u16_at(batch, 6), u64_at(batch, 112)), (1, 1));
    assert_eq!((u64_at(batch, 88), u64_at(batch, 96), u64_at(batch, 104)), (0, 1, 0), "first, last, term");
    assert_eq!(run.recovered().blocks, run.log[..1]);
}

#[test]
fn the_mark() {
    let run = small_log();
    let file = run.disk.read(&segment_file(SHARD, 1)).unwrap();
    let mark = &file[3 * PAGE..4 * PAGE];
    check_page(mark, b"PMRK", 0, 0);
    let batch = &file[40960..];
    assert_eq!((u64_at(mark, 48), u128_at(mark, 56)), (1, u128_at(&file, 56)), "segment, salt");
    assert_eq!((u64_at(mark, 72), u64_at(mark, 80)), (2, 40960), "number, offset");
    assert_eq!((u32_at(mark, 88), u32_at(mark, 92)), (u32_at(batch, 152), u32_at(batch, 160)));
    assert_eq!((u64_at(mark, 96), u64_at(mark, 104)), (3, 4), "last, term");
}

#[test]
fn the_hard_state() {
    let run = small_log();
    let file = run.disk.read(&hard_state_file(SHARD)).unwrap();
    assert_eq!(file.len(), 4 * PAGE);
    // New file: generations 0 and 1. Term 3 was generation 2, term 4 is generation 3.
    for (copy, generation, term, vote, commit, batch) in
        [(0, 2, 3, 1, 0, 0), (1, 2, 3, 1, 0, 0), (2, 3, 4, 3, 1, 1), (3, 3, 4, 3, 1, 1)]
    {
        let page = &file[copy * PAGE..(copy + 1) * PAGE];
        check_page(page, b"PHRD", copy as u16, 0);
        assert_eq!((u64_at(page, 48), u64_at(page, 56), u32_at(page, 64)), (generation, term, vote));
        assert_eq!((u64_at(page, 68), u64_at(page, 76)), (commit, batch));
    }
}

#[test]
fn identity_and_boot_record() {
    let files = format_files(&identity());
    let names: Vec<&str> = files.iter().map(|f| f.0.as_str()).collect();
    assert_eq!(names, ["shard-0000/HARDSTATE", "BOOT", "IDENTITY"]);
    let (boot, file) = (&files[1].1, &files[2].1);
    assert_eq!((boot.len(), file.len()), (4 * PAGE, 2 * PAGE));
    for copy in 0..4 {
        check_page(&boot[copy * PAGE..(copy + 1) * PAGE], b"PBOT", copy as u16, u32::MAX);
        let page = &boot[copy * PAGE..];
        assert_eq!((u64_at(page, 48), u64_at(page, 56), u32_at(page, 64)), (copy as u64 / 2, 0, 0));
    }
    for copy in 0..2 {
        let page = &file[copy * PAGE..(copy + 1) * PAGE];
        check_page(page, b"PIDN", copy as u16, u32::MAX);
        assert_eq!((u16_at(page, 48), &page[50..55]), (5, &b"tests"[..]));
        assert_eq!((u32_at(page, 55), u32_at(page, 59)), (1, 3), "shards, voters");
        assert_eq!((u32_at(page, 63), u32_at(page, 67), u32_at(page, 71)), (1, 2, 3));
        assert_eq!(u32_at(page, 75), identity().limits.sessions);
    }
}

#[test]
fn the_snapshot_and_a_replaced_log() {
    let mut run = small_log();
    let edge = palisade_types::Edge { index: LogIndex(9), term: Term(4), chain: 7 << 90, clock_ms: 5 };
    let id = run.hand_snapshot(edge, 2);
    run.settle();
    run.wal.install(3, id);
    run.settle();
    let file = run.disk.read(&snapshot_file(SHARD, LogIndex(9))).unwrap();
    check_page(&file[..PAGE], b"PSNP", 1, 0);
    let edge_at = |at: usize| {
        (u64_at(&file, at), u64_at(&file, at + 8), u128_at(&file, at + 16), u64_at(&file, at + 32))
    };
    assert_eq!(edge_at(48), (9, 4, 7 << 90, 5));
    assert_eq!((u64_at(&file, 88), u32_at(&file, 96)), (8000, 2), "bytes, chunks");
    assert_eq!((u64_at(&file, 132), u64_at(&file, 140), u128_at(&file, 148)), (1, 0, 0), "segment, batch");
    assert_eq!(edge_at(164), (0, 0, 0, 0));
    assert_eq!(u64_at(&file, 204), 2, "durable_upto");
    assert!(file[212..4092].iter().all(|b| *b == 0));
    let mut all = Vec::new();
    for (number, len) in [(0, 3000), (1, 5000)] {
        let chunk = &file[4096 + number * 135_168..];
        assert_eq!((&chunk[..4], u16_at(chunk, 4), u16_at(chunk, 6)), (&b"PCHK"[..], 1, 0));
        check_owner(chunk, 0);
        assert_eq!(u128_at(chunk, 48), u128_at(&file, 116), "salt");
        assert_eq!((u32_at(chunk, 64), u32_at(chunk, 68)), (number as u32, len as u32));
        let checked = [&chunk[..72], &chunk[76..76 + len]].concat();
        assert_eq!(u32_at(chunk, 72), crc32fast::hash(&checked));
        all.extend_from_slice(&chunk[76..76 + len]);
    }
    assert_eq!(u128_at(&file, 100), hash128(&all), "digest");
    let log = run.disk.read(&segment_file(SHARD, 1)).unwrap();
    let batch = &log[36864 + 2 * PAGE..];
    assert_eq!((&batch[..4], u16_at(batch, 4), u16_at(batch, 6)), (&b"PBAT"[..], 2, 2), "format, flag");
    assert_eq!((u64_at(batch, 88), u64_at(batch, 96), u64_at(batch, 104)), (0, 9, 4), "first, last, term");
    assert_eq!((u32_at(batch, 152), u32_at(batch, 156)), (40, 0), "body, blocks");
    assert_eq!(batch[168..208], file[48..88], "the edge");
    // A change that alters this must raise a format number.
    let all: Vec<u8> = run.disk.files().iter().flat_map(|f| run.disk.read(f).unwrap()).collect();
    assert_eq!(std::format!("{:032x}", hash128(&all)), "52a32cbc92142a65cc845c49437135f2");
}

#[test]
fn a_batch_of_a_newer_format_is_refused() {
    let mut run = small_log();
    let file = segment_file(SHARD, 1);
    let mut page = run.disk.read(&file).unwrap()[40960..40960 + PAGE].to_vec();
    page[4] = 3;
    let crc = crc32fast::hash(&page[..164]);
    page[164..168].copy_from_slice(&crc.to_le_bytes());
    run.disk.overwrite(&file, 40960, &page);
    assert_eq!(recover(&run.disk).unwrap_err(), RecoverError::Newer { file, format: 3 });
}

/// A change that alters what is written must raise the format number, not this hash.
#[test]
fn the_bytes_of_a_small_log_do_not_change() {
    let run = small_log();
    let all: Vec<u8> = run.disk.files().iter().flat_map(|f| run.disk.read(f).unwrap()).collect();
    assert_eq!(std::format!("{:032x}", hash128(&all)), "7d877ec68ffa8dd3583f6d985735e0ca");
}
