//! Reads the letters of queues and leaves them there.

use std::time::Duration;

use hatchery::{
    BrokerError, RegisterError,
    internals::{
        names,
        ports::Look,
        wire::{self, Incoming},
    },
};
use tokio::time::{Instant, sleep};

use super::{
    check::{RegisterUse, check},
    error::DeadLettersError,
    letter::Letter,
    queues::{DeadLetters, LetterQueue},
    selection::Selection,
    standing::Standing,
    view::QueueView,
};
use crate::text::count;

/// Letters that are read together. The register answers for all of them in one call.
pub(super) const BATCH: usize = 256;

/// The delay between two tries for a queue that somebody else looks at.
const AGAIN: Duration = Duration::from_millis(100);

/// How long to wait for somebody else who looks at the queue.
#[derive(Clone, Copy)]
pub struct Patience<'a> {
    /// The longest time.
    pub limit: Duration,
    /// Called once when the wait begins, with the name of the queue.
    pub waiting: &'a (dyn Fn(&str) + Sync),
}

/// How much of a queue was seen.
#[derive(Debug, Default)]
pub struct Seen {
    /// The number of letters that were ready when the look began.
    pub ready: u64,
    /// The number of letters that were read.
    pub read: u64,
    /// The number of consumers that read the queue at the same time. The letters that they hold were not seen.
    pub consumers: u32,
    /// Why it is not known which letters are obsolete.
    pub unknown: Option<RegisterError>,
}

impl Seen {
    /// Returns the number of letters that were ready and did not come: others hold them, or the broker is slow.
    #[must_use]
    pub const fn unread(&self) -> u64 {
        self.ready.saturating_sub(self.read)
    }
}

/// The letters that a look at several queues has seen.
#[derive(Debug, Default)]
pub struct Looked<'a> {
    queues: Vec<(&'a LetterQueue, Seen)>,
    has_letters: bool,
    /// Why it is not known which letters are obsolete.
    pub unknown: Option<RegisterError>,
}

impl Looked<'_> {
    /// Whether no queue was read, and no letter.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty() && !self.has_letters
    }

    /// Returns the queues that were read.
    #[must_use]
    pub fn queues(&self) -> Vec<QueueView> {
        let view = |(queue, seen): &(&LetterQueue, Seen)| QueueView {
            queue: queue.name.clone(),
            letters: seen.read,
            held_by_others: seen.unread(),
            consumers: seen.consumers,
        };
        self.queues.iter().map(view).collect()
    }

    pub(super) fn sum(&self, of: fn(&Seen) -> u64) -> u64 {
        self.queues.iter().map(|(_, seen)| of(seen)).sum()
    }
}

/// Says what a look or a sweep has not seen of a queue.
#[must_use]
pub fn unseen(queue: &LetterQueue, unread: u64, consumers: u32) -> Vec<String> {
    let (name, mut said) = (&queue.name, Vec::new());
    if unread > 0 {
        let letters = count(unread, "letter");
        let were = if unread == 1 { "was" } else { "were" };
        said.push(format!(
            "{letters} of {name} {were} ready and could not be read: others hold them, or the broker is slow"
        ));
    }
    if consumers > 0 {
        let readers = if consumers == 1 { "1 consumer reads" } else { &format!("{consumers} consumers read") };
        said.push(format!(
            "{readers} {name}; letters that others hold are not seen here, and may come back in another order"
        ));
    }
    said
}

impl DeadLetters {
    /// Reads all letters of a queue, and passes those that are selected to `each`. The queue is as before afterwards. Before a
    /// message that cannot be read, those that arrived before it are passed.
    ///
    /// If the register is away, the standing of the letters is unknown.
    ///
    /// # Errors
    /// If the broker is away, has no such queue, or somebody else looks at the queue for longer than the patience.
    pub async fn read(
        &self,
        queue: &LetterQueue,
        selection: &Selection,
        patience: Patience<'_>,
        mut each: impl FnMut(Letter, Standing) + Send,
    ) -> Result<Seen, DeadLettersError> {
        let mut look = self.open(queue, patience).await?;
        let read = self.read_all(&mut *look, queue, selection, &mut each).await;
        let closed = look.close().await;
        let seen = read?;
        closed?;
        Ok(seen)
    }

