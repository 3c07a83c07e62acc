//! The ladder with bare lapin, for comparison: only the queues and bindings that an event needs, a publisher with confirms and a
//! consumer that acknowledges.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use hatchery::internals::{delay, rabbitmq::connection::AmqpUrl};
use jiff::Timestamp;
use lapin::{
    Channel, Connection, ExchangeKind,
    message::Delivery,
    options::{
        BasicAckOptions, BasicConsumeOptions, BasicQosOptions, ConfirmSelectOptions, ExchangeBindOptions,
        ExchangeDeclareOptions, QueueBindOptions,
    },
    types::{AMQPValue, FieldTable},
};

use crate::harness::{Console, Message, PAYLOAD, Plan, Planned, Queues, Run, Runs, declare, publish, watch};

pub(super) const TYPE: &str = "timed";
const PREFETCH: u16 = 200;
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
        declare(&channel, PROCESSOR, FieldTable::default()).await?;
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
            declare(&channel, &level_name(level), arguments).await?;
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
        let publisher = tokio::spawn(publish_plan(publishing.create_channel().await?, plan.clone(), levels, step));
        let names: Vec<String> = (0..levels).map(level_name).chain([PROCESSOR.to_owned()]).collect();
        let busy = async || Ok(queues.ready(&names).await? > 0);
        watch(console, plan.events.len(), plan.longest(), &runs, busy).await?;
        let took = publisher.await??;
        close(consuming).await?;
        close(publishing).await?;
        // The consumer ends with an error when its connection closes, which is expected.
        let _ = consumer.await;
        Ok((runs.all(), took))
    }
}

async fn publish_plan(channel: Channel, plan: Plan, levels: u8, step: Duration) -> anyhow::Result<Duration> {
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let (mut turn, mut took) = (tokio::time::interval(plan.every), Duration::ZERO);
    for burst in plan.bursts() {
        turn.tick().await;
        let (started, now) = (Instant::now(), Timestamp::now());
        let message = |(number, planned): (u32, Planned)| message(number, now + planned.wait.duration(), levels, step);
        publish(&channel, SCHEDULER, burst.into_iter().map(message)).await?;
        took += started.elapsed();
    }
    Ok(took)
}

fn message(number: u32, nbf: Timestamp, levels: u8, step: Duration) -> Message {
    let created = Timestamp::now();
    let steps = created.duration_until(nbf).unsigned_abs().as_micros().div_ceil(step.as_micros());
    let bits: String = (0..levels).map(|level| if (steps >> level) & 1 == 1 { ".1" } else { ".0" }).collect();
    let mut headers = FieldTable::default();
    headers.insert("created_at".into(), AMQPValue::LongLongInt(created.as_millisecond()));
    headers.insert("nbf".into(), AMQPValue::LongLongInt(nbf.as_microsecond()));
    Message::new(&format!("{TYPE}.bare{bits}"), number, PAYLOAD.to_vec()).of_type(TYPE, headers)
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

async fn bind(channel: &Channel, source: &str, queue: &str, key: &str) -> lapin::Result<()> {
    let options = QueueBindOptions::default();
    channel.queue_bind(queue.into(), source.into(), key.into(), options, FieldTable::default()).await
}

async fn close(connection: Connection) -> lapin::Result<()> {
    connection.close(200, "done".into()).await
}
