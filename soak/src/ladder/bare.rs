//! The same ladder with bare lapin: only the queues and bindings that an event needs, a publisher with confirms and a
//! consumer that acknowledges.

use std::time::{Duration, Instant};

use anyhow::ensure;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use hatchery::internals::{delay, rabbitmq::connection::AmqpUrl};
use jiff::Timestamp;
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions, ConfirmSelectOptions,
        ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable, ShortString},
};

use super::topology::{PREFETCH, TYPE};
use crate::{
    console::Console,
    plan::Plan,
    queues::{Queues, WINDOW},
    runs::{Run, Runs},
    traffic::{self, PAYLOAD},
};

const SCHEDULER: &str = "bare.scheduler";
const PROCESSOR: &str = "bare.processor";

/// The declared ladder.
pub(super) struct Ladder {
    url: AmqpUrl,
    levels: u8,
    step: Duration,
}

impl Ladder {
    pub(super) async fn declare(url: &str, like: delay::Ladder) -> anyhow::Result<Self> {
        let (url, levels) = (AmqpUrl::new(url)?, like.levels());
        let connection = url.connect("bare ladder").await?;
        let channel = connection.create_channel().await?;
        exchange(&channel, SCHEDULER).await?;
        queue(&channel, PROCESSOR, FieldTable::default()).await?;
        exchange(&channel, PROCESSOR).await?;
        bind(&channel, PROCESSOR, PROCESSOR, &format!("{TYPE}.#")).await?;
        for level in 0..levels {
            exchange(&channel, &level_name(level)).await?;
            let mut arguments = FieldTable::default();
            let text = |text: &str| AMQPValue::LongString(text.into());
            arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(like.hold_millis(level).try_into()?));
            arguments.insert("x-dead-letter-exchange".into(), text(&level_name(level)));
            arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
            arguments.insert("x-overflow".into(), text("reject-publish"));
            queue(&channel, &level_name(level), arguments).await?;
        }
        for spent in 0..=levels {
            // At the scheduler no bit is spent. At a level's exchange its own bit and all lower ones are spent.
            let source = if spent == 0 { SCHEDULER.to_owned() } else { level_name(spent - 1) };
            let begun = format!("*.*{}", ".*".repeat(spent.into()));
            for level in spent..levels {
                let zeros = ".0".repeat((level - spent).into());
                bind(&channel, &source, &level_name(level), &format!("{begun}{zeros}.1.#")).await?;
            }
            let due = format!("{begun}{}", ".0".repeat((levels - spent).into()));
            let (options, none) = (ExchangeBindOptions::default(), FieldTable::default());
            channel.exchange_bind(PROCESSOR.into(), source.into(), due.into(), options, none).await?;
        }
        connection.close(200, "done".into()).await?;
        Ok(Self { url, levels, step: like.resolution().as_duration() })
    }

    /// Publishes the plan, and waits until all its events have run. Returns the runs, and how long publishing took.
    pub(super) async fn run(
        &self,
        plan: &Plan,
        console: &mut Console,
        queues: &Queues,
    ) -> anyhow::Result<(Vec<Run>, Duration)> {
        let runs = Runs::default();
        let consuming = self.url.connect("bare consumer").await?;
        let consumer = tokio::spawn(consume(consuming.create_channel().await?, runs.clone()));
        let publishing = self.url.connect("bare publisher").await?;
        let (levels, step) = (self.levels, self.step);
        let publisher = tokio::spawn(publish(publishing.create_channel().await?, plan.clone(), levels, step));
        let names: Vec<String> = (0..levels).map(level_name).chain([PROCESSOR.to_owned()]).collect();
        let busy = async || Ok(queues.ready(&names).await? > 0);
        traffic::watch(console, &runs, plan.events.len(), plan.longest(), busy).await?;
        let took = publisher.await??;
        close(consuming).await?;
        close(publishing).await?;
        // The consumer ends with an error when its connection closes, which is expected.
        let _ = consumer.await;
        Ok((runs.all(), took))
    }
}

async fn publish(channel: Channel, plan: Plan, levels: u8, step: Duration) -> anyhow::Result<Duration> {
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (mut turn, mut took) = (tokio::time::interval(plan.every), Duration::ZERO);
    for burst in plan.bursts() {
        turn.tick().await;
        let (started, now) = (Instant::now(), Timestamp::now());
        let sent = stream::iter(burst)
            .map(|(number, planned)| send(&channel, number, now + planned.wait.duration(), levels, step))
            .buffered(WINDOW.into());
        sent.try_for_each(|()| std::future::ready(Ok(()))).await?;
        took += started.elapsed();
    }
    Ok(took)
}

async fn send(channel: &Channel, number: u32, nbf: Timestamp, levels: u8, step: Duration) -> anyhow::Result<()> {
    let created = Timestamp::now();
    let steps = created.duration_until(nbf).unsigned_abs().as_micros().div_ceil(step.as_micros());
    let bits: String = (0..levels).map(|level| if (steps >> level) & 1 == 1 { ".1" } else { ".0" }).collect();
    let mut headers = FieldTable::default();
    headers.insert("created_at".into(), AMQPValue::LongLongInt(created.as_millisecond()));
    headers.insert("nbf".into(), AMQPValue::LongLongInt(nbf.as_microsecond()));
    let properties = BasicProperties::default()
        .with_delivery_mode(2)
        .with_content_type("application/json".into())
        .with_message_id(number.to_string().into())
        .with_type(TYPE.into())
        .with_headers(headers);
    let key = ShortString::from(format!("{TYPE}.bare{bits}"));
    let options = BasicPublishOptions::default();
    let sent = channel.basic_publish(SCHEDULER.into(), key, options, &PAYLOAD, properties).await?;
    ensure!(matches!(sent.await?, Confirmation::Ack(_)), "a bare message was not confirmed");
    Ok(())
}

async fn consume(channel: Channel, runs: Runs) -> anyhow::Result<()> {
    channel.basic_qos(PREFETCH, BasicQosOptions::default()).await?;
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    let mut consumer = channel.basic_consume(PROCESSOR.into(), "".into(), options, arguments).await?;
    while let Some(delivery) = consumer.next().await {
        let delivery = delivery?;
        let number = delivery.properties.message_id().as_ref().and_then(|id| id.as_str().parse().ok());
        let (created, nbf) = (header(&delivery, "created_at") * 1_000, header(&delivery, "nbf"));
        runs.push(number.unwrap_or(u32::MAX), created, nbf);
        delivery.ack(BasicAckOptions::default()).await?;
    }
    Ok(())
}

fn header(delivery: &Delivery, name: &str) -> i64 {
    let value = delivery.properties.headers().as_ref().and_then(|headers| headers.inner().get(name));
    value.and_then(AMQPValue::as_long_long_int).unwrap_or(0)
}

fn level_name(level: u8) -> String {
    format!("bare.ladder.{level}")
}

async fn exchange(channel: &Channel, name: &str) -> lapin::Result<()> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    channel.exchange_declare(name.into(), ExchangeKind::Topic, options, FieldTable::default()).await
}

async fn queue(channel: &Channel, name: &str, mut arguments: FieldTable) -> lapin::Result<()> {
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(name.into(), options, arguments).await.map(drop)
}

async fn bind(channel: &Channel, source: &str, queue: &str, key: &str) -> lapin::Result<()> {
    let options = QueueBindOptions::default();
    channel.queue_bind(queue.into(), source.into(), key.into(), options, FieldTable::default()).await
}

async fn close(connection: Connection) -> lapin::Result<()> {
    connection.close(200, "done".into()).await
}
