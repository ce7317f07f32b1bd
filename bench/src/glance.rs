//! Replies read only as far as the generator needs, without allocating. Frames have been checked
//! before: only their bodies are looked at here.

use palisade_types::{DecodeError, LogIndex, Reader, SessionId, ShardId};

/// A grant, as a reply or a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant<'a> {
    /// Whose.
    pub(crate) session: SessionId,
    /// Of which claim.
    pub(crate) ticket: u64,
    /// Of which key.
    pub(crate) key: &'a [u8],
    /// The number of this grant.
    pub(crate) epoch: u64,
}

/// Claim, and fence: key, epoch, barrier.
pub(crate) fn grant(body: &[u8]) -> Result<Grant<'_>, DecodeError> {
    let mut r = Reader::new(body);
    let session = session(&mut r)?;
    let ticket = r.u64()?;
    let length = usize::from(r.u16()?);
    Ok(Grant { session, ticket, key: r.take(length)?, epoch: r.u64()? })
}

/// The session a body begins with.
pub(crate) fn first_session(body: &[u8]) -> Result<SessionId, DecodeError> {
    session(&mut Reader::new(body))
}

/// How many sessions a `Renewed` refuses.
pub(crate) fn refused(body: &[u8]) -> Result<u32, DecodeError> {
    Reader::new(body).u32()
}

fn session(r: &mut Reader<'_>) -> Result<SessionId, DecodeError> {
    Ok(SessionId { shard: ShardId(r.u32()?), opened: LogIndex(r.u64()?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_types::{Epoch, Fence, Key, Refusal, Reply, RequestId, Ticket};
    use palisade_wire::{Frames, encode_reply};

    fn body(reply: &Reply) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_reply(reply, RequestId(1), &mut bytes);
        Frames::new(&bytes).next_frame().unwrap().unwrap().body.to_vec()
    }

    #[test]
    fn a_grant_is_read_as_it_was_written() {
        let session = SessionId { shard: ShardId(1), opened: LogIndex(9) };
        let fence = Fence::new(Key::new("a-key").unwrap(), Epoch(12), Epoch(3)).unwrap();
        let body = body(&Reply::Granted { session, ticket: Ticket(5), fence });
        assert_eq!(grant(&body), Ok(Grant { session, ticket: 5, key: b"a-key", epoch: 12 }));
        assert_eq!(first_session(&body), Ok(session));
        for end in 0..body.len() - 8 {
            assert_eq!(grant(&body[..end]), Err(DecodeError::Short));
        }
    }

    #[test]
    fn refused_renewals_are_counted() {
        let session = SessionId { shard: ShardId(1), opened: LogIndex(9) };
        let reply = Reply::Renewed { refused: vec![Refusal::NotAttached { session }] };
        assert_eq!(refused(&body(&reply)), Ok(1));
        assert_eq!(refused(&body(&Reply::Renewed { refused: Vec::new() })), Ok(0));
    }
}
