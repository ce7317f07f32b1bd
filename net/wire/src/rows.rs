//! The records inside the answers to reads.

use alloc::vec::Vec;
use palisade_types::limits::VALUE_BYTES_MAX;
use palisade_types::reply::NodeStatus;
use palisade_types::{
    ClusterIdentity, DecodeError, Description, Epoch, HolderInfo, LockRow, LogIndex, NodeId, OperatorAct,
    OperatorRow, Reader, ResourceRow, SessionRow, Term, Transition, TransitionKind, ValueRow, WaiterInfo,
    Writer,
};

use crate::BODY_BYTES_MAX;
use crate::parts::{
    class, mode, opt_class, opt_node, put_class, put_mode, put_opt_class, put_opt_node, put_standing,
    put_text, standing, text, value,
};

pub(crate) fn put_holder(w: &mut Writer<'_>, holder: &HolderInfo) {
    w.session(holder.session);
    w.u64(holder.epoch.0);
    put_mode(w, holder.mode);
    w.u64(holder.held_ms);
    put_standing(w, holder.standing);
    w.opt_name(holder.owner.as_deref());
    w.opt_name(holder.incarnation.as_deref());
}

pub(crate) fn holder(r: &mut Reader<'_>) -> Result<HolderInfo, DecodeError> {
    let session = r.session()?;
    let (epoch, mode, held_ms) = (Epoch(r.u64()?), mode(r)?, r.u64()?);
    let standing = standing(r)?;
    let (owner, incarnation) = (r.opt_name()?, r.opt_name()?);
    Ok(HolderInfo { session, owner, incarnation, epoch, mode, held_ms, standing })
}

fn put_opt_holder(w: &mut Writer<'_>, holder: Option<&HolderInfo>) {
    w.bool(holder.is_some());
    if let Some(holder) = holder {
        put_holder(w, holder);
    }
}

fn opt_holder(r: &mut Reader<'_>) -> Result<Option<HolderInfo>, DecodeError> {
    Ok(if r.bool("presence")? { Some(holder(r)?) } else { None })
}

pub(crate) fn put_description(w: &mut Writer<'_>, d: &Description) {
    w.name(&d.key);
    put_opt_class(w, d.class);
    w.opt_name(d.resource.as_deref());
    w.u64(d.epoch.0);
    w.u32(d.holding);
    w.u32(d.holders.len() as u32);
    for holder in &d.holders {
        put_holder(w, holder);
    }
    w.bool(d.value.is_some());
    if let Some(value) = &d.value {
        w.bytes(value);
    }
    w.u32(d.waiting);
    w.u32(d.waiters.len() as u32);
    for waiter in &d.waiters {
        w.session(waiter.session);
        put_mode(w, waiter.mode);
        w.u64(waiter.waited_ms);
        w.opt_name(waiter.owner.as_deref());
    }
    w.u32(d.transitions.len() as u32);
    for transition in &d.transitions {
        put_transition(w, transition);
    }
}

pub(crate) fn description(r: &mut Reader<'_>) -> Result<Description, DecodeError> {
    let (key, class, resource) = (r.name()?, opt_class(r)?, r.opt_name()?);
    let epoch = Epoch(r.u64()?);
    let (holding, holders) = (r.u32()?, list(r, holder)?);
    let value = if r.bool("presence")? { Some(value(r)?) } else { None };
    let waiting = r.u32()?;
    let waiters = list(r, |r| {
        let (session, mode, waited_ms) = (r.session()?, mode(r)?, r.u64()?);
        Ok(WaiterInfo { session, owner: r.opt_name()?, mode, waited_ms })
    })?;
    let transitions = list(r, transition)?;
    Ok(Description { key, class, resource, epoch, holding, holders, value, waiting, waiters, transitions })
}

fn put_transition(w: &mut Writer<'_>, t: &Transition) {
    w.u64(t.revision.0);
    w.session(t.session);
    w.u64(t.epoch.0);
    w.u64(t.ago_ms);
    t.kind.encode(w);
}

fn transition(r: &mut Reader<'_>) -> Result<Transition, DecodeError> {
    let (revision, session) = (LogIndex(r.u64()?), r.session()?);
    let (epoch, ago_ms) = (Epoch(r.u64()?), r.u64()?);
    let kind = TransitionKind::decode(r)?;
    Ok(Transition { revision, kind, session, epoch, ago_ms })
}

pub(crate) fn put_operator_row(w: &mut Writer<'_>, row: &OperatorRow) {
    w.u64(row.revision.0);
    w.u64(row.ago_ms);
    w.name(&row.by);
    w.name(&row.reason);
    row.act.as_ref().encode(w);
}

pub(crate) fn operator_row(r: &mut Reader<'_>) -> Result<OperatorRow, DecodeError> {
    let (revision, ago_ms) = (LogIndex(r.u64()?), r.u64()?);
    Ok(OperatorRow { revision, ago_ms, by: r.name()?, reason: r.name()?, act: OperatorAct::decode(r)? })
}

/// Reads a count and so many records. Room is made as records come, not as the count claims.
pub(crate) fn list<T>(
    r: &mut Reader<'_>,
    one: impl Fn(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = r.u32()?;
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(one(r)?);
    }
    Ok(all)
}

