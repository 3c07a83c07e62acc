//! Publishing with confirms. One task owns the confirm channel, because lapin gives wrong confirms to tasks that share
//! one (measured); each caller awaits its own confirm, so many are in flight.
//!
//! What is in flight has a bound, in messages and in bytes, and waits outside of lapin while the broker blocks publishers:
//! lapin itself takes whatever it is given, and keeps it in memory.

use std::{sync::Arc, time::Duration};

use fail::fail_point;
use lapin::{
    Channel, Confirmation, Connection, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{codec, connection::AmqpUrl};
use crate::{domain::wire::Message, ports::BrokerError};

/// Messages that wait for their turn on the channel.
const QUEUED: usize = 256;

/// Messages whose confirm is awaited. One counts as many as it has pieces of this size, so that they are 64 MiB at most,
/// or one message that is larger.
const IN_FLIGHT: u32 = 1_024;
const PIECE: usize = 64 * 1_024;

/// How often it is looked whether the broker still blocks publishers.
const LOOK: Duration = Duration::from_millis(50);

/// How long a connection may take to close. lapin writes nothing, not even that, while the broker blocks publishers.
pub(super) const CLOSE_LIMIT: Duration = Duration::from_secs(2);

pub(super) struct Publisher {
    jobs: mpsc::Sender<Job>,
    room: Arc<Semaphore>,
    url: AmqpUrl,
    closing: CancellationToken,
    closed: CancellationToken,
}

enum Job {
    Publish(Box<Message>, OwnedSemaphorePermit, oneshot::Sender<Result<InFlight, BrokerError>>),
    Connect(oneshot::Sender<Result<(), BrokerError>>),
}

impl Publisher {
    pub(super) fn start(url: AmqpUrl, name: String) -> Self {
        let (jobs, inbox) = mpsc::channel(QUEUED);
        let (closing, closed) = (CancellationToken::new(), CancellationToken::new());
        let owner = Owner { url: url.clone(), name, open: None };
        tokio::spawn(owner.run(inbox, closing.clone(), closed.clone().drop_guard()));
        Self { jobs, room: Arc::new(Semaphore::new(IN_FLIGHT as usize)), url, closing, closed }
    }

    pub(super) async fn connect(&self) -> Result<(), BrokerError> {
        self.ask(Job::Connect).await?
    }

    /// Ends the owner, whatever it waits for, and with it every publish that is not confirmed.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.closed.cancelled().await;
    }

    pub(super) async fn publish(&self, message: Message) -> Result<(), BrokerError> {
        let exchange = message.exchange.clone();
        let room = Arc::clone(&self.room).acquire_many_owned(weight(message.body.len())).await;
        let room = room.map_err(|_| self.ended())?;
        let sent = self.ask(|reply| Job::Publish(Box::new(message), room, reply)).await??;
        fail_point!("broker.sent");
        match sent.confirmed().await {
            Ok(Confirmation::Ack(_)) => Ok(()),
            Ok(Confirmation::Nack(_)) => {
                Err(BrokerError::Nacked { exchange, reason: "negative acknowledgement".to_owned() })
            }
            // Cannot be: the channel is in confirm mode. Counting it as published would lose an event silently.
            Ok(Confirmation::NotRequested) => {
                Err(BrokerError::Nacked { exchange, reason: "the channel gives no confirms".to_owned() })
            }
            Err(error) => Err(self.url.error(&error, &format!("the exchange {exchange}"))),
        }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<T>) -> Job) -> Result<T, BrokerError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(job(reply)).await.map_err(|_| self.ended())?;
        answer.await.map_err(|_| self.ended())
    }

    fn ended(&self) -> BrokerError {
        self.url.unreachable("the publisher has ended".to_owned())
    }
}

/// How much room a body of this length takes.
fn weight(length: usize) -> u32 {
    u32::try_from(length / PIECE).unwrap_or(IN_FLIGHT).saturating_add(1).min(IN_FLIGHT)
}

