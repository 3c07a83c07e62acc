//! Opens the letters, and says what a look has not seen.

use std::mem;

use hatchery::BrokerError;
use hatchery_admin::dead_letters::{
    DeadLetters, DeadLettersError, Letter, LetterQueue, Looked, Patience, Seen, Selection, Standing, unseen,
};

use super::filters::Filters;
use crate::{
    args::Common,
    connect,
    exit::{Ended, Exit},
    load,
    output::Output,
};

/// The name of the connection.
const NAME: &str = "topology dead-letter";

/// Calls `act` with the letters and the selected queues.
pub(super) async fn with_letters(
    common: &Common,
    filters: &Filters,
    output: Output,
    act: impl AsyncFnOnce(&DeadLetters, &[LetterQueue]) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    let mut limits = connect::admin(common, topology.clone(), NAME)?.delivery_limits().await;
    let hatchery = connect::connect(common, topology, NAME).await?;
    let letters = DeadLetters(hatchery.events());
    let exit = match filters.queues(&letters, mem::take(&mut limits.leftovers)) {
        Ok(queues) => match limits.allow(&queues) {
            Ok(unknown) => {
                if let Some(warning) = unknown {
                    output.warn(&warning);
                }
                act(&letters, &queues).await
            }
            Err(limited) => Err(Ended::new(Exit::Blocked, limited.to_string()).into()),
        },
        Err(error) => Err(error),
    };
    hatchery.close().await;
    exit
}

/// Returns what says that somebody else reads a queue.
pub(super) fn waiting(output: Output) -> impl Fn(&str) + Sync {
    move |queue| output.note(&format!("Another `topology dead-letter` reads {queue}; waiting for it."))
}

/// Reads one queue after the other, and passes the selected letters to `each`. A queue that is missing, or has a message that
/// cannot be read, does not hide the letters of the others: its error is returned, for the end, and those of further ones are written
/// already. Fails if that leaves nothing to show.
pub(super) async fn read<'a>(
    letters: &DeadLetters,
    queues: &'a [LetterQueue],
    (filters, selection): (&Filters, &Selection),
    output: Output,
    each: impl FnMut(&LetterQueue, Letter, Standing) + Send,
) -> anyhow::Result<(Looked<'a>, Option<anyhow::Error>)> {
    let (mut missing, waiting) = (None, waiting(output));
    let told = |queue: &LetterQueue, seen: Result<&Seen, DeadLettersError>| {
        let seen = match seen {
            Ok(seen) => seen,
            Err(error) => return keep_missing(&mut missing, error, queue, output),
        };
        for warning in unseen(queue, seen.unread(), seen.consumers) {
            output.warn(&warning);
        }
        if seen.read > 0 {
            warn_left_file(queue, output);
        }
        Ok(())
    };
    let patience = Patience { limit: filters.wait, waiting: &waiting };
    let looked = letters.read_queues(queues, selection, patience, told, each).await?;
    match missing {
        Some(error) if looked.is_empty() => Err(error),
        missing => Ok((looked, missing)),
    }
}

/// Keeps the error of a missing or unreadable queue for the end, after the letters of the other queues. Fails with any other
/// error. Warns of the error that was kept before.
pub(super) fn keep_missing(
    missing: &mut Option<anyhow::Error>,
    error: DeadLettersError,
    queue: &LetterQueue,
    output: Output,
) -> anyhow::Result<()> {
    let is_of_one = error.is_of_one(queue);
    let is_read = matches!(error, DeadLettersError::Broker(BrokerError::Unreadable { .. }));
    // Pruned meanwhile, or of a former name that this user has no permission for.
    if queue.is_leftover && is_of_one && !is_read {
        output.warn(&format!("{error}; the file does not ask for {}, and its letters are not seen", queue.name));
        return Ok(());
    }
    let error = explained(error, queue);
    let (former, kept) = if is_of_one { (missing.replace(error), Ok(())) } else { (missing.take(), Err(error)) };
    if let Some(former) = former {
        output.warn(&format!("{former:#}"));
    }
    kept
}

/// Explains the error of a look.
fn explained(error: DeadLettersError, queue: &LetterQueue) -> anyhow::Error {
    match error {
        DeadLettersError::Broker(BrokerError::Locked { .. }) => {
            let queue = &queue.name;
            let message = format!(
                "another `topology dead-letter` holds letters of {queue}, so they cannot be seen; run it again later, or wait \
                 longer (--wait)"
            );
            Ended::new(Exit::Locked, message).into()
        }
        error => error.into(),
    }
}

/// Warns of letters that no type of the file has.
fn warn_left_file(queue: &LetterQueue, output: Output) {
    if let Some(left) = queue.left_file() {
        output.warn(&format!("`{left}` is no longer in the file, and its letters cannot be replayed"));
        output.help(&format!(
            "if it was renamed, write `renamed-from: {left}` under its new name and apply; else put it back into the file"
        ));
    }
}
