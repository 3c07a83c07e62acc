//! A cancel that reaches a run: the handler is told within a lease's renewal, and nothing of its outcome is carried out.

use std::{future::pending, pin::Pin};

use super::*;
use crate::{EventSelector, Run, Transition, testing::TestHatchery};

const FILE: &str = "
version: 1
name: t
hatcheries: [5s]
types:
  mail: {}
  import: { coalesce: latest }
  alone: { exclusive: true }
  keen: { on-failure: in-place, in-place: { tries: 3, delay: 30s } }
  strict: { on-failure: block, retry: { delays: [1h] } }
  job: { on-failure: block, retry: { delays: [1h] } }
schedules:
  poll: { type: job, every: 10m, mode: sequential }
";

/// A worker learns of a cancel when half of the lease has passed at the latest.
const RENEWAL: Duration = Duration::from_millis(7_500);

fn hatchery() -> TestHatchery {
    TestHatchery::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"))
}

/// The transitions that an observer was told.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<Transition>>>);

impl Told {
    fn observe(&self, worker: Worker) -> Worker {
        let told = self.clone();
        worker.observe(move |_, transition| told.0.lock().expect("no panic").push(transition.clone()))
    }

    fn ended(&self) -> Vec<Transition> {
        let told = self.0.lock().expect("no panic").clone();
        told.into_iter().filter(|transition| *transition != Transition::Started).collect()
    }
}

async fn publish(hatchery: &TestHatchery, event_type: &str, id: &str) {
    hatchery.publisher().publish(NewEvent::new(event_type, "{}").reference("1").id(id)).await.expect("published");
}

async fn cancel(hatchery: &TestHatchery, event_type: &str, id: &str) -> bool {
    let cancelled = hatchery.events().cancel(&EventSelector::id(event_type, id).of("1")).await.expect("it answers");
    cancelled.iter().any(|slot| slot.running)
}

/// Handles the event `a`: waits for its cancel, and then answers this.
fn obedient(outcome: Outcome) -> impl Fn(Run) -> Pin<Box<dyn Future<Output = Outcome> + Send>> + Send + Sync {
    move |run: Run| {
        let outcome = outcome.clone();
        Box::pin(async move {
            assert!(!run.is_cancelled());
            if run.event.id != "a" {
                return Outcome::Done;
            }
            run.lost.cancelled().await;
            assert!(run.is_cancelled());
            outcome
        })
    }
}

