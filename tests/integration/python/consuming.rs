//! A consumer in Python handles the events that hatchery publishes, and a reader in Python reads the stream of their life.

use std::{fs, time::Duration};

use hatchery::{LifeCycleRecord, NewEvent, Outcome};
use jiff::Timestamp;
use lapin::types::AMQPValue;
use serde_json::Value;

use super::{example, folder};
use crate::{
    status::{kinds, seen},
    support::{
        amqp::{header, headers, long, shown},
        broker::eventually,
        declared::{Declared, publish},
        process::{Place, Process, python},
        records::Records,
        workers::Working,
    },
};

/// Records each event in the file `runs`, and answers as the payload says.
const HANDLER: &str = r#"
import json, wire

def handle(event):
    at = wire.now()
    seen = {"id": event.id, "reference": event.reference, "attempts": event.attempts, "generation": event.generation,
            "reason": event.reason, "at": at.isoformat(), "nbf": event.nbf and event.nbf.isoformat()}
    with open("runs", "a") as runs:
        runs.write(json.dumps(seen) + "\n")
    wanted = json.loads(event.body)
    if "never" in wanted:
        raise wire.DeadLetter(wanted["never"])
    if event.attempts < wanted.get("fail", 0):
        raise RuntimeError("no\nluck")
"#;

const DELAYS: &str = "100ms,250ms";

async fn mail() -> Declared {
    mail_after(DELAYS).await
}

async fn mail_after(delays: &str) -> Declared {
    Declared::new(&format!("types: {{ mail: {{ retry: {{ delays: [{delays}], max-attempts: 4 }} }} }}")).await
}

fn consumer(place: &Place<'_>) -> Process {
    consumer_with(place, DELAYS)
}

fn consumer_with(place: &Place<'_>, delays: &str) -> Process {
    place.write("handler.py", HANDLER);
    let arguments = ["mail", "--handler", "handler:handle", "--delays", delays, "--max-attempts", "4"];
    let mut command = example(place, "consume.py", &arguments);
    let log = fs::File::options().create(true).append(true).open(place.path("log")).unwrap();
    command.stderr(log);
    Process::spawn(command)
}

/// Stops the consumer with SIGTERM, and expects exit code 0.
async fn stop(consumer: Process, place: &Place<'_>) {
    consumer.signal(rustix::process::Signal::TERM);
    let ended = consumer.ended().await;
    assert_eq!(ended.status.code(), Some(0), "{}", place.lines("log").join("\n"));
}

