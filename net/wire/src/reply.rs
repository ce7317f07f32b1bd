//! What a server answers.

use alloc::boxed::Box;
use alloc::vec::Vec;
use palisade_types::reply::ReadMark;
use palisade_types::{
    ClusterIdentity, DecodeError, LogIndex, Reader, Reply, RequestId, ShardId, Signature, Writer,
};

use crate::frame::{Frame, begin};
use crate::parts::{claim, consistency, fence, outcome, put_claim, put_consistency, put_fence, put_outcome};
use crate::refusal::{put_refusal, refusal};
use crate::rows::{
    description, holder, list, lock_row, operator_row, put_description, put_holder, put_lock_row,
    put_operator_row, put_page, put_resource_row, put_session_row, put_since_2, put_status, put_value_row,
    resource_row, session_row, status, value_row,
};
use crate::signed::{put_signature, signature};
use crate::{Group, Kind, MessageError, VERSION_SIGNED};

fn kind_of(reply: &Reply) -> Kind {
    match reply {
        Reply::Opened { .. } => Kind::Opened,
        Reply::Attached { .. } => Kind::Attached,
        Reply::Renewed { .. } => Kind::Renewed,
        Reply::SessionClosed { .. } => Kind::SessionClosed,
        Reply::Granted { .. } => Kind::Granted,
        Reply::Queued { .. } => Kind::Queued,
        Reply::Denied { .. } => Kind::Denied,
        Reply::Finished { .. } => Kind::Finished,
        Reply::Described { .. } => Kind::Described,
        Reply::Locks { .. } => Kind::Locks,
        Reply::Sessions { .. } => Kind::Sessions,
        Reply::Status(_) => Kind::StatusIs,
        Reply::OperatorDone { .. } => Kind::OperatorDone,
        Reply::OperatorActs { .. } => Kind::OperatorActs,
        Reply::PutDone { .. } => Kind::PutDone,
        Reply::Deleted { .. } => Kind::Deleted,
        Reply::Value { .. } => Kind::Value,
        Reply::Values { .. } => Kind::Values,
        Reply::ResourceClaimed { .. } => Kind::ResourceClaimed,
        Reply::Resources { .. } => Kind::Resources,
        Reply::Watching { .. } => Kind::Watching,
        Reply::Unwatched { .. } => Kind::Unwatched,
        Reply::Refused(_) => Kind::Refused,
    }
}

/// Appends a reply as one frame that answers request `id`, for a connection of a version. Of the few replies that versions
/// tell apart: a grant has the signature behind it, if one is given and the version knows them, and a node's status has the
/// identity of its cluster.
pub fn encode_reply_in(
    version: u16,
    reply: &Reply,
    signature: Option<&Signature>,
    id: RequestId,
    out: &mut Vec<u8>,
) {
    let new = version >= VERSION_SIGNED;
    match reply {
        Reply::Granted { .. } if new => {
            let open = begin(out, Kind::Granted, id);
            let mut w = Writer(out);
            encode_body(reply, &mut w);
            put_signature(&mut w, signature);
            open.finish(out);
        }
        Reply::Status(status) if !new => {
            let open = begin(out, Kind::StatusIs, id);
            put_status(&mut Writer(out), status);
            open.finish(out);
        }
        other => encode_reply(other, id, out),
    }
}

/// Appends a reply as one frame that answers request `id`, in the newest version and without a signature. A page of a
/// listing that does not fit a frame ends early and says that there are more rows.
pub fn encode_reply(reply: &Reply, id: RequestId, out: &mut Vec<u8>) {
    let open = begin(out, kind_of(reply), id);
    match reply {
        Reply::Locks { read, rows, more } => {
            put_read(&mut Writer(out), *read);
            put_page(out, open.body(), rows, *more, put_lock_row);
        }
        Reply::Sessions { read, rows, more } => {
            put_read(&mut Writer(out), *read);
            put_page(out, open.body(), rows, *more, put_session_row);
        }
        Reply::OperatorActs { read, rows, more } => {
            put_read(&mut Writer(out), *read);
            put_page(out, open.body(), rows, *more, put_operator_row);
        }
        Reply::Values { read, rows, more } => {
            put_read(&mut Writer(out), *read);
            put_page(out, open.body(), rows, *more, put_value_row);
        }
        Reply::Resources { read, rows, more } => {
            put_read(&mut Writer(out), *read);
            put_page(out, open.body(), rows, *more, put_resource_row);
        }
        other => encode_body(other, &mut Writer(out)),
    }
    open.finish(out);
}

