//! Opens the letters, and says what a look has not seen.

use std::mem;

use hatchery::{BrokerError, RegisterError};
use hatchery_admin::dead_letters::{
    DeadLetters, DeadLettersError, Letter, LetterQueue, Patience, Seen, Selection, Standing, unseen,
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

/// Calls `act` with the patience that the flags ask for.
pub(super) async fn patiently<T>(filters: &Filters, output: Output, act: impl AsyncFnOnce(Patience<'_>) -> T) -> T {
    let waiting =
        move |queue: &str| output.note(&format!("Another `topology dead-letter` reads {queue}; waiting for it."));
    act(Patience { limit: filters.wait, waiting: &waiting }).await
}

/// The queues that a look has read, and what it could not find out.
#[derive(Default)]
pub(super) struct Looked<'a> {
    /// The queues that were read.
    pub(super) queues: Vec<(&'a LetterQueue, Seen)>,
    /// Why it is not known which letters are obsolete.
    pub(super) unknown: Option<RegisterError>,
    /// The error of the last queue that is missing or unreadable, for the end. Those of the others are written already.
    pub(super) missing: Option<anyhow::Error>,
}

/// Reads one queue after the other, and passes the selected letters to `each`. A queue that is missing, or has a message that
/// cannot be read, does not hide the letters of the others. Fails if that leaves nothing to show.
pub(super) async fn read<'a>(
    letters: &DeadLetters,
    queues: &'a [LetterQueue],
    (filters, selection): (&Filters, &Selection),
    output: Output,
    mut each: impl FnMut(&'a LetterQueue, Letter, Standing) + Send,
) -> anyhow::Result<Looked<'a>> {
    let (mut looked, mut any) = (Looked::default(), false);
    for queue in queues {
        let each = |letter, standing| {
            any = true;
            each(queue, letter, standing);
        };
        let seen =
            patiently(filters, output, async |patience| letters.read(queue, selection, patience, each).await).await;
        match seen {
            Ok(mut seen) => {
                warn_unseen(queue, seen.unread(), seen.consumers, output);
                if seen.read > 0 {
                    warn_left_file(queue, output);
                }
                looked.unknown = looked.unknown.or(seen.unknown.take());
                looked.queues.push((queue, seen));
            }
            Err(error) => keep_missing(&mut looked.missing, error, queue, output)?,
        }
    }
    match looked.missing {
        Some(error) if looked.queues.is_empty() && !any => Err(error),
        missing => Ok(Looked { missing, ..looked }),
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
    // Pruned meanwhile, or of a former name that this user has no permission for.
    let is_passed_over =
        matches!(error, DeadLettersError::Broker(BrokerError::Missing { .. } | BrokerError::Refused { .. }));
    if queue.is_leftover && is_passed_over {
        output.warn(&format!("{error}; the file does not ask for {}, and its letters are not seen", queue.name));
        return Ok(());
    }
    let is_missing =
        matches!(error, DeadLettersError::Broker(BrokerError::Missing { .. } | BrokerError::Unreadable { .. }));
    let error = explained(error, queue);
    let (former, kept) = if is_missing { (missing.replace(error), Ok(())) } else { (missing.take(), Err(error)) };
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

/// Warns of letters that a look or a sweep has not seen.
pub(super) fn warn_unseen(queue: &LetterQueue, unread: u64, consumers: u32, output: Output) {
    for warning in unseen(queue, unread, consumers) {
        output.warn(&warning);
    }
}
