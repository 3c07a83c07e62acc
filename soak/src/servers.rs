//! Starts RabbitMQ and Redis for this run only. They stop when their standard input ends, however this process ends.

use std::{collections::BTreeMap, io::Write as _, process::Stdio};

use anyhow::{Context as _, bail, ensure};
use redis::{AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection};
use tempfile::NamedTempFile;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// Connects to Redis without time limits. The crate's own limit of half a second is too short on a busy machine.
pub async fn connect_to_redis(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// A RabbitMQ and a Redis for this run only.
pub struct Servers {
    /// The AMQP URL.
    pub amqp: String,
    /// The URL of the management API.
    pub management: String,
    /// The URL of Redis.
    pub redis: String,
    /// The script that keeps RabbitMQ up.
    pub rabbitmq: Hold,
    redis_hold: Hold,
}

impl Servers {
    /// Starts both. RabbitMQ is a version of `scripts/brokers`, or the installed one.
    pub async fn start(version: Option<&str>) -> anyhow::Result<Self> {
        Self::with(Hold::of(&mut broker(version), "").await?).await
    }

    /// Starts both, with a cluster of this many RabbitMQ nodes and with settings for `rabbitmq.conf`. The URLs name all
    /// nodes; the script says the URLs of each node, `AMQP_URL_1` and so on.
    pub async fn start_cluster(version: Option<&str>, nodes: usize, settings: &str) -> anyhow::Result<Self> {
        let mut command = broker(version);
        // Several nodes that start at once on a busy machine take longer than one node.
        command.args(["--nodes", &nodes.to_string()]).env("HATCHERY_START_TIMEOUT", "300");
        Self::with(Hold::of(&mut command, settings).await?).await
    }

    async fn with(rabbitmq: Hold) -> anyhow::Result<Self> {
        let redis_hold = Hold::redis("").await?;
        Ok(Self {
            amqp: rabbitmq.said("AMQP_URL")?,
            management: rabbitmq.said("RABBITMQ_MANAGEMENT_URL")?,
            redis: redis_hold.said("REDIS_URL")?,
            rabbitmq,
            redis_hold,
        })
    }

    /// Runs rabbitmqctl.
    pub async fn ctl(&mut self, arguments: &str) -> anyhow::Result<()> {
        self.rabbitmq.tell(&format!("ctl {arguments}")).await
    }

    /// Stops both.
    pub async fn end(self) {
        tokio::join!(self.rabbitmq.end(), self.redis_hold.end());
    }
}

/// Returns the command that starts RabbitMQ.
fn broker(version: Option<&str>) -> Command {
    let (script, arguments) = match version {
        Some(version) => ("scripts/brokers", ["hold", version]),
        None => ("scripts/services", ["hold", "--rabbitmq-only"]),
    };
    let mut command = Command::new(script);
    command.args(arguments);
    command
}

/// A running script that keeps a server up until its standard input ends.
pub struct Hold {
    script: Child,
    input: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    said: BTreeMap<String, String>,
    /// A server reads them again when it starts again.
    _settings: NamedTempFile,
}

impl Hold {
    /// Starts Redis with these settings for `redis.conf`, and waits until it is ready.
    pub async fn redis(settings: &str) -> anyhow::Result<Self> {
        Self::of(Command::new("scripts/services").args(["hold", "--redis-only"]), settings).await
    }

    async fn of(command: &mut Command, settings: &str) -> anyhow::Result<Self> {
        let mut file = NamedTempFile::new()?;
        file.write_all(settings.as_bytes())?;
        if !settings.is_empty() {
            command.env("HATCHERY_RABBITMQ_CONF", file.path()).env("HATCHERY_REDIS_CONF", file.path());
        }
        let said = format!("{:?}", command.as_std());
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{said}; run this from the repository's folder"))?;
        let input = child.stdin.take().context("a pipe")?;
        let answers = BufReader::new(child.stdout.take().context("a pipe")?).lines();
        let mut hold = Self { script: child, input, answers, said: BTreeMap::new(), _settings: file };
        while let Some(line) = hold.answers.next_line().await? {
            match line.split_once('=') {
                Some((name, value)) => hold.said.insert(name.to_owned(), value.to_owned()),
                None if line == "READY" => return Ok(hold),
                None => None,
            };
        }
        bail!("{said} started no server, see above")
    }

    /// Returns a value that the script printed.
    pub fn said(&self, name: &str) -> anyhow::Result<String> {
        self.said.get(name).cloned().with_context(|| format!("no {name}"))
    }

    /// Sends a line for `scripts/services hold` to the script, and waits until it is done.
    pub async fn tell(&mut self, line: &str) -> anyhow::Result<()> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        let (done, failed) = (format!("DONE {line}"), format!("FAILED {line}"));
        // The output of rabbitmqctl comes before the answer.
        while let Some(answer) = self.answers.next_line().await? {
            if answer == done {
                return Ok(());
            }
            ensure!(answer != failed, answer);
        }
        bail!("{line}: the script has ended")
    }

    /// Stops the server.
    pub async fn end(mut self) {
        drop(self.input);
        let _ = self.script.wait().await;
    }
}
