//! Reads the stream of the switches as any program can.

use anyhow::Context as _;
use futures_util::StreamExt as _;
use hatchery::internals::rabbitmq::connection::AmqpUrl;
use jiff::Timestamp;
use lapin::{
    options::{BasicConsumeOptions, BasicQosOptions},
    types::{AMQPValue, FieldTable},
};
use tokio::task::JoinHandle;

use crate::harness::Stage;

/// Waits for the next snapshot. The task returns when it came, in microseconds since 1970.
pub(super) async fn next_snapshot(stage: &Stage) -> anyhow::Result<JoinHandle<anyhow::Result<i64>>> {
    let connection = AmqpUrl::new(&stage.servers.amqp)?.connect("soak switches").await?;
    let channel = connection.create_channel().await?;
    channel.basic_qos(1, BasicQosOptions::default()).await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-stream-offset".into(), AMQPValue::LongString("next".into()));
    let (stream, options) = (stage.names().control(), BasicConsumeOptions::default());
    let mut consumer = channel.basic_consume(stream.into(), "".into(), options, arguments).await?;
    Ok(tokio::spawn(async move {
        consumer.next().await.context("the stream of the switches has ended")??;
        let at = Timestamp::now().as_microsecond();
        connection.close(200, "done".into()).await?;
        Ok(at)
    }))
}
