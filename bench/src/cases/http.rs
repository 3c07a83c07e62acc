//! Publishes over the HTTP API of `topology serve`, beside the library with as many events under way.

use std::{net::TcpListener, process::Stdio, time::Duration};

use anyhow::{Context as _, ensure};
use futures_util::{StreamExt as _, TryFutureExt as _, TryStreamExt as _, stream};
use hatchery::NewEvent;
use reqwest::{Client, Response, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::{
    process::Child,
    time::{Instant, sleep},
};

use crate::{
    load::{Load, Side},
    meter::{Latency, Measured},
    ours,
    surroundings::Surroundings,
    topology::Type,
};

/// The lines of a batch, the most that the server takes.
const LINES: usize = 10_000;
/// The single requests that are under way, each over a connection of its own that is kept.
const CONNECTIONS: usize = 64;
/// How long the server may take to start.
const PATIENCE: Duration = Duration::from_secs(30);
const TYPE: Type = Type::Each;

/// How the events come to the server.
#[derive(Clone, Copy)]
pub(super) enum Way {
    /// Batches of NDJSON, one after another.
    Batches,
    /// A request each.
    Single,
}

pub(super) async fn run(around: &Surroundings, way: Way, load: &Load, side: Side) -> anyhow::Result<Measured> {
    let (mut measured, times) = match side {
        Side::Ours => {
            let server = Server::start(around).await?;
            // The CPU time of the client is that of the server.
            let mut measuring = around.meter.begin_with(server.process.id().context("the server has ended")?)?;
            let times = match way {
                Way::Batches => server.publish_batches(load).await.map(|()| Vec::new())?,
                Way::Single => at_a_time(load, |number| server.publish(load, number)).await?,
            };
            measuring.stop_clock();
            (measuring.end(load.events)?, times)
        }
        Side::Bare => {
            let hatchery = around.hatchery().await?;
            let publisher = hatchery.publisher();
            let mut measuring = around.meter.begin()?;
            let times = match way {
                Way::Batches => ours::publish_now(&hatchery, TYPE, load).await.map(|()| Vec::new())?,
                Way::Single => {
                    let event =
                        |number: u32| NewEvent::new(TYPE.name(), load.payload.clone()).reference(number.to_string());
                    let publish = |number| publisher.publish(event(number));
                    at_a_time(load, |number| publish(number).map_ok(drop).err_into()).await?
                }
            };
            measuring.stop_clock();
            hatchery.close().await;
            (measuring.end(load.events)?, times)
        }
    };
    if !times.is_empty() {
        measured.latencies = vec![Latency::of("confirm", times)?];
    }
    Ok(measured)
}

/// Publishes all events, as many at a time as there are connections. Returns how long each took, in microseconds.
async fn at_a_time<F: Future<Output = anyhow::Result<()>>>(
    load: &Load,
    publish: impl Fn(u32) -> F,
) -> anyhow::Result<Vec<i64>> {
    let timed = |number| {
        let publishing = publish(number);
        async move {
            let begun = Instant::now();
            publishing.await?;
            anyhow::Ok(i64::try_from(begun.elapsed().as_micros())?)
        }
    };
    stream::iter(load.numbers()).map(timed).buffer_unordered(CONNECTIONS).try_collect().await
}

/// A running `topology serve`.
struct Server {
    process: Child,
    client: Client,
    events: String,
}

impl Server {
    /// Starts a server, and waits until it answers.
    async fn start(around: &Surroundings) -> anyhow::Result<Self> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let mut command = around.stage.topology(&["serve", "--listen", &address.to_string()])?;
        let process = command.stderr(Stdio::null()).spawn()?;
        let client = Client::builder().tls_certs_only([]).no_proxy().build()?;
        let (description, until) = (format!("http://{address}/v1/openapi.json"), Instant::now() + PATIENCE);
        while client.get(&description).send().await.is_err() {
            ensure!(Instant::now() < until, "`topology serve` does not answer");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { process, client, events: format!("http://{address}/v1/events") })
    }

    async fn publish(&self, load: &Load, number: u32) -> anyhow::Result<()> {
        let answer = self.client.post(&self.events).json(&event(load, number)?).send().await?;
        ensure!(answer.status() == 201, "{}", refused(answer).await);
        // A connection is used again once its answer has been read.
        answer.bytes().await?;
        Ok(())
    }

    async fn publish_batches(&self, load: &Load) -> anyhow::Result<()> {
        let numbers: Vec<u32> = load.numbers().collect();
        for numbers in numbers.chunks(LINES) {
            let lines: Vec<String> =
                numbers.iter().map(|number| Ok(event(load, *number)?.to_string())).collect::<anyhow::Result<_>>()?;
            let request = self.client.post(&self.events).header(CONTENT_TYPE, "application/x-ndjson");
            let answer = request.body(lines.join("\n")).send().await?;
            ensure!(answer.status() == 200, "{}", refused(answer).await);
            let answers = answer.text().await?;
            let confirmed = answers.lines().filter(|line| !line.contains("\"error\"")).count();
            ensure!(confirmed == numbers.len(), "{confirmed} of {} lines were confirmed", numbers.len());
        }
        Ok(())
    }
}

/// Returns an event as the API takes it.
fn event(load: &Load, number: u32) -> anyhow::Result<Value> {
    let payload = std::str::from_utf8(&load.payload)?;
    Ok(json!({ "type": TYPE.name(), "reference": number.to_string(), "payload": payload }))
}

async fn refused(answer: Response) -> String {
    let status = answer.status();
    format!("{status}: {}", answer.text().await.unwrap_or_default())
}
