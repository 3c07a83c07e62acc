//! The letters of a topology, and the queues that hold them.

use hatchery::{
    EventType, Events, UnknownType, Word,
    internals::names::{self, Names},
};

/// The letters of a topology.
#[derive(Clone, Debug)]
pub struct DeadLetters(pub Events);

/// A queue that people read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterQueue {
    /// The name of the queue.
    pub name: String,
    /// The type of its letters; `None` for `unrouted` and for the letters of a source.
    pub event_type: Option<EventType>,
    /// The source of its letters, which are foreign messages and no events.
    pub source: Option<Word>,
}

impl DeadLetters {
    /// Returns the dead-letter queues of these types; without a type those of all types and sources. A source is named like a
    /// type, `source-hr`.
    ///
    /// # Errors
    /// If the file has no such type.
    pub fn queues(&self, types: &[String]) -> Result<Vec<LetterQueue>, UnknownType> {
        let topology = &self.0.shared.topology;
        let names = Names::new(topology.name.clone());
        let queue = |event_type: &EventType| LetterQueue {
            name: names.dead_letters(event_type),
            event_type: Some(event_type.clone()),
            source: None,
        };
        let of_source = |source: &Word| LetterQueue {
            name: names.source_dead_letters(source),
            event_type: None,
            source: Some(source.clone()),
        };
        if types.is_empty() {
            return Ok(topology.types.keys().map(queue).chain(topology.sources.keys().map(of_source)).collect());
        }
        let source = |name: &str| topology.sources.keys().find(|source| names::source_word(source) == name);
        let known = |name: &String| match (topology.types.get_key_value(name.as_str()), source(name)) {
            (Some((event_type, _)), _) => Ok(queue(event_type)),
            (None, Some(source)) => Ok(of_source(source)),
            (None, None) => {
                let of_sources = topology.sources.keys().map(names::source_word);
                Err(UnknownType::among(name, topology.types.keys().map(EventType::to_string).chain(of_sources)))
            }
        };
        types.iter().map(known).collect()
    }

    /// Returns the queue of the messages that no queue has taken.
    #[must_use]
    pub fn unrouted(&self) -> LetterQueue {
        LetterQueue { name: Names::new(self.0.shared.topology.name.clone()).unrouted(), event_type: None, source: None }
    }
}
