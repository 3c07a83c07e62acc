//! Publishes messages with publisher confirms. One task owns the confirm channel, because lapin gives wrong confirms to
//! tasks that share one (measured). Each caller awaits its own confirm, so many confirms are in flight.
//!
//! lapin's publish returns once the message is written to the socket. So lapin holds one message at a time. While the
//! broker blocks publishers, the other messages wait in this module with their callers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use fail::fail_point;
use lapin::{
    Channel, Confirmation, ErrorKind, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::AbortOnDropHandle,
};

use super::{
    closing, codec,
    connection::{AmqpUrl, Link},
    silence::{self, Confirms, Waiting},
};
use crate::{domain::wire::Message, ports::BrokerError};

/// The number of messages that may wait for the channel. The callers bound the number of confirms in flight.
const QUEUED: usize = 256;

/// The age that a channel must reach before it is replaced because the broker has refused a message on it.
const LEAST_AGE: Duration = Duration::from_secs(1);

pub(super) struct Publisher {
    jobs: mpsc::Sender<Job>,
    url: AmqpUrl,
    closing: CancellationToken,
    closed: CancellationToken,
}

enum Job {
    Publish(Box<Message>, oneshot::Sender<Result<Sent, BrokerError>>),
    Connect(oneshot::Sender<Result<(), BrokerError>>),
}

/// A message that is written to the socket and waits for its confirm.
struct Sent {
    confirm: PublisherConfirm,
    waiting: Waiting,
    /// Held because lapin closes a channel that nobody holds.
    channel: ConfirmChannel,
}

impl Publisher {
    pub(super) fn start(url: AmqpUrl, name: String) -> Self {
        let (jobs, inbox) = mpsc::channel(QUEUED);
        let (closing, closed) = (CancellationToken::new(), CancellationToken::new());
        let owner = Owner { url: url.clone(), name, open: None };
        tokio::spawn(owner.run(inbox, closing.clone(), closed.clone().drop_guard()));
        Self { jobs, url, closing, closed }
    }

    pub(super) async fn connect(&self) -> Result<(), BrokerError> {
        self.ask(Job::Connect).await?
    }