fn encode_body(reply: &Reply, w: &mut Writer<'_>) {
    match reply {
        Reply::Opened { session, ttl_ms, gone_within_ms, short_ttl } => {
            w.session(*session);
            w.u32(*ttl_ms);
            w.u64(*gone_within_ms);
            w.bool(*short_ttl);
        }
        Reply::Attached { session, ttl_ms } => {
            w.session(*session);
            w.u32(*ttl_ms);
        }
        Reply::Renewed { refused } => {
            w.u32(refused.len() as u32);
            for refusal in refused {
                put_refusal(w, refusal);
            }
        }
        Reply::SessionClosed { session } => w.session(*session),
        Reply::Granted { session, ticket, fence } => {
            put_claim(w, *session, *ticket);
            put_fence(w, fence);
        }
        Reply::Queued { session, ticket, place: number, holder }
        | Reply::Denied { session, ticket, waiting: number, holder } => {
            put_claim(w, *session, *ticket);
            w.u32(*number);
            put_holder(w, holder);
        }
        Reply::Finished { session, ticket, outcome } => {
            put_claim(w, *session, *ticket);
            put_outcome(w, *outcome);
        }
        Reply::Described { read, description } => {
            put_read(w, *read);
            put_description(w, description);
        }
        Reply::Status(status) => {
            put_status(w, status);
            put_since_2(w, status);
        }
        Reply::OperatorDone { action } => w.u64(action.0),
        Reply::PutDone { session, ticket, revision } => {
            put_claim(w, *session, *ticket);
            w.u64(revision.0);
        }
        Reply::Deleted { session, ticket, existed } => {
            put_claim(w, *session, *ticket);
            w.bool(*existed);
        }
        Reply::Value { read, row } => {
            put_read(w, *read);
            w.bool(row.is_some());
            if let Some(row) = row {
                put_value_row(w, row);
            }
        }
        Reply::ResourceClaimed { revision, keys, other } => {
            w.u64(revision.0);
            w.u32(*keys);
            w.opt_name(other.as_deref());
        }
        Reply::Watching { watch, cluster, shard, revision } => {
            w.u64(*watch);
            w.u64(cluster.0);
            w.u32(shard.0);
            w.u64(revision.0);
        }
        Reply::Unwatched { watch } => w.u64(*watch),
        Reply::Refused(refusal) => put_refusal(w, refusal),
        Reply::Locks { .. }
        | Reply::Sessions { .. }
        | Reply::OperatorActs { .. }
        | Reply::Values { .. }
        | Reply::Resources { .. } => {
            unreachable!("pages are encoded by the caller")
        }
    }
}

fn put_read(w: &mut Writer<'_>, read: ReadMark) {
    put_consistency(w, read.consistency);
    w.u64(read.revision.0);
}

fn read(r: &mut Reader<'_>) -> Result<ReadMark, DecodeError> {
    Ok(ReadMark { consistency: consistency(r)?, revision: LogIndex(r.u64()?) })
}

/// Reads a reply; the request it answers is the frame's id.
///
/// # Errors
/// When the frame is no reply, or malformed: the connection is to be closed.
pub fn decode_reply(frame: &Frame<'_>) -> Result<Reply, MessageError> {
    let kind = frame.kind;
    if kind.group() != Group::Reply {
        return Err(MessageError::Unexpected { found: kind });
    }
    decode_body(kind, frame.body).map_err(|error| MessageError::Body { kind, error })
}

