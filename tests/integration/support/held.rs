//! A RabbitMQ of its own for one test, which may restart, change and break it.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
};

use tokio::task::spawn_blocking;
use url::Url;

use super::{broker::VirtualHost, server::Server};

/// A RabbitMQ that a script keeps running.
pub(crate) struct Held {
    server: &'static Server,
    /// The AMQP URLs of the nodes of a cluster.
    nodes: Vec<Url>,
    script: Arc<Mutex<Script>>,
}

/// The script ends when its standard input ends, which happens when this process ends at the latest.
struct Script {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _hold: Child,
}

impl Held {
    /// Starts a broker of the version under test, with these settings in addition to its own.
    pub(crate) fn start(settings: Option<&Path>) -> Self {
        Self::with(settings, &[])
    }

    /// Starts a cluster of three nodes. URLs and commands are those of the first node.
    pub(crate) fn cluster() -> Self {
        Self::with(None, &["--nodes", "3"])
    }

    fn with(settings: Option<&Path>, more: &[&str]) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let version = std::env::var("HATCHERY_TEST_BROKER").unwrap_or_default();
        let (script, arguments) = match version.as_str() {
            "" | "docker" | "native" => ("services", ["hold", "--rabbitmq-only"]),
            version => ("brokers", ["hold", version]),
        };
        let mut hold = Command::new(format!("{}/../scripts/{script}", env!("CARGO_MANIFEST_DIR")));
        if let Some(settings) = settings {
            hold.env("HATCHERY_RABBITMQ_CONF", settings);
        }
        let mut hold = hold.args(arguments).args(more).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, mut output) = (hold.stdin.take().unwrap(), BufReader::new(hold.stdout.take().unwrap()));
        let (mut amqp, mut management, mut nodes) = (None, None, Vec::new());
        loop {
            let line = line(&mut output);
            match line.split_once('=') {
                Some((name, url)) if name.starts_with("AMQP_URL_") => {
                    let url = Url::parse(url).unwrap();
                    amqp.get_or_insert_with(|| url.clone());
                    nodes.push(url);
                }
                Some(("AMQP_URL", url)) if !url.contains(',') => amqp = Some(Url::parse(url).unwrap()),
                Some(("RABBITMQ_MANAGEMENT_URL" | "RABBITMQ_MANAGEMENT_URL_1", url)) if !url.contains(',') => {
                    management = Some(Url::parse(url).unwrap());
                }
                Some(_) => {}
                None => break,
            }
        }
        let (Some(amqp), Some(management)) = (amqp, management) else {
            panic!("the script started no RabbitMQ, see its output above")
        };
        let server = Box::leak(Box::new(Server { amqp, management, _hold: None }));
        Self { server, nodes, script: Arc::new(Mutex::new(Script { input, output, _hold: hold })) }
    }

    /// Creates a virtual host on this broker.
    pub(crate) fn host(&self) -> VirtualHost {
        VirtualHost::on(self.server)
    }

    /// Returns the AMQP URL of a node of the cluster, the first of which is 1, for the user of this virtual host.
    pub(crate) fn amqp(&self, host: &VirtualHost, node: usize) -> String {
        host.with_user(&self.nodes[node - 1], &host.name)
    }

    /// Sends a command to the script, and returns whether it succeeded.
    pub(crate) async fn ask(&mut self, what: &str) -> bool {
        self.answer(what).await.is_some()
    }

    /// Runs `rabbitmqctl`, and returns the lines that it prints.
    pub(crate) async fn ctl(&mut self, arguments: &str) -> Vec<String> {
        let printed = self.answer(&format!("ctl {arguments}")).await;
        printed.unwrap_or_else(|| panic!("rabbitmqctl {arguments} failed"))
    }

    /// Sends a command to the script, and returns what it prints; `None` if the command failed. The workers of the test
    /// keep running meanwhile. On a busy machine they would otherwise miss the ten seconds in which RabbitMQ expects a login.
    async fn answer(&mut self, what: &str) -> Option<Vec<String>> {
        let (script, what) = (Arc::clone(&self.script), what.to_owned());
        spawn_blocking(move || script.lock().unwrap().answer(&what)).await.unwrap()
    }

    /// Shuts the broker down cleanly and starts it again, with the same ports and data.
    pub(crate) async fn restart(&mut self) {
        assert!(self.ask("stop rabbitmq").await && self.ask("start rabbitmq").await);
    }
}

impl Script {
    fn answer(&mut self, what: &str) -> Option<Vec<String>> {
        writeln!(self.input, "{what}").unwrap();
        let (done, failed) = (format!("DONE {what}"), format!("FAILED {what}"));
        let mut printed = Vec::new();
        loop {
            let line = line(&mut self.output);
            if line == done || line == failed {
                return (line == done).then_some(printed);
            }
            printed.push(line);
        }
    }
}

fn line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    assert!(output.read_line(&mut line).unwrap() > 0, "the script has ended, see its output above");
    line.trim_end().to_owned()
}
