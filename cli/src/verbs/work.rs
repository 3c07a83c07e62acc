//! `topology work`: runs a program or calls an HTTP service for each event.

use std::{ffi::OsString, str::FromStr as _, sync::Arc, time::Duration};

use clap::builder::BoolishValueParser;
use hatchery::{
    EventType, Summary, Topology, UnknownType, Word, WorkError,
    internals::{spec::TypeSpec, words::nearest},
    parse_duration,
};

use crate::{
    args::Common,
    connect,
    exit::{Ended, Exit},
    handler::args::HandlerArgs,
    listen, load,
    output::Output,
    stop::Stop,
    text::sentence,
};

/// Run a program or call an HTTP service for each event of one or more types
#[derive(clap::Args)]
#[command(override_usage = "topology work [OPTIONS] --type <TYPE> (--exec <CMD>... | --http <URL>)\n       \
                            topology work [OPTIONS] --source <NAME>")]
#[command(group(clap::ArgGroup::new("handler").args(["exec", "http"]).requires("types")))]
#[command(after_long_help = "\
Examples:
  topology work --type mail --exec ./send-mail
  topology work --type hr-import --type mail --exec sh -c 'cat > /dev/null'
  topology work --type mail --concurrency 4 --stop-when-empty --exec ./send-mail
  topology work --type mail --exec -- ./send-mail --concurrency 4
  topology work --type mail --http http://localhost:8080/send-mail
  topology work --type mail --http @/run/secrets/mail-url
  topology work --type mail --listen 0.0.0.0:9464 --exec ./send-mail
  topology work --source hr
  topology work --source hr --type hr-import --exec ./import

With --exec the payload is the program's standard input; EVENT_ID, EVENT_TYPE,
EVENT_REFERENCE, EVENT_NBF, EVENT_ATTEMPTS, EVENT_REASON, EVENT_VERSION,
EVENT_FENCE, EVENT_CREATED_AT, EVENT_CONTENT_TYPE, EVENT_CORRELATION_ID,
EVENT_SCHEDULE, EVENT_SLOT and EVENT_TRACEPARENT are in its environment (absent
fields are unset). The URLs of broker and Redis are removed from it, because
they may hold passwords; --pass-urls keeps them.

