//! Generators of topology files, of edits, and of changes made to a broker by hand.

use std::{collections::BTreeMap, fmt::Write as _};

use hatchery::internals::{
    compile::{Argument, Binding, Desired, Exchange, OWNER, Queue, Target},
    spec::Topology,
};
use proptest::{collection::vec, prelude::*, sample::select};

/// Names of types, before and after an edit.
const WORDS: [&str; 5] = ["a", "b", "c", "d", "moving"];
const TTLS: [&str; 5] = ["250ms", "1s", "1m", "90s", "1h"];
/// Keys that decide which queues a type has.
const MEANS: [&str; 3] = ["", "coalesce: { immediate: latest, window: 2s }, ", "register: off, "];
const LADDERS: [&str; 4] = ["1s, horizon: 3s", "1s, horizon: 7s", "250ms, horizon: 700ms", "1s, horizon: 1s"];

/// The keys of a file that the tests vary.
#[derive(Clone, Debug)]
pub(super) struct File {
    name: &'static str,
    former: Vec<&'static str>,
    kind: &'static str,
    hatcheries: Vec<&'static str>,
    ladder: &'static str,
    types: BTreeMap<&'static str, Type>,
    pub(super) adopt: Vec<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Type {
    former: Vec<&'static str>,
    delays: Vec<&'static str>,
    means: &'static str,
    blocks: bool,
}

/// An edit of a file.
#[derive(Clone, Debug)]
pub(super) enum Edit {
    Hatcheries(Vec<&'static str>),
    Ladder(&'static str),
    Kind(&'static str),
    Delays(usize, Vec<&'static str>),
    Means(usize, &'static str),
    Block(usize),
    Add(&'static str),
    Remove(usize),
    Rename(usize, &'static str),
    RenameTopology(&'static str),
}

impl File {
    pub(super) fn text(&self) -> String {
        let list = |names: &[&str]| names.join(", ");
        let mut text = format!("version: 1\nname: {}\nqueue-type: {}\n", self.name, self.kind);
        let _ = writeln!(text, "renamed-from: [{}]\nadopt: [{}]", list(&self.former), self.adopt.join(", "));
        let _ = writeln!(text, "hatcheries: [{}]\nladder: {{ resolution: {} }}", list(&self.hatcheries), self.ladder);
        text += "types:\n";
        for (name, Type { former, delays, means, blocks }) in &self.types {
            let failure = if *blocks { "on-failure: block, " } else { "" };
            let (former, delays) = (list(former), list(delays));
            let _ = writeln!(
                text,
                "  {name}: {{ {means}{failure}renamed-from: [{former}], retry: {{ delays: [{delays}] }} }}"
            );
        }
        text
    }

    fn is_valid(&self) -> bool {
        hatchery::file::read(&self.text(), "topology.yaml").is_ok()
    }

    pub(super) fn topology(&self) -> Topology {
        let text = self.text();
        hatchery::file::read(&text, "topology.yaml").unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    /// Applies the edits, leaving out each that would make the file invalid.
    pub(super) fn edited(self, edits: &[Edit]) -> Self {
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
            Edit::Means(at, means) => self.types.entry(nth(at)).or_default().means = means,
            Edit::Block(at) => self.types.entry(nth(at)).or_default().blocks ^= true,
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

pub(super) fn files() -> impl Strategy<Value = File> {
    let types = proptest::collection::btree_map(select(&WORDS[..3]), (ttls(), select(&MEANS[..])), 1..3);
    (ttls(), select(&LADDERS[..]), select(vec!["quorum", "classic"]), types).prop_map(
        |(hatcheries, ladder, kind, types)| {
            let one = |(name, (delays, means))| (name, Type { delays, means, ..Type::default() });
            let types = types.into_iter().map(one).collect();
            File { name: "t", former: Vec::new(), kind, hatcheries, ladder, types, adopt: Vec::new() }
        },
    )
}

fn ttls() -> impl Strategy<Value = Vec<&'static str>> {
    proptest::sample::subsequence(TTLS.to_vec(), 1..3)
}

pub(super) fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = 0..4_usize;
    let edit = prop_oneof![
        2 => ttls().prop_map(Edit::Hatcheries),
        2 => select(&LADDERS[..]).prop_map(Edit::Ladder),
        3 => select(vec!["quorum", "classic"]).prop_map(Edit::Kind),
        2 => (at.clone(), ttls()).prop_map(|(at, delays)| Edit::Delays(at, delays)),
        2 => (at.clone(), select(&MEANS[..])).prop_map(|(at, means)| Edit::Means(at, means)),
        2 => at.clone().prop_map(Edit::Block),
        2 => select(&WORDS[..]).prop_map(Edit::Add),
        2 => at.clone().prop_map(Edit::Remove),
        3 => (at, select(&WORDS[..])).prop_map(|(at, to)| Edit::Rename(at, to)),
        2 => select(vec!["u", "v"]).prop_map(Edit::RenameTopology),
    ];
    vec(edit, 0..5)
}

/// A change that was made to the broker by hand, or by an older version.
#[derive(Clone, Debug)]
pub(super) enum Tamper {
    /// A queue was declared with another argument.
    Argument(usize, &'static str, Option<Argument>),
    /// A binding was removed.
    Unbound(usize),
    /// A queue has no label, and the file adopts it.
    Unlabelled(usize),
    /// An adopted queue of somebody else, with an event in it, that the file does not ask for.
    Legacy,
}

pub(super) fn tampers() -> impl Strategy<Value = Vec<Tamper>> {
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

/// Applies the tampers to the compiled first file. Returns the objects on the broker, and the names that the files
/// adopt.
pub(super) fn tampered(mut there: Desired, tampers: &[Tamper]) -> (Desired, Vec<String>) {
    let mut adopt = Vec::new();
    for tamper in tampers {
        let (queues, bindings) = (there.queues.len(), there.bindings.len());
        match tamper {
            Tamper::Argument(at, name, value) => {
                let queue = &mut there.queues[at % queues];
                if queue.is_stream() {
                    // A stream that differs blocks the plan.
                    continue;
                }
                let arguments = &mut queue.arguments;
                match value {
                    None => drop(arguments.remove(*name)),
                    Some(value) => drop(arguments.insert((*name).to_owned(), value.clone())),
                }
            }
            // The first binding is that of `unrouted`. Without it messages are lost before any `apply` can restore it.
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
