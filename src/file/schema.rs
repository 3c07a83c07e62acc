//! Prints the JSON Schema of the file from the same tables that the reader uses.
//!
//! The schema accepts every file that the reader accepts. It also accepts some that the reader refuses, because JSON Schema
//! cannot compare keys or durations.

use serde_json::{Map, Value, json};

use super::{
    amount::{bytes_text, say},
    levels::{TOP, TYPE},
    sources,
    table::{Absent, Key, Kind, Level, Short},
    yaml,
};

/// The dialect of the schema.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// The pattern of a [`crate::domain::words::Word`].
const WORD: &str = "^[A-Za-z0-9_-]{1,64}$";

/// The pattern of a Redis key's prefix: no brace, no white space, no control character.
const PREFIX: &str =
    "^[^{}\\u0000-\\u0020\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]{1,64}$";

/// The key with the message that editors show for a value that does not match its pattern. Other tools ignore the key.
const SAY: &str = "patternErrorMessage";

/// Returns the JSON Schema (draft 2020-12) of `topology.yaml`, for editors.
///
/// ```
/// let schema = hatchery::file::schema();
/// assert_eq!(schema["properties"]["hatcheries"]["items"]["type"], "string");
/// ```
#[must_use]
pub fn schema() -> Value {
    let mut schema = object(&TOP, &["object"]);
    schema["$schema"] = DIALECT.into();
    schema["title"] = "topology.yaml".into();
    schema["description"] = "A RabbitMQ topology that delays, delivers, retries and buries events.".into();
    schema["$defs"] = json!({ "type": object(&TYPE, &["object", "null"]) });
    schema
}

/// The schema of a map that takes the keys of this level and no others.
fn object(level: &Level, types: &[&str]) -> Value {
    let properties: Map<String, Value> = level.keys.iter().map(|key| (key.name.to_owned(), property(key))).collect();
    let required = level.keys.iter().filter(|key| matches!(key.absent, Absent::Required));
    let required: Vec<&str> = required.map(|key| key.name).collect();
    let mut object = json!({ "type": types, "properties": properties, "additionalProperties": false });
    if let [one] = types {
        object["type"] = (*one).into();
    }
    if !required.is_empty() {
        object["required"] = required.into();
    }
    object
}

/// The schema of one key.
fn property(key: &Key) -> Value {
    let mut schema = value(&key.kind);
    schema["description"] = described(key).into();
    if let (Absent::Value(text), false) = (key.absent, matches!(key.kind, Kind::Section(_))) {
        schema["default"] = default(text);
    }
    schema
}

/// The text that an editor shows for a key: its sentence, its default and its bounds.
fn described(key: &Key) -> String {
    let default = match (key.absent, &key.kind) {
        (Absent::Required, _) => " Required.".to_owned(),
        // The default of a section is shown at each of its keys.
        (Absent::Value(_), Kind::Section(_)) => String::new(),
        (Absent::Value(text) | Absent::Depends(text), _) => format!(" Default: {text}."),
    };
    let bounds = match &key.kind {
        Kind::Whole(least, most) => format!(" From {least} to {most}."),
        Kind::Duration(least, most) | Kind::DurationOr(_, least, most) => {
            format!(" From {} to {}.", say(*least), say(*most))
        }
        Kind::Bytes(most) => format!(" Up to {}MiB.", most >> 20),
        Kind::Size(most) => format!(" Up to {}KiB.", most >> 10),
        Kind::Disk(least, most) => format!(" From {} to {}.", bytes_text(*least), bytes_text(*most)),
        _ => String::new(),
    };
    format!("{}{default}{bounds}", key.about)
}

/// The default as JSON. A word such as `off` stays a string and does not become a boolean.
fn default(text: &str) -> Value {
    match yaml::parse(text).map(|node| node.value) {
        Ok(yaml::Value::Whole(number)) => number.into(),
        Ok(yaml::Value::List(list)) => {
            let texts = list.iter().filter_map(|node| text.get(node.span.clone()));
            texts.collect::<Vec<_>>().into()
        }
        _ => text.into(),
    }
}

