//! Renders a plan for people: one line for each object, one line for a whole ladder, and the summary last.

use std::collections::BTreeMap;

use anstyle::Style;
use hatchery::internals::{compile::Binding, words::plain};
use hatchery_admin::{
    Asked, names,
    plan::{Action, Address, Change, Kind, Need, Object, Plan},
};
use serde_json::Value;

use crate::{
    besides::Besides,
    output::{CYAN, DIM, GREEN, RED, YELLOW},
};

/// The longest name that sets the width of the name column. A longer name moves only the details of its own line.
const LONGEST_NAME: usize = 34;

/// One line, for one object or for a whole ladder.
struct Row {
    action: Action,
    sign: char,
    first: Address,
    ladder: Option<String>,
    counts: BTreeMap<Kind, usize>,
    details: Vec<String>,
    /// Whether the object is a leftover. An object that `destroy` removes has the same action, but no reason.
    is_leftover: bool,
}

/// Returns all lines of a plan, and its summary. With `verbose` each binding and each object of others has a line too.
/// Details that do not fit into `columns` continue on the next line.
pub(crate) fn plan(plan: &Plan, besides: &Besides, file: &str, verbose: bool, asked: Asked, columns: usize) -> String {
    let lines = drawn(plan, besides, verbose, asked, columns);
    format!("{lines}{}\n", summary(plan, besides, file, asked))
}

/// Returns all lines of a plan, without its summary.
pub(crate) fn lines(plan: &Plan, verbose: bool, asked: Asked, columns: usize) -> String {
    drawn(plan, &Besides::default(), verbose, asked, columns)
}

fn drawn(plan: &Plan, besides: &Besides, verbose: bool, asked: Asked, columns: usize) -> String {
    let (rows, besides) = (rows(plan, verbose, asked), besides.rows());
    let names = rows.iter().map(Row::name).chain(besides.iter().map(|(_, _, name, _)| name.as_str()));
    let width = names.map(|name| name.chars().count()).filter(|n| *n <= LONGEST_NAME).max().unwrap_or(0);
    let lines = rows.iter().map(|row| row.line(width, columns));
    let besides = besides.into_iter().map(|(sign, kind, name, change)| {
        laid_out(sign, kind, &plain(&name), &[plain(&change).into_owned()], width, columns)
    });
    lines.chain(besides).collect()
}

/// Returns the last line: `Plan: 61 add, 0 change, 1 leftover (goes with --prune).`
fn summary(plan: &Plan, besides: &Besides, file: &str, asked: Asked) -> String {
    let counts = plan.counts();
    let fate = if asked.prune { "" } else { " (goes with --prune)" };
    if asked.nothing_to_do(plan) && !besides.is_change() {
        let leftovers = match counts.leftover {
            0 => String::new(),
            1 => format!("\n1 leftover stays{fate}."),
            many => format!("\n{many} leftovers stay{}.", fate.replace("goes", "go")),
        };
        return format!("No changes. The broker is as {file} says.{leftovers}");
    }
    let mut parts = vec![format!("{} add", counts.add), format!("{} change", counts.change)];
    let (migrate, blocked) = if asked.migrate { (counts.migrate, 0) } else { (0, counts.migrate) };
    let (schedules, pauses) = (besides.changed().count(), besides.pauses.iter().flatten().count());
    let more = [
        (migrate, "to migrate", ""),
        (counts.leftover, if asked.prune { "to remove" } else { "leftover" }, fate),
        (counts.blocked + blocked, "blocked", ""),
        (schedules, if schedules == 1 { "schedule" } else { "schedules" }, ""),
        (pauses, if pauses == 1 { "pause" } else { "pauses" }, ""),
    ];
    parts.extend(more.into_iter().filter(|(n, ..)| *n > 0).map(|(n, name, more)| format!("{n} {name}{more}")));
    format!("Plan: {}.", parts.join(", "))
}

fn rows(plan: &Plan, verbose: bool, asked: Asked) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut places: BTreeMap<(Action, String), usize> = BTreeMap::new();
    for change in plan.changes.iter().filter(|change| verbose || change.action != Action::Ignored) {
        let ladder = if verbose { None } else { ladder(change) };
        let place = match (&ladder, &change.part_of) {
            // Only `-v` shows the messages that a leftover level holds. Levels that are blocked for different reasons
            // have lines of their own.
            (Some(ladder), _) if change.action == Action::Leftover => format!("ladder {ladder}"),
            (Some(ladder), _) => format!("ladder {ladder} {}", said(&without_held(change), asked).join(" ")),
            (None, Some(whole)) if !verbose => whole.to_string(),
            (None, _) => change.address.to_string(),
        };
        let at = *places.entry((change.action, place)).or_insert_with(|| {
            rows.push(Row {
                action: change.action,
                sign: if asked.migrate && change.action == Action::Migrate { '~' } else { change.action.sign() },
                // Another owner's queue may have control characters in its name.
                first: Address::new(change.address.kind, &plain(&change.address.name)),
                ladder: ladder.clone(),
                counts: BTreeMap::new(),
                details: Vec::new(),
                is_leftover: change.action == Action::Leftover && change.reason.is_some(),
            });
            rows.len() - 1
        });
        let row = &mut rows[at];
        if row.ladder.is_none() || row.counts.is_empty() {
            row.details.extend(details(change, verbose, asked).iter().map(|detail| plain(detail).into_owned()));
        } else {
            // Each level holds another number of messages, so one line for all levels shows none.
            row.details = details(&without_held(change), verbose, asked);
        }
        *row.counts.entry(change.address.kind).or_default() += 1;
    }
    rows
}

