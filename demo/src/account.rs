//! Accounts for every event by the publishes that were confirmed, the lines that handlers wrote and the messages in the
//! queues.
//!
//! The register and the workers' own counts are not used, because they are what the demo tests. The functions are pure.

use std::collections::{BTreeMap, BTreeSet};

/// An event whose publish was confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) id: String,
    /// The event's origin, for messages.
    pub(crate) label: String,
    /// The slot in which the event competes. A later event of the same slot replaces it; an event without a slot
    /// competes with no other.
    pub(crate) slot: Option<String>,
    pub(crate) fate: Fate,
    /// The checksum of the payload, as `cksum` prints it.
    pub(crate) checksum: u32,
    /// Whether it was published without hatchery.
    pub(crate) raw: bool,
    /// Whether it cannot be decoded as an event, so that no handler ever sees it.
    pub(crate) poison: bool,
}

/// The state in which an event must end, unless a newer one replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Handled,
    DeadLettered,
    Waiting,
}

/// One run, as its handler wrote it down.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) event_type: String,
    pub(crate) attempts: u32,
    pub(crate) outcome: Outcome,
    pub(crate) checksum: u32,
    /// The name of the worker process.
    pub(crate) worker: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// The event is retried.
    Failed,
    /// The event can never work.
    Dead,
}

/// A message in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) queue: String,
    /// Whether the queue is a dead-letter queue.
    pub(crate) dead_letter: bool,
}

/// The state in which an event was found. Each event is in exactly one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum FoundState {
    /// A handler finished it, and got exactly the payload that was published.
    Handled,
    DeadLettered,
    /// The event is in another queue.
    Waiting,
    /// The event was not found, but a newer event of its slot is in one of the states above.
    Coalesced,
    Lost,
}

/// The whole account.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// The states of the events, in the order of publishing; `None` is lost.
    pub(crate) states: Vec<Option<FoundState>>,
    /// The number of events that ran again after a failure.
    pub(crate) retried: usize,
    /// The ids of events that were finished more than once.
    pub(crate) twice: BTreeSet<String>,
    /// The number of slots with due events, and the number of those whose last event was handled or dead-lettered.
    pub(crate) last: (usize, usize),
    /// The faults that the account has found, for people. If there are none, all is well.
    pub(crate) off: Vec<String>,
}

impl Account {
    /// Takes the account. `published` is in the order of publishing; events that are not in it belong to others and are
    /// ignored. `killed` is the worker that was killed: an event that it ran may run again.
    pub(crate) fn take(published: &[Published], runs: &[Run], found: &[Found], killed: &str) -> Self {
        let runs = by_id(runs, |run| &run.id);
        let found = by_id(found, |found| &found.id);
        let runs_of = |event: &Published| runs.get(event.id.as_str()).map_or(&[][..], Vec::as_slice);
        let done = |event: &Published| -> Vec<&Run> {
            let right = |run: &&&Run| run.outcome == Outcome::Done && run.checksum == event.checksum;
            runs_of(event).iter().filter(right).copied().collect()
        };

        let itself = |event: &Published| {
            let queues = found.get(event.id.as_str()).map_or(&[][..], Vec::as_slice);
            match () {
                () if !done(event).is_empty() => Some(FoundState::Handled),
                () if queues.iter().any(|found| found.dead_letter) => Some(FoundState::DeadLettered),
                () if !queues.is_empty() => Some(FoundState::Waiting),
                () => None,
            }
        };
        let mut account = Self { states: published.iter().map(itself).collect(), ..Self::default() };
        account.replace(published);
        account.last_of_each_slot(published);

        for (event, state) in published.iter().zip(&account.states) {
            let state = state.unwrap_or(FoundState::Lost);
            if !fits(event.fate, state) {
                let queues: BTreeSet<&str> =
                    found.get(event.id.as_str()).into_iter().flatten().map(|found| found.queue.as_str()).collect();
                account.off.push(describe(event, state, &queues));
            }
            if runs_of(event).iter().any(|run| run.attempts > 0) {
                account.retried += 1;
            }
            let ends = done(event);
            if ends.len() > 1 {
                account.twice.insert(event.id.clone());
                if ends.iter().all(|run| run.worker != killed) {
                    account
                        .off
                        .push(format!("{} ({}) ran twice, although its worker was not killed", event.id, event.label));
                }
            }
        }
        account
    }

    /// Returns how many events are in this state.
    pub(crate) fn count(&self, state: FoundState) -> usize {
        self.states.iter().filter(|have| have.unwrap_or(FoundState::Lost) == state).count()
    }

    /// Marks events as coalesced. An event that was not found was replaced if a newer event of its slot was found. An
    /// old copy that is still in a timer, and will be dropped when it is delivered, counts as replaced too. Only an
    /// event that must still wait has to be found itself.
    fn replace(&mut self, published: &[Published]) {
        let mut newer = BTreeSet::new();
        for (event, state) in published.iter().zip(&mut self.states).rev() {
            let Some(slot) = &event.slot else { continue };
            let stale = state.is_none() || (*state == Some(FoundState::Waiting) && event.fate != Fate::Waiting);
            let itself = state.is_some();
            if stale && newer.contains(slot) {
                *state = Some(FoundState::Coalesced);
            }
            if itself {
                newer.insert(slot.clone());
            }
        }
    }

    fn last_of_each_slot(&mut self, published: &[Published]) {
        let slots: BTreeMap<&String, (Fate, Option<FoundState>)> = published
            .iter()
            .zip(&self.states)
            .filter_map(|(event, state)| Some((event.slot.as_ref()?, (event.fate, *state))))
            .collect();
        let due = slots.values().filter(|(fate, _)| *fate != Fate::Waiting);
        let settled = |(_, state): &&(Fate, Option<FoundState>)| {
            matches!(state, Some(FoundState::Handled | FoundState::DeadLettered))
        };
        self.last = (due.clone().count(), due.filter(settled).count());
        if self.last.0 != self.last.1 {
            self.off.push(format!(
                "{} employees have a last payload that is due, but only {} of these were handled or are in dead-letter",
                self.last.0, self.last.1
            ));
        }
    }
}

fn by_id<T>(items: &[T], id: impl Fn(&T) -> &str) -> BTreeMap<String, Vec<&T>> {
    let mut map: BTreeMap<String, Vec<&T>> = BTreeMap::new();
    for item in items {
        map.entry(id(item).to_owned()).or_default().push(item);
    }
    map
}

fn fits(fate: Fate, state: FoundState) -> bool {
    match fate {
        _ if state == FoundState::Coalesced => true,
        Fate::Handled => state == FoundState::Handled,
        Fate::DeadLettered => state == FoundState::DeadLettered,
        Fate::Waiting => state == FoundState::Waiting,
    }
}

fn describe(event: &Published, state: FoundState, queues: &BTreeSet<&str>) -> String {
    let Published { id, label, fate, .. } = event;
    let must = match fate {
        Fate::Handled => "handled",
        Fate::DeadLettered => "in dead-letter",
        Fate::Waiting => "waiting",
    };
    let queues: Vec<&str> = queues.iter().copied().collect();
    match state {
        FoundState::Lost => format!("LOST {id} ({label})"),
        FoundState::Handled => format!("{id} ({label}) was handled; it must be {must}"),
        _ => format!("{id} ({label}) is in {}; it must be {must}", queues.join(", ")),
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
