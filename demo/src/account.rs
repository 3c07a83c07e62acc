//! The account, taken from the outside: what was confirmed, what the handlers wrote, and what lies in the queues.
//!
//! Pure: neither the register nor a worker's own counts are asked, for they are what is being tried.

use std::collections::{BTreeMap, BTreeSet};

/// An event whose publish was confirmed.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    pub(crate) id: String,
    /// For people: where it came from.
    pub(crate) label: String,
    /// What it competes with. A later one of the same slot is newer and replaces it; `None` competes with nothing.
    pub(crate) slot: Option<String>,
    pub(crate) fate: Fate,
    /// Of its payload, as `cksum` prints it.
    pub(crate) checksum: u32,
    /// Not published with hatchery.
    pub(crate) raw: bool,
    /// No event at all, so no handler ever sees it.
    pub(crate) poison: bool,
}

/// What must become of an event, unless a newer one replaces it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Handled,
    DeadLettered,
    Waiting,
}

/// What a handler wrote about one run.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) event_type: String,
    pub(crate) attempts: u32,
    pub(crate) outcome: Outcome,
    pub(crate) checksum: u32,
    /// Which worker process ran it.
    pub(crate) worker: String,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// To be tried again.
    Failed,
    /// It will never work.
    Dead,
}

/// A message in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) id: String,
    pub(crate) queue: String,
    /// The queue is one of dead letters.
    pub(crate) dead_letter: bool,
}

/// What became of an event. Each is in exactly one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// A handler did it to the end, and had the very payload that was published.
    Handled,
    DeadLettered,
    /// In another queue.
    Waiting,
    /// Nowhere itself, but a newer one of its slot is in one of the states above.
    Coalesced,
    Lost,
}

/// The whole account.
#[derive(Debug, Default)]
pub(crate) struct Account {
    /// In the order of publishing.
    pub(crate) states: Vec<Option<State>>,
    /// Tried again after a failure.
    pub(crate) retried: usize,
    /// Done to the end more than once.
    pub(crate) twice: BTreeSet<String>,
    /// Slots, and how many of them have their last event handled or in dead-letter.
    pub(crate) last: (usize, usize),
    /// Every number that is not as it must be, for people. Empty: all is well.
    pub(crate) off: Vec<String>,
}

impl Account {
    /// Takes the account. `published` is in the order of publishing; ids that are not in it are other people's.
    /// `killed` is the worker that was killed: what it ran may run again.
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
                () if !done(event).is_empty() => Some(State::Handled),
                () if queues.iter().any(|found| found.dead_letter) => Some(State::DeadLettered),
                () if !queues.is_empty() => Some(State::Waiting),
                () => None,
            }
        };
        let mut account = Self { states: published.iter().map(itself).collect(), ..Self::default() };
        account.replace(published);
        account.last_of_each_slot(published);

        for (event, state) in published.iter().zip(&account.states) {
            let state = state.unwrap_or(State::Lost);
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
                    account.off.push(format!("{} ({}) ran twice, and no worker died of it", event.id, event.label));
                }
            }
        }
        account
    }

    /// How many are in this state.
    pub(crate) fn count(&self, state: State) -> usize {
        self.states.iter().filter(|have| have.unwrap_or(State::Lost) == state).count()
    }

    /// Who is nowhere was replaced if a newer one of its slot is somewhere. An old copy that still lies in a timer,
    /// to be dropped when it comes out, counts as replaced too; only of what has to wait every copy counts by itself.
    fn replace(&mut self, published: &[Published]) {
        let mut newer = BTreeSet::new();
        for (event, state) in published.iter().zip(&mut self.states).rev() {
            let Some(slot) = &event.slot else { continue };
            let stale = state.is_none() || (*state == Some(State::Waiting) && event.fate != Fate::Waiting);
            let itself = state.is_some();
            if stale && newer.contains(slot) {
                *state = Some(State::Coalesced);
            }
            if itself {
                newer.insert(slot.clone());
            }
        }
    }

    fn last_of_each_slot(&mut self, published: &[Published]) {
        let slots: BTreeMap<&String, (Fate, Option<State>)> = published
            .iter()
            .zip(&self.states)
            .filter_map(|(event, state)| Some((event.slot.as_ref()?, (event.fate, *state))))
            .collect();
        let due = slots.values().filter(|(fate, _)| *fate != Fate::Waiting);
        let settled = |(_, state): &&(Fate, Option<State>)| matches!(state, Some(State::Handled | State::DeadLettered));
        self.last = (due.clone().count(), due.filter(settled).count());
        if self.last.0 != self.last.1 {
            self.off.push(format!(
                "of {} employees' last payloads {} were handled or are in dead-letter",
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

fn fits(fate: Fate, state: State) -> bool {
    match fate {
        _ if state == State::Coalesced => true,
        Fate::Handled => state == State::Handled,
        Fate::DeadLettered => state == State::DeadLettered,
        Fate::Waiting => state == State::Waiting,
    }
}

fn describe(event: &Published, state: State, queues: &BTreeSet<&str>) -> String {
    let Published { id, label, fate, .. } = event;
    let must = match fate {
        Fate::Handled => "handled",
        Fate::DeadLettered => "in dead-letter",
        Fate::Waiting => "waiting",
    };
    let queues: Vec<&str> = queues.iter().copied().collect();
    match state {
        State::Lost => format!("LOST {id} ({label})"),
        State::Handled => format!("{id} ({label}) was handled; it must be {must}"),
        _ => format!("{id} ({label}) is in {}; it must be {must}", queues.join(", ")),
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
