//! Writers as processes of their own that can be stopped, and the three stories every recipe must get right.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use palisade_fence::{Fence, OperationId};
use rustix::process::{Pid, Signal, kill_process};

use crate::{Answer, Resource, fence, open};

const RECIPE: &str = "PALISADE_RECIPE";
const DEADLINE: Duration = Duration::from_secs(20);
/// Long enough that a writer whom nothing holds up has written.
const HELD_UP: Duration = Duration::from_millis(300);

/// A process that writes what it is told to.
struct Writer {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<Said>,
}

/// What a writer's process says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// It is in the middle of its write, and goes on when it is told anything.
    Between,
    Answer(Answer),
}

impl Writer {
    /// This test binary again, running [`writer_process`] alone.
    fn start(kind: &str, address: &str) -> Writer {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "zombie::writer_process", "--nocapture"])
            .env(RECIPE, format!("{kind} {address}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, answers) = mpsc::channel();
        let said = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                let words: Vec<&str> = line.split(' ').collect();
                let number = |at: usize| words[at].parse::<u64>().unwrap();
                let _ = send.send(match words[..] {
                    ["answer", "between"] => Said::Between,
                    ["answer", "written"] => Said::Answer(Answer::Written),
                    ["answer", "refused", _] => Said::Answer(Answer::Refused { floor: number(2) }),
                    ["answer", "before", _] => Said::Answer(Answer::Before { epoch: number(2) }),
                    _ => continue,
                });
            }
        });
        Writer { orders: child.stdin.take().unwrap(), child, answers }
    }

    fn tell(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    fn answer(&self) -> Answer {
        self.answer_within(DEADLINE).expect("the writer answers")
    }

    fn answer_within(&self, time: Duration) -> Option<Answer> {
        match self.answers.recv_timeout(time).ok()? {
            Said::Answer(answer) => Some(answer),
            Said::Between => panic!("the writer is in the middle of a write"),
        }
    }

    fn ask(&mut self, order: &str) -> Answer {
        self.tell(order);
        self.answer()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Stops it, and returns once the kernel shows it stopped.
    fn stop(&self) {
        self.signal(Signal::STOP);
        let until = Instant::now() + DEADLINE;
        let stat = format!("/proc/{}/stat", self.child.id());
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(Instant::now() < until, "the writer does not stop");
            std::thread::yield_now();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test but the writer's process: without its environment it does nothing.
#[test]
fn writer_process() {
    let Ok(recipe) = std::env::var(RECIPE) else { return };
    let (kind, address) = recipe.split_once(' ').unwrap();
    let mut resource = open(kind, address);
    println!();
    let mut orders = std::io::stdin().lines().map(Result::unwrap);
    while let Some(order) = orders.next() {
        let words: Vec<&str> = order.split(' ').collect();
        let fence: Fence = words[1].parse().unwrap();
        let mut pause = || {
            println!("answer between");
            orders.next().unwrap();
        };
        let answer = match words[..] {
            ["write", _, text] => resource.write(&fence, text, &mut || ()),
            ["pause", _, text] => resource.write(&fence, text, &mut pause),
            ["once", _, id, text] => resource.once(&fence, &OperationId::new(id).unwrap(), text),
            _ => panic!("what is {order}?"),
        };
        match answer {
            Answer::Written => println!("answer written"),
            Answer::Refused { floor } => println!("answer refused {floor}"),
            Answer::Before { epoch } => println!("answer before {epoch}"),
        }
    }
}

/// The zombie has its fence and is stopped before it writes; its successor writes; the zombie wakes up and writes.
pub(crate) fn stopped_before_its_write(kind: &str, address: &str, resource: &mut dyn Resource) {
    let (mut zombie, mut successor) = (Writer::start(kind, address), Writer::start(kind, address));
    assert_eq!(zombie.ask(&format!("write {} one", fence(1))), Answer::Written);
    zombie.stop();
    zombie.tell(&format!("write {} zombie", fence(1)));
    assert_eq!(successor.ask(&format!("write {} two", fence(2))), Answer::Written);
    zombie.signal(Signal::CONT);
    assert_eq!(zombie.answer(), Answer::Refused { floor: 2 });
    assert_eq!(resource.read(), "two");
    assert_eq!(successor.ask(&format!("write {} two-again", fence(2))), Answer::Written);
    assert_eq!(resource.read(), "two-again");
}

/// The zombie is stopped in the middle of its write, its fence checked; its successor writes, or waits; the zombie goes on.
/// Whatever happens, nothing of the zombie's may lie over what its successor wrote.
pub(crate) fn stopped_in_its_write(
    kind: &str,
    address: &str,
    resource: &mut dyn Resource,
) -> Result<(), String> {
    let (mut zombie, mut successor) = (Writer::start(kind, address), Writer::start(kind, address));
    assert_eq!(zombie.ask(&format!("write {} same", fence(3))), Answer::Written);
    zombie.tell(&format!("pause {} zombie", fence(3)));
    assert_eq!(zombie.answers.recv_timeout(DEADLINE), Ok(Said::Between));
    zombie.stop();
    zombie.tell("go on");
    // The same content as before, which a comparison of contents would not notice.
    successor.tell(&format!("write {} same", fence(4)));
    let early = successor.answer_within(HELD_UP);
    zombie.signal(Signal::CONT);
    let of_zombie = zombie.answer();
    assert_eq!(early.unwrap_or_else(|| successor.answer()), Answer::Written);
    match resource.read().as_str() {
        "same" => {}
        other => return Err(format!("{other:?} lies over the successor's; the zombie: {of_zombie:?}")),
    }
    assert_eq!(zombie.ask(&format!("write {} late", fence(3))), Answer::Refused { floor: 4 });
    Ok(())
}

/// An operation that was done is not done again by a successor that cannot know it.
pub(crate) fn retried_by_a_successor(kind: &str, address: &str, resource: &mut dyn Resource) {
    let (mut first, mut successor) = (Writer::start(kind, address), Writer::start(kind, address));
    assert_eq!(first.ask(&format!("once {} monday monday-by-5", fence(5))), Answer::Written);
    first.stop();
    first.tell(&format!("once {} noon zombie", fence(5)));
    let retry = format!("once {} monday monday-by-6", fence(6));
    assert_eq!(successor.ask(&retry), Answer::Before { epoch: 5 });
    // That it was told so shuts out its predecessor: it may rely on what it reads.
    first.signal(Signal::CONT);
    assert_eq!(first.answer(), Answer::Refused { floor: 6 });
    assert_eq!(resource.read(), "monday-by-5");
    assert_eq!(successor.ask(&format!("once {} tuesday tuesday", fence(6))), Answer::Written);
    assert_eq!(resource.read(), "tuesday");
}