    /// Ends the owner task, whatever it waits for. Every publish without a confirm fails.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.closed.cancelled().await;
    }

    pub(super) async fn publish(&self, message: Message) -> Result<(), BrokerError> {
        let (exchange, size) = (message.exchange.clone(), message.body.len());
        let Sent { confirm, waiting, channel } = self.ask(|reply| Job::Publish(Box::new(message), reply)).await??;
        fail_point!("broker.sent");
        tokio::select! {
            // A confirm that comes at the last moment counts.
            biased;
            answer = confirm => match answer {
                Ok(confirmation) => {
                    waiting.answered(&confirmation);
                    channel.answered(&confirmation);
                    confirmed(&confirmation, &exchange)
                }
                Err(error) => Err(fault(&self.url, &error, &exchange, size)),
            },
            () = waiting.silent() => Err(silent(&self.url)),
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, BrokerError> {
        let (reply, answer) = oneshot::channel();
        let gone = || {
            if self.closing.is_cancelled() {
                return BrokerError::Closed;
            }
            self.url.unreachable("the publisher has ended".to_owned())
        };
        self.jobs.send(job(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

/// The task that owns the channel.
struct Owner {
    url: AmqpUrl,
    name: String,
    open: Option<Open>,
}

struct Open {
    link: Link,
    channel: ConfirmChannel,
    confirms: Arc<Confirms>,
    _watching: AbortOnDropHandle<()>,
}

/// A channel in confirm mode. It is replaced after the broker has refused a message on it. RabbitMQ 3.10 keeps refusing
/// a queue's messages on a channel whose first message to that queue came just after the queue had lost its leader,
/// until the node of that leader is back (measured). It takes them on other channels.
#[derive(Clone)]
struct ConfirmChannel {
    channel: Channel,
    opened: Instant,
    has_refused: Arc<AtomicBool>,
}

impl ConfirmChannel {
    async fn open(link: &Link, channel: Channel) -> Result<Self, BrokerError> {
        let confirming = channel.confirm_select(ConfirmSelectOptions::default());
        link.answer("a channel with confirms", confirming).await?;
        Ok(Self { channel, opened: Instant::now(), has_refused: Arc::default() })
    }

    fn answered(&self, confirmation: &Confirmation) {
        if matches!(confirmation, Confirmation::Nack(_)) {
            self.has_refused.store(true, Ordering::Relaxed);
        }
    }

    fn is_good(&self) -> bool {
        let is_to_go = self.has_refused.load(Ordering::Relaxed) && self.opened.elapsed() >= LEAST_AGE;
        self.channel.status().connected() && !is_to_go
    }
}

impl Owner {
    async fn run(mut self, mut inbox: mpsc::Receiver<Job>, closing: CancellationToken, _closed: DropGuard) {
        let serving = async {
            while let Some(job) = inbox.recv().await {
                self.serve(job).await;
            }
        };
        closing.run_until_cancelled(serving).await;
        if let Some(open) = self.open.take() {
            closing::close(&open.link.connection).await;
        }
    }

    /// Serves one job. A message whose caller has stopped waiting is not published.
    async fn serve(&mut self, job: Job) {
        match job {
            Job::Publish(_, reply) if reply.is_closed() => {}
            Job::Publish(message, reply) => {
                let sent = self.publish(*message, || reply.is_closed()).await;
                drop(reply.send(sent));
            }
            Job::Connect(reply) => drop(reply.send(self.open().await.map(|_| ()))),
        }
    }

    async fn publish(&mut self, message: Message, is_given_up: impl Fn() -> bool) -> Result<Sent, BrokerError> {
        let exchange = codec::short(&message.exchange)?;
        let routing_key = codec::short(&message.routing_key)?;
        let properties = codec::write(&message.properties)?;
        let url = self.url.clone();
        let Open { channel, confirms, .. } = self.open().await?;
        let channel = channel.clone();
        // Connecting takes a while. A message that is sent after its caller has given up may follow a newer event, and
        // run after it.
        if is_given_up() {
            return Err(BrokerError::Closed);
        }
        let waiting = confirms.begin();
        let options = BasicPublishOptions::default();
        // A peer that does not read from the socket blocks the write.
        let sent = tokio::select! {
            biased;
            sent = channel.channel.basic_publish(exchange, routing_key, options, &message.body, properties) => sent,
            () = waiting.silent() => return Err(silent(&url)),
        };
        match sent {
            Ok(confirm) => Ok(Sent { confirm, waiting, channel }),
            Err(error) => Err(fault(&url, &error, &message.exchange, message.body.len())),
        }
    }

    /// Returns the open channel, or opens one. A channel that a missing exchange has closed, or on which a message was
    /// refused, is replaced on the same connection. A lost connection is replaced. So is one on which
    /// nothing is confirmed, if possible by a connection to another node.
    async fn open(&mut self) -> Result<&Open, BrokerError> {
        let open = match self.open.take() {
            Some(open) if open.is_good() => open,
            Some(open) if open.link.is_good() && !open.confirms.is_silent() => {
                let channel = ConfirmChannel::open(&open.link, open.link.channel().await?).await?;
                Open { channel, ..open }
            }
            before => {
                if let Some(Open { link, confirms, .. }) = before
                    && confirms.is_silent()
                {
                    tracing::warn!("{}", silent(&self.url));
                    link.leave();
                }
                let (link, channel) = self.url.link(&self.name).await?;
                Open::new(link, channel).await?
            }
        };
        Ok(self.open.insert(open))
    }
}

impl Open {
    async fn new(link: Link, channel: Channel) -> Result<Self, BrokerError> {
        let channel = ConfirmChannel::open(&link, channel).await?;
        let confirms = Arc::<Confirms>::default();
        let watching = confirms.watch(link.connection.status().clone());
        Ok(Self { link, channel, confirms, _watching: watching })
    }

    fn is_good(&self) -> bool {
        self.link.is_good() && self.channel.is_good() && !self.confirms.is_silent()
    }
}

/// Returns the error of a message on a silent connection. The message may have arrived.
fn silent(url: &AmqpUrl) -> BrokerError {
    url.unreachable(format!("no publisher confirm for {} s; opening a new connection", silence::LIMIT.as_secs()))
}

/// Checks the broker's answer to a publish.
///
/// # Errors
/// When the broker has refused the message.
pub fn confirmed(confirmation: &Confirmation, exchange: &str) -> Result<(), BrokerError> {
    let reason = match confirmation {
        Confirmation::Ack(_) => return Ok(()),
        Confirmation::Nack(_) => "negative acknowledgement",
        // Impossible on a channel in confirm mode. Counting the message as published could lose an event silently.
        Confirmation::NotRequested => "the channel gives no confirms",
    };
    Err(BrokerError::Nacked { exchange: exchange.to_owned(), reason: reason.to_owned() })
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
