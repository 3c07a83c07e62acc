//! Circuit breakers: several workers on one broker and one register, in paused time.

use tokio::{task::JoinHandle, time::Instant};

use super::{clocks::Wrong, *};
use crate::{
    handler::Run,
    ports::{NamedStates as _, StateKind},
};

const FILE: &str = "
version: 1
name: t
defaults: { concurrency: 4, prefetch: 20, retry: { delays: [10m], max-attempts: 9 } }
types:
  pay: { breaker: { errors: 10, window: 10s, cooldown: 1m, probes: 3 }, handler-timeout: 20s }
  half: { breaker: { errors: 50%, window: 10s, cooldown: 1m, probes: 3 } }
  person: { breaker: { errors: 10, window: 10s, cooldown: manual } }
  plain: { register: off, breaker: { errors: 10, window: 10s, cooldown: 1m, probes: 3 } }
  strict: { on-failure: block, retry: { delays: [100ms] }, concurrency: 1, breaker: { errors: 10, window: 10s, cooldown: 1m, probes: 3 } }
  keen: { on-failure: in-place, in-place: { tries: 3, delay: 1ms }, breaker: { errors: 10, window: 10s, cooldown: 1m, probes: 3 } }
  slow: { breaker: { errors: 10, window: 10s, cooldown: 1s, probes: 3 }, handler-timeout: 5m }
  late: { register: off, breaker: { errors: 10, window: 10s, cooldown: 1h } }
  on-call: {}
notify: { type: on-call }
";

/// How long each run takes.
const RUN: Duration = Duration::from_millis(100);

/// A world, the time that passes in it, and the runs of its handlers.
struct Flow {
    world: World,
    began: Instant,
    runs: Arc<Mutex<Vec<Begun>>>,
    /// Whether the runs of a worker succeed, hang, or fail.
    does: Arc<Mutex<Behaviour>>,
}

/// A run that has begun.
#[derive(Clone, Debug, PartialEq)]
struct Begun {
    at: Duration,
    worker: &'static str,
    id: String,
    attempts: u32,
}

/// The outcomes of each worker's runs, by its name.
type Behaviour = fn(&str) -> Does;

#[derive(Clone, Copy)]
enum Does {
    Well,
    Fails,
    Hangs,
    IsAway,
}

/// A clock that passes with that of tokio, so many seconds ahead of Redis's.
struct Passes(Instant, i64);

impl Clock for Passes {
    fn now(&self) -> Timestamp {
        Wrong(self.1).now() + self.0.elapsed()
    }

    fn ahead(&self) -> Option<jiff::SignedDuration> {
        Wrong(self.1).ahead()
    }
}

impl Flow {
    fn new(event_type: &str, events: usize) -> Self {
        let topology = Arc::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"));
        let world = World::of(topology, Script { is_broker_silent: true, ..Script::default() });
        let flow =
            Self { world, began: Instant::now(), runs: Arc::default(), does: Arc::new(Mutex::new(|_| Does::Fails)) };
        flow.put(event_type, 0..events);
        flow
    }

    fn put(&self, event_type: &str, events: std::ops::Range<usize>) {
        self.world.put_all(events.map(|n| {
            let mut message = incoming(&format!("{event_type}.now"), &[]);
            message.properties.message_id = Some(n.to_string());
            message
        }));
    }

    fn does(&self, does: Behaviour) {
        *self.does.lock().expect("no panic") = does;
    }

    fn worker(&self, name: &'static str, event_type: &str) -> JoinHandle<()> {
        self.worker_ahead(name, event_type, 0)
    }

    /// Starts a worker whose clock is so many seconds ahead.
    fn worker_ahead(&self, name: &'static str, event_type: &str, ahead: i64) -> JoinHandle<()> {
        let worker = self.with_handler(name, event_type, ahead);
        tokio::spawn(async move { _ = worker.run(CancellationToken::new()).await.expect("it goes on") })
    }

