//! The letters of a topology, and the queues that hold them.

use hatchery::{
    EventType, Events, Topology, UnknownType, Word,
    internals::{compile::Desired, names::Names},
};

use crate::{
    live::{Observed, is_labelled},
    names,
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
    /// Whether the file does not ask for the queue.
    pub is_leftover: bool,
}

impl LetterQueue {
    /// Returns the dead-letter queues on the broker that the file does not ask for. Letters under a former name are of the type with the
    /// present one. The others are of no type: they can be looked at and discarded, and not replayed.
    #[must_use]
    pub fn leftovers(topology: &Topology, desired: &Desired, observed: &Observed) -> Vec<Self> {
        let names = Names::new(topology.name.clone());
        let leftover = observed.queues.iter().filter(|live| {
            names::holds_letters(desired.owners(), &live.name)
                && desired.queues.iter().all(|wanted| wanted.name != live.name)
                && is_labelled(desired, &live.arguments)
        });
        let renamed_to =
            |queue: &str| desired.renames.iter().find(|rename| rename.from == queue).map(|rename| &rename.to);
        let of = |name: &String| {
            let now = renamed_to(name);
            let event_type = topology.types.keys().find(|known| Some(&names.dead_letters(known)) == now).cloned();
            let source = topology.sources.keys().find(|known| Some(&names.source_dead_letters(known)) == now).cloned();
            Self { name: name.clone(), event_type, source, is_leftover: true }
        };
        leftover.map(|live| of(&live.name)).collect()
    }

    /// Returns the word of a type or source that the file no longer has, under no name.
    #[must_use]
    pub fn left_file(&self) -> Option<&str> {
        let is_known = self.event_type.is_some() || self.source.is_some();
        if self.is_leftover && !is_known { names::type_of(&self.name) } else { None }
    }

    /// Tells whether the queue has this name of a type, or of a source that is named like one, or is of it.
    fn is_of(&self, word: &str) -> bool {
        names::type_of(&self.name) == Some(word)
            || self.event_type.as_ref().is_some_and(|event_type| event_type.as_str() == word)
            || self.source.as_ref().is_some_and(|source| names::source_word(source) == word)
    }
}

impl DeadLetters {
    /// Returns the dead-letter queues of these types; without a type those of all types and sources. A source is named like a
    /// type, `source-hr`. The [`leftovers`](LetterQueue::leftovers) are among them.
    ///
    /// # Errors
    /// If neither the file nor a leftover has such a type.
    pub fn queues(&self, types: &[String], leftovers: Vec<LetterQueue>) -> Result<Vec<LetterQueue>, UnknownType> {
        let topology = &self.0.shared.topology;
        let names = Names::new(topology.name.clone());
        let of_types = topology.types.keys().map(|event_type| LetterQueue {
            name: names.dead_letters(event_type),
            event_type: Some(event_type.clone()),
            source: None,
            is_leftover: false,
        });
        let of_sources = topology.sources.keys().map(|source| LetterQueue {
            name: names.source_dead_letters(source),
            event_type: None,
            source: Some(source.clone()),
            is_leftover: false,
        });
        let mut queues: Vec<LetterQueue> = of_types.chain(of_sources).chain(leftovers).collect();
        if let Some(unknown) = types.iter().find(|name| !queues.iter().any(|queue| queue.is_of(name))) {
            let known = queues.iter().filter_map(|queue| names::type_of(&queue.name)).map(str::to_owned);
            return Err(UnknownType::among(unknown, known));
        }
        queues.retain(|queue| types.is_empty() || types.iter().any(|name| queue.is_of(name)));
        Ok(queues)
    }

    /// Returns the queue of the messages that no queue has taken.
    #[must_use]
    pub fn unrouted(&self) -> LetterQueue {
        let name = Names::new(self.0.shared.topology.name.clone()).unrouted();
        LetterQueue { name, event_type: None, source: None, is_leftover: false }
    }
}

#[cfg(test)]
mod tests {
    use hatchery::internals::compile::compile;

    use super::*;

    fn read(types: &str) -> (Topology, Desired) {
        let topology = hatchery::file::read(&format!("version: 1\nname: billing\n{types}"), "topology.yaml");
        let topology = topology.expect("a valid file");
        let desired = compile(&topology).expect("safe");
        (topology, desired)
    }

    #[test]
    fn the_letters_of_a_former_name_are_of_the_present_type_and_those_of_a_removed_one_of_none() {
        let source = |name: &str| format!("sources: {{ {name}: {{ declare: on, events: [ {{ type: mail }} ] }} }}\n");
        let (_, before) = read(&format!("types: {{ post: {{}}, fax: {{}}, mail: {{}} }}\n{}", source("till")));
        let (topology, now) =
            read(&format!("types: {{ letter: {{ renamed-from: post }}, mail: {{}} }}\n{}", source("hr")));
        let mut observed = Observed::from(&before);
        // Somebody else's queue whose name is like ours.
        let foreign = observed.queues.iter().find(|live| live.name == "billing.dead-letter.fax").cloned();
        let mut foreign = foreign.expect("it is there");
        foreign.name = "billing.dead-letter.foreign".to_owned();
        foreign.arguments.clear();
        observed.queues.push(foreign);
        let mut found = LetterQueue::leftovers(&topology, &now, &observed);
        found.sort_by(|one, other| one.name.cmp(&other.name));
        let told: Vec<_> =
            found.iter().map(|queue| (queue.event_type.as_ref().map(EventType::as_str), queue.left_file())).collect();
        assert_eq!(told, [(None, Some("fax")), (Some("letter"), None), (None, Some("source-till"))]);
        assert!(found[1].is_of("post") && found[1].is_of("letter") && !found[1].is_of("mail"));
    }
}
