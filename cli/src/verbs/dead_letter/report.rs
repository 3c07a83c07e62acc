//! The dry run, the progress and the report of `replay` and `discard`.

use std::{
    fmt::{Display, Write as _},
    sync::{Mutex, PoisonError},
};

use hatchery_admin::{
    dead_letters::{
        Account, Bounds, DeadLetters, GroupView, Groups, Letter, LetterQueue, Patience, Selection, Standing, Sweep,
        Swept, SweptLetters, Tally, Verb,
    },
    text::count,
};

use super::{
    connection::{keep_missing, read, waiting},
    filters::Filters,
};
use crate::{
    exit::{Ended, Exit},
    output::Output,
    stop::Stop,
    text::sentence,
};

/// Returns the participle for letters that the verb has acted on.
const fn done(verb: Verb) -> &'static str {
    match verb {
        Verb::Replay(_) => "replayed",
        Verb::Discard => "discarded",
    }
}

/// Returns the flags without which the verb is a dry run.
const fn flags(verb: Verb) -> &'static str {
    match verb {
        Verb::Replay(_) => "--yes",
        Verb::Discard => "--save FILE --yes",
    }
}

/// Shows what the verb would do, and changes nothing.
pub(super) async fn dry_run(
    all: &DeadLetters,
    queues: &[LetterQueue],
    (filters, selection): (&Filters, &Selection),
    limit: Option<u64>,
    verb: Verb,
    output: Output,
) -> anyhow::Result<Exit> {
    let (mut tally, mut groups) = (Tally::default(), Groups::default());
    let spinner = output.spinner();
    let each = |queue: &LetterQueue, letter: Letter, standing: Standing| {
        spinner.set_message(queue.name.clone());
        if tally.would_take(&standing, verb, limit) {
            groups.add(&letter, &standing);
        }
    };
    let (looked, missing) = read(all, queues, (filters, selection), output, each).await?;
    let tally = tally.of_dry_run(looked)?;
    spinner.finish_and_clear();
    let groups = groups.largest_first();
    output.answer(&SweptLetters::would_be(verb, tally), || {
        dry_run_text(&groups, tally, verb, filters.of(), Output::columns())
    })?;
    missing.map_or_else(|| Ok(named(filters, tally)?), Err)
}

/// Returns the screen of a dry run.
pub(super) fn dry_run_text(groups: &[GroupView], tally: Tally, verb: Verb, of: &str, columns: usize) -> String {
    let mut text = String::new();
    for GroupView { failure, count, .. } in groups {
        let _ = writeln!(text, "{count:>8}  {}", super::view::cut(failure, columns.saturating_sub(10)));
    }
    let _ = write!(text, "{}", left(tally, of, columns));
    let _ = writeln!(text, "Dry run: would {} {}. {} does it.", verb.name(), count(tally.done, "letter"), flags(verb));
    text
}

