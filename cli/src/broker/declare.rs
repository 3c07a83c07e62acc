//! Carries out a plan: policies over the management API, the rest over AMQP, under a lock.

use std::{collections::BTreeMap, time::Duration};

use fail::fail_point;
use futures_util::{StreamExt, future::try_join_all, stream};
use hatchery::{
    BrokerError,
    internals::{
        compile::{Argument, Binding, Target},
        rabbitmq::{codec::short, connection::AmqpUrl},
    },
};
use lapin::{
    Channel, Connection, ExchangeKind,
    options::{ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    management::{Management, ManagementError},
    plan::{Address, Change, Object, Plan},
};

/// Calls under way. A channel answers in their order, so they wait for no round trip.
const IN_FLIGHT: usize = 512;

/// Channels that share the calls: RabbitMQ 4 commits what they ask for together.
const CHANNELS: usize = 8;

/// A cluster in which the majority is away does not answer at all.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_mins(1);

/// Between two looks at a lock that is held: doubled up to the longest.
const SHORTEST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Why a plan was not carried out, or not wholly.
#[derive(Debug, thiserror::Error)]
#[error("{cause}")]
pub struct DeclareError {
    /// What was confirmed before.
    pub done: usize,
    /// What was not; some of it may be there all the same.
    pub left: Vec<Address>,
    /// What happened.
    #[source]
    pub cause: DeclareCause,
}

/// What stopped a plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeclareCause {
    /// The plan itself is blocked: nothing was written.
    #[error("the plan is blocked")]
    Blocked,
    /// The broker.
    #[error(transparent)]
    Broker(#[from] BrokerError),
    /// Its management API.
    #[error(transparent)]
    Management(#[from] ManagementError),
}

/// A connection that holds the lock of one topology. Whatever happens to it, the broker frees the lock with it.
pub struct Declarer {
    pub(super) url: AmqpUrl,
    pub(super) connection: Connection,
    locks: Vec<String>,
}

impl Declarer {
    /// Connects and takes the locks, exclusive queues of these names, in their order. Where somebody else holds one,
    /// `waiting` is told its name once, and it is tried again until the patience is over.
    ///
    /// # Errors
    /// When the broker is away or refuses, or a lock is still held.
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
                // The patience begins when there is something to be patient about.
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
        // A refusal closes the channel, so each try has its own.
        let channel = self.channel().await?;
        let options = QueueDeclareOptions { exclusive: true, auto_delete: true, ..QueueDeclareOptions::default() };
        let declaring = async { Ok(channel.queue_declare(short(queue)?, options, FieldTable::default()).await) };
        self.answered(&object, declaring).await.map(drop)
    }

    /// Writes everything that a plan says, in its order, and tells of each that is confirmed.
    ///
    /// # Errors
    /// When something was refused or the broker went away, with what is left. Doing it again does no harm.
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
        // A binding needs its ends, and a channel keeps its order alone: one kind after another, each over all channels.
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

    /// What the broker answers about an object.
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

    /// Frees the locks, and closes the connection properly so that the broker logs no lost client.
    pub async fn release(self) {
        if let Err(error) = self.try_release().await {
            tracing::debug!(%error, "closing the connection that held the lock");
        }
    }

    /// With the connection's end the locks go too, but a moment later: who looks then finds nothing of it.
    async fn try_release(&self) -> lapin::Result<()> {
        let channel = self.connection.create_channel().await?;
        for lock in &self.locks {
            channel.queue_delete(lock.as_str().into(), QueueDeleteOptions::default()).await?;
        }
        self.connection.close(200, ShortString::from("done")).await
    }
}

/// One call, and what the broker answered.
pub(super) async fn create(channel: &Channel, object: &Object) -> Result<lapin::Result<()>, BrokerError> {
    let none = FieldTable::default();
    Ok(match object {
        // Policies are the management API's.
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
