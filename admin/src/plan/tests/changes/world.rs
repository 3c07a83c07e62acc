//! Simulates publishers, workers and timers during an `apply`, and checks the invariants.

use std::collections::BTreeSet;

use hatchery::internals::{
    compile::{Desired, hatcheries},
    delay::Route,
    memory::queues::route::Routes,
    spec::Topology,
    wire::{Headers, Properties, Value},
};

use super::super::interpreter::{Broker, Phase, Run, Stop, Wrong, is_kind};
use crate::names::{self, Names};

/// An exchange and routing key that a publisher of one of the files uses, and the queues where the event may end.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    exchange: String,
    key: String,
    homes: BTreeSet<String>,
    /// The indices of the files that have this route.
    files: BTreeSet<usize>,
}

/// Returns every exchange and key that programs with one of these files publish to.
pub(super) fn probes(files: &[Topology]) -> Vec<Probe> {
    let owners: BTreeSet<_> = files.iter().map(|file| file.name.clone()).collect();
    let mut probes: Vec<Probe> = Vec::new();
    for (at, file) in files.iter().enumerate() {
        let names = Names::new(file.name.clone());
        for (word, spec) in &file.types {
            let words = called(word.as_str(), files);
            let homes = |of: &dyn Fn(&Names, &str) -> String| -> BTreeSet<String> {
                owners.iter().flat_map(|owner| words.iter().map(|word| of(&Names::new(owner.clone()), word))).collect()
            };
            let due = homes(&|names, word| format!("{}.{word}", names.processor()));
            let quarantines = homes(&|names, word| format!("{}.{word}", names.quarantine()));
            let buried = homes(&|names, word| format!("{}.{word}", names.dead_letter()));
            let steps = (1_u64 << file.ladder.levels()) - 1;
            let ways = [Route::Now, Route::Ladder(file.ladder, 1), Route::Ladder(file.ladder, steps)];
            let ways = ways.into_iter().chain(hatcheries(file).into_iter().map(Route::Hatchery));
            let mut add = |exchange, key, homes: &BTreeSet<String>| match probes
                .iter_mut()
                .find(|probe| probe.exchange == exchange && probe.key == key)
            {
                Some(probe) => drop(probe.files.insert(at)),
                None => probes.push(Probe { exchange, key, homes: homes.clone(), files: [at].into() }),
            };
            ways.for_each(|way| add(names.scheduler(), way.key(word), &due));
            spec.retry_queues().iter().for_each(|ttl| add(names.retry(), names::retry_key(word, *ttl), &due));
            add(names.dead_letter(), names::dead_letter_key(word), &buried);
            if spec.has_quarantine() {
                add(names.quarantine(), names::quarantine_key(word), &quarantines);
            }
        }
    }
    probes
}

/// Returns every name that a type has in any of these files.
pub(super) fn called(word: &str, files: &[Topology]) -> BTreeSet<String> {
    let mut words = BTreeSet::from([word.to_owned()]);
    for _ in 0..files.len() {
        for (now, spec) in files.iter().flat_map(|file| &file.types) {
            let all: BTreeSet<String> = spec.renamed_from.iter().chain([now]).map(ToString::to_string).collect();
            if !all.is_disjoint(&words) {
                words.extend(all);
            }
        }
    }
    words
}

impl Probe {
    /// Whether all of these queues are queues of its type, timers that are being replaced, or stand-ins of either.
    fn is_home(&self, ends: &BTreeSet<String>) -> bool {
        ends.iter().all(|end| {
            let queue = ["t", "u", "v"].iter().find_map(|owner| names::moved(owner, end));
            let is_timer = |queue: &str| ["hatchery", "retry", "ladder"].iter().any(|kind| is_kind(queue, kind));
            self.homes.contains(queue.unwrap_or(end)) || queue.is_some_and(is_timer)
        })
    }
}

/// The simulation around an `apply`, and its invariants.
pub(super) struct World {
    pub(super) probes: Vec<Probe>,
    /// The indices of the probes that have led to a queue of their type once.
    pub(super) home: BTreeSet<usize>,
    pub(super) random: u64,
    /// Whether publishers and workers are active.
    pub(super) is_busy: bool,
    /// The index of the file that is applied.
    pub(super) file: usize,
    /// Whether a route that the applied file no longer has may end in `unrouted` before pruning, because its stand-in
    /// was removed.
    pub(super) is_changed_midway: bool,
}

