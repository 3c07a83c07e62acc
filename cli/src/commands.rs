//! The arguments of `topology`, its log, and the call of the verb.

use std::{ffi::OsString, time::Duration};

use anyhow::Context as _;
use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::{
    args::Common,
    argument_errors,
    exit::Exit,
    help::fitted,
    log,
    output::Output,
    verbs::{
        apply, breaker, completions, dead_letter, destroy, dev, events, export, graph, init, man, pause, plan, publish,
        schedule, schema, serve, source, status, trace, validate, work,
    },
};

/// One file, topology.yaml, becomes a RabbitMQ topology that delays, delivers, retries and buries events.
#[derive(Parser)]
#[command(name = "topology", version, arg_required_else_help = true, subcommand_required = true)]
// Longer lines are hard to read, and a manual page is 80 columns wide.
#[command(max_term_width = 80)]
#[command(after_long_help = "\
Examples:
  topology init                            a topology.yaml to start from
  topology dev --echo                      try it, with no broker
  topology validate                        check it, with no broker
  topology graph                           draw it
  topology plan                            show what would change on the broker
  topology apply                           show the plan, ask, and change it
  topology apply --auto-approve            without asking, for a deployment
  topology publish mail --payload '{}' --delay 5m
  topology work --type mail --exec ./send-mail
  topology source test hr @message.json    the events that a message becomes
  topology events list                     list waiting and failed events
  topology trace ID                        what has happened to an event
  topology status                          show what is wrong
  topology dead-letter list                why events were given up
  topology schedule list                   when periodic events run next
  topology pause mail --reason migration   start no event of a type
  topology breaker list                    which types have too many errors
  topology serve                           an HTTP API for other languages

Exit codes:
  0  done or in sync
  1  error: an invalid file, or missing objects
  2  usage, or approval needed and no terminal to ask on
  3  changes pending (--detailed-exitcode)
  4  blocked; nothing was written
  5  partly done; the output says what is left
  6  broker or Redis unreachable, or access refused
  7  lock held, or plan stale")]
pub(crate) struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    Init(init::Args),
    Validate(validate::Args),
    Graph(graph::Args),
    Plan(plan::Args),
    Apply(apply::Args),
    Destroy(destroy::Args),
    Dev(dev::Args),
    Publish(publish::Args),
    Work(work::Args),
    #[command(subcommand)]
    Source(source::Verb),
    #[command(subcommand)]
    Events(events::Verb),
    Trace(trace::Args),
    Status(status::Args),
    #[command(subcommand)]
    DeadLetter(dead_letter::Verb),
    #[command(subcommand)]
    Schedule(schedule::Verb),
    Pause(pause::Args),
    Resume(pause::ResumeArgs),
    #[command(subcommand)]
    Breaker(breaker::Verb),
    Serve(serve::Args),
    Export(export::Args),
    Schema(schema::Args),
    Completions(completions::Args),
    Man(man::Args),
}

impl Verb {
    /// Whether the verb connects to the broker or to Redis, and never to a server of the API.
    const fn asks_the_broker(&self) -> bool {
        !matches!(
            self,
            Self::Publish(_)
                | Self::Status(_)
                | Self::Schedule(_)
                | Self::Events(_)
                | Self::DeadLetter(_)
                | Self::Trace(_)
                | Self::Dev(_)
                | Self::Init(_)
                | Self::Validate(_)
                | Self::Graph(_)
                | Self::Source(_)
                | Self::Export(_)
                | Self::Schema(_)
                | Self::Completions(_)
                | Self::Man(_)
        )
    }
}

/// How long the end of the process waits for blocking calls that are still under way.
const LAST_DROPS: Duration = Duration::from_millis(500);

/// Installs one TLS provider for the whole process. Without a default provider some of the linked libraries panic.
pub(crate) fn secure() {
    // Fails if a provider is installed already; that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Parses the arguments and the environment. Exits with 2 if they are wrong, and with 0 after `--help`.
pub(crate) fn parse() -> Cli {
    let command = fitted(argument_errors::without_empty_variables(Cli::command()));
    let arguments = work::ours_first(std::env::args_os().collect(), &command);
    let matches = command.clone().color(colors(&arguments)).try_get_matches_from(&arguments);
    let matches = matches.and_then(|matches| argument_errors::without_misplaced(command.clone(), matches));
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| argument_errors::exit(&error, &command, &arguments))
}

/// Returns whether clap's own texts, the help and the errors about arguments, may have colours. clap needs this before
/// it parses the arguments.
fn colors(arguments: &[OsString]) -> ColorChoice {
    let mut ours = arguments.iter().take_while(|argument| *argument != "--exec" && *argument != "--");
    if ours.any(|argument| argument == "--no-color") { ColorChoice::Never } else { ColorChoice::Auto }
}

/// Starts the log.
pub(crate) fn log(cli: &Cli) {
    // A worker and a server run for days unattended, so they log at `info` without being asked.
    let at_work = u8::from(matches!(cli.verb, Verb::Work(_) | Verb::Serve(_) | Verb::Dev(_)));
    let level = match cli.common.verbose.saturating_add(at_work) {
        0 => "hatchery=warn",
        1 => "hatchery=info",
        _ => "hatchery=debug",
    };
    log::start(level, cli.common.log_format, cli.common.output().colors_errors());
}

