//! `topology dev`: a topology without RabbitMQ and Redis.

use std::{fs, path::PathBuf, process::Stdio};

use reqwest::Client;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{
    broker::{PATIENCE, eventually},
    process::Process,
    redis::free_port,
};

const FILE: &str = "\
version: 1
name: shop
defaults: { retry: { delays: [100ms, 200ms], max-attempts: 3 } }
types:
  mail: {}
  stock: { coalesce: { immediate: latest, window: 5s } }
  later: {}
schedules: { report: { type: stock, every: 1h } }
";

/// Prints what it is given, and fails while there is a file `outage`.
const HANDLER: &str =
    "test -e outage; ok=$?; cat >> sent; echo >> sent; if [ $ok = 0 ]; then echo down >&2; exit 1; fi";

/// A folder with a `topology dev` in it.
struct Dev {
    folder: TempDir,
    url: String,
    client: Client,
}

impl Dev {
    fn new(file: &str) -> Self {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("topology.yaml"), file).unwrap();
        // The client panics without one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder().tls_certs_only([]).no_proxy().timeout(PATIENCE).build().unwrap();
        Self { folder, url: format!("http://127.0.0.1:{}", free_port()), client }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Returns a command whose servers do not exist.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_topology"));
        command.args(arguments).current_dir(self.folder.path()).env_clear();
        command.env("PATH", std::env::var("PATH").unwrap()).kill_on_drop(true).stdin(Stdio::null());
        command.env("AMQP_URL", "amqp://127.0.0.1:1").env("REDIS_URL", "redis://127.0.0.1:1");
        command
    }

    /// Starts it. What it prints goes to the files `out` and `log`.
    fn start(&self, arguments: &[&str]) -> Process {
        let listen = self.url.trim_start_matches("http://");
        let mut command = self.command(&[&["dev", "--listen", listen], arguments].concat());
        command.stdout(fs::File::create(self.path("out")).unwrap());
        command.stderr(fs::File::create(self.path("log")).unwrap());
        Process::spawn(command)
    }

    async fn has(&self, file: &str, text: &str) {
        let look = async || self.read(file).contains(text).then_some(());
        eventually(&format!("`{text}` in {file}, which has {}", self.read(file)), look).await;
    }

    /// Publishes an event, as soon as the server answers.
    async fn publish(&self, event: Value) {
        let send = async || self.client.post(format!("{}/v1/events", self.url)).json(&event).send().await.ok();
        let answer = eventually("the server answers", send).await;
        assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    /// Waits until the status has a line of a type that is as asked for.
    async fn line(&self, event_type: &str, is: impl Fn(&Value) -> bool) -> Value {
        let look = async || {
            let status = self.get("/v1/status").await;
            let lines = status["types"].as_array().unwrap();
            lines.iter().find(|line| line["type"] == event_type && is(line)).cloned()
        };
        eventually(&format!("the status of {event_type}"), look).await
    }

    async fn end(&self, process: Process) {
        process.signal(Signal::INT);
        process.ended().await.expect(0);
    }
}

#[tokio::test]
async fn the_first_event_runs_a_moment_after_the_file_is_there() {
    let dev = Dev::new("");
    let initialized = dev.command(&["init", "--force"]).stdout(Stdio::null()).status().await.unwrap();
    assert!(initialized.success());
    let process = dev.start(&["--echo"]);
    dev.publish(json!({ "type": "mail", "reference": "50", "payload": { "to": "ann" } })).await;
    dev.has("out", "mail 50 {\"to\":\"ann\"}\n").await;
    dev.end(process).await;
    let out = dev.read("out");
    for line in
        ["everything is forgotten", "The API for this machine: http", "published          1", "succeeded          1"]
    {
        assert!(out.contains(line), "no `{line}` in {out}");
    }
}