/// A message that was sent, and the room that it takes until it is confirmed or its connection is gone: whoever stops
/// waiting for it does not take it out of lapin.
struct InFlight {
    confirm: Option<PublisherConfirm>,
    room: Option<OwnedSemaphorePermit>,
}

impl InFlight {
    async fn confirmed(mut self) -> lapin::Result<Confirmation> {
        match &mut self.confirm {
            Some(confirm) => {
                let answer = confirm.await;
                self.confirm = None;
                answer
            }
            // There is one until it has answered.
            None => Ok(Confirmation::NotRequested),
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let (Some(confirm), room) = (self.confirm.take(), self.room.take()) else { return };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                let _ = confirm.await;
                drop(room);
            });
        }
    }
}

/// The task that owns the channel.
struct Owner {
    url: AmqpUrl,
    name: String,
    open: Option<(Connection, Channel)>,
}

impl Owner {
    async fn run(mut self, mut inbox: mpsc::Receiver<Job>, closing: CancellationToken, _closed: DropGuard) {
        let serving = async {
            while let Some(job) = inbox.recv().await {
                self.serve(job).await;
            }
        };
        closing.run_until_cancelled(serving).await;
        if let Some((connection, _)) = self.open.take() {
            close(&connection).await;
        }
    }

    /// Who asked may have stopped waiting: then nothing is published, and nobody hears the answer.
    async fn serve(&mut self, job: Job) {
        match job {
            Job::Publish(_, _, reply) if reply.is_closed() => {}
            Job::Publish(message, room, mut reply) => {
                let unblocked = async {
                    while self.is_blocked() {
                        tokio::time::sleep(LOOK).await;
                    }
                };
                tokio::select! {
                    () = unblocked => {}
                    () = reply.closed() => return,
                }
                drop(reply.send(self.publish(*message, room).await));
            }
            Job::Connect(reply) => drop(reply.send(self.channel().await.map(|_| ()))),
        }
    }

    async fn publish(&mut self, message: Message, room: OwnedSemaphorePermit) -> Result<InFlight, BrokerError> {
        let exchange = codec::short(&message.exchange)?;
        let routing_key = codec::short(&message.routing_key)?;
        let properties = codec::write(&message.properties)?;
        let channel = self.channel().await?;
        let options = BasicPublishOptions::default();
        let sent = channel.basic_publish(exchange, routing_key, options, &message.body, properties).await;
        let confirm = sent.map_err(|error| self.url.error(&error, &format!("the exchange {}", message.exchange)))?;
        Ok(InFlight { confirm: Some(confirm), room: Some(room) })
    }

    fn is_blocked(&self) -> bool {
        let status = self.open.as_ref().map(|(connection, _)| connection.status());
        status.is_some_and(|status| status.connected() && status.blocked())
    }

    /// The open channel, or a new one: a missing exchange closes the channel, a lost connection everything.
    async fn channel(&mut self) -> Result<&Channel, BrokerError> {
        let connection = match self.open.take() {
            Some((connection, channel)) if connection.status().connected() => {
                if channel.status().connected() {
                    return Ok(&self.open.insert((connection, channel)).1);
                }
                connection
            }
            _ => self.url.connect(&self.name).await?,
        };
        let confirming = async {
            let channel = connection.create_channel().await?;
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            Ok(channel)
        };
        let channel = confirming.await.map_err(|error| self.url.error(&error, "a channel with confirms"))?;
        Ok(&self.open.insert((connection, channel)).1)
    }
}

/// Closes a connection, in bounded time: the broker takes a lost client for one that has closed.
pub(super) async fn close(connection: &Connection) {
    let closing = connection.close(200, ShortString::from("done"));
    match tokio::time::timeout(CLOSE_LIMIT, closing).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "closing a connection"),
        Err(_) => tracing::debug!("a connection does not close"),
    }
}