impl World {
    /// Returns a random number below `most`.
    pub(super) fn below(&mut self, most: usize) -> usize {
        // xorshift
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from(self.random >> 33).unwrap_or(0) % most.max(1)
    }

    fn between(&mut self, broker: &mut Broker, phase: Phase) -> Result<(), Wrong> {
        self.look(broker, phase)?;
        if self.is_busy {
            self.happens(broker)?;
        }
        Self::all_there(broker)
    }

    /// Checks that every route ends in a queue, and that one which ended in a queue of its type still does, unless the
    /// file no longer has it.
    fn look(&mut self, broker: &Broker, phase: Phase) -> Result<(), Wrong> {
        let routes = Routes::new(&broker.there);
        for (at, probe) in self.probes.iter().enumerate() {
            let was_home = self.home.contains(&at);
            let may_go = !probe.files.contains(&self.file) && (phase == Phase::Pruning || self.is_changed_midway);
            if !broker.has_exchange(&probe.exchange) {
                if was_home && !may_go {
                    return Err(format!("{} is gone", probe.exchange));
                }
                self.home.remove(&at);
                continue;
            }
            let ends = broker.ends(&routes, &probe.exchange, &probe.key)?;
            if probe.is_home(&ends) {
                // A stand-in of a timer may hold events of a type that is not declared yet.
                if ends.iter().any(|end| probe.homes.contains(end)) {
                    self.home.insert(at);
                }
                continue;
            }
            let is_seen = ends.iter().all(|end| probe.is_home(&[end.clone()].into()) || end.ends_with(".unrouted"));
            if (was_home && !may_go) || !is_seen {
                return Err(format!("{} from {} leads to {ends:?}", probe.key, probe.exchange));
            }
            self.home.remove(&at);
        }
        Ok(())
    }

    /// Lets one thing happen at random: a publish, an expired timer, or a worker that empties its queue.
    fn happens(&mut self, broker: &mut Broker) -> Result<(), Wrong> {
        match self.below(6) {
            0..3 => self.publish(broker),
            3 => {
                let full: Vec<String> = broker.contents.keys().cloned().collect();
                let at = self.below(full.len());
                full.get(at).map_or(Ok(()), |queue| broker.expire(queue))
            }
            4 => {
                let consumed: Vec<String> = broker.consumed.iter().cloned().collect();
                let at = self.below(consumed.len());
                consumed.get(at).into_iter().for_each(|queue| broker.handle(queue));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    pub(super) fn publish(&mut self, broker: &mut Broker) -> Result<(), Wrong> {
        let at = self.below(self.probes.len());
        let mut headers = Headers::new();
        // The clock of the interpreted broker stands at the beginning of 1970.
        if self.below(3) == 0 {
            headers.insert("nbf".to_owned(), Value::text("1970-01-01T00:00:05Z"));
        }
        let Some(Probe { exchange, key, .. }) = self.probes.get(at) else { return Ok(()) };
        broker.publish(exchange, key, Properties { headers, ..Properties::default() })
    }

    /// Checks that every published event is in a queue or was handled.
    fn all_there(broker: &Broker) -> Result<(), Wrong> {
        let mut found = broker.handled.clone();
        found.extend(broker.contents.values().flatten().map(|message| message.id));
        if found == broker.published { Ok(()) } else { Err("an event is gone".to_owned()) }
    }

    /// Runs one `apply` that is killed after so many steps. Returns the leftovers, or `None` if it was killed.
    pub(super) fn apply(
        &mut self,
        broker: &mut Broker,
        desired: &Desired,
        steps: usize,
    ) -> Result<Option<Vec<String>>, Wrong> {
        let mut order = World { probes: Vec::new(), home: BTreeSet::new(), random: self.random, ..*self };
        let mut run = Run {
            broker,
            desired,
            steps,
            order: &mut |most| order.below(most),
            between: &mut |broker, phase| self.between(broker, phase),
            phase: Phase::Writing,
            log: Vec::new(),
        };
        match run.apply() {
            Ok(left) => Ok(Some(left.into_iter().map(|address| address.name).collect())),
            Err(Stop::Cut) => Ok(None),
            Err(Stop::Wrong(wrong)) => {
                let from = run.log.len().saturating_sub(30);
                Err(format!("{wrong}\nafter\n  {}", run.log[from..].join("\n  ")))
            }
        }
    }
}