#[tokio::test]
async fn events_are_delayed_coalesced_retried_and_dead_lettered_as_on_the_servers() {
    let dev = Dev::new(FILE);
    let process = dev.start(&["--type", "mail,stock", "--exec", "sh", "-c", HANDLER]);
    for payload in ["first", "second"] {
        dev.publish(json!({ "type": "stock", "reference": "lamp", "payload": payload })).await;
    }
    dev.publish(json!({ "type": "mail", "payload": "delayed", "delay": "500ms" })).await;
    dev.publish(json!({ "type": "later", "payload": "no handler" })).await;
    dev.line("later", |line| line["due"] == 1 && line["workers"] == 0).await;
    dev.has("sent", "\"delayed\"").await;
    dev.has("sent", "\"second\"").await;
    assert!(!dev.read("sent").contains("first"), "{}", dev.read("sent"));

    fs::write(dev.path("outage"), "").unwrap();
    dev.publish(json!({ "type": "mail", "payload": "fails" })).await;
    dev.line("mail", |line| line["dead"] == 1).await;
    assert_eq!(dev.read("sent").matches("\"fails\"").count(), 3);
    let status = dev.get("/v1/status").await;
    assert_eq!(
        status["findings"][0]["message"], "1 event waits in shop.processor.later, and it has no consumer",
        "{status:#}"
    );
    // The file records failures, as by default, and no event waits for its record.
    let traced = async || {
        let trace = dev.get("/v1/trace?type=mail").await;
        (trace["records"].as_array()?.len() == 3).then_some(())
    };
    eventually("the trace has two failures and a dead letter", traced).await;
    let letters = dev.get("/v1/dead-letters").await;
    assert_eq!((&letters["found"], &letters["letters"][0]["failure"]), (&json!(1), &json!("down")), "{letters:#}");
    fs::remove_file(dev.path("outage")).unwrap();
    let replay = dev.client.post(format!("{}/v1/dead-letters/replay", dev.url)).json(&json!({ "dry_run": false }));
    assert_eq!(replay.send().await.unwrap().status(), 200);
    dev.line("mail", |line| line["dead"] == 0 && line["due"] == 0).await;
    assert_eq!(dev.read("sent").matches("\"fails\"").count(), 4);
    dev.end(process).await;
    let account = dev.read("out");
    let numbers = |line: &str| account.lines().find_map(|it| it.trim().strip_prefix(line)?.split_whitespace().next());
    let expected =
        [("published", "6"), ("succeeded", "3"), ("failed runs", "3"), ("dead letters", "0"), ("waiting", "2")];
    for (what, count) in expected {
        // The event of the schedule is published too, and waits for its hour.
        assert_eq!(numbers(what), Some(count), "{what}: {account}");
    }
}

#[tokio::test]
async fn a_changed_file_is_taken_over_and_what_waits_stays() {
    let dev = Dev::new(FILE);
    let process = dev.start(&["--exec", "sh", "-c", HANDLER]);
    let waiting = json!({ "type": "later", "reference": "50", "payload": "waits", "delay": "10s" });
    dev.publish(waiting).await;
    dev.publish(json!({ "type": "mail", "payload": "hour", "delay": "1h" })).await;

    let changed = FILE.replace("  later: {}\n", "  sms: {}\n").replace("[100ms, 200ms]", "[300ms]");
    fs::write(dev.path("topology.yaml"), &changed).unwrap();
    dev.has("out", "is taken over").await;
    dev.has("out", "+ type sms\n").await;
    dev.has("out", "~ type mail\n").await;
    dev.has("out", "- type later: 1 event waits until the type is back\n").await;
    dev.publish(json!({ "type": "sms", "payload": "new" })).await;
    dev.has("sent", "\"new\"").await;
    dev.line("mail", |line| line["delayed"] == 1).await;

    fs::write(dev.path("topology.yaml"), "version: 1\nname: shop\ntypes: { mail: { retries: 3 } }\n").unwrap();
    dev.has("log", "`retries`").await;
    dev.has("log", "topology.yaml is not valid; the topology stays as it was").await;
    fs::write(dev.path("topology.yaml"), FILE.replace("name: shop", "name: other")).unwrap();
    dev.has("log", "the topology's name is `other` now").await;
    dev.publish(json!({ "type": "sms", "payload": "still there" })).await;
    dev.has("sent", "\"still there\"").await;

    fs::write(dev.path("topology.yaml"), FILE).unwrap();
    dev.has("out", "+ type later\n").await;
    dev.has("sent", "\"waits\"").await;
    dev.end(process).await;
}

