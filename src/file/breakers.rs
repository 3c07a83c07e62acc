//! Builds the circuit breakers from the checked sections, and checks them.

use super::{
    error::quote,
    keys::{BREAKER, COOLDOWN, ERRORS, MINIMUM, NOTIFY, PROBES, REGISTER, RULE_TYPE, RegisterWord, WINDOW},
    levels::BREAKER_LEVEL,
    schedules::known_type,
    section::{Named, Reader, Section},
};
use crate::domain::{
    breaker::{BreakerSpec, Errors},
    words::EventType,
};

/// Returns the map `breaker` of a type with the values of the keys that it does not set. `None` if the type has no breaker.
fn section(of_type: &Section) -> Option<Section> {
    let breaker = of_type.get(&BREAKER).filter(|breaker| !breaker.short)?;
    Some(breaker.clone().over(&Section::of_table(&BREAKER_LEVEL)))
}

/// Returns the breaker of a type.
pub(super) fn spec(of_type: &Section) -> Option<BreakerSpec> {
    let section = section(of_type)?;
    let errors = match *section.get(&ERRORS)? {
        Errors::Share { thousandths, .. } => Errors::Share { thousandths, minimum: *section.get(&MINIMUM)? },
        count @ Errors::Count(_) => count,
    };
    Some(BreakerSpec {
        errors,
        window: *section.get(&WINDOW)?,
        cooldown: section.get(&COOLDOWN).copied(),
        probes: u32::try_from(*section.get(&PROBES)?).ok()?,
    })
}

/// Returns the type whose events tell of a breaker.
pub(super) fn notify(top: &Section) -> Option<EventType> {
    top.get(&NOTIFY)?.get(&RULE_TYPE)?.parse().ok()
}

/// Reports every conflict between the keys of breakers, and with their types. `types` are the types with their defaults.
pub(super) fn check(reader: &mut Reader<'_>, top: &Section, types: &[(&Named, Section)]) {
    for (_, of_type) in types {
        manual(reader, of_type);
        minimum(reader, of_type);
    }
    told(reader, top, types);
}

/// A breaker without the register is each worker's own, and nobody can close it from outside.
fn manual(reader: &mut Reader<'_>, of_type: &Section) -> Option<()> {
    let section = section(of_type)?;
    let is_manual =
        section.says(COOLDOWN.name) && section.get(&COOLDOWN).is_none() && !section.is_refused(COOLDOWN.name);
    if is_manual && of_type.get(&REGISTER) == Some(&RegisterWord::Off) {
        let (_, span) = section.blame(&[COOLDOWN.name])?;
        let message = "`cooldown: manual` needs the register, and this type says `register: off`";
        reader.refuse(&span, message, "write a time like `cooldown: 1m`, or switch the register on");
    }
    Some(())
}

fn minimum(reader: &mut Reader<'_>, of_type: &Section) -> Option<()> {
    let section = section(of_type)?;
    if let (Errors::Count(_), true) = (*section.get(&ERRORS)?, section.is_own(MINIMUM.name)) {
        let (_, span) = section.blame(&[MINIMUM.name])?;
        let message = "`minimum` does nothing here: `errors` is a number, and no part of the runs";
        reader.refuse(&span, message, "remove `minimum`, or write a part like `errors: 50%`");
    }
    Some(())
}

/// The event that tells of a breaker is of a type of the file, which no breaker may hold.
fn told(reader: &mut Reader<'_>, top: &Section, types: &[(&Named, Section)]) -> Option<()> {
    let (name, span, of_type) = known_type(reader, top.get(&NOTIFY)?, types)?;
    if section(of_type).is_some() {
        let message = format!("the type {} has a breaker, which could hold what tells of it", quote(name));
        reader.refuse(&span, message, format!("write `breaker: off` in the type {}, or another type", quote(name)));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rstest::rstest;

    use super::*;

    fn breaker(defaults: &str, own: &str) -> Option<BreakerSpec> {
        let text = format!("version: 1\nname: t\ndefaults: {{ {defaults} }}\ntypes: {{ mail: {{ {own} }} }}\n");
        crate::file::read(&text, "topology.yaml").expect("valid").types["mail"].breaker.clone()
    }

    const fn of(errors: Errors, window: u64, cooldown: Option<u64>, probes: u32) -> BreakerSpec {
        let cooldown = match cooldown {
            Some(seconds) => Some(Duration::from_secs(seconds)),
            None => None,
        };
        BreakerSpec { errors, window: Duration::from_secs(window), cooldown, probes }
    }

    #[rstest]
    #[case::none("", "", None)]
    #[case::off("breaker: {}", "breaker: off", None)]
    #[case::defaults("", "breaker: {}", Some(of(Errors::Count(100), 30, Some(60), 5)))]
    #[case::on_again("breaker: off", "breaker: {}", Some(of(Errors::Count(100), 30, Some(60), 5)))]
    #[case::key_by_key(
        "breaker: { errors: 7, probes: 1 }",
        "breaker: { window: 10s, probes: 2 }",
        Some(of(Errors::Count(7), 10, Some(60), 2))
    )]
    #[case::a_part("", "breaker: { errors: 12.5% }", Some(of(Errors::Share { thousandths: 125, minimum: 20 }, 30, Some(60), 5)))]
    #[case::of_many_runs("breaker: { minimum: 9 }", "breaker: { errors: 50% }", Some(of(Errors::Share { thousandths: 500, minimum: 9 }, 30, Some(60), 5)))]
    #[case::a_person("", "breaker: { cooldown: manual }", Some(of(Errors::Count(100), 30, None, 5)))]
    #[case::a_time_again(
        "breaker: { cooldown: manual }",
        "breaker: { cooldown: 1h }",
        Some(of(Errors::Count(100), 30, Some(3_600), 5))
    )]
    fn a_breaker_has_the_keys_of_its_type_and_of_the_defaults(
        #[case] defaults: &str,
        #[case] own: &str,
        #[case] expected: Option<BreakerSpec>,
    ) {
        assert_eq!(breaker(defaults, own), expected);
    }
}
