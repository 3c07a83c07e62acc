//! Opens connections to the broker, and closes them within a time limit.

use std::{
    io,
    io::ErrorKind as Io,
    net::{Shutdown, TcpStream},
    os::fd::AsFd as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use lapin::{
    AsyncTcpStream, Channel, Connection, ConnectionProperties, ErrorKind, Event,
    protocol::{AMQPError, AMQPErrorKind, AMQPHardError},
    types::ShortString,
};
use rustls::pki_types::ServerName;
use tokio::runtime::Handle;
use tokio_rustls::TlsConnector;
use tokio_util::either::Either;

pub use super::url::{AmqpUrl, AmqpUrlError};
use super::{
    errors::reason,
    greeting::{self, Greeted, SharedIdentity},
    returns::Returns,
    url::Node,
};
use crate::{
    domain::names,
    ports::{BrokerError, BrokerIdentity},
};

/// How long a connection may take to open. lapin itself has no limit for the handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a connection may take to open where other nodes can be tried instead.
const NODE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a node may take to answer a call. A node that is cut off from the majority of its cluster leaves some calls
/// unanswered until it is back (measured: `basic.consume` on 3.10 and 4.3).
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// How long a connection may take to close. While the broker blocks publishers lapin writes nothing, not even the close; and one close in
/// 200 never returned (lapin 4.12.3, RabbitMQ 4.0, busy machine).
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(2);

impl AmqpUrl {
    /// Opens a connection to the first node that accepts one. The nodes are tried in turn, starting with a random one.
    /// The management UI shows `name` with the connection.
    ///
    /// # Errors
    /// When the broker is unreachable, or refuses the credentials or the virtual host.
    pub async fn connect(&self, name: &str) -> Result<Connection, BrokerError> {
        Ok(self.link(name, None).await?.0.connection)
    }

    /// Opens a connection and its first channel. A node that is shutting down accepts connections, and closes them
    /// before they can be used: then the next node is tried. `returns` notes the messages that the broker returns.
    pub(super) async fn link(
        &self,
        name: &str,
        returns: Option<&Arc<Returns>>,
    ) -> Result<(NodeConnection, Channel), BrokerError> {
        let limit = if self.is_cluster() { NODE_TIMEOUT } else { CONNECT_TIMEOUT };
        let mut failures = Vec::new();
        let unread = self.read_again().err();
        for (place, node) in self.turn() {
            let opening = async {
                let connection = self.open(&node, name, returns.map(Arc::clone)).await?;
                let channel = connection.create_channel().await?;
                Ok((connection, channel))
            };
            match tokio::time::timeout(limit, opening).await {
                Ok(Ok((connection, channel))) => {
                    tracing::debug!("connected to {node} as {name}");
                    watch(&connection, name);
                    let link = NodeConnection {
                        connection,
                        url: self.clone(),
                        place,
                        is_left: AtomicBool::new(false),
                        is_lost: AtomicBool::new(false),
                    };
                    return Ok((link, channel));
                }
                Ok(Err(failure)) => failures.push((node, failure)),
                Err(_) => failures.push((node, Failure::Away(format!("no answer within {} s", limit.as_secs())))),
            }
        }
        Err(self.not_connected(&failures, unread.as_deref()))
    }

    /// Returns the identity of the broker. Opens a connection for that, and closes it again.
    ///
    /// # Errors
    /// When the broker is unreachable, or refuses the credentials or the virtual host.
    pub async fn ask_identity(&self, name: &str) -> Result<BrokerIdentity, BrokerError> {
        close(&self.connect(name).await?).await;
        Ok(self.identity().unwrap_or_default())
    }

    async fn open(&self, node: &Node, name: &str, returns: Option<Arc<Returns>>) -> Result<Connection, Failure> {
        let config = node.is_tls().then(|| self.tls().client()).transpose();
        let connector = config.map_err(|error| Failure::Away(error.to_string()))?.map(TlsConnector::from);
        let (host, port) = node.address();
        let host = host.to_owned();
        let line = Line::default();
        let dialled = Arc::downgrade(&line.0);
        let answered = SharedIdentity::default();
        let greeting = Arc::clone(&answered);
        let connecting = Connection::connector(
            node.uri.clone(),
            greeting::runtime(),
            async move |_, _| {
                // A caller that stops waiting leaves lapin's thread behind, which must not wait for ever either.
                let dialling = async {
                    let addresses: Vec<_> = tokio::net::lookup_host((host.as_str(), port)).await?.collect();
                    let plain = tokio::net::TcpStream::connect(&*addresses).await?;
                    // A small frame must not wait for the acknowledgement of the one before it.
                    plain.set_nodelay(true)?;
                    let line = dialled.upgrade().ok_or(Io::TimedOut)?;
                    let socket = TcpStream::from(plain.as_fd().try_clone_to_owned()?);
                    *line.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
                    let socket = match &connector {
                        Some(connector) => {
                            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                            Either::Right(connector.connect(name, plain).await?)
                        }
                        None => Either::Left(plain),
                    };
                    let greeted = Greeted::new(socket, Arc::clone(&greeting), returns.clone());
                    Ok::<_, io::Error>(AsyncTcpStream::Plain(greeted))
                };
                Ok(tokio::time::timeout(CONNECT_TIMEOUT, dialling)
                    .await
                    .map_err(|_| io::Error::from(Io::TimedOut))??)
            },
            properties(name),
        );
        let connected = connecting.await.map_err(|error| match error.kind() {
            // RabbitMQ closes the socket on wrong credentials if the client cannot be told in another way, and on a
            // client that does not speak TLS to a TLS port.
            ErrorKind::IOError(io) if is_closed(io.kind()) => {
                let doubt = if node.is_tls() { self.tls().doubt() } else { "does this port expect amqps?" };
                Failure::Away(format!("the connection was closed; are the credentials right, and {doubt}"))
            }
            _ => error.into(),
        })?;
        line.keep();
        self.greeted_by(answered.get().cloned().unwrap_or_default());
        Ok(connected)
    }

    fn not_connected(&self, failures: &[(Arc<Node>, Failure)], unread: Option<&str>) -> BrokerError {
        let url = self.to_string();
        let said = |(node, failure): &(Arc<Node>, Failure)| {
            let (Failure::Away(reason) | Failure::Refused(reason)) = failure;
            let (host, port) = node.address();
            if self.is_cluster() { format!("{host}:{port}: {reason}") } else { reason.clone() }
        };
        let unread = unread.map(|why| format!("the file of the URL cannot be used: {why}"));
        let reason = failures.iter().map(said).chain(unread).collect::<Vec<_>>().join("; ");
        if failures.iter().any(|(_, failure)| matches!(failure, Failure::Refused(_))) {
            return BrokerError::Refused { url, reason };
        }
        BrokerError::Unreachable { url, reason }
    }

    /// Returns the error that the broker is unreachable, for this reason.
    #[must_use]
    pub fn unreachable(&self, reason: String) -> BrokerError {
        BrokerError::Unreachable { url: self.to_string(), reason }
    }
}

/// An open connection to one node of the broker.
pub(super) struct NodeConnection {
    pub(super) connection: Connection,
    url: AmqpUrl,
    place: usize,
    is_left: AtomicBool,
    /// Whether the log says that the connection is lost.
    is_lost: AtomicBool,
}

impl NodeConnection {
    /// Whether further channels may be opened on this connection.
    pub(super) fn is_good(&self) -> bool {
        self.connection.status().connected() && !self.is_left.load(Ordering::Relaxed)
    }

    /// Leaves the node: no further channel is opened on this connection, and the node is tried last. A node that is cut
    /// off from the majority of its cluster accepts connections as usual, and executes no call (measured). Open
    /// channels stay open, because they may still serve other queues.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
        self.url.ask_last(self.place);
    }

    /// Returns the error that the broker is unreachable, for this reason.
    pub(super) fn unreachable(&self, reason: String) -> BrokerError {
        self.url.unreachable(reason)
    }

    /// Opens another channel.
    pub(super) async fn channel(&self) -> Result<Channel, BrokerError> {
        self.answer("a channel", self.connection.create_channel()).await
    }

    /// Waits for the answer to a call about `object`. Fails if no answer comes within [`ANSWER_LIMIT`].
    pub(super) async fn answer<T>(
        &self,
        object: &str,
        call: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, BrokerError> {
        answer(call).await.map_err(|error| self.error(&error, object))
    }

    /// Translates lapin's error for a call about `object`. Leaves the node, unless the error has only closed a channel.
    pub(super) fn error(&self, error: &lapin::Error, object: &str) -> BrokerError {
        let is_soft = |error: &AMQPError| matches!(error.kind(), AMQPErrorKind::Soft(_));
        if !matches!(error.kind(), ErrorKind::ProtocolError(amqp) if is_soft(amqp)) {
            self.leave();
        }
        self.translate(error, object)
    }

    /// Translates lapin's error for a call about `object`.
    pub(super) fn translate(&self, error: &lapin::Error, object: &str) -> BrokerError {
        self.url.error(error, object)
    }

    /// Logs that a consumer has failed. A lost connection is logged once, and not for each of its consumers.
    pub(super) fn log_consumer_failed(&self, queue: &str, error: &BrokerError) {
        if !matches!(error, BrokerError::Unreachable { .. }) {
            tracing::warn!(%error, "the consumer of {queue} failed");
        } else if self.is_lost.swap(true, Ordering::Relaxed) {
            tracing::debug!(%error, "the consumer of {queue} failed");
        } else {
            tracing::warn!(%error, "a connection to the broker is lost; its queues are consumed again");
        }
    }
}

/// Waits for the answer to a call. Fails if no answer comes within [`ANSWER_LIMIT`].
pub(super) async fn answer<T>(call: impl Future<Output = lapin::Result<T>>) -> lapin::Result<T> {
    answer_within(ANSWER_LIMIT, call).await
}

/// Waits for the answer to a call. Fails if no answer comes within the limit.
pub(super) async fn answer_within<T>(
    limit: Duration,
    call: impl Future<Output = lapin::Result<T>>,
) -> lapin::Result<T> {
    tokio::time::timeout(limit, call).await.unwrap_or_else(|_| {
        let reason = format!("no answer within {} s", limit.as_secs());
        Err(io::Error::new(Io::TimedOut, reason).into())
    })
}

/// Waits for the answer to a call that brings deliveries to this channel. If no answer comes within [`ANSWER_LIMIT`],
/// or the caller stops waiting, the channel is closed. Otherwise the node may execute the call later, as one does that
/// was cut off from its cluster (measured), and nobody would read the deliveries.
pub(super) async fn deliveries<T>(channel: &Channel, call: impl Future<Output = lapin::Result<T>>) -> lapin::Result<T> {
    let mut unanswered = Unanswered(Some(channel.clone()));
    let answered = answer(call).await;
    if answered.is_ok() {
        unanswered.0 = None;
    }
    answered
}

/// A channel with a call that has no answer yet. Dropping this value closes the channel.
struct Unanswered(Option<Channel>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        // Without a runtime there is no connection either.
        let (Some(channel), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        runtime.spawn(async move {
            // The broker executes the close after the call, however late that is.
            if let Err(error) = answer(channel.close(200, ShortString::from("done"))).await {
                tracing::debug!(%error, "closing a channel");
            }
        });
    }
}

/// The socket of a connection that is being opened. Dropping this value shuts the socket down, unless it was kept:
/// lapin would wait for ever, in a thread of its own, for a peer that accepts the connection and sends nothing.
#[derive(Default)]
struct Line(Arc<Mutex<Option<TcpStream>>>);

impl Line {
    fn keep(self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        if let Some(socket) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            // An error means that the socket is closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// Why a connection to a node was not opened.
enum Failure {
    Away(String),
    /// The node answers, and refuses this client.
    Refused(String),
}

impl From<lapin::Error> for Failure {
    /// Until the connection is open, an error of the broker is about this client: its credentials or its virtual host.
    fn from(error: lapin::Error) -> Self {
        match error.kind() {
            ErrorKind::ProtocolError(amqp)
                if !matches!(
                    amqp.kind(),
                    AMQPErrorKind::Hard(AMQPHardError::CONNECTIONFORCED | AMQPHardError::INTERNALERROR)
                ) =>
            {
                Self::Refused(amqp.get_message().to_string())
            }
            ErrorKind::ProtocolError(amqp) => Self::Away(amqp.get_message().to_string()),
            ErrorKind::ParsingError(_) => {
                Self::Away("the server does not speak AMQP; are the scheme (amqp, amqps) and the port right?".into())
            }
            _ => Self::Away(reason(&error)),
        }
    }
}

fn is_closed(kind: Io) -> bool {
    matches!(kind, Io::ConnectionAborted | Io::ConnectionReset | Io::BrokenPipe)
}

/// Closes a connection, or gives up after two seconds: the broker treats a lost client like one that has closed.
pub async fn close(connection: &Connection) {
    let closing = connection.close(200, ShortString::from("done"));
    match tokio::time::timeout(CLOSE_LIMIT, closing).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "closing a connection"),
        Err(_) => tracing::debug!("a connection was not closed in time"),
    }
}

/// Returns the client properties that the management UI shows with a connection.
fn properties(name: &str) -> ConnectionProperties {
    ConnectionProperties::default()
        .with_connection_name(name.into())
        .with_client_property("product".into(), names::PRODUCT.into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into())
        .with_client_property("pid".into(), std::process::id().to_string().into())
}

/// Logs once when the broker blocks the connection, and once when it unblocks it.
fn watch(connection: &Connection, name: &str) {
    let (mut events, name) = (connection.events_listener(), name.to_owned());
    tokio::spawn(async move {
        let mut blocked = false;
        while let Some(event) = events.next().await {
            match event {
                Event::ConnectionBlocked(reason) if !blocked => {
                    tracing::warn!(connection = name, reason, "the broker takes no messages for now; publishers wait");
                    blocked = true;
                }
                Event::ConnectionUnblocked if blocked => {
                    tracing::info!(connection = name, "the broker takes messages again");
                    blocked = false;
                }
                _ => {}
            }
        }
        if blocked {
            tracing::info!(connection = name, "the connection that the broker had blocked has ended");
        }
    });
}
