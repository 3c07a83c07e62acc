//! `topology events cancel`.

use std::{collections::HashSet, time::Duration};

use hatchery::{Cancelled, EventInfo, Events, internals::ttl::say, parse_duration};
use hatchery_admin::{
    batch::{Change, ChangedEvents},
    text::count,
};
use tokio::time::{Instant, sleep};

use super::{
    answer::{self, Became},
    bulk::{self, Act},
    connection::with_events,
    filters::{Choice, Chosen, carried_out, registered},
};
use crate::{
    args::Common,
    exit::{Ended, Exit},
    load,
    output::Output,
    server::Server,
    text::{cut, sentence},
};

/// Cancel waiting events: those of a reference, one by its id, or all that a filter finds
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology events cancel --type hr-import --reference 1234
  topology events cancel --type hr-import --reference 1234 \\
    --at 2026-06-01T09:00:00Z
  topology events cancel --type hr-import --reference 1234 --immediate
  topology events cancel --type mail --id ID --wait
  topology events cancel --type mail --reason newsletter         a dry run
  topology events cancel --type mail --reason newsletter --yes

Events that --reference or --id names are cancelled at once. Events that any
other filter finds are only shown and counted, unless --yes is given. The
messages stay in RabbitMQ until they are due, and are dropped then.

A run that has begun is reported. Its worker is told when it renews the lease,
after half of `lease` at the latest, and ends the run: a program gets SIGTERM,
and SIGKILL 5 s later; a request is dropped. Its outcome does not count, and it
is not tried again. With --wait the command returns once such runs have ended.

An unknown id is remembered: its event does not run if it competes with no other
event, or was published while Redis was away. --immediate, and --at with
`delayed: each-time`, are remembered for events that Redis has forgotten. An
event that was published while Redis was away is reached only by its id.

Exit 0: Redis knows no matching event that still waits, even if none waited
before. 1: the event is known by another name, or the broker reports that the
topology was never applied; nothing is cancelled. 5: with --wait, a cancelled
run has not ended.")]
pub(crate) struct Args {
    #[command(flatten)]
    chosen: Chosen,

    /// Wait until the cancelled runs have ended, at most this long
    #[arg(long, value_name = "LIMIT", value_parser = parse_duration)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "1m")]
    wait: Option<Duration>,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        Server::refuse(&[("--wait", args.wait.is_some())])?;
        let cancelled = args.chosen.by_server(&server, Act::Cancel.verb(), None).await?;
        tell(cancelled, &args.chosen, output)?;
        return Ok(Exit::Done);
    }
    let topology = load::topology(common, output)?;
    let choice = args.chosen.choice(&registered(&topology))?;
    with_events(common, topology, output, async |events| match choice {
        Choice::Found(filter) if !args.chosen.yes => bulk::dry_run(events, &filter, Act::Cancel, output).await,
        choice => cancel(events, choice, args, output).await,
    })
    .await
}

async fn cancel(events: &Events, choice: Choice, Args { chosen, wait }: &Args, output: Output) -> anyhow::Result<Exit> {
    let running = match choice {
        Choice::Named(named) => {
            // Before the cancel, which takes an event out of the index.
            let known = if wait.is_some() { events.show(&named.which).await? } else { Vec::new() };
            let cancelled = carried_out(Change::Cancel(named), events).await?;
            let running = cancelled.events.iter().filter(|slot| slot.event.running);
            let running: HashSet<_> = running.filter_map(|slot| slot.event.slot.clone()).collect();
            tell(cancelled, chosen, output)?;
            known.into_iter().filter(|event| running.contains(&event.slot.to_string())).collect()
        }
        Choice::Found(filter) => {
            let (mut sum, mut running) = (Sum::default(), Vec::new());
            let cancelling = events.cancel_all(&filter);
            let account = |event: &EventInfo, slot: &Cancelled| {
                if slot.running {
                    running.push(event.clone());
                }
                sum.add(slot)
            };
            let acted = bulk::act(cancelling, &events.shared.topology, Act::Cancel, output, account).await;
            // If nothing was done, the error says everything.
            if output.is_text() && (acted.is_ok() || sum.any()) {
                sum.report(output)?;
            }
            acted?;
            running
        }
    };
    match wait {
        Some(limit) if !running.is_empty() => until_ended(events, running, *limit, output).await,
        _ => Ok(Exit::Done),
    }
}

