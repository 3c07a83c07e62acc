//! Reads the broker's greeting, *Connection.Start*: the first frame of every connection. It has the cluster's name and
//! the broker's version. lapin does not expose it, so lapin is given a stream that remembers the first frame.

use std::{
    io, mem,
    net::SocketAddr,
    os::fd::{AsFd, AsRawFd},
    pin::Pin,
    sync::{Arc, OnceLock},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use amq_protocol::{
    frame::{AMQPFrame, parse_frame},
    protocol::{
        AMQPClass,
        connection::{AMQPMethod, Start},
    },
};
use async_rs::{Runtime, Tokio, traits::Reactor, util::RuntimeParts};
use futures_util::{
    Stream,
    io::{AsyncRead, AsyncWrite},
};
use lapin::types::AMQPValue;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_util::{
    compat::{Compat, TokioAsyncReadCompatExt as _},
    either::Either,
};

use super::returns::{Returns, Sieve};
use crate::ports::BrokerIdentity;

/// The longest greeting that is read, in bytes. RabbitMQ's greeting has some 500.
const LONGEST: usize = 64 * 1024;

/// A connection, without TLS or with it.
pub(super) type Socket = Either<TcpStream, TlsStream<TcpStream>>;

/// The broker's identity, set once the greeting has been read.
pub(super) type SharedIdentity = Arc<OnceLock<BrokerIdentity>>;

/// A connection to a broker that remembers the greeting. It is around TLS, so it reads the greeting in the clear.
pub(super) struct Greeted {
    stream: Compat<Socket>,
    /// The part of the greeting that has arrived, until the greeting is complete.
    coming: Option<(Vec<u8>, SharedIdentity)>,
    /// Takes out the messages that the broker returns, on a connection that publishes.
    sieve: Option<Sieve>,
}

impl Greeted {
    pub(super) fn new(socket: Socket, answered: SharedIdentity, returns: Option<Arc<Returns>>) -> Self {
        Self { stream: socket.compat(), coming: Some((Vec::new(), answered)), sieve: returns.map(Sieve::new) }
    }

    fn observe(&mut self, bytes: &[u8]) {
        let Some((mut heard, answered)) = mem::take(&mut self.coming) else { return };
        heard.extend_from_slice(bytes);
        match parse_frame(heard.as_slice()) {
            Ok((_, AMQPFrame::Method(_, AMQPClass::Connection(AMQPMethod::Start(start))))) => {
                // It is not set yet, because a stream has one greeting.
                let _ = answered.set(identity(&start));
            }
            Err(error) if error.is_incomplete() && heard.len() < LONGEST => self.coming = Some((heard, answered)),
            // This is no AMQP greeting, and lapin reports that.
            _ => {}
        }
    }
}

fn identity(start: &Start) -> BrokerIdentity {
    let text = |name: &str| match start.server_properties.inner().get(name) {
        Some(AMQPValue::LongString(text)) => Some(text.to_string()),
        _ => None,
    };
    let is_rabbitmq = text("product").as_deref() == Some("RabbitMQ");
    BrokerIdentity { cluster_name: text("cluster_name"), version: text("version").filter(|_| is_rabbitmq) }
}

impl AsyncRead for Greeted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let passed = self.sieve.as_mut().map_or(0, |sieve| sieve.give(buffer));
            if passed > 0 {
                return Poll::Ready(Ok(passed));
            }
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
            self.observe(&buffer[..read]);
            match &mut self.sieve {
                Some(sieve) if read > 0 => sieve.take(&buffer[..read]),
                _ => return Poll::Ready(Ok(read)),
            }
        }
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [io::IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.coming.is_none() && self.sieve.is_none() {
            return Pin::new(&mut self.stream).poll_read_vectored(cx, buffers);
        }
        match buffers.iter_mut().find(|buffer| !buffer.is_empty()) {
            Some(buffer) => self.poll_read(cx, buffer),
            None => self.poll_read(cx, &mut []),
        }
    }
}

impl AsyncWrite for Greeted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buffer)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, buffers)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(cx)
    }
}

/// Returns the tokio runtime that lapin uses by default, with [`Greeted`] as the type of its streams.
pub(super) fn runtime() -> Runtime<RuntimeParts<Tokio, Greeting>> {
    Runtime::new(RuntimeParts::new(Tokio::current(), Greeting(Tokio::current())))
}

/// Tokio's reactor with [`Greeted`] streams.
#[derive(Clone, Debug)]
pub(super) struct Greeting(Tokio);

impl Reactor for Greeting {
    type TcpStream = Greeted;
    type Sleep = <Tokio as Reactor>::Sleep;