fn decode_body(kind: Kind, body: &[u8]) -> Result<Reply, DecodeError> {
    let mut r = Reader::new(body);
    let reply = match kind {
        Kind::Opened => Reply::Opened {
            session: r.session()?,
            ttl_ms: r.u32()?,
            gone_within_ms: r.u64()?,
            short_ttl: r.bool("short_ttl")?,
        },
        Kind::Attached => Reply::Attached { session: r.session()?, ttl_ms: r.u32()? },
        Kind::Renewed => Reply::Renewed { refused: list(&mut r, refusal)? },
        Kind::SessionClosed => Reply::SessionClosed { session: r.session()? },
        Kind::Granted => {
            let (session, ticket) = claim(&mut r)?;
            let fence = fence(&mut r)?;
            // Whoever wants it asks for it by itself.
            signature(&mut r)?;
            Reply::Granted { session, ticket, fence }
        }
        Kind::Queued => {
            let (session, ticket) = claim(&mut r)?;
            Reply::Queued { session, ticket, place: r.u32()?, holder: Box::new(holder(&mut r)?) }
        }
        Kind::Denied => {
            let (session, ticket) = claim(&mut r)?;
            Reply::Denied { session, ticket, waiting: r.u32()?, holder: Box::new(holder(&mut r)?) }
        }
        Kind::Finished => {
            let (session, ticket) = claim(&mut r)?;
            Reply::Finished { session, ticket, outcome: outcome(&mut r)? }
        }
        Kind::Described => {
            Reply::Described { read: read(&mut r)?, description: Box::new(description(&mut r)?) }
        }
        Kind::Locks => {
            let (read, more) = (read(&mut r)?, r.bool("more")?);
            Reply::Locks { read, more, rows: list(&mut r, lock_row)? }
        }
        Kind::Sessions => {
            let (read, more) = (read(&mut r)?, r.bool("more")?);
            Reply::Sessions { read, more, rows: list(&mut r, session_row)? }
        }
        Kind::OperatorDone => Reply::OperatorDone { action: LogIndex(r.u64()?) },
        Kind::OperatorActs => {
            let (read, more) = (read(&mut r)?, r.bool("more")?);
            Reply::OperatorActs { read, more, rows: list(&mut r, operator_row)? }
        }
        Kind::PutDone => {
            let (session, ticket) = claim(&mut r)?;
            Reply::PutDone { session, ticket, revision: LogIndex(r.u64()?) }
        }
        Kind::Deleted => {
            let (session, ticket) = claim(&mut r)?;
            Reply::Deleted { session, ticket, existed: r.bool("existed")? }
        }
        Kind::Value => {
            let read = read(&mut r)?;
            let there = r.bool("presence")?;
            let row = if there { Some(Box::new(value_row(&mut r)?)) } else { None };
            Reply::Value { read, row }
        }
        Kind::Values => {
            let (read, more) = (read(&mut r)?, r.bool("more")?);
            Reply::Values { read, more, rows: list(&mut r, value_row)? }
        }
        Kind::StatusIs => Reply::Status(Box::new(status(&mut r)?)),
        Kind::ResourceClaimed => {
            Reply::ResourceClaimed { revision: LogIndex(r.u64()?), keys: r.u32()?, other: r.opt_name()? }
        }
        Kind::Resources => {
            let (read, more) = (read(&mut r)?, r.bool("more")?);
            Reply::Resources { read, more, rows: list(&mut r, resource_row)? }
        }
        Kind::Watching => Reply::Watching {
            watch: r.u64()?,
            cluster: ClusterIdentity(r.u64()?),
            shard: ShardId(r.u32()?),
            revision: LogIndex(r.u64()?),
        },
        Kind::Unwatched => Reply::Unwatched { watch: r.u64()? },
        Kind::Refused => Reply::Refused(refusal(&mut r)?),
        _ => return Err(DecodeError::Unknown { what: "reply kind", value: u64::from(kind.number()) }),
    };
    r.finish()?;
    Ok(reply)
}
