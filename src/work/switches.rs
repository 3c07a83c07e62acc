//! The switches of the topology in this worker: which of its types and sources people have paused.
//!
//! `switch_reader` follows the stream, and sets the [`Switch`] of each type and source. Until a snapshot has been read all are held:
//! what is not known may be paused. Then the last snapshot counts until the next one, also while the broker is away.
//! `docs/pause-protocol.md` has the rules.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use metrics::{Gauge, gauge};
use tokio::sync::watch;

use super::cause::Cause;
use crate::{
    domain::{
        switches::{Name, Pause, Paused, PausedBy, Switches},
        words::{EventType, Word, plain},
    },
    meter,
};

/// The switch of one type or source.
#[derive(Clone, Debug)]
pub(super) struct Switch(watch::Receiver<Option<Cause>>);

impl Switch {
    /// Returns why nothing may start, if that is so. [`changed`](Self::changed) waits for what comes after.
    pub(super) fn look(&mut self) -> Option<Cause> {
        self.0.borrow_and_update().clone()
    }

    /// Waits until the switch changes.
    pub(super) async fn changed(&mut self) {
        // The sender lives as long as the worker.
        _ = self.0.changed().await;
    }

    /// Whether nothing may start.
    pub(super) fn is_off(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Whether somebody has paused the type or source.
    pub(super) fn is_paused(&self) -> bool {
        matches!(*self.0.borrow(), Some(Cause::Paused(_)))
    }

    /// Waits until the switches are read.
    pub(super) async fn read(&self) {
        _ = self.0.clone().wait_for(|held| !matches!(held, Some(Cause::SwitchesUnread(_)))).await;
    }

    /// Waits until nothing may start.
    pub(super) async fn off(&self) {
        _ = self.0.clone().wait_for(Option::is_some).await;
    }

    /// Waits until something may start.
    pub(super) async fn on(&self) {
        _ = self.0.clone().wait_for(Option::is_none).await;
    }
}

/// The switches of a worker's types and sources, and those of the schedules.
#[derive(Default)]
pub(super) struct Switchboard {
    lines: Mutex<Vec<Line>>,
    /// The last snapshot, if it can be read.
    last: Mutex<Option<Arc<Switches>>>,
}

/// A type or a source on the board.
struct Line {
    of: Paused,
    held: watch::Sender<Option<Cause>>,
    gauge: Gauge,
}

impl Switchboard {
    /// Returns the switch of a type.
    pub(super) fn of(&self, event_type: &EventType) -> Switch {
        let gauge = gauge!(meter::PAUSED, "type" => event_type.to_string());
        self.add(Paused::Type(Name(event_type.clone())), gauge)
    }

    /// Returns the switch of a source.
    pub(super) fn of_source(&self, source: &Word) -> Switch {
        let gauge = gauge!(meter::SOURCE_PAUSED, "source" => source.to_string());
        self.add(Paused::Source(Name(source.clone())), gauge)
    }

    fn add(&self, of: Paused, gauge: Gauge) -> Switch {
        let held = Known::default().held(&of, Timestamp::MIN);
        gauge.set(0.0);
        let (held, switch) = watch::channel(held);
        self.lines().push(Line { of, held, gauge });
        Switch(switch)
    }

    /// Returns the names of what is paused; empty if nothing is.
    pub(super) fn paused(&self) -> String {
        let lines = self.lines();
        let paused = lines.iter().filter(|line| matches!(*line.held.borrow(), Some(Cause::Paused(_))));
        paused.map(|line| line.of.to_string()).collect::<Vec<_>>().join(", ")
    }

    /// Whether anything is held.
    pub(super) fn is_any_off(&self) -> bool {
        self.lines().iter().any(|line| line.held.borrow().is_some())
    }

    /// Sets the switches by the text of a snapshot.
    #[cfg(test)]
    pub(super) fn set_by(&self, text: &str) {
        let mut known = Known::default();
        known.take(text.as_bytes());
        self.set(&known, Timestamp::UNIX_EPOCH);
    }

    /// Returns the pause of a schedule, if it is paused. The outer `None` says that the switches are not read.
    #[allow(clippy::option_option, reason = "not read and not paused are two things")]
    pub(super) fn of_schedule(&self, schedule: &Word, now: Timestamp) -> Option<Option<Pause>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        Some(last.paused(&Paused::Schedule(Name(schedule.clone())), now).cloned())
    }

    pub(super) fn set(&self, known: &Known, now: Timestamp) {
        let last = known.last.clone().filter(|_| known.unread.is_none());
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = last;
        self.lines().iter().for_each(|line| line.set(known.held(&line.of, now)));
    }

