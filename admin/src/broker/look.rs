//! Looks at queues over AMQP, by passive declarations. They tell the ready messages and the consumers of a queue, at
//! once and without the management API, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::try_join_all;
use hatchery::{
    BrokerError,
    internals::rabbitmq::{
        codec::short,
        connection::{AmqpUrl, close},
    },
};
use lapin::{
    Channel, Connection, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueDeclareOptions},
    types::FieldTable,
};
use tokio::time::timeout;

use super::declare::CALL_TIMEOUT;
use crate::live::Counts;

/// The number of channels that share the calls. Each waits for one answer at a time, because a refusal closes it.
const CHANNELS: usize = 8;

/// The queues and exchanges as AMQP tells of them. Objects that this user may not see, or whose node is down, are in neither
/// list.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looked {
    /// The ready messages and consumers, by queue.
    pub queues: BTreeMap<String, Counts>,
    /// The objects that do not exist.
    pub missing: BTreeSet<String>,
}

/// Looks at these objects, over a connection of this name.
///
/// # Errors
/// When the broker is unreachable, or refuses the connection.
pub async fn look(url: &AmqpUrl, name: &str, exchanges: &[String], queues: &[String]) -> Result<Looked, BrokerError> {
    let line = Line { connection: url.connect(name).await?, url };
    let looked = line.look(exchanges, queues).await;
    close(&line.connection).await;
    looked
}

struct Line<'a> {
    connection: Connection,
    url: &'a AmqpUrl,
}

/// An object to look at.
#[derive(Clone, Copy)]
enum Object<'a> {
    Exchange(&'a str),
    Queue(&'a str),
}

impl Line<'_> {
    async fn look(&self, exchanges: &[String], queues: &[String]) -> Result<Looked, BrokerError> {
        let exchanges = exchanges.iter().map(|name| Object::Exchange(name));
        let all: Vec<Object<'_>> = exchanges.chain(queues.iter().map(|name| Object::Queue(name))).collect();
        let shares = all.chunks(all.len().div_ceil(CHANNELS).max(1));
        let mut looked = Looked::default();
        for share in try_join_all(shares.map(|share| self.share(share))).await? {
            looked.queues.extend(share.queues);
            looked.missing.extend(share.missing);
        }
        Ok(looked)
    }

    async fn share(&self, objects: &[Object<'_>]) -> Result<Looked, BrokerError> {
        let mut looked = Looked::default();
        let mut channel = self.channel().await?;
        for object in objects {
            let (kind, name) = match object {
                Object::Exchange(name) => ("exchange", *name),
                Object::Queue(name) => ("queue", *name),
            };
            match self.declared(&channel, *object).await? {
                Ok(Some(counts)) => drop(looked.queues.insert(name.to_owned(), counts)),
                Ok(None) => {}
                Err(error) => {
                    match self.url.error(&error, &format!("the {kind} {name}")) {
                        BrokerError::Missing { .. } => drop(looked.missing.insert(name.to_owned())),
                        error if !self.connection.status().connected() => return Err(error),
                        error => tracing::debug!(%error, "nothing is known of {kind} {name}"),
                    }
                    // The broker has closed the channel.
                    channel = self.channel().await?;
                }
            }
        }
        Ok(looked)
    }

    /// Declares an object passively.
    async fn declared(
        &self,
        channel: &Channel,
        object: Object<'_>,
    ) -> Result<lapin::Result<Option<Counts>>, BrokerError> {
        let none = FieldTable::default();
        let declaring = async {
            Ok(match object {
                Object::Exchange(name) => {
                    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
                    channel.exchange_declare(short(name)?, ExchangeKind::Topic, options, none).await.map(|()| None)
                }
                Object::Queue(name) => {
                    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
                    channel.queue_declare(short(name)?, options, none).await.map(|queue| {
                        Some(Counts {
                            messages_ready: Some(queue.message_count().into()),
                            consumers: Some(queue.consumer_count().into()),
                            ..Counts::default()
                        })
                    })
                }
            })
        };
        self.within(declaring).await?
    }

    async fn channel(&self) -> Result<Channel, BrokerError> {
        self.within(self.connection.create_channel()).await?.map_err(|error| self.url.error(&error, "a channel"))
    }

    async fn within<T>(&self, call: impl Future<Output = T>) -> Result<T, BrokerError> {
        timeout(CALL_TIMEOUT, call).await.map_err(|_| self.url.unreachable("no answer for a minute".to_owned()))
    }
}
