//! `topology events cancel`.

use hatchery::{Cancelled, EventSelector, Events};

use super::{
    answer::{self, Answers, Became},
    bulk::{self, Act},
    connection::with_events,
    filters::{Choice, Chosen},
    table,
};
use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
    load,
    output::Output,
    text::sentence,
};

/// Cancel waiting events: those of a reference, one by its id, or all that a filter finds
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology events cancel --type hr-import --reference 1234
  topology events cancel --type hr-import --reference 1234 \\
    --at 2026-06-01T09:00:00Z
  topology events cancel --type hr-import --reference 1234 --immediate
  topology events cancel --type mail --id ID
  topology events cancel --type mail --reason newsletter         a dry run
  topology events cancel --type mail --reason newsletter --yes

Events that --reference or --id names are cancelled at once. Events that any
other filter finds are only shown and counted, unless --yes is given. The
messages stay in RabbitMQ until they are due, and are dropped then.

A run that has begun goes on and is reported; it is not tried again. An unknown
id is remembered: its event does not run if it competes with no other event, or
was published while Redis was away. --immediate, and --at with `delayed:
each-time`, are remembered for events that Redis has forgotten. An event that
was published while Redis was away is reached only by its id.

Exit 0: Redis knows no matching event that still waits, even if none waited
before. 1: the event is known by another name, or the broker reports that the
topology was never applied; nothing is cancelled.")]
pub(super) struct Args {
    #[command(flatten)]
    chosen: Chosen,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    let choice = args.chosen.choice(&topology)?;
    let event_type = args.chosen.filters.event_type(&topology);
    with_events(common, topology, output, async |events| match choice {
        Choice::Found(filter) if !args.chosen.yes => bulk::dry_run(events, &filter, Act::Cancel, output).await,
        choice => cancel(events, choice, event_type, &args.chosen, output).await,
    })
    .await
}

async fn cancel(
    events: &Events,
    choice: Choice,
    event_type: Result<String, UsageError>,
    chosen: &Chosen,
    output: Output,
) -> anyhow::Result<Exit> {
    match choice {
        Choice::Named(which) => named(events, &which, &event_type?, chosen, output).await,
        Choice::Found(filter) => {
            let mut sum = Sum::default();
            let cancelling = events.cancel_all(&filter);
            let acted = bulk::act(cancelling, Act::Cancel, output, |slot| sum.add(slot)).await;
            // If nothing was done, the error says everything.
            if output.is_text() && (acted.is_ok() || sum.any()) {
                sum.report(output)?;
            }
            acted.map(|()| Exit::Done)
        }
    }
}

/// The note for a name that matched no event in Redis.
const BY_ID_ALONE: &str = "An event that was published while Redis was away is reached only by its id.";

async fn named(
    events: &Events,
    which: &EventSelector,
    event_type: &str,
    chosen: &Chosen,
    output: Output,
) -> anyhow::Result<Exit> {
    let cancelled = events.cancel(which).await?;
    let (mut sum, mut answers) = (Sum::default(), Answers::new(Act::Cancel.verb(), false, usize::MAX, output));
    let view =
        |slot| answer::cancelled(event_type, chosen.filters.reference.as_deref(), chosen.filters.id.as_deref(), slot);
    for slot in &cancelled {
        let became = sum.add(slot);
        if slot.waiting || slot.running {
            answers.add(view(Some(slot)), became);
        }
    }
    let name = chosen.filters.name();
    let remembered = chosen.remembered(&cancelled);
    if !output.is_text() {
        if sum.cancelled + sum.running == 0 && remembered.is_some() {
            answers.remember(view(None));
        }
        answers.end().map_err(Ended::untold)?;
        return Ok(Exit::Done);
    }
    output.print(&sum.text_of(&name, remembered, Output::columns())).map_err(Ended::untold)?;
    Ok(Exit::Done)
}

fn goes_on(running: u64) -> String {
    match running {
        1 => "One is running and goes on; it is not tried again.".to_owned(),
        n => format!("{n} are running and go on; they are not tried again."),
    }
}

/// The number of events by what a cancel has found.
#[derive(Default)]
pub(super) struct Sum {
    pub(super) cancelled: u64,
    pub(super) running: u64,
    pub(super) nothing: u64,
}

impl Sum {
    fn add(&mut self, slot: &Cancelled) -> Became {
        self.cancelled += u64::from(slot.waiting);
        self.running += u64::from(slot.running);
        let result = match (slot.waiting, slot.running) {
            (true, _) => "cancelled",
            (false, true) => "running",
            (false, false) => {
                self.nothing += 1;
                "nothing"
            }
        };
        Became { result: Some(result), ..Became::default() }
    }

    const fn any(&self) -> bool {
        self.cancelled + self.running + self.nothing > 0
    }

    fn report(&self, output: Output) -> anyhow::Result<()> {
        output.print(&self.text(Output::columns())).map_err(Ended::untold)
    }

    /// Returns the screen for the events of a filter.
    pub(super) fn text(&self, columns: usize) -> String {
        let Self { cancelled, running, nothing } = self;
        let mut text = format!("Cancelled {}.", table::events(*cancelled));
        if *running > 0 {
            text = format!("{text} {}", goes_on(*running));
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
            (0, running) => format!("Nothing of {name} is known to wait. {}", goes_on(running)),
            (cancelled, 0) => format!("Cancelled {} of {name}.", table::events(cancelled)),
            (cancelled, running) => format!("Cancelled {} of {name}. {}", table::events(cancelled), goes_on(running)),
        };
        sentence(&told.replace("1 event of the event ", "the event "), columns)
    }
}
