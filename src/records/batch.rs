//! Puts the records of one moment together into few messages, because a message costs more than the records in it.

use std::collections::HashMap;

use crate::domain::{
    life_cycle::LifeCycleRecord,
    wire::{Message, Properties, Value},
};

/// The largest body of several records, in bytes.
const LARGEST: usize = 64 * 1024;

/// A record that waits to be published.
pub(super) struct Line {
    routing_key: String,
    /// The value that the broker filters by. Empty for a record of no event.
    filter_value: String,
    json: Vec<u8>,
}

impl From<&LifeCycleRecord> for Line {
    fn from(record: &LifeCycleRecord) -> Self {
        let (routing_key, filter_value) = (record.routing_key(), record.filter_value().to_owned());
        Self { routing_key, filter_value, json: record.body() }
    }
}

/// The records of one routing key that are one message.
pub(super) struct Batch {
    routing_key: String,
    /// `None` if the records have several.
    filter_value: Option<String>,
    body: Vec<u8>,
    pub(super) records: usize,
}

impl Batch {
    /// Returns the message. Without a filter value the broker delivers it to every reader that asks for messages without one too.
    pub(super) fn message(self, exchange: &str) -> Message {
        let filter = self.filter_value.filter(|value| !value.is_empty());
        let headers =
            filter.map(|value| ("x-stream-filter-value".to_owned(), Value::text(&value))).into_iter().collect();
        let content_type = Some("application/x-ndjson".to_owned());
        let properties = Properties { content_type, headers, ..Properties::default() };
        Message { exchange: exchange.to_owned(), routing_key: self.routing_key, properties, body: self.body.into() }
    }

    fn add(&mut self, line: &Line) {
        if self.filter_value.as_ref() != Some(&line.filter_value) {
            self.filter_value = None;
        }
        self.body.push(b'\n');
        self.body.extend(&line.json);
        self.records += 1;
    }
}

impl From<Line> for Batch {
    fn from(line: Line) -> Self {
        let Line { routing_key, filter_value, json } = line;
        Self { routing_key, filter_value: Some(filter_value), body: json, records: 1 }
    }
}

/// Returns the messages in the order in which they are published. The records of one event, or of one reference, stay in their order.
pub(super) fn batches(lines: impl IntoIterator<Item = Line>) -> Vec<Batch> {
    let mut batches = Vec::<Batch>::new();
    // The last batch of a routing key, and the last one with a record of an event.
    let (mut of_key, mut of_event) = (HashMap::<String, usize>::new(), HashMap::<String, usize>::new());
    for line in lines {
        let earliest = of_event.get(&line.filter_value).copied().unwrap_or_default();
        let open = of_key.get(&line.routing_key).copied().filter(|batch| *batch >= earliest);
        let has_room = |batch: &usize| batches[*batch].body.len() + line.json.len() < LARGEST;
        let batch = open.filter(has_room).unwrap_or(batches.len());
        of_event.insert(line.filter_value.clone(), batch);
        if let Some(batch) = batches.get_mut(batch) {
            batch.add(&line);
        } else {
            of_key.insert(line.routing_key.clone(), batch);
            batches.push(line.into());
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        let (routing_key, filter_value) = text.split_once(' ').expect("a routing key and an event");
        Line { routing_key: routing_key.to_owned(), filter_value: filter_value.to_owned(), json: text.into() }
    }

    /// Returns the routing key, the filter value and the lines of each message.
    fn messages(lines: &[&str]) -> Vec<String> {
        let batches = batches(lines.iter().map(|text| line(text)));
        let message = |batch: Batch| {
            let records = batch.records;
            let Message { routing_key, properties, body, .. } = batch.message("t.life-cycle");
            let filter = properties.headers.iter().find(|(name, _)| *name == "x-stream-filter-value");
            let filter = filter.and_then(|(_, value)| value.as_str()).unwrap_or("-").to_owned();
            let lines: Vec<_> = body.split(|byte| *byte == b'\n').map(String::from_utf8_lossy).collect();
            assert_eq!(lines.len(), records);
            assert!(lines.iter().all(|line| line.starts_with(&routing_key)), "{lines:?}");
            let events: Vec<_> = lines.iter().map(|line| line.rsplit(' ').next().unwrap_or_default()).collect();
            format!("{routing_key} {filter}: {}", events.join(" "))
        };
        batches.into_iter().map(message).collect()
    }

    #[test]
    fn records_of_one_routing_key_are_one_message() {
        let lines = ["mail.started a", "mail.started b", "mail.done a", "post.done c", "mail.done b"];
        assert_eq!(messages(&lines), ["mail.started -: a b", "mail.done -: a b", "post.done c: c"]);
    }

    #[test]
    fn records_of_one_event_keep_their_order_and_its_filter_value() {
        let lines = ["mail.done z", "mail.started a", "mail.done a", "mail.done b", "mail.started a", "mail.started c"];
        let expected = ["mail.done z: z", "mail.started a: a", "mail.done -: a b", "mail.started -: a c"];
        assert_eq!(messages(&lines), expected);
        assert_eq!(messages(&["mail.failed a", "mail.failed a"]), ["mail.failed a: a a"]);
        assert_eq!(messages(&[".paused ", ".paused "]), [".paused -:  "]);
    }

    #[test]
    fn a_message_does_not_grow_without_end() {
        let long = format!("mail.failed {}", "a".repeat(30_000));
        let batches = batches([&long; 5].map(|text| line(text)));
        assert_eq!(batches.iter().map(|batch| batch.records).collect::<Vec<_>>(), [2, 2, 1]);
    }
}
