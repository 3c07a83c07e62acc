//! Writes events as JSON: as they are found, or with the result of a change.

use std::{collections::BTreeMap, io};

use hatchery::{
    Cancelled, EventInfo,
    internals::{register::DedupSlot, time::millis_text},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::output::{Format, Output};

/// Returns an event as JSON. Times have milliseconds, as on the wire.
pub(super) fn view(event: &EventInfo) -> Value {
    json!({
        "type": event.event_type.as_str(),
        "reference": event.reference.as_ref().map(ToString::to_string),
        "id": event.id,
        "slot": event.slot.to_string(),
        "state": event.state.as_str(),
        "running": event.running,
        "due": event.due.map(millis_text),
        "attempts": event.attempts,
        "reason": event.reason,
        "error": event.error(),
        "version": event.copy.as_ref().map(|copy| copy.version).filter(|version| *version > 0),
        "generation": event.copy.as_ref().map(|copy| copy.generation),
    })
}

/// Returns a slot that was cancelled by name as JSON. It has the same keys as [`view`], but less is known of it.
pub(super) fn cancelled(
    event_type: &str,
    reference: Option<&str>,
    id: Option<&str>,
    slot: Option<&Cancelled>,
) -> Value {
    let due = slot.and_then(|slot| match slot.slot {
        DedupSlot::DatedAt(ms) | DedupSlot::RequeuedAt(ms) => Timestamp::from_millisecond(ms).ok(),
        _ => None,
    });
    let id = match slot.map(|slot| &slot.slot) {
        Some(DedupSlot::Event(id)) => Some(id.as_str()),
        _ => id,
    };
    json!({
        "type": event_type,
        "reference": reference,
        "id": id,
        "slot": slot.map(|slot| slot.slot.to_string()),
        "state": slot.map(|slot| if slot.running { "running" } else { "waiting" }),
        "running": slot.is_some_and(|slot| slot.running),
        "due": due.map(millis_text),
        "attempts": null,
        "reason": null,
        "error": null,
        "version": null,
        "generation": null,
    })
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
    events: Vec<Value>,
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
    pub(super) fn add(&mut self, event: Value, became: Became) {
        self.found += 1;
        self.answer(event, became);
    }

    /// Adds the result for a name that matched no event, and whose cancel is remembered.
    pub(super) fn remember(&mut self, name: Value) {
        self.answer(name, Became { result: Some("remembered"), ..Became::default() });
    }

    fn answer(&mut self, mut event: Value, became: Became) {
        if let Some(result) = became.result {
            *self.results.entry(result).or_default() += 1;
        }
        if self.output.is_text() {
            return;
        }
        event["result"] = became.result.into();
        event["why"] = became.why.into();
        event["was_due"] = Value::Null;
        if let Some(due) = became.due {
            event["was_due"] = event["due"].take();
            event["due"] = millis_text(due).into();
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
            self.output.json(&json!({
                "verb": self.verb,
                "dry_run": self.dry_run,
                "found": self.found,
                "results": self.results,
                "events": self.events,
                "more": more,
            }))?;
        }
        self.unwritten.map_or(Ok(()), Err)
    }
}
