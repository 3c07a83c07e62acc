//! Two topologies of the same name share a Redis, in two virtual hosts or on two brokers. Neither touches the other's
//! events.

use std::{collections::BTreeSet, env};

use futures_util::{StreamExt as _, TryStreamExt as _};
use hatchery::{Filter, Hatchery, NewEvent, Outcome, RegisterError, WorkError};

use crate::support::{
    broker::{Another, VirtualHost, eventually},
    declared::{Declared, publish_all},
    redis,
    workers::Working,
};

const TYPES: &str = "types:\n  mail: {}\n  import: { coalesce: { immediate: latest } }\n  \
                     dated: { coalesce: { delayed: each-time }, keep-payload: 4KiB }";

/// Returns how many events of each type are published on each side.
fn count() -> u32 {
    env::var("HATCHERY_SIDE_BY_SIDE").map_or(200, |count| count.parse().unwrap())
}

/// Returns the events of a type. Their ids and references are the same on both sides; the payload names the side.
fn events(event_type: &'static str, side: &str) -> Vec<NewEvent> {
    let event = |n: u32| {
        let id = n.to_string();
        let event = NewEvent::new(event_type, format!("{side} {n}")).reference(&id).id(id);
        if event_type == "dated" { event.at(hatchery::parse_time("2099-01-01T00:00:00Z").unwrap()) } else { event }
    };
    (0..count()).map(event).collect()
}

struct Side {
    name: &'static str,
    hatchery: Hatchery,
}

impl Side {
    async fn new(name: &'static str, declared: &Declared) -> Self {
        Self { name, hatchery: declared.connect().await }
    }

    async fn publish(&self, types: &[&'static str]) {
        for event_type in types {
            publish_all(&self.hatchery, events(event_type, self.name)).await;
        }
    }

    /// Returns how many dated events wait.
    async fn waiting(&self) -> usize {
        let filter = Filter::default().event_type("dated");
        self.hatchery.events().search(&filter).try_fold(0, async |count, _| Ok(count + 1)).await.unwrap()
    }

    async fn cancel_dated(&self) {
        let filter = Filter::default().event_type("dated");
        let cancelled: Vec<_> = self.hatchery.events().cancel_all(&filter).try_collect().await.unwrap();
        assert_eq!(cancelled.iter().filter(|(_, slot)| slot.waiting).count(), count() as usize, "{}", self.name);
    }

    async fn run_dated_now(&self) {
        let filter = Filter::default().event_type("dated");
        let moved = self.hatchery.events().run_now_all(&filter).filter(|moved| std::future::ready(moved.is_ok()));
        assert_eq!(moved.count().await, count() as usize, "{}", self.name);
    }

    /// Runs all due events, and expects exactly these: each event of the types once, and the import `besides`.
    async fn expect_runs(&self, declared: &Declared, types: &[&'static str], besides: Option<&str>) {
        let (worker, imports) = Working::start_both(&self.hatchery, ["mail", "import"]);
        let dated = Working::start(&self.hatchery, "dated", |_| Outcome::Done);
        let runs = [("mail", &worker.runs), ("import", &imports), ("dated", &dated.runs)];
        // Dropped events leave their queue without a run, so the queues are awaited too.
        let queues: Vec<String> = ["mail", "import", "dated"].map(|name| declared.processing(name)).into();
        let expected: BTreeSet<(&str, String)> = (types.iter())
            .flat_map(|event_type| (0..count()).map(move |n| (*event_type, format!("{} {n}", self.name))))
            .chain(besides.map(|payload| ("import", payload.to_owned())))
            .collect();
        let all = || runs.iter().map(|(_, runs)| runs.count()).sum::<usize>() >= expected.len();
        eventually("all expected events have run", async || all().then_some(())).await;
        declared.amqp().await.expect_empty(&queues).await;
        let ran: Vec<_> = runs
            .iter()
            .flat_map(|(event_type, runs)| runs.payloads().into_iter().map(move |payload| (*event_type, payload)))
            .collect();
        worker.stop().await;
        dated.stop().await;
        assert_eq!(ran.len(), expected.len(), "{} ran another number of events than expected", self.name);
        assert_eq!(ran.into_iter().collect::<BTreeSet<_>>(), expected, "{} ran other events than its own", self.name);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "handles 200 events of each type in two virtual hosts; scripts/test --all runs it"]
async fn topologies_of_one_name_in_two_virtual_hosts_lose_no_event_to_each_other() {
    let first = Declared::new(TYPES).await;
    let second = first.again(VirtualHost::new(), redis::url()).await;
    let (one, other) = (Side::new("one", &first).await, Side::new("other", &second).await);
    one.publish(&["mail", "import", "dated"]).await;
    other.publish(&["mail", "import", "dated"]).await;

    one.cancel_dated().await;
    assert_eq!((one.waiting().await, other.waiting().await), (0, count() as usize));
    one.expect_runs(&first, &["mail", "import"], None).await;
    other.run_dated_now().await;
    other.expect_runs(&second, &["mail", "import", "dated"], None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a second broker and handles hundreds of events on each; scripts/test --all runs it"]
async fn topologies_of_one_name_on_two_brokers_lose_no_event_to_each_other() {
    let first = Declared::new(TYPES).await;
    first.own_register().await;
    let one = Side::new("one", &first).await;
    one.publish(&["mail", "import", "dated"]).await;

    let another = Another::like(&first.host);
    another.set_name("another");
    let refused = first.again(another.into_host(&first.host), redis::url()).await;
    let other = Side::new("other", &refused).await;
    // The other side has an event with this id and reference, which is finished, replaced or cancelled there.
    let unversioned = NewEvent::new("import", "before").reference("0").id("0");
    assert!(other.hatchery.publisher().publish(unversioned).await.unwrap().unversioned);
    let worker = Working::start(&other.hatchery, "import", |_| Outcome::Done);
    let error = worker.ended().await.unwrap_err();
    assert!(matches!(error, WorkError::Register(RegisterError::InUse { .. })), "{error:?}");
    other.hatchery.close().await;

    let second = refused.with_another_prefix();
    let other = Side::new("other", &second).await;
    other.publish(&["mail", "import", "dated"]).await;
    one.cancel_dated().await;
    assert_eq!((one.waiting().await, other.waiting().await), (0, count() as usize));
    one.expect_runs(&first, &["mail", "import"], None).await;
    other.run_dated_now().await;
    other.expect_runs(&second, &["mail", "import", "dated"], Some("before")).await;
}
