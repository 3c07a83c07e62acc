//! The words about a change of the file.

use std::collections::BTreeMap;

use hatchery::{EventType, Topology};
use hatchery_admin::{PauseChange, ScheduleChanges};

use crate::besides::{Armed, PlannedPause};

/// Returns a line for each type and source that is new, other, or gone. `waiting` counts what waits of a type.
pub(super) fn lines(before: &Topology, after: &Topology, waiting: impl Fn(&EventType) -> usize) -> String {
    let gone = |name: &EventType| match waiting(name) {
        0 => String::new(),
        1 => ": 1 event waits until the type is back".to_owned(),
        count => format!(": {count} events wait until the type is back"),
    };
    differences("type", &before.types, &after.types, gone)
        + &differences("source", &before.sources, &after.sources, |_| String::new())
}

fn differences<K: Ord + std::fmt::Display, V: PartialEq>(
    what: &str,
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    gone: impl Fn(&K) -> String,
) -> String {
    let changed = after.iter().filter_map(|(name, spec)| match before.get(name) {
        None => Some(format!("+ {what} {name}\n")),
        Some(was) if was != spec => Some(format!("~ {what} {name}\n")),
        Some(_) => None,
    });
    let removed = before.keys().filter(|name| !after.contains_key(*name));
    changed.chain(removed.map(|name| format!("- {what} {name}{}\n", gone(name)))).collect()
}

/// Returns a line for each schedule and pause that has changed.
pub(super) fn armed(schedules: ScheduleChanges, pauses: &[PauseChange]) -> String {
    let schedules = schedules.into_iter().filter_map(|change| Armed::of(change).line());
    pauses.iter().map(|change| PlannedPause::of(change).line()).chain(schedules).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_type_by_type() {
        let topology = |types: &str| {
            hatchery::file::read(&format!("{{ version: 1, name: t, types: {types} }}"), "topology.yaml").expect("valid")
        };
        let before = topology("{ a: {}, b: {}, c: {}, d: {} }");
        let after = topology("{ a: {}, b: { retry: { delays: [1s] } }, e: {} }");
        let told = lines(&before, &after, |name| usize::from(name.as_str() == "d"));
        assert_eq!(told, "~ type b\n+ type e\n- type c\n- type d: 1 event waits until the type is back\n");
        assert_eq!(lines(&after, &after, |_| 1), "");
    }
}
