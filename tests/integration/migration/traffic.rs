//! Publishers and workers that go on while the topology changes, and the record of their events.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome, Run};
use tokio::task::JoinHandle;

use super::Random;
use crate::support::{
    amqp::Amqp,
    broker::{FORWARDED, eventually},
    cli::Bench,
    redis,
};

/// The events that were confirmed to publishers, and where they ended.
#[derive(Clone, Default)]
pub(super) struct Ledger(Arc<Mutex<Account>>);

#[derive(Default)]
struct Account {
    confirmed: BTreeSet<String>,
    /// How often each event was handled to its end.
    handled: BTreeMap<String, usize>,
    /// Events that were found in a queue in which a person can see them.
    waiting: BTreeSet<String>,
}

impl Ledger {
    fn lost(&self) -> Vec<String> {
        let account = self.0.lock().unwrap();
        let found = |id: &&String| !account.handled.contains_key(*id) && !account.waiting.contains(*id);
        account.confirmed.iter().filter(found).cloned().collect()
    }

    pub(super) fn confirmed(&self) -> usize {
        self.0.lock().unwrap().confirmed.len()
    }

    pub(super) fn summary(&self) -> String {
        let account = self.0.lock().unwrap();
        let twice = account.handled.values().filter(|times| **times > 1).count();
        format!(
            "{} confirmed, {} handled ({twice} more than once), {} waiting where they can be seen",
            account.confirmed.len(),
            account.handled.len(),
            account.waiting.difference(&account.handled.keys().cloned().collect()).count(),
        )
    }

    /// Waits until every confirmed event was handled or is in a queue for which `resting` holds.
    pub(super) async fn settle(&self, bench: &Bench, resting: impl Fn(&str) -> bool) {
        let amqp = Amqp::connect(&bench.host.amqp()).await;
        // Shortly before `eventually` gives up, because this knows which events are missing, and what the queues hold.
        let deadline = Instant::now() + FORWARDED * 9 / 10;
        eventually(&format!("every confirmed event is found; {}", self.summary()), async || {
            for queue in bench.host.names("queues").into_iter().filter(|queue| resting(queue)) {
                while let Some(message) = amqp.get(&queue).await {
                    let id = message.properties.message_id().as_ref().map(ToString::to_string).unwrap_or_default();
                    self.0.lock().unwrap().waiting.insert(id);
                }
            }
            let lost = self.lost();
            if !lost.is_empty() && Instant::now() > deadline {
                let filled: Vec<String> = bench
                    .host
                    .list("queues")
                    .iter()
                    .filter(|queue| queue["messages"] != 0)
                    .map(ToString::to_string)
                    .collect();
                panic!(
                    "{} events are lost, such as {:?}; {}\n{}",
                    lost.len(),
                    lost.first(),
                    self.summary(),
                    filled.join("\n")
                );
            }
            if !lost.is_empty() {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            lost.is_empty().then_some(())
        })
        .await;
    }
}

/// A publisher and a worker with one version of the file, as in a pod.
pub(super) struct Pod {
    stop: [CancellationToken; 2],
    tasks: [JoinHandle<()>; 2],
}

impl Pod {
    /// Starts both. They try again until the objects that they need exist.
    pub(super) async fn start(name: &str, bench: &Bench, text: &str, ledger: &Ledger) -> Self {
        let topology = hatchery::file::read(text, "topology.yaml").unwrap_or_else(|error| panic!("{error:?}"));
        let stop = [CancellationToken::new(), CancellationToken::new()];
        let amqp = bench.host.amqp();
        let builder = Hatchery::builder(topology.clone()).amqp_url(&amqp).redis_url(redis::url()).name(name);
        let connect = async || builder.clone().connect().await.unwrap();
        let (publishing, working) = (connect().await, connect().await);
        let publish = publish(name.to_owned(), publishing, ledger.clone(), stop[0].clone());
        let work = work(working, ledger.clone(), stop[1].clone());
        Self { tasks: [tokio::spawn(publish), tokio::spawn(work)], stop }
    }

    /// Stops publishing. The worker goes on.
    pub(super) fn silence(&self) {
        self.stop[0].cancel();
    }

    pub(super) async fn stop(self) {
        for stop in self.stop {
            stop.cancel();
        }
        for task in self.tasks {
            task.await.unwrap();
        }
    }
}

async fn publish(name: String, hatchery: Hatchery, ledger: Ledger, stop: CancellationToken) {
    let topology = hatchery.topology();
    let publisher = hatchery.publisher();
    let types: Vec<String> = topology.types.keys().map(ToString::to_string).collect();
    let timers: Vec<Duration> = topology.hatcheries.iter().map(|ttl| ttl.as_duration()).collect();
    let mut random = Random::new(&name);
    let mut number = 0_u64;
    while !stop.is_cancelled() {
        number += 1;
        let id = format!("{name}-{number}");
        let event_type = &types[usize::try_from(number).unwrap() % types.len()];
        let event = NewEvent::new(event_type, id.clone()).id(&id).reference(format!("{}", random.below(1000)));
        let event = match random.below(4) {
            0 | 1 => event,
            2 => event.delay(timers[usize::try_from(random.below(timers.len() as u64)).unwrap()]),
            _ => event.delay(Duration::from_millis(random.below(1500))),
        };
        // Only an event that is confirmed has to arrive.
        if publisher.publish(event).await.is_ok() {
            ledger.0.lock().unwrap().confirmed.insert(id);
        }
        // Limits the rate; no condition is waited for.
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    hatchery.close().await;
}

async fn work(hatchery: Hatchery, ledger: Ledger, stop: CancellationToken) {
    while !stop.is_cancelled() {
        let mut worker = hatchery.worker().drain_timeout(Duration::from_secs(5));
        for event_type in hatchery.topology().types.keys() {
            let ledger = ledger.clone();
            worker = worker.handle(event_type.as_str(), move |run: Run| {
                let outcome = answer(&run);
                if outcome == Outcome::Done {
                    *ledger.0.lock().unwrap().handled.entry(run.event.id.clone()).or_default() += 1;
                }
                std::future::ready(Ok::<_, String>(outcome))
            });
        }
        // A worker fails to start as long as an object is missing.
        if worker.run(stop.clone()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    hatchery.close().await;
}

/// One event in five fails at first, and one in fifty is a dead letter.
fn answer(run: &Run) -> Outcome {
    let number = run.event.id.rsplit('-').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or_default();
    match run.event.attempts {
        0 if number % 50 == 7 => Outcome::DeadLetter { reason: "one in fifty".into() },
        0 if number.is_multiple_of(5) => Outcome::Retry { reason: "one in five".into(), after: None },
        _ => Outcome::Done,
    }
}
