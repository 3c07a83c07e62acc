//! The set of events that were handled. A side is done when all were, and fails if one is missing.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use hatchery::Event;
use hatchery_soak::runs::Runs;
use jiff::Timestamp;
use lapin::{message::Delivery, types::AMQPValue};
use tokio::{
    sync::{Notify, SetOnce},
    time::timeout,
};

/// The events that one side has handled, by their numbers. An event's number is its id, or its reference if it has an id that
/// the library made.
pub(crate) struct Handled {
    awaited: Range<u32>,
    /// A bit for each awaited event.
    seen: Vec<AtomicU64>,
    distinct: AtomicU32,
    runs: AtomicU32,
    strangers: AtomicU32,
    first: Notify,
    /// When the last awaited event was handled.
    all_at: SetOnce<Instant>,
    notes: Option<Runs>,
}

impl Handled {
    /// Awaits the events with these numbers. The runs of events with lower numbers are only counted.
    pub(crate) fn awaiting(awaited: Range<u32>) -> Self {
        Self {
            seen: awaited.clone().step_by(64).map(|_| AtomicU64::default()).collect(),
            awaited,
            distinct: AtomicU32::default(),
            runs: AtomicU32::default(),
            strangers: AtomicU32::default(),
            first: Notify::new(),
            all_at: SetOnce::new(),
            notes: None,
        }
    }

    /// Awaits this many events.
    pub(crate) fn all(events: u32) -> Arc<Self> {
        Arc::new(Self::awaiting(0..events))
    }

    /// Notes the times of all runs.
    pub(crate) fn noting(self, notes: Runs) -> Self {
        Self { notes: Some(notes), ..self }
    }

    /// Marks an event that the library's handler got. Returns whether all awaited events have been handled.
    pub(crate) fn event(&self, event: &Event) -> bool {
        let number = event.id.parse().ok().or_else(|| event.reference.as_ref()?.as_str().parse().ok());
        if let (Some(notes), Some(number)) = (&self.notes, number) {
            let created = event.created_at.as_microsecond();
            notes.push(number, created, event.nbf.map_or(created, Timestamp::as_microsecond));
        }
        self.mark(number)
    }

    /// Marks an event that a bare consumer got. Returns whether all awaited events have been handled.
    pub(crate) fn delivery(&self, delivery: &Delivery) -> bool {
        let id = delivery.properties.message_id().as_ref().and_then(|id| id.as_str().parse().ok());
        let number = id.or_else(|| text(delivery, "reference")?.parse().ok());
        if let (Some(notes), Some(number)) = (&self.notes, number) {
            let time = |name| text(delivery, name)?.parse().ok().map(Timestamp::as_microsecond);
            let created = time("created_at").unwrap_or_default();
            notes.push(number, created, time("nbf").unwrap_or(created));
        }
        self.mark(number)
    }

    fn mark(&self, number: Option<u32>) -> bool {
        if self.runs.fetch_add(1, Relaxed) == 0 {
            self.first.notify_one();
        }
        let Some(number) = number.filter(|number| *number < self.awaited.end) else {
            self.strangers.fetch_add(1, Relaxed);
            return false;
        };
        let Some(place) = number.checked_sub(self.awaited.start) else { return false };
        let bit = 1 << (place % 64);
        let word = self.seen.get(place as usize / 64);
        let is_new = word.is_some_and(|word| word.fetch_or(bit, Relaxed) & bit == 0);
        let distinct = self.distinct.fetch_add(is_new.into(), Relaxed) + u32::from(is_new);
        let all = distinct as usize == self.awaited.len();
        if all {
            // An event that is handled again does not move it.
            let _ = self.all_at.set(Instant::now());
        }
        all
    }

    /// Returns when the last awaited event was handled. A worker ends later: it stays connected for a second, in which
    /// RabbitMQ passes the acknowledgements on.
    ///
    /// # Errors
    /// When an event is missing.
    pub(crate) fn all_at(&self) -> anyhow::Result<Instant> {
        self.all_at.get().copied().context("an event was not handled")
    }

    /// Waits until all awaited events are handled.
    pub(crate) async fn all_are(&self) {
        self.all_at.wait().await;
    }

    /// Waits for the first run. Only one task may wait.
    pub(crate) async fn first(&self) {
        self.first.notified().await;
    }

    /// Returns the number of runs, second runs of the same event included.
    pub(crate) fn runs(&self) -> u32 {
        self.runs.load(Relaxed)
    }

    /// Waits for the end of what handles the events.
    ///
    /// # Errors
    /// When it takes longer than the limit, or when it ends although an event is missing.
    pub(crate) async fn by<T>(
        &self,
        limit: Duration,
        handling: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let all = self.awaited.len();
        let Ok(ended) = timeout(limit, handling).await else {
            let distinct = self.distinct.load(Relaxed);
            bail!("only {distinct} of {all} events were handled within {} s", limit.as_secs())
        };
        let (ended, distinct, strangers) = (ended?, self.distinct.load(Relaxed), self.strangers.load(Relaxed));
        ensure!(distinct as usize == all, "only {distinct} of {all} events were handled");
        ensure!(strangers == 0, "{strangers} deliveries are of no event of this round");
        Ok(ended)
    }
}

/// Returns the text of a header.
fn text<'a>(delivery: &'a Delivery, name: &str) -> Option<&'a str> {
    match delivery.properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => std::str::from_utf8(text.as_bytes()).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_handled_when_each_awaited_number_was_marked_once() {
        let handled = Handled::awaiting(70..200);
        let marked: Vec<bool> = [3, 70].into_iter().chain(70..200).map(|number| handled.mark(Some(number))).collect();
        assert_eq!(marked.iter().filter(|all| **all).count(), 1);
        assert_eq!((marked.last(), handled.runs()), (Some(&true), 132));
    }

    #[tokio::test]
    async fn a_missing_event_and_a_stranger_are_errors() {
        let limit = Duration::from_millis(1);
        let handled = Handled::all(2);
        assert!(!handled.mark(Some(1)));
        assert!(handled.by(limit, async { Ok(()) }).await.is_err());
        assert!(handled.by(limit, std::future::pending::<anyhow::Result<()>>()).await.is_err());
        assert!(handled.all_at().is_err());
        assert!(handled.mark(Some(0)));
        let all_at = handled.all_at().unwrap();
        assert!(handled.mark(Some(0)));
        assert_eq!(handled.all_at().unwrap(), all_at, "an event that is handled again does not move it");
        assert!(handled.by(limit, async { Ok(()) }).await.is_ok());
        assert!(!handled.mark(None) && !handled.mark(Some(2)));
        assert!(handled.by(limit, async { Ok(()) }).await.is_err());
    }
}
