//! The names of all exchanges, queues and policies, and the routing keys.
//!
//! An object's name tells its owner, its purpose and its TTL.

use super::{
    delay::Ladder,
    ttl::{Ttl, say},
    words::Word,
};

/// The names of one topology's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(Word);

impl Names {
    /// Returns the names for the objects of this topology.
    #[must_use]
    pub const fn new(topology: Word) -> Self {
        Self(topology)
    }

    /// Returns the topology's own name, which every object carries as its owner.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the name of the exchange that publishers publish to.
    #[must_use]
    pub fn scheduler(&self) -> String {
        scheduler(self.owner())
    }

    /// Returns the name of the hatchery that holds events for `ttl`.
    #[must_use]
    pub fn hatchery(&self, ttl: Ttl) -> String {
        format!("{}.hatchery.{ttl}", self.0)
    }

    /// Returns the name of a level's queue, like `billing.ladder.250ms-27.13-34m8s`. The exchange that this queue
    /// dead-letters into has the same name. The level has two digits, so that names sort by the time they tell.
    #[must_use]
    pub fn level(&self, ladder: Ladder, level: u8) -> String {
        let time = say(ladder.hold(level)).replace(' ', "");
        format!("{}.{level:02}-{time}", ladder_named(self.owner(), &ladder.to_string()))
    }

    /// Returns the name of the exchange for due events.
    #[must_use]
    pub fn processor(&self) -> String {
        format!("{}.processor", self.0)
    }

    /// Returns the name of the queue that workers of this type consume.
    #[must_use]
    pub fn processing(&self, event_type: &Word) -> String {
        format!("{}.processor.{event_type}", self.0)
    }

    /// Returns the name of the exchange for failed events.
    #[must_use]
    pub fn retry(&self) -> String {
        format!("{}.retry", self.0)
    }

    /// Returns the name of the queue that holds this type's failed events for `ttl`.
    #[must_use]
    pub fn retrying(&self, event_type: &Word, ttl: Ttl) -> String {
        format!("{}.retry.{event_type}.{ttl}", self.0)
    }

    /// Returns the name of the exchange for events that must run alone. On the broker the quarantine is called `aside`, and keeps
    /// that name for the sake of topologies that are applied.
    #[must_use]
    pub fn quarantine(&self) -> String {
        format!("{}.aside", self.0)
    }

    /// Returns the name of the quarantine queue of a type with `register: off`: it holds events that may have killed their
    /// worker.
    #[must_use]
    pub fn quarantine_queue(&self, event_type: &Word) -> String {
        format!("{}.aside.{event_type}", self.0)
    }

    /// Returns the name of the exchange for events that are given up.
    #[must_use]
    pub fn dead_letter(&self) -> String {
        format!("{}.dead-letter", self.0)
    }

    /// Returns the name of the queue for this type's dead letters.
    #[must_use]
    pub fn dead_letters(&self, event_type: &Word) -> String {
        format!("{}.dead-letter.{event_type}", self.0)
    }

    /// Returns the name of the queue that `apply` declares for a source.
    #[must_use]
    pub fn source(&self, source: &Word) -> String {
        format!("{}.source.{source}", self.0)
    }

    /// Returns the name of the queue for the messages of a source that became no event.
    #[must_use]
    pub fn source_dead_letters(&self, source: &Word) -> String {
        format!("{}.dead-letter.{}", self.0, source_word(source))
    }

    /// Returns the name of the alternate exchange of all other exchanges. Its queue has the same name.
    #[must_use]
    pub fn unrouted(&self) -> String {
        unrouted(self.owner())
    }

    /// Returns the name of the exclusive queue that an `apply` holds while it runs.
    #[must_use]
    pub fn lock(&self) -> String {
        lock(self.owner())
    }

    /// Returns the name of the stream with the switches. The exchange that leads to it has the same name.
    #[must_use]
    pub fn control(&self) -> String {
        control(self.owner())
    }

    /// Returns the name of the exclusive queue that whoever changes the switches holds.
    #[must_use]
    pub fn control_lock(&self) -> String {
        control_lock(self.owner())
    }

    /// Returns the name of the stream that is told what happens to events. The exchange that leads to it and the policy with its retention
    /// have the same name.
    #[must_use]
    pub fn life_cycle(&self) -> String {
        life_cycle(self.owner())
    }

    /// Returns the name of the policy for the settings that may change.
    #[must_use]
    pub fn tunables(&self) -> String {
        tunables(self.owner())
    }
}

/// Tells whether a cluster's name is the name of one of its nodes, like `rabbit@host`. As long as a cluster has no name
/// of its own, each node answers with its own name, so two such names may belong to one broker.
#[must_use]
pub fn is_of_a_node(cluster_name: &str) -> bool {
    cluster_name.contains('@')
}

/// Returns the name of the exclusive queue that is the lock of those who look at a queue.
#[must_use]
#[cfg(feature = "internals")]
pub fn look_lock(queue: &str) -> String {
    format!("{queue}.look")
}

/// Returns the name of this owner's exchange that publishers publish to.
#[must_use]
pub fn scheduler(owner: &str) -> String {
    format!("{owner}.scheduler")
}

/// Returns the name of the exclusive queue that this owner's `apply` holds while it runs.
#[must_use]
pub fn lock(owner: &str) -> String {
    format!("{owner}.lock")
}

/// Returns the name of this owner's stream with the switches.
#[must_use]
pub fn control(owner: &str) -> String {
    format!("{owner}.control")
}

/// Returns the name of the exclusive queue that whoever changes the switches of this owner holds.
#[must_use]
pub fn control_lock(owner: &str) -> String {
    format!("{owner}.control.lock")
}

