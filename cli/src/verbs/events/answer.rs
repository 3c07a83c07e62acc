//! Writes events as JSON: as they are found, or with the result of a change.

use std::{collections::BTreeMap, io};

use hatchery::internals::time::millis_text;
pub(crate) use hatchery_admin::event_view::EventView;
pub(super) use hatchery_admin::event_view::{cancelled, result_of_cancel, result_of_move, view};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{Format, Output};

/// An event, and what a command has made of it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changed {
    #[serde(flatten)]
    event: EventView,
    /// The result in one word; `null` in a dry run, unless the event could not be moved.
    result: Option<&'static str>,
    /// Why the event stays as it was.
    why: Option<String>,
    /// The due time before the event was moved.
    was_due: Option<String>,
}

/// The result of a command that changes events.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changes {
    /// The command: `cancel`, `reschedule` or `run-now`.
    verb: &'static str,
    /// Whether nothing was changed.
    dry_run: bool,
    /// The number of events.
    found: u64,
    /// The number of events by result.
    results: BTreeMap<&'static str, u64>,
    /// The first of the events.
    events: Vec<Changed>,
    /// Whether there are more events than these.
    more: bool,
}

/// How many events of a filter one JSON document holds. There may be millions; `-o ndjson` has a line for each.
pub(super) const SHOWN: usize = 20;

/// The results of a verb on events. Every verb has the same JSON, for named and for found events, and for a dry run.
pub(super) struct Answers {
    verb: &'static str,
    dry_run: bool,
    /// How many events the document holds at most.
    most: usize,
    output: Output,
    found: u64,
    results: BTreeMap<&'static str, u64>,
    events: Vec<Changed>,
    /// The error of the first answer that could not be written. It does not stop the verb half-way.
    unwritten: Option<io::Error>,
}

/// The result for one event.
#[derive(Default)]
pub(super) struct Became {
    /// The result in one word; none in a dry run, unless the event could not be moved.
    pub(super) result: Option<&'static str>,
    /// The reason why the event stays as it was.
    pub(super) why: Option<String>,
    /// The event's new due time.
    pub(super) due: Option<Timestamp>,
}

impl Answers {
    pub(super) fn new(verb: &'static str, dry_run: bool, most: usize, output: Output) -> Self {
        let (results, events) = (BTreeMap::new(), Vec::new());
        Self { verb, dry_run, most, output, found: 0, results, events, unwritten: None }
    }

    /// Adds the result for one event that was found. With `-o ndjson` writes it at once.
    pub(super) fn add(&mut self, event: EventView, became: Became) {
        self.found += 1;
        self.answer(event, became);
    }

    /// Adds the result for a name that matched no event, and whose cancel is remembered.
    pub(super) fn remember(&mut self, name: EventView) {
        self.answer(name, Became { result: Some("remembered"), ..Became::default() });
    }

    fn answer(&mut self, event: EventView, became: Became) {
        if let Some(result) = became.result {
            *self.results.entry(result).or_default() += 1;
        }
        if self.output.is_text() {
            return;
        }
        let mut event = Changed { event, result: became.result, why: became.why, was_due: None };
        if let Some(due) = became.due {
            event.was_due = event.event.due.replace(millis_text(due));
        }
        if self.output.format == Format::Ndjson {
            if let Err(error) = self.output.json(&event) {
                self.unwritten.get_or_insert(error);
            }
        } else if self.events.len() < self.most {
            self.events.push(event);
        }
    }

    /// Writes the document with `-o json`. Returns the first error of writing any answer.
    pub(super) fn end(self) -> io::Result<()> {
        if self.output.format == Format::Json {
            let more = self.found > u64::try_from(self.events.len()).unwrap_or(u64::MAX);
            self.output.json(&Changes {
                verb: self.verb,
                dry_run: self.dry_run,
                found: self.found,
                results: self.results,
                events: self.events,
                more,
            })?;
        }
        self.unwritten.map_or(Ok(()), Err)
    }
}
