//! Carries out a plan under a lock: policies over the management API, all other objects over AMQP.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt, future::try_join_all, stream};
use hatchery::{
    BrokerError,
    internals::{
        compile::{Argument, Binding, Target},
        rabbitmq::{
            codec::short,
            connection::{AmqpUrl, close},
        },
    },
};
use lapin::{
    Channel, Connection, ExchangeKind,
    options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    management::{Management, ManagementError},
    plan::{Address, Change, Object, Plan},
};

/// The most calls under way. A channel answers them in order, so no call waits for the round trip of another.
pub(super) const IN_FLIGHT: usize = 512;

/// The number of channels that share the calls: RabbitMQ 4 commits calls of several channels together.
const CHANNELS: usize = 8;

/// The time limit of a call. A cluster without a majority of its nodes does not answer at all.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_mins(1);

/// The delay between two tries for a held lock, doubled up to the longest.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Why a plan was not carried out, or only in part.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct DeclareError {
    /// The number of objects that were confirmed before the error.
    pub done: usize,
    /// The objects that were not confirmed. Some of them may exist all the same.
    pub left: Vec<Address>,
    /// The cause.
    #[source]
    pub cause: DeclareCause,
}

/// The error that stopped a plan.
#[derive(Debug, thiserror::Error)]
pub enum DeclareCause {
    /// The plan is blocked: nothing was written.
    #[error("the plan is blocked")]
    Blocked,
    /// An error of the broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// An error of the management API.
    #[error(transparent)]
    Management(#[from] ManagementError),
}

/// A connection that holds the locks of one topology. When the connection ends, the broker frees the locks, because
/// they are exclusive queues.
pub struct Declarer {
    pub(super) url: AmqpUrl,
    pub(super) connection: Connection,
    locks: Vec<String>,
}

impl Declarer {
    /// Connects and takes the locks, exclusive queues of these names, in their order. If somebody else holds one,
    /// `waiting` is called once with its name, and the lock is tried again until `patience` is over.
    ///
    /// # Errors
    /// When the broker is unreachable or refuses, or a lock is still held.
    pub async fn lock(
        url: AmqpUrl,
        name: &str,
        queues: &[String],
        patience: Duration,
        waiting: impl Fn(&str),
    ) -> Result<Self, BrokerError> {
        let mut declarer = Self { connection: url.connect(name).await?, url, locks: Vec::new() };
        for queue in queues {
            if let Err(error) = declarer.wait_for(queue, patience, &waiting).await {
                declarer.release().await;
                return Err(error);
            }
            declarer.locks.push(queue.clone());
        }
        Ok(declarer)
    }

    async fn wait_for(&self, queue: &str, patience: Duration, waiting: &impl Fn(&str)) -> Result<(), BrokerError> {
        let mut until = None;
        let mut wait = SHORTEST_WAIT;
        loop {
            let error = match self.try_lock(queue).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if matches!(error, BrokerError::Locked { .. }) && !patience.is_zero() {
                // The time begins when a lock turns out to be held.
                let until = *until.get_or_insert_with(|| {
                    waiting(queue);
                    Instant::now() + patience
                });
                let left = until.saturating_duration_since(Instant::now());
                if !left.is_zero() {
                    sleep(wait.min(left)).await;
                    wait = (wait * 2).min(LONGEST_WAIT);
                    continue;
                }
            }
            return Err(error);
        }
    }

    async fn try_lock(&self, queue: &str) -> Result<(), BrokerError> {
        let object = format!("the lock {queue}");
        // A refusal closes the channel, so each try uses a new one.
        let channel = self.channel().await?;
        let options = QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
        let declaring = async { Ok(channel.queue_declare(short(queue)?, options, FieldTable::default()).await) };
        self.answered(&object, declaring).await.map(drop)
    }

    /// Writes all changes of a plan in their order, and calls `written` for each that is confirmed.
    ///
    /// # Errors
    /// When the plan is blocked, an object was refused, or the connection was lost; the error lists the objects that
    /// are left. A second call with the next plan writes those.
    pub async fn carry_out(
        &self,
        plan: &Plan,
        management: &dyn Management,
        mut written: impl FnMut(&Address),
    ) -> Result<(), DeclareError> {
        let changes: Vec<&Change> = plan.to_write().collect();
        let mut done = 0;
        let result = if plan.is_blocked(true) {
            Err(DeclareCause::Blocked)
        } else {
            self.write(&changes, management, &mut |address| {
                done += 1;
                written(address);
            })
            .await
        };
        result.map_err(|cause| {
            let left = changes[done..].iter().map(|change| change.address.clone()).collect();
            DeclareError { done, left, cause }
        })
    }

