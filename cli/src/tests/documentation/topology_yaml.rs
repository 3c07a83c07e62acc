//! The page about every key of topology.yaml. Its examples are read, and the effect of a change is a real plan between two files.

use std::{collections::BTreeSet, fmt::Write as _, time::Duration};

use hatchery::internals::{
    compile::compile,
    file::{Absent, Key, Kind, LEVELS, Level},
    ttl::Ttl,
};
use hatchery_admin::{
    live::Observed,
    plan::{Action, Plan, plan},
};

use super::markdown::{code, codes, page, sentence, wrapped};

/// The part of the page about one level.
struct Part {
    level: &'static Level,
    title: &'static str,
    /// The path of the level in the file, before a key.
    path: &'static str,
    about: &'static str,
    /// The map that the examples are part of.
    frame: Frame,
}

#[derive(Clone, Copy)]
enum Frame {
    File,
    Type,
    Schedule,
    Source,
}

fn part(level: &'static Level) -> Part {
    let (title, path, about, frame) = match level.name {
        "the file" => ("The file", "", "", Frame::File),
        "a type" => (
            "A type",
            "types.*.",
            "A key in `defaults` is the setting of all types that do not have their own.",
            Frame::Type,
        ),
        "`coalesce`" => ("Coalescing", "types.*.coalesce.", "", Frame::Type),
        "`retry`" => ("Retries", "types.*.retry.", "", Frame::Type),
        "`in-place`" => ("Tries in place", "types.*.in-place.", "", Frame::Type),
        "`breaker`" => ("Breakers", "types.*.breaker.", "", Frame::Type),
        "`notify`" => ("Notices", "notify.", "", Frame::File),
        "`life-cycle`" => ("Life of events", "life-cycle.", "", Frame::File),
        "`ladder`" => ("The ladder", "ladder.", "", Frame::File),
        "`redis`" => ("Redis", "redis.", "", Frame::File),
        "a schedule" => (
            "A schedule",
            "schedules.*.",
            "[Schedules](../schedules.md) explains the keys. After a change `topology apply` arms what is new; nothing changes on \
             the broker.",
            Frame::Schedule,
        ),
        "a source" => (
            "A source",
            "sources.*.",
            "[Sources](../sources.md) explains the keys. A change needs a restart of the workers alone.",
            Frame::Source,
        ),
        "a rule of a source" => (
            "A rule of a source",
            "sources.*.events.",
            "Places in a message are JSON Pointers, such as `/employee/number`.",
            Frame::Source,
        ),
        other => panic!("{other} needs a part of the page"),
    };
    Part { level, title, path, about, frame }
}

impl Frame {
    /// Returns a whole file with the keys of an example, and with keys that no file can do without.
    fn file(self, example: &str) -> String {
        let has = |key: &str| example.lines().any(|line| line.starts_with(&format!("{key}:")));
        let with = |lines: &[&str]| -> String {
            let missing = lines.iter().copied().filter(|line| !line.split(':').next().is_some_and(has));
            missing.chain(example.lines()).collect::<Vec<_>>().join("\n")
        };
        let top = ["version: 1", "name: billing", "types: { mail: {} }"];
        let inside =
            |lines: &[&str], text: &str| format!("{}\n    {}\n", lines.join("\n"), text.replace('\n', "\n    "));
        match self {
            Self::File => with(&top),
            Self::Type if example.is_empty() => top.join("\n"),
            Self::Type => inside(&["version: 1", "name: billing", "types:", "  mail:"], example),
            Self::Schedule => {
                let calendar = if has("cron") { &["type: mail"][..] } else { &["type: mail", "every: 1h"] };
                inside(&[&top[..], &["schedules:", "  nightly:"]].concat(), &with(calendar))
            }
            Self::Source => {
                let events = "events: [ { type: mail } ]";
                let queue = if has("declare") { &[events][..] } else { &[events, "queue: hr-changes"] };
                inside(&[&top[..], &["sources:", "  hr:"]].concat(), &with(queue))
            }
        }
    }
}

/// Returns an example without the line of this key and what is below it, and without a map that is empty then.
fn without(example: &str, key: &str) -> String {
    let depth = |line: &str| line.len() - line.trim_start().len();
    let (mut kept, mut below) = (Vec::new(), None);
    for line in example.lines() {
        if below.is_some_and(|key| depth(line) > key) {
            continue;
        }
        let is_key = line.trim_start().trim_start_matches("- ").starts_with(&format!("{key}:"));
        below = is_key.then(|| depth(line));
        kept.extend((!is_key).then_some(line));
    }
    let has_keys = |at: usize| kept.get(at + 1).is_some_and(|next| depth(next) > depth(kept[at]));
    let full = kept.iter().enumerate().filter(|(at, line)| !line.ends_with(':') || has_keys(*at));
    full.map(|(_, line)| *line).collect::<Vec<_>>().join("\n")
}

