//! Pages that begin with something on the broker, in Redis or in the reader's folder.

use lapin::BasicProperties;
use serde_json::json;

use crate::support::{
    amqp::Amqp,
    broker::VirtualHost,
    certificates::Authority,
    held::Held,
    page::{Reader, read},
    private,
    redis::{self, Server, free_port},
};

const BILLING: &str = "version: 1\nname: billing\nhatcheries: [30s]\ntypes:\n  mail: {}\n  hr-import: {}\n";

const OF_THE_RUNBOOK: &str = "version: 1\nname: billing\nhatcheries: [5s]\ntypes:\n  mail: {}\n  import: {}\n";

#[tokio::test]
#[ignore = "follows a page; scripts/test --all runs it"]
async fn the_batch_of_the_wire_format_works() {
    let host = VirtualHost::new();
    let mut reader = Reader::new(&host, redis::url());
    reader.writes("topology.yaml", BILLING);
    reader.runs("topology apply --auto-approve").await;
    reader.follow(&read("docs/wire-format.md")).await;
}

#[tokio::test]
#[ignore = "follows a page; scripts/test --all runs it"]
async fn a_pipeline_works() {
    let host = VirtualHost::new();
    let mut reader = Reader::new(&host, redis::url());
    reader.writes("topology.yaml", BILLING);
    reader.follow(&read("docs/operations/pipelines.md")).await;
}

#[tokio::test]
#[ignore = "follows a page; scripts/test --all runs it"]
async fn a_destroy_of_a_queue_in_use_is_refused() {
    let host = VirtualHost::new();
    let mut reader = Reader::new(&host, redis::url());
    reader.writes("topology.yaml", BILLING);
    reader.runs("topology apply --auto-approve").await;
    reader.runs("topology publish mail --payload '{}'").await;
    // RabbitMQ's figures are seconds old.
    reader.follow("```console\n$ topology status\n…\nmail 1 …\n…\n```").await;
    reader.follow(&read("docs/operations/changes.md")).await;
}

#[tokio::test]
#[ignore = "follows the commands of three pages; scripts/test --all runs it"]
async fn the_commands_for_waiting_events_and_dead_letters_work() {
    let host = VirtualHost::new();
    let mut reader = Reader::new(&host, redis::url());
    reader.writes(
        "topology.yaml",
        "version: 1\nname: billing\ndefaults: { retry: { delays: [100ms, 10m], max-attempts: 6 } }\ntypes:\n  mail: {}\n  \
         hr-import: { coalesce: { immediate: latest, delayed: each-time } }\n",
    );
    reader.runs("topology apply --auto-approve").await;
    for (event, reason) in
        [("mail", "connection refused"), ("hr-import", "connection refused"), ("hr-import", "no employee 104711")]
    {
        reader.runs(&format!("topology publish {event} --payload '{{}}'")).await;
        let gives_up = format!("echo '{reason}' >&2; exit 65");
        reader.runs(&format!("topology work --type {event} --stop-when-empty --exec sh -c \"{gives_up}\"")).await;
    }
    for time in [
        "--id change-1 --reference 1234",
        "--reference 1234 --at 2030-06-01T09:00:00Z",
        "--reference 5678 --at 2030-06-01T12:00:00Z",
    ] {
        reader.runs(&format!("topology publish hr-import {time} --payload '{{}}'")).await;
    }
    reader
        .runs("topology work --type hr-import --exec sh -c 'echo connection refused >&2; exit 1' > work.txt 2>&1 &")
        .await;
    reader.follow(&read("docs/operations/events.md")).await;
}

