//! Compares the schema with the reader, which are built from the same tables.

#[path = "../../tests/support/invalid.rs"]
mod invalid;

use std::{collections::BTreeMap, sync::LazyLock};

use jsonschema::Validator;
use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::{
    hostile_tests::mutated,
    levels::{LEVELS, TOP},
    table::{Absent, Key, Kind, Level},
    yaml::{Node, Value},
    *,
};

/// The cases that a schema cannot refuse, each with the reason. The schema refuses all other cases of `tests/invalid`.
const UNSEEN: &[(&str, &[&str])] = &[
    (
        "a bound of a duration, which is a text",
        &[
            "breaker-window-short",
            "hatchery-too-long",
            "ladder-horizon-eleven-years",
            "lease-short",
            "schedule-every-short",
        ],
    ),
    ("a bound of a size, which is a text", &["max-payload-large", "keep-payload-large", "life-cycle-size-small"]),
    ("whole milliseconds of a duration, which is a text", &["hatchery-fraction"]),
    ("two texts that mean the same", &["hatchery-same"]),
    ("a pointer that is a part of another one", &["source-when-never"]),
    (
        "a number of one key that does not fit another's",
        &[
            "concurrency-above-prefetch",
            "concurrency-above-prefetch-defaults",
            "concurrency-above-prefetch-own",
            "held-too-long",
            "held-too-long-ack-timeout",
            "held-too-long-block",
            "held-too-long-defaults",
            "held-too-long-drain",
            "held-too-long-in-place",
            "held-too-long-one-run",
        ],
    ),
    (
        "a duration of one key that does not fit another's",
        &["coalesce-max-wait-short", "ladder-horizon-short", "ladder-level-above-ten-years"],
    ),
    (
        "a key that needs another, which `defaults` may have",
        &[
            "coalesce-window-off",
            "exclusive-off-coalescing",
            "breaker-cooldown-manual-register",
            "register-off-coalesce",
            "register-off-keep-payload",
            "register-off-defaults",
            "register-off-exclusive",
        ],
    ),
    (
        "a key that does not go with another, which `defaults` may have",
        &["block-concurrency", "breaker-minimum", "idle"],
    ),
    ("a name of one key that another key has", &["renamed-from-itself", "renamed-from-a-type", "renamed-from-twice"]),
    ("`defaults` takes what a type takes", &["renamed-from-defaults"]),
    ("a word that RabbitMQ keeps for itself in some places", &["name-reserved", "renamed-from-reserved"]),
    (
        "a key of a source that does not go with another",
        &["source-two-queues", "source-no-queue", "source-ordered-off", "source-same-queue"],
    ),
    ("a name that another key has, or has not", &["source-unknown-type", "source-is-a-type", "source-own-queue"]),
    ("a name of the time zone database", &["schedule-zone", "source-zone-unknown"]),
    (
        "a cron expression, which is a text",
        &["schedule-day", "schedule-fields", "schedule-hour", "schedule-minute", "schedule-never"],
    ),
    (
        "a key of a schedule that does not go with another",
        &["schedule-no-calendar", "schedule-overlap-sequential", "schedule-two-calendars", "schedule-zone-interval"],
    ),
    (
        "a type of another kind",
        &["notify-breaker", "notify-unknown-type", "schedule-no-register", "schedule-unknown-type"],
    ),
    ("YAML has numbers that JSON has not", &["schedule-payload-number"]),
    ("an editor reads YAML 1.2, in which `off` is a text", &["name-off", "prefix-off", "source-when-boolean"]),
];

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| jsonschema::draft202012::new(&schema()).expect("a schema"));

/// YAML 1.1 and 1.2 differ in the words that they read as booleans.
#[derive(Clone, Copy, Debug)]
enum View {
    /// YAML 1.1, as in the reader: `off` is false.
    Yaml11,
    /// YAML 1.2, as in editors: `off` is text.
    Yaml12,
}

/// Converts the document to JSON, as a JSON Schema validator sees it.
fn json(text: &str, node: &Node, view: View) -> Json {
    let source = text.get(node.span.clone()).unwrap_or_default();
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(boolean) => match (view, source.to_ascii_lowercase().as_str()) {
            (View::Yaml11, _) | (View::Yaml12, "true" | "false") => (*boolean).into(),
            (View::Yaml12, _) => source.into(),
        },
        Value::Whole(number) => (*number).into(),
        Value::Number => source.parse::<f64>().map_or_else(|_| source.into(), Json::from),
        Value::Text(text) => text.as_str().into(),
        Value::List(list) => list.iter().map(|node| json(text, node, view)).collect(),
        Value::Map(map) => map.iter().map(|(word, node)| (word.text.clone(), json(text, node, view))).collect(),
    }
}