    fn lines(&self) -> MutexGuard<'_, Vec<Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn set(&self, held: Option<Cause>) {
        let before = self.held.send_replace(held.clone());
        if before == held {
            return;
        }
        let of = &self.of;
        match (before, held) {
            (_, Some(Cause::Paused(pause))) => {
                self.gauge.set(1.0);
                tracing::info!("{of} paused{}", words(&pause));
            }
            (Some(Cause::Paused(_)), None) => {
                self.gauge.set(0.0);
                tracing::info!("{of} resumed");
            }
            _ => self.gauge.set(0.0),
        }
    }
}

fn words(pause: &Pause) -> String {
    let by = if pause.by == PausedBy::File { " by topology.yaml" } else { "" };
    let until = pause.until.map_or_else(String::new, |until| format!(" until {until}"));
    format!("{by}{until}: {}", plain(&pause.reason))
}

/// The last snapshot, and whether it counts.
#[derive(Clone)]
pub(super) struct Known {
    /// The last snapshot.
    last: Option<Arc<Switches>>,
    /// Why the last snapshot cannot be used.
    pub(super) unread: Option<Arc<str>>,
}

impl Default for Known {
    fn default() -> Self {
        Self { last: None, unread: Some("they are not read yet".into()) }
    }
}

impl Known {
    /// Takes a message of the stream. Returns whether that changes anything.
    pub(super) fn take(&mut self, text: &[u8]) -> bool {
        match Switches::read(text) {
            // Read anew; or a writer that knew less than this worker.
            Ok(switches) if self.last.as_ref().is_some_and(|last| switches.number <= last.number) => false,
            Ok(switches) => {
                *self = Self { last: Some(Arc::new(switches)), unread: None };
                true
            }
            Err(error) => self.note_unreadable(&error.to_string()),
        }
    }

    /// Notes that the switches cannot be read. Returns whether that changes anything.
    pub(super) fn note_unreadable(&mut self, why: &str) -> bool {
        let is_new = self.unread.as_deref() != Some(why);
        self.unread = Some(why.into());
        is_new
    }

    fn held(&self, what: &Paused, now: Timestamp) -> Option<Cause> {
        if let Some(why) = &self.unread {
            return Some(Cause::SwitchesUnread(Arc::clone(why)));
        }
        let pause = self.last.as_ref()?.paused(what, now)?;
        Some(Cause::Paused(Arc::new(pause.clone())))
    }

    pub(super) fn next_end(&self, now: Timestamp) -> Option<Timestamp> {
        self.last.as_ref()?.next_end(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(number: i64, reason: Option<&str>) -> String {
        let mut switches = Switches { number, pauses: Vec::new() };
        switches.pauses.extend(reason.map(|reason| Pause {
            of: Paused::All,
            by: PausedBy::Person,
            reason: reason.to_owned(),
            since: Timestamp::UNIX_EPOCH,
            until: None,
        }));
        switches.text()
    }

    /// The reason of the pause; `unread` if the switches are not known, and nothing if nothing is paused.
    fn held(known: &Known) -> Option<String> {
        let mail = Paused::Type(Name("mail".parse().expect("a word")));
        match known.held(&mail, Timestamp::UNIX_EPOCH)? {
            Cause::Paused(pause) => Some(pause.reason.clone()),
            _ => Some("unread".to_owned()),
        }
    }

    #[test]
    fn a_worker_that_has_read_nothing_holds_all() {
        let mut known = Known::default();
        assert_eq!(held(&known).as_deref(), Some("unread"));
        assert!(known.take(snapshot(1, None).as_bytes()));
        assert_eq!(held(&known), None);
    }

    #[test]
    fn a_snapshot_counts_if_its_number_is_higher() {
        let mut known = Known::default();
        known.take(snapshot(7, Some("first")).as_bytes());
        assert!(!known.take(snapshot(7, Some("read anew")).as_bytes()));
        assert!(!known.take(snapshot(6, None).as_bytes()));
        assert_eq!(held(&known).as_deref(), Some("first"));
        assert!(known.take(snapshot(8, None).as_bytes()));
        assert_eq!(held(&known), None);
    }

    #[test]
    fn a_word_that_cannot_be_read_holds_all_until_a_later_snapshot() {
        let mut known = Known::default();
        known.take(snapshot(7, None).as_bytes());
        assert!(known.take(b"a newer version's word"));
        assert!(!known.take(b"a newer version's word"), "read anew");
        assert!(!known.take(snapshot(7, None).as_bytes()), "it is before that word");
        assert_eq!(held(&known).as_deref(), Some("unread"));
        assert!(known.take(snapshot(8, None).as_bytes()));
        assert_eq!(held(&known), None);
    }
}
