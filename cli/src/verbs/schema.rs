//! `topology schema`: prints the JSON Schema of topology.yaml, or of the answer of a command.

use hatchery_admin::{
    ChangedPauses,
    breakers::{BreakerList, BreakerView, ClosedBreaker},
    dead_letters::{SweptLetters, Whole},
    graph::Drawing,
    schedules::{ActedSchedule, Backfilled, ScheduleList, ScheduleView},
};
use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::{Value, json};

use super::{apply, dead_letter, destroy, events, init, man, plan, publish, source, status, trace, validate};
use crate::{
    args::UsageError,
    definitions::Definitions,
    exit::Exit,
    output::{Format, Output},
    plan_document::Document,
};

/// Print the JSON Schema of topology.yaml, or of the JSON of a command
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schema > topology.schema.json
  topology schema plan                     the JSON of `topology plan -o json`
  topology schema plan -o ndjson           a line of `topology plan -o ndjson`
  topology schema dead-letter list

Editors with the YAML language server (VS Code, Neovim, JetBrains, Helix, …)
use it for a file that begins with this line, as `topology init` writes it:
  # yaml-language-server: $schema=./topology.schema.json

Write the schema anew after an update: it belongs to this version of `topology`.
It does not check keys against each other; `topology validate` does.

The JSON of a command keeps its schema: within a major version fields are added,
and never removed or changed. The schema of a command allows unknown fields.")]
pub(crate) struct Args {
    /// The command whose JSON to describe, such as `events list`
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

/// A command and its JSON.
struct Answer {
    command: &'static str,
    /// The schema of the document that `-o json` prints.
    document: fn() -> Value,
    /// The schema of a line that `-o ndjson` prints.
    line: fn() -> Value,
}

/// Every command that prints JSON.
const ANSWERS: &[Answer] = &[
    same::<apply::Answer>("apply"),
    same::<ClosedBreaker>("breaker close"),
    lines::<BreakerList, BreakerView>("breaker list"),
    same::<SweptLetters>("dead-letter discard"),
    lines::<dead_letter::List, dead_letter::ListLine>("dead-letter list"),
    same::<SweptLetters>("dead-letter replay"),
    lines::<dead_letter::Show, Whole>("dead-letter show"),
    same::<destroy::Answer>("destroy"),
    lines::<events::Changes, events::Changed>("events cancel"),
    lines::<events::List, events::EventView>("events list"),
    lines::<events::Changes, events::Changed>("events reschedule"),
    lines::<events::Changes, events::Changed>("events run-now"),
    lines::<events::Show, events::Placed>("events show"),
    same::<Definitions<'_>>("export"),
    same::<Drawing>("graph"),
    same::<init::Answer>("init"),
    same::<man::Answer>("man"),
    same::<ChangedPauses>("pause"),
    lines::<Document, plan::Line>("plan"),
    lines::<publish::Answer, publish::Line>("publish"),
    same::<ChangedPauses>("resume"),
    same::<Backfilled>("schedule backfill"),
    lines::<ScheduleList, ScheduleView>("schedule list"),
    same::<ActedSchedule>("schedule pause"),
    same::<ActedSchedule>("schedule resume"),
    same::<ActedSchedule>("schedule run-now"),
    same::<ScheduleView>("schedule show"),
    Answer { command: "schema", document: any_schema, line: any_schema },
    lines::<source::Tested, source::TestedLine>("source test"),
    same::<status::Document<'_>>("status"),
    lines::<trace::Answer, hatchery::LifeCycleRecord>("trace"),
    same::<validate::Answer>("validate"),
    same::<hatchery::Summary>("work"),
];

/// Describes a command that prints the same with `-o json` and on one line with `-o ndjson`.
const fn same<T: JsonSchema>(command: &'static str) -> Answer {
    lines::<T, T>(command)
}

/// Describes a command whose lines with `-o ndjson` are other JSON than its document.
const fn lines<Document: JsonSchema, Line: JsonSchema>(command: &'static str) -> Answer {
    Answer { command, document: of::<Document>, line: of::<Line> }
}

fn of<T: JsonSchema>() -> Value {
    SchemaSettings::default().for_serialize().into_generator().into_root_schema_for::<T>().to_value()
}

/// Returns the schema of schemas.
fn any_schema() -> Value {
    let draft = "https://json-schema.org/draft/2020-12/schema";
    json!({ "$schema": draft, "$ref": draft })
}

/// Returns the commands that print JSON, such as `events list`.
pub fn commands() -> impl Iterator<Item = &'static str> {
    ANSWERS.iter().map(|answer| answer.command)
}

