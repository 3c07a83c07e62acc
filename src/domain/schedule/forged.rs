//! Events that are no schedule's, although their id or their header says so.
//!
//! The register knows an event by its id. If such an event ran, the schedule's own event with that id would count as handled, and its
//! instant would be left out.

use std::collections::BTreeMap;

use super::{
    definition::Definition,
    link::{Link, Named},
};
use crate::domain::{event::Event, words::Word};

/// Returns the name of the schedule whose event this is not, although its id or its header says so. Where the file has another definition
/// than the event, only the id can be judged.
#[must_use]
pub fn forged<'a>(event: &'a Event, schedules: &'a BTreeMap<Word, Definition>) -> Option<&'a Word> {
    if let Some(link) = event.schedule.as_deref().filter(|link| !link.is_extra) {
        let definition = schedules.get(&link.schedule).filter(|definition| definition.digest() == link.digest);
        let is_its_own =
            link.id() == event.id && definition.is_none_or(|definition| publishes(definition, event, link));
        return (!is_its_own).then_some(&link.schedule);
    }
    let (name, Named::Instant(_) | Named::Number(_)) = Named::read(&event.id)? else { return None };
    // The register tells the ids of two types apart.
    let (name, definition) = schedules.get_key_value(name)?;
    (definition.event_type == event.event_type).then_some(name)
}

/// Tells whether an event with this link has what the definition says.
fn publishes(definition: &Definition, event: &Event, link: &Link) -> bool {
    let Definition { name: _, event_type, reference, payload, rule, paused: _ } = definition;
    (event_type, reference, payload, rule) == (&event.event_type, &event.reference, &event.payload, &link.rule)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use rstest::rstest;

    use super::*;
    use crate::domain::schedule::{rule::Arm, template::Template};

    const FILE: &str = "
version: 1
name: t
types: { mail: {}, import: {} }
schedules:
  nightly: { type: mail, cron: \"0 3 * * *\", payload: { full: true } }
  poll: { type: mail, every: 5m }
";

    fn schedules() -> BTreeMap<Word, Definition> {
        crate::file::read(FILE, "topology.yaml").expect("a valid file").schedules
    }

    fn of(name: &str) -> Event {
        let at = 1_780_282_800_000;
        Template::of(&schedules()[name]).event(Arm { position: at, due: at }, Timestamp::UNIX_EPOCH)
    }

    fn plain(id: &str) -> Event {
        Event { id: id.to_owned(), schedule: None, ..of("nightly") }
    }

    fn linked(change: impl FnOnce(&mut Link)) -> Event {
        let mut event = of("nightly");
        change(std::sync::Arc::make_mut(event.schedule.as_mut().expect("a link")));
        event
    }

    #[rstest]
    #[case::of_an_instant(of("nightly"), None)]
    #[case::of_a_number(of("poll"), None)]
    #[case::a_plain_event(plain("0197c5e2"), None)]
    #[case::the_id_of_an_instant(plain("nightly@2026-06-01T03:00:00Z"), Some("nightly"))]
    #[case::the_id_of_a_number(plain("poll#1780282800000"), Some("poll"))]
    #[case::the_id_of_no_schedule(plain("order#1780282800000"), None)]
    #[case::the_id_of_a_backfill(plain("nightly!2026-06-01T03:00:00Z"), None)]
    #[case::another_type(Event { event_type: "import".parse().expect("a word"), ..plain("poll#17") }, None)]
    #[case::another_id(Event { id: "mine".to_owned(), ..of("nightly") }, Some("nightly"))]
    #[case::another_instant(linked(|link| link.position += 1_000), Some("nightly"))]
    #[case::another_payload(Event { payload: "{}".into(), ..of("nightly") }, Some("nightly"))]
    #[case::another_reference(Event { reference: "1".parse().ok(), ..of("nightly") }, Some("nightly"))]
    #[case::another_rule(linked(|link| link.rule.catch_up = crate::domain::schedule::rule::CatchUp::All), Some("nightly"))]
    #[case::by_hand_with_the_id_of_an_instant(linked(|link| link.is_extra = true), Some("nightly"))]
    // A worker may have the former file, and the state in Redis tells which definition is valid.
    #[case::another_definition(linked(|link| link.digest = "former".to_owned()), None)]
    fn an_event_that_only_looks_like_one_of_a_schedule_is_found(#[case] event: Event, #[case] schedule: Option<&str>) {
        assert_eq!(forged(&event, &schedules()).map(Word::as_str), schedule);
    }

    #[test]
    fn an_event_by_hand_is_one_of_its_schedule() {
        let now = Timestamp::UNIX_EPOCH;
        let arm = Arm { position: 0, due: 0 };
        for id in ["nightly!2026-06-01T03:00:00Z", "nightly!0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11"] {
            let event = Template::of(&schedules()["nightly"]).extra(id.to_owned(), arm, now);
            assert_eq!(forged(&event, &schedules()), None);
        }
    }
}
