//! `topology events reschedule` and `run-now`: move events to another time.

use std::{collections::BTreeMap, fmt::Write as _};

use futures_util::Stream;
use hatchery::{EventInfo, Events, EventsError, MoveOutcome, Topology};
use hatchery_admin::{
    Until,
    batch::{Change, ChangedEvents},
    notation::parse_moment,
    text::count,
};
use jiff::Timestamp;

use super::{
    answer::{self, Became},
    bulk::{self, Act},
    connection::with_events,
    filters::{Choice, Chosen, carried_out, registered},
};
use crate::{
    args::Common,
    connect,
    exit::{Ended, Exit},
    load,
    output::Output,
    server::Server,
    text::sentence,
};

/// Give waiting events another time: those of a reference, one by its id, or all that a filter finds
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology events reschedule --type hr-import --reference 1234 --delay 2h
  topology events reschedule --type hr-import --reference 1234 \\
    --at 2026-06-01T09:00:00Z --to 2026-07-01T09:00:00Z
  topology events reschedule --type mail --id ID --to 2026-06-01T09:00:00Z
  topology events reschedule --type mail --state retry --to 6h       a dry run
  topology events reschedule --type mail --state retry --to 6h --yes

Events that --reference or --id names are moved at once. Events that any other
filter finds are only shown and counted, unless --yes is given.

If the type has `keep-payload`, the event is published again for its new time
with 0 attempts, and its former message is dropped when it is delivered. Without
a kept payload, an event can only be moved to a later time.

Exit 1: no event could be moved, none waits, or the topology was never applied.
5: some events could not be moved.")]
pub(crate) struct RescheduleArgs {
    #[command(flatten)]
    chosen: Chosen,

    /// The new time, or how long from now: 2h, 1d 12h
    #[arg(long, visible_alias = "delay", value_name = "TIME", value_parser = parse_moment, allow_hyphen_values = true)]
    to: Timestamp,
}

pub(super) async fn reschedule(common: &Common, args: &RescheduleArgs, output: Output) -> anyhow::Result<Exit> {
    // Times on the wire have milliseconds.
    let to = Timestamp::from_millisecond(args.to.as_millisecond()).unwrap_or(args.to);
    move_chosen(common, &args.chosen, Some(to), &format!("Rescheduled to {to}"), output).await
}

/// Run waiting events now: those of a reference, one by its id, or all that a filter finds
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology events run-now --type hr-import --reference 1234
  topology events run-now --type mail --id ID
  topology events run-now --type mail --state retry              a dry run
  topology events run-now --type mail --state retry --yes
  topology events run-now --type mail --state dead-letter --yes

Events that --reference or --id names are sent at once. Events that any other
filter finds are only shown and counted, unless --yes is given.

The event is published again, and its former message is dropped when it is
delivered. This needs the payload, so the type must have `keep-payload`. The
event keeps its number of attempts.

Exit 1: no event could be sent, none waits, or the topology was never applied.
5: some events could not be sent.")]
pub(crate) struct RunNowArgs {
    #[command(flatten)]
    chosen: Chosen,
}

pub(super) async fn run_now(common: &Common, args: &RunNowArgs, output: Output) -> anyhow::Result<Exit> {
    move_chosen(common, &args.chosen, None, "Sent to run now", output).await
}

/// Moves the chosen events to a time, or to now if `to` is `None`. `said` tells people what is done.
async fn move_chosen(
    common: &Common,
    chosen: &Chosen,
    to: Option<Timestamp>,
    said: &str,
    output: Output,
) -> anyhow::Result<Exit> {
    let act = to.map_or(Act::RunNow, Act::Reschedule);
    if let Some(server) = Server::named(common)? {
        let changed = chosen.by_server(&server, act.verb(), to).await?;
        return tell(changed, chosen, act, said, output);
    }
    let topology = load::topology(common, output)?;
    let (choice, file) = (chosen.choice(&registered(&topology))?, &topology.clone());
    if let (Choice::Found(filter), false) = (&choice, chosen.yes) {
        let look = async |events: &Events| bulk::dry_run(events, filter, act, output).await;
        return with_events(common, topology, output, look).await;
    }
    // It may have to publish.
    connect::with_events(common, topology, "topology events", async |events| match (choice, to) {
        (Choice::Named(named), to) => {
            let change = match to {
                Some(to) => Change::Reschedule(named, Until::At(to)),
                None => Change::RunNow(named),
            };
            tell(carried_out(change, events).await?, chosen, act, said, output)
        }
        (Choice::Found(filter), Some(to)) => all(events.reschedule_all(&filter, to), file, act, said, output).await,
        (Choice::Found(filter), None) => all(events.run_now_all(&filter), file, act, said, output).await,
    })
    .await
}

