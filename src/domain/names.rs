//! The names of everything on the broker. An object's name says whose it is, what it is for, and its TTL.

use super::{delay::Ladder, ttl::Ttl, words::Word};

/// The names of one topology's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names(Word);

impl Names {
    /// The names of the topology with this name.
    #[must_use]
    pub const fn new(topology: Word) -> Self {
        Self(topology)
    }

    /// The topology's own name, which is the owner written on every object.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.0.as_str()
    }

    /// The exchange that takes everything that is published.
    #[must_use]
    pub fn scheduler(&self) -> String {
        scheduler(self.owner())
    }

    /// The queue that holds an event for this long.
    #[must_use]
    pub fn hatchery(&self, ttl: Ttl) -> String {
        format!("{}.hatchery.{ttl}", self.0)
    }

    /// The queue of a level of the ladder, and the exchange that it dead-letters into.
    #[must_use]
    pub fn ladder(&self, ladder: Ladder, level: u8) -> String {
        ladder_level(self.owner(), &ladder.to_string(), level)
    }

    /// The exchange that takes what is due.
    #[must_use]
    pub fn processor(&self) -> String {
        format!("{}.processor", self.0)
    }

    /// The queue that workers of a type consume.
    #[must_use]
    pub fn processing(&self, event_type: &Word) -> String {
        format!("{}.processor.{event_type}", self.0)
    }

    /// The exchange that takes failed events.
    #[must_use]
    pub fn retry(&self) -> String {
        format!("{}.retry", self.0)
    }

    /// The queue that holds a type's failed events for this long.
    #[must_use]
    pub fn retrying(&self, event_type: &Word, ttl: Ttl) -> String {
        format!("{}.retry.{event_type}.{ttl}", self.0)
    }

    /// The exchange that takes what is to run by itself.
    #[must_use]
    pub fn aside(&self) -> String {
        format!("{}.aside", self.0)
    }

    /// The queue of what may have killed its worker, of a type with `register: off`.
    #[must_use]
    pub fn put_aside(&self, event_type: &Word) -> String {
        format!("{}.aside.{event_type}", self.0)
    }

    /// The exchange that takes what is given up.
    #[must_use]
    pub fn dead_letter(&self) -> String {
        format!("{}.dead-letter", self.0)
    }

    /// The queue of a type's dead letters.
    #[must_use]
    pub fn dead_letters(&self, event_type: &Word) -> String {
        format!("{}.dead-letter.{event_type}", self.0)
    }

    /// The alternate exchange of all the others, and its queue.
    #[must_use]
    pub fn unrouted(&self) -> String {
        unrouted(self.owner())
    }

    /// The exclusive queue that an `apply` holds while it runs.
    #[must_use]
    pub fn lock(&self) -> String {
        lock(self.owner())
    }

    /// The policy for what may change.
    #[must_use]
    pub fn tunables(&self) -> String {
        tunables(self.owner())
    }
}

/// Whether a cluster's name is that of one of its nodes, `rabbit@host`. Until somebody names the cluster each of its nodes says its own,
/// so two of those may be of one broker.
#[must_use]
pub fn is_of_a_node(cluster_name: &str) -> bool {
    cluster_name.contains('@')
}

/// This owner's exchange that takes everything that is published.
#[must_use]
pub fn scheduler(owner: &str) -> String {
    format!("{owner}.scheduler")
}

/// The exclusive queue that this owner's `apply` holds while it runs.
#[must_use]
pub fn lock(owner: &str) -> String {
    format!("{owner}.lock")
}

/// This owner's alternate exchange of all the others, and its queue.
#[must_use]
pub fn unrouted(owner: &str) -> String {
    format!("{owner}.unrouted")
}

/// How the key of a binding begins that only says which keys in Redis are this topology's register.
const REGISTER: &str = "x-hatchery-register ";

/// The key of a binding from `unrouted` to its queue that routes nothing which `#` does not route already. It says which keys
/// in Redis are the register, so that a change of them is seen. One word: a dot in the prefix would divide it, and a word of it
/// could be a wildcard.
#[must_use]
pub fn register_mark(prefix: &str, topology: &str, shards: u16) -> String {
    let [prefix, topology] = [prefix, topology].map(|text| text.replace('%', "%25").replace('.', "%2E"));
    format!("{REGISTER}prefix={prefix} name={topology} shards={shards}")
}

/// What such a key says, for people.
#[must_use]
pub fn marked_register(key: &str) -> Option<String> {
    key.strip_prefix(REGISTER).map(|said| said.replace("%2E", ".").replace("%25", "%"))
}

/// Whether two such keys name the same keys in Redis. The number of shards does not tell registers apart: those with the same prefix and
/// name share the keys of their first shards.
#[must_use]
pub fn mark_one_register(one: &str, other: &str) -> bool {
    let keys = |mark: &str| mark.strip_prefix(REGISTER)?.rsplit_once(" shards=").map(|(keys, _)| keys.to_owned());
    keys(one).is_some_and(|one| keys(other) == Some(one))
}

/// The owner of such an exchange or queue `unrouted`.
#[must_use]
pub fn owner_of_unrouted(name: &str) -> Option<&str> {
    name.strip_suffix(".unrouted")
}

/// This owner's policy for what may change.
#[must_use]
pub fn tunables(owner: &str) -> String {
    format!("{owner}.tunables")
}

/// Whether workers consume this queue of this owner.
#[must_use]
pub fn is_consumed(owner: &str, queue: &str) -> bool {
    let rest = queue.strip_prefix(owner);
    rest.is_some_and(|rest| [".processor.", ".aside."].iter().any(|kind| rest.starts_with(kind)))
}

/// Whether this is the exchange of some owner that takes what is due.
#[must_use]
pub fn is_processor(exchange: &str) -> bool {
    exchange.split_once('.').is_some_and(|(_, kind)| kind == "processor")
}

/// The type whose due events, or whose dead letters, are in this queue of some owner.
#[must_use]
pub fn type_of(queue: &str) -> Option<&str> {
    let (_, rest) = queue.split_once('.')?;
    let (kind, event_type) = rest.split_once('.')?;
    matches!(kind, "processor" | "dead-letter").then_some(event_type)
}

/// The queue and the exchange that stand in for a queue of this owner while it is migrated.
#[must_use]
pub fn moving(owner: &str, queue: &str) -> String {
    format!("{owner}.moving.{queue}")
}

/// The queue that such a name stands in for.
#[must_use]
pub fn moved<'a>(owner: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(owner)?.strip_prefix(".moving.")
}

/// The queue of a level of the ladder with this word, like `250ms-27`.
#[must_use]
pub fn ladder_level(owner: &str, word: &str, level: u8) -> String {
    format!("{owner}.ladder.{word}.{level}")
}

/// The name of the whole ladder that a level's queue or exchange belongs to: `billing.ladder.250ms-27`.
#[must_use]
pub fn ladder_of(name: &str) -> Option<&str> {
    let (whole, level) = name.rsplit_once('.')?;
    let (_, word) = whole.split_once(".ladder.")?;
    (!word.contains('.') && level.parse::<u8>().is_ok()).then_some(whole)
}

/// The routing key of a failed event, for the retry exchange.
#[must_use]
pub fn retry_key(event_type: &Word, ttl: Ttl) -> String {
    format!("{event_type}.{ttl}")
}

/// The routing key of a dead letter.
#[must_use]
pub fn dead_letter_key(event_type: &Word) -> String {
    format!("{event_type}.dead-letter")
}

/// The routing key of what is to run by itself.
#[must_use]
pub fn aside_key(event_type: &Word) -> String {
    format!("{event_type}.aside")
}
