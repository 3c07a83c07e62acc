//! Access to the broker without hatchery's own code: publishes raw messages, and reads messages out of queues.

use anyhow::{Context as _, ensure};
use hatchery::{
    Topology,
    internals::{
        compile::{Queue, compile, hatcheries},
        names::Names,
        rabbitmq::connection::AmqpUrl,
        words::Word,
    },
};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection,
    message::BasicGetMessage,
    options::{
        BasicAckOptions, BasicGetOptions, BasicNackOptions, BasicPublishOptions, ConfirmSelectOptions,
        QueueDeclareOptions,
    },
    types::{FieldTable, ShortString},
};

use crate::{account::Found, raw::Raw, sample::SOON};

/// The broker, and the topology's queues on it.
pub(crate) struct Broker {
    connection: Connection,
    scheduler: String,
    /// All queues, in the order in which an event passes them. The queues are read one after the other, so an event
    /// that moves on meanwhile is met again instead of missed.
    queues: Vec<Queue>,
    processing: Vec<String>,
    dead_letters: Vec<String>,
    /// The queues that must be empty at the end: the shortest timers, the processing queues and the retry queues.
    busy: Vec<String>,
    /// The longest named timer.
    longest: String,
}

impl Broker {
    pub(crate) async fn connect(topology: &Topology) -> anyhow::Result<Self> {
        let url = std::env::var("AMQP_URL").context("AMQP_URL is not set; scripts/demo sets it")?;
        let connection = AmqpUrl::new(&url)?.connect("demo").await?;
        let names = Names::new(topology.name.clone());
        let of_types = |name: &dyn Fn(&Word) -> String| topology.types.keys().map(name).collect::<Vec<_>>();
        let processing = of_types(&|word| names.processing(word));
        let retries = topology.types.iter().flat_map(|(word, spec)| {
            let names = &names;
            spec.retry.delays.iter().map(move |ttl| names.retrying(word, *ttl))
        });
        let timers = hatcheries(topology);
        let short = timers.iter().filter(|ttl| ttl.as_duration() < SOON).map(|ttl| names.hatchery(*ttl));
        // A copy whose reference is busy waits for up to four seconds.
        let ladder = (0..topology.ladder.levels())
            .filter(|level| topology.ladder.hold_millis(*level) <= 4_000)
            .map(|level| names.level(topology.ladder, level));
        let busy = processing.iter().cloned().chain(retries).chain(short).chain(ladder).collect();
        let longest = timers.last().map(|ttl| names.hatchery(*ttl)).context("there is always a hatchery")?;
        Ok(Self {
            connection,
            scheduler: names.scheduler(),
            // The stream with the switches holds no events.
            queues: compile(topology)?.queues.into_iter().rev().filter(|queue| !queue.is_stream()).collect(),
            dead_letters: of_types(&|word| names.dead_letters(word)),
            processing,
            busy,
            longest,
        })
    }

    /// Fails if a consumer is on a processing queue, which would take the demo's events.
    pub(crate) async fn require_no_workers(&self) -> anyhow::Result<()> {
        let channel = self.connection.create_channel().await?;
        for queue in &self.processing {
            let consumers = declared(&channel, queue).await?.consumer_count();
            ensure!(consumers == 0, "{queue} has {consumers} other consumers; stop those workers first");
        }
        Ok(())
    }

    /// Publishes messages as another program might, and fails unless the broker confirms each.
    pub(crate) async fn publish(&self, messages: &[Raw]) -> anyhow::Result<()> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        for raw in messages {
            let properties = BasicProperties::default()
                .with_delivery_mode(2)
                .with_message_id(raw.event.id.as_str().into())
                .with_headers(raw.headers.clone());
            let (to, key) = (ShortString::from(self.scheduler.as_str()), ShortString::from(raw.routing_key));
            let options = BasicPublishOptions::default();
            let sent = channel.basic_publish(to, key, options, raw.payload.as_bytes(), properties).await?;
            ensure!(matches!(sent.await?, Confirmation::Ack(_)), "the broker did not confirm {}", raw.event.label);
        }
        close(&channel).await
    }

    /// Returns whether no event is on its way to a worker. Events of others count too; they soon pass.
    pub(crate) async fn quiet(&self) -> anyhow::Result<bool> {
        let channel = self.connection.create_channel().await?;
        let mut quiet = true;
        for queue in &self.busy {
            quiet &= declared(&channel, queue).await?.message_count() == 0;
        }
        close(&channel).await?;
        Ok(quiet)
    }

    /// Returns all messages in the topology's queues.
    pub(crate) async fn read(&self) -> anyhow::Result<Vec<Found>> {
        let mut found = Vec::new();
        for Queue { name, .. } in &self.queues {
            let dead_letter = self.dead_letters.contains(name);
            self.look(name, async |_, message| {
                let id = id(&message);
                found.push(Found { id, queue: name.clone(), dead_letter });
                Ok(())
            })
            .await?;
        }
        Ok(found)
    }

    /// Removes one waiting event, as somebody might in the management UI: the first of these ids in the longest
    /// hatchery. Returns its id and queue.
    pub(crate) async fn take_one(&self, ids: &[&str]) -> anyhow::Result<(String, &str)> {
        let mut taken = None;
        self.look(&self.longest, async |channel, message| {
            let id = id(&message);
            if taken.is_none() && ids.contains(&id.as_str()) {
                channel.basic_ack(message.delivery_tag, BasicAckOptions::default()).await?;
                taken = Some(id);
            }
            Ok(())
        })
        .await?;
        Ok((taken.with_context(|| format!("nothing to take in {}", self.longest))?, &self.longest))
    }

    /// Gets all messages of a queue, and gives them back. A quorum queue may count returned messages, so this must not
    /// be done often.
    async fn look(
        &self,
        queue: &str,
        mut each: impl AsyncFnMut(&Channel, BasicGetMessage) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let channel = self.connection.create_channel().await?;
        let mut any = false;
        while let Some(message) = channel.basic_get(queue.into(), BasicGetOptions::default()).await? {
            any = true;
            each(&channel, message).await?;
        }
        if any {
            // On RabbitMQ 4.3 a nack does not count as a return, but a closed channel does.
            let all = BasicNackOptions { multiple: true, requeue: true };
            channel.basic_nack(0, all).await?;
        }
        close(&channel).await
    }
}

fn id(message: &BasicGetMessage) -> String {
    message.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default()
}

async fn declared(channel: &Channel, queue: &str) -> anyhow::Result<lapin::Queue> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    Ok(channel.queue_declare(queue.into(), options, FieldTable::default()).await?)
}

async fn close(channel: &Channel) -> anyhow::Result<()> {
    Ok(channel.close(200, "done".into()).await?)
}
