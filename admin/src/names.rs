//! The names of objects, and what they tell of an object on the broker.

pub use hatchery::internals::names::*;

/// Returns the text of a [`register_mark`] for people, without its escapes. Returns `None` for any other routing key.
#[must_use]
pub fn marked_register(key: &str) -> Option<String> {
    key.strip_prefix(REGISTER).map(|said| said.replace("%2E", ".").replace("%25", "%"))
}

/// Tells whether two [`register_mark`]s name the same keys in Redis. The number of shards is not compared: registers
/// with the same prefix and name share the keys of their first shards.
#[must_use]
pub fn mark_one_register(one: &str, other: &str) -> bool {
    let keys = |mark: &str| mark.strip_prefix(REGISTER)?.rsplit_once(" shards=").map(|(keys, _)| keys.to_owned());
    keys(one).is_some_and(|one| keys(other) == Some(one))
}

/// Returns the owner of this exchange or queue, if it is an `unrouted` one.
#[must_use]
pub fn owner_of_unrouted(name: &str) -> Option<&str> {
    name.strip_suffix(".unrouted")
}

/// Tells whether this queue is one that this owner's workers consume.
#[must_use]
pub fn is_consumed(owner: &str, queue: &str) -> bool {
    let rest = queue.strip_prefix(owner);
    rest.is_some_and(|rest| [".processor.", ".aside.", ".source."].iter().any(|kind| rest.starts_with(kind)))
}

/// Returns the source of a queue that `apply` declares for one, of any owner.
#[must_use]
pub fn consumed_source(queue: &str) -> Option<&str> {
    let (_, rest) = queue.split_once('.')?;
    rest.strip_prefix("source.")
}

/// Returns the source of a queue for messages that became no event, of any owner. A type whose name begins like one has
/// such a queue too.
#[must_use]
pub fn source_of_dead_letters(queue: &str) -> Option<&str> {
    let (_, rest) = queue.split_once('.')?;
    rest.strip_prefix("dead-letter.")?.strip_prefix(SOURCE)
}

/// Tells whether a queue is a dead-letter queue of one of these owners. The lock of a look is none: its name has another word.
pub fn holds_letters<'o>(mut owners: impl Iterator<Item = &'o str>, queue: &str) -> bool {
    let parts = queue.split_once(".dead-letter.");
    parts.is_some_and(|(owner, of)| !of.contains('.') && owners.any(|known| known == owner))
}

/// Returns the type of a queue that workers consume, of any owner.
#[must_use]
pub fn consumed_type(queue: &str) -> Option<&str> {
    let (_, rest) = queue.split_once('.')?;
    let (kind, event_type) = rest.split_once('.')?;
    matches!(kind, "processor" | "aside").then_some(event_type)
}

/// Returns the processing queue beside this quarantine queue, of any owner. `None` for other queues.
#[must_use]
pub fn processing_beside(quarantine: &str) -> Option<String> {
    let (owner, rest) = quarantine.split_once('.')?;
    Some(format!("{owner}.processor.{}", rest.strip_prefix("aside.")?))
}

/// Tells whether this is the exchange for due events of any owner.
#[must_use]
pub fn is_processor(exchange: &str) -> bool {
    exchange.split_once('.').is_some_and(|(_, kind)| kind == "processor")
}

/// Returns the type of a queue for due events or dead letters, of any owner.
#[must_use]
pub fn type_of(queue: &str) -> Option<&str> {
    let (_, rest) = queue.split_once('.')?;
    let (kind, event_type) = rest.split_once('.')?;
    matches!(kind, "processor" | "dead-letter").then_some(event_type)
}

/// Returns the name of the queue, and of the exchange, that stand in for a queue of this owner during its migration.
#[must_use]
pub fn moving(owner: &str, queue: &str) -> String {
    format!("{owner}.moving.{queue}")
}

/// Returns the queue that a name made by [`moving`] stands in for.
#[must_use]
pub fn moved<'a>(owner: &str, name: &'a str) -> Option<&'a str> {
    name.strip_prefix(owner)?.strip_prefix(".moving.")
}

/// Returns the name of the whole ladder that a level's queue or exchange belongs to, like `billing.ladder.250ms-27`.
#[must_use]
pub fn ladder_of(name: &str) -> Option<&str> {
    let (whole, level) = name.rsplit_once('.')?;
    let (_, word) = whole.split_once(".ladder.")?;
    let (number, _) = level.split_once('-')?;
    (!word.contains('.') && number.parse::<u8>().is_ok()).then_some(whole)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("billing.ladder.250ms-27.00-250ms", Some("billing.ladder.250ms-27"))]
    #[case("billing.ladder.300ms-3.02-1s200ms", Some("billing.ladder.300ms-3"))]
    #[case("billing.hatchery.5m", None)]
    #[case("billing.retry.ladder.1m", None)]
    #[case("billing.ladder.250ms-27", None)]
    #[case("billing.dead-letter.ladder", None)]
    fn a_level_tells_its_ladder(#[case] name: &str, #[case] ladder: Option<&str>) {
        assert_eq!(ladder_of(name), ladder);
    }
}