    fn with_handler(&self, name: &'static str, event_type: &str, ahead: i64) -> Worker {
        let (runs, does, began) = (Arc::clone(&self.runs), Arc::clone(&self.does), self.began);
        let handler = move |run: Run| {
            let (id, attempts) = (run.event.id.clone(), run.event.attempts);
            runs.lock().expect("no panic").push(Begun { at: began.elapsed(), worker: name, id, attempts });
            let does = does.lock().expect("no panic")(name);
            async move {
                tokio::time::sleep(RUN).await;
                Ok::<_, String>(match does {
                    Does::Well => Outcome::Done,
                    Does::Fails => failure(),
                    Does::Hangs => std::future::pending().await,
                    Does::IsAway => Outcome::unavailable("refused"),
                })
            }
        };
        self.world.worker_at(Arc::new(Passes(began, ahead))).handle(event_type, handler)
    }

    /// The broker loses so many of the next events that tell of an opening.
    fn loses_notices(&self, mut times: usize) {
        *self.world.on_publish.lock().expect("no panic") = Some(Box::new(move |message| {
            if !message.routing_key.starts_with("on-call.") || times == 0 {
                return Ok(());
            }
            times -= 1;
            Err(BrokerError::Unreachable { url: "amqp".into(), reason: "cut".into() })
        }));
    }

    /// Waits until so long after the begin.
    async fn until(&self, seconds: f64) {
        tokio::time::sleep_until(self.began + Duration::from_secs_f64(seconds)).await;
    }

    fn runs(&self) -> Vec<Begun> {
        self.runs.lock().expect("no panic").clone()
    }

    /// The number of runs that began in this time.
    fn begun(&self, from: f64, to: f64) -> usize {
        self.runs().iter().filter(|run| (from..to).contains(&run.at.as_secs_f64())).count()
    }

    /// The ids of the events that tell of an opening.
    fn notices(&self) -> Vec<String> {
        let published = self.world.published.lock().expect("no panic");
        let of = published.iter().filter(|message| message.routing_key.starts_with("on-call."));
        of.filter_map(|message| Some(message.properties.message_id.as_deref()?.to_owned())).collect()
    }

    async fn state(&self, event_type: &str) -> crate::domain::breaker::BreakerState {
        let text =
            self.world.register.state(StateKind::Breaker, event_type).await.expect("an answer").expect("a state");
        crate::domain::breaker::BreakerState::parse(&text).expect("a state")
    }

    /// Redis forgets all states.
    async fn flush(&self, event_type: &str) {
        let register = &self.world.register;
        let text = register.state(StateKind::Breaker, event_type).await.expect("an answer");
        assert!(
            register.replace_state(StateKind::Breaker, event_type, text.as_deref(), None).await.expect("an answer")
        );
    }
}

