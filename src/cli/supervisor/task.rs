//! How the supervisor is told what to supervise.

use std::ffi::OsString;
use std::time::Duration;

use palisade_types::Time;
use palisade_types::time::nanos;

use super::VERB;
use super::protocol::Reach;

/// What a supervisor is started with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// The number of the descriptor of its socket.
    pub(crate) socket: i32,
    /// How far the lease reaches.
    pub(crate) reach: Reach,
    /// How long after SIGTERM a SIGKILL follows.
    pub(crate) kill_after: Duration,
    /// Whether the command gets the terminal.
    pub(crate) terminal: bool,
    /// The command and its arguments: one word at least.
    pub(crate) words: Vec<OsString>,
}

impl Task {
    /// As arguments.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let numbers = [
            self.socket.to_string(),
            self.reach.deadline.0.to_string(),
            self.reach.end.0.to_string(),
            nanos(self.kill_after).to_string(),
            u8::from(self.terminal).to_string(),
        ];
        let numbers = numbers.map(OsString::from);
        [VERB.into()].into_iter().chain(numbers).chain(self.words.iter().cloned()).collect()
    }

    /// Out of its arguments, without the name of the program; none if they are not those of a supervisor.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Option<Task> {
        let mut arguments = arguments.into_iter();
        let verb = arguments.next()?;
        let mut number = || arguments.next()?.to_str()?.parse::<u64>().ok();
        let (socket, deadline, end, kill_after, terminal) =
            (number()?, number()?, number()?, number()?, number()?);
        let words: Vec<OsString> = arguments.collect();
        (verb == VERB && !words.is_empty()).then_some(())?;
        Some(Task {
            socket: i32::try_from(socket).ok()?,
            reach: Reach { deadline: Time(deadline), end: Time(end) },
            kill_after: Duration::from_nanos(kill_after),
            terminal: terminal != 0,
            words,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_back_out_of_its_arguments_with_all_words_untouched() {
        let task = Task {
            socket: 9,
            reach: Reach { deadline: Time(5), end: Time::FAR },
            kill_after: Duration::from_millis(1_500),
            terminal: true,
            words: ["--", VERB, "-n", "", "a b"].map(OsString::from).to_vec(),
        };
        let arguments = task.arguments();
        assert_eq!(Task::parse(arguments.clone()), Some(task));
        for cut in 0..7 {
            assert_eq!(Task::parse(arguments[..cut.min(6)].to_vec()), None);
        }
        assert_eq!(Task::parse(["lock", "9", "5", "6", "7", "1", "true"].map(OsString::from)), None);
    }
}