    /// Passes the selected letters of all queues to `each`, and to `told` how much of each queue was seen, or why it could not be read.
    /// An error of `told` is the end; else the next queue is read.
    ///
    /// # Errors
    /// Those of `told`.
    pub async fn read_queues<'a, E>(
        &self,
        queues: &'a [LetterQueue],
        selection: &Selection,
        patience: Patience<'_>,
        mut told: impl FnMut(&LetterQueue, Result<&Seen, DeadLettersError>) -> Result<(), E> + Send,
        mut each: impl FnMut(&LetterQueue, Letter, Standing) + Send,
    ) -> Result<Looked<'a>, E> {
        let mut looked = Looked::default();
        for queue in queues {
            let each = |letter, standing| {
                looked.has_letters = true;
                each(queue, letter, standing);
            };
            match self.read(queue, selection, patience, each).await {
                Ok(mut seen) => {
                    told(queue, Ok(&seen))?;
                    looked.unknown = looked.unknown.or(seen.unknown.take());
                    looked.queues.push((queue, seen));
                }
                Err(error) => told(queue, Err(error))?,
            }
        }
        Ok(looked)
    }
    async fn read_all(
        &self,
        look: &mut dyn Look,
        queue: &LetterQueue,
        selection: &Selection,
        each: &mut (impl FnMut(Letter, Standing) + Send),
    ) -> Result<Seen, DeadLettersError> {
        let mut seen = Seen { ready: look.ready(), consumers: look.consumers(), ..Seen::default() };
        let mut failed = None;
        loop {
            let batch = match look.next(BATCH).await {
                Ok(batch) => batch,
                Err(error @ BrokerError::Unreadable { .. }) if failed.is_none() => {
                    failed = Some(error);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if batch.is_empty() {
                return failed.map_or(Ok(seen), |error| Err(error.into()));
            }
            seen.read += u64::try_from(batch.len()).unwrap_or(u64::MAX);
            let letters = batch.into_iter().map(|delivery| (self.letter(queue, delivery.message), ()));
            let selected = letters.filter(|(letter, ())| selection.matches(letter)).collect();
            for checked in check(&self.0, selected, RegisterUse::Optional(&mut seen.unknown)).await? {
                if !selection.obsolete || checked.standing.is_obsolete() {
                    each(checked.letter, checked.standing);
                }
            }
        }
    }

    /// Begins to look. Waits while somebody else looks at the queue.
    pub(super) async fn open(
        &self,
        queue: &LetterQueue,
        patience: Patience<'_>,
    ) -> Result<Box<dyn Look>, DeadLettersError> {
        let mut until = None;
        loop {
            let error = match self.0.shared.broker.look(&queue.name).await {
                Ok(look) => return Ok(look),
                Err(error) => error,
            };
            let begun = until.is_some();
            let until = *until.get_or_insert_with(|| Instant::now() + patience.limit);
            if !matches!(error, BrokerError::Locked { .. }) || Instant::now() >= until {
                return Err(error.into());
            }
            if !begun {
                (patience.waiting)(&queue.name);
            }
            sleep(AGAIN).await;
        }
    }

    pub(super) fn letter(&self, queue: &LetterQueue, message: Incoming) -> Letter {
        let of_key = || {
            let word = message.routing_key.split('.').next()?;
            Some(self.0.shared.topology.types.get_key_value(word)?.0.clone())
        };
        // A message of a source that no queue took is no event either.
        let of_source = || {
            let word = message.routing_key.split('.').next()?;
            self.0.shared.topology.sources.keys().find(|source| names::source_word(source) == word).cloned()
        };
        // A binding of a stranger may have brought it into the queue of another type.
        let misrouted = |name| wire::misrouted(name, &message, &self.0.shared.topology.types).cloned();
        let of_queue = queue.event_type.as_ref().map(|name| misrouted(name).unwrap_or_else(|| name.clone()));
        let known_type = of_queue.or_else(of_key).filter(|_| queue.source.is_none());
        let source = queue.source.clone().or_else(of_source).filter(|_| known_type.is_none());
        Letter { known_type, source, message }
    }
}
