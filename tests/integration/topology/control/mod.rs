//! The stream with the switches is gone, empty, away, or not for a worker's user. `docs/pause-protocol.md` says what workers do then.

mod broken;
mod cluster;

use hatchery::{Hatchery, NewEvent, Outcome, Readiness, Run};
use serde_json::Value;
use tokio::process::Command;

use crate::support::{
    amqp::Amqp,
    broker::{Rights, User, eventually, text},
    declared::{Declared, publish_all},
    process::{Ended, Place},
    workers::{Runs, Working},
};

const FILE: &str = "types: { mail: {}, other: {} }";

/// A person on call, who runs `topology`.
struct OnCall<'a> {
    place: Place<'a>,
    user: User<'a>,
}

impl<'a> OnCall<'a> {
    fn new(declared: &'a Declared) -> Self {
        let all = || ".*".to_owned();
        let rights = Rights { tag: "policymaker,monitoring".to_owned(), configure: all(), write: all(), read: all() };
        Self { place: Place::new(declared), user: declared.host.user("oncall", &rights) }
    }

    fn command(&self, amqp: &str, arguments: &[&str]) -> Command {
        let mut command = self.place.command(arguments);
        command.env("RABBITMQ_MANAGEMENT_URL", self.user.management()).env("AMQP_URL", amqp);
        command
    }

    /// Runs `topology` over these nodes.
    async fn run_on(&self, amqp: &str, arguments: &[&str]) -> Ended {
        self.place.run(&mut self.command(amqp, arguments)).await
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        self.run_on(&self.user.amqp(), arguments).await
    }

    /// Runs `topology`, and expects it to succeed.
    async fn does(&self, arguments: &[&str]) -> Ended {
        self.run(arguments).await.expect(0)
    }

    /// Returns the kinds of what `topology status` finds.
    async fn finds(&self) -> Vec<String> {
        let answer: Value = serde_json::from_str(&self.does(&["status", "-o", "json"]).await.stdout).unwrap();
        answer["findings"].as_array().unwrap().iter().map(|one| text(one, "kind").to_owned()).collect()
    }
}

/// Workers on `mail` and `other`, and what all of them together have run.
struct Fleet {
    mail: Runs,
    other: Runs,
    workers: Vec<(Working, Readiness)>,
    publisher: Hatchery,
    published: usize,
}

impl Fleet {
    fn new(publisher: Hatchery) -> Self {
        Self { mail: Runs::default(), other: Runs::default(), workers: Vec::new(), publisher, published: 0 }
    }

    /// Starts a worker.
    fn start(&mut self, hatchery: &Hatchery) -> Readiness {
        let types = [("mail", self.mail.clone()), ("other", self.other.clone())];
        let worker = types.into_iter().fold(hatchery.worker(), |worker, (event_type, runs)| {
            worker.handle(event_type, move |run: Run| {
                runs.note(&run);
                std::future::ready(Ok::<_, String>(Outcome::Done))
            })
        });
        let readiness = worker.readiness();
        self.workers.push((Working::run(worker, Runs::default()), readiness.clone()));
        readiness
    }

    /// Publishes an event of each type.
    async fn publish(&mut self) {
        let event = |event_type| NewEvent::new(event_type, self.published.to_string()).reference("1234");
        publish_all(&self.publisher, ["mail", "other"].map(event).into()).await;
        self.published += 1;
    }

    /// Publishes an event of each type. That of `other` runs, and `mail` never does.
    async fn go_on(&mut self) {
        self.publish().await;
        self.other.reach(self.published).await;
        assert_eq!(self.mail.count(), 0, "`mail` is paused");
    }

    /// Sees that each event runs, and that none is left.
    async fn resumed(self, amqp: &Amqp, declared: &Declared) {
        // `other` may have been resumed a moment ago too.
        let all = |runs: &Runs| distinct(runs) == self.published;
        eventually("all events run", async || (all(&self.mail) && all(&self.other)).then_some(())).await;
        amqp.expect_empty(&declared.queues()).await;
        for (worker, _) in self.workers {
            worker.stop().await;
        }
    }
}

/// Returns how many different events have run.
fn distinct(runs: &Runs) -> usize {
    let mut payloads = runs.payloads();
    payloads.sort();
    payloads.dedup();
    payloads.len()
}
