//! Circuit breakers of several workers on one broker and one Redis.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hatchery::{
    Hatchery, NewEvent, Outcome, Run,
    internals::breaker::{BreakerState, Phase},
};
use hatchery_admin::breakers::{Breakers, Known};
use jiff::Timestamp;
use rstest::rstest;

use crate::support::{
    broker::eventually,
    declared::{Declared, publish_all},
    logs::Logs,
    process::Place,
    redis, say,
    workers::{Runs, Working},
};

/// The workers of a test.
const WORKERS: usize = 8;

/// Succeeds so many times, and then fails.
#[derive(Clone, Default)]
struct Provider {
    left: Arc<AtomicUsize>,
    succeeded: Arc<AtomicUsize>,
    /// Whether it does not answer yet.
    hangs: Arc<AtomicBool>,
}

impl Provider {
    fn is_mended(&self) {
        self.succeeds(usize::MAX / 2);
    }

    fn succeeds(&self, times: usize) {
        self.left.store(times, Ordering::SeqCst);
    }

    /// Starts a worker that asks the provider in each run, which takes a few milliseconds.
    fn worker(&self, hatchery: &Hatchery, event_type: &str, runs: &Runs) -> Working {
        let (provider, noted) = (self.clone(), runs.clone());
        let worker = hatchery.worker().handle(event_type, move |run: Run| {
            noted.note(&run);
            let provider = provider.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(5)).await;
                while provider.hangs.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                let left = provider.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
                Ok::<_, String>(match left {
                    Ok(_) => {
                        provider.succeeded.fetch_add(1, Ordering::SeqCst);
                        Outcome::Done
                    }
                    Err(_) => Outcome::Retry { reason: "the provider is down".into(), after: None },
                })
            }
        });
        Working::run(worker, runs.clone())
    }
}

async fn state(hatchery: &Hatchery, event_type: &str) -> BreakerState {
    let infos = Breakers(hatchery.events()).list().await.unwrap();
    let info = infos.into_iter().find(|info| info.event_type.as_str() == event_type).unwrap();
    let Known::Shared(state) = info.state else { panic!("{info:?}") };
    state
}

async fn until_phase(what: &str, hatchery: &Hatchery, event_type: &str, is: fn(&Phase) -> bool) -> BreakerState {
    eventually(what, async || Some(state(hatchery, event_type).await).filter(|state| is(&state.phase))).await
}

const fn is_open(phase: &Phase) -> bool {
    matches!(phase, Phase::Open { .. })
}

const fn is_closed(phase: &Phase) -> bool {
    matches!(phase, Phase::Closed { .. })
}

async fn publish_many(hatchery: &Hatchery, event_type: &str, count: usize) {
    let event = |n: usize| NewEvent::new(event_type, n.to_string()).id(format!("{event_type}-{n}"));
    publish_all(hatchery, (0..count).map(event).collect()).await;
}

/// Redis forgets the states of all breakers.
async fn forget(declared: &Declared) {
    let mut connection = redis::connect(&declared.redis_url).await.unwrap();
    let removed: i64 = ::redis::cmd("DEL").arg(declared.key("breakers")).query_async(&mut connection).await.unwrap();
    assert_eq!(removed, 1, "the key is there");
}

const FILE: &str = "\
notify: { type: on-call }
types:
  on-call: {}
  pay:
    concurrency: 10
    prefetch: 50
    retry: { delays: [1h] }
    breaker: { errors: 100, window: 30s, cooldown: COOLDOWN, probes: 5 }
";

/// Eight workers whose handlers fail until a test says otherwise, each with a connection of its own.
struct Eight {
    declared: Declared,
    hatchery: Hatchery,
    provider: Provider,
    runs: Runs,
    workers: Vec<Working>,
    told: Working,
}

impl Eight {
    async fn start(cooldown: &str, events: usize) -> Self {
        let declared = Declared::new(&FILE.replace("COOLDOWN", cooldown)).await;
        let hatchery = declared.connect().await;
        publish_many(&hatchery, "pay", events).await;
        let (provider, runs) = (Provider::default(), Runs::default());
        let mut workers = Vec::new();
        for _ in 0..WORKERS {
            workers.push(provider.worker(&declared.connect().await, "pay", &runs));
        }
        let told = Working::start(&hatchery, "on-call", |_| Outcome::Done);
        Self { declared, hatchery, provider, runs, workers, told }
    }