fn without_held(change: &Change) -> Change {
    Change { held: None, ..change.clone() }
}

/// Returns the ladder that a change belongs to, if any, so that one line can stand for the whole ladder. The ladder may
/// belong to a former topology.
fn ladder(change: &Change) -> Option<String> {
    let whole = change.part_of.as_ref().map(|whole| whole.name.as_str());
    let ends = match &change.object {
        Some(Object::Binding(Binding { source, target, .. })) => [Some(source.as_str()), Some(target.name())],
        _ => [None, None],
    };
    [Some(change.address.name.as_str()), whole]
        .into_iter()
        .chain(ends)
        .flatten()
        .find_map(names::ladder_of)
        .map(str::to_owned)
}

/// Returns the details of a change, which stand after the object's name.
fn details(change: &Change, verbose: bool, asked: Asked) -> Vec<String> {
    // The bindings of a leftover share its fate, which the leftover's own line shows.
    if change.part_of.is_some() && change.action == Action::Leftover && !verbose {
        return Vec::new();
    }
    let content = match &change.object {
        // It is created with the topology, and says nothing to a person who looks at a plan for the first time.
        Some(Object::Binding(binding)) if is_mark(change, binding) && !verbose => return said(change, asked),
        Some(Object::Binding(binding)) if change.part_of.is_some() && !verbose => format!("key {}", binding.key),
        Some(Object::Policy(policy)) if change.action == Action::Create => {
            let set = policy.definition.iter().map(|(key, value)| format!("{key} {}", Value::from(value)));
            set.collect::<Vec<_>>().join(", ")
        }
        _ => return said(change, asked),
    };
    [content].into_iter().chain(said(change, asked)).collect()
}

/// Returns whether a new binding routes nothing, and only tells where the register is.
fn is_mark(change: &Change, binding: &Binding) -> bool {
    change.action == Action::Create && change.part_of.is_some() && names::marked_register(&binding.key).is_some()
}

/// Returns the differences of a change, its reason, the messages that the object holds, and the flag that it needs.
fn said(change: &Change, asked: Asked) -> Vec<String> {
    let mut said: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
    // The differences explain a migration well enough.
    let reason = change.reason.clone().filter(|_| change.action != Action::Migrate || said.is_empty());
    let held = change.held.map(|held| format!("({held})"));
    let about = [reason, held].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let need = match change.needs {
        Some(Need::Adopt) => Some(format!("needs adopt: [{}]", change.address.name)),
        Some(Need::Migrate) if !asked.migrate => Some("blocked: needs --migrate".to_owned()),
        _ => None,
    };
    said.extend([about].into_iter().chain(need).filter(|it| !it.is_empty()));
    said
}

impl Row {
    /// Returns the ladder that this line stands for, or `None` if the line stands for a single object.
    fn group(&self) -> Option<&str> {
        self.ladder.as_deref().filter(|_| self.counts.values().sum::<usize>() > 1)
    }

    fn name(&self) -> &str {
        self.group().unwrap_or(&self.first.name)
    }

    fn line(&self, width: usize, columns: usize) -> String {
        let (kind, details) = match self.group() {
            None => (self.first.kind.to_string(), self.details.clone()),
            Some(_) if self.is_leftover => ("ladder".to_owned(), vec![format!("leftover, {}", self.counted())]),
            Some(_) if matches!(self.action, Action::Create | Action::Leftover) => {
                ("ladder".to_owned(), vec![self.counted()])
            }
            Some(_) => ("ladder".to_owned(), [self.counted()].into_iter().chain(self.details.clone()).collect()),
        };
        laid_out(self.sign, &kind, self.name(), &details, width, columns)
    }

    fn counted(&self) -> String {
        let counts = self.counts.iter().map(|(kind, n)| format!("{n} {kind}{}", if *n == 1 { "" } else { "s" }));
        counts.collect::<Vec<_>>().join(", ")
    }
}

/// Returns a line of the plan. Details that do not fit into `columns` continue on the next line.
fn laid_out(sign: char, kind: &str, name: &str, details: &[String], width: usize, columns: usize) -> String {
    let style = style(sign);
    let head = format!("{sign} {kind:8} {name:width$}");
    let one = details.join("  ");
    if one.is_empty() {
        return format!("{style}{}{style:#}\n", head.trim_end());
    }
    let taken = head.chars().count() + 2;
    if taken + one.chars().count() <= columns {
        return format!("{style}{head}  {one}{style:#}\n");
    }
    // A long name leaves no room, so the details begin on the next line, in the same column as those of other
    // lines.
    let column = width + 13;
    let (first, indent) = if taken > column { (String::new(), column) } else { ("  ".to_owned(), taken) };
    let separator = format!("\n{:indent$}", "");
    let lines: Vec<String> =
        details.iter().flat_map(|detail| wrapped(detail, columns.saturating_sub(indent))).collect();
    let first = if first.is_empty() { separator.clone() } else { first };
    let line = format!("{head}{first}{}", lines.join(&separator));
    format!("{style}{line}{style:#}\n")
}

/// Wraps text at spaces to lines of at most `room` characters. A longer word gets a line of its own. A text in brackets
/// at the end is not split.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let (text, end) = match text.rfind(" (") {
        Some(at) if text.ends_with(')') => text.split_at(at),
        _ => (text, ""),
    };
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ').chain(end.strip_prefix(' ')) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn style(sign: char) -> Style {
    match sign {
        '+' => GREEN,
        '~' | '*' => YELLOW,
        '-' => CYAN,
        '!' => RED,
        _ => DIM,
    }
}
