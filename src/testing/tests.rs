//! Tests of [`TestHatchery`] itself: each behaviour that users rely on.

use rstest::rstest;

use super::*;
use crate::{EventKind, NewEvent, Outcome, Run};

type Tested = Result<(), Box<dyn std::error::Error>>;

fn hatchery(types: &str) -> TestHatchery {
    let file = format!("version: 1\nname: t\nhatcheries: [5s]\ntypes:\n  {types}\n");
    TestHatchery::new(crate::file::read(&file, "topology.yaml").expect("a valid file"))
}

async fn done(_: Run) -> Result<Outcome, String> {
    Ok(Outcome::Done)
}

async fn fails(_: Run) -> Result<Outcome, String> {
    Err("421".to_owned())
}

fn seconds(hatchery: &TestHatchery, event_type: &str, start: Timestamp) -> Vec<f64> {
    hatchery.runs(event_type).iter().map(|run| run.at.duration_since(start).as_secs_f64()).collect()
}

/// Delays that match no queue of the topology use the ladder.
#[rstest]
#[case::at_once(0, "t.processor.mail")]
#[case::hatchery(5_000, "t.hatchery.5s")]
#[case::ladder(1_250, "t.ladder.250ms-27.00-250ms")]
#[case::days(180_000_000, "t.ladder.250ms-27.07-32s")]
#[tokio::test(start_paused = true)]
async fn an_event_runs_when_it_is_due(#[case] millis: u64, #[case] queue: &str) -> Tested {
    let (hatchery, delay) = (hatchery("mail: {}"), Duration::from_millis(millis));
    let start = hatchery.now();
    hatchery.publisher().publish(NewEvent::new("mail", "{}").delay(delay)).await?;
    let waiting = hatchery.waiting("mail");
    assert_eq!((waiting.len(), waiting[0].queue.as_str(), waiting[0].due), (1, queue, start + delay));
    hatchery.start(hatchery.worker().handle("mail", done));
    if let Some(before) = delay.checked_sub(Duration::from_millis(2)) {
        hatchery.advance(before).await?;
        assert_eq!(hatchery.runs("mail"), []);
    }
    hatchery.advance_to(start + delay).await?;
    assert_eq!(hatchery.runs("mail").iter().map(|run| run.at).collect::<Vec<_>>(), [start + delay]);
    assert_eq!(hatchery.waiting("mail"), []);
    assert_eq!(hatchery.stop().await?[0].done, 1);
    Ok(())
}