/// The sentence that says what a change of a key needs, unless it needs what the page says for all keys of the part.
fn effect(part: &Part, key: &Key) -> Option<&'static str> {
    let known = match (part.path, key.name) {
        ("", "name") => Some("Another name is another topology, unless `renamed-from` has the former one."),
        (_, "renamed-from") => {
            Some("[Renaming](../how-to/change-in-production.md#a-new-name-for-a-type) has the steps.")
        }
        ("", "adopt") => Some("See [Adopting existing objects](../operations/changes.md#adopting-existing-objects)."),
        ("redis.", "shards") => Some("As that of [`redis.prefix`](#redisprefix)."),
        ("redis.", "prefix") => Some(
            "Replace all publishers and workers at once. The keys with the former value are not read any more, as if Redis were \
             emptied: events may run twice, and older ones after newer ones. `topology plan` says so.",
        ),
        ("", "schedules") => Some("`topology apply` arms what is new or changed."),
        ("schedules.*.", _) | (_, "version") => return None,
        _ if matches!(key.kind, Kind::Section(_) | Kind::Short(..)) => return None,
        _ => None,
    };
    if known.is_some() {
        return known;
    }
    let after = part.frame.file(key.example);
    let before = match key.absent {
        Absent::Required => part.frame.file(""),
        Absent::Value(_) | Absent::Depends(_) => part.frame.file(&without(key.example, key.name)),
    };
    let desired = |file: &str| {
        let topology = hatchery::file::read(file, "topology.yaml").unwrap_or_else(|error| panic!("{error}"));
        compile(&topology).expect("a safe topology")
    };
    let change = |before: &str, after: &str| plan(&desired(after), &Observed::from(&desired(before)));
    let plans = [change(&before, &after), change(&after, &before)];
    let actions: BTreeSet<Action> = plans.iter().flat_map(actions).collect();
    if actions.contains(&Action::Migrate) || actions.contains(&Action::Blocked) {
        Some("`topology apply --migrate`.")
    } else if actions.contains(&Action::Create) || actions.contains(&Action::Leftover) {
        Some("`topology apply`, later `--prune`.")
    } else if actions.contains(&Action::Change) {
        Some("`topology apply`.")
    } else {
        None
    }
}

fn actions(plan: &Plan) -> impl Iterator<Item = Action> {
    plan.changes.iter().map(|change| change.action)
}

/// Returns the values that a key takes, as a sentence without a full stop.
fn values(kind: &Kind) -> String {
    let or = |words: &[&str]| codes(words.iter().copied());
    match kind {
        Kind::Version => "the number 1".to_owned(),
        Kind::Word => "a word".to_owned(),
        Kind::Names => "one word, or a list of words".to_owned(),
        Kind::Objects => "a list of names of exchanges and queues".to_owned(),
        Kind::Object => "the name of a queue".to_owned(),
        Kind::Prefix => "a text of 1 to 64 characters".to_owned(),
        Kind::Whole(least, most) => format!("a whole number from {least} to {most}"),
        Kind::Bytes(most) => format!("a number of bytes, or a text such as `64KiB`, up to `{}MiB`", most >> 20),
        Kind::Size(most) => format!("`off`, or a number of bytes, or a text such as `4KiB`, up to `{}KiB`", most >> 10),
        Kind::Disk(least, most) => {
            format!("a number of bytes, or a text such as `1GiB`, from `{}` to `{}`", size(*least), size(*most))
        }
        Kind::Duration(least, most) => duration(*least, *most),
        Kind::DurationOr(word, least, most) => format!("`{word}`, or {}", duration(*least, *most)),
        Kind::Errors(most) => format!("a whole number from 1 to {most}, or a part such as `50%`"),
        Kind::Share => "a part from 0 to 1, or a text such as `20%`".to_owned(),
        Kind::Ttls { may_be_empty: true } => "a list of durations".to_owned(),
        Kind::Ttls { may_be_empty: false } => "a list of at least one duration".to_owned(),
        Kind::Switch => "`on` or `off`".to_owned(),
        Kind::Pause => "`on`, `off`, or a text: the reason, which means `on`".to_owned(),
        Kind::Choice(words) => format!("one of {}", or(words)),
        Kind::Short(level, forms) => format!("{}, or a {}", codes(forms.iter().map(|form| form.word)), map(level)),
        Kind::Section(level) => format!("a {}", map(level)),
        Kind::Types(level) | Kind::Schedules(level) | Kind::Sources(level) => {
            format!("names, each with a {}", map(level))
        }
        Kind::Rules(level) => format!("a list of at least one {}", map(level)),
        Kind::Cron => "a cron expression".to_owned(),
        Kind::ReferenceText => "a text of 1 to 255 bytes without control characters".to_owned(),
        Kind::Json => "any value".to_owned(),
        Kind::Conditions => "a map from JSON Pointers to constants or lists of constants".to_owned(),
        Kind::Pointer => "a JSON Pointer".to_owned(),
        Kind::Reference => "a JSON Pointer, or `{ const: TEXT }`".to_owned(),
        Kind::Zone => "a name such as `Europe/Berlin`".to_owned(),
    }
}

