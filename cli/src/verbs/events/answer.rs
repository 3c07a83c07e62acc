//! Writes events as JSON: as they are found, or with the result of a change.

use std::{borrow::Cow, collections::BTreeMap, io};

use hatchery_admin::batch::ChangedEvents;
pub(crate) use hatchery_admin::event_view::{ChangedEvent, EventView};
pub(super) use hatchery_admin::event_view::{result_of_cancel, result_of_move, view};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::output::{Format, Output};

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
    results: BTreeMap<Cow<'static, str>, u64>,
    /// The first of the events.
    events: Vec<ChangedEvent>,
    /// Whether there are more events than these.
    more: bool,
}

/// How many events of a filter one JSON document holds. There may be millions; `-o ndjson` has a line for each.
pub(super) const SHOWN: usize = 20;

/// The results of a verb on events that a filter finds.
pub(super) struct Answers {
    verb: &'static str,
    dry_run: bool,
    output: Output,
    found: u64,
    results: BTreeMap<Cow<'static, str>, u64>,
    events: Vec<ChangedEvent>,
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
    pub(super) fn new(verb: &'static str, dry_run: bool, output: Output) -> Self {
        let (results, events) = (BTreeMap::new(), Vec::new());
        Self { verb, dry_run, output, found: 0, results, events, unwritten: None }
    }

    /// Adds the result for one event that was found. With `-o ndjson` writes it at once.
    pub(super) fn add(&mut self, event: EventView, became: Became) {
        self.found += 1;
        if let Some(result) = became.result {
            *self.results.entry(result.into()).or_default() += 1;
        }
        if self.output.is_text() {
            return;
        }
        let event = ChangedEvent::new(event, became.result, became.why, became.due);
        if self.output.format == Format::Ndjson {
            if let Err(error) = self.output.json(&event) {
                self.unwritten.get_or_insert(error);
            }
        } else if self.events.len() < SHOWN {
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

/// Writes what became of events that were named, as JSON.
pub(super) fn named(verb: &'static str, changed: ChangedEvents, output: Output) -> io::Result<()> {
    let ChangedEvents { results, ids: _, events } = changed;
    match output.format {
        Format::Text => Ok(()),
        Format::Json => {
            // A name that matched no event, and whose cancel is remembered, is none.
            let found = events.iter().filter(|event| event.result.as_deref() != Some("remembered")).count();
            let found = u64::try_from(found).unwrap_or(u64::MAX);
            output.json(&Changes { verb, dry_run: false, found, results, events, more: false })
        }
        Format::Ndjson => events.iter().try_for_each(|event| output.json(event)),
    }
}
