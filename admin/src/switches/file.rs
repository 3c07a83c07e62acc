//! The pauses of the file, which an apply writes into the snapshot.

use std::time::Duration;

use hatchery::{
    Topology,
    internals::{
        names,
        switches::{Name, Pause, Paused, PausedBy, Switches},
    },
};
use jiff::Timestamp;

use super::change::{EMPTY, NEW};
use crate::{admin::Admin, error::AdminError, live::Observed, results::PauseChange, watch::Watch};

impl Admin {
    /// Returns the pauses that an apply would begin and end, and writes nothing. `Err` says why the broker does not tell.
    pub(crate) async fn plan_pauses(&self, observed: &Observed) -> Result<Vec<PauseChange>, String> {
        let planning = async {
            let known = if self.has_stream(observed) { self.switches().await? } else { None };
            let former = if known.is_none() { self.former(observed).await? } else { None };
            let now = self.time().await?;
            let next = of_file(self.topology(), known.as_ref(), former.as_ref(), now);
            let has_started = known.is_some() || !self.has_stream(observed);
            let known = known.unwrap_or_default();
            let mut changes = next.map(|next| changes(&known, &next, now)).unwrap_or_default();
            if !has_started {
                // Without a snapshot workers start nothing. An apply that was killed may have left the stream so.
                let pause =
                    Pause { of: Paused::All, by: PausedBy::File, reason: String::new(), since: now, until: None };
                changes.push(PauseChange { pause, begins: false });
            }
            Ok::<_, AdminError>(changes)
        };
        match planning.await {
            // A file without pauses has none to end most of the time.
            Err(_) if self.topology().pauses().next().is_none() => Ok(Vec::new()),
            planned => planned.map_err(|error| error.to_string()),
        }
    }

    /// Writes the first snapshot, and the pauses of the file, if the last snapshot lacks them.
    pub(crate) async fn write_pauses(
        &self,
        observed: &Observed,
        patience: Duration,
        watch: &dyn Watch,
    ) -> Result<Vec<PauseChange>, AdminError> {
        let first = if self.has_stream(observed) { EMPTY } else { NEW };
        let writing = async {
            let now = self.time().await?;
            // Without the lock, because most of the time nothing is to be written.
            if first == EMPTY {
                match self.switches().await? {
                    None => watch.note("Waiting until it is certain that nothing was paused before …"),
                    known if of_file(self.topology(), known.as_ref(), None, now).is_none() => return Ok(Vec::new()),
                    Some(_) => {}
                }
            }
            let former = self.former(observed).await?;
            let next = |known: Option<&Switches>| Ok(of_file(self.topology(), known, former.as_ref(), now));
            let (before, after) = self.change(first, patience, watch, next).await?;
            Ok(changes(&before.unwrap_or_default(), &after.unwrap_or_default(), now))
        };
        writing.await.map_err(|error: AdminError| AdminError::NotSwitched(error.to_string()))
    }

    /// Returns the nodes of the cluster without a replica of the stream, as one that joined later. Empty if that is not known.
    pub async fn nodes_without_switches(&self, observed: &Observed) -> Vec<String> {
        if !self.has_stream(observed) {
            return Vec::new();
        }
        self.management.without_replica(&names::control(&self.desired.owner)).await.unwrap_or_default()
    }

    /// Tells whether the broker has the stream.
    pub(crate) fn has_stream(&self, observed: &Observed) -> bool {
        has_stream(observed, &self.desired.owner)
    }

    /// Tells whether the stream takes what is written to its exchange. An apply that was killed may have left it without its binding.
    pub(crate) fn has_bound_stream(&self, observed: &Observed) -> bool {
        let control = names::control(&self.desired.owner);
        observed.bindings.iter().any(|live| live.source == control && live.destination == control)
    }

    /// Returns the last snapshot under a former name of the topology, the latest first.
    async fn former(&self, observed: &Observed) -> Result<Option<Switches>, AdminError> {
        for owner in self.desired.former_owners.iter().rev().filter(|owner| has_stream(observed, owner)) {
            if let Some(switches) = self.read(&names::control(owner)).await? {
                return Ok(Some(switches));
            }
        }
        Ok(None)
    }
}

fn has_stream(observed: &Observed, owner: &str) -> bool {
    observed.queues.iter().any(|live| live.name == names::control(owner))
}

