//! The dry run, the progress and the report of `replay` and `discard`.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Mutex, PoisonError},
};

use hatchery_admin::dead_letters::{
    Bounds, Counts, DeadLetters, Due, Group, Groups, Letter, LetterQueue, Seen, Selection, Standing, Sweep, Swept,
    SweptLetters, Tally,
};

use super::{
    connection::{keep_missing, patiently, read, warn_unseen},
    filters::Filters,
    view::letters,
};
use crate::{
    exit::{Ended, Exit},
    output::{Format, Output},
    stop::Stop,
    text::sentence,
};

/// A verb that acts on letters.
#[derive(Clone, Copy)]
pub(super) struct Verb {
    /// The verb as it is typed.
    pub(super) name: &'static str,
    /// The participle for letters that the verb has acted on: `replayed`, `discarded`.
    pub(super) done: &'static str,
    /// When replayed events are due. A replay leaves letters that are obsolete or no events.
    pub(super) replays: Option<Due>,
    /// The flags without which it is a dry run.
    pub(super) flags: &'static str,
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
    let mut selected = 0;
    let each = |queue: &LetterQueue, letter: Letter, standing: Standing| {
        selected += 1;
        spinner.set_message(queue.name.clone());
        if verb.replays.is_some_and(|due| due.leaves(&standing)) {
            tally.leave(&standing);
        } else if limit.is_some_and(|limit| tally.done >= limit) {
            tally.others += 1;
        } else {
            tally.done += 1;
            groups.add(&letter, &standing);
        }
    };
    let looked = read(all, queues, (filters, selection), output, each).await?;
    if let Some(error) = looked.unknown {
        return Err(anyhow::Error::new(error).context("which letters are obsolete is not known"));
    }
    let sum = |of: fn(&Seen) -> u64| looked.queues.iter().map(|(_, seen)| of(seen)).sum::<u64>();
    (tally.ready, tally.unread) = (sum(|seen| seen.ready), sum(Seen::unread));
    // Letters before a message that cannot be read are selected, and their queue is not among those that were read.
    tally.others += sum(|seen| seen.read).saturating_sub(selected);
    spinner.finish_and_clear();
    if output.is_text() {
        output.print(&dry_run_text(&groups.largest_first(), tally, verb, filters.of(), Output::columns()))?;
    } else {
        let letters = Counts::would_be(tally);
        output.json(&SweptLetters { verb: verb.name, dry_run: true, letters, queues: None })?;
    }
    match looked.missing {
        Some(error) => Err(error),
        None => Ok(named(filters, tally)?),
    }
}

