//! One TCP connection: a task that dials, reads into the driver's queue and writes what it is given.

use std::io;

use palisade_client_core::LinkId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

/// Bytes read at a time.
const READ_BYTES: usize = 64 * 1024;
/// Bytes gathered for one write.
const WRITE_BYTES: usize = 64 * 1024;

/// What a link tells the driver.
pub(crate) enum LinkEvent {
    /// The connection stands.
    Up(LinkId),
    /// Bytes came in.
    Received(LinkId, Vec<u8>),
    /// The link to this endpoint could not be made, or has ended. Always the last event of a link.
    Down(LinkId, String, io::Error),
}

/// A link's handle. Dropping it ends the connection at once.
pub(crate) struct Link {
    outbox: mpsc::UnboundedSender<Vec<u8>>,
    task: AbortHandle,
}

impl Link {
    /// Dials, on the current tokio runtime.
    pub(crate) fn start(link: LinkId, endpoint: String, events: mpsc::Sender<LinkEvent>) -> Link {
        let (outbox, inbox) = mpsc::unbounded_channel();
        let task = tokio::spawn(async move {
            let Err(end) = carry(link, &endpoint, inbox, &events).await;
            tracing::debug!(endpoint, error = %end, "link ended");
            // Nobody listens any more once the client has stopped.
            let _ = events.send(LinkEvent::Down(link, endpoint, end)).await;
        });
        Link { outbox, task: task.abort_handle() }
    }

    /// Queues bytes. On a link that has ended they go nowhere, and its end is under way to the driver.
    pub(crate) fn send(&self, bytes: Vec<u8>) {
        let _ = self.outbox.send(bytes);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

enum Never {}

async fn carry(
    link: LinkId,
    endpoint: &str,
    inbox: mpsc::UnboundedReceiver<Vec<u8>>,
    events: &mpsc::Sender<LinkEvent>,
) -> Result<Never, io::Error> {
    let stream = TcpStream::connect(endpoint).await?;
    stream.set_nodelay(true)?;
    if events.send(LinkEvent::Up(link)).await.is_err() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let (input, output) = stream.into_split();
    tokio::select! {
        end = read(link, input, events) => end,
        end = write(output, inbox) => end,
    }
}

async fn read(
    link: LinkId,
    mut input: OwnedReadHalf,
    events: &mpsc::Sender<LinkEvent>,
) -> Result<Never, io::Error> {
    loop {
        let mut bytes = Vec::with_capacity(READ_BYTES);
        if input.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if events.send(LinkEvent::Received(link, bytes)).await.is_err() {
            return Err(io::ErrorKind::Interrupted.into());
        }
    }
}

async fn write(
    mut output: OwnedWriteHalf,
    mut inbox: mpsc::UnboundedReceiver<Vec<u8>>,
) -> Result<Never, io::Error> {
    while let Some(mut bytes) = inbox.recv().await {
        while bytes.len() < WRITE_BYTES {
            match inbox.try_recv() {
                Ok(more) => bytes.extend_from_slice(&more),
                Err(_) => break,
            }
        }
        output.write_all(&bytes).await?;
    }
    Err(io::ErrorKind::Interrupted.into())
}