/// Runs the verb.
pub(crate) fn run(cli: Cli) -> (Output, anyhow::Result<Exit>) {
    let output = cli.common.output();
    #[cfg(feature = "fail-points")]
    if let Err(error) = crate::kill::arm() {
        return (output, Err(error));
    }
    (output, dispatch(cli, output))
}

fn dispatch(cli: Cli, output: Output) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("cannot start")?;
    let common = cli.common;
    if cli.verb.asks_the_broker() {
        common.refuse_server()?;
    }
    let result = runtime.block_on(async {
        match cli.verb {
            Verb::Init(args) => init::run(&common, &args, output),
            Verb::Validate(args) => validate::run(&common, &args, output),
            Verb::Graph(args) => graph::run(&common, &args, output),
            Verb::Plan(args) => plan::run(&common, &args, output).await,
            Verb::Apply(args) => apply::run(&common, &args, output).await,
            Verb::Destroy(args) => destroy::run(&common, &args, output).await,
            Verb::Dev(args) => Box::pin(dev::run(&common, &args, output)).await,
            Verb::Publish(args) => publish::run(&common, args, output).await,
            Verb::Work(args) => work::run(&common, args, output).await,
            Verb::Source(args) => source::run(&common, &args, output),
            Verb::Events(args) => events::run(&common, args, output).await,
            Verb::Trace(args) => Box::pin(trace::run(&common, &args, output)).await,
            Verb::Status(args) => status::run(&common, &args, output).await,
            Verb::DeadLetter(args) => dead_letter::run(&common, args, output).await,
            Verb::Schedule(args) => schedule::run(&common, args, output).await,
            Verb::Pause(args) => pause::run(&common, &args, output).await,
            Verb::Resume(args) => pause::resume(&common, &args, output).await,
            Verb::Breaker(args) => breaker::run(&common, args, output).await,
            Verb::Serve(args) => Box::pin(serve::run(&common, &args, output)).await,
            Verb::Export(args) => export::run(&common, &args, output),
            Verb::Schema(args) => schema::run(&args, output),
            Verb::Completions(args) => completions::run(&args, fitted(Cli::command())),
            Verb::Man(args) => man::run(&args, Cli::command(), output),
        }
    });
    // Tasks that still run are dropped, and the programs that they started are killed. A blocking read of standard
    // input cannot be cancelled, and waiting for its end would serve nobody.
    runtime.shutdown_timeout(LAST_DROPS);
    result
}

/// Prints the error, if there is one, and returns the process's exit code.
pub(crate) fn report((output, result): (Output, anyhow::Result<Exit>)) -> Exit {
    match result {
        Ok(exit) => exit,
        Err(error) => {
            let (exit, help) = Exit::of(&error);
            output.error(&error, help);
            exit
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Command;

    use super::*;

    /// `topology` and each of its verbs.
    fn commands() -> Vec<Command> {
        man::with_verbs(fitted(Cli::command().disable_help_subcommand(true)))
    }

    #[test]
    fn no_color_applies_to_the_help_too() {
        let choice = |line: &str| colors(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(choice("topology --no-color plan --help"), ColorChoice::Never);
        assert_eq!(choice("topology plan --wrong --no-color"), ColorChoice::Never);
        assert_eq!(choice("topology work --exec ls --no-color"), ColorChoice::Auto);
        assert_eq!(choice("topology plan"), ColorChoice::Auto);
    }

    #[test]
    fn a_negative_delay_is_reported_as_negative() {
        let parsed = Cli::try_parse_from(["topology", "publish", "mail", "--delay", "-5s"]);
        let Err(error) = parsed else { panic!("refused") };
        assert!(error.to_string().contains("`-5s` is negative; write how long from now"), "{error}");
    }

    #[test]
    fn every_command_has_a_schema_of_its_json() {
        let leaves = commands().into_iter().filter(|command| !command.has_subcommands());
        let names = leaves.filter_map(|command| Some(command.get_bin_name()?.strip_prefix("topology ")?.to_owned()));
        // They print a script of a shell, nothing but answers over HTTP, and what a person reads meanwhile.
        let names: BTreeSet<String> =
            names.filter(|name| !["completions", "serve", "dev"].contains(&name.as_str())).collect();
        assert_eq!(names, schema::commands().map(str::to_owned).collect());
        for command in schema::commands() {
            for ndjson in [false, true] {
                let schema = schema::answer(command, ndjson).expect("a schema");
                jsonschema::Validator::new(&schema).unwrap_or_else(|error| panic!("{command}: {error}"));
            }
        }
    }

    #[test]
    fn the_arguments_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_examples_and_80_columns() {
        let mut wrong = Vec::new();
        for mut command in commands() {
            let below = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(below.contains("Examples:\n"), "{}", command.get_name());
            let help = format!("{}\n{}", command.render_help(), command.render_long_help());
            // clap does not wrap the examples, which are written by hand.
            let lines = help.lines().chain(below.lines()).filter(|line| line.chars().count() > 80);
            wrong.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
        }
        assert!(wrong.is_empty(), "longer than 80:\n{}", wrong.join("\n"));
    }
}
