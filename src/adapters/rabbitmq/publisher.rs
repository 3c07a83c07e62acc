//! Publishes messages with publisher confirms. All callers share one confirm channel, and each awaits its own confirm, so
//! many confirms are in flight.
//!
//! lapin takes the delivery tag of a message and queues its frames in the first poll of `basic_publish`, under two locks.
//! Tasks that publish at the same time got each other's confirms (measured). So a mutex is held during that first poll.
//!
//! lapin holds some messages until they are written to the socket. While the broker blocks publishers, the other
//! messages wait in this module with their callers.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use lapin::{
    Channel, Confirmation, ErrorKind, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{
    codec,
    confirms::{self, ConfirmMeters, Confirms},
    connection::{self, AmqpUrl, NodeConnection},
    reconnects::Reconnects,
    returns::Returns,
};
use crate::{
    domain::wire::Message,
    ports::{BrokerError, Confirming},
};

/// The room for messages that lapin holds until they are written to the socket, in bytes. It writes all of them at once. What a caller
/// has given up is sent all the same once lapin has it. With room for only 32 messages, most publishes of a batch were begun by a task,
/// for 9 µs each (measured).
const UNWRITTEN: usize = 512 * 1024;

/// The most room that a message takes. It keeps its room until its caller is polled, so a few callers must not take all of it.
const LARGE: u32 = 16 * 1024;

/// The bytes of a message besides its payload, roughly.
const ENVELOPE: u32 = 768;

/// The age that a channel must reach before it is replaced because the broker has refused a message on it.
const LEAST_AGE: Duration = Duration::from_secs(1);

/// A connection and its channel with publisher confirms, opened on first use and again after every loss.
pub(super) struct ConfirmChannel {
    url: AmqpUrl,
    name: String,
    open: tokio::sync::Mutex<Option<Arc<Open>>>,
    closing: CancellationToken,
    meters: ConfirmMeters,
    reconnects: Reconnects,
}

impl ConfirmChannel {
    /// Returns a publisher that connects when it is first used.
    pub(super) fn new(url: AmqpUrl, name: String) -> Self {
        let (open, closing) = (tokio::sync::Mutex::new(None), CancellationToken::new());
        Self { url, name, open, closing, meters: ConfirmMeters::new(), reconnects: Reconnects::new("publishing") }
    }

    /// Returns one for records, whose confirms are not counted among those of events.
    pub(super) fn recording(url: AmqpUrl, name: String) -> Self {
        let (meters, reconnects) = (ConfirmMeters::none(), Reconnects::new("recording"));
        Self { meters, reconnects, ..Self::new(url, name) }
    }

    pub(super) async fn connect(&self) -> Result<(), BrokerError> {
        self.open().await.map(drop)
    }

    /// Opens the connection if it is not open. Fails while the broker blocks it, as far as the broker has said so: it does when
    /// something is published.
    pub(super) async fn takes_messages(&self) -> Result<(), BrokerError> {
        let is_blocked = self.open().await?.connection.link.connection.status().blocked();
        if is_blocked { Err(BrokerError::Blocked { url: self.url.to_string() }) } else { Ok(()) }
    }