fn value(kind: &Kind) -> Value {
    match kind {
        Kind::Version => json!({ "const": 1 }),
        Kind::Word => word(),
        Kind::Names => json!({ "anyOf": [word(), { "type": "array", "items": word(), "uniqueItems": true }] }),
        Kind::Objects => json!({ "type": "array", "items": object_name(), "uniqueItems": true }),
        Kind::Prefix => {
            json!({ "type": "string", "pattern": PREFIX, SAY: "Write a short text without spaces and braces." })
        }
        Kind::Whole(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Bytes(most) => bytes(1, *most),
        Kind::Disk(least, most) => bytes(*least, *most),
        Kind::Duration(least, _) => duration(!least.is_zero()),
        Kind::DurationOr(word, least, _) => json!({ "anyOf": [duration(!least.is_zero()), { "const": word }] }),
        Kind::Errors(most) => json!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": most },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]*)? *%$", SAY: "Write a number of errors, or a part like 50%." },
        ] }),
        Kind::Ttls { may_be_empty: true } => json!({ "type": ["array", "null"], "items": duration(true) }),
        Kind::Ttls { may_be_empty: false } => json!({ "type": "array", "items": duration(true), "minItems": 1 }),
        Kind::Share => json!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]*)? *%$", SAY: "Write a part from 0 to 1, like 0.2 or 20%." },
        ] }),
        Kind::Switch => json!({ "anyOf": words(&["on", "off"]) }),
        Kind::Pause => json!({ "anyOf": [{ "type": "boolean" }, { "type": "string", "pattern": "\\S" }] }),
        Kind::Choice(choices) => json!({ "anyOf": words(choices) }),
        Kind::Size(most) => {
            let mut ways = words(&["off"]);
            ways.push(bytes(1, *most));
            json!({ "anyOf": ways })
        }
        // A `$ref` would be shorter, but some editors ignore a description that stands beside a `$ref`.
        Kind::Section(level) if !std::ptr::eq(*level, &raw const TYPE) => object(level, &["object", "null"]),
        Kind::Section(_) => json!({ "$ref": "#/$defs/type" }),
        Kind::Short(level, forms) => short(level, forms),
        Kind::Types(_) => json!({
            "type": "object",
            "propertyNames": word(),
            "additionalProperties": { "$ref": "#/$defs/type" },
            "minProperties": 1,
        }),
        Kind::Sources(level) => json!({
            "type": ["object", "null"],
            "propertyNames": source_name(),
            "additionalProperties": object(level, &["object"]),
        }),
        Kind::Schedules(level) => json!({
            "type": ["object", "null"],
            "propertyNames": word(),
            "additionalProperties": object(level, &["object"]),
        }),
        Kind::ReferenceText => json!({ "type": "string", "minLength": 1, "maxLength": 255 }),
        Kind::Json => json!({}),
        Kind::Rules(level) => json!({ "type": "array", "items": object(level, &["object"]), "minItems": 1 }),
        Kind::Conditions => json!({
            "type": "object",
            "propertyNames": pointer(),
            "additionalProperties": {
                "type": ["string", "number", "boolean", "null", "array"],
                "items": { "type": ["string", "number", "boolean", "null"] },
                "minItems": 1,
            },
        }),
        Kind::Pointer => pointer(),
        Kind::Reference => json!({ "anyOf": [pointer(), constant_reference()] }),
        Kind::Object => object_name(),
        Kind::Cron | Kind::Zone => json!({ "type": "string", "minLength": 1 }),
    }
}

fn word() -> Value {
    json!({ "type": "string", "pattern": WORD, SAY: "Write one word of 1 to 64 letters, digits, _ or -." })
}

fn source_name() -> Value {
    let say = "Write one word of 1 to 57 letters, digits, _ or -.";
    json!({ "type": "string", "pattern": WORD, "maxLength": sources::LONGEST_NAME, SAY: say })
}

