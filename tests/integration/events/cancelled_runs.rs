//! A cancel reaches what runs: programs, requests and functions.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::Router;
use hatchery::{
    CancellationToken, EventSelector, Hatchery, NewEvent, Outcome, Run, State,
    internals::{
        ports::Register as _,
        redis::RedisRegister,
        register::{End, Note, Settle, Stage},
    },
};
use jiff::Timestamp;
use rstest::rstest;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::{declared, put};
use crate::support::{
    broker::eventually,
    declared::{Declared, publish, publish_all},
    process::{Place, Process, is_running},
    workers::{Runs, Working},
};

/// The lease of the types here. A worker renews it between a third and half of this, and a busy machine is late.
const LEASE: Duration = Duration::from_secs(4);

/// Declares a type `job` that runs this many events at a time. Its runs spend their only attempt when they fail.
async fn jobs(concurrency: usize) -> Declared {
    let lease = LEASE.as_secs();
    Declared::new(&format!(
        "types: {{ job: {{ concurrency: {concurrency}, prefetch: {concurrency}, lease: {lease}s, \
         retry: {{ delays: [50ms], max-attempts: 1 }} }} }}"
    ))
    .await
}

fn ids(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("job-{n}")).collect()
}

async fn publish_jobs(hatchery: &Hatchery, count: usize) {
    publish_all(hatchery, ids(count).into_iter().map(|id| NewEvent::new("job", "{}").id(id)).collect()).await;
}

/// Cancels all jobs in bulk, waits for their ends, and returns when the cancel began.
async fn cancel_all(place: &Place<'_>, count: usize) -> Timestamp {
    let began = Timestamp::now();
    let ended = place.events(0, &["cancel", "--type", "job", "--state", "running", "--yes", "--wait"]).await;
    let expected = format!(
        "Cancelled 0 events. {count} are running; their workers end them at the next renewal of the lease.\n\
         What was running has ended.\n"
    );
    assert_eq!(ended.stdout, expected);
    began
}

/// Asserts that nothing of any outcome was carried out, and that each event is shown as cancelled.
async fn expect_cancelled(declared: &Declared, hatchery: &Hatchery, worker: Process, count: usize) {
    declared.amqp().await.expect_empty(&declared.queues()).await;
    let events = hatchery.events();
    for id in ids(count) {
        let shown = events.show(&EventSelector::id("job", &id)).await.unwrap();
        assert!(matches!(&shown[..], [event] if event.state == State::Cancelled && !event.running), "{shown:?}");
    }
    let summary = worker.stop().await;
    let expected = [("cancelled", count), ("done", 0), ("retried", 0), ("dead_lettered", 0), ("stale", 0)];
    for (counter, expected) in expected {
        assert_eq!(summary[counter], expected, "{counter} of {summary}");
    }
}

#[rstest]
#[case::a_few_hundred(200)]
#[ignore = "runs a thousand programs at a time; scripts/test --all runs it"]
#[case::a_thousand(1_000)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_running_programs_are_told_of_their_cancel_and_end(#[case] count: usize) {
    let declared = jobs(count).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    // The program writes a file when it gets the signal, and fails for good. It starts no process for that: a thousand of them at
    // once may take longer than the five seconds that it has.
    let script = "trap ': > $EVENT_ID.told; exit 65' TERM
                  sleep 600 & echo $$ $! > $EVENT_ID.started; wait";
    let script = place.write("handler.sh", script);
    publish_jobs(&hatchery, count).await;
    let worker = Process::spawn(place.worker("job", &script));
    let started =
        || -> Vec<String> { ids(count).iter().flat_map(|id| place.lines(&format!("{id}.started"))).collect() };
    eventually("all programs run", async || (started().len() == count).then_some(())).await;
    let began = cancel_all(&place, count).await;
    for id in ids(count) {
        let told = fs::metadata(place.path(&format!("{id}.told"))).unwrap_or_else(|error| panic!("{id}: {error}"));
        let at = Timestamp::try_from(told.modified().unwrap()).unwrap();
        assert!(at.duration_since(began) < LEASE.try_into().unwrap(), "told {} after the cancel", at - began);
    }
    let processes = started().join(" ");
    let gone = async || (!processes.split(' ').any(is_running)).then_some(());
    eventually("all processes have ended", gone).await;
    expect_cancelled(&declared, &hatchery, worker, count).await;
}

/// A service that never answers, and counts the requests that it has and that were dropped.
#[derive(Clone, Default)]
struct Silent {
    asked: Arc<AtomicUsize>,
    dropped: Arc<AtomicUsize>,
}

struct Request(Silent);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

impl Silent {
    async fn start(&self) -> (String, AbortOnDropHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/job", listener.local_addr().unwrap());
        let service = self.clone();
        let handle = move || {
            let request = Request(service.clone());
            async move {
                request.0.asked.fetch_add(1, Ordering::SeqCst);
                std::future::pending::<()>().await;
                drop(request);
            }
        };
        let app = Router::new().fallback(handle);
        (url, AbortOnDropHandle::new(tokio::spawn(async move { axum::serve(listener, app).await.unwrap() })))
    }
}

