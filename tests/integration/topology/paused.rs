//! `topology pause` and `resume`, and the pauses of the file.

use hatchery::{Hatchery, internals::rabbitmq::connection::AmqpUrl};
use hatchery_admin::{Admin, Switches};
use lapin::{Connection, options::QueueDeclareOptions, types::FieldTable};
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{
    amqp::Amqp,
    broker::PATIENCE,
    cli::{Bench, Ran},
};

const FILE: &str = "\
version: 1
name: billing
ladder: { resolution: 10ms, horizon: 10ms }
types:
  mail: { register: off, retry: { delays: [1h] } }
  payment: { register: off, retry: { delays: [1h] } }
sources: { hr: { declare: on, events: [ { type: mail } ] } }
";

fn admin(bench: &Bench, file: &str) -> Admin {
    let topology = hatchery::file::read(file, "topology.yaml").unwrap();
    let admin = Admin::new(Hatchery::builder(topology).amqp_url(bench.host.amqp())).unwrap();
    admin.management_url(&bench.host.management()).unwrap()
}

/// Returns the last snapshot on the broker.
async fn switches(bench: &Bench, file: &str) -> Option<Switches> {
    admin(bench, file).switches().await.unwrap()
}

/// Returns who has paused what, as `person type mail`.
async fn paused(bench: &Bench, file: &str) -> Vec<String> {
    let pauses = switches(bench, file).await.expect("a snapshot").pauses;
    let text = |pause| {
        let pause: Value = serde_json::to_value(pause).unwrap();
        let of = match &pause["of"] {
            Value::String(all) => all.clone(),
            of => {
                let (kind, name) = of.as_object().unwrap().iter().next().unwrap();
                format!("{kind} {}", name.as_str().unwrap())
            }
        };
        format!("{} {of}", pause["by"].as_str().unwrap())
    };
    let mut paused: Vec<String> = pauses.iter().map(text).collect();
    paused.sort();
    paused
}

fn pause(bench: &Bench, arguments: &[&str]) -> Ran {
    bench.run(&[&["pause", "--reason", "R"], arguments].concat())
}