#[tokio::test]
#[ignore = "follows a page; scripts/test --all runs it"]
async fn the_page_of_sources_works() {
    let host = VirtualHost::new();
    host.put("queues", "hr-changes", &json!({ "durable": true, "arguments": { "x-queue-type": "quorum" } }));
    let amqp = Amqp::connect(&host.amqp()).await;
    let wrong = r#"{"id": 8, "kind": "terminated", "employee": {"number": "1234", "end_date": "soon"}}"#;
    amqp.publish("", "hr-changes", BasicProperties::default(), wrong.as_bytes()).await;
    Reader::new(&host, redis::url()).follow(&read("docs/sources.md")).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts a RabbitMQ and a Redis with TLS; scripts/test --all runs it"]
async fn the_page_of_tls_works() {
    let broker = private::broker().await;
    let (host, port) = (broker.host(), free_port());
    let (port_text, options) = (port.to_string(), broker.authority.redis_options());
    let options: Vec<&str> = ["--tls-port", &port_text].into_iter().chain(options.iter().map(String::as_str)).collect();
    let _redis = Server::start(free_port(), &options);
    let mut reader = Reader::new(&host, redis::url());
    reader.has("amqps://app:secret@rabbit.internal/prod", &broker.amqps(&host));
    reader.has("https://app:secret@rabbit.internal:15671", &broker.https(&host));
    reader.has("rediss://redis.internal:6380", &format!("rediss://127.0.0.1:{port}"));
    let stranger = Authority::called("stranger");
    for (name, file) in [
        ("ca.pem", broker.authority.file()),
        ("other.pem", stranger.file()),
        ("client.crt", broker.client.chain.clone()),
        ("client.key", broker.client.key.clone()),
    ] {
        reader.writes(name, &std::fs::read_to_string(file).unwrap());
    }
    reader.writes("topology.yaml", BILLING);
    reader.follow(&read("docs/how-to/tls.md")).await;
}

/// Brings about what each section of the runbook is about, and then does what the section says.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "starts a RabbitMQ of its own and breaks it in eight ways; scripts/test --all runs it"]
async fn each_section_of_the_runbook_mends_what_it_is_about() {
    let mut node = Held::start(None);
    let host = node.host();
    let redis = Server::start(free_port(), &["--maxmemory-policy", "allkeys-lru"]);
    let mut reader = Reader::new(&host, &redis.url);
    reader.has("-p / ", &format!("-p {} ", host.name));
    reader.has("vhost \"/\"", &format!("vhost \"{}\"", host.name));
    reader.has("--exec ./send-mail", "--exec ./send-mail 2> mail.log > mail.txt &");
    reader.has("'^billing", &format!("-p {} '^billing", host.name));
    reader.writes("topology.yaml", OF_THE_RUNBOOK);
    reader.writes("newer.yaml", &format!("{OF_THE_RUNBOOK}  receipt: {{}}\n"));
    reader.writes("send-mail", "#!/bin/sh\necho \"$EVENT_ID\" >> mailed\n");
    reader.runs("chmod +x send-mail && topology apply --auto-approve").await;
    node.ctl("set_vm_memory_high_watermark 0.0000001").await;
    reader.rules(&mut node);
    let page = read("docs/runbook.md");
    for section in page.split("\n## ").skip(1) {
        let title = section.lines().next().unwrap();
        let stranger =
            json!({ "pattern": "^billing\\.hatchery\\.", "definition": { "message-ttl": 1000 }, "apply-to": "queues" });
        match title {
            "Shadowed" => host.put("policies", "expire-all", &stranger),
            "Not applied" => reader.runs("topology destroy --auto-approve --force").await,
            "Wrong objects" => {
                let anew = json!({ "type": "topic", "durable": true, "arguments": { "x-hatchery-owner": "billing" } });
                host.delete("exchanges", &["billing.scheduler"]);
                host.put("exchanges", "billing.scheduler", &anew);
            }
            "Unrouted" => {
                host.delete("policies", &["short-queues"]);
                reader
                    .runs("yes '{\"type\": \"receipt\"}' | head -n 500 | topology -f newer.yaml publish --batch - && cp newer.yaml topology.yaml")
                    .await;
            }
            "No consumer" => reader.runs("topology publish mail --id first --payload '{}'").await,
            // A connection has another process id each time: `status::afternoon` runs these commands.
            "Not acknowledging" => continue,
            "Drift" => host.delete("queues", &["billing.retry.import.1m"]),
            "Dead letters" => {
                reader.runs("kill %1; wait").await;
                reader.runs("yes '{\"type\": \"mail\"}' | head -n 90 | topology publish --batch -").await;
                let refused = "echo 'connect to mail.internal:587: connection refused' >&2; exit 65";
                reader.runs(&format!("topology work --type mail --stop-when-empty --exec sh -c \"{refused}\"")).await;
            }
            _ => {}
        }
        reader.follow(section).await;
    }
    reader.follow("```console\n$ cat mailed\nfirst\n```").await;
}
