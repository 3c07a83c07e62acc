//! A connection whose client must read: each answer that waits to be read holds memory and its connection.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// How long a client may read nothing of what waits for it.
const UNREAD: Duration = Duration::from_secs(30);

/// A connection that fails when its client has read nothing for [`UNREAD`].
pub(crate) struct Patient<S> {
    stream: S,
    /// There while something waits for the client to read.
    end: Option<Pin<Box<Sleep>>>,
}

impl<S> Patient<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, end: None }
    }

    fn poll_written(&mut self, context: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.end = None;
            return written;
        }
        ready!(self.end.get_or_insert_with(|| Box::pin(sleep(UNREAD))).as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, to)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, from);
        self.poll_written(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, from);
        self.poll_written(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, duplex},
        time::{Instant, timeout},
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_reads_nothing_loses_its_connection_and_a_slow_one_does_not() {
        let (mut client, server) = duplex(1_024);
        let mut server = Patient::new(server);
        let piece = [0; 4_096];
        let mut write = async || {
            loop {
                if let Err(error) = server.write_all(&piece).await {
                    return error.kind();
                }
            }
        };
        let mut read = [0; 64];
        let slow = async {
            for _ in 0..4 {
                sleep(UNREAD * 2 / 3).await;
                assert!(client.read(&mut read).await.expect("it is open") > 0);
            }
        };
        tokio::select! {
            ended = write() => panic!("the connection of a slow client ends: {ended}"),
            () = slow => {}
        }
        let began = Instant::now();
        let ended = timeout(UNREAD * 4, write()).await.expect("it ends");
        assert_eq!(ended, io::ErrorKind::TimedOut);
        assert!(began.elapsed() <= UNREAD * 2, "{:?}", began.elapsed());
    }
}