/// Acts on one queue after the other, and reports. A missing queue does not stop the other queues.
pub(super) async fn sweep(
    queues: &[LetterQueue],
    filters: &Filters,
    verb: Verb,
    output: Output,
    (selection, bounds): (&Selection, Bounds),
    act: impl AsyncFn(Sweep<'_>) -> Swept,
) -> anyhow::Result<Exit> {
    let stop = Stop::on_signals()?;
    let (mut account, done, waiting) = (Account::default(), done(verb), waiting(output));
    let (mut end, mut missing, mut unseen) = (Ok(false), None, false);
    let bar = output.spinner();
    let patience = Patience { limit: filters.wait, waiting: &waiting };
    for queue in queues {
        let bounds = account.rest(bounds);
        // What is known if a second signal ends the sweep before it has counted.
        let known = Mutex::new(Tally::default());
        let progress = |tally: Tally| {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = tally;
            bar.set_message(format!("{} {done}", count(account.sum.done + tally.done, "letter")));
        };
        let sweep = Sweep { queue, selection, bounds, patience, stop: &stop.gently, progress: &progress };
        let acted = stop.at_once.run_until_cancelled(act(sweep)).await;
        let swept = acted.unwrap_or_else(|| {
            let tally = *known.lock().unwrap_or_else(PoisonError::into_inner);
            Swept { tally, consumers: 0, interrupted: true, error: None }
        });
        let warnings = account.add(queue, bounds, &swept);
        for warning in &warnings {
            output.warn(warning);
        }
        unseen |= !warnings.is_empty();
        let Swept { error, interrupted, .. } = swept;
        end = error.map_or(Ok(()), |error| keep_missing(&mut missing, error, queue, output)).map(|()| interrupted);
        if !matches!(end, Ok(false)) {
            break;
        }
    }
    bar.finish_and_clear();
    let (sum, is_read) = (account.sum, !account.is_empty());
    let told = || tell(account, verb, filters.of(), output);
    match (end, missing) {
        (Ok(false), None) => {
            told().map_err(Ended::untold)?;
            if unseen {
                return Err(unfinished("not all letters were seen; ", sum, verb, ""));
            }
            Ok(named(filters, sum)?)
        }
        (Ok(false), Some(missing)) => {
            if is_read {
                told()?;
            }
            if sum.done == 0 {
                return Err(missing);
            }
            let message = format!("{missing:#}; {} of the other queues {done}", count(sum.done, "letter"));
            Err(Ended::new(Exit::Partly, message).into())
        }
        (Ok(true), missing) => {
            if let Some(missing) = missing {
                output.warn(&format!("{missing:#}"));
            }
            told()?;
            // Letters that were under way at the second signal may be done, and are not counted.
            let least = if stop.at_once.is_cancelled() { "at least " } else { "" };
            Err(unfinished(format_args!("stopped; {least}"), sum, verb, " before"))
        }
        // Nothing was done, so the error says everything.
        (Err(error), _) if sum.done == 0 => Err(error),
        (Err(error), _) => {
            told()?;
            // Letters that were under way may be done, and are not counted.
            Err(unfinished(format_args!("{error:#}; at least "), sum, verb, " before"))
        }
    }
}

/// Returns the end of a verb that has acted on some of its letters. `why` leads to their number.
pub(super) fn unfinished(why: impl Display, sum: Tally, verb: Verb, before: &str) -> anyhow::Error {
    let (letters, done) = (count(sum.done, "letter"), done(verb));
    Ended::new(Exit::Partly, format!("{why}{letters} {done}{before}. Run it again for the rest")).into()
}

/// Returns how the verb ends, once it has printed its answer. It fails if a letter was named by its id and is not there.
pub(super) fn named(filters: &Filters, tally: Tally) -> Result<Exit, Ended> {
    match &filters.id {
        Some(id) if tally.done + tally.obsolete + tally.unreadable == 0 => {
            let list = format!("topology dead-letter list{} --events", filters.of());
            Err(Ended::new(Exit::Error, format!("no letter with the id {id} matches; `{list}` lists them")))
        }
        _ => Ok(Exit::Done),
    }
}

fn tell(account: Account, verb: Verb, of: &str, output: Output) -> std::io::Result<()> {
    let sum = account.sum;
    output.answer(&account.answer(verb), || text(sum, verb, of, Output::columns()))
}

/// Returns the screen at the end.
pub(super) fn text(sum: Tally, verb: Verb, of: &str, columns: usize) -> String {
    let (first, rest) = done(verb).split_at(1);
    format!("{}{}{rest}: {}.\n", left(sum, of, columns), first.to_uppercase(), count(sum.done, "letter"))
}

/// Returns a sentence for each kind of letters that are left although they were selected. `of` is the flag that selects their
/// queues, for the commands.
fn left(tally: Tally, of: &str, columns: usize) -> String {
    let mut text = String::new();
    if tally.obsolete > 0 {
        let obsolete = format!(
            "Left: {}, obsolete. The event has run, was cancelled or was replaced since; `topology dead-letter discard{of} \
             --obsolete` clears them.",
            count(tally.obsolete, "letter")
        );
        text += &sentence(&obsolete, columns);
    }
    if tally.unreadable > 0 {
        let unreadable = format!(
            "Left: {}, not events that can be published. `topology dead-letter list{of} --events` says why.",
            count(tally.unreadable, "letter")
        );
        text += &sentence(&unreadable, columns);
    }
    text
}