/// Returns the screen of a dry run.
pub(super) fn dry_run_text(groups: &[Group], tally: Tally, verb: Verb, of: &str, columns: usize) -> String {
    let mut text = String::new();
    for Group { reason, count, .. } in groups {
        let _ = writeln!(text, "{count:>8}  {}", super::view::cut(reason, columns.saturating_sub(10)));
    }
    let _ = write!(text, "{}", left(tally, of, columns));
    let _ = writeln!(text, "Dry run: would {} {}. {} does it.", verb.name, letters(tally.done), verb.flags);
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
    let (mut sum, mut by_queue) = (Tally::default(), BTreeMap::new());
    let (mut end, mut missing, mut unseen) = (Ok(false), None, false);
    let bar = output.spinner();
    for queue in queues {
        let limit = bounds.limit.map(|limit| limit.saturating_sub(sum.done));
        let bounds = Bounds { limit, ..bounds };
        // What is known if a second signal ends the sweep before it has counted.
        let known = Mutex::new(Tally::default());
        let progress = |tally: Tally| {
            *known.lock().unwrap_or_else(PoisonError::into_inner) = tally;
            bar.set_message(format!("{} {}", letters(sum.done + tally.done), verb.done));
        };
        let acted = patiently(filters, output, async |patience| {
            tokio::select! {
                biased;
                () = stop.at_once.cancelled() => None,
                swept = act(Sweep { queue, selection, bounds, patience, stop: &stop.gently, progress: &progress }) => Some(swept),
            }
        });
        let swept = acted.await.unwrap_or_else(|| {
            let tally = known.into_inner().unwrap_or_else(PoisonError::into_inner);
            Swept { tally, consumers: 0, interrupted: true, error: None }
        });
        let Swept { tally, consumers, interrupted, error } = swept;
        sum.add(tally);
        // `--limit` has stopped it: the rest was not to be read.
        if bounds.limit.is_none_or(|limit| tally.done < limit) {
            warn_unseen(queue, tally.unread, consumers, output);
            unseen |= tally.unread > 0 || consumers > 0;
        }
        // The letters of a missing queue are not known, unless it was deleted meanwhile.
        let is_known = error.is_none() || tally.ready > 0;
        if is_known {
            by_queue.insert(queue.name.clone(), Counts::done(tally));
        }
        end = error.map_or(Ok(()), |error| keep_missing(&mut missing, error, queue, output)).map(|()| interrupted);
        if !matches!(end, Ok(false)) {
            break;
        }
    }
    bar.finish_and_clear();
    let is_read = !by_queue.is_empty();
    let told = || tell(sum, by_queue, verb, filters.of(), output);
    match (end, missing) {
        (Ok(false), None) => {
            told().map_err(Ended::untold)?;
            if unseen {
                let message = format!(
                    "not all letters were seen; {} {}. Run it again for the rest",
                    letters(sum.done),
                    verb.done
                );
                return Err(Ended::new(Exit::Partly, message).into());
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
            let message = format!("{missing:#}; {} of the other queues {}", letters(sum.done), verb.done);
            Err(Ended::new(Exit::Partly, message).into())
        }
        (Ok(true), missing) => {
            if let Some(missing) = missing {
                output.warn(&format!("{missing:#}"));
            }
            told()?;
            // Letters that were under way at the second signal may be done, and are not counted.
            let least = if stop.at_once.is_cancelled() { "at least " } else { "" };
            let message =
                format!("stopped; {least}{} {} before. Run it again for the rest", letters(sum.done), verb.done);
            Err(Ended::new(Exit::Partly, message).into())
        }
        // Nothing was done, so the error says everything.
        (Err(error), _) if sum.done == 0 => Err(error),
        (Err(error), _) => {
            told()?;
            // Letters that were under way may be done, and are not counted.
            let message =
                format!("{error:#}; at least {} {} before. Run it again for the rest", letters(sum.done), verb.done);
            Err(Ended::new(Exit::Partly, message).into())
        }
    }
}

/// Returns how the verb ends, once it has printed its answer. It fails if a letter was named by its id and is not there.
fn named(filters: &Filters, tally: Tally) -> Result<Exit, Ended> {
    match &filters.id {
        Some(id) if tally.done + tally.obsolete + tally.unreadable == 0 => {
            let list = format!("topology dead-letter list{} --events", filters.of());
            Err(Ended::new(Exit::Error, format!("no letter with the id {id} matches; `{list}` lists them")))
        }
        _ => Ok(Exit::Done),
    }
}

fn tell(sum: Tally, by_queue: BTreeMap<String, Counts>, verb: Verb, of: &str, output: Output) -> anyhow::Result<()> {
    match output.format {
        Format::Text => output.print(&text(sum, verb, of, Output::columns()))?,
        Format::Json | Format::Ndjson => {
            let (letters, queues) = (Counts::done(sum), Some(by_queue));
            output.json(&SweptLetters { verb: verb.name, dry_run: false, letters, queues })?;
        }
    }
    Ok(())
}

/// Returns the screen at the end.
pub(super) fn text(sum: Tally, verb: Verb, of: &str, columns: usize) -> String {
    let (first, rest) = verb.done.split_at(1);
    format!("{}{}{rest}: {}.\n", left(sum, of, columns), first.to_uppercase(), letters(sum.done))
}

/// Returns a sentence for each kind of letters that are left although they were selected. `of` is the flag that selects their
/// queues, for the commands.
fn left(tally: Tally, of: &str, columns: usize) -> String {
    let mut text = String::new();
    if tally.obsolete > 0 {
        let obsolete = format!(
            "Left: {}, obsolete. The event has run, was cancelled or was replaced since; `topology dead-letter discard{of} \
             --obsolete` clears them.",
            letters(tally.obsolete)
        );
        text += &sentence(&obsolete, columns);
    }
    if tally.unreadable > 0 {
        let unreadable = format!(
            "Left: {}, not events that can be published. `topology dead-letter list{of} --events` says why.",
            letters(tally.unreadable)
        );
        text += &sentence(&unreadable, columns);
    }
    text
}
