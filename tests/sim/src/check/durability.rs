//! R9: no message claims what is not durable. Looked at the moment a message leaves, against what a
//! power failure would leave on the sender's disk for certain.

use palisade_raft::{AppendResult, Message};
use palisade_types::NodeId;

use super::raft::RaftCheck;
use super::{Checked, demand};

/// A node sends a message.
///
/// # Errors
/// R9.
pub fn on_send(check: &RaftCheck, node: usize, to: NodeId, message: &Message) -> Checked {
    let id = NodeId(node as u32 + 1);
    let durable = check.durable_hard_state(node);
    if let Some(term) = message.term() {
        demand(durable.term >= term, "R9", || {
            format!("node {id} says it is in term {term}, on its disk is {durable:?}: {message:?}")
        })?;
    }
    match message {
        Message::Vote(vote) if durable.term == vote.term => demand(durable.vote == Some(id), "R9", || {
            format!("node {id} stands for {}, its own vote is not on its disk: {durable:?}", vote.term)
        }),
        Message::VoteReply(reply) if reply.granted && durable.term == reply.term => {
            demand(durable.vote == Some(to), "R9", || {
                format!("node {id} votes for {to}, on its disk is {durable:?}")
            })
        }
        Message::AppendReply(reply) => match reply.result {
            AppendResult::Accepted { durable: claimed, .. } if claimed.0 > 0 => {
                let held = check.durable_log(node).at(claimed).filter(|e| e.last == claimed);
                let Some(entry) = held else {
                    return demand(false, "R9", || {
                        let last = check.durable_log(node).last();
                        format!("node {id} claims {claimed} in {}, its disk ends at {last}", reply.term)
                    });
                };
                check.leader_holds(reply.term, entry)
            }
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}
