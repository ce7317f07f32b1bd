//! What the process that keeps something tells the command it runs: how much is left. Only it knows, since
//! it renews the session. The command's `palisade check` asks over a socket without a file, whose name it
//! finds in its environment: nothing is left behind when this process is killed, and nobody answers then.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use rustix::rand::{GetRandomFlags, getrandom};
use tokio::io::AsyncReadExt;
use tokio::net::{UnixListener, UnixStream};

use super::exit::{self, Failure};

/// The variable that names the socket.
pub(super) const VARIABLE: &str = "PALISADE_CHECK";
/// How long to rest when a question cannot be taken, for want of descriptors say.
const REST: Duration = Duration::from_millis(100);
/// The longest answer.
const ANSWER_BYTES_MAX: u64 = 32;

/// The socket that is asked.
pub(super) struct Answers {
    listener: UnixListener,
    name: String,
}

impl Answers {
    /// Opens the socket, under a random name. Whoever looks for it finds it among the system's sockets: it
    /// says nothing but how much of a lease is left, and whoever asks looks who answers.
    ///
    /// # Errors
    /// With 71 when the system gives none.
    pub(super) fn open() -> Result<Answers, Failure> {
        let opened =
            name().and_then(|name| Ok(Answers { listener: UnixListener::bind(address(&name))?, name }));
        opened.map_err(|e| Failure::new(exit::OS, format!("cannot open a socket for `palisade check`: {e}")))
    }

    /// What [`VARIABLE`] is to say.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Answers whoever asks. May be dropped at any point; who asks then is answered by the next call.
    pub(super) async fn serve(&self, remaining: impl Fn() -> Duration) -> Infallible {
        loop {
            match self.listener.accept().await {
                Ok((asker, _)) => answer(asker, remaining()),
                Err(_) => tokio::time::sleep(REST).await,
            }
        }
    }
}

/// The few bytes fit into the empty socket, so this waits for nobody. An asker that has gone needs no answer.
fn answer(asker: UnixStream, remaining: Duration) {
    let _ = asker.into_std().and_then(|mut asker| writeln!(asker, "{}", remaining.as_millis()));
}

fn name() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty())?;
    // The kernel gives so few bytes whole, once it gives any.
    if filled < bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(format!("palisade-check-{:032x}", u128::from_ne_bytes(bytes)))
}

/// The leading zero byte says: no file.
fn address(name: &str) -> OsString {
    OsString::from_vec([b"\0", name.as_bytes()].concat())
}

/// What became of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// So much is left.
    Left(Duration),
    /// Nobody answers under this name: the process has gone, or has given up what it kept.
    Gone,
    /// It did not answer in time: it is stopped, or overloaded.
    Silent,
}

/// Asks the process that keeps something.
///
/// # Errors
/// When the system lets nobody ask, or what answers is not a process of ours.
pub(super) async fn ask(name: &str, within: Duration) -> io::Result<Told> {
    match tokio::time::timeout(within, exchange(name)).await {
        Ok(Err(e)) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(Told::Gone),
        Ok(Err(e)) if matches!(e.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) => {
            Ok(Told::Gone)
        }
        // Too many who asked before are not answered yet.
        Ok(Err(e)) if e.kind() == io::ErrorKind::WouldBlock => Ok(Told::Silent),
        Ok(told) => told,
        Err(_) => Ok(Told::Silent),
    }
}

async fn exchange(name: &str) -> io::Result<Told> {
    let stream = UnixStream::connect(address(name)).await?;
    // Names without a file belong to whoever takes them first: another user may have taken that of a
    // process that has gone.
    let uid = stream.peer_cred()?.uid();
    if uid != rustix::process::getuid().as_raw() && uid != 0 {
        let why = format!(
            "who answers is another user (uid {uid}): ask as the one that the command was started by"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let mut text = String::new();
    stream.take(ANSWER_BYTES_MAX).read_to_string(&mut text).await?;
    match text.strip_suffix('\n').and_then(|number| number.parse().ok()) {
        Some(ms) => Ok(Told::Left(Duration::from_millis(ms))),
        // It closed the socket with our question in it.
        None if text.is_empty() => Ok(Told::Gone),
        None => Err(io::Error::new(io::ErrorKind::InvalidData, "what answers is not `palisade`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn on_runtime<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    #[test]
    fn everybody_who_asks_is_told_what_is_left_until_nobody_answers() {
        on_runtime(async {
            let answers = Answers::open().unwrap();
            let name = answers.name().to_owned();
            for left in [Duration::from_millis(1_234), Duration::ZERO, Duration::from_secs(3_600)] {
                let told = tokio::select! {
                    told = ask(&name, PATIENCE) => told.unwrap(),
                    never = answers.serve(|| left) => match never {},
                };
                assert_eq!(told, Told::Left(left));
            }
            assert_eq!(ask(&name, Duration::from_millis(20)).await.unwrap(), Told::Silent);
            drop(answers);
            assert_eq!(ask(&name, PATIENCE).await.unwrap(), Told::Gone);
        });
    }

    #[test]
    fn who_was_not_answered_before_the_end_is_told_that_it_is_over() {
        on_runtime(async {
            let answers = Answers::open().unwrap();
            let name = answers.name().to_owned();
            let mut asked = std::pin::pin!(ask(&name, PATIENCE));
            let early = tokio::time::timeout(Duration::from_millis(20), &mut asked).await;
            assert!(early.is_err(), "nobody answers yet");
            drop(answers);
            assert_eq!(asked.await.unwrap(), Told::Gone);
        });
    }

    #[test]
    fn two_never_share_a_name() {
        on_runtime(async {
            let (one, other) = (Answers::open().unwrap(), Answers::open().unwrap());
            assert_ne!(one.name(), other.name());
        });
    }
}