    /// Closes the connection. Every publish without a confirm fails.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        let open = self.open.lock().await.take();
        if let Some(open) = open {
            open.connection.confirms.give_up();
            connection::close(&open.connection.link.connection).await;
        }
    }

    /// Gives a message to lapin, and returns what waits for the broker's confirm. If either future is dropped, the message may
    /// have been sent.
    pub(super) async fn send(self: &Arc<Self>, message: Message) -> Result<Confirming, BrokerError> {
        let Message { exchange, routing_key, properties, body } = message;
        let (to, key) = (codec::short(&exchange)?, codec::short(&routing_key)?);
        let (properties, size) = (codec::write(&properties)?, body.len());
        let open = self.open().await?;
        let waiting = open.connection.confirms.begin();
        let room = tokio::select! {
            biased;
            // Nobody closes the semaphore.
            room = Arc::clone(&open.connection.room).acquire_many_owned(open.connection.room_of(size)) => room.ok(),
            () = waiting.silent() => {
                waiting.unanswered();
                return Err(self.silent());
            }
        };
        let returned = open.connection.returns.count();
        let sharing = Arc::clone(&open);
        let mut sending = Sending {
            sending: Some(Box::pin(async move {
                let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
                sharing.channel.basic_publish(to, key, options, &body, properties).await
            })),
            room,
        };
        // The first poll of the publish. The next one registers whoever waits for the answer.
        let taken = {
            let _order = open.order.lock().unwrap_or_else(PoisonError::into_inner);
            sending.poll(&mut Context::from_waker(Waker::noop()))
        };
        let publisher = Arc::clone(self);
        Ok(Box::pin(async move {
            let answer = async {
                let confirm = match taken {
                    Poll::Ready(sent) => sent?,
                    Poll::Pending => poll_fn(|context| sending.poll(context)).await?,
                };
                fail_point!("broker.sent");
                confirm.await
            };
            tokio::select! {
                // A confirm that comes at the last moment counts.
                biased;
                answer = answer => match answer {
                    Ok(confirmation) => {
                        waiting.answered(&confirmation);
                        if matches!(confirmation, Confirmation::Nack(_)) {
                            open.has_refused.store(true, Ordering::Relaxed);
                        }
                        confirmed(&confirmation, &exchange)?;
                        if open.connection.returns.has_since(returned, &exchange, &routing_key) {
                            return Err(unroutable(exchange, routing_key));
                        }
                        Ok(())
                    }
                    Err(error) => {
                        waiting.unanswered();
                        Err(fault(&publisher.url, &error, &exchange, size))
                    }
                },
                () = waiting.silent() => {
                    waiting.unanswered();
                    Err(publisher.silent())
                }
            }
        }))
    }

    /// Returns the open channel, or opens one. A channel that a missing exchange has closed, or on which a message was
    /// refused, is replaced on the same connection. A lost connection is replaced. So is one on which nothing is confirmed,
    /// if possible by a connection to another node.
    async fn open(&self) -> Result<Arc<Open>, BrokerError> {
        let mut open = self.open.lock().await;
        if let Some(open) = open.as_ref().filter(|open| open.is_good()) {
            return Ok(Arc::clone(open));
        }
        // Boxed, because each publish would be as large as the opening of a connection.
        let replacing = Box::pin(self.replace(open.take()));
        let opened = self.closing.run_until_cancelled(replacing).await.ok_or(BrokerError::Closed)??;
        Ok(Arc::clone(open.insert(Arc::new(opened))))
    }

    async fn replace(&self, before: Option<Arc<Open>>) -> Result<Open, BrokerError> {
        if let Some(Open { connection, .. }) = before.as_deref() {
            if connection.link.is_good() && !connection.confirms.is_silent() {
                return Open::new(Arc::clone(connection), connection.link.channel().await?).await;
            }
            if connection.confirms.is_silent() {
                tracing::warn!("{}", self.silent());
                connection.link.leave();
            }
        }
        drop(before);
        let returns = Arc::<Returns>::default();
        let (link, channel) = self.url.link(&self.name, Some(&returns)).await?;
        self.reconnects.opened();
        Open::new(Arc::new(Connection::new(link, returns, self.meters.clone())), channel).await
    }

    /// Returns the error of a message on a silent connection. The message may have arrived.
    fn silent(&self) -> BrokerError {
        if self.closing.is_cancelled() {
            return BrokerError::Closed;
        }
        let limit = confirms::LIMIT.as_secs();
        self.url.unreachable(format!("no publisher confirm for {limit} s; opening a new connection"))
    }
}

/// A connection that publishes.
struct Connection {
    link: NodeConnection,
    confirms: Arc<Confirms>,
    returns: Arc<Returns>,
    /// Room for messages that are not written yet.
    room: Arc<Semaphore>,
    _watching: AbortOnDropHandle<()>,
}

impl Connection {
    fn new(link: NodeConnection, returns: Arc<Returns>, meters: ConfirmMeters) -> Self {
        let confirms = Confirms::new(meters);
        let watching = confirms.watch(link.connection.status().clone());
        Self { link, confirms, returns, room: Arc::new(Semaphore::new(UNWRITTEN)), _watching: watching }
    }

    /// Returns the room that a message takes. While the broker blocks publishers each counts as a large one, so that few are sent after
    /// their callers have given up.
    fn room_of(&self, payload: usize) -> u32 {
        if self.link.connection.status().blocked() {
            return LARGE;
        }
        u32::try_from(payload).unwrap_or(LARGE).saturating_add(ENVELOPE).min(LARGE)
    }
}

/// A channel in confirm mode. It is replaced after the broker has refused a message on it. RabbitMQ 3.10 keeps refusing
/// a queue's messages on a channel whose first message to that queue came just after the queue had lost its leader,
/// until the node of that leader is back (measured). It takes them on other channels.
struct Open {
    channel: Channel,
    connection: Arc<Connection>,
    since: Instant,
    has_refused: AtomicBool,
    /// Held while lapin takes a message.
    order: Mutex<()>,
}

impl Open {
    async fn new(connection: Arc<Connection>, channel: Channel) -> Result<Self, BrokerError> {
        let confirming = channel.confirm_select(ConfirmSelectOptions::default());
        connection.link.answer("a channel with confirms", confirming).await?;
        Ok(Self {
            channel,
            connection,
            since: Instant::now(),
            has_refused: AtomicBool::new(false),
            order: Mutex::new(()),
        })
    }