    fn register<H: io::Read + io::Write + AsFd + AsRawFd + Send + 'static>(
        &self,
        socket: H,
    ) -> io::Result<impl AsyncRead + AsyncWrite + Send + Unpin + 'static> {
        self.0.register(socket)
    }

    fn sleep(&self, duration: Duration) -> Self::Sleep {
        self.0.sleep(duration)
    }

    fn interval(&self, duration: Duration) -> impl Stream<Item = Instant> + Send + 'static {
        self.0.interval(duration)
    }

    fn tcp_connect_addr(
        &self,
        address: SocketAddr,
    ) -> impl Future<Output = io::Result<Self::TcpStream>> + Send + 'static {
        let connecting = TcpStream::connect(address);
        async { Ok(Greeted::new(Either::Left(connecting.await?), SharedIdentity::default(), None)) }
    }
}

#[cfg(test)]
mod tests {
    use amq_protocol::frame::{WriteContext, gen_frame};
    use lapin::types::{FieldTable, LongString};
    use rstest::rstest;
    use tokio::{io::AsyncWriteExt as _, net::TcpListener};

    use super::*;

    fn greeting(properties: &[(&str, &str)]) -> Vec<u8> {
        let mut server_properties = FieldTable::default();
        for (name, text) in properties {
            server_properties.insert((*name).into(), AMQPValue::LongString(LongString::from(*text)));
        }
        let start = Start {
            version_major: 0,
            version_minor: 9,
            server_properties,
            mechanisms: "PLAIN".into(),
            locales: "en_US".into(),
        };
        let frame = AMQPFrame::Method(0, AMQPClass::Connection(AMQPMethod::Start(start)));
        gen_frame(&frame)(WriteContext::from(Vec::new())).expect("a frame").into_inner().0
    }

    /// Returns the identity that is found in these bytes when they are read in pieces of this size.
    async fn heard(bytes: &[u8], piece: usize) -> Option<BrokerIdentity> {
        let found = heard_by(None, bytes, piece).await;
        assert_eq!(heard_by(Some(Arc::default()), bytes, piece).await, found, "on a connection that publishes");
        found
    }

    async fn heard_by(returns: Option<Arc<Returns>>, bytes: &[u8], piece: usize) -> Option<BrokerIdentity> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let (connected, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let mut server = accepted.expect("a client").0;
        server.write_all(bytes).await.expect("a reader");
        server.shutdown().await.expect("a reader");
        let answered = SharedIdentity::default();
        let connected = Either::Left(connected.expect("a server"));
        let mut stream = Greeted::new(connected, Arc::clone(&answered), returns);
        let (mut read, mut piece) = (Vec::new(), vec![0; piece]);
        loop {
            let count = std::future::poll_fn(|cx| {
                let mut buffers = [io::IoSliceMut::new(&mut []), io::IoSliceMut::new(&mut piece)];
                Pin::new(&mut stream).poll_read_vectored(cx, &mut buffers)
            });
            match count.await.expect("a stream") {
                0 => break,
                count => read.extend_from_slice(&piece[..count]),
            }
        }
        assert_eq!(read, bytes);
        answered.get().cloned()
    }

    #[rstest]
    #[case(1)]
    #[case(7)]
    #[case(100_000)]
    #[tokio::test]
    async fn a_greeting_is_read_in_pieces_of_any_size(#[case] piece: usize) {
        let mut bytes = greeting(&[
            ("product", "RabbitMQ"),
            ("version", "4.3.6"),
            ("cluster_name", "rabbit@one"),
            ("platform", "x"),
        ]);
        bytes.extend_from_slice(b"more");
        let expected = BrokerIdentity { cluster_name: Some("rabbit@one".into()), version: Some("4.3.6".into()) };
        assert_eq!(heard(&bytes, piece).await, Some(expected));
    }

    #[tokio::test]
    async fn another_product_has_no_version_of_rabbitmq() {
        let bytes = greeting(&[("product", "LavinMQ"), ("version", "2.4.0")]);
        assert_eq!(heard(&bytes, 512).await, Some(BrokerIdentity::default()));
    }

    #[tokio::test]
    async fn bytes_that_are_no_greeting_pass_through() {
        assert_eq!(heard(b"HTTP/1.1 400 Bad Request\r\n\r\n", 5).await, None);
        // A frame that is longer than any greeting.
        let mut endless = vec![1, 0, 0, 0xff, 0xff, 0xff, 0xff];
        endless.resize(3 * LONGEST, 0);
        assert_eq!(heard(&endless, 4096).await, None);
    }
}