/// Reports the results for events that were named.
fn tell(changed: ChangedEvents, chosen: &Chosen, act: Act, said: &str, output: Output) -> anyhow::Result<Exit> {
    let (sum, is_nothing) = (Sum::of_named(act, &changed), changed.events.is_empty());
    let told = answer::named(act.verb(), changed, output);
    told.map_err(|error| if sum.done > 0 { Ended::untold(error) } else { error.into() })?;
    if is_nothing {
        return Err(Ended::new(Exit::Error, format!("no event of {} waits", chosen.filters.name())).into());
    }
    sum.report(said, output)?;
    Ok(sum.exit())
}

/// Moves all events of a stream, and reports the results.
async fn all(
    moving: impl Stream<Item = Result<(EventInfo, MoveOutcome), EventsError>>,
    topology: &Topology,
    act: Act,
    said: &str,
    output: Output,
) -> anyhow::Result<Exit> {
    let mut sum = Sum::of(act);
    let acted = bulk::act(moving, topology, act, output, |_, moved| sum.add(moved)).await;
    // If nothing was done, the error says everything.
    if acted.is_ok() || sum.any() {
        sum.report(said, output)?;
    }
    acted?;
    Ok(sum.exit())
}

pub(super) struct Sum {
    /// The new due time of moved events.
    to: Timestamp,
    done: u64,
    running: u64,
    gone: u64,
    not_kept: BTreeMap<String, u64>,
}

impl Sum {
    pub(super) fn of(act: Act) -> Self {
        let to = if let Act::Reschedule(to) = act { to } else { Timestamp::now() };
        Self { to, done: 0, running: 0, gone: 0, not_kept: BTreeMap::new() }
    }

    /// Returns the sum for events that were named.
    fn of_named(act: Act, changed: &ChangedEvents) -> Self {
        let mut sum = Self::of(act);
        for event in &changed.events {
            match event.result.as_deref() {
                Some("done") => sum.done += 1,
                Some("running") => sum.running += 1,
                Some("not-kept") => *sum.not_kept.entry(event.why.clone().unwrap_or_default()).or_default() += 1,
                _ => sum.gone += 1,
            }
        }
        sum
    }

    pub(super) fn add(&mut self, moved: &MoveOutcome) -> Became {
        let mut became = Became { result: Some(answer::result_of_move(moved)), ..Became::default() };
        match moved {
            MoveOutcome::Done => {
                self.done += 1;
                became.due = Some(self.to);
            }
            MoveOutcome::Running => self.running += 1,
            MoveOutcome::NotKept(why) => {
                *self.not_kept.entry(why.to_string()).or_default() += 1;
                became.why = Some(why.to_string());
            }
            _ => self.gone += 1,
        }
        became
    }

    fn any(&self) -> bool {
        self.done + self.running + self.gone > 0 || !self.not_kept.is_empty()
    }

    fn report(&self, said: &str, output: Output) -> anyhow::Result<()> {
        if !output.is_text() {
            return Ok(());
        }
        let text = self.text(said, Output::columns());
        output.print(&text).map_err(|error| if self.done > 0 { Ended::untold(error) } else { error.into() })
    }

    /// Returns the screen.
    pub(super) fn text(&self, said: &str, columns: usize) -> String {
        let Self { done, running, gone, not_kept, .. } = self;
        let mut text = String::new();
        let left = *running + *gone + not_kept.values().sum::<u64>();
        if *done > 0 || left == 0 {
            let _ = writeln!(text, "{}: {}.", said, count(*done, "event"));
        }
        if *running > 0 {
            let _ = writeln!(text, "Already running: {}.", count(*running, "event"));
        }
        if *gone > 0 {
            let _ = writeln!(text, "Handled, cancelled or replaced meanwhile: {}.", count(*gone, "event"));
        }
        for (why, events) in not_kept {
            text += &sentence(&format!("Not moved: {}; {why}.", count(*events, "event")), columns);
        }
        text
    }

    /// Returns the exit code. Events that were handled, cancelled or replaced meanwhile do not count as left.
    fn exit(&self) -> Exit {
        let left = self.running + self.not_kept.values().sum::<u64>();
        match (self.done, left) {
            (_, 0) => Exit::Done,
            (0, _) => Exit::Error,
            _ => Exit::Partly,
        }
    }
}
