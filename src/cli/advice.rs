//! What to do next when a call has failed: the cluster's errors say what is so, this says which
//! command helps.

use palisade_client::{CallError, Cause, Class, Refusal};

/// When nobody answers.
pub(crate) const NO_CLUSTER: &str = "`palisade status` asks each endpoint what it says; where none is running, \
                                     `palisade dev` starts one on this machine; for one elsewhere set --endpoints or \
                                     PALISADE_ENDPOINTS";

/// What a cluster of so many members does not do for whoever hopes it does.
pub(crate) fn even(members: usize) -> Option<String> {
    let survives = |members: usize| members.saturating_sub(1) / 2;
    let (as_many, fewer) = (survives(members), members.checked_sub(1)?);
    (members.is_multiple_of(2) && members > 0).then(|| match as_many {
        0 => "two nodes survive no failure: when either is gone, both stand still; three survive one"
            .to_owned(),
        _ => format!("{members} nodes survive no more failures than {fewer} ({as_many}): take an odd number"),
    })
}

/// The error, and what to do next where there is something to do.
pub(crate) fn text(error: &CallError) -> String {
    match next_step(error) {
        Some(step) => format!("{error}; {step}"),
        None => error.to_string(),
    }
}

fn next_step(error: &CallError) -> Option<&'static str> {
    match error {
        CallError::Unavailable { .. } => Some(NO_CLUSTER),
        CallError::Refused(refusal) => after_refusal(refusal),
        _ => None,
    }
}

fn after_refusal(refusal: &Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::ClassMismatch { has: Class::Advisory } => Some(
            "take it with --advisory; if it was to be --resource NAME, free it and forget its class with \
             `palisade retire KEY`",
        ),
        Refusal::ClassMismatch { has: Class::Fenced } => Some(
            "take it with --resource NAME; if it was to be --advisory, free it and forget its class with \
             `palisade retire KEY`",
        ),
        Refusal::ClassMismatch { has: Class::Election } => Some(
            "campaign for it with `palisade elect`; if it was to be a lock, free it and forget its class with \
             `palisade retire KEY`",
        ),
        Refusal::OwnedByOther { .. } => Some(
            "it is free when that session ends: within its TTL if it is silent, at once with `palisade report-dead \
             --session` if its process is dead for certain",
        ),
        Refusal::SessionEnded { cause: Cause::Forgotten, .. } => {
            Some("`palisade sessions` lists those that live")
        }
        Refusal::NotHeld { .. } | Refusal::NotAtEpoch { .. } | Refusal::InUse => {
            Some("`palisade describe KEY` tells who holds it and at which epoch")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use palisade_client::SessionId;

    fn says(error: &CallError, words: &[&str]) {
        let text = text(error);
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
    }

    #[test]
    fn an_even_number_of_members_is_remarked_upon() {
        assert!([1, 3, 5, 7, 9].into_iter().all(|odd| even(odd).is_none()));
        assert!(even(2).is_some_and(|said| said.contains("no failure")));
        assert!(even(4).is_some_and(|said| said.contains("4 nodes survive no more failures than 3 (1)")));
    }

    #[test]
    fn whoever_meets_an_error_for_the_first_time_learns_what_to_do() {
        for has in [Class::Advisory, Class::Fenced] {
            let mismatch = CallError::Refused(Refusal::ClassMismatch { has });
            says(&mismatch, &[&has.to_string(), "--advisory", "--resource", "palisade retire"]);
        }
        let waited = std::time::Duration::from_secs(1);
        let outage = CallError::Unavailable { waited, last: "refused".to_owned() };
        says(&outage, &["no usable cluster", "palisade dev", "PALISADE_ENDPOINTS"]);
        let gone = Refusal::SessionEnded { session: SessionId::default(), cause: Cause::Forgotten };
        says(&CallError::Refused(gone.clone()), &["is not or no longer remembered", "palisade sessions"]);
        assert!(!gone.to_string().contains("has ended"), "there may never have been one");
    }
}