/// How often the register is asked whether the runs have ended.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Waits until the cancelled runs of these events have ended.
async fn until_ended(
    events: &Events,
    running: Vec<EventInfo>,
    limit: Duration,
    output: Output,
) -> anyhow::Result<Exit> {
    let (mut left, since, spinner) = (running, Instant::now(), output.spinner());
    let ended = loop {
        left = events.cancelled_runs(left).await?;
        if left.is_empty() {
            break true;
        }
        spinner.set_message(format!("{} still running", count(left.len(), "event")));
        if since.elapsed() >= limit {
            break false;
        }
        sleep(LOOK_AGAIN).await;
    };
    spinner.finish_and_clear();
    if !ended {
        let ids: Vec<String> = left.iter().filter_map(|event| event.id.clone()).collect();
        let message = format!(
            "cancelled, and after {} {} still running{}; its worker does not reach Redis, waits for the broker, or is of a version that ends no run",
            say(limit),
            match left.len() {
                1 => "1 event is".to_owned(),
                n => format!("{n} events are"),
            },
            listed(&ids),
        );
        return Err(Ended::new(Exit::Partly, message).into());
    }
    if output.is_text() {
        output.print("What was running has ended.\n").map_err(Ended::untold)?;
    }
    Ok(Exit::Done)
}

/// Returns the first of these ids, after a colon.
fn listed(ids: &[String]) -> String {
    let shown: Vec<String> = ids.iter().take(SHOWN).map(|id| cut(id, usize::MAX)).collect();
    match ids.len() - shown.len() {
        0 if shown.is_empty() => String::new(),
        0 => format!(": {}", shown.join(", ")),
        more => format!(": {} and {more} more", shown.join(", ")),
    }
}

/// The note for a name that matched no event in Redis.
const BY_ID_ALONE: &str = "An event that was published while Redis was away is reached only by its id.";

/// Tells what became of the events of a reference, or of one event.
fn tell(cancelled: ChangedEvents, chosen: &Chosen, output: Output) -> anyhow::Result<()> {
    let told = if output.is_text() {
        let (sum, name) = (Sum::of_named(&cancelled, chosen.filters.id.is_some()), chosen.filters.name());
        let remembered = cancelled.results.contains_key("remembered").then(|| chosen.remembered());
        output.print(&sum.text_of(&name, remembered, Output::columns()))
    } else {
        answer::named(Act::Cancel.verb(), cancelled, output)
    };
    told.map_err(Ended::untold)
}

/// How many ids the screen has.
const SHOWN: usize = 5;

fn ends(running: u64) -> String {
    match running {
        1 => "One is running; its worker ends it at the next renewal of the lease.".to_owned(),
        n => format!("{n} are running; their workers end them at the next renewal of the lease."),
    }
}

/// The number of events by what a cancel has found.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) cancelled: u64,
    pub(super) running: u64,
    pub(super) nothing: u64,
    /// The ids of the events of a reference. By its id Redis tells what became of an event that competes with no other.
    pub(super) ids: Vec<String>,
}

impl Sum {
    /// Returns the sum for events that were named. The id that names one is not repeated.
    fn of_named(cancelled: &ChangedEvents, is_by_id: bool) -> Self {
        let ids = if is_by_id { Vec::new() } else { cancelled.ids.clone() };
        let mut sum = Self { ids, ..Self::default() };
        for slot in &cancelled.events {
            sum.cancelled += u64::from(slot.result.as_deref() == Some("cancelled"));
            sum.running += u64::from(slot.event.running);
        }
        sum
    }

    fn add(&mut self, slot: &Cancelled) -> Became {
        self.cancelled += u64::from(slot.waiting);
        self.running += u64::from(slot.running);
        self.nothing += u64::from(!slot.waiting && !slot.running);
        Became { result: Some(answer::result_of_cancel(slot)), ..Became::default() }
    }

    const fn any(&self) -> bool {
        self.cancelled + self.running + self.nothing > 0
    }

    fn report(&self, output: Output) -> anyhow::Result<()> {
        output.print(&self.text(Output::columns())).map_err(Ended::untold)
    }

    /// Returns the screen for the events of a filter.
    pub(super) fn text(&self, columns: usize) -> String {
        let Self { cancelled, running, nothing, ids: _ } = self;
        let mut text = format!("Cancelled {}.", count(*cancelled, "event"));
        if *running > 0 {
            text = format!("{text} {}", ends(*running));
        }
        if *nothing > 0 {
            text = format!("{text} {nothing} came to their end meanwhile.");
        }
        sentence(&text, columns)
    }

    /// Returns the screen for the events of this name.
    pub(super) fn text_of(&self, name: &str, remembered: Option<&str>, columns: usize) -> String {
        let told = match (self.cancelled, self.running) {
            (0, 0) => format!("Nothing of {name} is known to wait. {}", remembered.unwrap_or(BY_ID_ALONE)),
            (0, running) => format!("Nothing of {name} is known to wait. {}", ends(running)),
            (cancelled, 0) => format!("Cancelled {} of {name}{}.", count(cancelled, "event"), listed(&self.ids)),
            (cancelled, running) => {
                format!("Cancelled {} of {name}{}. {}", count(cancelled, "event"), listed(&self.ids), ends(running))
            }
        };
        sentence(&told.replace("1 event of the event ", "the event "), columns)
    }
}
