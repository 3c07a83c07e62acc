//! The JSON Schema of the file, printed from the tables that the reader reads by.
//!
//! Whatever the reader accepts the schema accepts. It refuses less: how keys fit together, and how long a duration is, no
//! schema can say. What is not built yet is not in it.

use serde_json::{Map, Value, json};

use super::{
    amount::say,
    keys::{TOP, TYPE},
    table::{Absent, Key, Kind, Level, Short},
    yaml,
};

/// The dialect that it is written in.
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// One word, as [`crate::domain::words::Word`] takes it.
const WORD: &str = "^[A-Za-z0-9_-]{1,64}$";

/// No brace, no white space, no control character.
const PREFIX: &str =
    "^[^{}\\u0000-\\u0020\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]{1,64}$";

/// What editors say about a value that does not match its pattern; other tools pass over this key.
const SAY: &str = "patternErrorMessage";

/// The JSON Schema (draft 2020-12) of `topology.yaml`, for editors.
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

/// A map: its own keys and no other.
fn object(level: &Level, types: &[&str]) -> Value {
    let built = || level.keys.iter().filter(|key| !matches!(key.kind, Kind::NotBuilt));
    let properties: Map<String, Value> = built().map(|key| (key.name.to_owned(), property(key))).collect();
    let required: Vec<&str> =
        built().filter(|key| matches!(key.absent, Absent::Required)).map(|key| key.name).collect();
    let mut object = json!({ "type": types, "properties": properties, "additionalProperties": false });
    if let [one] = types {
        object["type"] = (*one).into();
    }
    if !required.is_empty() {
        object["required"] = required.into();
    }
    object
}

/// A row of the table.
fn property(key: &Key) -> Value {
    let mut schema = value(&key.kind);
    schema["description"] = described(key).into();
    if let (Absent::Value(text), false) = (key.absent, matches!(key.kind, Kind::Section(_))) {
        schema["default"] = default(text);
    }
    schema
}

/// What an editor shows: the sentence, what holds without the key, and the bounds.
fn described(key: &Key) -> String {
    let default = match (key.absent, &key.kind) {
        (Absent::Required, _) => " Required.".to_owned(),
        // Each of its keys has its own.
        (Absent::Value(_), Kind::Section(_)) => String::new(),
        (Absent::Value(text) | Absent::Depends(text), _) => format!(" Default: {text}."),
    };
    let bounds = match &key.kind {
        Kind::Whole(least, most) => format!(" From {least} to {most}."),
        Kind::Duration(least, most) => format!(" From {} to {}.", say(*least), say(*most)),
        Kind::Bytes(most) => format!(" Up to {}MiB.", most >> 20),
        Kind::Size(most) => format!(" Up to {}KiB.", most >> 10),
        _ => String::new(),
    };
    format!("{}{default}{bounds}", key.about)
}

/// The default as an editor would write it: words stay words.
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
        Kind::Bytes(most) => bytes(*most),
        Kind::Duration(least, _) => duration(!least.is_zero()),
        Kind::Ttls { may_be_empty: true } => json!({ "type": ["array", "null"], "items": duration(true) }),
        Kind::Ttls { may_be_empty: false } => json!({ "type": "array", "items": duration(true), "minItems": 1 }),
        Kind::Share => json!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "type": "string", "pattern": "^[0-9]+(\\.[0-9]*)? *%$", SAY: "Write a part from 0 to 1, like 0.2 or 20%." },
        ] }),
        Kind::Switch => json!({ "anyOf": words(&["on", "off"]) }),
        Kind::Choice(choices) => json!({ "anyOf": words(choices) }),
        Kind::Size(most) => {
            let mut ways = words(&["off"]);
            ways.push(bytes(*most));
            json!({ "anyOf": ways })
        }
        // With a `$ref` it would be said once, but what stands beside one is not shown by every editor.
        Kind::Section(level) if !std::ptr::eq(*level, &raw const TYPE) => object(level, &["object", "null"]),
        Kind::Section(_) => json!({ "$ref": "#/$defs/type" }),
        Kind::Short(level, forms) => short(level, forms),
        Kind::Types(_) => json!({
            "type": "object",
            "propertyNames": word(),
            "additionalProperties": { "$ref": "#/$defs/type" },
            "minProperties": 1,
        }),
        Kind::NotBuilt => json!(false),
    }
}

fn word() -> Value {
    json!({ "type": "string", "pattern": WORD, SAY: "Write one word of 1 to 64 letters, digits, _ or -." })
}

/// An exchange or queue of somebody's: the broker's own are not to be had.
fn object_name() -> Value {
    let say = "Write the name of an exchange or queue of yours.";
    json!({ "type": "string", "pattern": "^(?!amq\\.)", "minLength": 1, "maxLength": 255, SAY: say })
}

fn bytes(most: u64) -> Value {
    let pattern = "^0*[1-9][0-9]*\\s*(B|KiB|MiB)$";
    let text = json!({ "type": "string", "pattern": pattern, SAY: "Write a number of bytes, or one like 64KiB." });
    json!({ "anyOf": [text, { "type": "integer", "minimum": 1, "maximum": most }] })
}

/// What [`crate::domain::ttl::parse_duration`] reads, in its many spellings: `90s`, `1h 30m`, `1.5 hours`, `PT1H`. Years
/// and months, which are not always equally long, it does not.
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

/// A map, or a word that stands for one. The map's keys stand beside the alternatives, not in them, so that an editor
/// points at a wrong key instead of at all of it.
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

/// These words; `on` and `off` in whatever spelling: YAML 1.1 takes `off` for false, and YAML 1.2 for a text.
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

/// A pattern for a word in capitals, small letters or both.
fn any_case(word: &str) -> String {
    word.chars().flat_map(|c| ['[', c.to_ascii_uppercase(), c, ']']).collect()
}
