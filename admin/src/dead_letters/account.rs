//! The account of a replay or a discard of several queues, or of its dry run.

use std::collections::BTreeMap;

use super::{
    answer::{Counts, SweptLetters},
    error::DeadLettersError,
    look::{Looked, Seen, unseen},
    queues::LetterQueue,
    replay::Due,
    standing::Standing,
    sweep::{Bounds, Swept, Tally},
};

/// A command that acts on letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Publishes the events again. It leaves letters that are obsolete or no events.
    Replay(Due),
    /// Removes the letters.
    Discard,
}

impl Verb {
    /// Returns the command as it is typed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Replay(_) => "replay",
            Self::Discard => "discard",
        }
    }
}

impl Tally {
    /// Counts a selected letter for a dry run. Returns whether the command would act on it.
    pub fn would_take(&mut self, standing: &Standing, verb: Verb, limit: Option<u64>) -> bool {
        if matches!(verb, Verb::Replay(due) if due.leaves(standing)) {
            self.leave(standing);
        } else if limit.is_some_and(|limit| self.done >= limit) {
            self.others += 1;
        } else {
            self.done += 1;
            return true;
        }
        false
    }

    /// Returns the numbers of a dry run that has counted the selected letters, from what it has seen.
    ///
    /// # Errors
    /// If it is not known which letters are obsolete.
    pub fn of_dry_run(self, looked: Looked<'_>) -> Result<Self, DeadLettersError> {
        let (ready, unread) = (looked.sum(|seen| seen.ready), looked.sum(Seen::unread));
        let selected = self.done + self.obsolete + self.unreadable + self.others;
        // Letters before a message that cannot be read are selected, and their queue is not among those that were read.
        let others = self.others + looked.sum(|seen| seen.read).saturating_sub(selected);
        looked
            .unknown
            .map_or(Ok(Self { ready, others, unread, ..self }), |error| Err(DeadLettersError::Register(error)))
    }
}

impl SweptLetters {
    /// Returns the answer of a dry run.
    #[must_use]
    pub fn would_be(verb: Verb, tally: Tally) -> Self {
        Self { verb: verb.name().into(), dry_run: true, letters: Counts::would_be(tally), queues: None }
    }
}

/// The numbers of a command over several queues.
#[derive(Debug, Default)]
pub struct Account {
    /// The letters of all queues.
    pub sum: Tally,
    queues: BTreeMap<String, Counts>,
}

impl Account {
    /// Returns how far the sweep of the next queue goes.
    #[must_use]
    pub fn rest(&self, bounds: Bounds) -> Bounds {
        Bounds { limit: bounds.limit.map(|limit| limit.saturating_sub(self.sum.done)), ..bounds }
    }

    /// Adds a queue whose sweep had these bounds. Says what was not seen of it.
    pub fn add(&mut self, queue: &LetterQueue, bounds: Bounds, swept: &Swept) -> Vec<String> {
        let Swept { tally, consumers, error, .. } = swept;
        self.sum.add(*tally);
        // The letters of a missing queue are not known, unless it was deleted meanwhile.
        if error.is_none() || tally.ready > 0 {
            self.queues.insert(queue.name.clone(), Counts::done(*tally));
        }
        // The limit has stopped it: the rest was not to be read.
        if bounds.limit.is_some_and(|limit| tally.done >= limit) {
            return Vec::new();
        }
        unseen(queue, tally.unread, *consumers)
    }

    /// Whether the letters of no queue are known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the answer of the command.
    #[must_use]
    pub fn answer(self, verb: Verb) -> SweptLetters {
        let (verb, letters) = (verb.name().into(), Counts::done(self.sum));
        SweptLetters { verb, dry_run: false, letters, queues: Some(self.queues) }
    }
}
