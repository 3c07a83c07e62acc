//! Starts an empty RabbitMQ, and reads its objects with curl.

use std::{
    env,
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

/// The lists of all objects, each with the query that makes it cheapest for the API.
const LISTS: [(&str, &str); 4] = [
    ("exchanges", "?disable_stats=true"),
    ("queues", "?disable_stats=true&enable_queue_totals=true"),
    ("bindings", ""),
    ("policies", ""),
];

/// The lists that `status` reads, each with the query that makes it cheapest for the API.
const STATUS: [&str; 9] = [
    "overview",
    "exchanges/%2F?disable_stats=true",
    "queues/%2F?disable_stats=true",
    "queues/%2F?columns=name,messages,messages_ready,messages_unacknowledged,messages_dlx,consumers,messages_details.rate,\
     message_stats.publish,message_stats.ack_details.rate",
    "bindings/%2F",
    "policies/%2F",
    "operator-policies/%2F",
    "vhosts/%2F/channels",
    "health/checks/alarms",
];

/// A running RabbitMQ. It stops when its standard input ends: when this value is dropped or this process ends.
pub(crate) struct Broker {
    pub(crate) amqp: String,
    pub(crate) management: String,
    hold: Child,
}

impl Broker {
    /// Starts RabbitMQ with the command in `BENCH_HOLD`.
    pub(crate) fn start() -> Self {
        let command = env::var("BENCH_HOLD").expect("scripts/bench-topology sets it");
        let mut words = command.split_whitespace();
        let mut hold = Command::new(words.next().unwrap())
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("RabbitMQ starts");
        let (mut amqp, mut management) = (None, None);
        for line in BufReader::new(hold.stdout.take().unwrap()).lines() {
            match line.unwrap().split_once('=') {
                Some(("AMQP_URL", url)) => amqp = Some(url.to_owned()),
                Some(("RABBITMQ_MANAGEMENT_URL", url)) => management = Some(url.to_owned()),
                // READY
                None => break,
                Some(_) => {}
            }
        }
        Self { amqp: amqp.expect("a broker"), management: management.expect("a broker"), hold }
    }

    pub(crate) fn version(&self) -> String {
        let overview: Value = serde_json::from_slice(&self.curl("overview")).unwrap();
        overview["rabbitmq_version"].as_str().unwrap().to_owned()
    }

    /// Returns the number of queues.
    pub(crate) fn queues(&self) -> usize {
        let queues: Vec<Value> = serde_json::from_slice(&self.curl("queues/%2F?disable_stats=true")).unwrap();
        queues.len()
    }

    /// Returns how long curl takes for all lists, one after the other.
    pub(crate) fn lists(&self) -> Duration {
        let started = Instant::now();
        for (list, query) in LISTS {
            self.curl(&format!("{list}/%2F{query}"));
        }
        started.elapsed()
    }

    /// Returns how long curl takes for what `status` reads, one after the other.
    pub(crate) fn figures(&self) -> Duration {
        let started = Instant::now();
        for path in STATUS {
            self.curl(path);
        }
        started.elapsed()
    }

    fn curl(&self, path: &str) -> Vec<u8> {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--fail", "--noproxy", "*"])
            .arg(format!("{}/api/{path}", self.management))
            .stderr(Stdio::inherit())
            .output()
            .expect("curl starts");
        assert!(output.status.success(), "curl {path}: {}", output.status);
        output.stdout
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        drop(self.hold.stdin.take());
        let _ = self.hold.wait();
    }
}