#[rstest]
#[case::count("pay", &["a", "b"])]
#[case::share("half", &["a", "b"])]
#[case::without_the_register("plain", &["a"])]
#[tokio::test(start_paused = true)]
async fn a_breaker_opens_although_nothing_ever_succeeded_and_closes_when_probes_go_well(
    #[case] event_type: &str,
    #[case] workers: &[&'static str],
) {
    let flow = Flow::new(event_type, 200);
    let _workers: Vec<_> = workers.iter().map(|name| flow.worker(name, event_type)).collect();
    flow.until(30.0).await;
    let before = flow.runs().len();
    assert!((10..=70).contains(&before), "{before} runs");
    assert_eq!(flow.begun(1.2, 30.0), 0, "a second after the tenth error nothing starts");
    assert_eq!(flow.notices().len(), 1, "{:?}", flow.notices());
    flow.does(|_| Does::Well);
    flow.until(60.0).await;
    assert_eq!(flow.begun(1.2, 60.0), 0);
    flow.until(62.0).await;
    let probes: Vec<Begun> = flow.runs().split_off(before);
    let together = probes.iter().filter(|probe| probe.at < probes[0].at + RUN).count();
    assert!(together <= 3, "three over all workers: {probes:?}");
    assert!(flow.runs().iter().all(|run| run.attempts == 0), "no attempt is spent by waiting");
    flow.until(100.0).await;
    assert_eq!(flow.runs().len(), 200, "all the others run");
    assert_eq!(flow.world.came_back(), 0, "RabbitMQ would count that");
    assert_eq!(flow.notices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failing_probe_opens_a_breaker_for_twice_as_long_and_is_not_told_again() {
    let flow = Flow::new("pay", 200);
    let _workers = ["a", "b"].map(|name| flow.worker(name, "pay"));
    flow.until(55.0).await;
    let before = flow.runs().len();
    flow.until(115.0).await;
    let probes = flow.runs().len() - before;
    assert!((1..=3).contains(&probes), "{probes}");
    assert_eq!(flow.begun(65.0, 115.0), 0, "two minutes after the first probes");
    flow.until(185.0).await;
    assert!((1..=3).contains(&flow.begun(175.0, 185.0)), "{:?}", flow.runs());
    assert_eq!(flow.begun(65.0, 175.0), 0);
    assert_eq!(flow.notices().len(), 1);
    let state = flow.state("pay").await;
    assert_eq!(state.era.round, 2);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_while_a_breaker_is_open_starts_nothing() {
    let flow = Flow::new("pay", 200);
    let first = flow.worker("a", "pay");
    flow.until(10.0).await;
    first.abort();
    flow.put("pay", 200..400);
    let _second = flow.worker("b", "pay");
    flow.until(55.0).await;
    assert!(flow.runs().iter().all(|run| run.worker == "a"), "{:?}", flow.runs());
    flow.does(|_| Does::Well);
    flow.until(75.0).await;
    assert!(flow.runs().iter().any(|run| run.worker == "b"));
}

#[tokio::test(start_paused = true)]
async fn grants_of_a_worker_that_dies_go_to_another_one() {
    let flow = Flow::new("pay", 400);
    let first = flow.worker("a", "pay");
    flow.until(30.0).await;
    flow.does(|worker| if worker == "a" { Does::Hangs } else { Does::Well });
    flow.until(61.0).await;
    assert_eq!(flow.begun(59.0, 61.0), 3, "{:?}", flow.runs());
    first.abort();
    let _second = flow.worker("b", "pay");
    flow.until(90.0).await;
    assert_eq!(flow.begun(61.0, 90.0), 0, "the grants last for a handler's time-out and a lease");
    flow.until(100.0).await;
    assert!(flow.begun(93.0, 100.0) > 3, "{:?}", flow.runs());
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_handlers_are_all_busy_takes_no_probes() {
    let flow = Flow::new("slow", 60);
    flow.does(|worker| if worker == "busy" { Does::Hangs } else { Does::Fails });
    let _busy = flow.worker("busy", "slow");
    flow.until(0.5).await;
    assert_eq!(flow.runs().len(), 4, "and it holds as many as its prefetch");
    let _other = flow.worker("other", "slow");
    flow.until(1.5).await;
    let before = flow.runs().len();
    assert!(before >= 10 && !flow.state("slow").await.is_closed(), "{before} runs");
    flow.does(|_| Does::Well);
    flow.until(5.0).await;
    assert!(flow.state("slow").await.is_closed(), "{:?}", flow.state("slow").await);
}

/// While an event runs alone, nothing else starts in its worker.
#[tokio::test(start_paused = true)]
async fn a_worker_in_which_a_suspect_runs_takes_no_probes() {
    let flow = Flow::new("slow", 0);
    let mut suspect = incoming("plain.aside", &[]);
    suspect.properties.message_id = Some("suspect".into());
    flow.world.put(suspect);
    let hangs = |_: Run| std::future::pending::<Result<Outcome, String>>();
    let alone = flow.with_handler("alone", "slow", 0).handle("plain", hangs);
    let _alone = tokio::spawn(async move { _ = alone.run(CancellationToken::new()).await.expect("it goes on") });
    let _other = flow.worker("other", "slow");
    flow.until(1.0).await;
    flow.put("slow", 0..60);
    flow.until(2.0).await;
    assert!(!flow.state("slow").await.is_closed(), "{:?}", flow.runs());
    flow.does(|_| Does::Well);
    flow.until(6.0).await;
    assert!(flow.runs().iter().all(|run| run.worker == "other"), "{:?}", flow.runs());
    assert!(flow.state("slow").await.is_closed(), "{:?}", flow.state("slow").await);
}

#[tokio::test(start_paused = true)]
async fn a_report_whose_answer_is_lost_counts_no_error_twice() {
    let flow = Flow::new("pay", 0);
    let _worker = flow.worker("a", "pay");
    flow.until(1.0).await;
    flow.put("pay", 0..4);
    flow.until(1.05).await;
    flow.world.lost_states.store(1, Ordering::SeqCst);
    flow.until(8.0).await;
    let buckets = flow.state("pay").await.buckets;
    assert_eq!(buckets.iter().map(|bucket| bucket.errors).sum::<u64>(), 4, "{buckets:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_tells_nothing_is_granted_again() {
    let flow = Flow::new("pay", 200);
    let _worker = flow.worker("a", "pay");
    flow.until(30.0).await;
    flow.does(|_| Does::IsAway);
    flow.until(65.0).await;
    assert!((1..=3).contains(&flow.begun(59.0, 61.0)), "{:?}", flow.runs());
    flow.does(|_| Does::Well);
    flow.until(85.0).await;
    assert!(flow.state("pay").await.is_closed(), "before the grants are over");
}

#[tokio::test(start_paused = true)]
async fn a_slow_probe_keeps_a_breaker_half_open() {
    let flow = Flow::new("pay", 200);
    let _workers = ["a", "b"].map(|name| flow.worker(name, "pay"));
    flow.until(30.0).await;
    flow.does(|_| Does::Hangs);
    flow.until(79.0).await;
    assert_eq!(flow.begun(59.0, 79.0), 3, "nothing but the probes, until their time is over");
    flow.until(100.0).await;
    assert_eq!(flow.begun(62.0, 100.0), 0, "a time-out is an error");
    assert_eq!(flow.state("pay").await.era.round, 1);
}

#[rstest]
#[case::open(20.0)]
#[case::half_open(61.0)]
#[tokio::test(start_paused = true)]
async fn an_emptied_redis_opens_nothing_and_tells_nothing_again(#[case] at: f64) {
    let flow = Flow::new("pay", 200);
    let _workers = ["a", "b"].map(|name| flow.worker(name, "pay"));
    flow.until(30.0_f64.min(at)).await;
    flow.does(|_| Does::Hangs);
    flow.until(at).await;
    let (before, runs) = (flow.state("pay").await, flow.runs().len());
    flow.flush("pay").await;
    flow.until(at + 5.0).await;
    assert_eq!((flow.state("pay").await.era, flow.runs().len()), (before.era, runs));
    assert_eq!(flow.notices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_clocks_of_workers_may_be_five_minutes_apart() {
    let flow = Flow::new("pay", 200);
    let _workers = [("a", 0), ("b", 300), ("c", -300)].map(|(name, ahead)| flow.worker_ahead(name, "pay", ahead));
    flow.until(59.0).await;
    let before = flow.runs().len();
    assert!((10..=70).contains(&before) && flow.begun(1.2, 59.0) == 0, "{before} runs");
    flow.does(|_| Does::Well);
    flow.until(100.0).await;
    assert_eq!((flow.runs().len(), flow.notices().len()), (200, 1));
}

#[tokio::test(start_paused = true)]
async fn a_type_that_keeps_its_order_keeps_it_while_its_breaker_is_open() {
    let flow = Flow::new("strict", 30);
    let _worker = flow.worker("a", "strict");
    flow.until(50.0).await;
    let before = flow.runs();
    assert!((10..=14).contains(&before.len()) && before.iter().all(|run| run.id == "0"), "{before:?}");
    assert_eq!(flow.begun(4.0, 50.0), 0);
    let claims = flow.world.diary.entries().iter().filter(|entry| *entry == "claim alone").count();
    assert!(claims <= before.len() + 2, "{claims} claims of {} runs", before.len());
    flow.does(|_| Does::Well);
    flow.until(120.0).await;
    let ids: Vec<String> = flow.runs().split_off(before.len()).into_iter().map(|run| run.id).collect();
    assert_eq!(ids, (0..30).map(|n| n.to_string()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_round_of_tries_in_place_is_one_run() {
    let flow = Flow::new("keen", 9);
    let _worker = flow.worker("a", "keen");
    flow.until(9.0).await;
    assert_eq!(flow.runs().len(), 27, "nine errors of 27 runs");
    flow.put("keen", 9..60);
    flow.until(40.0).await;
    let state = flow.state("keen").await;
    let opening = state.opening.expect("it is open now");
    assert!((10..=16).contains(&opening.errors) && opening.errors == opening.runs, "{opening:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unavailable_handler_opens_no_breaker() {
    let flow = Flow::new("pay", 100);
    flow.does(|_| Does::IsAway);
    let _worker = flow.worker("a", "pay");
    flow.until(60.0).await;
    assert!(flow.runs().len() > 10);
    assert!(flow.state("pay").await.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_person_closes_a_breaker_with_a_manual_cooldown() {
    let flow = Flow::new("person", 100);
    let _workers = ["a", "b"].map(|name| flow.worker(name, "person"));
    flow.until(700.0).await;
    let before = flow.runs().len();
    assert_eq!(flow.begun(1.2, 700.0), 0);
    flow.does(|_| Does::Well);
    let state = flow.state("person").await;
    let (open, closed) = (state.text(), state.close(0).expect("it is open").text());
    assert!(
        flow.world
            .register
            .replace_state(StateKind::Breaker, "person", Some(&open), Some(&closed))
            .await
            .expect("an answer")
    );
    flow.until(701.5).await;
    assert!(flow.runs().len() > before, "within a second or so");
    flow.until(720.0).await;
    assert_eq!(flow.runs().len(), 100);
    assert_eq!(flow.world.came_back(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_waits_too_long_for_a_breaker_goes_on_as_a_copy_that_convicts_nobody() {
    let flow = Flow::new("late", 40);
    let _worker = flow.worker("a", "late");
    let copies = || {
        let published = flow.world.published.lock().expect("no panic");
        published.iter().filter(|message| message.routing_key == "late.250ms").count()
    };
    flow.until(890.0).await;
    let failed = flow.runs().len();
    assert_eq!((copies(), flow.begun(1.2, 890.0)), (0, 0), "it keeps what it holds for half of `ack-timeout`");
    flow.until(950.0).await;
    assert!(failed + copies() > 20, "{failed} runs, {} copies", copies());
    assert_eq!(flow.world.came_back(), 0, "RabbitMQ would count that");
}

#[tokio::test(start_paused = true)]
async fn a_suspect_of_another_type_does_not_wait_for_a_breaker() {
    let flow = Flow::new("late", 15);
    let mut suspect = incoming("plain.aside", &[]);
    suspect.properties.message_id = Some("suspect".into());
    let (runs, began) = (Arc::clone(&flow.runs), flow.began);
    let failing = |_: Run| async {
        tokio::time::sleep(RUN).await;
        Ok::<_, String>(failure())
    };
    let worker =
        flow.world.worker_at(Arc::new(Passes(began, 0))).handle("late", failing).handle("plain", move |run: Run| {
            let id = run.event.id.clone();
            runs.lock().expect("no panic").push(Begun { at: began.elapsed(), worker: "a", id, attempts: 0 });
            std::future::ready(Ok::<_, String>(Outcome::Done))
        });
    let _working = tokio::spawn(async move { _ = worker.run(CancellationToken::new()).await.expect("it goes on") });
    flow.until(60.0).await;
    flow.world.put(suspect);
    flow.until(90.0).await;
    assert_eq!(flow.runs().len(), 1, "{:?}", flow.runs());
    assert_eq!(flow.world.came_back(), 0, "RabbitMQ would count that");
}

#[tokio::test(start_paused = true)]
async fn a_type_without_a_breaker_asks_redis_for_none() {
    let flow = Flow::new("on-call", 20);
    let _worker = flow.worker("a", "on-call");
    flow.until(30.0).await;
    assert!(!flow.world.diary.entries().iter().any(|entry| entry.contains("breaker")));
}

#[rstest]
#[case::with_the_register("pay")]
#[case::without_the_register("plain")]
#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_publishes_the_notice_of_an_opening(#[case] event_type: &str) {
    let flow = Flow::new(event_type, 40);
    flow.loses_notices(4);
    let (stop, worker) = (CancellationToken::new(), flow.with_handler("a", event_type, 0));
    let working = tokio::spawn(worker.run(stop.clone()));
    flow.until(0.8).await;
    assert!(flow.notices().is_empty(), "it was lost");
    stop.cancel();
    working.await.expect("no panic").expect("it stops");
    assert_eq!(flow.notices().len(), 1);
    if event_type == "pay" {
        assert!(flow.state("pay").await.opening.is_some_and(|opening| opening.is_notified));
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_tells_that_a_notice_is_not_published() {
    let (flow, log) = (Flow::new("pay", 40), Log::default());
    let _kept = log.keep();
    flow.loses_notices(usize::MAX);
    let (stop, worker) = (CancellationToken::new(), flow.with_handler("a", "pay", 0));
    let working = tokio::spawn(worker.run(stop.clone()));
    flow.until(1.0).await;
    stop.cancel();
    working.await.expect("no panic").expect("it stops");
    assert!(flow.began.elapsed() < Duration::from_mins(2), "within the drain limit");
    assert_eq!(log.lines("the worker stops before").len(), 1);
    // Another one tells it later.
    flow.loses_notices(0);
    let _second = flow.worker("b", "pay");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(flow.notices().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stops_when_empty_says_that_it_waits_for_a_breaker() {
    let (flow, log) = (Flow::new("pay", 40), Log::default());
    let _kept = log.keep();
    let worker = flow.with_handler("a", "pay", 0).stop_when_empty(true);
    let working = tokio::spawn(worker.run(CancellationToken::new()));
    flow.until(30.0).await;
    assert!(!working.is_finished());
    let lines = log.lines("the worker ends after");
    assert!(lines.len() == 1 && lines[0].contains("the circuit breaker of pay"), "{lines:?}");
    flow.does(|_| Does::Well);
    working.await.expect("no panic").expect("it stops");
    assert!(flow.began.elapsed() > Duration::from_mins(1));
}

#[tokio::test(start_paused = true)]
async fn a_state_that_redis_refuses_is_told_once() {
    let (flow, log) = (Flow::new("pay", 40), Log::default());
    let _kept = log.keep();
    let error = RegisterError::Unreadable { url: "redis".into(), reason: "WRONGTYPE".into() };
    *flow.world.refused_states.lock().expect("no panic") = Some(error);
    let _worker = flow.worker("a", "pay");
    flow.until(30.0).await;
    assert_eq!(log.lines("circuit breaker").len(), 1, "{:?}", log.lines("circuit breaker"));
    *flow.world.refused_states.lock().expect("no panic") = None;
    flow.until(35.0).await;
    assert!(!flow.runs().is_empty(), "it was mended");
}

#[tokio::test(start_paused = true)]
async fn a_text_in_redis_that_is_no_state_is_told_and_replaced() {
    let (flow, log) = (Flow::new("pay", 0), Log::default());
    let _kept = log.keep();
    let register = &flow.world.register;
    assert!(register.replace_state(StateKind::Breaker, "pay", None, Some("?")).await.expect("an answer"));
    let _worker = flow.worker("a", "pay");
    flow.put("pay", 0..4);
    flow.until(5.0).await;
    assert_eq!(log.lines("is no state").len(), 1);
    assert!(flow.state("pay").await.is_closed());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_starts_while_a_breaker_is_open_says_when_events_are_tried() {
    let flow = Flow::new("pay", 40);
    let _first = flow.worker("a", "pay");
    flow.until(40.0).await;
    let log = Log::default();
    let _kept = log.keep();
    let _second = flow.worker("b", "pay");
    flow.until(45.0).await;
    let lines = log.lines("the circuit breaker is open for");
    assert!(lines.len() == 1 && lines[0].contains("open for 20"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_others_forestall_asks_redis_no_more_than_ten_times_a_second() {
    let flow = Flow::new("pay", 600);
    let _worker = flow.worker("a", "pay");
    flow.until(0.05).await;
    flow.world.are_states_contested.store(true, Ordering::SeqCst);
    flow.until(10.0).await;
    let calls = flow.world.diary.entries().iter().filter(|entry| *entry == "replace breaker pay").count();
    assert!(calls <= 100, "{calls} calls in ten seconds");
    assert!(flow.begun(8.0, 10.0) > 0, "it knows that the breaker is closed");
}

#[tokio::test(start_paused = true)]
async fn two_workers_that_trip_a_breaker_at_one_moment_open_it_once() {
    let flow = Flow::new("pay", 40);
    let (first, second) = (flow.worker("a", "pay"), flow.worker("b", "pay"));
    flow.until(20.0).await;
    let state = flow.state("pay").await;
    assert!(flow.begun(0.0, 0.05) == 8 && state.opening.is_some(), "both ran events when it opened");
    assert_eq!((flow.notices().len(), state.era.round), (1, 0));
    // A stop of both while it is open changes nothing.
    first.abort();
    second.abort();
    let _third = flow.worker("c", "pay");
    flow.until(50.0).await;
    assert_eq!((flow.state("pay").await.era, flow.notices().len()), (state.era, 1));
    assert!(flow.runs().iter().all(|run| run.worker != "c"));
}
