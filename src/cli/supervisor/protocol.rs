//! What wrapper and supervisor tell each other over their socket: frames of one size, a kind and two numbers.
//! Both are the same executable, so there are no versions.

use std::time::Duration;

use palisade_types::Time;

/// The bytes of a frame.
pub(crate) const FRAME: usize = 17;

/// How far the lease reaches, on CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reach {
    /// From then on the command is to end.
    pub(crate) deadline: Time,
    /// From then on somebody else may have what it was given. [`Time::FAR`]: that would do no harm.
    pub(crate) end: Time,
}

impl Reach {
    /// When SIGKILL is due if SIGTERM is sent at `now`: so much later as was asked, and in any case while a
    /// quarter of the margin is left in which nobody else can have it.
    pub(crate) fn kill_at(&self, now: Time, kill_after: Duration) -> Time {
        let reserve = self.end.since(self.deadline) / 4;
        (now + kill_after).min(self.end - reserve)
    }
}

/// The wrapper to the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The lease reaches so far: a renewal was acknowledged.
    Renewed(Reach),
    /// Send this signal to the command's process group.
    Signal(i32),
    /// It is lost: SIGTERM to all of the command, and SIGKILL at this time.
    End { kill_at: Time },
}

/// The supervisor to the wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The command runs, with this process id, which is that of its group.
    Started(i32),
    /// It cannot be run, for this reason of the system's.
    Failed(i32),
    /// It was stopped.
    Stopped,
    /// It ended, with this status as a shell would report it.
    Ended(u8),
    /// It left processes behind, which are being ended.
    LeftBehind,
    /// No renewal was heard of in time: it is being ended.
    Overdue,
    /// Something of it cannot be ended.
    Stuck,
    /// Nothing of it is left.
    Gone,
}

fn frame(kind: u8, one: u64, two: u64) -> [u8; FRAME] {
    let mut bytes = [kind; FRAME];
    bytes[1..9].copy_from_slice(&one.to_le_bytes());
    bytes[9..].copy_from_slice(&two.to_le_bytes());
    bytes
}

fn parts(bytes: &[u8; FRAME]) -> (u8, u64, u64) {
    let number = |from: usize| (0..8).rev().fold(0, |n, i| n << 8 | u64::from(bytes[from + i]));
    (bytes[0], number(1), number(9))
}

/// A number of the system's, which is small and may be negative.
fn packed(number: i32) -> u64 {
    u64::from(number.cast_unsigned())
}

fn unpacked(number: u64) -> Option<i32> {
    u32::try_from(number).ok().map(u32::cast_signed)
}

/// A message that fits into a frame.
pub(crate) trait Message: Sized {
    /// Its bytes.
    fn encode(&self) -> [u8; FRAME];
    /// The message; none if the bytes are none.
    fn decode(bytes: &[u8; FRAME]) -> Option<Self>;
}

impl Message for Order {
    fn encode(&self) -> [u8; FRAME] {
        match self {
            Order::Renewed(reach) => frame(0, reach.deadline.0, reach.end.0),
            Order::Signal(number) => frame(1, packed(*number), 0),
            Order::End { kill_at } => frame(2, kill_at.0, 0),
        }
    }

    fn decode(bytes: &[u8; FRAME]) -> Option<Order> {
        match parts(bytes) {
            (0, deadline, end) => Some(Order::Renewed(Reach { deadline: Time(deadline), end: Time(end) })),
            (1, number, 0) => unpacked(number).map(Order::Signal),
            (2, kill_at, 0) => Some(Order::End { kill_at: Time(kill_at) }),
            _ => None,
        }
    }
}

impl Message for Report {
    fn encode(&self) -> [u8; FRAME] {
        match self {
            Report::Started(pid) => frame(10, packed(*pid), 0),
            Report::Failed(error) => frame(11, packed(*error), 0),
            Report::Stopped => frame(12, 0, 0),
            Report::Ended(code) => frame(13, u64::from(*code), 0),
            Report::LeftBehind => frame(14, 0, 0),
            Report::Overdue => frame(15, 0, 0),
            Report::Stuck => frame(16, 0, 0),
            Report::Gone => frame(17, 0, 0),
        }
    }

    fn decode(bytes: &[u8; FRAME]) -> Option<Report> {
        match parts(bytes) {
            (10, pid, 0) => unpacked(pid).map(Report::Started),
            (11, error, 0) => unpacked(error).map(Report::Failed),
            (12, 0, 0) => Some(Report::Stopped),
            (13, code, 0) => u8::try_from(code).ok().map(Report::Ended),
            (14, 0, 0) => Some(Report::LeftBehind),
            (15, 0, 0) => Some(Report::Overdue),
            (16, 0, 0) => Some(Report::Stuck),
            (17, 0, 0) => Some(Report::Gone),
            _ => None,
        }
    }
}

/// What has arrived and is no whole frame yet.
#[derive(Debug, Default)]
pub(crate) struct Inbox(Vec<u8>);

impl Inbox {
    /// Takes bytes as they come.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// The next message that is whole. What is none is passed over.
    pub(crate) fn next<M: Message>(&mut self) -> Option<M> {
        while let Some(bytes) = self.0.first_chunk::<FRAME>() {
            let message = M::decode(bytes);
            self.0.drain(..FRAME);
            if message.is_some() {
                return message;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_comes_back_as_it_went_however_the_bytes_are_cut() {
        let reach = Reach { deadline: Time(u64::MAX - 1), end: Time::FAR };
        let orders = [Order::Renewed(reach), Order::Signal(15), Order::End { kill_at: Time(7) }];
        let reports = [
            Report::Started(4_194_304),
            Report::Failed(-2),
            Report::Stopped,
            Report::Ended(255),
            Report::LeftBehind,
            Report::Overdue,
            Report::Stuck,
            Report::Gone,
        ];
        for cut in 1..=2 * FRAME {
            assert_eq!(cut_and_read(&orders, cut), orders);
            assert_eq!(cut_and_read(&reports, cut), reports);
        }
        let mut inbox = Inbox::default();
        inbox.take(&[99; FRAME]);
        inbox.take(&Report::Gone.encode());
        assert_eq!(inbox.next(), Some(Report::Gone), "what is no message is passed over");
    }

    fn cut_and_read<M: Message>(messages: &[M], cut: usize) -> Vec<M> {
        let bytes: Vec<u8> = messages.iter().flat_map(M::encode).collect();
        let mut inbox = Inbox::default();
        let mut read = Vec::new();
        for part in bytes.chunks(cut) {
            inbox.take(part);
            read.extend(std::iter::from_fn(|| inbox.next()));
        }
        read
    }

    #[test]
    fn the_kill_comes_as_asked_and_never_after_three_quarters_of_the_margin() {
        let s = Duration::from_secs;
        let reach = Reach { deadline: Time(0) + s(10), end: Time(0) + s(14) };
        assert_eq!(reach.kill_at(Time(0) + s(10), s(2)), Time(0) + s(12));
        assert_eq!(reach.kill_at(Time(0) + s(10), s(60)), Time(0) + s(13));
        assert_eq!(reach.kill_at(Time(0) + s(20), s(60)), Time(0) + s(13), "woken too late: at once");
        let harmless = Reach { deadline: Time(0) + s(10), end: Time::FAR };
        assert!(harmless.kill_at(Time(0) + s(10), s(60)) == Time(0) + s(70));
    }
}
