//! What `reschedule` and `run-now` have in common.

use std::{collections::BTreeMap, fmt::Write as _};

use futures_util::Stream;
use hatchery::{EventsError, Known, Moved};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    super::{
        args::{Common, Format},
        connect,
        exit::{Ended, Exit},
        load,
        output::Output,
    },
    answer::view,
    bulk::{self, Act},
    events, table,
    which::{Choice, Chosen},
};

/// One of the two verbs, as people read it.
pub(super) struct Words {
    pub(super) done: String,
}

/// Moves to a time, or to now where there is none.
pub(super) async fn run(
    common: &Common,
    chosen: &Chosen,
    to: Option<Timestamp>,
    words: &Words,
    output: Output,
) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    let choice = chosen.choice(&topology)?;
    if let (Choice::Found(filter), false) = (&choice, chosen.yes) {
        let act = to.map_or(Act::RunNow, Act::Reschedule);
        return bulk::dry_run(&events(common, topology)?, filter, act, output).await;
    }
    // Something may have to be published.
    let hatchery = connect::connect(common, topology, "topology events").await?;
    let events = hatchery.events();
    let exit = match (choice, to) {
        (Choice::Named(which), Some(to)) => {
            let moved = events.reschedule(&which, to).await;
            tell(moved, chosen, words, output)
        }
        (Choice::Named(which), None) => tell(events.run_now(&which).await, chosen, words, output),
        (Choice::Found(filter), Some(to)) => all(events.reschedule_all(&filter, to), words, output).await,
        (Choice::Found(filter), None) => all(events.run_now_all(&filter), words, output).await,
    };
    hatchery.close().await;
    exit
}

/// Tells what became of events that were named.
fn tell(
    moved: Result<Vec<(Known, Moved)>, EventsError>,
    chosen: &Chosen,
    words: &Words,
    output: Output,
) -> anyhow::Result<Exit> {
    let moved = moved?;
    let mut sum = Sum::default();
    let mut answers = Vec::new();
    for (event, moved) in &moved {
        let mut answer = view(event);
        answer["result"] = sum.add(moved).into();
        if let Moved::NotKept(why) = moved {
            answer["why"] = why.to_string().into();
        }
        answers.push(answer);
    }
    match output.format {
        Format::Text if moved.is_empty() => {}
        Format::Text => sum.report(words, output)?,
        Format::Json => output.json(&json!({ "events": answers }))?,
        Format::Ndjson => answers.iter().try_for_each(|answer: &Value| output.json(answer))?,
    }
    if moved.is_empty() {
        return Err(Ended::new(Exit::Error, format!("nothing of {} waits", chosen.filters.name())).into());
    }
    Ok(sum.exit())
}

/// Moves all of a stream.
async fn all(
    moving: impl Stream<Item = Result<(Known, Moved), EventsError>>,
    words: &Words,
    output: Output,
) -> anyhow::Result<Exit> {
    let mut sum = Sum::default();
    let acted = bulk::act(moving, output, |moved| sum.add(moved)).await;
    match output.format {
        Format::Text => sum.report(words, output)?,
        Format::Json => output.json(&sum.view())?,
        // Each has been answered for.
        Format::Ndjson => {}
    }
    acted?;
    Ok(sum.exit())
}

#[derive(Default)]
struct Sum {
    done: u64,
    running: u64,
    gone: u64,
    not_kept: BTreeMap<String, u64>,
}

impl Sum {
    fn add(&mut self, moved: &Moved) -> &'static str {
        match moved {
            Moved::Done => {
                self.done += 1;
                "done"
            }
            Moved::Running => {
                self.running += 1;
                "running"
            }
            Moved::NotKept(why) => {
                *self.not_kept.entry(why.to_string()).or_default() += 1;
                "not-kept"
            }
            _ => {
                self.gone += 1;
                "gone"
            }
        }
    }

    fn report(&self, words: &Words, output: Output) -> anyhow::Result<()> {
        let Self { done, running, gone, not_kept } = self;
        let mut text = String::new();
        let left = *running + *gone + not_kept.values().sum::<u64>();
        if *done > 0 || left == 0 {
            let _ = writeln!(text, "{}: {}.", words.done, table::events(*done));
        }
        if *running > 0 {
            let _ = writeln!(text, "Already running: {}.", table::events(*running));
        }
        if *gone > 0 {
            let _ = writeln!(text, "Handled, cancelled or replaced meanwhile: {}.", table::events(*gone));
        }
        for (why, count) in not_kept {
            let _ = writeln!(text, "Not moved: {}; {why}.", table::events(*count));
        }
        Ok(output.print(&text)?)
    }

    fn view(&self) -> Value {
        let Self { done, running, gone, not_kept } = self;
        json!({ "done": done, "running": running, "gone": gone, "not_kept": not_kept.values().sum::<u64>() })
    }

    /// What has come to its end by itself needs nothing more.
    fn exit(&self) -> Exit {
        let left = self.running + self.not_kept.values().sum::<u64>();
        match (self.done, left) {
            (_, 0) => Exit::Done,
            (0, _) => Exit::Error,
            _ => Exit::Partly,
        }
    }
}
