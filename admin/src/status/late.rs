//! Looks in the register for the events that have waited longest since they were due.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{FutureExt as _, StreamExt as _, TryStreamExt as _, stream};
use hatchery::{
    EventInfo, EventType, RegisterError, Topology,
    internals::{
        names::Names,
        oldest::{longest_waiting, open_letters},
        ports::Index,
        register::ended_runs::LongestWaiting,
    },
};
use jiff::Timestamp;

use super::{
    observation::{Blind, Observation, ObservedRegister, OverdueEvent},
    silence::longest_run,
    types::{TypeLine, lines},
};

/// The most types that are searched.
const TYPES: usize = 100;

/// How many types are searched at a time.
const AT_A_TIME: usize = 10;

/// The size of a page of the oldest events of a type, and the most pages. The others are dead letters mostly.
const OLDEST: (usize, usize) = (200, 5);

/// Notes for each type when its oldest due event was due, and the events that should have run long ago.
pub(super) async fn look(register: &impl Index, there: &ObservedRegister, topology: &Topology, seen: &mut Observation) {
    let lines: BTreeMap<String, TypeLine> =
        lines(topology, seen).into_iter().map(|line| (line.name.clone(), line)).collect();
    // The index keeps dead letters, which are due for long. So those types come first that have more than these.
    let mut suspects: Vec<(u64, &EventType)> = Vec::new();
    for (name, counts) in &there.counts {
        let dead = lines.get(name.as_str()).and_then(|line| line.dead).unwrap_or_default();
        match counts.due {
            0 => drop(seen.oldest_due.insert(name.clone(), None)),
            due => suspects.push((due.saturating_sub(dead), name)),
        }
    }
    suspects.sort_by(|one, other| other.cmp(one));
    let at = seen.at;
    if suspects.len() > TYPES {
        let why = format!("only the {TYPES} types with the most of them are searched");
        seen.blind.push(Blind::Register { what: "how late the events of some types are", why });
    }
    let look = |name| async move { Ok((name, longest_waiting(register, name, at, OLDEST).await?)) }.boxed();
    let looks: Vec<_> = suspects.into_iter().take(TYPES).map(|(_, name)| look(name)).collect();
    let found: Result<Vec<_>, RegisterError> = stream::iter(looks).buffered(AT_A_TIME).try_collect().await;
    for (name, waiting) in seen.told("how late events are", found).unwrap_or_default() {
        let first = waiting.events.first().and_then(|event| event.due);
        if first.is_some() || !waiting.may_be_more {
            seen.oldest_due.insert(name.clone(), first);
        }
        let usual = usual_wait(topology, name, lines.get(name.as_str()));
        seen.overdue.extend(overdue(waiting, at - usual));
    }
}

/// Notes how many letters of each type are still to be handled.
pub(super) async fn look_at_letters(register: &impl Index, topology: &Topology, seen: &mut Observation) {
    let names = Names::new(topology.name.clone());
    let at = seen.at;
    let registered = topology.types.iter().filter(|(_, spec)| spec.register);
    let full = registered.map(|(name, _)| (name, names.dead_letters(name)));
    let full: Vec<_> = full.filter(|(_, queue)| seen.held([queue.as_str()]).is_some_and(|held| held > 0)).collect();
    let look = |name, queue| async move { Ok((queue, open_letters(register, name, at, OLDEST).await?)) }.boxed();
    let looks: Vec<_> = full.into_iter().take(TYPES).map(|(name, queue)| look(name, queue)).collect();
    let open: Result<Vec<_>, RegisterError> = stream::iter(looks).buffered(AT_A_TIME).try_collect().await;
    let open = seen.told("which dead letters are still to be handled", open).unwrap_or_default().into_iter();
    seen.open_letters = open.filter_map(|(queue, open)| Some((queue, open?))).collect();
}

/// Returns the first event that was due before this time, and how many there are.
fn overdue(LongestWaiting { events, may_be_more }: LongestWaiting, before: Timestamp) -> Option<OverdueEvent> {
    let is_overdue = |event: &EventInfo| event.due.is_some_and(|due| due < before);
    let may_be_more = may_be_more && events.last().is_some_and(is_overdue);
    let mut overdue = events.into_iter().filter(is_overdue);
    let event = overdue.next()?;
    Some(OverdueEvent {
        events: 1 + overdue.count(),
        may_be_more,
        event_type: event.event_type,
        reference: event.reference.as_ref().map(ToString::to_string),
        id: event.id,
        due: event.due?,
    })
}

/// Returns how long an event of this type may usually wait after its due time: as long as the events before it take, at
/// the present rate or if each of them runs as long as it may; a run; and the longest time that a stream of newer events
/// may put it off.
fn usual_wait(topology: &Topology, name: &EventType, line: Option<&TypeLine>) -> Duration {
    const LEAST: Duration = Duration::from_mins(1);
    let Some(spec) = topology.types.get(name) else { return LEAST };
    let window = spec.coalesce.window.map_or(Duration::ZERO, |_| spec.coalesce.max_wait);
    let Some(TypeLine { due: Some(due), out_rate, workers, .. }) = line else {
        return LEAST + longest_run(spec) + window;
    };
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let due = *due as f64;
    // Twice as long as at the present rate, because the rate is that of a few seconds.
    let by_rate = out_rate.filter(|rate| *rate > 0.0).map(|rate| 2.0 * due / rate);
    let handlers = workers.filter(|workers| *workers > 0).and_then(|workers| u32::try_from(workers).ok());
    let handlers = handlers.map(|workers| f64::from(workers) * f64::from(spec.concurrency));
    let by_handlers = handlers.map(|handlers| due * longest_run(spec).as_secs_f64() / handlers);
    let before = by_rate.into_iter().chain(by_handlers).fold(0.0, f64::max);
    let before = Duration::try_from_secs_f64(before).unwrap_or(Duration::MAX);
    LEAST + longest_run(spec) + window + before.min(Duration::from_hours(24))
}

