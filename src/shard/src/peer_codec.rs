//! Raft messages as bytes: the opaque body of a peer frame. Little-endian; described in
//! `net/PROTOCOL.md`, section "Peers".

use alloc::vec::Vec;
use bytes::Bytes;

use palisade_raft::{
    Append, AppendReply, AppendResult, AskId, Message, PreVote, PreVoteReply, ReadIndex, ReadIndexReply,
    Snapshot, SnapshotReply, TimeoutNow, Vote, VoteReply,
};
use palisade_types::block::{Block, BlockError};
use palisade_types::{DecodeError, LogIndex, Reader, SNAPSHOT_CHUNK_MAX, ShardId, SnapshotId, Term, Writer};

const PRE_VOTE: u8 = 1;
const PRE_VOTE_REPLY: u8 = 2;
const VOTE: u8 = 3;
const VOTE_REPLY: u8 = 4;
const APPEND: u8 = 5;
const APPEND_ACCEPTED: u8 = 6;
const APPEND_REJECTED: u8 = 7;
const READ_INDEX: u8 = 8;
const READ_INDEX_GIVEN: u8 = 9;
const READ_INDEX_REFUSED: u8 = 10;
const SNAPSHOT: u8 = 11;
const SNAPSHOT_REPLY: u8 = 12;
const TIMEOUT_NOW: u8 = 16;

/// Bytes that are no peer message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerCodecError {
    /// A field does not decode.
    #[error(transparent)]
    Field(#[from] DecodeError),
    /// A block does not decode.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// A block belongs to another shard than the message.
    #[error("a block of shard {0} in a message of shard {1}")]
    OtherShard(ShardId, ShardId),
}

/// Appends the bytes of a message of a shard.
pub fn encode(shard: ShardId, message: &Message, out: &mut Vec<u8>) {
    let mut w = Writer(out);
    w.u32(shard.0);
    match message {
        Message::PreVote(m) => {
            w.u8(PRE_VOTE);
            position(&mut w, m.term, m.last_term, m.last_index);
        }
        Message::PreVoteReply(m) => {
            w.u8(PRE_VOTE_REPLY);
            w.u64(m.term.0);
            w.u64(m.asked.0);
            w.bool(m.granted);
        }
        Message::Vote(m) => {
            w.u8(VOTE);
            position(&mut w, m.term, m.last_term, m.last_index);
            w.bool(m.invited);
        }
        Message::VoteReply(m) => {
            w.u8(VOTE_REPLY);
            w.u64(m.term.0);
            w.bool(m.granted);
        }
        Message::Append(m) => encode_append(&mut w, m),
        Message::AppendReply(m) => encode_append_reply(&mut w, m),
        Message::ReadIndex(m) => {
            w.u8(READ_INDEX);
            put_ask(&mut w, m.term, m.ask);
        }
        Message::ReadIndexReply(m) => {
            w.u8(if m.index.is_some() { READ_INDEX_GIVEN } else { READ_INDEX_REFUSED });
            put_ask(&mut w, m.term, m.ask);
            if let Some(index) = m.index {
                w.u64(index.0);
            }
        }
        Message::Snapshot(m) => {
            w.u8(SNAPSHOT);
            w.u64(m.term.0);
            w.u64(m.round);
            m.id.encode(&mut w);
            w.u32(m.chunk);
            w.bytes(&m.data);
        }
        Message::SnapshotReply(m) => {
            w.u8(SNAPSHOT_REPLY);
            w.u64(m.term.0);
            w.u64(m.round);
            m.id.encode(&mut w);
            w.u32(m.have);
        }
        Message::TimeoutNow(m) => {
            w.u8(TIMEOUT_NOW);
            w.u64(m.term.0);
            w.u64(m.last_index.0);
        }
    }
}

fn position(w: &mut Writer<'_>, term: Term, last_term: Term, last_index: LogIndex) {
    w.u64(term.0);
    w.u64(last_term.0);
    w.u64(last_index.0);
}

fn put_ask(w: &mut Writer<'_>, term: Term, ask: AskId) {
    w.u64(term.0);
    w.u64(ask.boot);
    w.u64(ask.count);
}

fn encode_append(w: &mut Writer<'_>, m: &Append) {
    w.u8(APPEND);
    position(w, m.term, m.prev_term, m.prev_index);
    w.u64(m.commit.0);
    w.u64(m.round);
    w.u32(m.blocks.len() as u32);
    for block in &m.blocks {
        w.0.extend_from_slice(block.bytes());
    }
}

