//! Events that expire before they start.

use std::time::Duration;

use hatchery::{Hatchery, NewEvent, Outcome, PublishError};
use jiff::Timestamp;
use rstest::rstest;

use crate::support::{
    amqp::{Amqp, header, shown},
    broker::eventually,
    clock::wrong,
    declared::{Declared, publish},
    process::{Place, Process},
    workers::Working,
};

/// Long enough for an event to start before, also on a busy machine.
const SOON: Duration = Duration::from_secs(3);

/// Publishes an event of the type `mail` that expires soon. Returns when it certainly has.
async fn expiring(hatchery: &Hatchery, payload: &str) -> Timestamp {
    publish(hatchery, NewEvent::new("mail", payload.to_owned()).expires(SOON)).await;
    Timestamp::now() + SOON
}

async fn is_past(time: Timestamp) {
    eventually("the event has expired", async || (Timestamp::now() > time).then_some(())).await;
}

/// Publishes an event that does not expire, and waits until it runs. Returns the payloads of all runs.
async fn payloads_up_to_the_last(hatchery: &Hatchery, worker: &Working) -> Vec<String> {
    publish(hatchery, NewEvent::new("mail", "last")).await;
    eventually("the last event runs", async || {
        let payloads = worker.runs.payloads();
        payloads.contains(&"last".to_owned()).then_some(payloads)
    })
    .await
}

async fn expect_letter(declared: &Declared, amqp: &Amqp) {
    let letter = amqp.take(&declared.dead_letters("mail")).await;
    let reason = shown(&letter, "reason").unwrap();
    assert!(reason.starts_with("expired at 20") && reason.ends_with("Z, before it started"), "{reason}");
    assert!(header(&letter, "expires").is_none(), "a letter does not expire");
}

#[rstest]
#[case::registered("", true)]
#[case::discarded("on-expiry: discard", false)]
#[case::in_order("on-failure: block", true)]
#[case::without_the_register("register: off", true)]
#[case::discarded_without_the_register("register: off, on-expiry: discard", false)]
#[tokio::test]
async fn an_event_that_waits_beyond_its_expiry_does_not_run(#[case] spec: &str, #[case] is_letter: bool) {
    let declared = Declared::new(&format!("types: {{ mail: {{ {spec} }} }}")).await;
    let hatchery = declared.connect().await;
    let expired = expiring(&hatchery, "late").await;
    is_past(expired).await;
    publish(&hatchery, NewEvent::new("mail", "in time").expires(Duration::from_mins(5))).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    assert_eq!(payloads_up_to_the_last(&hatchery, &worker).await, ["in time", "last"]);
    let amqp = declared.amqp().await;
    if is_letter {
        expect_letter(&declared, &amqp).await;
    }
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.dead_lettered, summary.expired), (2, is_letter.into(), (!is_letter).into()));
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn an_event_that_was_started_is_tried_again_after_its_expiry() {
    let declared = Declared::new("types: { mail: { retry: { delays: [3500ms], max-attempts: 3 } } }").await;
    let hatchery = declared.connect().await;
    let fails_once = |event: &hatchery::Event| match event.attempts {
        0 => Outcome::Retry { reason: "no luck".into(), after: None },
        _ => Outcome::Done,
    };
    let worker = Working::start(&hatchery, "mail", fails_once);
    declared.amqp().await.consumed(&declared.processing("mail")).await;
    let expires = expiring(&hatchery, "{}").await;
    let runs = worker.runs.reach(2).await;
    assert!(runs[1].at > expires && runs[1].event.expires.is_none(), "{runs:?}");
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.retried, summary.dead_lettered), (1, 1, 0));
}