    fn is_good(&self) -> bool {
        let is_to_go = self.has_refused.load(Ordering::Relaxed) && self.since.elapsed() >= LEAST_AGE;
        let Connection { link, confirms, .. } = &*self.connection;
        link.is_good() && !confirms.is_silent() && self.channel.status().connected() && !is_to_go
    }
}

/// A message that lapin is writing. It keeps its room until it is written, also if the caller gives up.
struct Sending {
    sending: Option<BoxFuture<'static, lapin::Result<PublisherConfirm>>>,
    room: Option<OwnedSemaphorePermit>,
}

impl Sending {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<lapin::Result<PublisherConfirm>> {
        let Some(sending) = &mut self.sending else { return Poll::Pending };
        let sent = Pin::new(sending).poll(context);
        if sent.is_ready() {
            (self.sending, self.room) = (None, None);
        }
        sent
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // Without a runtime there is no connection either.
        let (Some(sending), Ok(runtime)) = (self.sending.take(), Handle::try_current()) else { return };
        let room = self.room.take();
        runtime.spawn(async move {
            let _ = sending.await;
            drop(room);
        });
    }
}

/// Checks the broker's answer to a publish.
///
/// # Errors
/// When the broker has refused the message.
pub fn confirmed(confirmation: &Confirmation, exchange: &str) -> Result<(), BrokerError> {
    let reason = match confirmation {
        Confirmation::Ack(None) => return Ok(()),
        // `returns.rs` takes the returned messages out. lapin gives one that passes to any message.
        Confirmation::Ack(Some(_)) => "the broker has returned a message",
        Confirmation::Nack(_) => "negative acknowledgement",
        // Impossible on a channel in confirm mode. Counting the message as published could lose an event silently.
        Confirmation::NotRequested => "the channel gives no confirms",
    };
    Err(BrokerError::Nacked { exchange: exchange.to_owned(), reason: reason.to_owned() })
}

/// Returns the error of a message that no queue takes. The default exchange leads to the queue that the routing key names.
fn unroutable(exchange: String, routing_key: String) -> BrokerError {
    if exchange.is_empty() {
        return BrokerError::Missing { object: format!("the queue {routing_key}") };
    }
    BrokerError::Unroutable { exchange, routing_key }
}

/// Translates lapin's error for a message. If the error is about another message, that one has closed the shared
/// channel, and this message may be published again at once.
fn fault(url: &AmqpUrl, error: &lapin::Error, exchange: &str, size: usize) -> BrokerError {
    if let ErrorKind::ProtocolError(amqp) = error.kind() {
        let reason = amqp.get_message().to_string();
        if is_about_another(&reason, exchange, size) {
            return url.unreachable(format!("another message has closed the channel: {reason}"));
        }
        if size_named(&reason).is_some() {
            return BrokerError::TooLarge { exchange: exchange.to_owned(), size, reason };
        }
    }
    url.error(error, &format!("the exchange {exchange}"))
}

/// Whether an error is about another message. The broker names an exchange that is missing or that refuses access, and
/// the size of a message that is too large.
fn is_about_another(reason: &str, exchange: &str, size: usize) -> bool {
    let exchange_named = named(reason, "exchange '", '\'');
    exchange_named.is_some_and(|named| named != exchange)
        || size_named(reason).is_some_and(|named| named.parse() != Ok(size))
}

/// Returns the size that the broker names in its refusal of a message larger than `max_message_size`.
fn size_named(reason: &str) -> Option<&str> {
    named(reason, "message size ", ' ')
}

fn named<'a>(reason: &'a str, before: &str, end: char) -> Option<&'a str> {
    reason.split_once(before)?.1.split(end).next()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::missing("NOT_FOUND - no exchange 't.scheduler' in vhost '/'", false)]
    #[case::another_is_missing("NOT_FOUND - no exchange 't.retry' in vhost '/'", true)]
    #[case::refused("ACCESS_REFUSED - write access to exchange 't.scheduler' in vhost '/' refused for user 'u'", false)]
    #[case::another_refuses(
        "ACCESS_REFUSED - write access to exchange 't.retry' in vhost '/' refused for user 'u'",
        true
    )]
    #[case::too_large("PRECONDITION_FAILED - message size 17 is larger than configured max size 16", false)]
    #[case::another_is_too_large("PRECONDITION_FAILED - message size 18 is larger than configured max size 16", true)]
    #[case::anything_else("PRECONDITION_FAILED - unknown delivery tag 1", false)]
    fn an_error_on_a_shared_channel_is_about_one_message(#[case] reason: &str, #[case] another: bool) {
        assert_eq!(is_about_another(reason, "t.scheduler", 17), another);
    }
}
