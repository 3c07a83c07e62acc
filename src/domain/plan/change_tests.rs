//! Any file, then any other, carried out under traffic, killed and carried out again: no event is lost on the way, and the
//! end is what the last file says.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{self, Write as _},
};

use proptest::{collection::vec, prelude::*, sample::select};

use super::{
    super::{
        compile::{
            Argument, Binding, Desired, Exchange, OWNER, Queue, Target, compile, tests::simulator::route::Routes,
        },
        delay::Route,
        names::{self, Names},
        spec::Topology,
        wire::{Headers, Properties, Value},
    },
    Action, Kind, Object,
    interpreter::{Broker, Phase, Run, Stop, Wrong, is_kind, named},
    plan,
};

/// Names of types, before and after.
const WORDS: [&str; 5] = ["a", "b", "c", "d", "moving"];
const TTLS: [&str; 5] = ["250ms", "1s", "1m", "90s", "1h"];
const LADDERS: [&str; 4] = ["1s, horizon: 3s", "1s, horizon: 7s", "250ms, horizon: 700ms", "1s, horizon: 1s"];

/// A file, as far as it differs here.
#[derive(Clone, Debug)]
struct File {
    name: &'static str,
    former: Vec<&'static str>,
    kind: &'static str,
    hatcheries: Vec<&'static str>,
    ladder: &'static str,
    types: BTreeMap<&'static str, Type>,
    adopt: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Type {
    former: Vec<&'static str>,
    delays: Vec<&'static str>,
    window: bool,
}

/// What somebody does to a file.
#[derive(Clone, Debug)]
enum Edit {
    Hatcheries(Vec<&'static str>),
    Ladder(&'static str),
    Kind(&'static str),
    Delays(usize, Vec<&'static str>),
    Window(usize),
    Add(&'static str),
    Remove(usize),
    Rename(usize, &'static str),
    RenameTopology(&'static str),
}

impl File {
    fn text(&self) -> String {
        let list = |names: &[&str]| names.join(", ");
        let mut text = format!("version: 1\nname: {}\nqueue-type: {}\n", self.name, self.kind);
        let _ = writeln!(text, "renamed-from: [{}]\nadopt: [{}]", list(&self.former), self.adopt.join(", "));
        let _ = writeln!(text, "hatcheries: [{}]\nladder: {{ resolution: {} }}", list(&self.hatcheries), self.ladder);
        text += "types:\n";
        for (name, Type { former, delays, window }) in &self.types {
            let window = if *window { "coalesce: { immediate: latest, window: 2s }, " } else { "" };
            let (former, delays) = (list(former), list(delays));
            let _ = writeln!(
                text,
                "  {name}: {{ {window}renamed-from: [{former}], retry: {{ delays: [{delays}], max-attempts: 9 }} }}"
            );
        }
        text
    }

    fn is_valid(&self) -> bool {
        crate::file::read(&self.text(), "topology.yaml").is_ok()
    }

    fn topology(&self) -> Topology {
        let text = self.text();
        crate::file::read(&text, "topology.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// The edited file; the same where that would be none.
    fn edited(self, edits: &[Edit]) -> Self {
        edits.iter().fold(self, |file, edit| {
            let new = file.clone().with(edit);
            if new.is_valid() { new } else { file }
        })
    }

    fn with(mut self, edit: &Edit) -> Self {
        let nth = |at: &usize| self.types.keys().copied().nth(at % self.types.len().max(1)).unwrap_or_default();
        match edit {
            Edit::Hatcheries(ttls) => self.hatcheries.clone_from(ttls),
            Edit::Ladder(ladder) => self.ladder = ladder,
            Edit::Kind(kind) => self.kind = kind,
            Edit::Delays(at, delays) => self.types.entry(nth(at)).or_default().delays.clone_from(delays),
            Edit::Window(at) => self.types.entry(nth(at)).or_default().window ^= true,
            Edit::Add(name) => {
                self.types.entry(name).or_insert_with(|| Type { delays: vec!["1m"], ..Type::default() });
            }
            Edit::Remove(at) => drop(self.types.remove(nth(at))),
            Edit::Rename(at, to) => {
                let was = nth(at);
                if !self.types.contains_key(to) {
                    let mut kept = self.types.remove(was).unwrap_or_default();
                    kept.former.push(was);
                    self.types.insert(to, kept);
                }
            }
            Edit::RenameTopology(to) => {
                self.former.push(self.name);
                self.name = to;
            }
        }
        self
    }
}

fn files() -> impl Strategy<Value = File> {
    let types = proptest::collection::btree_map(select(&WORDS[..3]), (ttls(), any::<bool>()), 1..3);
    (ttls(), select(&LADDERS[..]), select(vec!["quorum", "classic"]), types).prop_map(
        |(hatcheries, ladder, kind, types)| {
            let one = |(name, (delays, window))| (name, Type { former: Vec::new(), delays, window });
            let types = types.into_iter().map(one).collect();
            File { name: "t", former: Vec::new(), kind, hatcheries, ladder, types, adopt: Vec::new() }
        },
    )
}

fn ttls() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(TTLS.to_vec(), 1..3)
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = 0..4_usize;
    let edit = prop_oneof![
        2 => ttls().prop_map(Edit::Hatcheries),
        2 => select(&LADDERS[..]).prop_map(Edit::Ladder),
        3 => select(vec!["quorum", "classic"]).prop_map(Edit::Kind),
        2 => (at.clone(), ttls()).prop_map(|(at, delays)| Edit::Delays(at, delays)),
        1 => at.clone().prop_map(Edit::Window),
        2 => select(&WORDS[..]).prop_map(Edit::Add),
        2 => at.clone().prop_map(Edit::Remove),
        3 => (at, select(&WORDS[..])).prop_map(|(at, to)| Edit::Rename(at, to)),
        2 => select(vec!["u", "v"]).prop_map(Edit::RenameTopology),
    ];
    vec(edit, 0..5)
}

/// What somebody did to the broker by hand, or an older version left there.
#[derive(Clone, Debug)]
enum Tamper {
    /// A queue was made with another argument.
    Argument(usize, &'static str, Option<Argument>),
    /// A binding is gone.
    Unbound(usize),
    /// A queue has no label, and is adopted.
    Unlabelled(usize),
    /// A queue of somebody's, with an event in it, is adopted and asked for by nobody.
    Legacy,
}

fn tampers() -> impl Strategy<Value = Vec<Tamper>> {
    let text = |text: &str| Some(Argument::Text(text.to_owned()));
    let arguments = vec![
        ("x-overflow", None),
        ("x-dead-letter-strategy", None),
        ("x-max-length", Some(Argument::Number(1_000_000))),
        ("x-delivery-limit", Some(Argument::Number(7))),
        ("x-queue-type", text("classic")),
    ];
    let tamper = prop_oneof![
        (any::<usize>(), select(arguments)).prop_map(|(at, (name, value))| Tamper::Argument(at, name, value)),
        any::<usize>().prop_map(Tamper::Unbound),
        any::<usize>().prop_map(Tamper::Unlabelled),
        Just(Tamper::Legacy),
    ];
    vec(tamper, 0..3)
}

/// What is on the broker in the beginning, and what the files adopt of it.
fn tampered(mut there: Desired, tampers: &[Tamper]) -> (Desired, Vec<String>) {
    let mut adopt = Vec::new();
    for tamper in tampers {
        let (queues, bindings) = (there.queues.len(), there.bindings.len());
        match tamper {
            Tamper::Argument(at, name, value) => {
                let arguments = &mut there.queues[at % queues].arguments;
                match value {
                    None => drop(arguments.remove(*name)),
                    Some(value) => drop(arguments.insert((*name).to_owned(), value.clone())),
                }
            }
            // The first one is that of `unrouted`, without which things are lost before anybody can help.
            Tamper::Unbound(at) => drop(there.bindings.remove(1 + at % (bindings - 1))),
            Tamper::Unlabelled(at) => {
                let queue = &mut there.queues[at % queues];
                queue.arguments.remove(OWNER);
                adopt.push(queue.name.clone());
            }
            Tamper::Legacy if adopt.iter().any(|name| name == "legacy.q") => {}
            Tamper::Legacy => {
                let name = || "legacy.q".to_owned();
                there.queues.push(Queue { name: name(), arguments: BTreeMap::new() });
                there.exchanges.push(Exchange { name: "legacy".to_owned(), arguments: BTreeMap::new() });
                there.bindings.push(Binding {
                    source: "legacy".to_owned(),
                    target: Target::Queue(name()),
                    key: "#".to_owned(),
                });
                adopt.extend([name(), "legacy".to_owned()]);
            }
        }
    }
    adopt.sort();
    adopt.dedup();
    (there, adopt)
}

/// What somebody publishes by one of the files, and where it may come to rest.
#[derive(Clone, Debug)]
struct Probe {
    exchange: String,
    key: String,
    homes: BTreeSet<String>,
    /// The places of the files that say so.
    files: BTreeSet<usize>,
}

/// Everything that whoever has one of these files publishes.
fn probes(files: &[Topology]) -> Vec<Probe> {
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
            let buried = homes(&|names, word| format!("{}.{word}", names.dead_letter()));
            let steps = (1_u64 << file.ladder.levels()) - 1;
            let ways = [Route::Now, Route::Ladder(file.ladder, 1), Route::Ladder(file.ladder, steps)];
            let ways = ways.into_iter().chain(super::super::compile::hatcheries(file).into_iter().map(Route::Hatchery));
            let mut add = |exchange, key, homes: &BTreeSet<String>| match probes
                .iter_mut()
                .find(|probe| probe.exchange == exchange && probe.key == key)
            {
                Some(probe) => drop(probe.files.insert(at)),
                None => probes.push(Probe { exchange, key, homes: homes.clone(), files: [at].into() }),
            };
            ways.for_each(|way| add(names.scheduler(), way.key(word), &due));
            spec.retry.delays.iter().for_each(|ttl| add(names.retry(), names::retry_key(word, *ttl), &due));
            add(names.dead_letter(), names::dead_letter_key(word), &buried);
        }
    }
    probes
}

/// Every name that a type has in any of these files.
fn called(word: &str, files: &[Topology]) -> BTreeSet<String> {
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
    /// Whether it leads to nothing but queues of its type, timers that are held up for a moment, or what stands in for
    /// either.
    fn is_home(&self, ends: &BTreeSet<String>) -> bool {
        ends.iter().all(|end| {
            let queue = ["t", "u", "v"].iter().find_map(|owner| names::moved(owner, end));
            let is_timer = |queue: &str| ["hatchery", "retry", "ladder"].iter().any(|kind| is_kind(queue, kind));
            self.homes.contains(queue.unwrap_or(end)) || queue.is_some_and(is_timer)
        })
    }
}

/// Everything that is done to a broker, and what must always hold.
struct World {
    probes: Vec<Probe>,
    /// Those that have led home once.
    home: BTreeSet<usize>,
    random: u64,
    /// Whether people publish and work meanwhile.
    is_busy: bool,
    /// The file that is applied.
    file: usize,
    /// Whether a way that it no longer says may end in `unrouted` before anything is pruned: its stand-in was taken away.
    is_changed_midway: bool,
}

impl World {
    /// A number below this one.
    fn below(&mut self, most: usize) -> usize {
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

    /// No way leads to nowhere, and none that led home once leads elsewhere, unless the file no longer says it.
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
                // What is held up may belong to a type that nobody knows yet.
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

    /// Somebody publishes, the time of a timer is up, a worker works.
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

    fn publish(&mut self, broker: &mut Broker) -> Result<(), Wrong> {
        let at = self.below(self.probes.len());
        let mut headers = Headers::new();
        // The time of an interpreted broker is the year 1970.
        if self.below(3) == 0 {
            headers.insert("nbf".to_owned(), Value::text("1970-01-01T00:00:05Z"));
        }
        let Some(Probe { exchange, key, .. }) = self.probes.get(at) else { return Ok(()) };
        broker.publish(exchange, key, Properties { headers, ..Properties::default() })
    }

    /// Whatever was published is somewhere, or was handled.
    fn all_there(broker: &Broker) -> Result<(), Wrong> {
        let mut found = broker.handled.clone();
        found.extend(broker.contents.values().flatten().map(|message| message.id));
        if found == broker.published { Ok(()) } else { Err("an event is gone".to_owned()) }
    }

    /// One `apply`, killed after so many steps.
    fn apply(&mut self, broker: &mut Broker, desired: &Desired, steps: usize) -> Result<Option<Vec<String>>, Wrong> {
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

/// A first file with things done by hand, a second that is killed on the way, and a last one.
#[derive(Clone)]
struct Case {
    files: [File; 3],
    tampers: Vec<Tamper>,
    there: Desired,
    steps: [usize; 2],
    random: u64,
}

/// What somebody needs to understand a failure.
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
        if is_kind(&queue.name, "processor") && world.below(2) == 0 {
            broker.consumed.insert(queue.name.clone());
        }
    }
    (0..20).try_for_each(|_| world.publish(&mut broker))?;
    world.apply(&mut broker, &desired[1], steps[0])?;
    (world.file, world.is_changed_midway) = (2, files[1].text() != files[2].text());
    world.apply(&mut broker, &desired[2], steps[1])?;
    // The old workers and publishers are gone now, and people look at what is left over.
    world.is_busy = false;
    broker.consumed.clear();
    for _ in 0..4 {
        let left = world.apply(&mut broker, &desired[2], usize::MAX)?.unwrap_or_default();
        // What stands in for something is nobody's to empty.
        left.iter().filter(|queue| !is_kind(queue, "moving")).for_each(|queue| broker.handle(queue));
    }
    as_if_new(&broker, &desired[2], &topologies)
}

/// The broker is as if nothing but the last file had ever been, and every event is where its type is.
fn as_if_new(broker: &Broker, desired: &Desired, files: &[Topology]) -> Result<(), Wrong> {
    for kind in [Kind::Exchange, Kind::Queue, Kind::Binding, Kind::Policy] {
        let (mut is, mut should) = (named(kind, &broker.there), named(kind, desired));
        if kind == Kind::Binding {
            // What brings events of a former name home stays as long as the file says that name.
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
        if !matches!(kind, "processor" | "dead-letter") {
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn whatever_changes_and_whenever_it_is_killed_no_event_is_lost(case in cases()) {
        let done = carry_out(&case);
        prop_assert!(done.is_ok(), "{}", done.unwrap_err());
    }
}
