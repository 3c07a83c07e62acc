//! The data that a release has written is read by this code: messages, keys in Redis, objects on the broker, plan files. And this code
//! writes them in the same form, so that the release can read them after a roll-back.
//!
//! `tests/released/VERSION` has the recording of a release. `HATCHERY_RECORD=VERSION` makes one (docs/making-a-release.md).

mod keys;
mod messages;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use futures_util::TryStreamExt as _;
use hatchery::{EventSelector, Filter, NewEvent, Outcome, Run};
use serde_json::Value;

use self::{keys::Keys, messages::Recorded};
use crate::support::{
    amqp::Amqp,
    broker::{VirtualHost, eventually},
    declared::{Declared, publish_all},
    process::{Ended, Place},
    redis,
    workers::{Runs, Working},
};

const LONG: Duration = Duration::from_hours(3650 * 24);
const TYPES: [&str; 5] = ["plain", "latest", "first", "free", "tick"];

/// The data that a release writes.
struct Recording {
    messages: Vec<Recorded>,
    keys: Keys,
    definitions: Value,
    plan: Value,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/released")
}

/// Returns the folders of the releases that still have to be read, the oldest first.
fn releases() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut releases: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
    releases.sort();
    assert!(!releases.is_empty());
    releases
}

/// A topology of this text in a virtual host of its own, with nothing applied.
fn topology(text: &str) -> Declared {
    let topology = hatchery::file::read(text, "topology.yaml").unwrap_or_else(|error| panic!("{error}"));
    Declared { host: VirtualHost::new(), topology, text: text.to_owned(), redis_url: redis::url().to_owned() }
}

async fn run(place: &Place<'_>, arguments: &[&str]) -> Ended {
    end(place, arguments).await.expect(0)
}

async fn end(place: &Place<'_>, arguments: &[&str]) -> Ended {
    let mut command = place.command(arguments);
    command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management());
    place.run(&mut command).await
}