fn encode_append_reply(w: &mut Writer<'_>, m: &AppendReply) {
    let (kind, a, b, c) = match m.result {
        AppendResult::Accepted { verified, durable } => (APPEND_ACCEPTED, verified.0, durable.0, None),
        AppendResult::Rejected { prev_index, hint_index, hint_term } => {
            (APPEND_REJECTED, prev_index.0, hint_index.0, Some(hint_term.0))
        }
    };
    w.u8(kind);
    w.u64(m.term.0);
    w.u64(m.round);
    w.u64(a);
    w.u64(b);
    if let Some(c) = c {
        w.u64(c);
    }
}

/// Takes a message apart; its blocks share the bytes given.
///
/// # Errors
/// When the bytes are no message of a shard, whatever they are instead.
pub fn decode(bytes: &Bytes) -> Result<(ShardId, Message), PeerCodecError> {
    let mut r = Reader::new(bytes);
    let shard = ShardId(r.u32()?);
    let kind = r.u8()?;
    let message = match kind {
        PRE_VOTE => {
            let (term, last_term, last_index) = read_position(&mut r)?;
            Message::PreVote(PreVote { term, last_term, last_index })
        }
        PRE_VOTE_REPLY => Message::PreVoteReply(PreVoteReply {
            term: Term(r.u64()?),
            asked: Term(r.u64()?),
            granted: r.bool("boolean")?,
        }),
        VOTE => {
            let (term, last_term, last_index) = read_position(&mut r)?;
            Message::Vote(Vote { term, last_term, last_index, invited: r.bool("boolean")? })
        }
        VOTE_REPLY => Message::VoteReply(VoteReply { term: Term(r.u64()?), granted: r.bool("boolean")? }),
        APPEND => return Ok((shard, Message::Append(decode_append(shard, bytes, r)?))),
        APPEND_ACCEPTED | APPEND_REJECTED => {
            let (term, round) = (Term(r.u64()?), r.u64()?);
            let (a, b) = (LogIndex(r.u64()?), LogIndex(r.u64()?));
            let result = match kind {
                APPEND_ACCEPTED => AppendResult::Accepted { verified: a, durable: b },
                _ => AppendResult::Rejected { prev_index: a, hint_index: b, hint_term: Term(r.u64()?) },
            };
            Message::AppendReply(AppendReply { term, round, result })
        }
        READ_INDEX => {
            let (term, ask) = read_ask(&mut r)?;
            Message::ReadIndex(ReadIndex { term, ask })
        }
        READ_INDEX_GIVEN | READ_INDEX_REFUSED => {
            let (term, ask) = read_ask(&mut r)?;
            let index = if kind == READ_INDEX_GIVEN { Some(LogIndex(r.u64()?)) } else { None };
            Message::ReadIndexReply(ReadIndexReply { term, ask, index })
        }
        SNAPSHOT => Message::Snapshot(decode_snapshot(bytes, &mut r)?),
        SNAPSHOT_REPLY => {
            let (term, round) = (Term(r.u64()?), r.u64()?);
            Message::SnapshotReply(SnapshotReply {
                term,
                round,
                id: SnapshotId::decode(&mut r)?,
                have: r.u32()?,
            })
        }
        TIMEOUT_NOW => {
            Message::TimeoutNow(TimeoutNow { term: Term(r.u64()?), last_index: LogIndex(r.u64()?) })
        }
        other => {
            return Err(DecodeError::Unknown { what: "peer message kind", value: u64::from(other) }.into());
        }
    };
    r.finish()?;
    Ok((shard, message))
}

fn read_position(r: &mut Reader<'_>) -> Result<(Term, Term, LogIndex), DecodeError> {
    Ok((Term(r.u64()?), Term(r.u64()?), LogIndex(r.u64()?)))
}

fn read_ask(r: &mut Reader<'_>) -> Result<(Term, AskId), DecodeError> {
    Ok((Term(r.u64()?), AskId { boot: r.u64()?, count: r.u64()? }))
}

fn decode_snapshot(bytes: &Bytes, r: &mut Reader<'_>) -> Result<Snapshot, DecodeError> {
    let (term, round) = (Term(r.u64()?), r.u64()?);
    let (id, chunk) = (SnapshotId::decode(r)?, r.u32()?);
    let data = r.bytes("snapshot chunk", SNAPSHOT_CHUNK_MAX)?;
    Ok(Snapshot { term, round, id, chunk, data: bytes.slice_ref(data) })
}