/// The register knows a start that was not settled. Without it, or in order, a redelivery counts as a start.
#[rstest]
#[case::registered("lease: 500ms")]
#[case::in_order("lease: 500ms, on-failure: block")]
#[case::without_the_register("register: off")]
#[tokio::test]
async fn an_event_whose_worker_died_runs_again_after_its_expiry(#[case] spec: &str) {
    let declared = Declared::new(&format!("types: {{ mail: {{ {spec} }} }}")).await;
    let dying = declared.connect().await;
    let (worker, _gate) = Working::gated(dying.worker(), "mail");
    let hatchery = declared.connect().await;
    declared.amqp().await.consumed(&declared.processing("mail")).await;
    let expired = expiring(&hatchery, "started").await;
    worker.runs.reach(1).await;
    worker.kill().await;
    dying.close().await;
    is_past(expired).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(1).await;
    assert_eq!(worker.stop().await.dead_lettered, 0);
}

/// An event that is only held and given back expires; one that ran does not.
#[tokio::test]
async fn an_event_that_a_stop_cut_off_runs_again_after_its_expiry() {
    let declared = Declared::new("types: { mail: { prefetch: 2, concurrency: 1, lease: 1s } }").await;
    let hatchery = declared.connect().await;
    let (worker, _gate) = Working::gated(hatchery.worker().drain_timeout(Duration::ZERO), "mail");
    let (amqp, queue) = (declared.amqp().await, declared.processing("mail"));
    amqp.consumed(&queue).await;
    expiring(&hatchery, "started").await;
    worker.runs.reach(1).await;
    let expired = expiring(&hatchery, "held").await;
    eventually("the worker holds both", async || (amqp.ready(&queue).await == 0).then_some(())).await;
    worker.stop().await;
    is_past(expired).await;
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(1).await;
    assert_eq!(worker.runs.payloads(), ["started"]);
    assert_eq!(worker.stop().await.dead_lettered, 1);
}

/// A run that a stop cuts off is known as started, and its worker has not died.
#[tokio::test]
async fn an_event_that_many_stops_cut_off_counts_one_crash() {
    let declared = Declared::new("types: { mail: { crash-limit: 3, lease: 500ms } }").await;
    let hatchery = declared.connect().await;
    for n in 0..4 {
        let (worker, _gate) = Working::gated(hatchery.worker().drain_timeout(Duration::ZERO), "mail");
        if n == 0 {
            declared.amqp().await.consumed(&declared.processing("mail")).await;
            expiring(&hatchery, "started").await;
        }
        worker.runs.reach(1).await;
        assert_eq!(worker.stop().await.dead_lettered, 0);
    }
    let worker = Working::start(&hatchery, "mail", |_| Outcome::Done);
    worker.runs.reach(1).await;
    assert_eq!(worker.stop().await.done, 1);
}

#[rstest]
#[case::registered("")]
#[case::without_the_register("register: off,")]
#[tokio::test]
async fn a_backlog_behind_a_slow_handler_expires(#[case] spec: &str) {
    let file = format!("types: {{ mail: {{ {spec} prefetch: 10, concurrency: 1, on-expiry: discard }} }}");
    let declared = Declared::new(&file).await;
    let hatchery = declared.connect().await;
    let (worker, gate) = Working::gated(hatchery.worker(), "mail");
    publish(&hatchery, NewEvent::new("mail", "slow")).await;
    worker.runs.reach(1).await;
    let mut expired = Timestamp::now();
    for n in 0..30 {
        expired = expiring(&hatchery, &n.to_string()).await;
    }
    is_past(expired).await;
    gate.let_through(100);
    assert_eq!(payloads_up_to_the_last(&hatchery, &worker).await, ["slow", "last"]);
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.expired), (2, 30));
    assert!(declared.amqp().await.filled(&declared.queues()).await.is_empty());
}