#[rstest]
#[case::done(Outcome::Done)]
#[case::failed(failure())]
#[case::dead_letter(Outcome::dead_letter("550"))]
#[case::unavailable(Outcome::unavailable("away"))]
#[case::requeued(Outcome::Requeue { at: "2026-01-02T00:00:00Z".parse().expect("a time"), reason: "later".into() })]
#[tokio::test(start_paused = true)]
async fn nothing_of_a_cancelled_runs_outcome_is_carried_out(
    #[values("mail", "import", "alone", "keen")] event_type: &str,
    #[case] outcome: Outcome,
) {
    let (hatchery, told) = (hatchery(), Told::default());
    hatchery.start(told.observe(hatchery.worker()).handle(event_type, obedient(outcome)));
    publish(&hatchery, event_type, "a").await;
    hatchery.advance(Duration::from_secs(1)).await.expect("it runs");
    assert!(cancel(&hatchery, event_type, "a").await, "it is running");
    hatchery.advance(RENEWAL).await.expect("it runs");
    assert!(matches!(&told.ended()[..], [Transition::Cancelled { .. }]), "{:?}", told.ended());
    assert_eq!((hatchery.waiting(event_type), hatchery.dead_letters(event_type)), (vec![], vec![]));
    // The reference is free again.
    publish(&hatchery, event_type, "b").await;
    hatchery.advance(Duration::from_secs(10)).await.expect("it runs");
    assert_eq!(hatchery.runs(event_type).len(), 2);
    let summaries = hatchery.stop().await.expect("it stops");
    assert_eq!(summaries[0].cancelled, 1, "{summaries:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_that_does_not_end_is_dropped_after_five_seconds() {
    let (hatchery, told) = (hatchery(), Told::default());
    let hangs = |_: Run| pending::<Outcome>();
    hatchery.start(told.observe(hatchery.worker()).handle("mail", hangs));
    publish(&hatchery, "mail", "a").await;
    hatchery.advance(Duration::from_secs(1)).await.expect("it runs");
    let mut ending = hatchery.events().show(&EventSelector::id("mail", "a").of("1")).await.expect("it answers");
    cancel(&hatchery, "mail", "a").await;
    hatchery.advance(Duration::from_secs(4)).await.expect("it runs");
    ending = hatchery.events().cancelled_runs(ending).await.expect("it answers");
    assert_eq!((told.ended(), ending.len()), (vec![], 1));
    hatchery.advance(RENEWAL + Duration::from_secs(2)).await.expect("it runs");
    let [Transition::Cancelled { took, .. }] = told.ended()[..] else { panic!("{:?}", told.ended()) };
    assert!((8..=13).contains(&took.as_secs()), "{took:?}");
    assert_eq!(hatchery.events().cancelled_runs(ending).await.expect("it answers"), []);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_event_that_waits_for_its_next_try_in_place_ends() {
    let (hatchery, told) = (hatchery(), Told::default());
    hatchery.start(told.observe(hatchery.worker()).handle("keen", |_: Run| async { failure() }));
    publish(&hatchery, "keen", "a").await;
    hatchery.advance(Duration::from_secs(1)).await.expect("it runs");
    assert!(cancel(&hatchery, "keen", "a").await);
    hatchery.advance(RENEWAL).await.expect("it runs");
    let ended = told.ended();
    assert!(matches!(ended[..], [Transition::Failed { .. }, Transition::Cancelled { .. }]), "{ended:?}");
    hatchery.advance(Duration::from_mins(5)).await.expect("it runs");
    assert_eq!((hatchery.runs("keen").len(), hatchery.dead_letters("keen")), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_head_of_a_type_that_keeps_its_order_lets_the_next_event_run() {
    let hatchery = hatchery();
    let head_fails = |run: Run| async move { if run.event.id == "a" { failure() } else { Outcome::Done } };
    hatchery.start(hatchery.worker().handle("strict", head_fails));
    publish(&hatchery, "strict", "a").await;
    publish(&hatchery, "strict", "b").await;
    hatchery.advance(Duration::from_secs(20)).await.expect("it runs");
    assert_eq!(hatchery.runs("strict").len(), 1, "the head waits for an hour");
    cancel(&hatchery, "strict", "a").await;
    hatchery.advance(RENEWAL).await.expect("it runs");
    let ran: Vec<String> = hatchery.runs("strict").into_iter().map(|run| run.event.id.clone()).collect();
    assert_eq!(ran, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_head_lets_its_schedule_go_on() {
    let hatchery = hatchery();
    hatchery.start(hatchery.worker().handle("job", |_: Run| async { failure() }));
    let period = Duration::from_mins(10);
    hatchery.advance(2 * period).await.expect("it runs");
    let runs = hatchery.runs("job");
    assert_eq!(runs.len(), 1, "the head waits for an hour: {runs:?}");
    let head = EventSelector::id("job", runs[0].event.id.as_str());
    hatchery.events().cancel(&head).await.expect("it answers");
    hatchery.advance(2 * period).await.expect("it runs");
    assert_eq!(hatchery.runs("job").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_in_a_type_that_keeps_its_order_ends() {
    let (hatchery, told) = (hatchery(), Told::default());
    hatchery.start(told.observe(hatchery.worker()).handle("strict", obedient(failure())));
    publish(&hatchery, "strict", "a").await;
    hatchery.advance(Duration::from_secs(1)).await.expect("it runs");
    cancel(&hatchery, "strict", "a").await;
    hatchery.advance(RENEWAL).await.expect("it runs");
    assert!(matches!(&told.ended()[..], [Transition::Cancelled { .. }]), "{:?}", told.ended());
    assert_eq!(hatchery.waiting("strict"), []);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_nobody_cancels_is_told_nothing() {
    let hatchery = hatchery();
    let slow = |run: Run| async move {
        tokio::time::sleep(Duration::from_secs(50)).await;
        if run.lost.is_cancelled() { Outcome::dead_letter("lost") } else { Outcome::Done }
    };
    hatchery.start(hatchery.worker().handle("alone", slow));
    publish(&hatchery, "alone", "a").await;
    hatchery.advance(Duration::from_secs(1)).await.expect("it runs");
    // Another event of the reference, which waits for the same lease.
    publish(&hatchery, "alone", "b").await;
    assert!(!cancel(&hatchery, "alone", "b").await);
    hatchery.advance(Duration::from_mins(1)).await.expect("it runs");
    assert_eq!(hatchery.stop().await.expect("it stops")[0].done, 1);
}