fn decode_append(shard: ShardId, bytes: &Bytes, mut r: Reader<'_>) -> Result<Append, PeerCodecError> {
    let (term, prev_term, prev_index) = read_position(&mut r)?;
    let (commit, round) = (LogIndex(r.u64()?), r.u64()?);
    let count = r.u32()?;
    let mut blocks = Vec::new();
    for _ in 0..count {
        let at = bytes.len() - r.remaining();
        let len = Block::length_of(&bytes[at..])?;
        r.take(len)?;
        let block = Block::decode(bytes.slice(at..at + len))?;
        if block.shard() != shard {
            return Err(PeerCodecError::OtherShard(block.shard(), shard));
        }
        blocks.push(block);
    }
    r.finish()?;
    Ok(Append { term, prev_term, prev_index, commit, round, blocks })
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::BlockBuilder;
    use palisade_types::block::Seal;

    fn block(first: u64) -> Block {
        let mut b = BlockBuilder::new();
        b.push(|v| v.extend_from_slice(b"command"));
        b.seal(Seal { shard: ShardId(4), term: Term(9), first: LogIndex(first), clock_ms: 1, prev_chain: 2 })
    }

    fn samples() -> Vec<Message> {
        let (term, last_term, last_index) = (Term(9), Term(8), LogIndex(7));
        let ask = AskId { boot: 3, count: 12 };
        let id = SnapshotId {
            last: LogIndex(7),
            term: last_term,
            chain: 5,
            clock_ms: 6,
            bytes: 900,
            chunks: 2,
            digest: 4,
        };
        alloc::vec![
            Message::PreVote(PreVote { term, last_term, last_index }),
            Message::PreVoteReply(PreVoteReply { term, asked: Term(10), granted: true }),
            Message::Vote(Vote { term, last_term, last_index, invited: true }),
            Message::VoteReply(VoteReply { term, granted: false }),
            Message::Append(Append {
                term,
                prev_term: last_term,
                prev_index: last_index,
                commit: LogIndex(3),
                round: 77,
                blocks: alloc::vec![block(8), block(9)],
            }),
            Message::AppendReply(AppendReply {
                term,
                round: 1,
                result: AppendResult::Accepted { verified: LogIndex(5), durable: LogIndex(4) },
            }),
            Message::AppendReply(AppendReply {
                term,
                round: 1,
                result: AppendResult::Rejected {
                    prev_index: LogIndex(5),
                    hint_index: LogIndex(4),
                    hint_term: Term(2),
                },
            }),
            Message::ReadIndex(ReadIndex { term, ask }),
            Message::ReadIndexReply(ReadIndexReply { term, ask, index: Some(LogIndex(7)) }),
            Message::ReadIndexReply(ReadIndexReply { term, ask, index: None }),
            Message::Snapshot(Snapshot { term, round: 3, id, chunk: 1, data: Bytes::from_static(b"chunk") }),
            Message::SnapshotReply(SnapshotReply { term, round: 3, id, have: 2 }),
            Message::TimeoutNow(TimeoutNow { term, last_index }),
        ]
    }

    #[test]
    fn every_message_comes_back_and_no_prefix_of_it_is_a_message() {
        for message in samples() {
            let mut bytes = Vec::new();
            encode(ShardId(4), &message, &mut bytes);
            let bytes = Bytes::from(bytes);
            assert_eq!(decode(&bytes), Ok((ShardId(4), message)));
            for len in 0..bytes.len() {
                assert!(decode(&bytes.slice(..len)).is_err());
            }
        }
    }

    #[test]
    fn the_largest_chunk_of_a_snapshot_fits_a_frame_and_a_larger_one_is_refused() {
        let Message::Snapshot(sample) = &samples()[10] else { panic!("a chunk") };
        for (len, fits) in [(SNAPSHOT_CHUNK_MAX, true), (SNAPSHOT_CHUNK_MAX + 1, false)] {
            let data = Bytes::from(alloc::vec![7; len]);
            let mut bytes = Vec::new();
            encode(ShardId(4), &Message::Snapshot(Snapshot { data, ..sample.clone() }), &mut bytes);
            assert!(bytes.len() < palisade_wire::FRAME_BYTES_MAX);
            assert_eq!(decode(&Bytes::from(bytes)).is_ok(), fits);
        }
    }

    #[test]
    fn a_block_of_another_shard_is_refused() {
        let mut bytes = Vec::new();
        encode(ShardId(5), &samples()[4], &mut bytes);
        let refused = PeerCodecError::OtherShard(ShardId(4), ShardId(5));
        assert_eq!(decode(&Bytes::from(bytes)), Err(refused));
    }
}
