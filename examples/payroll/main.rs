//! A small payroll on hatchery: a program that tells of changes to employees, and one that imports them and writes
//! mails. Each may run as often as there is work for it.
//!
//! ```text
//! topology apply -f examples/payroll/topology.yaml
//! cargo run --example payroll work
//! cargo run --example payroll publish
//! ```
//!
//! `AMQP_URL` and `REDIS_URL` say where RabbitMQ and Redis are.

use std::{
    collections::HashMap,
    env,
    io::{self, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::Context as _;
use hatchery::{CancellationToken, Hatchery, NewEvent, Outcome, Publisher, Run};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tower::{ServiceBuilder, service_fn};

const TOPOLOGY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/payroll/topology.yaml");

/// What the personnel department says about an employee.
#[derive(Debug, Serialize, Deserialize)]
struct Employee {
    name: String,
    salary: u32,
    /// Nobody is paid any more from then on.
    leaves: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
    text: String,
}

/// What all runs of a worker share.
struct Payroll {
    salaries: Mutex<HashMap<String, u32>>,
    publisher: Publisher,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(io::stderr).init();
    let or = |name: &str, default: &str| env::var(name).unwrap_or_else(|_| default.to_owned());
    let amqp = or("AMQP_URL", "amqp://guest:guest@localhost:5672/");
    let redis = or("REDIS_URL", "redis://localhost:6379");
    let hatchery = hatchery::connect(hatchery::read_file(TOPOLOGY)?, &amqp, &redis, "payroll").await?;
    match env::args().nth(1).as_deref() {
        Some("publish") => publish(&hatchery).await?,
        Some("work") => work(&hatchery).await?,
        _ => anyhow::bail!("payroll publish, or payroll work"),
    }
    hatchery.close().await;
    Ok(())
}

/// Three changes of one employee at once, of which the last one counts, and one of a later date.
async fn publish(hatchery: &Hatchery) -> anyhow::Result<()> {
    let employee = |salary| Employee { name: "Ada".to_owned(), salary, leaves: None };
    let changes = [employee(5_000), employee(5_100), employee(5_200)];
    let events = changes.iter().map(|change| Ok(NewEvent::json("hr-import", change)?.reference("1234")));
    let raise = NewEvent::json("hr-import", &employee(6_000))?.reference("1234").delay(Duration::from_secs(3));
    let events = events.chain([Ok(raise)]).collect::<anyhow::Result<Vec<_>>>()?;
    for published in hatchery.publisher().publish_batch(events).await {
        say(&format!("published {}", published?.id))?;
    }
    Ok(())
}

/// Works until Ctrl-C or SIGTERM.
async fn work(hatchery: &Hatchery) -> anyhow::Result<()> {
    let payroll = Arc::new(Payroll { salaries: Mutex::default(), publisher: hatchery.publisher() });
    // Layers of `tower` go around a handler: the mail server takes so many a minute.
    let send = ServiceBuilder::new().buffer(100).rate_limit(60, Duration::from_mins(1)).service(service_fn(send));
    let worker = hatchery
        .worker()
        .handle_json("hr-import", move |employee: Employee, run: Run| {
            let payroll = Arc::clone(&payroll);
            async move { payroll.import(employee, run).await }
        })
        .service("mail", send);

    let stop = CancellationToken::new();
    let stopping = stop.clone();
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::spawn(async move {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
        stopping.cancel();
    });
    let summary = worker.run(stop).await?;
    let newer = summary.stale + summary.replaced;
    say(&format!("done: {}, failed: {}, dropped for newer ones: {newer}", summary.done, summary.retried))
}

impl Payroll {
    /// It may run again for the same event after a crash, so it says what is, and not what changes.
    async fn import(&self, employee: Employee, run: Run) -> anyhow::Result<Outcome> {
        let number = run.event.reference.as_ref().context("an import is about an employee")?.to_string();
        if employee.leaves.is_some_and(|leaves| leaves <= Timestamp::now()) {
            return Ok(Outcome::Discard { reason: format!("{} has left", employee.name) });
        }
        say(&format!("import {number}: {} earns {}", employee.name, employee.salary))?;
        let mail = Mail { to: employee.name, text: format!("You earn {} from now on.", employee.salary) };
        // An id made from the cause: if this runs again, the mail is the same one and not a second one.
        let event = NewEvent::json("mail", &mail)?.id(format!("salary-{}", run.event.id));
        self.publisher.publish(event).await?;
        self.salaries.lock().expect("no panic").insert(number, employee.salary);
        // The employee's last day comes again by itself.
        Ok(match employee.leaves {
            Some(at) => Outcome::Requeue { at, reason: format!("end_date={at}") },
            None => Outcome::Done,
        })
    }
}

async fn send(run: Run) -> anyhow::Result<Outcome> {
    let Ok(Mail { to, text }) = run.event.json() else {
        return Ok(Outcome::DeadLetter { reason: "not a mail".to_owned() });
    };
    say(&format!("mail to {to}: {text}"))?;
    Ok(Outcome::Done)
}

fn say(line: &str) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{line}")?)
}