/// Returns the runs so far.
fn runs(place: &Place<'_>) -> Vec<Value> {
    place.lines("runs").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn reach(place: &Place<'_>, count: usize) -> Vec<Value> {
    eventually(&format!("{count} runs have started"), async || Some(runs(place)).filter(|runs| runs.len() >= count))
        .await
}

fn time(run: &Value, name: &str) -> Timestamp {
    run[name].as_str().unwrap_or_else(|| panic!("no {name} in {run}")).parse().unwrap()
}

#[tokio::test]
async fn every_delayed_event_is_consumed_once_and_none_early() {
    let declared = mail().await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let consumer = consumer(&place);
    let delays = [0, 1, 50, 51, 300, 777, 1_200, 2_000];
    let mut ids = Vec::new();
    for delay in delays {
        let event = NewEvent::new("mail", "{}").reference("Ünï 1").reason("new");
        let event = if delay == 0 { event } else { event.delay(Duration::from_millis(delay)) };
        ids.push(publish(&hatchery, event).await);
    }
    let runs = reach(&place, delays.len()).await;
    for (id, delay) in ids.iter().zip(delays) {
        let of_it: Vec<&Value> = runs.iter().filter(|run| run["id"] == id.as_str()).collect();
        let [run] = of_it[..] else { panic!("{id} ran {} times", of_it.len()) };
        assert_eq!((&run["reference"], &run["attempts"], &run["reason"]), (&"Ünï 1".into(), &0.into(), &"new".into()));
        if delay > 0 {
            assert!(time(run, "at") >= time(run, "nbf"), "early: {run}");
        }
    }
    stop(consumer, &place).await;
    assert_eq!(self::runs(&place).len(), delays.len());
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "waits for figures of RabbitMQ, which come every few seconds; scripts/test --all runs it"]
async fn status_takes_the_consumer_for_no_stranger() {
    let declared = mail().await;
    declared.own_register().await;
    let place = Place::new(&declared);
    let consumer = consumer(&place);
    eventually("the consumer is counted", async || {
        let (_, answer) = seen(&place).await;
        (answer["types"][0]["workers"] == 1).then_some(())
    })
    .await;
    // A consumer that began later is named, so the figures have the first one too.
    let stranger = declared.amqp().await.hold("t.unrouted", 1).await;
    let answer = eventually("the stranger is named", async || {
        let (_, answer) = seen(&place).await;
        kinds(&answer).contains("stranger").then_some(answer)
    })
    .await;
    let strangers = answer["findings"].as_array().unwrap().iter().filter(|finding| finding["kind"] == "stranger");
    let queues: Vec<&Value> = strangers.map(|finding| &finding["queues"]).collect();
    assert_eq!(queues, [&serde_json::json!(["t.unrouted"])], "{answer:#}");
    drop(stranger);
    stop(consumer, &place).await;
}

#[tokio::test]
async fn a_failing_event_is_retried_by_the_consumer_and_then_dead_lettered() {
    let declared = mail().await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let amqp = declared.amqp().await;
    // The event passes the ladder first, so that it carries the headers that RabbitMQ adds.
    let event = NewEvent::new("mail", r#"{"fail": 9}"#).reference("1234").correlation_id("c");
    let id = publish(&hatchery, event.delay(Duration::from_millis(120))).await;
    let consumer = consumer(&place);
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    let runs = reach(&place, 4).await;
    for (run, n) in runs.iter().zip(0..) {
        assert_eq!((&run["attempts"], &run["generation"]), (&n.into(), &n.into()));
    }
    let waited: Vec<i128> =
        runs.windows(2).map(|pair| time(&pair[1], "at").duration_since(time(&pair[0], "at")).as_millis()).collect();
    assert!(waited[0] >= 100 && waited[1] >= 250 && waited[2] >= 250, "{waited:?}");
    assert_eq!(runs[3]["id"], id.as_str());
    let last = runs[3]["reason"].as_str().unwrap();
    assert!(last.starts_with("retry: attempt=3 failed_at=") && last.ends_with("error=\"no luck\""), "{last}");

    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.starts_with("given up: attempt=4 failed_at="), "{reason}");
    assert_eq!(letter.properties.message_id().as_ref().map(ToString::to_string), Some(id));
    assert_eq!(letter.properties.correlation_id().as_ref().map(ToString::to_string).as_deref(), Some("c"));
    assert_eq!(*letter.properties.delivery_mode(), Some(2));
    assert_eq!(shown(&letter, "reference").as_deref(), Some("1234"));
    assert_eq!(letter.routing_key.as_str(), "mail.dead-letter");
    // The consumer has removed `x-death`. RabbitMQ sets its `-count` headers anew at each delivery.
    let names = letter.properties.headers().as_ref().unwrap().inner().keys().map(ToString::to_string);
    let brokers: Vec<String> = names.filter(|name| name.starts_with("x-") && !name.ends_with("-count")).collect();
    assert!(brokers.is_empty(), "{brokers:?}");
    stop(consumer, &place).await;
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_dead_letter_of_the_consumer_keeps_the_messages_properties() {
    let declared = mail().await;
    let place = Place::new(&declared);
    let amqp = declared.amqp().await;
    let consumer = consumer(&place);
    let foreign = [("tenant", long("a")), ("x-flag", AMQPValue::Boolean(true)), ("attempts", AMQPValue::ShortInt(1))];
    let bare = headers(&foreign).with_app_id("theirs".into()).with_content_type("text/x".into());
    amqp.publish("t.scheduler", "mail.now", bare, br#"{"never": "no such employee"}"#).await;
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    assert_eq!(shown(&letter, "reason").as_deref(), Some("dead-letter: no such employee"));
    assert_eq!(letter.data, br#"{"never": "no such employee"}"#);
    assert_eq!((header(&letter, "tenant"), header(&letter, "x-flag")), (Some(&foreign[0].1), Some(&foreign[1].1)));
    assert_eq!(letter.properties.app_id().as_ref().map(ToString::to_string).as_deref(), Some("theirs"));
    assert!(letter.properties.message_id().is_some(), "the consumer gave the message no id");

    let poison = headers(&[("attempts", long("many"))]);
    amqp.publish("t.scheduler", "mail.now", poison, &[0xff]).await;
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.starts_with("poison: the header `attempts` should be "), "{reason}");
    assert_eq!((header(&letter, "attempts"), &letter.data[..]), (Some(&long("many")), &[0xff][..]));
    assert!(letter.properties.message_id().is_some(), "the consumer gave the message no id");
    stop(consumer, &place).await;
    assert_eq!(runs(&place).len(), 1);
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn an_event_that_comes_early_is_sent_back_into_the_ladder() {
    let declared = mail().await;
    let place = Place::new(&declared);
    let amqp = declared.amqp().await;
    let consumer = consumer(&place);
    // The routing key says at once, the date says later.
    let nbf = Timestamp::now() + Duration::from_millis(2_500);
    let date = headers(&[("nbf", long(format!("{nbf:.3}")))]);
    amqp.publish("t.scheduler", "mail.now", date, b"{}").await;
    let run = reach(&place, 1).await.remove(0);
    assert!(time(&run, "at") >= time(&run, "nbf"), "early: {run}");
    assert_eq!((&run["attempts"], &run["generation"]), (&0.into(), &0.into()));
    stop(consumer, &place).await;
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_worker_continues_the_attempts_of_a_consumer() {
    // Long enough to stop the consumer before it has spent all attempts.
    let delays = "2s";
    let declared = mail_after(delays).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let consumer = consumer_with(&place, delays);
    let id = publish(&hatchery, NewEvent::new("mail", r#"{"fail": 9}"#)).await;
    reach(&place, 1).await;
    stop(consumer, &place).await;
    let tried = runs(&place).len();
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let run = worker.runs.reach(1).await.remove(0);
    assert_eq!((run.event.id.clone(), run.event.attempts as usize), (id, tried));
    assert!(run.event.reason.unwrap().contains("error=\"no luck\""));
    assert_eq!(worker.stop().await.done, 1);
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn a_plain_client_reads_what_has_happened() {
    let declared = Declared::new("life-cycle: all\ntypes: { mail: {} }").await;
    let hatchery = declared.connect().await;
    for (id, reference) in [("a", "1"), ("b", "2")] {
        publish(&hatchery, NewEvent::new("mail", "{}").id(id).reference(reference)).await;
    }
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    let mut told = Records::open(&declared.amqp().await, "t.life-cycle").await;
    told.reach(6, |_| true).await;
    worker.stop().await;
    let place = Place::new(&declared);
    let mut command = place.program(python());
    command.env("PYTHONDONTWRITEBYTECODE", "1").arg(folder().join("life_cycle.py"));
    let ended = place.run(command.args(["--topology", "t", "--reference", "2", "--since-hours", "1"])).await.expect(0);
    let records = ended.stdout.lines().map(|line| LifeCycleRecord::parse(line.as_bytes()).unwrap());
    let told: Vec<_> = records.map(|record| (record.id.unwrap(), record.transition.to_string())).collect();
    let expected = ["published", "started", "done"].map(|transition| ("b".to_owned(), transition.to_owned()));
    assert_eq!(told, expected);
}