/// Returns the name of this owner's stream that is told what happens to events.
#[must_use]
pub fn life_cycle(owner: &str) -> String {
    format!("{owner}.life-cycle")
}

/// Returns the names of this owner's streams. They hold no events.
#[must_use]
#[cfg(feature = "internals")]
pub fn streams(owner: &str) -> [String; 2] {
    [control(owner), life_cycle(owner)]
}

/// Returns the names of this owner's policies.
#[must_use]
#[cfg(feature = "internals")]
pub fn policies(owner: &str) -> [String; 2] {
    [tunables(owner), life_cycle(owner)]
}

/// Returns the name of this owner's alternate exchange of all other exchanges. Its queue has the same name.
#[must_use]
pub fn unrouted(owner: &str) -> String {
    format!("{owner}.unrouted")
}

/// The property `product` of every connection of this library.
pub const PRODUCT: &str = "hatchery";

/// The argument of a consumer that takes one event at a time, because its handler is unavailable. Its value is the reason.
pub const UNAVAILABLE: &str = "x-hatchery-unavailable";

/// The beginning of the routing keys that [`register_mark`] makes.
pub const REGISTER: &str = "routes nothing, register: ";

/// Returns the routing key of a binding that records which keys in Redis are the register of this topology, so that a
/// change of them is noticed. The binding is from `unrouted` to its queue and routes nothing that `#` does not route
/// already. Dots in the prefix are escaped, so that the key is one word: a dot would divide it, and a part could be a
/// wildcard.
#[must_use]
pub fn register_mark(prefix: &str, topology: &str, shards: u16) -> String {
    let [prefix, topology] = [prefix, topology].map(|text| text.replace('%', "%25").replace('.', "%2E"));
    format!("{REGISTER}prefix={prefix} name={topology} shards={shards}")
}

/// Returns the name of this owner's policy for the settings that may change.
#[must_use]
pub fn tunables(owner: &str) -> String {
    format!("{owner}.tunables")
}

/// Returns the name of the whole ladder that `word` names in routing keys: `billing.ladder.250ms-27`.
#[must_use]
pub fn ladder_named(owner: &str, word: &str) -> String {
    format!("{owner}.ladder.{word}")
}

/// Returns the routing key of a failed event, for the retry exchange.
#[must_use]
pub fn retry_key(event_type: &Word, ttl: Ttl) -> String {
    format!("{event_type}.{ttl}")
}

/// Returns the routing key of a dead letter.
#[must_use]
pub fn dead_letter_key(event_type: &Word) -> String {
    format!("{event_type}.dead-letter")
}

/// The beginning of the word that stands for a source where a type stands otherwise: `source-hr`. No type may have such a
/// name beside the source.
pub const SOURCE: &str = "source-";

/// Returns the word that stands for a source where a type stands otherwise: `source-hr`.
#[must_use]
pub fn source_word(source: &Word) -> String {
    format!("{SOURCE}{source}")
}

/// Returns the routing key of a message of a source that became no event.
#[must_use]
pub fn source_dead_letter_key(source: &Word) -> String {
    format!("{}.dead-letter", source_word(source))
}

/// Returns the routing key of an event that must run alone.
#[must_use]
pub fn quarantine_key(event_type: &Word) -> String {
    format!("{event_type}.aside")
}

#[cfg(test)]
mod tests {

    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::domain::ttl::{LONGEST, parse_duration};

    fn levels(resolution: Ttl, horizon: Ttl) -> Vec<String> {
        let names = Names::new("billing".parse().expect("a word"));
        let ladder = Ladder::new(resolution, horizon).expect("a ladder");
        (0..ladder.levels()).map(|level| names.level(ladder, level)).collect()
    }

    #[rstest]
    #[case("250ms", "365d", 0, "billing.ladder.250ms-27.00-250ms")]
    #[case("250ms", "365d", 9, "billing.ladder.250ms-27.09-2m8s")]
    #[case("250ms", "365d", 13, "billing.ladder.250ms-27.13-34m8s")]
    #[case("250ms", "365d", 26, "billing.ladder.250ms-27.26-194d4h20m16s")]
    #[case("1s", "3s", 1, "billing.ladder.1s-2.01-2s")]
    #[case("300ms", "2s", 2, "billing.ladder.300ms-3.02-1s200ms")]
    #[case("1ms", "3650d", 38, "billing.ladder.1ms-39.38-3181d10h58m26s944ms")]
    fn a_level_tells_its_place_and_its_time(
        #[case] resolution: Ttl,
        #[case] horizon: Ttl,
        #[case] level: usize,
        #[case] name: &str,
    ) {
        assert_eq!(levels(resolution, horizon)[level], name);
    }

    proptest! {
        /// RabbitMQ's management UI sorts queues by their names as text.
        #[test]
        fn the_levels_of_any_ladder_sort_by_their_time(
            resolution in 1_u64..100_000,
            steps in 1_u64..1 << 38,
        ) {
            let horizon = resolution.saturating_mul(steps).min(u64::try_from(LONGEST.as_millis()).expect("ten years in ms"));
            let [resolution, horizon] = [resolution, horizon].map(Ttl::from_millis);
            let Ok(ladder) = Ladder::new(resolution, horizon) else { return Ok(()) };
            let names = levels(resolution, horizon);
            prop_assert!(names.is_sorted());
            for (level, name) in (0..).zip(&names) {
                let (_, time) = name.rsplit_once('-').expect("a time");
                prop_assert_eq!(parse_duration(time), Ok(ladder.hold(level)));
                prop_assert!(name.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b)));
            }
        }
    }
}