/// Appends `more`, the count and the rows. Rows that would make the body too long are left for the
/// next page, which `more` then announces.
pub(crate) fn put_page<T>(
    out: &mut Vec<u8>,
    body: usize,
    rows: &[T],
    more: bool,
    put: impl Fn(&mut Writer<'_>, &T),
) {
    let head = out.len();
    Writer(out).bool(more);
    Writer(out).u32(rows.len() as u32);
    for (n, row) in rows.iter().enumerate() {
        let before = out.len();
        put(&mut Writer(out), row);
        if out.len() - body > BODY_BYTES_MAX {
            out.truncate(before);
            out[head] = 1;
            out[head + 1..head + 5].copy_from_slice(&(n as u32).to_le_bytes());
            return;
        }
    }
}

pub(crate) fn put_lock_row(w: &mut Writer<'_>, row: &LockRow) {
    w.name(&row.key);
    put_class(w, row.class);
    w.u64(row.epoch.0);
    w.u32(row.waiting);
    w.u32(row.holding);
    put_opt_holder(w, row.holder.as_ref());
}

pub(crate) fn lock_row(r: &mut Reader<'_>) -> Result<LockRow, DecodeError> {
    let (key, class) = (r.name()?, class(r)?);
    let (epoch, waiting, holding) = (Epoch(r.u64()?), r.u32()?, r.u32()?);
    Ok(LockRow { key, class, epoch, waiting, holding, holder: opt_holder(r)? })
}

pub(crate) fn put_session_row(w: &mut Writer<'_>, row: &SessionRow) {
    w.session(row.session);
    w.u32(row.ttl_ms);
    w.u32(row.held);
    w.u32(row.waiting);
    w.u32(row.values);
    w.bool(row.quarantined);
    w.opt_name(row.owner.as_deref());
    w.opt_name(row.incarnation.as_deref());
}

pub(crate) fn session_row(r: &mut Reader<'_>) -> Result<SessionRow, DecodeError> {
    let session = r.session()?;
    let (ttl_ms, held, waiting, values) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
    let quarantined = r.bool("quarantined")?;
    let (owner, incarnation) = (r.opt_name()?, r.opt_name()?);
    Ok(SessionRow { session, ttl_ms, held, waiting, values, quarantined, owner, incarnation })
}

pub(crate) fn put_value_row(w: &mut Writer<'_>, row: &ValueRow) {
    w.name(&row.key);
    w.session(row.session);
    w.u64(row.created.0);
    w.u64(row.modified.0);
    w.bool(row.ending);
    w.opt_name(row.owner.as_deref());
    w.bytes(&row.value);
}

pub(crate) fn value_row(r: &mut Reader<'_>) -> Result<ValueRow, DecodeError> {
    let (key, session) = (r.name()?, r.session()?);
    let (created, modified) = (LogIndex(r.u64()?), LogIndex(r.u64()?));
    let (ending, owner) = (r.bool("ending")?, r.opt_name()?);
    let value = r.bytes("value", VALUE_BYTES_MAX)?.into();
    Ok(ValueRow { key, value, session, owner, created, modified, ending })
}

pub(crate) fn put_resource_row(w: &mut Writer<'_>, row: &ResourceRow) {
    w.name(&row.resource);
    w.u32(row.count);
    w.u32(row.keys.len() as u32);
    for key in &row.keys {
        w.name(key);
    }
}

pub(crate) fn resource_row(r: &mut Reader<'_>) -> Result<ResourceRow, DecodeError> {
    Ok(ResourceRow { resource: r.name()?, count: r.u32()?, keys: list(r, |r| r.name())? })
}

pub(crate) fn put_status(w: &mut Writer<'_>, s: &NodeStatus) {
    w.u32(s.node.0);
    w.u64(s.term.0);
    put_opt_node(w, s.leader);
    for number in [s.last.0, s.durable.0, s.commit.0, s.applied.0, s.sessions, s.keys, s.log_bytes, s.boot] {
        w.u64(number);
    }
    put_text(w, &s.role);
}

/// What follows a status from version 2 on.
pub(crate) fn put_since_2(w: &mut Writer<'_>, s: &NodeStatus) {
    w.bool(s.cluster.is_some());
    if let Some(identity) = s.cluster {
        w.u64(identity.0);
    }
    w.u64(s.snapshot.0);
}

fn opt_identity(r: &mut Reader<'_>) -> Result<Option<ClusterIdentity>, DecodeError> {
    let there = r.bool("presence")?;
    Ok(if there { Some(ClusterIdentity(r.u64()?)) } else { None })
}

pub(crate) fn status(r: &mut Reader<'_>) -> Result<NodeStatus, DecodeError> {
    let mut status = NodeStatus {
        node: NodeId(r.u32()?),
        term: Term(r.u64()?),
        leader: opt_node(r)?,
        last: LogIndex(r.u64()?),
        durable: LogIndex(r.u64()?),
        commit: LogIndex(r.u64()?),
        applied: LogIndex(r.u64()?),
        sessions: r.u64()?,
        keys: r.u64()?,
        log_bytes: r.u64()?,
        boot: r.u64()?,
        role: text(r)?,
        cluster: None,
        snapshot: LogIndex(0),
    };
    // Version 1 ends here.
    if r.remaining() > 0 {
        status.cluster = opt_identity(r)?;
        status.snapshot = LogIndex(r.u64()?);
    }
    Ok(status)
}