Exit status 0 is done, 65 dead-letter, anything else a retry with the last line
of standard error as the reason. With 0 the last line of standard output may be
another outcome: {\"requeue\": {\"at\": TIME, \"reason\": …}} (or \"after\": \"1h\"),
{\"retry\": {\"after\": \"30s\"}}, {\"discard\": {\"reason\": …}},
{\"dead-letter\": {\"reason\": …}}.

A program that cannot be started, or a service without a connection, spends no
attempt: the worker waits, and tries one event at a time until one runs.

With --http the payload is posted, and the same fields are headers: Event-Id,
Event-Type, Event-Reference, Event-Nbf, Event-Attempts, Event-Reason,
Event-Version, Event-Fence, Event-Created-At, Event-Correlation-Id,
Event-Schedule, Event-Slot, Content-Type and Traceparent. Percent-decode those
that begin with Event-.

2xx is done, or the outcome in the body, which is the same JSON; 400, 409, 410,
413, 415 and 422 are dead-letter with the body's first line as the reason; any
other status, or no answer to a request that was sent, is a retry, after the
time in Retry-After. Redirects are not followed. The limit is the type's
handler-timeout. A user and a password in the URL are for basic authentication,
and are not shown; with @FILE they are not visible in `ps` either.

Each option but --exec may also be an environment variable, for a container:
TOPOLOGY_TYPE=mail,hr-import, TOPOLOGY_LISTEN=:9464. An option wins; an empty
variable counts as unset.

SIGTERM and SIGINT stop the worker: it finishes running events within the drain
timeout and gives the others back. A second signal stops it at once, with exit
status 1; no event is lost.")]
pub(crate) struct Args {
    /// A type to work on; may be given more than once, or with commas
    #[arg(long = "type", value_name = "TYPE", required_unless_present = "sources", value_delimiter = ',')]
    #[arg(requires = "handler", env = "TOPOLOGY_TYPE", hide_env_values = true)]
    types: Vec<String>,

    /// A source of the file to take messages from, which become events; may be given more than once, or with commas
    #[arg(long = "source", value_name = "NAME", value_delimiter = ',')]
    #[arg(env = "TOPOLOGY_SOURCE", hide_env_values = true)]
    sources: Vec<String>,

    #[command(flatten)]
    handler: HandlerArgs,

    /// Events that are handled at a time for each type, instead of the file's `concurrency`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    #[arg(env = "TOPOLOGY_CONCURRENCY", hide_env_values = true)]
    concurrency: Option<u16>,

    /// How long a stop waits for running events, instead of the file's `drain-timeout`
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    #[arg(env = "TOPOLOGY_DRAIN_TIMEOUT", hide_env_values = true)]
    drain_timeout: Option<Duration>,

    /// Serve Prometheus metrics at /metrics, and probes: /livez answers 200, /readyz 200 while the worker consumes; :PORT
    /// alone means all interfaces
    #[arg(long, value_name = "HOST:PORT", value_parser = listen::Address::from_str)]
    #[arg(env = "TOPOLOGY_LISTEN", hide_env_values = true)]
    listen: Option<listen::Address>,

    /// Stop once the processing queues and those of the sources are empty; does not wait for events in hatcheries and retry queues
    #[arg(long, env = "TOPOLOGY_STOP_WHEN_EMPTY", hide_env_values = true)]
    #[arg(value_parser = BoolishValueParser::new())]
    stop_when_empty: bool,
}

pub(crate) async fn run(common: &Common, args: Args, output: Output) -> anyhow::Result<Exit> {
    // Before anything else: the kernel drops a signal to a container's first process if it has no handler yet.
    let Stop { gently: stop, at_once } = Stop::on_signals()?;
    let handler = args.handler.handler()?;
    // Before anything is counted, because a count before the recorder is installed is lost.
    let listening = match &args.listen {
        Some(address) => Some(listen::open(address, "--listen").await?),
        None => None,
    };
    let topology = load::topology(common, output)?;
    let worked_on: Vec<&str> = args.types.iter().chain(&args.sources).map(String::as_str).collect();
    let name = format!("topology work {}", worked_on.join(" "));
    let types = types(&args.types, &topology)?;
    check_sources(&args.sources, &topology)?;
    let needs_register = types.iter().any(|(_, spec)| spec.register);
    introduce(common, &args, &topology.name, &types)?;
    let connecting = async {
        let hatchery = connect::connect(common, topology, &name).await?;
        if needs_register {
            hatchery.require_register().await?;
        }
        Ok::<_, anyhow::Error>(hatchery)
    };
    // A stop while connecting ends at once: no work has begun yet.
    let Some(hatchery) = stop.run_until_cancelled(connecting).await else {
        return summarize(&Summary::default(), output);
    };
    let hatchery = hatchery?;
    let mut worker = hatchery.worker().stop_when_empty(args.stop_when_empty);
    for (event_type, handler) in args.types.iter().zip(handler.iter().cycle()) {
        worker = worker.handler(event_type, Arc::clone(handler));
    }
    for source in &args.sources {
        worker = worker.source(source);
    }
    if let Some(concurrency) = args.concurrency {
        worker = worker.concurrency(concurrency);
    }
    if let Some(limit) = args.drain_timeout {
        worker = worker.drain_timeout(limit);
    }
    if let Some(listening) = &listening {
        let readiness = worker.readiness();
        listening.begin(move || Box::pin(std::future::ready(readiness.is_ready())));
    }
    // Dropping the worker also kills its programs, each with its process group.
    let worked = at_once.run_until_cancelled(worker.run(stop)).await;
    hatchery.close().await;
    let Some(worked) = worked else {
        let what = "stopped at once; the broker redelivers the events that were not finished";
        return Err(Ended::new(Exit::Error, what).into());
    };
    summarize(&worked?, output)
}

/// Returns the types to work on, each with its settings from the file. An unknown name is refused before the first log
/// line and before the worker connects.
pub(super) fn types<'a>(
    names: &[String],
    topology: &'a Topology,
) -> Result<Vec<(&'a EventType, &'a TypeSpec)>, UnknownType> {
    let known = |name: &String| topology.types.get_key_value(name.as_str());
    names.iter().map(|name| known(name).ok_or_else(|| UnknownType::among(name, topology.types.keys()))).collect()
}

/// Refuses an unknown source as early as an unknown type.
fn check_sources(names: &[String], topology: &Topology) -> Result<(), WorkError> {
    let Some(name) = names.iter().find(|name| !topology.sources.contains_key(name.as_str())) else { return Ok(()) };
    let nearest = nearest(name, topology.sources.keys().map(Word::as_str)).map(str::to_owned);
    Err(WorkError::UnknownSource { name: name.clone(), nearest })
}

/// Writes the first line of a worker's log, which says which version ran on which broker, topology and types.
fn introduce(common: &Common, args: &Args, topology: &Word, types: &[(&EventType, &TypeSpec)]) -> anyhow::Result<()> {
    let concurrency = |spec: &TypeSpec| match args.concurrency {
        // A type that keeps order runs one event at a time, whatever `--concurrency` says.
        _ if spec.keeps_order() => 1,
        asked => asked.unwrap_or(spec.concurrency),
    };
    let types: Vec<String> =
        types.iter().map(|(name, spec)| format!("{name} (concurrency {})", concurrency(spec))).collect();
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        file = %common.file.display(),
        topology = %topology,
        types = types.join(", "),
        sources = args.sources.join(", "),
        broker = %common.amqp_url()?,
        "worker starts"
    );
    Ok(())
}

fn summarize(summary: &Summary, output: Output) -> anyhow::Result<Exit> {
    output.answer(summary, || text(summary, Output::columns()))?;
    Ok(Exit::Done)
}

/// Returns the line at the end of a worker.
fn text(summary: &Summary, columns: usize) -> String {
    let counts = [
        (summary.done, "done"),
        (summary.discarded, "discarded"),
        (summary.cancelled, "cancelled"),
        (summary.retried, "to retry"),
        (summary.dropped, "dropped"),
        (summary.requeued, "requeued"),
        (summary.dead_lettered, "dead-lettered"),
        (summary.expired, "expired"),
        (summary.poisoned, "poison"),
        (summary.rejected, "rejected"),
        (summary.replaced, "replaced"),
        (summary.stale, "stale"),
        (summary.given_back, "given back"),
        (summary.put_aside, "put aside"),
    ];
    let of_sources = [
        (summary.mapped, "mapped"),
        (summary.unmappable, "dead-lettered"),
        (summary.unmatched, "dropped"),
        (summary.returned, "returned"),
    ];
    let events = counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    let messages = of_sources.iter().filter(|(count, _)| *count > 0);
    let messages = messages.map(|(n, what)| format!("{n} {} {what}", if *n == 1 { "message" } else { "messages" }));
    let said: Vec<String> = events.chain(messages).collect();
    if said.is_empty() { "nothing to do\n".to_owned() } else { sentence(&said.join(", "), columns) }
}

/// Moves options of `topology` that follow `--exec CMD…` in front of it, so that they may stand on either side. All
/// arguments after `--exec --` belong to the program.
pub(crate) fn ours_first(arguments: Vec<OsString>, command: &clap::Command) -> Vec<OsString> {
    let Some(exec) = arguments.iter().position(|argument| argument == "--exec") else { return arguments };
    let verb = arguments[..exec].iter().find(|argument| *argument == "work" || *argument == "dev");
    let Some(verb) = verb.and_then(|verb| command.find_subcommand(verb)) else { return arguments };
    let known: Vec<&clap::Arg> = verb.get_arguments().chain(command.get_arguments()).collect();

    let (mut ours, mut program) = (arguments[..exec].to_vec(), Vec::new());
    let mut rest = arguments[exec + 1..].iter().cloned().peekable();
    while let Some(argument) = rest.next() {
        if argument == "--" {
            program.extend(rest);
            break;
        }
        let text = argument.to_string_lossy().into_owned();
        let (long, value) = text.split_once('=').map_or((text.as_str(), None), |(long, value)| (long, Some(value)));
        let option = long.strip_prefix("--").and_then(|long| known.iter().find(|known| known.get_long() == Some(long)));
        match option {
            None => program.push(argument),
            Some(option) => {
                ours.push(argument);
                if option.get_action().takes_values() && value.is_none() {
                    ours.extend(rest.next());
                }
            }
        }
    }
    ours.push("--exec".into());
    ours.extend(program);
    ours
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rstest::rstest;

    use super::*;
    use crate::{commands::Cli, golden::screens};

    #[test]
    fn each_option_but_exec_may_be_an_environment_variable() {
        let topology = Cli::command();
        let work = topology.find_subcommand("work").expect("the verb");
        for option in work.get_arguments().filter(|option| option.get_id() != "exec") {
            let long = option.get_long().expect("an option");
            let name = format!("TOPOLOGY_{}", long.to_uppercase().replace('-', "_"));
            assert_eq!(option.get_env().and_then(|variable| variable.to_str()), Some(&*name));
        }
    }

    /// `UPDATE_GOLDEN=1` writes the screens anew.
    #[test]
    fn a_summary_is_as_it_was_drawn() {
        let mut summary = Summary::default();
        screens("verbs/work-nothing", |columns| text(&summary, columns));
        (summary.done, summary.discarded, summary.retried, summary.dropped) = (120_000, 3, 1_204, 2);
        (summary.requeued, summary.dead_lettered, summary.expired) = (4, 17, 6);
        (summary.poisoned, summary.rejected) = (1, 1);
        (summary.replaced, summary.stale, summary.given_back, summary.put_aside) = (30, 5, 10, 1);
        summary.cancelled = 6;
        screens("verbs/work-everything", |columns| text(&summary, columns));
    }

    #[rstest]
    #[case("topology work --type mail --exec ./a -x", "topology work --type mail --exec ./a -x")]
    #[case("topology work --exec sh -c true --type mail", "topology work --type mail --exec sh -c true")]
    #[case(
        "topology work --exec ./a --concurrency=4 b --stop-when-empty",
        "topology work --concurrency=4 --stop-when-empty --exec ./a b"
    )]
    #[case("topology work --type mail --exec -- ./a --type x", "topology work --type mail --exec ./a --type x")]
    #[case(
        "topology work --exec ./a --its-own 1 -f x -- --type y",
        "topology work --exec ./a --its-own 1 -f x --type y"
    )]
    #[case("topology work --exec ./a --amqp-url amqp://h", "topology work --amqp-url amqp://h --exec ./a")]
    #[case("topology plan --exec ./a --type x", "topology plan --exec ./a --type x")]
    fn our_options_may_follow_the_program(#[case] typed: &str, #[case] expected: &str) {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert_eq!(ours_first(words(typed), &Cli::command()), words(expected));
    }
}
