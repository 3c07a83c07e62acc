//! `topology validate`: checks the file.

use hatchery::{
    Finding, ReadError, Topology,
    internals::{
        compile::{compile, hatcheries},
        spec::QueueType,
        ttl,
    },
};
use hatchery_admin::text::count;
use schemars::JsonSchema;
use serde::Serialize;

use crate::{args::Common, drawing::draw, exit::Exit, output::Output, text::sentence};

/// Check the file; needs no broker
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology validate
  topology validate -f billing.yaml
  topology validate -o json                findings with line and column")]
pub(crate) struct Args {}

/// The answer of `topology validate`.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Answer {
    Valid(ValidFile),
    Invalid(InvalidFile),
}

/// A valid file.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ValidFile {
    /// Always `true`.
    valid: bool,
    /// The file.
    file: String,
    /// The name of the topology.
    name: String,
    /// The types.
    types: Vec<String>,
    /// The sources.
    sources: Vec<String>,
    /// The schedules.
    schedules: Vec<String>,
    /// The delays of the hatcheries.
    hatcheries: Vec<String>,
    /// The ladder.
    ladder: LadderView,
    /// `quorum` or `classic`.
    queue_type: &'static str,
    /// A sentence for each guarantee that the file gives up, and for each setting without an effect.
    warnings: Vec<String>,
}

/// The ladder of a topology.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LadderView {
    /// Its name, as names on the broker have it.
    name: String,
    /// The number of its levels.
    levels: u8,
}

/// A file with mistakes.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InvalidFile {
    /// Always `false`.
    valid: bool,
    /// The file.
    file: String,
    /// The mistakes.
    findings: Vec<FindingView>,
}

/// A mistake in a file.
#[derive(Serialize, JsonSchema)]
pub(crate) struct FindingView {
    /// The line, from 1.
    line: usize,
    /// The column, from 1.
    column: usize,
    /// The error.
    message: String,
    /// The correction.
    help: String,
}

impl From<&Finding> for FindingView {
    fn from(finding: &Finding) -> Self {
        let Finding { line, column, message, help, .. } = finding;
        Self { line: *line, column: *column, message: message.clone(), help: help.clone() }
    }
}

pub(crate) fn run(common: &Common, _: &Args, output: Output) -> anyhow::Result<Exit> {
    let path = common.file.display();
    match hatchery::read_file(&common.file) {
        Ok(topology) if output.is_text() => {
            compile(&topology)?;
            output.print(&valid(&path.to_string(), &topology, Output::columns()))?;
            for warning in warnings(&topology) {
                output.warn_folded(&warning);
            }
        }
        Ok(topology) => {
            compile(&topology)?;
            output.json(&Answer::Valid(ValidFile {
                valid: true,
                file: path.to_string(),
                name: topology.name.to_string(),
                types: topology.types.keys().map(ToString::to_string).collect(),
                sources: topology.sources.keys().map(ToString::to_string).collect(),
                schedules: topology.schedules.keys().map(ToString::to_string).collect(),
                hatcheries: hatcheries(&topology).iter().map(ToString::to_string).collect(),
                ladder: LadderView { name: topology.ladder.to_string(), levels: topology.ladder.levels() },
                queue_type: topology.queue_type.as_str(),
                warnings: warnings(&topology),
            }))?;
        }
        Err(ReadError::Content(error)) if output.is_text() => {
            output.note(draw(&error, output.colors_errors(), Output::error_columns()).trim_end());
            return Ok(Exit::Error);
        }
        Err(ReadError::Content(error)) => {
            let findings = error.findings().iter().map(FindingView::from).collect();
            output.json(&Answer::Invalid(InvalidFile { valid: false, file: path.to_string(), findings }))?;
            return Ok(Exit::Error);
        }
        Err(error) => return Err(error.into()),
    }
    Ok(Exit::Done)
}

/// Returns the screen for a valid file.
fn valid(path: &str, topology: &Topology, columns: usize) -> String {
    sentence(&format!("{path} is valid: {}", summary(topology)), columns)
}

fn summary(topology: &Topology) -> String {
    let parts = [
        topology.name.to_string(),
        count(topology.types.len(), "type"),
        count(hatcheries(topology).len(), "hatchery"),
        format!("ladder of {}", count(topology.ladder.levels(), "level")),
    ];
    let (sources, schedules) = (topology.sources.len(), topology.schedules.len());
    let more = [(sources, "source"), (schedules, "schedule")];
    let more = more.into_iter().filter(|(n, _)| *n > 0).map(|(n, one)| count(n, one));
    parts.into_iter().chain(more).collect::<Vec<_>>().join(", ")
}

