//! Refusals: a number, then what the caller needs next.

use palisade_types::{Cause, DecodeError, Epoch, LogIndex, NodeId, Reader, Refusal, Term, Ticket, Writer};

use crate::parts::{class, opt_node, outcome, put_class, put_opt_node, put_outcome, put_text, text};

pub(crate) fn put_refusal(w: &mut Writer<'_>, refusal: &Refusal) {
    match refusal {
        Refusal::NotLeader { leader } => {
            w.u16(1);
            put_opt_node(w, *leader);
        }
        Refusal::Busy { retry_after_ms } => {
            w.u16(2);
            w.u32(*retry_after_ms);
        }
        Refusal::QuotaExceeded { what, limit } => {
            w.u16(3);
            w.u64(*limit);
            put_text(w, what);
        }
        Refusal::SessionEnded { session, cause } => {
            w.u16(4);
            w.session(*session);
            cause.encode(w);
        }
        Refusal::NotAttached { session } => {
            w.u16(5);
            w.session(*session);
        }
        Refusal::SessionFull { what, limit } => {
            w.u16(6);
            w.u64(*limit);
            put_text(w, what);
        }
        Refusal::ClassMismatch { has } => {
            w.u16(7);
            put_class(w, *has);
        }
        Refusal::TicketMismatch { ticket } => {
            w.u16(8);
            w.u64(ticket.0);
        }
        Refusal::TicketFinished { ticket, outcome } => {
            w.u16(9);
            w.u64(ticket.0);
            put_outcome(w, *outcome);
        }
        Refusal::BadRequest { reason } => {
            w.u16(10);
            put_text(w, reason);
        }
        Refusal::Interrupted { leader } => {
            w.u16(11);
            put_opt_node(w, *leader);
        }
        Refusal::NotHeld { asked, last } => {
            w.u16(12);
            w.u64(asked.0);
            w.u64(last.0);
        }
        Refusal::InUse => w.u16(13),
        Refusal::Compacted { oldest } => {
            w.u16(16);
            w.u64(oldest.0);
        }
        Refusal::ClusterReset => w.u16(17),
        Refusal::OwnedByOther { session, owner } => {
            w.u16(14);
            w.session(*session);
            w.opt_name(owner.as_deref());
        }
        Refusal::NotAtEpoch { asked, last } => {
            w.u16(20);
            w.u64(asked.0);
            w.u64(last.0);
        }
        Refusal::NotAVoter { node } => {
            w.u16(24);
            w.u32(node.0);
        }
        Refusal::OtherTerm { asked, term, leader } => {
            w.u16(25);
            w.u64(asked.0);
            w.u64(term.0);
            w.u32(leader.0);
        }
        Refusal::NotHandedOver { leader } => {
            w.u16(26);
            w.u32(leader.0);
        }
    }
}

pub(crate) fn refusal(r: &mut Reader<'_>) -> Result<Refusal, DecodeError> {
    Ok(match r.u16()? {
        1 => Refusal::NotLeader { leader: opt_node(r)? },
        2 => Refusal::Busy { retry_after_ms: r.u32()? },
        3 => {
            let limit = r.u64()?;
            Refusal::QuotaExceeded { what: text(r)?, limit }
        }
        4 => Refusal::SessionEnded { session: r.session()?, cause: Cause::decode(r)? },
        5 => Refusal::NotAttached { session: r.session()? },
        6 => {
            let limit = r.u64()?;
            Refusal::SessionFull { what: text(r)?, limit }
        }
        7 => Refusal::ClassMismatch { has: class(r)? },
        8 => Refusal::TicketMismatch { ticket: Ticket(r.u64()?) },
        9 => Refusal::TicketFinished { ticket: Ticket(r.u64()?), outcome: outcome(r)? },
        10 => Refusal::BadRequest { reason: text(r)? },
        11 => Refusal::Interrupted { leader: opt_node(r)? },
        12 => Refusal::NotHeld { asked: Epoch(r.u64()?), last: Epoch(r.u64()?) },
        13 => Refusal::InUse,
        14 => Refusal::OwnedByOther { session: r.session()?, owner: r.opt_name()? },
        20 => Refusal::NotAtEpoch { asked: Epoch(r.u64()?), last: Epoch(r.u64()?) },
        24 => Refusal::NotAVoter { node: NodeId(r.u32()?) },
        25 => Refusal::OtherTerm { asked: Term(r.u64()?), term: Term(r.u64()?), leader: NodeId(r.u32()?) },
        26 => Refusal::NotHandedOver { leader: NodeId(r.u32()?) },
        16 => Refusal::Compacted { oldest: LogIndex(r.u64()?) },
        17 => Refusal::ClusterReset,
        other => return Err(DecodeError::Unknown { what: "refusal", value: u64::from(other) }),
    })
}