fn pointer() -> Value {
    let say = "Write a JSON Pointer, like /employee/number; / is the whole message.";
    json!({ "type": "string", "pattern": "^(/([^~]|~[01])*)?$", SAY: say })
}

fn constant_reference() -> Value {
    json!({
        "type": "object",
        "properties": { "const": { "type": "string", "minLength": 1, "maxLength": 255, "description": "The reference of every event." } },
        "required": ["const"],
        "additionalProperties": false,
    })
}

/// The name of an exchange or queue outside this topology. The names that RabbitMQ reserves are excluded.
fn object_name() -> Value {
    let say = "Write the name of an exchange or queue of yours.";
    json!({ "type": "string", "pattern": "^(?!amq\\.)", "minLength": 1, "maxLength": 255, SAY: say })
}

fn bytes(least: u64, most: u64) -> Value {
    let units = if most < 1 << 30 { "B|KiB|MiB" } else { "B|KiB|MiB|GiB" };
    let pattern = format!("^0*[1-9][0-9]*\\s*({units})$");
    let text = json!({ "type": "string", "pattern": pattern, SAY: "Write a number of bytes, or one like 64KiB." });
    json!({ "anyOf": [text, { "type": "integer", "minimum": least, "maximum": most }] })
}

/// The pattern of the durations that [`crate::domain::ttl::parse_duration`] accepts, such as `90s`, `1h 30m`, `1.5 hours`
/// and `PT1H`. Years and months are refused, because they vary in length.
fn duration(positive: bool) -> Value {
    const UNITS: &str = "w|wks?|weeks?|d|days?|h|hrs?|hours?|m|mins?|minutes?|s|secs?|seconds?|ms|msecs?|millis?|milliseconds?\
        |[uµ]s(ecs?)?|micros?|microseconds?|ns|nsecs?|nanos?|nanoseconds?";
    const ISO: &str = "[Pp](\\d+[WwDdTtHhMmSs]|[Tt]|\\d+[.,]\\d+[HhMmSs])+";
    const CLOCK: &str = "\\d+:\\d+:\\d+([.,]\\d+)?";
    let units = format!("(\\d+\\s*([.,]\\d+)?\\s*({UNITS}),?\\s*)+");
    let nonzero = if positive { "(?=.*[1-9])" } else { "" };
    json!({
        "type": "string",
        "pattern": format!("^{nonzero}\\s*\\+?({units}({CLOCK})?|{CLOCK}|{ISO})\\s*$"),
        SAY: "Write a number and a unit, like 250ms, 90s, 5m, 1h or 30d.",
    })
}

/// The schema of a map that has short forms. The keys stand beside the alternatives and not inside them, so that an editor
/// marks a wrong key and not the whole map.
fn short(level: &Level, forms: &[Short]) -> Value {
    let forms: Vec<&str> = forms.iter().map(|form| form.word).collect();
    let mut schema = object(level, &["object"]);
    let mut ways = words(&forms);
    ways.push(json!({ "type": "object" }));
    schema["anyOf"] = ways.into();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("type");
    }
    schema
}

/// The schema of a choice. `on` and `off` are accepted in every spelling: YAML 1.1 reads `off` as false, YAML 1.2 as text.
fn words(words: &[&str]) -> Vec<Value> {
    let mut ways = vec![json!({ "enum": words })];
    for (word, boolean, spellings) in
        [("on", true, ["on", "true", "yes", "y"]), ("off", false, ["off", "false", "no", "n"])]
    {
        if words.contains(&word) {
            let pattern = spellings.map(any_case).join("|");
            ways.push(json!({ "const": boolean }));
            ways.push(json!({ "type": "string", "pattern": format!("^({pattern})$") }));
        }
    }
    ways
}

/// The pattern of a word in any mix of upper and lower case.
fn any_case(word: &str) -> String {
    word.chars().flat_map(|c| ['[', c.to_ascii_uppercase(), c, ']']).collect()
}
