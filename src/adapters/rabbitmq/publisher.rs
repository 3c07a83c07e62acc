//! Publishing with confirms. One task owns the confirm channel, because lapin gives wrong confirms to tasks that share
//! one (measured); each caller awaits its own confirm, so many are in flight.

use fail::fail_point;
use lapin::{
    Channel, Confirmation, Connection, PublisherConfirm,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use tokio::sync::{mpsc, oneshot};

use super::{codec, connection::AmqpUrl};
use crate::{domain::wire::Message, ports::BrokerError};

/// Messages that wait for their turn on the channel. Confirms in flight are bounded by the callers.
const QUEUED: usize = 256;

pub(super) struct Publisher {
    jobs: mpsc::Sender<Job>,
    url: AmqpUrl,
}

enum Job {
    Publish(Box<Message>, oneshot::Sender<Result<PublisherConfirm, BrokerError>>),
    Connect(oneshot::Sender<Result<(), BrokerError>>),
    Close(oneshot::Sender<()>),
}

impl Publisher {
    pub(super) fn start(url: AmqpUrl, name: String) -> Self {
        let (jobs, inbox) = mpsc::channel(QUEUED);
        tokio::spawn(Owner { url: url.clone(), name, open: None }.run(inbox));
        Self { jobs, url }
    }

    pub(super) async fn connect(&self) -> Result<(), BrokerError> {
        self.ask(Job::Connect).await?
    }

    pub(super) async fn close(&self) {
        // An owner that is gone has closed its connection already.
        let _ = self.ask(Job::Close).await;
    }

    pub(super) async fn publish(&self, message: Message) -> Result<(), BrokerError> {
        let exchange = message.exchange.clone();
        let confirm = self.ask(|reply| Job::Publish(Box::new(message), reply)).await??;
        fail_point!("broker.sent");
        match confirm.await {
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
        let gone = || self.url.unreachable("the publisher has ended".to_owned());
        self.jobs.send(job(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())
    }
}

/// The task that owns the channel.
struct Owner {
    url: AmqpUrl,
    name: String,
    open: Option<(Connection, Channel)>,
}

impl Owner {
    async fn run(mut self, mut inbox: mpsc::Receiver<Job>) {
        while let Some(job) = inbox.recv().await {
            // Who asked may have stopped waiting; then nobody hears the answer.
            match job {
                Job::Publish(message, reply) => drop(reply.send(self.publish(*message).await)),
                Job::Connect(reply) => drop(reply.send(self.channel().await.map(|_| ()))),
                Job::Close(reply) => {
                    self.close().await;
                    let _ = reply.send(());
                }
            }
        }
        self.close().await;
    }

    async fn publish(&mut self, message: Message) -> Result<PublisherConfirm, BrokerError> {
        let exchange = codec::short(&message.exchange)?;
        let routing_key = codec::short(&message.routing_key)?;
        let properties = codec::write(&message.properties)?;
        let channel = self.channel().await?;
        let options = BasicPublishOptions::default();
        let sent = channel.basic_publish(exchange, routing_key, options, &message.body, properties).await;
        sent.map_err(|error| self.url.error(&error, &format!("the exchange {}", message.exchange)))
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

    async fn close(&mut self) {
        if let Some((connection, _)) = self.open.take()
            && let Err(error) = connection.close(200, ShortString::from("done")).await
        {
            tracing::debug!(%error, "closing the publishing connection");
        }
    }
}
