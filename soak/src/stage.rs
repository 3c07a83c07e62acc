//! The surroundings of a run: its own servers, an applied topology, and a folder for files.

use std::{
    fs::{self, File},
    io::{BufWriter, Write as _},
    path::{Path, PathBuf},
    process::Stdio,
    sync::Mutex,
};

use anyhow::{Context as _, ensure};
use hatchery::{
    Builder, Hatchery, Topology,
    internals::{names::Names, rabbitmq::connection::AmqpUrl},
};
use tempfile::TempDir;
use tokio::process::Command;
use tracing_subscriber::{Layer as _, filter::LevelFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{acknowledged, console::Console, runs::Run, servers::Servers, table::Table};

/// The servers, with the topology applied.
pub struct Stage {
    /// The servers of this run.
    pub servers: Servers,
    /// The topology, as read from the file.
    pub topology: Topology,
    /// The broker's version.
    pub version: String,
    folder: TempDir,
}

impl Stage {
    /// Starts the servers and applies the topology.
    pub async fn set(console: &mut Console, version: Option<&str>, text: &str) -> anyhow::Result<Self> {
        console.step("Start RabbitMQ and Redis, and apply the topology");
        Self::on(console, Servers::start(version).await?, text).await
    }

    /// Applies the topology on these servers.
    pub async fn on(console: &Console, servers: Servers, text: &str) -> anyhow::Result<Self> {
        let broker = AmqpUrl::new(&servers.amqp)?.ask_identity("stage").await?;
        let version = broker.version.unwrap_or_else(|| "of an unknown version".to_owned());
        console.note(&format!("RabbitMQ {version}"));
        let folder = TempDir::new()?;
        log_to(File::create(folder.path().join("soak.log"))?);
        fs::write(folder.path().join("topology.yaml"), text)?;
        let topology = hatchery::read_file(folder.path().join("topology.yaml"))?;
        let stage = Self { servers, topology, version, folder };
        stage.apply().await?;
        Ok(stage)
    }

    /// Runs `topology apply`, as a deployment does.
    pub async fn apply(&self) -> anyhow::Result<()> {
        let status = self.topology(&["apply", "--auto-approve"])?.status().await?;
        ensure!(status.success(), "topology apply: {status}");
        Ok(())
    }

    /// Returns a command of `topology` for the servers and the file.
    pub fn topology(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let binary = std::env::current_exe()?.with_file_name("topology");
        ensure!(binary.exists(), "{} is missing; scripts/soak and scripts/bench build it", binary.display());
        let mut command = Command::new(binary);
        self.with_urls(command.args(arguments));
        Ok(command)
    }

    /// Returns the names of the objects on the broker.
    pub fn names(&self) -> Names {
        Names::new(self.topology.name.clone())
    }

    /// Exchanges the topology's file. Who reads it meanwhile reads one of the two.
    pub fn exchange(&self, text: &str) -> anyhow::Result<()> {
        let new = self.path("topology.new.yaml");
        fs::write(&new, text)?;
        Ok(fs::rename(new, self.path("topology.yaml"))?)
    }

    /// Connects the library to the servers.
    pub async fn connect(&self) -> anyhow::Result<Hatchery> {
        Ok(self.builder().connect().await?)
    }

    /// Returns a builder of the library with the URLs of the servers.
    pub fn builder(&self) -> Builder {
        let builder = Hatchery::builder(self.topology.clone()).name("soak");
        builder.amqp_url(&self.servers.amqp).redis_url(&self.servers.redis)
    }

    /// Returns the path of a file in the folder of this run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Sets the environment of a command so that it finds the topology and the servers. Discards its standard output,
    /// and kills it when it is dropped.
    pub fn with_urls<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command
            .env("TOPOLOGY_FILE", self.path("topology.yaml"))
            .env("AMQP_URL", &self.servers.amqp)
            .env("REDIS_URL", &self.servers.redis)
            .env("RABBITMQ_MANAGEMENT_URL", &self.servers.management)
            .stdout(Stdio::null())
            .kill_on_drop(true)
    }

    /// Writes the runs to a file in the folder, for a closer look: a line each, with number, published, not before and
    /// started.
    pub fn keep(&self, name: &str, runs: &[Run]) -> anyhow::Result<()> {
        let mut file = BufWriter::new(File::create(self.path(name))?);
        for Run { number, created, nbf, at } in runs {
            writeln!(file, "{number}\t{created}\t{nbf}\t{at}")?;
        }
        Ok(file.flush()?)
    }

    /// Prints the account of the run, and stops the servers. Returns whether all numbers are within their limits.
    pub async fn conclude(self, console: &mut Console, tables: &[Table]) -> bool {
        console.step(&format!("The account, of RabbitMQ {}", self.version));
        for table in tables {
            console.say(&table.render());
        }
        let holds = tables.iter().all(Table::holds);
        self.end(console, holds).await;
        holds
    }

    /// Stops the servers. Keeps the folder for a closer look if a number was outside its limit.
    pub async fn end(self, console: &Console, holds: bool) {
        self.servers.end().await;
        if !holds {
            let folder: &Path = &self.folder.keep();
            console.note(&format!("the files of the processes are in {}", folder.display()));
        }
    }
}

/// Connects to the servers that [`Stage::with_urls`] has set in the environment.
pub async fn connect_from_environment(name: &str) -> anyhow::Result<Hatchery> {
    let variable = |name: &str| std::env::var(name).with_context(|| format!("{name} is not set"));
    let topology = hatchery::read_file(variable("TOPOLOGY_FILE")?)?;
    Ok(Hatchery::builder(topology)
        .amqp_url(variable("AMQP_URL")?)
        .redis_url(variable("REDIS_URL")?)
        .name(name)
        .connect()
        .await?)
}

/// Sends the library's warnings to this file. Only the first call in a process has an effect.
pub fn log_to(file: File) {
    let warnings = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(Mutex::new(file));
    let _ = tracing_subscriber::registry()
        .with(warnings.with_filter(LevelFilter::WARN))
        .with(acknowledged::layer())
        .try_init();
}
