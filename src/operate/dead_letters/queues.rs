//! The letters of a topology, and the queues that hold them.

use std::{fmt, sync::Arc};

use crate::{
    domain::{
        names::Names,
        words::{EventType, UnknownType},
    },
    operate::shared::{Events, Shared},
};

/// The letters of a topology.
#[derive(Clone)]
pub struct DeadLetters {
    pub(super) shared: Arc<Shared>,
}

/// A queue that people read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterQueue {
    /// The name of the queue.
    pub name: String,
    /// The type of its letters; `None` for `unrouted`.
    pub event_type: Option<EventType>,
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters").field("topology", &self.shared.topology.name).finish_non_exhaustive()
    }
}

impl Events {
    /// Returns the letters of the topology.
    #[doc(hidden)]
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters {
        DeadLetters { shared: Arc::clone(&self.shared) }
    }
}

impl DeadLetters {
    /// Returns the dead-letter queues of these types; without a type those of all types.
    ///
    /// # Errors
    /// If the file has no such type.
    pub fn queues(&self, types: &[String]) -> Result<Vec<LetterQueue>, UnknownType> {
        let topology = &self.shared.topology;
        let names = Names::new(topology.name.clone());
        let queue = |event_type: &EventType| LetterQueue {
            name: names.dead_letters(event_type),
            event_type: Some(event_type.clone()),
        };
        if types.is_empty() {
            return Ok(topology.types.keys().map(queue).collect());
        }
        let known = |name: &String| match topology.types.get_key_value(name.as_str()) {
            Some((event_type, _)) => Ok(queue(event_type)),
            None => Err(UnknownType::among(name, topology.types.keys())),
        };
        types.iter().map(known).collect()
    }

    /// Returns the queue of the messages that no queue has taken.
    #[must_use]
    pub fn unrouted(&self) -> LetterQueue {
        LetterQueue { name: Names::new(self.shared.topology.name.clone()).unrouted(), event_type: None }
    }
}