/// Returns the definitions without the streams, their exchanges and policies, which 0.1.0 does not have.
fn without_streams(definitions: &Value) -> Value {
    let mut definitions = definitions.clone();
    for list in definitions.as_object_mut().unwrap().values_mut().filter_map(Value::as_array_mut) {
        let is_new = |value: &Value| value == "t.control" || value == "t.life-cycle";
        list.retain(|object| !is_new(&object["name"]) && !is_new(&object["source"]));
    }
    definitions
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

impl Recording {
    fn read(folder: &Path) -> Self {
        Self {
            messages: serde_json::from_value(json(&folder.join("messages.json"))).unwrap(),
            keys: serde_json::from_value(json(&folder.join("keys.json"))).unwrap(),
            definitions: json(&folder.join("definitions.json")),
            plan: json(&folder.join("plan.json")),
        }
    }

    fn write(&self, folder: &Path, text: &str) {
        fs::create_dir_all(folder).unwrap();
        fs::write(folder.join("topology.yaml"), text).unwrap();
        let write = |name: &str, value: Value| {
            fs::write(folder.join(name), format!("{}\n", serde_json::to_string_pretty(&value).unwrap())).unwrap();
        };
        write("messages.json", serde_json::to_value(&self.messages).unwrap());
        write("keys.json", serde_json::to_value(&self.keys).unwrap());
        write("definitions.json", self.definitions.clone());
        write("plan.json", self.plan.clone());
    }

    /// Publishes, works and applies with this code, and records what that leaves on the servers.
    async fn make(text: &str) -> Self {
        let declared = topology(text);
        let place = Place::new(&declared);
        run(&place, &["plan", "--out", "plan.json"]).await;
        let plan = json(&place.path("plan.json"));
        run(&place, &["apply", "--auto-approve"]).await;
        let hatchery = declared.connect_patiently().await;
        let event =
            |event_type: &str, id: &str| NewEvent::new(event_type, id.to_owned()).id(id).content_type("text/plain");
        for (event_type, id) in [("latest", "older"), ("latest", "newer"), ("first", "one"), ("first", "two")] {
            publish_all(&hatchery, vec![event(event_type, id).reference("a")]).await;
        }
        for (event_type, id) in [("latest", "dated"), ("first", "each-time")] {
            publish_all(&hatchery, vec![event(event_type, id).reference("b").delay(LONG)]).await;
        }
        for (event_type, id) in [("plain", "done"), ("plain", "failing"), ("plain", "dead"), ("free", "free")] {
            publish_all(&hatchery, vec![event(event_type, id)]).await;
        }
        let amqp = declared.amqp().await;
        let mut messages = vec![take(&amqp, &[declared.processing("plain")]).await];
        messages[0].publish(&amqp, "t.processor").await;
        let working = Working::start(&hatchery, "plain", |event| match event.id.as_str() {
            "failing" => Outcome::Retry { reason: "no answer".to_owned(), after: None },
            "dead" => Outcome::DeadLetter { reason: "never".to_owned() },
            _ => Outcome::Done,
        });
        working.runs.reach(3).await;
        working.stop().await;
        hatchery.close().await;
        let is_timer = |queue: &String| queue.contains(".hatchery.") || queue.contains(".ladder.");
        let timers: Vec<String> = declared.queues().into_iter().filter(is_timer).collect();
        let queue = |name: &str| vec![name.to_owned()];
        for queues in [
            queue("t.retry.plain.1d"),
            queue("t.dead-letter.plain"),
            queue("t.processor.latest"),
            queue("t.processor.latest"),
            queue("t.processor.first"),
            queue("t.processor.first"),
            queue("t.processor.free"),
            timers.clone(),
            timers.clone(),
            timers,
        ] {
            messages.push(take(&amqp, &queues).await);
        }
        // The timers have no order among each other, and replaced events stay before the newer ones.
        messages[8..].sort_by(|one, other| one.id.cmp(&other.id));
        let exported = run(&place, &["export"]).await.stdout.replace(&format!("{:?}", declared.host.name), "\"/\"");
        let definitions = serde_json::from_str(&exported).unwrap();
        Self { messages, keys: keys::read(&declared.redis_url, &declared.key("")).await, definitions, plan }
    }

    fn shape(&self) -> String {
        let messages: Vec<String> = self.messages.iter().map(Recorded::shape).collect();
        let keys = keys::shape(&self.keys);
        // What workers tell `topology status` decides nothing, and no version relies on it.
        let keys: Vec<&str> = keys.lines().filter(|line| !line.starts_with("runs:")).collect();
        format!("{}\n{}\n{:#}", messages.join("\n"), keys.join("\n"), without_streams(&self.definitions))
    }
}

/// Takes a message out of the first of these queues that has one.
async fn take(amqp: &Amqp, queues: &[String]) -> Recorded {
    eventually(&format!("a message in {queues:?}"), async || {
        for queue in queues {
            if let Some(message) = amqp.get(queue).await {
                return Some(Recorded::of(queue, &message));
            }
        }
        None
    })
    .await
}

#[tokio::test]
async fn this_code_writes_what_the_last_release_wrote() {
    let text = fs::read_to_string(folder().join("topology.yaml")).unwrap();
    let recording = Recording::make(&text).await;
    if let Ok(version) = std::env::var("HATCHERY_RECORD") {
        recording.write(&folder().join(version), &text);
    }
    let last = releases().pop().unwrap();
    assert_eq!(fs::read_to_string(last.join("topology.yaml")).unwrap(), text);
    let released = Recording::read(&last);
    let (new, old) = (recording.shape(), released.shape());
    let only = |of: &str, other: &str| -> Vec<String> {
        of.lines().filter(|line| !other.lines().any(|one| one == *line)).map(str::to_owned).collect()
    };
    let (added, removed) = (only(&new, &old), only(&old, &new));
    assert!(new == old, "not as {} has it: {added:#?} in place of {removed:#?}", last.display());
}

#[tokio::test]
async fn this_code_reads_what_every_release_wrote() {
    for folder in releases() {
        let released = Recording::read(&folder);
        let declared = topology(&fs::read_to_string(folder.join("topology.yaml")).unwrap());
        let place = Place::new(&declared);
        // The objects are those that this code makes, but for the streams. The schedules stay armed.
        assert!(declared.host.import(&released.definitions) < 300);
        keys::write(&declared.redis_url, &declared.key(""), &released.keys).await;
        let planned = end(&place, &["plan", "--detailed-exitcode"]).await.expect(3).stdout;
        // The definition of the policy goes on in further lines.
        let heads = planned.lines().filter(|line| !line.starts_with(' '));
        let added: Vec<String> =
            heads.map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect();
        let expected = [
            "+ policy t.life-cycle",
            "+ exchange t.control",
            "+ exchange t.life-cycle",
            "+ queue t.control",
            "+ queue t.life-cycle",
            "Plan: 5 add,",
        ];
        assert_eq!(added, expected);
        let applied: Value =
            serde_json::from_str(&run(&place, &["-o", "json", "apply", "--auto-approve"]).await.stdout).unwrap();
        assert_eq!(applied["schedules"][0]["change"], "unchanged", "{applied}");

        let amqp = declared.amqp().await;
        for message in &released.messages {
            let exchange = match message.queue.strip_prefix("t.").unwrap() {
                queue if queue.starts_with("dead-letter.") => "t.dead-letter",
                queue if queue.starts_with("hatchery.") || queue.starts_with("ladder.") => "t.scheduler",
                // Also the retry, as when its time is over.
                _ => "t.processor",
            };
            message.publish(&amqp, exchange).await;
        }
        let hatchery = declared.connect_patiently().await;
        let mut waiting: Vec<String> = hatchery
            .events()
            .search(&Filter::default())
            .try_collect::<Vec<_>>()
            .await
            .unwrap()
            .into_iter()
            .filter_map(|event| event.id)
            .collect();
        waiting.retain(|id| !id.starts_with("rare#"));
        waiting.sort();
        assert_eq!(waiting, ["dated", "dead", "each-time", "failing", "newer", "two"], "{folder:?}");

        // A person's commands reach its events.
        run(&place, &["dead-letter", "replay", "--yes"]).await;
        let moved = hatchery.events().run_now(&EventSelector::reference("latest", "b")).await.unwrap();
        assert_eq!(moved.len(), 1, "{moved:?}");
        let cancelled = hatchery.events().cancel(&EventSelector::reference("first", "b")).await.unwrap();
        assert_eq!(cancelled.iter().filter(|cancelled| cancelled.waiting).count(), 1, "{cancelled:?}");

        // A finished event and a replaced one do not run; a failed one goes on with its attempts.
        let (runs, worker) = (Runs::default(), hatchery.worker());
        let worker = TYPES.into_iter().fold(worker, |worker, event_type| {
            let runs = runs.clone();
            worker.handle(event_type, move |run: Run| {
                runs.note(&run);
                std::future::ready(Ok::<_, String>(Outcome::Done))
            })
        });
        let stop = hatchery::CancellationToken::new();
        let working = tokio::spawn(worker.run(stop.clone()));
        let ready = declared.queues().into_iter().filter(|queue| queue.contains(".processor.")).collect::<Vec<_>>();
        runs.reach(6).await;
        amqp.expect_empty(&ready).await;
        stop.cancel();
        working.await.unwrap().unwrap();
        let ran: Vec<(String, u32)> =
            runs.seen().into_iter().map(|seen| (seen.event.id.clone(), seen.event.attempts)).collect();
        let of = |id: &str| (id.to_owned(), u32::from(id == "failing"));
        let expected: BTreeSet<_> = ["dated", "dead", "failing", "free", "newer", "one"].map(of).into();
        assert_eq!(ran.iter().cloned().collect::<BTreeSet<_>>(), expected);
        assert_eq!(ran.len(), expected.len(), "{ran:?}");
    }
}

/// A plan file is carried out by the version that wrote it. This one plans the switches as well.
#[tokio::test]
async fn this_code_refuses_the_plan_files_of_every_release_as_stale() {
    for folder in releases() {
        let declared = topology(&fs::read_to_string(folder.join("topology.yaml")).unwrap());
        let place = Place::new(&declared);
        place.write("plan.json", &fs::read_to_string(folder.join("plan.json")).unwrap());
        end(&place, &["apply", "plan.json"]).await.expect(7);
        assert_eq!(declared.host.names("queues"), Vec::<String>::new());
    }
}