/// Returns the next snapshot by the file: with its pauses, and with those of the former names of its types. `None` if the last one has
/// all of that.
pub(crate) fn of_file(
    topology: &Topology,
    known: Option<&Switches>,
    former: Option<&Switches>,
    now: Timestamp,
) -> Option<Switches> {
    let mut next = known.or(former).cloned().unwrap_or_default();
    for (event_type, spec) in &topology.types {
        let [was, is] = [&spec.renamed_from, &vec![event_type.clone()]]
            .map(|names| names.iter().map(|name| Paused::Type(Name(name.clone()))).collect::<Vec<_>>());
        let by_person = |pause: &&Pause| pause.by == PausedBy::Person && pause.lasts(now);
        let is_paused = next.pauses.iter().filter(by_person).any(|pause| is.contains(&pause.of));
        let carried = next.pauses.iter().filter(by_person).rfind(|pause| was.contains(&pause.of)).cloned();
        if let (Some(pause), false) = (carried, is_paused) {
            next.pauses.push(Pause { of: Paused::Type(Name(event_type.clone())), ..pause });
        }
    }
    // A schedule that comes back to the file is not paused any more.
    next.pauses.retain(|pause| match &pause.of {
        Paused::Schedule(Name(name)) => topology.schedules.contains_key(name),
        Paused::All | Paused::Type(_) | Paused::Source(_) => true,
    });
    let next = next.with_file(topology.pauses(), now);
    let is_known = known.is_some_and(|known| changes(known, &next, now).is_empty());
    (!is_known).then_some(next)
}

pub(crate) fn changes(before: &Switches, after: &Switches, now: Timestamp) -> Vec<PauseChange> {
    let lasting = |switches: &Switches| -> Vec<Pause> {
        switches.pauses.iter().filter(|pause| pause.lasts(now)).cloned().collect()
    };
    let (before, after) = (lasting(before), lasting(after));
    let is_replaced = |pause: &Pause| after.iter().any(|other| other.of == pause.of && other.by == pause.by);
    let begins = after.iter().filter(|pause| !before.contains(pause)).cloned();
    let ends = before.iter().filter(|pause| !is_replaced(pause)).cloned();
    let change = |begins| move |pause| PauseChange { pause, begins };
    begins.map(change(true)).chain(ends.map(change(false))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_780_000_000, 0);

    fn topology(keys: &str) -> Topology {
        let text = format!("version: 1\nname: t\n{keys}");
        hatchery::file::read(&text, "topology.yaml").expect("a valid file")
    }

    fn of_type(name: &str) -> Paused {
        Paused::Type(Name(name.parse().expect("a word")))
    }

    fn by_person(of: Paused) -> Pause {
        Pause { of, by: PausedBy::Person, reason: "R".to_owned(), since: NOW, until: None }
    }

    #[test]
    fn the_first_snapshot_is_written_also_without_a_pause() {
        let topology = topology("types: { mail: {} }");
        let first = of_file(&topology, None, None, NOW).expect("a first snapshot");
        assert_eq!(first.pauses, []);
        assert_eq!(of_file(&topology, Some(&first), None, NOW), None);
    }

    #[test]
    fn the_file_pauses_types_sources_and_all() {
        let topology = topology(
            "paused: on\ntypes: { mail: { paused: \"the provider migrates\" }, pay: { paused: off } }\n\
             sources: { hr: { declare: on, paused: true, events: [ { type: mail } ] } }",
        );
        let written = of_file(&topology, None, None, NOW).expect("a snapshot");
        let pauses: Vec<_> = written.pauses.iter().map(|pause| (pause.of.clone(), pause.reason.as_str())).collect();
        let source = Paused::Source(Name("hr".parse().expect("a word")));
        assert_eq!(pauses, [(Paused::All, ""), (of_type("mail"), "the provider migrates"), (source, "")]);
        assert!(written.pauses.iter().all(|pause| pause.by == PausedBy::File));
        assert_eq!(of_file(&topology, Some(&written), None, NOW), None, "whatever the order");
    }

    #[test]
    fn a_person_and_the_file_do_not_touch_each_others_pauses() {
        let with = topology("types: { mail: { paused: on }, pay: {} }");
        let known = of_file(&with, None, None, NOW).expect("a snapshot").with(by_person(of_type("pay")), NOW);
        assert_eq!(of_file(&with, Some(&known), None, NOW), None);
        let without = topology("types: { mail: {}, pay: {} }");
        let next = of_file(&without, Some(&known), None, NOW).expect("a snapshot");
        assert_eq!(next.pauses, [by_person(of_type("pay"))]);
        let [ended] = &changes(&known, &next, NOW)[..] else { panic!("one change") };
        assert_eq!((&ended.pause.of, ended.begins), (&of_type("mail"), false));
    }

    #[test]
    fn a_renamed_type_or_topology_stays_paused() {
        let topology = topology("renamed-from: old\ntypes: { mail: { renamed-from: post } }");
        let former = Switches::default().with(by_person(of_type("post")), NOW);
        let next = of_file(&topology, None, Some(&former), NOW).expect("a snapshot");
        // Workers with the old file still know the type by its former name.
        assert_eq!(next.pauses, [by_person(of_type("post")), by_person(of_type("mail"))]);
        assert_eq!(of_file(&topology, Some(&next), None, NOW), None);
    }
}
