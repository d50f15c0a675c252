//! A connection whose peer may not stall for ever.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

#[cfg(debug_assertions)]
use crate::duration;

/// How long a peer may leave its answer unread. Then the connection is closed.
const STALL_MAX: Duration = Duration::from_secs(15);

fn stall_max() -> Duration {
    // A test cannot wait so long. Release builds do not read this variable.
    #[cfg(debug_assertions)]
    if let Some(length) = std::env::var("FENCEPOST_TEST_SERVE_STALL").ok().and_then(|text| duration::parse(&text).ok())
    {
        return length;
    }
    STALL_MAX
}

/// Fails a write that makes no progress.
#[derive(Debug)]
pub struct Prompt<S> {
    stream: S,
    /// Runs while a write waits.
    stalled: Option<Pin<Box<Sleep>>>,
}

impl<S> Prompt<S> {
    pub fn new(stream: S) -> Self {
        Self { stream, stalled: None }
    }

    /// Passes a result on, or fails if it has been pending for too long.
    fn timed<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.stalled = None;
            return result;
        }
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall_max())));
        ready!(stalled.as_mut().poll(context));
        stalled.as_mut().reset(Instant::now() + stall_max());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.timed(context, result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.timed(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(context);
        self.timed(context, result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_shutdown(context);
        self.timed(context, result)
    }
}