fn size(bytes: u64) -> String {
    if bytes.trailing_zeros() >= 30 { format!("{}GiB", bytes >> 30) } else { format!("{}MiB", bytes >> 20) }
}

fn amount(duration: Duration) -> String {
    Ttl::new(duration).map_or_else(|_| "0s".to_owned(), |ttl| ttl.to_string())
}

/// The longest duration of most keys.
const LONGEST: &str = "3650d";

fn duration(least: Duration, most: Duration) -> String {
    match (amount(least).as_str(), amount(most).as_str()) {
        ("1ms", LONGEST) => "a duration".to_owned(),
        (least, LONGEST) => format!("a duration from `{least}`"),
        (least, most) => format!("a duration from `{least}` to `{most}`"),
    }
}

/// Returns the line about the default, unless it is that of the keys below.
fn default(key: &Key) -> Option<String> {
    match (key.absent, &key.kind) {
        (Absent::Required, _) => Some("- Required".to_owned()),
        (Absent::Value(_), Kind::Section(_)) => None,
        (Absent::Value(text), _) => Some(format!("- Default: {}", code(text))),
        (Absent::Depends(text), _) => Some(format!("- Default: {text}")),
    }
}

/// Whether a reader needs no example: the key takes a single value, and the heading has the path to the key.
fn says_itself(key: &Key) -> bool {
    matches!(
        key.kind,
        Kind::Whole(..)
            | Kind::Switch
            | Kind::Choice(_)
            | Kind::Duration(..)
            | Kind::Bytes(_)
            | Kind::Size(_)
            | Kind::Disk(..)
            | Kind::Word
            | Kind::Object
            | Kind::Prefix
            | Kind::Zone
    )
}

fn heading(part: &Part, key: &Key) -> String {
    format!("{}{}", part.path, key.name)
}

/// Returns a link to the part of the page about the keys of a map.
fn map(level: &'static Level) -> String {
    format!("[map](#{})", super::anchor(part(level).title))
}

#[test]
fn the_page_of_the_file_is_as_the_code_says() {
    let mut text = format!(
        "# topology.yaml\n\n{}\n\n{}\n",
        wrapped(
            "Every key of the file. `topology validate` checks a file, `topology plan` shows what a change of it would do on the \
             broker, and an editor completes the keys by the JSON Schema of `topology schema`."
        ),
        wrapped(
            "A **duration** is a number and a unit, such as `250ms`, `90s`, `1h 30m` or `30d`, in whole milliseconds, from `1ms` to `3650d`. A **word** has 1 \
             to 64 letters, digits, `_` or `-`. `on` and `off` may also be written as `true` and `false`. A `*` in a heading stands for \
             a name that you choose, and the example has lines below that name. *A change* says what another value of the key needs \
             ([what that does](../operations/changes.md#changes-and-their-flags)); a map needs what its keys need. Without that line \
             nothing changes on the broker, and publishers and workers need a restart."
        )
    );
    for part in LEVELS.map(part) {
        let _ = writeln!(text, "\n## {}", part.title);
        if !part.about.is_empty() {
            let _ = writeln!(text, "\n{}", wrapped(part.about));
        }
        for key in part.level.keys {
            let _ = write!(text, "\n### `{}`\n\n{}\n\n", heading(&part, key), wrapped(&sentence(key.about)));
            let _ = writeln!(text, "- Values: {}", values(&key.kind));
            if let Some(default) = default(key) {
                let _ = writeln!(text, "{default}");
            }
            if let Some(effect) = effect(&part, key) {
                let _ = writeln!(text, "{}", wrapped(&format!("- A change: {effect}")).replace('\n', "\n  "));
            }
            if !says_itself(key) {
                let _ = write!(text, "\n```yaml\n{}\n```\n", key.example);
            }
        }
    }
    page("topology-yaml", &text);
}

#[test]
fn every_example_is_a_part_of_a_valid_file() {
    for part in LEVELS.map(part) {
        for key in part.level.keys {
            let has = key
                .example
                .lines()
                .any(|line| line.trim_start().trim_start_matches("- ").starts_with(&format!("{}:", key.name)));
            assert!(has, "the example of {} does not show it:\n{}", heading(&part, key), key.example);
            let file = part.frame.file(key.example);
            if let Err(error) = hatchery::file::read(&file, "topology.yaml") {
                panic!("the example of {}: {error}\n{file}", heading(&part, key));
            }
        }
    }
}