    async fn write(
        &self,
        changes: &[&Change],
        management: &dyn Management,
        written: &mut impl FnMut(&Address),
    ) -> Result<(), DeclareCause> {
        // A binding needs its exchange and queue, and only the calls of one channel keep their order. So each kind of
        // object is written completely before the next, each spread over all channels.
        let channels = try_join_all((0..CHANNELS).map(|_| self.channel())).await?;
        for kind in changes.chunk_by(|one, next| one.address.kind == next.address.kind) {
            let calls = kind.iter().zip(channels.iter().cycle()).map(|(change, channel)| {
                let call = self.declare(channel, change, management);
                async move { call.await.map(|()| &change.address) }
            });
            let mut calls = stream::iter(calls).buffered(IN_FLIGHT);
            while let Some(address) = calls.next().await {
                written(address?);
                fail_point!("apply.declared");
            }
        }
        Ok(())
    }

    async fn declare(
        &self,
        channel: &Channel,
        change: &Change,
        management: &dyn Management,
    ) -> Result<(), DeclareCause> {
        let object = change.address.to_string();
        let write = match &change.object {
            None => return Ok(()),
            Some(Object::Policy(policy)) => return Ok(management.put_policy(policy).await?),
            Some(write) => write,
        };
        Ok(self.answered(&object, create(channel, write)).await?)
    }

    /// Waits for the broker's answer to a call about an object, for at most a minute.
    pub(super) async fn answered<T>(
        &self,
        object: &str,
        call: impl Future<Output = Result<lapin::Result<T>, BrokerError>>,
    ) -> Result<T, BrokerError> {
        match timeout(CALL_TIMEOUT, call).await {
            Ok(answer) => answer?.map_err(|error| self.url.error(&error, object)),
            Err(_) => Err(self.url.unreachable(format!("no answer for a minute about {object}"))),
        }
    }

    pub(super) async fn channel(&self) -> Result<Channel, BrokerError> {
        self.answered("a channel", async { Ok(self.connection.create_channel().await) }).await
    }

    /// Frees the locks, and closes the connection properly so that the broker does not log a lost client.
    pub async fn release(self) {
        if let Err(error) = self.delete_locks().await {
            tracing::debug!(%error, "cannot delete the locks");
        }
        close(&self.connection).await;
    }

    /// Deletes the locks. The broker would delete them with the connection anyway, but a moment later, and a look at the broker right
    /// after `apply` must not find them.
    async fn delete_locks(&self) -> Result<(), BrokerError> {
        let deleting = async {
            let channel = self.connection.create_channel().await?;
            for lock in &self.locks {
                channel.queue_delete(lock.as_str().into(), QueueDeleteOptions::default()).await?;
            }
            Ok(())
        };
        self.answered("the locks", async { Ok(deleting.await) }).await
    }
}

/// Declares one object, and returns the broker's answer.
pub(super) async fn create(channel: &Channel, object: &Object) -> Result<lapin::Result<()>, BrokerError> {
    let none = FieldTable::default();
    Ok(match object {
        // Policies are written over the management API.
        Object::Policy(_) => Ok(()),
        Object::Exchange(exchange) => {
            let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
            let (name, arguments) = (short(&exchange.name)?, table(&exchange.arguments)?);
            channel.exchange_declare(name, ExchangeKind::Topic, options, arguments).await
        }
        Object::Queue(queue) => {
            let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
            let (name, arguments) = (short(&queue.name)?, table(&queue.arguments)?);
            channel.queue_declare(name, options, arguments).await.map(drop)
        }
        Object::Binding(Binding { source, target, key }) => {
            let (from, to, key) = (short(source)?, short(target.name())?, short(key)?);
            match target {
                Target::Exchange(_) => channel.exchange_bind(to, from, key, ExchangeBindOptions::default(), none).await,
                Target::Queue(_) => channel.queue_bind(to, from, key, QueueBindOptions::default(), none).await,
            }
        }
    })
}

fn table(arguments: &BTreeMap<String, Argument>) -> Result<FieldTable, BrokerError> {
    let mut table = FieldTable::default();
    for (name, value) in arguments {
        let value = match value {
            Argument::Text(text) => AMQPValue::LongString(text.as_str().into()),
            Argument::Number(number) => AMQPValue::LongLongInt(*number),
            Argument::Flag(flag) => AMQPValue::Boolean(*flag),
        };
        table.insert(short(name)?, value);
    }
    Ok(table)
}