    /// Waits until no run has begun for three seconds, in which each worker has looked at the state. Returns how many have.
    async fn quiet(&self) -> usize {
        let still = async || {
            let last = self.runs.seen().last().map(|seen| seen.at)?;
            let is_quiet = Timestamp::now().duration_since(last).as_millis() > 3_000;
            is_quiet.then(|| self.runs.count())
        };
        eventually("no run has begun for three seconds", still).await
    }

    /// Stops all workers. Asserts that each event was handled, and none is a dead letter or counted by RabbitMQ.
    async fn end(self, events: usize) {
        let handled = async || {
            let done = self.runs.seen().iter().map(|seen| seen.event.id.clone()).collect::<BTreeSet<_>>().len();
            (done == events).then_some(())
        };
        eventually("all events have run", handled).await;
        let mut done = 0;
        for worker in self.workers {
            let summary = worker.stop().await;
            done += summary.done;
            assert_eq!(summary.dead_lettered, 0);
        }
        say(&format!("{} runs, {done} of them done", self.runs.count()));
        let told = self.told.stop().await;
        assert_eq!(told.done, 1, "the opening is told once");
    }
}

#[rstest]
#[case::by_hand("manual", true)]
#[case::by_probes("2s", false)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_stop_at_too_many_errors_and_resume(#[case] cooldown: &str, #[case] by_hand: bool) {
    const EVENTS: usize = 2_000;
    let eight = Eight::start(cooldown, EVENTS).await;
    let opened = until_phase("the breaker is open", &eight.hatchery, "pay", |phase| !is_closed(phase)).await;
    let opening = opened.opening.unwrap();
    assert!(opening.errors >= 100 && opening.reasons == ["the provider is down"], "{opening:?}");
    if by_hand {
        let before = eight.quiet().await;
        let seen = eight.runs.seen();
        let late = Timestamp::from_millisecond(opening.at).unwrap();
        let last = seen.iter().map(|seen| seen.at.duration_since(late).as_millis()).max().unwrap();
        say(&format!("{before} runs began; the last one {last} ms after the breaker opened"));
        assert!(last < 1_000, "the last run began {last} ms after the breaker opened");
        assert!(seen.iter().all(|seen| seen.event.attempts == 0));
        assert!(Breakers(eight.hatchery.events()).close("pay").await.unwrap());
        assert!(!Breakers(eight.hatchery.events()).close("pay").await.unwrap(), "it is closed");
    }
    eight.provider.is_mended();
    until_phase("the breaker is closed", &eight.hatchery, "pay", is_closed).await;
    let told = eight.told.runs.reach(1).await;
    let notice: serde_json::Value = serde_json::from_slice(&told[0].event.payload).unwrap();
    assert_eq!((&notice["type"], &notice["window"]), (&"pay".into(), &"30s".into()), "{notice}");
    eight.end(EVENTS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_closes_no_breaker() {
    let eight = Eight::start("manual", 1_000).await;
    let before = until_phase("the breaker is open", &eight.hatchery, "pay", is_open).await;
    let runs = eight.quiet().await;
    forget(&eight.declared).await;
    let restored = until_phase("a worker has restored the state", &eight.hatchery, "pay", is_open).await;
    assert_eq!(restored.era, before.era);
    assert_eq!(eight.quiet().await, runs);
    eight.provider.is_mended();
    assert!(Breakers(eight.hatchery.events()).close("pay").await.unwrap());
    eight.end(1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_emptied_redis_grants_no_more_probes() {
    let eight = Eight::start("10s", 1_000).await;
    until_phase("the breaker is open", &eight.hatchery, "pay", is_open).await;
    eight.provider.hangs.store(true, Ordering::SeqCst);
    let before = eight.quiet().await;
    let are_five_tried = |phase: &Phase| matches!(phase, Phase::HalfOpen { grants } if grants.len() == 5);
    let tried = until_phase("five events are tried", &eight.hatchery, "pay", are_five_tried).await;
    eventually("they run", async || (eight.runs.count() == before + 5).then_some(())).await;
    forget(&eight.declared).await;
    let is_half_open = |phase: &Phase| matches!(phase, Phase::HalfOpen { .. });
    let restored = until_phase("a worker has restored the state", &eight.hatchery, "pay", is_half_open).await;
    assert_eq!(restored.era, tried.era);
    let is_granted_again =
        |phase: &Phase| matches!(phase, Phase::HalfOpen { grants } if grants.iter().all(|grant| !grant.to.is_empty()));
    let granted = until_phase("others may be tried again", &eight.hatchery, "pay", is_granted_again).await;
    assert!(are_five_tried(&granted.phase), "{granted:?}");
    assert_eq!(eight.runs.count(), before + 5, "no more than the five are tried");
    eight.provider.is_mended();
    eight.provider.hangs.store(false, Ordering::SeqCst);
    until_phase("the breaker is closed", &eight.hatchery, "pay", is_closed).await;
    eight.end(1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_that_keeps_its_order_keeps_it_over_an_opening() {
    let declared = Declared::new(
        "types: { pay: { on-failure: block, retry: { delays: [20ms] }, \
         breaker: { errors: 10, window: 30s, cooldown: manual } } }",
    )
    .await;
    let hatchery = declared.connect().await;
    publish_many(&hatchery, "pay", 50).await;
    let (provider, runs) = (Provider::default(), Runs::default());
    let workers = [provider.worker(&declared.connect().await, "pay", &runs), provider.worker(&hatchery, "pay", &runs)];
    until_phase("the breaker is open", &hatchery, "pay", is_open).await;
    provider.is_mended();
    assert!(Breakers(hatchery.events()).close("pay").await.unwrap());
    let are_done = async || (provider.succeeded.load(Ordering::SeqCst) == 50).then_some(());
    eventually("all events are done", are_done).await;
    let ids: Vec<String> = runs.seen().into_iter().map(|seen| seen.event.id).collect();
    // A run of the first event that was under way at the opening may have gone well.
    let first = ids.iter().take_while(|id| *id == "pay-0").count();
    assert!(first > 10, "{ids:?}");
    assert_eq!(ids[first..], (1..50).map(|n| format!("pay-{n}")).collect::<Vec<_>>());
    for worker in workers {
        worker.stop().await;
    }
}

/// RabbitMQ before 4.3 counts each return of a delivery, and two of them are a suspicion without the register.
#[tokio::test]
async fn twenty_openings_put_no_event_into_quarantine() {
    let declared = Declared::new(
        "types: { pay: { register: off, prefetch: 200, concurrency: 10, retry: { delays: [100ms], max-attempts: 10000 }, \
         breaker: { errors: 5, window: 5s, cooldown: 1s, probes: 2 } } }",
    )
    .await;
    let hatchery = declared.connect().await;
    publish_many(&hatchery, "pay", 400).await;
    let logs = Logs::capture();
    let (provider, runs) = (Provider::default(), Runs::default());
    let worker = provider.worker(&hatchery, "pay", &runs);
    for opening in 1..=20 {
        let last = || runs.seen().last().map_or(0, |seen| Timestamp::now().duration_since(seen.at).as_millis());
        let has_opened = async || {
            // On a busy machine a run from before the opening may end so late that it succeeds in place of a probe.
            if opening > 1 && provider.left.load(Ordering::SeqCst) == 0 && last() > 500 {
                provider.succeeds(2);
            }
            (logs.with(&["the circuit breaker has opened"]).len() >= opening).then_some(())
        };
        eventually(&format!("opening {opening}"), has_opened).await;
        eventually("what ran has ended", async || (last() > 100).then_some(())).await;
        // The probes go well, and what follows them fails.
        provider.succeeds(if opening < 20 { 2 } else { usize::MAX / 2 });
    }
    let are_done = async || (provider.succeeded.load(Ordering::SeqCst) == 400).then_some(());
    eventually("all events are done", are_done).await;
    let summary = worker.stop().await;
    let of = (summary.done, summary.dead_lettered, summary.put_aside, summary.given_back);
    assert_eq!(of, (400, 0, 0, 0), "{summary:?}");
}

#[tokio::test]
async fn an_apply_forgets_the_breakers_that_have_left_the_file() {
    let declared = Declared::new("types: { pay: { breaker: {} }, mail: {} }").await;
    let (key, state) = (declared.key("breakers"), BreakerState::default().text());
    let mut connection = redis::connect(&declared.redis_url).await.unwrap();
    let mut know = ::redis::cmd("HSET");
    know.arg(&key).arg(&["pay", &state, "mail", &state, "left", &state]).exec_async(&mut connection).await.unwrap();
    let place = Place::new(&declared);
    let mut apply = place.command(&["apply", "--auto-approve"]);
    place.run(apply.env("RABBITMQ_MANAGEMENT_URL", declared.host.management())).await.expect(0);
    let left: Vec<String> = ::redis::cmd("HKEYS").arg(&key).query_async(&mut connection).await.unwrap();
    assert_eq!(left, ["pay"]);
}

/// A text by another hand, and a key of another kind.
#[rstest]
#[case::no_state(&["HSET", "KEY", "pay", "?"])]
#[case::no_hash(&["SET", "KEY", "?"])]
#[tokio::test]
async fn a_damaged_key_in_redis_is_told(#[case] command: &[&str]) {
    let declared = Declared::new("types: { pay: { breaker: {} } }").await;
    let (hatchery, key) = (declared.connect().await, declared.key("breakers"));
    let mut connection = redis::connect(&declared.redis_url).await.unwrap();
    let mut damage = ::redis::cmd(command[0]);
    command[1..].iter().for_each(|word| _ = damage.arg(if *word == "KEY" { key.as_str() } else { word }));
    damage.exec_async(&mut connection).await.unwrap();
    let logs = Logs::capture();
    let worker = Working::start(&hatchery, "pay", |_| Outcome::Done);
    publish_many(&hatchery, "pay", 1).await;
    if command[0] == "HSET" {
        worker.runs.reach(1).await;
        assert_eq!(logs.with(&["is no state of a circuit breaker"]).len(), 1);
    } else {
        let told =
            async || (!logs.with(&["Redis refuses the states of the circuit breakers"]).is_empty()).then_some(());
        eventually("it is told", told).await;
        let _: i64 = ::redis::cmd("DEL").arg(&key).query_async(&mut connection).await.unwrap();
        worker.runs.reach(1).await;
    }
    worker.stop().await;
}

#[cfg(feature = "fail-points")]
mod killed {
    use super::*;
    use crate::support::process::{Place, Process};

    const EVENTS: usize = 20;

    const FILE: &str = "\
notify: { type: on-call }
types:
  on-call: {}
  pay:
    concurrency: 2
    prefetch: 10
    handler-timeout: 5s
    lease: 1s
    retry: { delays: [100ms], max-attempts: 10000 }
    breaker: { errors: 5, window: 1m, cooldown: 1s, probes: 2 }
";

    const SCRIPT: &str = r#"
payload=$(cat)
[ -e mended ] || exit 1
echo "$payload" >> done
"#;

    #[rstest]
    #[case::before_it_is_stored("breaker.opens", false)]
    #[case::stored("breaker.opened", true)]
    #[case::published("breaker.notified", true)]
    #[case::noted("breaker.noted", true)]
    #[case::probes_are_granted("breaker.granted", true)]
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_breaker_is_open_or_not_and_told_once_wherever_its_worker_dies(#[case] point: &str, #[case] opens: bool) {
        let declared = Declared::new(FILE).await;
        let (hatchery, place) = (declared.connect().await, Place::new(&declared));
        let script = place.write("handler.sh", SCRIPT);
        publish_many(&hatchery, "pay", EVENTS).await;
        let mut doomed = place.worker("pay", &script);
        doomed.env("HATCHERY_KILL_AT", point);
        assert!(Process::spawn(doomed).ended().await.killed());
        let left = state(&hatchery, "pay").await;
        assert_eq!((!left.is_closed(), left.opening.is_some()), (opens, opens), "{left:?}");

        let second = Process::spawn(place.worker("pay", &script));
        let told = Working::start(&hatchery, "on-call", |_| Outcome::Done);
        let is_notified = async || {
            let state = state(&hatchery, "pay").await;
            state.opening.is_some_and(|opening| opening.is_notified).then_some(state.era.number)
        };
        let number = eventually("the notice is published", is_notified).await;
        assert!(!opens || number == left.era.number, "it is the same opening");
        place.write("mended", "");
        let done = || place.lines("done").into_iter().collect::<BTreeSet<_>>();
        eventually("all events are done", async || (done().len() == EVENTS).then_some(())).await;
        until_phase("the breaker is closed", &hatchery, "pay", is_closed).await;
        // A copy whose delivery the killed worker had not acknowledged yet is stale, and the second worker drops it.
        let amqp = declared.amqp().await;
        let are_empty = async || amqp.filled(&declared.queues()).await.is_empty().then_some(());
        eventually("nothing is left, in quarantine or as a dead letter", are_empty).await;
        second.stop().await;
        let told = told.stop().await;
        assert_eq!(told.done, 1, "{told:?}");
    }
}