/// Returns why the schema refuses this text, or `None` if it accepts it.
fn refusal(text: &str, view: View) -> Option<String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let document = json(text, &yaml::parse(text).expect("YAML"), view);
    let errors: Vec<String> =
        VALIDATOR.iter_errors(&document).map(|error| format!("{}: {error}", error.instance_path())).collect();
    (!errors.is_empty()).then(|| errors.join("\n"))
}

fn accepts(text: &str) -> Result<(), String> {
    for view in [View::Yaml11, View::Yaml12] {
        if let Some(why) = refusal(text, view) {
            return Err(format!("read as {view:?}: {why}\n{text}"));
        }
    }
    Ok(())
}

#[test]
fn the_schema_is_valid_in_its_dialect() {
    jsonschema::draft202012::meta::validate(&schema()).expect("valid");
}

#[test]
fn the_schema_accepts_every_example() {
    let readme = include_str!("../../README.md");
    let in_readme = readme.split("```yaml").nth(1).and_then(|rest| rest.split("```").next()).expect("an example");
    let starter = include_str!("starter.yaml");
    for text in [include_str!("../../topology.yaml"), starter, in_readme] {
        accepts(text).unwrap_or_else(|why| panic!("{why}"));
    }
}

#[test]
fn the_schema_refuses_invalid_files_unless_they_are_listed() {
    let mut unseen: BTreeMap<&str, &str> =
        UNSEEN.iter().flat_map(|(why, names)| names.iter().map(|name| (*name, *why))).collect();
    let mut wrong = Vec::new();
    for invalid::Case { name, yaml, .. } in invalid::pages().into_iter().flat_map(|page| page.cases) {
        let reason = unseen.remove(name.as_str());
        // An editor reports invalid YAML without a schema.
        let Err(error) = read(&yaml, "topology.yaml") else { panic!("{name} is valid") };
        if error.refusal() == Refusal::Syntax {
            continue;
        }
        match (refusal(&yaml, View::Yaml12), reason) {
            (Some(_), None) | (None, Some(_)) => {}
            (None, None) => wrong.push(format!("{name} is accepted, and UNSEEN does not say why")),
            (Some(why), Some(_)) => wrong.push(format!("{name} is in UNSEEN, and refused: {why}")),
        }
    }
    wrong.extend(unseen.keys().map(|name| format!("{name} is in UNSEEN, and there is no such case")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_schema_lists_the_words_of_each_choice() {
    let schema = schema();
    let of_type = &schema["$defs"]["type"]["properties"];
    assert_eq!(of_type["coalesce"]["anyOf"][0], json!({ "enum": ["off", "latest", "first"] }));
    let immediate = &of_type["coalesce"]["properties"]["immediate"];
    assert_eq!(immediate["anyOf"][0], json!({ "enum": ["off", "latest", "first"] }));
    assert_eq!(of_type["on-failure"]["anyOf"], json!([{ "enum": ["retry", "in-place", "block", "drop"] }]));
}

#[test]
fn the_schema_has_the_description_and_the_default_of_each_key() {
    let schema = schema();
    let prefetch = &schema["$defs"]["type"]["properties"]["prefetch"];
    assert_eq!(
        prefetch,
        &json!({
            "type": "integer", "minimum": 1, "maximum": 65_535, "default": 100,
            "description": "The deliveries that a worker holds at most, those that run included. Unless the key is set, \
                `block` lowers it to 10, `in-place` divides it by the tries, and it is lowered \
                until all runs fit into `ack-timeout`. Default: 100. From 1 to 65535.",
        })
    );
    let described = |level: &Json| {
        let properties = level["properties"].as_object().expect("properties").clone();
        properties.into_iter().filter(|(_, schema)| schema["description"].as_str().is_none_or(str::is_empty)).count()
    };
    let of_type = &schema["$defs"]["type"];
    for level in [
        &schema,
        of_type,
        &of_type["properties"]["retry"],
        &of_type["properties"]["in-place"],
        &of_type["properties"]["coalesce"],
        &of_type["properties"]["breaker"],
    ] {
        assert_eq!((described(level), &level["additionalProperties"]), (0, &json!(false)));
    }
    assert_eq!(schema["required"], json!(["version", "name", "types"]));
    assert_eq!(of_type["properties"]["retry"]["properties"]["delays"]["default"], json!(["10s", "1m", "10m"]));
    assert_eq!(of_type["properties"]["keep-payload"]["default"], json!("off"));
}

fn texts(of: &'static [&'static str]) -> BoxedStrategy<String> {
    prop::sample::select(of).prop_map(str::to_owned).boxed()
}

/// Generates a duration in one of its spellings, valid or almost valid.
fn spelled_duration() -> BoxedStrategy<String> {
    const UNITS: &[&str] = &[
        "ms",
        "s",
        "m",
        "h",
        "d",
        "w",
        "sec",
        "seconds",
        "mins",
        "minute",
        "hrs",
        "hours",
        "days",
        "weeks",
        "millis",
        "us",
        "µs",
        "nanoseconds",
        "mo",
        "y",
        "",
    ];
    let fraction = prop_oneof![4 => Just(String::new()), 1 => texts(&[".5", ",25", ".000"])];
    let part = (0..2_000_u32, fraction, texts(&["", "", " "]), texts(UNITS), texts(&["", " ", ", "]))
        .prop_map(|(number, fraction, space, unit, after)| format!("{number}{fraction}{space}{unit}{after}"));
    let parts = prop::collection::vec(part, 1..3).prop_map(|parts| parts.concat());
    let others =
        texts(&["PT1H", "pt90s", "P1DT2H", "P2W", "PT1.5S", "+5s", "12:30:00", "1d 00:00:01", " 5s ", "0s", "1y"]);
    prop_oneof![3 => parts, 1 => others].prop_map(|text| format!("{text:?}")).boxed()
}

/// Generates a value for this key as YAML. Most are of the right kind.
fn value(key: &'static Key) -> BoxedStrategy<String> {
    let right = match &key.kind {
        Kind::Version => texts(&["1"]),
        Kind::Word => texts(&["billing", "\"on\"", "a_1-B"]),
        Kind::Names => texts(&["invoicing", "[]", "[post, parcel]", "[\"off\"]"]),
        Kind::Objects => texts(&["[]", "[legacy.tmp]", "[\"größe 1\", amqp]"]),
        Kind::Prefix => texts(&["hatchery", "\"p:q\"", "größe", "\"#1\""]),
        Kind::Whole(least, most) => (*least..=(*most).min(90)).prop_map(|number| number.to_string()).boxed(),
        Kind::Bytes(_) => texts(&["1", "16777216", "64KiB", "1 KiB", "16MiB", "016MiB", "\"512B\""]),
        Kind::Duration(..) => texts(&["1s", "5s", "\"1500ms\"", "1m", "0h 1m", "PT3S", "2 secs"]),
        Kind::DurationOr(word, ..) => {
            prop::sample::select(vec!["1s", "1m", "PT3S", *word]).prop_map(str::to_owned).boxed()
        }
        Kind::Errors(_) => texts(&["1", "100", "50%", "\"12.5 %\"", "100%"]),
        Kind::Ttls { .. } => texts(&["[1s]", "[250ms, 1 h]", "[5s, 1m, 3650d]", "[\"90s\"]"]),
        Kind::Share => texts(&["0", "0.2", "1", "20%", "\"12.5 %\"", "100%", ".5", "1e-1"]),
        Kind::Switch => texts(&["on", "true", "YES", "\"On\"", "y"]),
        Kind::Pause => texts(&["on", "true", "no", "off", "\"the provider migrates\"", "closed"]),
        Kind::Choice(choices) => {
            let words = choices.iter().map(|choice| match *choice {
                "off" => texts(&["off", "false", "No", "\"OFF\"", "n"]),
                "on" => texts(&["on", "TRUE", "Yes", "\"on\""]),
                word => Just(word.to_owned()).boxed(),
            });
            prop::strategy::Union::new(words).boxed()
        }
        Kind::Size(_) => texts(&["off", "False", "\"no\"", "1", "65536", "4KiB", "64 KiB", "\"512B\""]),
        Kind::Disk(..) => texts(&["10485760", "1GiB", "16 MiB", "1024GiB"]),
        Kind::Section(level) => prop_oneof![9 => map(level), 1 => texts(&["", "~"])].boxed(),
        Kind::Short(level, forms) => {
            let words: Vec<&str> = forms.iter().map(|form| form.word).chain(["False", "no"]).collect();
            prop_oneof![prop::sample::select(words).prop_map(str::to_owned), map(level)].boxed()
        }
        Kind::Types(level) => prop::collection::btree_map("[a-z0-9]{1,3}|on", map(level), 1..3)
            .prop_map(|types| flow(types.into_iter().collect()))
            .boxed(),
        Kind::Sources(level) => prop::collection::btree_map("[a-z0-9]{1,3}", map(level), 0..2)
            .prop_map(|sources| flow(sources.into_iter().collect()))
            .boxed(),
        Kind::Schedules(level) => prop::collection::btree_map("[a-z0-9]{1,3}", map(level), 0..2)
            .prop_map(|schedules| flow(schedules.into_iter().collect()))
            .boxed(),
        Kind::Cron => texts(&["\"0 3 * * 1-5\"", "\"@daily\"", "\"*/10 * * * * *\""]),
        Kind::ReferenceText => texts(&["all", "\"1234\""]),
        Kind::Json => texts(&["{}", "{ full: true, of: [1, -2.5, ~] }", "plain", "5", "~"]),
        Kind::Rules(level) => {
            prop::collection::vec(map(level), 1..3).prop_map(|rules| format!("[{}]", rules.join(", "))).boxed()
        }
        Kind::Conditions => texts(&["{ /kind: a }", "{ /a/b: [1, null], \"/c~1d\": true }", "{}", "{ /x: -1.5 }"]),
        Kind::Pointer => texts(&["/", "\"\"", "/employee/number", "/a~0b/0"]),
        Kind::Reference => texts(&["/", "/employee/number", "{ const: all }", "{ const: \"1\" }"]),
        Kind::Object => texts(&["hr-changes", "\"größe 1\""]),
        Kind::Zone => texts(&["UTC", "Europe/Berlin", "America/New_York"]),
    };
    let any = ["", "~", "5", "[]", "{}", "\"\"", "on", "1.5", "first", "[[]]", "{ mail: }", "-0", "0x10", "1_000"];
    let wrong = prop_oneof![prop::sample::select(any.to_vec()).prop_map(str::to_owned), spelled_duration()];
    prop_oneof![60 => right, 1 => wrong].boxed()
}

fn flow(entries: Vec<(String, String)>) -> String {
    let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key}: {value}")).collect();
    format!("{{ {} }}", entries.join(", "))
}

/// Generates a map with the required keys of this level and some others.
fn map(level: &'static Level) -> BoxedStrategy<String> {
    let entry = |key: &'static Key| {
        let likely = match (key.absent, &key.kind) {
            (Absent::Required, _) => 0.99,
            // The file has a type of that name by chance alone, and most breakers count no runs.
            (_, Kind::Section(level)) if level.name == "`notify`" => 0.02,
            _ if key.name == "minimum" => 0.02,
            _ => 0.17,
        };
        prop::option::weighted(likely, value(key).prop_map(|value| (key.name.to_owned(), value)))
    };
    let entries: Vec<_> = level.keys.iter().map(entry).collect();
    entries.prop_map(|entries| flow(entries.into_iter().flatten().collect())).boxed()
}

#[test]
fn the_generator_makes_enough_accepted_files() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let tree = |_| map(&TOP).new_tree(&mut runner).expect("a value").current();
    let accepted = (0..300).map(tree).filter(|text| read(text, "topology.yaml").is_ok()).count();
    assert!(accepted >= 100, "{accepted} of 300");
    assert_eq!(LEVELS.len(), 13, "the generator goes through every level");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_schema_accepts_every_file_that_the_reader_accepts(text in prop_oneof![4 => map(&TOP), 1 => mutated()]) {
        if read(&text, "topology.yaml").is_ok() {
            prop_assert_eq!(accepts(&text), Ok(()));
        }
    }

    #[test]
    fn the_schema_accepts_every_duration_that_the_reader_accepts(text in spelled_duration()) {
        let text = format!("{{ version: 1, name: t, hatcheries: [{text}], types: {{ mail: }} }}");
        if read(&text, "topology.yaml").is_ok() {
            prop_assert_eq!(accepts(&text), Ok(()));
        }
    }
}
