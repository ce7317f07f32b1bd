//! The body of a request on its way through: whether all of it has passed, and how to stop it.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use http_body_util::Limited;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::oneshot;

/// Why a body breaks off: the gate has given the request up, or it is too long.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Broken {
    /// The gate has given it up.
    #[error("the gate waited too long for the rest of the body")]
    Cut,
    /// The client broke off, or sent too much.
    #[error(transparent)]
    Client(Box<dyn std::error::Error + Send + Sync>),
}

/// A body that tells when the last of it has passed.
pub(crate) struct Watched {
    inner: Limited<Body>,
    cut: oneshot::Receiver<()>,
    /// Dropped with the body, or before when its end has passed.
    under_way: Option<oneshot::Sender<()>>,
}

/// The gate's end of it.
pub(crate) struct Passage {
    over: oneshot::Receiver<()>,
    /// Dropped, it stops the body.
    _cut: oneshot::Sender<()>,
}

/// A body of at most so many bytes, and the gate's end of it.
pub(crate) fn watched(body: Body, most: usize) -> (Watched, Passage) {
    let (cut, is_cut) = oneshot::channel();
    let (under_way, over) = oneshot::channel();
    let inner = Limited::new(body, most);
    (Watched { inner, cut: is_cut, under_way: Some(under_way) }, Passage { over, _cut: cut })
}

impl Passage {
    /// Waits until nothing of the body can pass any more: all has passed, or it was dropped.
    pub(crate) async fn over(&mut self) {
        // Nothing is ever sent: the other side is dropped.
        let _ = (&mut self.over).await;
    }
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if Pin::new(&mut self.cut).poll(cx).is_ready() {
            self.under_way = None;
            return Poll::Ready(Some(Err(Broken::Cut)));
        }
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.under_way = None;
        }
        frame.map_err(Broken::Client)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
