//! The picture as a tree for the terminal.

use std::fmt::Write as _;

use super::picture::{Picture, QUARANTINE, Schedule, SourceQueue, Swimlane, longest, shortened};

/// The longest name that has its description beside it.
const WIDEST_NAME: usize = 40;

/// A node, its description, and the nodes below it.
struct Tree {
    name: String,
    about: String,
    below: Vec<Tree>,
}

/// A line before layout.
struct Row {
    name: String,
    about: String,
    /// The vertical lines of the tree, drawn again where the description is wrapped.
    margin: String,
}

/// Draws the picture as a tree with lines of at most `columns`.
#[must_use]
pub fn text(picture: &Picture, columns: usize) -> String {
    let mut rows = Vec::new();
    for tree in trees(picture) {
        if !rows.is_empty() {
            rows.push(Row { name: String::new(), about: String::new(), margin: String::new() });
        }
        add(&tree, "", "", columns, &mut rows);
    }
    let widths = rows.iter().filter(|row| !row.about.is_empty()).map(|row| row.name.chars().count());
    let column = widths.filter(|width| *width <= WIDEST_NAME).max().unwrap_or_default() + 2;
    let title = format!("{}: {}", picture.name, picture.summary());
    let mut out = wrapped(&title, columns).join("\n") + "\n\n";
    for row in &rows {
        lay_out(row, column, columns, &mut out);
    }
    if let Some(rest) = picture.rest() {
        let _ = write!(out, "\n{rest}\n");
    }
    out
}

fn trees(picture: &Picture) -> Vec<Tree> {
    let mut timers = vec![leaf("now", "at once")];
    for timer in &picture.timers {
        timers.push(leaf(&format!("hatchery.{}", timer.ttl), &timer.purposes.join(", ")));
    }
    let ladder = picture.ladder;
    let about = format!(
        "every other delay, in steps of {} up to {}: {} queues, each twice as long as the one below",
        ladder.resolution(),
        longest(ladder),
        ladder.levels()
    );
    timers.push(leaf(&format!("ladder.{ladder}"), &about));
    let main = [
        Tree {
            name: "scheduler".to_owned(),
            about: "takes every published event; leads to processor".to_owned(),
            below: timers,
        },
        Tree {
            name: "processor".to_owned(),
            about: "takes due events".to_owned(),
            below: picture.lanes.iter().map(|lane| tree(lane, &picture.schedules)).collect(),
        },
        leaf("unrouted", "alternate exchange: messages without a binding"),
    ];
    let life_cycle = picture.life_cycle.as_ref().map(|about| leaf("life-cycle", about));
    picture.sources.iter().map(source).chain(main).chain(life_cycle).collect()
}

fn source(source: &SourceQueue) -> Tree {
    let name = source.word.trim_start_matches("source-");
    let below = vec![
        leaf("workers", &format!("topology work --source {name}; they publish to scheduler")),
        leaf(&format!("dead-letter.{}", source.word), "messages that become no event, for people"),
    ];
    Tree { name: source.queue.clone(), about: source.about.clone(), below }
}

fn tree(lane: &Swimlane, schedules: &[Schedule]) -> Tree {
    let label = lane.label();
    let mut workers = format!("{}, {} prefetched", lane.at_a_time(), lane.prefetch);
    if let Some(failing) = lane.failing() {
        workers = format!("{workers}; {failing}");
    }
    let retry = lane.retries.iter().map(|ttl| leaf(&format!("retry.{label}.{ttl}"), &lane.when(*ttl)));
    let dead = lane.buried();
    let schedules = schedules.iter().filter(|schedule| lane.types.contains(&schedule.event_type));
    let below = schedules
        .map(|schedule| leaf(&format!("schedule {}", schedule.name), &schedule.about))
        .chain([leaf("workers", &workers)])
        .chain(retry)
        .chain(lane.quarantine().map(|name| leaf(&name, QUARANTINE)))
        .chain([leaf(&format!("dead-letter.{label}"), &dead)])
        .collect();
    let about = [lane.members().unwrap_or_default(), lane.coalescing().join(", ")];
    let about: Vec<String> = about.into_iter().filter(|part| !part.is_empty()).collect();
    Tree { name: format!("processor.{label}"), about: about.join("; "), below }
}

fn leaf(name: &str, about: &str) -> Tree {
    Tree { name: name.to_owned(), about: about.to_owned(), below: Vec::new() }
}

/// Appends the rows of a tree. `first` stands before the line of its root, `rest` before the lines below.
fn add(tree: &Tree, first: &str, rest: &str, columns: usize, rows: &mut Vec<Row>) {
    let margin = if tree.below.is_empty() { rest.to_owned() } else { format!("{rest}│") };
    let name = format!("{first}{}", shortened(&tree.name, columns - first.chars().count()));
    rows.push(Row { name, about: tree.about.clone(), margin });
    let last = tree.below.len().saturating_sub(1);
    for (n, below) in tree.below.iter().enumerate() {
        let (first, after) = if n == last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
        add(below, &format!("{rest}{first}"), &format!("{rest}{after}"), columns, rows);
    }
}

/// Writes a name with its description beside it, or below it if there is no room.
fn lay_out(row: &Row, column: usize, columns: usize, out: &mut String) {
    let mut beside = row.name.clone();
    for line in wrapped(&row.about, columns - column) {
        if beside.chars().count() + 2 > column {
            let _ = writeln!(out, "{beside}");
            beside.clone_from(&row.margin);
        }
        let _ = writeln!(out, "{beside:column$}{line}");
        beside.clone_from(&row.margin);
    }
    if row.about.is_empty() {
        let _ = writeln!(out, "{}", row.name);
    }
}

/// Breaks a text between words into lines of at most this width.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = shortened(word, width);
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}
