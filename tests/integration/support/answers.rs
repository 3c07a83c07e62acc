//! Validates the JSON that a command prints against the schema that `topology schema` publishes. That is closed before, so that an
//! undocumented field fails the test.

use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    process,
    sync::{LazyLock, Mutex, PoisonError},
};

use hatchery_cli::schema;
use jsonschema::Validator;
use serde_json::{Value, json};

#[path = "../../support/closed.rs"]
pub(crate) mod closed;

/// The validators by command, and whether they are for a line of `-o ndjson`. They are built once.
static VALIDATORS: LazyLock<Mutex<HashMap<(&str, bool), &Validator>>> = LazyLock::new(Mutex::default);

/// The command line of a process.
#[derive(Debug)]
pub(crate) struct CommandLine {
    program: OsString,
    arguments: Vec<String>,
}

impl CommandLine {
    pub(crate) fn new<'a>(program: &OsStr, arguments: impl Iterator<Item = &'a OsStr>) -> Self {
        let arguments = arguments.map(|argument| argument.to_string_lossy().into_owned()).collect();
        Self { program: program.to_owned(), arguments }
    }

    pub(crate) fn of(command: &process::Command) -> Self {
        Self::new(command.get_program(), command.get_args())
    }

    /// Fails if what `topology` has printed with `-o json` or `-o ndjson` is not as the schema of the command says.
    #[track_caller]
    pub(crate) fn check(&self, stdout: &str) {
        let is_topology = self.program == env!("CARGO_BIN_EXE_topology");
        let Some(ndjson) = self.is_ndjson().filter(|_| is_topology) else { return };
        let Some(command) = self.command() else { return };
        // A process that was killed may have written a part of its answer.
        let documents = serde_json::Deserializer::from_str(stdout).into_iter::<Value>();
        let documents: Vec<Value> = documents.filter_map(Result::ok).collect();
        assert!(!documents.is_empty() || stdout.is_empty(), "no JSON: {self:?}: {stdout}");
        let validator = validator(command, ndjson);
        for document in documents {
            let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "`topology schema {command}` forbids the answer: {errors:#?}\n{document:#}");
        }
    }

    /// Returns whether the output is lines of JSON; `None` if it is text.
    fn is_ndjson(&self) -> Option<bool> {
        let values = self.arguments.iter().skip(1);
        let mut options = self.arguments.iter().zip(values).take_while(|(option, _)| *option != "--exec");
        let (_, format) = options.find(|(option, _)| *option == "-o" || *option == "--output")?;
        match format.as_str() {
            "json" => Some(false),
            "ndjson" => Some(true),
            _ => None,
        }
    }

    /// Returns the command that comes first in the arguments.
    fn command(&self) -> Option<&'static str> {
        let place = |command: &str| {
            let words: Vec<&str> = command.split(' ').collect();
            self.arguments.windows(words.len()).position(|arguments| arguments == words)
        };
        schema::commands().filter_map(|command| Some((place(command)?, command))).min().map(|(_, command)| command)
    }
}

fn validator(command: &'static str, ndjson: bool) -> &'static Validator {
    let mut validators = VALIDATORS.lock().unwrap_or_else(PoisonError::into_inner);
    validators.entry((command, ndjson)).or_insert_with(|| {
        let mut schema = schema::answer(command, ndjson).expect("the command prints JSON");
        closed::close(&mut schema);
        Box::leak(Box::new(Validator::new(&schema).expect("a schema")))
    })
}

#[test]
fn an_undocumented_field_fails_a_test_and_no_reader_of_an_older_schema() {
    let group = json!({
        "failure": "timeout", "count": 1, "obsolete": 0, "first_failed_at": null, "failed_at": null, "types": ["mail"],
        "example": null,
    });
    let answer = json!({ "queues": [], "found": 1, "obsolete": 0, "groups": [group] });
    let published = Validator::new(&schema::answer("dead-letter list", false).unwrap()).unwrap();
    let closed = validator("dead-letter list", false);
    assert!(closed.is_valid(&answer) && published.is_valid(&answer));
    for place in ["", "/groups/0"] {
        let mut answer = answer.clone();
        answer.pointer_mut(place).unwrap()["added"] = true.into();
        assert!(!closed.is_valid(&answer) && published.is_valid(&answer), "{place}");
    }
}