#[rstest]
#[case::a_few_hundred(200)]
#[ignore = "holds a thousand requests at a time; scripts/test --all runs it"]
#[case::a_thousand(1_000)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_requests_are_dropped_when_their_events_are_cancelled(#[case] count: usize) {
    let declared = jobs(count).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Silent::default();
    let (url, _serving) = service.start().await;
    publish_jobs(&hatchery, count).await;
    let mut command = place.command(&["-o", "json", "work", "--type", "job", "--http", &url]);
    command.stderr(fs::File::create(place.path("log")).unwrap());
    let worker = Process::spawn(command);
    let has = |counter: &AtomicUsize| (counter.load(Ordering::SeqCst) == count).then_some(());
    eventually("all requests have come", async || has(&service.asked)).await;
    let began = cancel_all(&place, count).await;
    assert!(Timestamp::now().duration_since(began) < (LEASE * 2).try_into().unwrap(), "a request is dropped at once");
    eventually("all requests are dropped", async || has(&service.dropped)).await;
    expect_cancelled(&declared, &hatchery, worker, count).await;
}

#[tokio::test]
async fn a_program_that_ignores_its_cancel_is_killed_with_its_children_after_five_seconds() {
    let declared = Declared::new("types: { job: { lease: 1s } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let script = place.write("handler.sh", "trap '' TERM; sleep 600 & echo $$ $! > processes; wait");
    publish(&hatchery, NewEvent::new("job", "{}").id("a")).await;
    let worker = Process::spawn(place.worker("job", &script));
    let processes = eventually("the program runs", async || place.lines("processes").into_iter().next()).await;
    // This command gives up before the program is killed.
    let late = place.events(5, &["cancel", "--id", "a", "--wait=1s"]).await;
    assert_eq!(
        late.stdout,
        "Nothing of the event a is known to wait. One is running; its worker ends it at the next renewal of the lease.\n"
    );
    let expected =
        "cancelled, and after 1s 1 event is still running: a; its worker does not reach Redis, waits for the broker";
    assert!(late.stderr.contains(expected), "{late:?}");
    let again = place.events_json(0, &["cancel", "--id", "a", "--wait"]).await;
    assert_eq!(again["events"][0]["result"], "running", "{again}");
    eventually("both processes have ended", async || (!processes.split(' ').any(is_running)).then_some(())).await;
    assert_eq!(worker.stop().await["cancelled"], 1);
    assert_eq!(fs::read_to_string(place.path("log")).unwrap().matches("cancelled while it ran").count(), 1);
}

/// A run-now or a reschedule that a person began before the event was started, and whose last step comes while it runs.
#[rstest]
#[case::run_now("import", false)]
#[case::reschedule("import", true)]
#[case::run_now_of_what_competes_with_nothing("mail", false)]
#[tokio::test]
async fn a_run_now_and_a_reschedule_beside_a_running_copy_kill_nothing(
    #[case] event_type: &str,
    #[case] is_finished: bool,
) {
    let declared = declared("{ import: { coalesce: latest, lease: 3s }, mail: { lease: 3s } }").await;
    let hatchery = declared.connect().await;
    let (over, runs, told) = (CancellationToken::new(), Runs::default(), Arc::new(AtomicUsize::new(0)));
    let (ends, noted, counted) = (over.clone(), runs.clone(), told.clone());
    let worker = hatchery.worker().handle(event_type, move |run: Run| {
        noted.note(&run);
        let (ends, counted) = (ends.clone(), counted.clone());
        async move {
            tokio::select! {
                () = ends.cancelled() => return Outcome::Done,
                () = run.lost.cancelled() => {}
            }
            counted.fetch_add(1, Ordering::SeqCst);
            Outcome::dead_letter("told")
        }
    });
    let worker = Working::run(worker, runs.clone());
    put(&hatchery, event_type, "1234", "a", Duration::ZERO).await;
    let event = runs.reach(1).await.remove(0).event;
    let topology = &declared.topology;
    let register =
        RedisRegister::new(&declared.redis_url, &declared.host.name, &topology.name, &topology.redis).unwrap();
    let note = Note { stage: Stage::Waiting, attempts: 0, reason: None };
    let end = if is_finished { End::Finished } else { End::Copied { due: Timestamp::now(), note } };
    let terms = topology.types[event_type].terms(&topology.redis);
    let settle = Settle::by_a_person(event.subject(), event.stamp.clone(), 0, event.due(), end, terms);
    register.settle(&[settle]).await.unwrap();
    // Each of two other events lasts for a third of a lease at least: meanwhile the lease of the first one is renewed.
    for (n, id) in [(1, "b"), (2, "c")] {
        put(&hatchery, event_type, id, id, Duration::ZERO).await;
        runs.reach(n + 1).await;
        hatchery.events().cancel(&EventSelector::id(event_type, id).of(id)).await.unwrap();
        eventually("it is told", async || (told.load(Ordering::SeqCst) == n).then_some(())).await;
    }
    over.cancel();
    let summary = worker.stop().await;
    assert_eq!((summary.done, summary.cancelled, summary.dead_lettered), (1, 2, 0), "{summary:?}");
}

#[tokio::test]
async fn a_type_without_the_register_has_no_cancel() {
    let declared = Declared::new("types: { plain: { register: off } }").await;
    let place = Place::new(&declared);
    let ended = place.events(1, &["cancel", "--type", "plain", "--id", "a", "--wait"]).await;
    assert!(ended.stderr.contains("register: off"), "{ended:?}");
}
