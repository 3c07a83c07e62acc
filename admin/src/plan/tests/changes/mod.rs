//! Applies any file, then any other, under traffic, killed and started again. No event is lost on the way, and the end
//! state is that of the last file.

mod files;
mod world;

use std::{collections::BTreeSet, fmt};

use hatchery::internals::{
    compile::{Desired, compile},
    spec::Topology,
};
use proptest::prelude::*;

use self::{
    files::{File, Tamper, edits, files, tampered, tampers},
    world::{World, called, probes},
};
use super::{
    Action, Kind, Object,
    interpreter::{Broker, Wrong, is_kind, named},
    plan,
};

/// A first file with changes made by hand, a second whose `apply` is killed, and a last one.
#[derive(Clone)]
struct Case {
    files: [File; 3],
    tampers: Vec<Tamper>,
    there: Desired,
    steps: [usize; 2],
    random: u64,
}

/// Prints the files and the kills, for a failed test.
impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { files: [first, second, last], tampers, steps, random, .. } = self;
        writeln!(f, "{}\n{tampers:?}, then\n{}", first.text(), second.text())?;
        writeln!(f, "killed after {steps:?} steps (random {random}), the second time with\n{}", last.text())
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let last = prop_oneof![Just(Vec::new()), edits()];
    (files(), tampers(), edits(), last, [0..60_usize, 0..60_usize], 1..u64::MAX).prop_map(
        |(mut first, tampers, second, last, steps, random)| {
            let there = compile(&first.topology()).expect("safe");
            let (there, adopt) = tampered(there, &tampers);
            first.adopt = adopt;
            let second = first.clone().edited(&second);
            let last = second.clone().edited(&last);
            Case { files: [first, second, last], tampers, there, steps, random }
        },
    )
}

fn carry_out(Case { files, there, steps, random, .. }: &Case) -> Result<(), Wrong> {
    let topologies: Vec<Topology> = files.iter().map(File::topology).collect();
    let desired: Vec<Desired> = topologies.iter().map(|topology| compile(topology).expect("safe")).collect();
    let (mut broker, probes) = (Broker::new(there.clone()), probes(&topologies));
    let mut world =
        World { probes, home: BTreeSet::new(), random: *random, is_busy: true, file: 1, is_changed_midway: false };
    for queue in &there.queues {
        if ["processor", "aside"].iter().any(|kind| is_kind(&queue.name, kind)) && world.below(2) == 0 {
            broker.consumed.insert(queue.name.clone());
        }
    }
    (0..20).try_for_each(|_| world.publish(&mut broker))?;
    world.apply(&mut broker, &desired[1], steps[0])?;
    (world.file, world.is_changed_midway) = (2, files[1].text() != files[2].text());
    world.apply(&mut broker, &desired[2], steps[1])?;
    // The old workers and publishers have stopped, and people empty the leftover queues.
    world.is_busy = false;
    broker.consumed.clear();
    for _ in 0..4 {
        let left = world.apply(&mut broker, &desired[2], usize::MAX)?.unwrap_or_default();
        // People leave the stand-ins of a migration alone.
        left.iter().filter(|queue| !is_kind(queue, "moving")).for_each(|queue| broker.handle(queue));
    }
    as_if_new(&broker, &desired[2], &topologies)
}

/// Checks that the broker is as if only the last file had ever been applied, and that every event is in a queue of its
/// type.
fn as_if_new(broker: &Broker, desired: &Desired, files: &[Topology]) -> Result<(), Wrong> {
    for kind in [Kind::Exchange, Kind::Queue, Kind::Binding, Kind::Policy] {
        let (mut is, mut should) = (named(kind, &broker.there), named(kind, desired));
        if kind == Kind::Binding {
            // The binding for events with a former name stays as long as the file has that name.
            let homes: BTreeSet<String> = desired
                .renames
                .iter()
                .filter(|rename| named(Kind::Exchange, desired).contains(&rename.source))
                .map(|rename| Object::Binding(rename.binding()).address().name)
                .collect();
            is.retain(|name| !homes.contains(name));
            should.retain(|name| !homes.contains(name));
        }
        if is != should {
            let (more, less): (Vec<_>, Vec<_>) = (is.difference(&should).collect(), should.difference(&is).collect());
            return Err(format!("in the end there is also {more:?}, and there is no {less:?}"));
        }
    }
    let plan = plan(desired, &broker.observe());
    let changes = plan.changes.iter().filter(|change| change.action != Action::Ignored);
    let changes: Vec<String> = changes.map(|change| format!("{:?} {}", change.action, change.address)).collect();
    if !changes.is_empty() || !plan.migration.is_empty() || !plan.pruning.is_empty() {
        return Err(format!("in the end there is still to do: {changes:?}"));
    }
    for (queue, messages) in &broker.contents {
        let Some((kind, word)) = queue.split_once('.').and_then(|(_, rest)| rest.split_once('.')) else { continue };
        if !matches!(kind, "processor" | "aside" | "dead-letter") {
            continue;
        }
        let words = called(word, files);
        if let Some(message) = messages.iter().find(|it| !it.key.split('.').next().is_some_and(|it| words.contains(it)))
        {
            return Err(format!("{} is in {queue}", message.key));
        }
    }
    Ok(())
}

/// Each takes a quarter of a second in a debug build. `scripts/test --all` tries more, by `PROPTEST_CASES`.
fn tries() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(16)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: tries(), ..ProptestConfig::default() })]

    #[test]
    fn no_event_is_lost_by_any_change_killed_at_any_step(case in cases()) {
        let done = carry_out(&case);
        prop_assert!(done.is_ok(), "{}", done.unwrap_err());
    }
}