/// Declares a queue that belongs to a connection, and returns the connection.
async fn exclusive(bench: &Bench, queue: &str) -> Connection {
    let other = AmqpUrl::new(&bench.host.amqp()).unwrap().connect("another program").await.unwrap();
    let channel = other.create_channel().await.unwrap();
    let exclusive = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(queue.into(), exclusive, FieldTable::default()).await.unwrap();
    other
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn types_sources_and_all_are_paused_and_resumed() {
    let bench = Bench::new(FILE);
    let ran = pause(&bench, &["mail"]).expect(1);
    assert!(ran.stderr.contains("billing.control"), "{ran:?}");
    bench.apply();
    let first = switches(&bench, FILE).await.expect("apply writes the first snapshot");
    assert_eq!(first.pauses, []);
    let ran = bench.expect(0, &["pause", "mail", "--source", "hr", "--reason", "closed", "--until", "2h"]);
    assert!(ran.stdout.contains("type mail is paused, since ") && ran.stdout.contains(": \"closed\"\n"), "{ran:?}");
    pause(&bench, &["--all", "-o", "json"]).expect(0);
    assert_eq!(paused(&bench, FILE).await, ["person all", "person source hr", "person type mail"]);
    let ran = bench.expect(0, &["resume", "mail", "payment"]);
    assert!(ran.stdout.starts_with("type mail is resumed.\nIt still waits: everything is paused"), "{ran:?}");
    assert!(ran.stdout.contains("type payment was not paused.\n"), "{ran:?}");
    let answer = bench.expect(0, &["resume", "--all", "--source", "hr", "-o", "json"]).json();
    assert_eq!((&answer["changed"], &answer["pauses"]), (&json!(true), &json!([])));
    let ended: Vec<&Value> = answer["ended"].as_array().unwrap().iter().map(|pause| &pause["kind"]).collect();
    assert_eq!(ended, ["source", "all"]);
    assert_eq!(paused(&bench, FILE).await, Vec::<String>::new());
    let answer = bench.expect(0, &["resume", "mail", "-o", "json"]).json();
    assert_eq!(answer["changed"], false);
}

#[rstest]
#[case::past(&["mail", "--until", "2026-01-01T00:00:00Z"], "which has passed; nothing was written")]
#[case::type_(&["mial"], "the file has no type `mial`; is it `mail`?")]
#[case::source(&["--source", "payroll"], "the file has no source `payroll`")]
#[case::nothing(&[], "required arguments were not provided")]
#[case::no_word(&["a.b"], "is not one word")]
fn a_wrong_pause_is_refused(#[case] arguments: &[&str], #[case] says: &str) {
    let bench = Bench::new(FILE);
    bench.apply();
    let ran = pause(&bench, arguments).expect(2);
    assert!(ran.stderr.contains(says), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pauses_at_the_same_time_all_hold() {
    let bench = Bench::new(FILE);
    bench.apply();
    std::thread::scope(|scope| {
        for what in [&["mail"][..], &["payment"], &["--source", "hr"], &["--all"]] {
            let bench = &bench;
            scope.spawn(move || pause(bench, what).expect(0));
        }
    });
    let all = ["person all", "person source hr", "person type mail", "person type payment"];
    assert_eq!(paused(&bench, FILE).await, all);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_waits_for_the_lock() {
    let bench = Bench::new(FILE);
    bench.apply();
    let _other = exclusive(&bench, "billing.control.lock").await;
    let ran = pause(&bench, &["mail", "--lock-timeout", "0s"]).expect(7);
    assert!(ran.stderr.contains("billing.control.lock; nothing was written"), "{ran:?}");
    // A plan shows no lock, and an apply that has nothing to write needs none.
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    bench.apply();
}

/// RabbitMQ tells others nothing of the queue of a connection, as it tells nothing of one whose node is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pause_does_not_take_a_queue_of_which_nothing_is_known_for_one_without_consumers() {
    let bench = Bench::new(FILE);
    bench.apply();
    bench.host.delete("queues", &["billing.source.hr"]);
    let _other = exclusive(&bench, "billing.source.hr").await;
    let ran = pause(&bench, &["--source", "hr"]).expect(5);
    assert!(ran.stderr.contains("nothing is known of the queue billing.source.hr"), "{ran:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_file_pauses_and_a_person_resumes() {
    let bench = Bench::new(FILE);
    bench.apply();
    let with = FILE.replace("mail: {", "mail: { paused: \"the provider migrates\",");
    bench.write(&with);
    let ran = bench.expect(3, &["plan", "--detailed-exitcode"]);
    assert!(ran.stdout.contains("+ pause    type mail  begins: \"the provider migrates\"\n"), "{ran:?}");
    assert!(bench.apply().stdout.contains("pause of type mail begins"));
    bench.expect(0, &["plan", "--detailed-exitcode"]);
    assert_eq!(paused(&bench, &with).await, ["file type mail"]);
    let since = switches(&bench, &with).await.unwrap().pauses[0].since;
    assert!(pause(&bench, &["mail"]).expect(0).stdout.contains("type mail is paused by the file too"));
    bench.apply();
    assert_eq!(paused(&bench, &with).await, ["file type mail", "person type mail"]);
    assert_eq!(switches(&bench, &with).await.unwrap().pauses[0].since, since);
    let ran = bench.expect(0, &["resume", "mail"]);
    assert!(ran.stdout.contains("the next `topology apply` pauses it again; remove the key `paused` first"), "{ran:?}");
    assert_eq!(paused(&bench, &with).await, Vec::<String>::new());
    bench.apply();
    assert_eq!(paused(&bench, &with).await, ["file type mail"]);
    bench.write(FILE);
    let ran = bench.expect(3, &["plan", "--detailed-exitcode"]);
    assert!(ran.stdout.contains("- pause    type mail  ends\n"), "{ran:?}");
    bench.apply();
    assert_eq!(paused(&bench, FILE).await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renamed_topology_and_a_renamed_type_stay_paused() {
    let bench = Bench::new(FILE);
    bench.apply();
    pause(&bench, &["mail"]).expect(0);
    let renamed = FILE.replace("name: billing", "name: accounts\nrenamed-from: billing");
    let renamed = renamed.replace("mail: {", "letter: { renamed-from: mail,").replace("type: mail", "type: letter");
    let renamed = renamed.replace("declare: on", "queue: hr-changes");
    bench.write(&renamed);
    bench.expect(0, &["apply", "--auto-approve", "--migrate"]);
    assert_eq!(paused(&bench, &renamed).await, ["person type letter", "person type mail"]);
    bench.expect(0, &["resume", "letter"]);
    bench.apply();
    assert_eq!(paused(&bench, &renamed).await, Vec::<String>::new());
}

/// A worker of a version that knows no pauses goes on to consume.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "waits ten seconds for a worker that does not follow; scripts/test --all runs it"]
async fn a_worker_that_does_not_follow_is_named() {
    let bench = Bench::new(FILE);
    bench.apply();
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    let worker = amqp.hold("billing.processor.mail", 1).await;
    let answer = pause(&bench, &["mail", "payment", "-o", "json"]).expect(5);
    assert!(answer.stderr.contains("queue billing.processor.mail has 1 consumer ("), "{answer:?}");
    let document = answer.json();
    let [left] = &document["not_following"].as_array().unwrap()[..] else { panic!("{answer:?}") };
    assert_eq!((&left["queue"], &left["consumers"]), (&json!("billing.processor.mail"), &json!(1)));
    assert_eq!(paused(&bench, FILE).await, ["person type mail", "person type payment"]);
    drop(worker);
}

/// What a person reads or deletes by hand must not make workers start what is paused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_no_snapshot_is_never_replaced() {
    let bench = Bench::new(FILE);
    bench.apply();
    let amqp = Amqp::connect(&bench.host.amqp()).await;
    amqp.publish("billing.control", "x", lapin::BasicProperties::default(), b"{}").await;
    for line in [&["pause", "mail", "--reason", "R"][..], &["resume", "mail"]] {
        let ran = bench.expect(1, line);
        assert!(ran.stderr.contains("is no snapshot of the switches"), "{ran:?}");
    }
    assert!(bench.expect(5, &["apply", "--auto-approve"]).stderr.contains("the pauses of the file are not written"));
    bench.host.delete("queues", &["billing.control"]);
    bench.apply();
    assert_eq!(paused(&bench, FILE).await, Vec::<String>::new());
}

/// An apply that was killed may leave the stream like this.
#[rstest]
#[case::without_its_binding("bindings", &["e", "billing.control", "q", "billing.control", "%23"])]
#[case::without_its_exchange("exchanges", &["billing.control"])]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_apply_completes_the_stream_before_it_writes_the_pauses(#[case] kind: &str, #[case] object: &[&str]) {
    let bench = Bench::new(FILE);
    bench.apply();
    pause(&bench, &["payment"]).expect(0);
    bench.host.delete(kind, object);
    let refused = pause(&bench, &["mail"]).expect(1);
    assert!(refused.stderr.contains("run `topology apply`"), "{refused:?}");
    let with_pause = FILE.replace("mail: { register: off", "mail: { paused: on, register: off");
    bench.write(&with_pause);
    bench.apply();
    assert_eq!(paused(&bench, &with_pause).await, ["file type mail", "person type payment"]);
}

#[cfg(feature = "fail-points")]
mod killed {
    use super::*;

    /// Runs a command that is killed at this point.
    fn kill(bench: &Bench, point: &str, arguments: &[&str]) {
        let mut command = bench.command(arguments);
        command.env("HATCHERY_KILL_AT", point).timeout(PATIENCE).assert().failure();
    }

    #[rstest]
    #[case::locked("switches.locked", false)]
    #[case::read("switches.read", false)]
    #[case::written("switches.written", true)]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_killed_pause_holds_or_does_not(#[case] point: &str, #[case] holds: bool) {
        let bench = Bench::new(FILE);
        bench.apply();
        kill(&bench, point, &["pause", "mail", "--reason", "R"]);
        let expected: &[&str] = if holds { &["person type mail"] } else { &[] };
        assert_eq!(paused(&bench, FILE).await, expected);
        pause(&bench, &["payment"]).expect(0);
        pause(&bench, &["mail"]).expect(0);
        assert_eq!(paused(&bench, FILE).await, ["person type mail", "person type payment"]);
        kill(&bench, point, &["resume", "mail"]);
        let expected: &[&str] =
            if holds { &["person type payment"] } else { &["person type mail", "person type payment"] };
        assert_eq!(paused(&bench, FILE).await, expected);
    }

    /// Workers wait until the first snapshot is there.
    #[rstest]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "a stream without a message is read for half a minute; scripts/test --all runs it"]
    async fn an_apply_that_is_killed_before_the_first_snapshot_writes_it_when_it_is_run_again(
        #[values("switches.locked", "switches.read", "switches.written")] point: &str,
    ) {
        let file = FILE.replace("version: 1", "version: 1\npaused: on");
        let bench = Bench::new(&file);
        kill(&bench, point, &["apply", "--auto-approve"]);
        bench.apply();
        assert_eq!(paused(&bench, &file).await, ["file all"]);
    }

    /// A pipeline applies only what a plan calls a change.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_plan_calls_the_missing_first_snapshot_a_change() {
        let bench = Bench::new(FILE);
        kill(&bench, "switches.read", &["apply", "--auto-approve"]);
        let planned = bench.expect(3, &["plan", "--detailed-exitcode"]);
        assert!(planned.stdout.starts_with("- pause    all"), "{planned:?}");
    }
}