#[cfg(test)]
mod tests {
    use hatchery::internals::register::{
        DedupSlot, Note, Stage, Subject,
        index::{Entry, Shown},
        state::SlotState,
    };
    use jiff::SignedDuration;
    use rstest::rstest;

    use super::*;

    const MINUTE: u64 = 60;
    const RUN: u64 = 30;

    fn mail() -> EventType {
        "mail".parse().expect("a word")
    }

    /// Returns the usual wait of a type with these settings, in seconds.
    fn wait_of(settings: &str, line: Option<&TypeLine>) -> u64 {
        let file = format!("version: 1\nname: billing\ntypes: {{ mail: {{ handler-timeout: {RUN}s{settings} }} }}\n");
        let topology = hatchery::file::read(&file, "topology.yaml").expect("a valid file");
        usual_wait(&topology, &mail(), line).as_secs()
    }

    #[rstest]
    #[case::at_the_present_rate("", (6_000, Some(10.0), None), 2 * 600)]
    #[case::at_the_slower_of_both(", concurrency: 8", (6_000, Some(10.0), Some(1)), 6_000 * RUN / 8)]
    #[case::each_runs_as_long_as_it_may(", concurrency: 1", (10, None, Some(2)), 10 * RUN / 2)]
    #[case::more_workers(", concurrency: 1", (10, Some(0.0), Some(10)), RUN)]
    #[case::tries_in_place(
        ", concurrency: 1, on-failure: in-place, in-place: { tries: 3, delay: 2s }", (1, None, Some(1)), 2 * 3 * 32 - RUN
    )]
    #[case::no_workers("", (6_000, None, Some(0)), 0)]
    #[case::nothing_is_known_of_workers("", (6_000, None, None), 0)]
    #[case::a_window(", coalesce: { immediate: latest, window: 10s, max-wait: 5m }", (0, None, None), 5 * MINUTE)]
    #[case::no_window(", coalesce: latest", (0, None, None), 0)]
    #[case::a_day_at_most("", (u64::MAX, Some(0.001), None), 24 * 60 * MINUTE)]
    fn events_wait_as_long_as_those_before_them_take(
        #[case] settings: &str,
        #[case] (due, out_rate, workers): (u64, Option<f64>, Option<u64>),
        #[case] before: u64,
    ) {
        let mut line = TypeLine::default();
        (line.due, line.out_rate, line.workers) = (Some(due), out_rate, workers);
        assert_eq!(wait_of(settings, Some(&line)), MINUTE + RUN + before);
    }

    #[test]
    fn without_figures_of_the_broker_a_minute_a_run_and_the_window_are_usual() {
        assert_eq!(
            wait_of(", coalesce: { immediate: latest, window: 10s, max-wait: 5m }", None),
            MINUTE + RUN + 5 * MINUTE
        );
        assert_eq!(wait_of("", Some(&TypeLine::default())), MINUTE + RUN);
    }

    /// Returns events that were due so many milliseconds after this time.
    fn waiting(before: Timestamp, due: &[i64]) -> Vec<EventInfo> {
        let event = |after: &i64| {
            let subject = Subject { event_type: mail(), reference: None, id: format!("e{after}") };
            let slot = DedupSlot::Event(subject.id.clone());
            let note = Note { stage: Stage::Waiting, attempts: 0, reason: None };
            let due = before + SignedDuration::from_millis(*after);
            let entry = Some(Entry { subject: subject.clone(), slot: slot.clone(), due, note });
            EventInfo::of(&subject, Shown { slot, state: SlotState::default(), leased: None, entry })
        };
        due.iter().map(event).collect()
    }

    #[rstest]
    #[case::just_below(&[0, 5], true, None)]
    #[case::just_above(&[-1, 0], true, Some((1, false)))]
    #[case::all_that_were_read(&[-9, -1], true, Some((2, true)))]
    #[case::all(&[-9, -1], false, Some((2, false)))]
    #[case::none(&[], true, None)]
    fn an_event_is_overdue_that_was_due_before_what_is_usual(
        #[case] due: &[i64],
        #[case] may_be_more: bool,
        #[case] expected: Option<(usize, bool)>,
    ) {
        let before: Timestamp = "2026-06-01T09:00:00Z".parse().expect("a time");
        let events = waiting(before, due);
        let found = overdue(LongestWaiting { events, may_be_more }, before);
        assert_eq!(found.as_ref().map(|found| (found.events, found.may_be_more)), expected);
        let first = due.first().map(|after| format!("e{after}"));
        assert!(found.is_none_or(|found| found.id == first && found.due < before));
    }
}