/// Returns a warning for each guarantee that a valid file gives up, and for each setting without an effect.
fn warnings(topology: &Topology) -> Vec<String> {
    let queue_type = topology.queue_type;
    let warning = |what: &&str| format!("`queue-type: {}`: {what}", queue_type.as_str());
    let given_up = queue_type.gives_up().iter().map(warning);
    let uncounted = topology.with_quarantine().filter(|_| queue_type == QueueType::Classic).map(|(event_type, _)| {
        format!(
            "`register: off` in {event_type}: classic queues do not count deliveries, so nothing protects from an event \
             that kills its worker: RabbitMQ redelivers it until somebody removes it"
        )
    });
    let latest = topology.latest_redelivery();
    let forgetting = topology.forgetting_too_soon().map(|(event_type, remembered)| {
        format!(
            "`dedup-retention` in {event_type}: a handled event is remembered for {}, but RabbitMQ may redeliver it up to \
             {} later if it got no acknowledgement (`ack-timeout`, checked once a minute); then it runs again",
            ttl::say(remembered),
            ttl::say(latest)
        )
    });
    let unreached = topology.types.iter().filter_map(|(event_type, spec)| {
        let unreached = spec.unreached_delays();
        let delays = unreached.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (end, all) = (spec.retry.max_attempts, spec.retry.delays.len() + 1);
        (!unreached.is_empty()).then(|| {
            format!(
                "`retry` in {event_type}: no event waits for {delays}, because `max-attempts: {end}` ends the retries \
                 before; raise it to {all}, or write fewer `delays`"
            )
        })
    });
    let unnamed = topology.sources.iter().filter(|(_, spec)| spec.id.is_none()).map(|(source, _)| {
        format!(
            "`sources` in {source}: without `id` a message is known by its property `message_id`; a message without one that is \
             delivered again becomes another event"
        )
    });
    given_up.chain(uncounted).chain(forgetting).chain(unreached).chain(unnamed).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;
    use crate::{golden::screens, output::warning};

    /// The golden screens: `tests/screens/validate.txt`. `UPDATE_GOLDEN=1` writes them anew.
    #[test]
    fn a_validation_is_as_it_was_drawn() {
        let topology = hatchery::file::read("version: 1\nname: billing\ntypes: { mail: {} }\n", "topology.yaml");
        screens("validate/valid", |columns| valid("topology.yaml", topology.as_ref().expect("valid"), columns));
        let wrong = "version: 1\nname: a.b\ntypes: { mail: { prefech: 1 } }\n";
        let error = hatchery::file::read(wrong, "topology.yaml").expect_err("two mistakes");
        screens("validate/invalid", |columns| draw(&error, true, columns) + "\n");
        let (name, timeout) = ("long.".repeat(40), "5 units of which nobody knows how long they are ".repeat(4));
        let long =
            format!("version: 1\nname: {name}\ntypes: {{ mail: {{ prefetch: 1, handler-timeout: {timeout} }} }}\n");
        let error = hatchery::file::read(&long, "topology.yaml").expect_err("two mistakes");
        screens("validate/long", |columns| draw(&error, true, columns) + "\n");
    }

    #[rstest]
    #[case::none("warned-none", "redis: { dedup-retention: 31m }\ntypes: { mail: {} }")]
    #[case::dedup_retention(
        "warned-dedup-retention",
        "redis: { dedup-retention: 30m }\n\
         types: { mail: {}, plain: { register: off }, rare: { retry: { delays: [15m, 20m] } }, slow: { retry: { delays: [15m] } } }"
    )]
    #[case::retry_delays(
        "warned-retry-delays",
        "defaults: { retry: { delays: [1s, 1m, 1h, 1d], max-attempts: 3 } }\n\
         types: { enough: { retry: { max-attempts: 5 } }, few: {}, once: { retry: { delays: [1s], max-attempts: 1 } }, \
         never: { on-failure: drop }, strict: { on-failure: block } }"
    )]
    #[case::sources(
        "warned-sources",
        "types: { mail: {} }\nsources: { hr: { queue: q, events: [ { type: mail } ] }, own: { declare: on, id: /id, events: [ { type: mail } ] } }"
    )]
    #[case::ack_timeout("warned-ack-timeout", "ack-timeout: 2h\ntypes: { mail: {} }")]
    #[case::classic("warned-classic", "queue-type: classic\ntypes: { mail: {}, plain: { register: off } }")]
    fn a_guarantee_that_is_given_up_is_reported(#[case] name: &str, #[case] file: &str) {
        let topology = hatchery::file::read(&format!("version: 1\nname: billing\n{file}\n"), "topology.yaml");
        let warnings = warnings(&topology.expect("valid"));
        screens(&format!("validate/{name}"), |columns| {
            warnings.iter().map(|text| warning(text, columns) + "\n").collect::<String>()
        });
    }
}
