//! A RabbitMQ and a Redis for this run alone. They go when their standard input ends, however this process does.

use std::{collections::BTreeMap, process::Stdio};

use anyhow::{Context as _, bail, ensure};
use redis::{AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// A connection to Redis that waits as long as it takes: the crate's own limit of half a second is one that a busy machine
/// misses.
pub(crate) async fn connect_to_redis(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

pub(crate) struct Servers {
    pub(crate) amqp: String,
    pub(crate) management: String,
    pub(crate) redis: String,
    rabbitmq: Hold,
    redis_hold: Hold,
}

impl Servers {
    /// Starts both: the RabbitMQ that is installed, or a version of `scripts/brokers`.
    pub(crate) async fn start(version: Option<&str>) -> anyhow::Result<Self> {
        let rabbitmq = match version {
            Some(version) => Hold::start("scripts/brokers", &["hold", version]).await?,
            None => Hold::start("scripts/services", &["hold", "--rabbitmq-only"]).await?,
        };
        let redis_hold = Hold::start("scripts/services", &["hold", "--redis-only"]).await?;
        Ok(Self {
            amqp: rabbitmq.said("AMQP_URL")?,
            management: rabbitmq.said("RABBITMQ_MANAGEMENT_URL")?,
            redis: redis_hold.said("REDIS_URL")?,
            rabbitmq,
            redis_hold,
        })
    }

    /// Runs rabbitmqctl.
    pub(crate) async fn ctl(&mut self, arguments: &str) -> anyhow::Result<()> {
        self.rabbitmq.tell(&format!("ctl {arguments}")).await
    }

    pub(crate) async fn end(self) {
        tokio::join!(self.rabbitmq.end(), self.redis_hold.end());
    }
}

/// A script that holds a server.
pub(crate) struct Hold {
    script: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    said: BTreeMap<String, String>,
}

impl Hold {
    pub(crate) async fn start(script: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut child = Command::new(script)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{script}; run this from the repository's folder"))?;
        let input = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        let mut hold = Self { script: child, input, answers, said: BTreeMap::new() };
        while let Some(line) = hold.answers.next_line().await? {
            match line.split_once('=') {
                Some((name, value)) => hold.said.insert(name.to_owned(), value.to_owned()),
                None if line == "READY" => return Ok(hold),
                None => None,
            };
        }
        bail!("{script} {} gave no server, see above", arguments.join(" "))
    }

    pub(crate) fn said(&self, name: &str) -> anyhow::Result<String> {
        self.said.get(name).cloned().with_context(|| format!("no {name}"))
    }

    async fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        let answer = self.answers.next_line().await?.unwrap_or_default();
        ensure!(answer == format!("DONE {line}"), "{line}: {answer}");
        Ok(())
    }

    pub(crate) async fn end(mut self) {
        drop(self.input);
        let _ = self.script.wait().await;
    }
}