#[tokio::test]
async fn an_event_waits_as_long_as_its_retry_delay_was_when_it_failed() {
    let file = "version: 1\nname: shop\ntypes: { mail: { retry: { delays: [10s], max-attempts: 3 } } }\n";
    let dev = Dev::new(file);
    fs::write(dev.path("outage"), "").unwrap();
    let process = dev.start(&["--exec", "sh", "-c", HANDLER]);
    dev.publish(json!({ "type": "mail", "payload": "fails" })).await;
    dev.has("log", "attempt 1 of 3 failed, retrying in 10s").await;
    // Another delay is another queue, because the queue's name has its TTL.
    fs::write(dev.path("topology.yaml"), file.replace("10s", "1h")).unwrap();
    dev.has("out", "topology.yaml has changed, and is taken over.\n~ type mail\n").await;
    let line = dev.line("mail", |line| line["retrying"] == 0).await;
    assert_eq!((&line["delayed"], &line["due"], &line["dead"]), (&json!(1), &json!(0), &json!(0)), "{line:#}");
    assert_eq!(dev.read("sent").matches("\"fails\"").count(), 1);
    dev.has("log", "attempt 2 of 3 failed, retrying in 1h").await;
    dev.line("mail", |line| line["retrying"] == 1).await;
    assert_eq!(dev.read("sent").matches("\"fails\"").count(), 2);
    dev.end(process).await;
    assert!(dev.read("out").contains("waiting            1   forgotten now\n"), "{}", dev.read("out"));
}

#[tokio::test]
async fn a_pause_holds_a_type() {
    let dev = Dev::new(FILE);
    let process = dev.start(&["--echo"]);
    dev.publish(json!({ "type": "mail", "payload": "before" })).await;
    dev.has("out", "\"before\"").await;
    let pauses = format!("{}/v1/pauses", dev.url);
    let pause = dev.client.post(&pauses).json(&json!({ "type": "mail", "reason": "lunch" })).send().await.unwrap();
    assert_eq!(pause.status(), 200, "{}", pause.text().await.unwrap());
    dev.line("mail", |line| line["paused"] == true && line["workers"] == 0).await;
    dev.publish(json!({ "type": "mail", "payload": "held" })).await;
    dev.line("mail", |line| line["due"] == 1).await;
    assert!(!dev.read("out").contains("held"));
    let end = dev.client.post(format!("{pauses}/end")).json(&json!({ "type": "mail" })).send().await.unwrap();
    assert_eq!(end.status(), 200, "{}", end.text().await.unwrap());
    dev.has("out", "\"held\"").await;
    dev.end(process).await;
}

#[tokio::test]
async fn only_this_machine_is_answered() {
    let dev = Dev::new(FILE);
    let output = dev.command(&["dev", "--listen", ":0"]).output().await.unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("listens on this machine alone"), "{error}");
}

#[tokio::test]
async fn publish_and_status_ask_a_server_that_is_named() {
    let dev = Dev::new(FILE);
    let process = dev.start(&["--echo"]);
    dev.publish(json!({ "type": "mail", "payload": "first" })).await;
    let run = async |arguments: &str| {
        let mut command = dev.command(&arguments.split(' ').collect::<Vec<_>>());
        // It needs no file.
        let output = command.env("TOPOLOGY_URL", &dev.url).current_dir("/").output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, id, error) = run(r#"publish mail --reference 50 --payload {"a":1} --delay 100ms --id own"#).await;
    assert_eq!((code, id.as_str()), (0, "own\n"), "{error}");
    dev.has("out", "mail 50 {\"a\":1}\n").await;
    let (code, _, error) = run("publish mial").await;
    assert_eq!(code, 1);
    assert!(error.contains("is it `mail`?"), "{error}");
    let (code, status, error) = run("status --detailed-exitcode").await;
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(status.starts_with("shop on ") && status.contains("nothing is wrong"), "{status}");
    let (code, json, _) = run("-o json status").await;
    assert_eq!((code, &serde_json::from_str::<Value>(&json).unwrap()["types"][0]["type"]), (0, &json!("later")));
    let (code, _, error) = run("breaker list").await;
    assert_eq!(code, 2, "{error}");
    assert!(error.contains("is for `publish`"), "{error}");
    dev.end(process).await;
    let (code, _, error) = run("publish mail").await;
    assert_eq!(code, 6, "{error}");
    assert!(error.contains(&format!("no answer from {}", dev.url)), "{error}");
}