#[rstest]
#[case::by_way_of_retry_queues("{ retry: { delays: [1s, 2s], max-attempts: 3, jitter: 0% } }", &[0.0, 1.0, 3.0], 1)]
#[case::in_place("{ on-failure: in-place, in-place: { tries: 2, delay: 1s }, retry: { delays: [2s], max-attempts: 2, jitter: 0% } }", &[0.0, 1.0, 3.0, 4.0], 1)]
#[case::dropped("{ on-failure: drop }", &[0.0], 0)]
#[tokio::test(start_paused = true)]
async fn failed_events_follow_the_retry_policy_of_the_file(
    #[case] spec: &str,
    #[case] expected: &[f64],
    #[case] letters: usize,
) -> Tested {
    let hatchery = hatchery(&format!("mail: {spec}"));
    hatchery.start(hatchery.worker().handle("mail", fails));
    let start = hatchery.now();
    hatchery.publisher().publish(NewEvent::new("mail", "{}")).await?;
    hatchery.advance(Duration::from_mins(1)).await?;
    assert_eq!(seconds(&hatchery, "mail", start), expected);
    assert_eq!(hatchery.dead_letters("mail").len(), letters);
    let failure = Some(Outcome::Retry { reason: "421".to_owned(), after: None });
    assert!(hatchery.runs("mail").iter().all(|run| run.outcome == failure));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_type_that_blocks_runs_one_event_after_the_other() -> Tested {
    let hatchery = hatchery("mail: { on-failure: block, retry: { delays: [1s], jitter: 0% } }");
    for worker in 0..2 {
        let fails_once = move |run: Run| async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if run.event.id == "a" && run.event.attempts == 0 { Err(worker.to_string()) } else { Ok(Outcome::Done) }
        };
        hatchery.start(hatchery.worker().handle("mail", fails_once));
    }
    let start = hatchery.now();
    for id in ["a", "b", "c"] {
        hatchery.publisher().publish(NewEvent::new("mail", "{}").id(id)).await?;
    }
    hatchery.advance(Duration::from_mins(1)).await?;
    let ran: Vec<String> = hatchery.runs("mail").into_iter().map(|run| run.event.id.clone()).collect();
    assert_eq!(ran, ["a", "a", "b", "c"]);
    assert_eq!(seconds(&hatchery, "mail", start), [0.0, 2.0, 3.0, 4.0]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_reference_runs_one_event_at_a_time() -> Tested {
    let hatchery = hatchery("import: { exclusive: true }");
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok::<_, String>(Outcome::Done)
    };
    hatchery.start(hatchery.worker().handle("import", slow));
    let start = hatchery.now();
    for reference in ["1", "1", "2"] {
        hatchery.publisher().publish(NewEvent::new("import", "{}").reference(reference)).await?;
    }
    hatchery.advance(Duration::from_mins(1)).await?;
    let at = seconds(&hatchery, "import", start);
    assert_eq!(at.len(), 3);
    assert!(at[1] < 1.0 && at[2] >= 3.0, "{at:?}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_event_whose_worker_is_killed_runs_again() -> Tested {
    let hatchery = hatchery("mail: { lease: 30s }");
    let hangs = |_: Run| std::future::pending::<Result<Outcome, String>>();
    hatchery.start(hatchery.worker().handle("mail", hangs));
    hatchery.publisher().publish(NewEvent::new("mail", "{}")).await?;
    hatchery.advance(Duration::from_secs(1)).await?;
    hatchery.kill().await;
    assert_eq!(hatchery.waiting("mail").len(), 1);
    hatchery.start(hatchery.worker().handle("mail", done));
    // The lease of the dead worker is over by then.
    hatchery.advance(Duration::from_mins(1)).await?;
    let outcomes: Vec<_> = hatchery.runs("mail").into_iter().map(|run| run.outcome).collect();
    assert_eq!(outcomes, [None, Some(Outcome::Done)]);
    Ok(())
}

/// One event runs at a time, for three seconds.
#[rstest]
#[case::dead_letter("{ concurrency: 1 }", 2)]
#[case::discard("{ concurrency: 1, on-expiry: discard }", 0)]
#[tokio::test(start_paused = true)]
async fn events_behind_a_slow_handler_expire(#[case] spec: &str, #[case] letters: u64) -> Tested {
    let hatchery = hatchery(&format!("mail: {spec}"));
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(3)).await;
        Ok::<_, String>(Outcome::Done)
    };
    hatchery.start(hatchery.worker().handle("mail", slow));
    for (id, seconds) in [("a", 1), ("b", 1), ("c", 2), ("d", 4)] {
        let event = NewEvent::new("mail", "{}").id(id).expires(Duration::from_secs(seconds));
        hatchery.publisher().publish(event).await?;
    }
    hatchery.advance(Duration::from_mins(1)).await?;
    let ran: Vec<String> = hatchery.runs("mail").into_iter().map(|run| run.event.id.clone()).collect();
    assert_eq!(ran, ["a", "d"]);
    let reasons: Vec<_> = hatchery.dead_letters("mail").into_iter().filter_map(|letter| letter.reason).collect();
    assert_eq!(reasons.len() as u64, letters);
    assert!(reasons.iter().all(|reason| reason.starts_with("expired at 2026-01-01T00:00:0")), "{reasons:?}");
    let summary = hatchery.stop().await?[0];
    assert_eq!((summary.done, summary.dead_lettered, summary.expired), (2, letters, 2 - letters));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_started_is_tried_again_after_its_expiry() -> Tested {
    let hatchery = hatchery("mail: { retry: { delays: [10s], max-attempts: 3, jitter: 0% } }");
    hatchery.start(hatchery.worker().handle("mail", fails));
    let start = hatchery.now();
    hatchery.publisher().publish(NewEvent::new("mail", "{}").expires(Duration::from_secs(1))).await?;
    hatchery.advance(Duration::from_mins(1)).await?;
    assert_eq!(seconds(&hatchery, "mail", start), [0.0, 10.0, 20.0]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_publish() -> Tested {
    let hatchery = hatchery("import: {}\n  mail: {}");
    let publisher = hatchery.publisher();
    let import = move |_: Run| {
        let publisher = publisher.clone();
        async move {
            publisher.publish(NewEvent::new("mail", "{}").delay(Duration::from_secs(7))).await?;
            Ok::<_, crate::PublishError>(Outcome::Done)
        }
    };
    hatchery.start(hatchery.worker().handle("import", import).handle("mail", done));
    let start = hatchery.now();
    hatchery.publisher().publish(NewEvent::new("import", "{}")).await?;
    hatchery.advance(Duration::from_secs(8)).await?;
    assert_eq!((seconds(&hatchery, "import", start), seconds(&hatchery, "mail", start)), (vec![0.0], vec![7.0]));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_thread_that_a_handler_waits_for_holds_the_time() -> Tested {
    let hatchery = hatchery("mail: { handler-timeout: 5s }");
    let render = |_: Run| async {
        let rendered = tokio::task::spawn_blocking(|| std::thread::sleep(Duration::from_millis(20)));
        rendered.await.map(|()| Outcome::Done)
    };
    hatchery.start(hatchery.worker().handle("mail", render));
    hatchery.publisher().publish(NewEvent::new("mail", "{}")).await?;
    hatchery.advance(Duration::from_mins(1)).await?;
    let outcomes: Vec<_> = hatchery.runs("mail").into_iter().map(|run| run.outcome).collect();
    assert_eq!(outcomes, [Some(Outcome::Done)]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_when_its_queues_are_empty_returns_its_counters() -> Tested {
    let hatchery = hatchery("mail: {}");
    hatchery.publisher().publish(NewEvent::new("mail", "{}")).await?;
    hatchery.start(hatchery.worker().handle("mail", done).stop_when_empty(true));
    hatchery.advance(Duration::from_mins(1)).await?;
    hatchery.publisher().publish(NewEvent::new("mail", "{}")).await?;
    hatchery.advance(Duration::from_mins(1)).await?;
    assert_eq!(hatchery.stop().await?.iter().map(|summary| summary.done).collect::<Vec<_>>(), [1]);
    assert_eq!(hatchery.waiting("mail").len(), 1);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_start_says_why() {
    let hatchery = hatchery("mail: {}");
    hatchery.start(hatchery.worker().handle("mial", done));
    let error = hatchery.advance(Duration::ZERO).await.expect_err("there is no such type");
    assert!(matches!(error, WorkError::UnknownType(_)), "{error}");
    hatchery.advance(Duration::ZERO).await.expect("it is told of once");
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "is it `mail`?")]
async fn asking_for_the_runs_of_an_unknown_type_panics() {
    let _ = hatchery("mail: {}").runs("mial");
}

#[tokio::test]
#[should_panic(expected = "start_paused = true")]
async fn a_runtime_without_paused_time_is_refused() {
    let _ = hatchery("mail: {}");
}

struct Mail;

impl EventKind for Mail {
    const TYPE: &'static str = "mail";
    type Payload = String;
}

/// The state of two handlers.
#[derive(Default)]
struct Mailer {
    sent: Mutex<Vec<String>>,
}

impl Mailer {
    async fn send(self: Arc<Self>, to: String, _: Run) -> Result<(), Outcome> {
        tokio::task::yield_now().await;
        let length: u8 = to.parse().map_err(Outcome::dead_letter)?;
        self.sent.lock().expect("no panic").push(format!("mail {length}"));
        Ok(())
    }

    async fn print(self: Arc<Self>, run: Run) -> Outcome {
        tokio::task::yield_now().await;
        self.sent.lock().expect("no panic").push(format!("print {}", run.event.id));
        Outcome::Done
    }
}

#[tokio::test(start_paused = true)]
async fn handlers_share_the_state_of_their_worker() -> Tested {
    let hatchery = hatchery("{ mail: {}, print: {}, plain: {} }");
    let mailer = Arc::new(Mailer::default());
    let worker = hatchery.worker().handle("plain", done).state(Arc::clone(&mailer));
    hatchery.start(worker.on(Mail, Mailer::send).handle("print", Mailer::print));
    for event in [NewEvent::of(Mail, &"7".to_owned())?, NewEvent::of(Mail, &"seven".to_owned())?] {
        hatchery.publisher().publish(event).await?;
    }
    hatchery.publisher().publish(NewEvent::new("print", "").id("page-1")).await?;
    hatchery.publisher().publish(NewEvent::new("plain", "")).await?;
    hatchery.advance(Duration::ZERO).await?;
    let mut sent = mailer.sent.lock().expect("no panic").clone();
    sent.sort();
    assert_eq!(sent, ["mail 7", "print page-1"]);
    assert_eq!(hatchery.runs("plain").len(), 1);
    let letters = hatchery.dead_letters("mail");
    assert_eq!(letters[0].reason.as_deref(), Some("dead-letter: invalid digit found in string"));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_worker_drains_once_its_stop_is_ready() -> Tested {
    let hatchery = hatchery("mail: {}");
    for _ in 0..2 {
        hatchery.publisher().publish(NewEvent::new("mail", "{}").delay(Duration::from_secs(5))).await?;
    }
    let slow = |_: Run| async {
        tokio::time::sleep(Duration::from_secs(4)).await;
        Outcome::Done
    };
    let worker = hatchery.worker().concurrency(1).handle("mail", slow);
    let summary = worker.run_until(tokio::time::sleep(Duration::from_secs(6))).await?;
    assert_eq!((summary.done, summary.given_back), (1, 1));
    Ok(())
}