#[tokio::test]
async fn an_event_that_coalesces_or_is_due_too_late_is_refused() {
    let declared = Declared::new("types: { import: { coalesce: latest }, mail: {} }").await;
    let place = Place::new(&declared);
    let run = async |line: &[&str], code| place.run(&mut place.command(line)).await.expect(code);
    let refused = run(&["publish", "import", "--reference", "1", "--expires", "10m"], 1).await;
    assert!(refused.stderr.contains("an event that coalesces cannot expire"), "{refused:?}");
    let refused = run(&["publish", "mail", "--delay", "10m", "--expires", "10m"], 1).await;
    assert!(refused.stderr.contains("would expire at"), "{refused:?}");
    run(&["publish", "mail", "--expires", "soon"], 2).await;
    run(&["publish", "mail", "--expires", "10m"], 0).await;
    run(&["publish", "mail", "--expires", "2099-01-01T00:00:00Z"], 0).await;
    // Without a reference it competes with nothing.
    let lines = r#"{"type": "import", "reference": "1", "expires": "10m"}
{"type": "import", "expires": "10m"}
{"type": "mail", "expires": "2020-01-01T00:00:00Z"}
{"type": "mail", "expires": "2099-01-01T00:00:00Z"}
{"type": "mail", "expires": 5}
"#;
    place.write("batch.ndjson", lines);
    let told = run(&["-o", "ndjson", "publish", "--batch", "batch.ndjson"], 5).await;
    let mut answers: Vec<serde_json::Value> =
        told.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    answers.sort_by_key(|answer| answer["line"].as_u64());
    let errors: Vec<_> = answers.iter().map(|answer| answer["error"].as_str().unwrap_or_default()).collect();
    assert!(errors[0].contains("coalesces") && errors[2].contains("would expire at"), "{errors:?}");
    assert!(errors[1].is_empty() && errors[3].is_empty() && !errors[4].is_empty(), "{errors:?}");
    let amqp = declared.amqp().await;
    let waiting = [(declared.processing("import"), 1), (declared.processing("mail"), 3)].into();
    eventually("four events wait", async || (amqp.filled(&declared.queues()).await == waiting).then_some(())).await;
    let sent = amqp.take(&declared.processing("mail")).await;
    let expires: Timestamp = shown(&sent, "expires").unwrap().parse().unwrap();
    let left = expires.duration_since(Timestamp::now()).as_secs();
    assert!((500..=600).contains(&left), "{left}");
    let hatchery = declared.connect().await;
    let told = hatchery.publisher().publish(NewEvent::new("mail", "").expires(Duration::ZERO)).await;
    assert!(matches!(told, Err(PublishError::ExpiresBeforeDue { .. })), "{told:?}");
}

/// The publisher and the worker are a day or two apart; Redis and the broker have the right time.
#[rstest]
#[case::a_day_apart("-1d", "+0d")]
#[case::two_days_apart("+1d", "-1d")]
#[case::two_days_apart_the_other_way("-1d", "+1d")]
#[tokio::test]
#[ignore = "needs faketime; scripts/test --all runs it"]
async fn wrong_clocks_change_nothing(#[case] of_publisher: &str, #[case] of_worker: &str) {
    let declared = Declared::new("types: { mail: { on-expiry: discard, retry: { delays: [3500ms] } } }").await;
    let place = Place::new(&declared);
    let publish = async |payload: &str, expires: &str| {
        let mut command = place.command(&["publish", "mail", "--payload", payload, "--expires", expires]);
        place.run(wrong(&mut command, of_publisher)).await.expect(0);
        Timestamp::now() + SOON
    };
    let expired = publish("\"late\"", "1ms").await;
    publish("\"in time\"", "5m").await;
    is_past(expired).await;
    // The first run of an event fails.
    let script = place.write("handler.sh", "cat >> runs; echo >> runs; test $EVENT_ATTEMPTS = 1");
    let mut command = place.worker("mail", &script);
    wrong(&mut command, of_worker);
    let worker = Process::spawn(command);
    let ran = async |times: usize| {
        eventually("the events run", async || (place.lines("runs").len() >= times).then_some(())).await;
    };
    ran(2).await;
    publish("\"started\"", "3s").await;
    ran(4).await;
    let summary = worker.stop().await;
    assert_eq!(place.lines("runs"), ["\"in time\"", "\"in time\"", "\"started\"", "\"started\""]);
    assert_eq!((summary["done"].as_u64(), summary["expired"].as_u64()), (Some(2), Some(1)));
}
