//! Acts on all events that a filter finds: a dry run shows them, and with `--yes` the act is carried out.

use std::{collections::BTreeMap, pin::pin};

use futures_util::{Stream, TryStreamExt as _, stream::TryChunksError};
use hatchery::{EventInfo, Events, EventsError, Filter, PayloadNotKept, Topology};
use hatchery_admin::text::count;
use jiff::Timestamp;

use super::{
    answer::{Answers, Became, EventView, SHOWN, view},
    table,
};
use crate::{
    exit::{Ended, Exit},
    output::Output,
    text::sentence,
};

/// How many events one call checks for whether they can be moved.
const TOGETHER: usize = 256;

/// The act on the events.
#[derive(Clone, Copy)]
pub(super) enum Act {
    Cancel,
    /// Moves the events to this time.
    Reschedule(Timestamp),
    RunNow,
}

impl Act {
    /// Returns the verb as it is typed.
    pub(super) const fn verb(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::RunNow => "run-now",
        }
    }

    /// Returns for each event the reason why it could not be moved, if there is one.
    async fn not_kept(self, events: &Events, found: &[EventInfo]) -> Result<Vec<Option<PayloadNotKept>>, EventsError> {
        match self {
            Self::Cancel => Ok(vec![None; found.len()]),
            Self::Reschedule(to) => events.not_kept(found, Some(to)).await,
            Self::RunNow => events.not_kept(found, None).await,
        }
    }
}

/// Shows the events that the act would change, and how many there are.
pub(super) async fn dry_run(events: &Events, filter: &Filter, act: Act, output: Output) -> anyhow::Result<Exit> {
    let mut found = pin!(events.search(filter).try_chunks(TOGETHER));
    let mut answers = Answers::new(act.verb(), true, output);
    let mut would = DryRun::default();
    let topology = &events.shared.topology;
    let spinner = output.spinner();
    while let Some(chunk) = found.try_next().await.map_err(|TryChunksError(_, error)| error)? {
        let missing = act.not_kept(events, &chunk).await?;
        for (event, why) in chunk.into_iter().zip(missing) {
            would.found += 1;
            let why = why.map(|why| why.to_string());
            if let Some(why) = why.clone() {
                *would.not_kept.entry(why).or_default() += 1;
            }
            let event = view(&event, topology);
            if output.is_text() && would.first.len() < SHOWN {
                would.first.push(event.clone());
            }
            answers.add(event, Became { result: why.is_some().then_some("not-kept"), why, due: None });
        }
        spinner.set_message(format!("{} found", would.found));
    }
    spinner.finish_and_clear();
    answers.end()?;
    if output.is_text() {
        output.print(&would.text(act, Timestamp::now(), Output::columns()))?;
    }
    Ok(Exit::Done)
}

/// The events that a dry run has found.
#[derive(Default)]
pub(super) struct DryRun {
    /// The first events.
    pub(super) first: Vec<EventView>,
    /// The number of all events.
    pub(super) found: u64,
    /// The number of events that cannot be moved, by the reason.
    pub(super) not_kept: BTreeMap<String, u64>,
}

impl DryRun {
    /// Returns the screen.
    pub(super) fn text(&self, act: Act, now: Timestamp, columns: usize) -> String {
        let Self { first, found, not_kept } = self;
        if *found == 0 {
            return "Nothing is found.\n".to_owned();
        }
        let mut text = table::table(first, false, now, columns);
        let more = found.saturating_sub(u64::try_from(first.len()).unwrap_or(u64::MAX));
        if more > 0 {
            text += &sentence(&format!("… and {more} more"), columns);
        }
        for (why, events) in not_kept {
            text += &sentence(&format!("Not moved: {}; {why}.", count(*events, "event")), columns);
        }
        let (verb, left) = (act.verb().replace('-', " "), not_kept.values().sum::<u64>());
        text + &format!("Dry run: would {verb} {}. --yes does it.\n", count(found - left, "event"))
    }
}

/// Acts on all events, shows the progress, and passes each result to `account`. After a failure, waits for the calls
/// that are under way and counts them.
pub(super) async fn act<A>(
    acting: impl Stream<Item = Result<(EventInfo, A), EventsError>>,
    topology: &Topology,
    act: Act,
    output: Output,
    mut account: impl FnMut(&EventInfo, &A) -> Became,
) -> anyhow::Result<()> {
    let mut acting = pin!(acting);
    let mut answers = Answers::new(act.verb(), false, output);
    let (mut done, mut failed): (u64, Option<EventsError>) = (0, None);
    let spinner = output.spinner();
    loop {
        match acting.try_next().await {
            Ok(None) => break,
            Ok(Some((event, answer))) => {
                done += 1;
                answers.add(view(&event, topology), account(&event, &answer));
                spinner.set_message(format!("{done} done"));
            }
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    spinner.finish_and_clear();
    match failed {
        None if done > 0 => answers.end().map_err(Ended::untold),
        None => Ok(answers.end()?),
        // Nothing was done, so the error says everything.
        Some(error) if done == 0 => Err(error.into()),
        Some(error) => {
            let done = count(done, "event");
            let mut message =
                format!("{error}; {done} were processed before. Run it again: no event is processed twice");
            if let Err(unwritten) = answers.end() {
                message = format!("{message}; {unwritten}");
            }
            Err(Ended::new(Exit::Partly, message).into())
        }
    }
}
