//! A small payroll on hatchery: one program publishes changes of employees, and another one imports them and sends
//! mails. Several processes of each may run at a time.
//!
//! ```text
//! topology apply -f examples/payroll/topology.yaml
//! cargo run --example payroll work
//! cargo run --example payroll publish
//! ```
//!
//! `AMQP_URL` and `REDIS_URL` are the URLs of RabbitMQ and Redis.

use std::{
    collections::HashMap,
    env,
    io::{self, Write as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use hatchery::{EventKind, Hatchery, NewEvent, Outcome, Publisher, Run};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tower::{ServiceBuilder, service_fn};

const TOPOLOGY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/payroll/topology.yaml");

/// The data of an employee, as the personnel department sends it.
#[derive(Debug, Serialize, Deserialize)]
struct Employee {
    name: String,
    salary: u32,
    /// The employee's last day; no salary is paid after it.
    leaves: Option<Timestamp>,
}

#[derive(Serialize, Deserialize)]
struct Mail {
    to: String,
    text: String,
}

struct HrImport;

impl EventKind for HrImport {
    const TYPE: &'static str = "hr-import";
    type Payload = Employee;
}

struct SendMail;

impl EventKind for SendMail {
    const TYPE: &'static str = "mail";
    type Payload = Mail;
}

/// The state that all runs of a worker share.
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
    let builder = Hatchery::builder(hatchery::read_file(TOPOLOGY)?).name("payroll");
    // A change without a version replaces no other, so this waits for Redis longer than the default.
    let builder = builder.version_wait(Duration::from_secs(5));
    let hatchery = builder.amqp_url(amqp).redis_url(redis).connect().await?;
    match env::args().nth(1).as_deref() {
        Some("publish") => publish(&hatchery).await?,
        Some("work") => work(&hatchery).await?,
        _ => anyhow::bail!("payroll publish, or payroll work"),
    }
    hatchery.close().await;
    Ok(())
}

/// Publishes three changes of one employee at once, of which only the last one is imported, and a change for a later
/// date.
async fn publish(hatchery: &Hatchery) -> anyhow::Result<()> {
    let employee = |salary| Employee { name: "Ada".to_owned(), salary, leaves: None };
    let changes = [employee(5_000), employee(5_100), employee(5_200)];
    let events = changes.iter().map(|change| Ok(NewEvent::of(HrImport, change)?.reference("1234")));
    let raise = NewEvent::of(HrImport, &employee(6_000))?.reference("1234").delay(Duration::from_secs(3));
    let events = events.chain([Ok(raise)]).collect::<anyhow::Result<Vec<_>>>()?;
    for published in hatchery.publisher().publish_batch(events).await {
        say(&format!("published {}", published?.id))?;
    }
    Ok(())
}

/// Works until Ctrl-C or SIGTERM.
async fn work(hatchery: &Hatchery) -> anyhow::Result<()> {
    // Layers of `tower` wrap a handler: the mail server accepts 60 mails a minute.
    let send = ServiceBuilder::new().buffer(100).rate_limit(60, Duration::from_mins(1)).service(service_fn(send));
    let payroll = Arc::new(Payroll { salaries: Mutex::default(), publisher: hatchery.publisher() });
    let worker = hatchery.worker().state(payroll).on(HrImport, Payroll::import).service("mail", send);
    let summary = worker.run_until(hatchery::shutdown_signal()?).await?;
    let newer = summary.stale + summary.replaced;
    say(&format!("done: {}, failed: {}, replaced by newer ones: {newer}", summary.done, summary.retried))?;
    Ok(())
}

impl Payroll {
    /// Imports an employee. After a crash it may run again for the same event, so an event holds the employee's whole
    /// state and not a difference.
    async fn import(self: Arc<Self>, employee: Employee, run: Run) -> Result<Outcome, Outcome> {
        let Some(reference) = &run.event.reference else {
            return Err(Outcome::dead_letter("an import needs an employee as its reference"));
        };
        if employee.leaves.is_some_and(|leaves| leaves <= Timestamp::now()) {
            return Ok(Outcome::discard(format!("{} has left", employee.name)));
        }
        say(&format!("import {reference}: {} earns {}", employee.name, employee.salary))?;
        let mail = Mail { to: employee.name, text: format!("You earn {} from now on.", employee.salary) };
        // The mail's id is made from the import's: if this runs again, no second mail is sent.
        let event = NewEvent::of(SendMail, &mail)?.id(format!("salary-{}", run.event.id));
        self.publisher.publish(event).await?;
        self.salaries.lock().expect("no panic").insert(reference.to_string(), employee.salary);
        // The event comes again on the employee's last day.
        Ok(match employee.leaves {
            Some(at) => Outcome::requeue(at, format!("end_date={at}")),
            None => Outcome::Done,
        })
    }
}

async fn send(run: Run) -> io::Result<Outcome> {
    let Ok(Mail { to, text }) = run.event.json() else {
        return Ok(Outcome::dead_letter("not a mail"));
    };
    say(&format!("mail to {to}: {text}"))?;
    Ok(Outcome::Done)
}

fn say(line: &str) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
