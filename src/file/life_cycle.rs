//! Builds the key `life-cycle` from its checked section.

use super::{
    keys::{KEEP, LIFE_CYCLE, MAX_SIZE, TOLD},
    levels::LIFE_CYCLE_LEVEL,
    section::Section,
};
use crate::domain::life_cycle::LifeCycle;

/// Returns the key `life-cycle`, or `None` if a value of it was refused.
pub(super) fn spec(top: &Section) -> Option<LifeCycle> {
    // A short form sets `events` alone, and so does the default.
    let said = Section { short: false, ..top.get(&LIFE_CYCLE)?.clone() };
    let section = said.over(&Section::of_table(&LIFE_CYCLE_LEVEL));
    Some(LifeCycle {
        events: section.get(&TOLD).copied()?,
        keep: section.get(&KEEP).copied()?,
        max_size: section.get(&MAX_SIZE).copied()?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;
    use crate::domain::life_cycle::Told;

    #[rstest]
    #[case::default("", Told::Failures, 7 * 86_400, 1 << 30)]
    #[case::empty("life-cycle: {}", Told::Failures, 7 * 86_400, 1 << 30)]
    #[case::short("life-cycle: all", Told::All, 7 * 86_400, 1 << 30)]
    #[case::off("life-cycle: off", Told::Off, 7 * 86_400, 1 << 30)]
    #[case::a_boolean("life-cycle: false", Told::Off, 7 * 86_400, 1 << 30)]
    #[case::off_in_the_map("life-cycle: { events: off, keep: 1d }", Told::Off, 86_400, 1 << 30)]
    #[case::some("life-cycle: { max-size: 10MiB }", Told::Failures, 7 * 86_400, 10 << 20)]
    #[case::all("life-cycle: { events: all, keep: 30d, max-size: 1024GiB }", Told::All, 30 * 86_400, 1 << 40)]
    #[case::a_number("life-cycle: { max-size: 20000000 }", Told::Failures, 7 * 86_400, 20_000_000)]
    fn a_key_that_is_not_set_has_its_default(
        #[case] key: &str,
        #[case] events: Told,
        #[case] keep: u64,
        #[case] max_size: u64,
    ) {
        let text = format!("version: 1\nname: t\ntypes: {{ mail: {{}} }}\n{key}\n");
        let topology = crate::file::read(&text, "topology.yaml").expect("valid");
        assert_eq!(topology.life_cycle, LifeCycle { events, keep: Duration::from_secs(keep), max_size });
    }
}