/// Returns the schema of what a command prints with `-o json`, or of a line that it prints with `-o ndjson`. `None` if
/// there is no such command, or the command prints no JSON.
#[must_use]
pub fn answer(command: &str, ndjson: bool) -> Option<Value> {
    let answer = ANSWERS.iter().find(|answer| answer.command == command)?;
    let (mut schema, format) = if ndjson { ((answer.line)(), "ndjson") } else { ((answer.document)(), "json") };
    schema["title"] = format!("topology {command} -o {format}").into();
    Some(schema)
}

pub(crate) fn run(args: &Args, output: Output) -> anyhow::Result<Exit> {
    let command = args.command.join(" ");
    let schema = if command.is_empty() {
        hatchery::file::schema()
    } else {
        answer(&command, output.format == Format::Ndjson).ok_or_else(|| unknown(&command))?
    };
    output.json(&schema)?;
    Ok(Exit::Done)
}

fn unknown(command: &str) -> UsageError {
    let all = commands().collect::<Vec<_>>().join(", ");
    UsageError(format!("no command `{command}` prints JSON; these do: {all}"))
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::golden::golden;

    /// A program may validate with the schema of an older version, and fields are added.
    #[test]
    fn a_published_schema_allows_unknown_fields() {
        for command in commands() {
            for ndjson in [false, true] {
                let schema = answer(command, ndjson).expect("JSON").to_string();
                assert!(!schema.contains(r#"Properties":false"#), "{command}: {schema}");
            }
        }
    }

    /// Programs rely on the JSON, so that a change of it must be seen. A definition that several schemas have stands once.
    #[test]
    fn a_changed_schema_is_noticed() {
        let (mut answers, mut shared) = (Map::new(), Map::new());
        for command in commands().filter(|command| *command != "schema") {
            let schemas = [false, true].map(|ndjson| reduced(answer(command, ndjson).expect("JSON"), &mut shared));
            let [document, line] = schemas.map(|schema| reference(&shared, "#/$defs", &schema).unwrap_or(schema));
            if line != document {
                answers.insert(format!("{command} -o ndjson"), line);
            }
            let earlier = reference(&answers, "#/answers", &document);
            answers.insert(command.to_owned(), earlier.unwrap_or(document));
        }
        golden("tests/schema/commands.json", &format!("{:#}\n", json!({ "answers": answers, "$defs": shared })));

        let described = hatchery_serve::description().to_string().replace("#/components/schemas/", "#/$defs/");
        let mut api: Value = serde_json::from_str(&described).expect("JSON");
        for (_, definition) in api["components"]["schemas"].as_object_mut().expect("an object") {
            if let Some(reference) = reference(&shared, "../schema/commands.json#/$defs", definition) {
                *definition = reference;
            }
        }
        let api = format!("{api:#}\n").replace("\"#/$defs/", "\"#/components/schemas/");
        golden("tests/serve/openapi.json", &api);
    }

    /// Moves the definitions of a schema to those that all share, but one that has the name of another there.
    fn reduced(mut schema: Value, shared: &mut Map<String, Value>) -> Value {
        let fields = schema.as_object_mut().expect("an object");
        fields.retain(|name, _| name != "$schema" && name != "title");
        if let Some(Value::Object(mut definitions)) = fields.remove("$defs") {
            definitions.retain(|name, new| shared.entry(name.as_str()).or_insert_with(|| new.clone()) != new);
            if !definitions.is_empty() {
                fields.insert("$defs".to_owned(), definitions.into());
            }
        }
        schema
    }

    /// Returns a reference to a schema that is here already.
    fn reference(schemas: &Map<String, Value>, at: &str, schema: &Value) -> Option<Value> {
        let (name, _) = schemas.iter().find(|(_, earlier)| *earlier == schema)?;
        Some(json!({ "$ref": format!("{at}/{name}") }))
    }
}
