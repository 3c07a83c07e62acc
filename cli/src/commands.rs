//! The arguments of `topology`, its log, and which verb is run.

use std::{
    ffi::OsString,
    fmt::{self, Debug},
    time::Duration,
};

use anstyle::Style;
use anyhow::Context as _;
use clap::{ColorChoice, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use hatchery::internals::words::plain;
use tracing::{Level, Metadata, field::Field};
use tracing_subscriber::{
    EnvFilter, Layer as _,
    field::MakeExt as _,
    filter::{FilterExt as _, filter_fn},
    fmt::format::{Writer, debug_fn},
    layer::SubscriberExt as _,
    util::SubscriberInitExt as _,
};

use crate::{
    args::Common,
    exit::Exit,
    output::{self, Output},
    refused,
    verbs::{apply, completions, destroy, events, export, graph, init, man, plan, publish, schema, validate, work},
};

/// One file, topology.yaml, becomes a RabbitMQ topology that delays, delivers, retries and buries events.
#[derive(Parser)]
#[command(name = "topology", version, arg_required_else_help = true, subcommand_required = true)]
// Lines that are longer are hard to read, and a page of the manual has no more.
#[command(max_term_width = 80)]
#[command(after_help = "\
Examples:
  topology init                            a topology.yaml to start from
  topology validate                        check it, with no broker
  topology graph                           look at it
  topology plan                            what would change on the broker
  topology apply                           change it, after a look and a yes
  topology apply --auto-approve            the same in a deployment
  topology publish mail --payload '{}' --delay 5m
  topology work --type mail --exec ./send-mail
  topology events list                     what waits, and what failed

Exit codes:
  0  done or in sync
  1  error: an invalid file, or missing objects
  2  usage, or approval needed and no terminal to ask on
  3  changes pending (--detailed-exitcode)
  4  blocked; nothing was written
  5  partly done; the output says what is left
  6  broker or Redis unreachable, or it refuses
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
    Publish(publish::Args),
    Work(work::Args),
    Events(events::Args),
    Export(export::Args),
    Schema(schema::Args),
    Completions(completions::Args),
    Man(man::Args),
}

/// How long the end of the process waits for what was begun and is not wanted any more.
const LAST_DROPS: Duration = Duration::from_millis(500);

/// One TLS provider for everything; some of what is linked would otherwise panic for want of one.
pub(crate) fn secure() {
    // Fails when there is one already, which is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// The arguments and the environment. Ends the process with 2 where they are wrong, and with 0 after `--help`.
pub(crate) fn parse() -> Cli {
    let command = refused::without_empty_variables(Cli::command());
    let arguments = work::ours_first(std::env::args_os().collect(), &command);
    let matches = command.clone().color(colors(&arguments)).try_get_matches_from(&arguments);
    let matches = matches.and_then(|matches| refused::without_misplaced(command.clone(), matches));
    let parsed = matches.and_then(|matches| Cli::from_arg_matches(&matches));
    parsed.unwrap_or_else(|error| refused::exit(&error, &command, &arguments))
}

/// Whether what clap itself says, the help and what is wrong with the arguments, may have colours. It is said before
/// anything is read.
fn colors(arguments: &[OsString]) -> ColorChoice {
    let mut ours = arguments.iter().take_while(|argument| *argument != "--exec" && *argument != "--");
    if ours.any(|argument| argument == "--no-color") { ColorChoice::Never } else { ColorChoice::Auto }
}

/// Logs to standard error, as `RUST_LOG` or `-v` says.
pub(crate) fn log(cli: &Cli) {
    // A worker runs for days with nobody looking on: its log says what it does without being asked.
    let at_work = u8::from(matches!(cli.verb, Verb::Work(_)));
    let default = match cli.common.verbose.saturating_add(at_work) {
        0 => "hatchery=warn",
        1 => "hatchery=info",
        _ => "hatchery=debug",
    };
    let asked = std::env::var("RUST_LOG").ok().filter(|asked| !asked.is_empty());
    let filter = asked.and_then(|asked| EnvFilter::try_new(asked).ok()).unwrap_or_else(|| EnvFilter::new(default));
    let ansi = cli.common.output().colors_errors();
    let to_stderr = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(ansi);
    let to_stderr = to_stderr.fmt_fields(debug_fn(write_field).delimited(" "));
    let shown = filter.and(filter_fn(holds_no_secret));
    tracing_subscriber::registry().with(to_stderr.with_filter(shown)).init();
}

/// One field of a line of the log. A routing key, an id or an error may be a stranger's text: what controls a terminal, or
/// begins a line, is shown instead of done, whichever field it is in.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let value = format!("{value:?}");
    let value = plain(&value);
    if field.name() == "message" {
        return writer.write_str(&value);
    }
    let style = if writer.has_ansi_escapes() { output::DIM } else { Style::new() };
    write!(writer, "{style}{}={style:#}{value}", field.name())
}

/// The trace of the AMQP library has every byte that is sent, and the password among them: nobody sees it, however it is
/// asked for.
fn holds_no_secret(event: &Metadata<'_>) -> bool {
    let is_amqp = ["lapin", "amq_protocol"].iter().any(|library| event.target().starts_with(library));
    !is_amqp || *event.level() < Level::TRACE
}

/// Does what was asked for.
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
    let result = runtime.block_on(async {
        match cli.verb {
            Verb::Init(args) => init::run(&common, &args, output),
            Verb::Validate(args) => validate::run(&common, &args, output),
            Verb::Graph(args) => graph::run(&common, &args, output),
            Verb::Plan(args) => plan::run(&common, &args, output).await,
            Verb::Apply(args) => apply::run(&common, &args, output).await,
            Verb::Destroy(args) => destroy::run(&common, &args, output).await,
            Verb::Publish(args) => publish::run(&common, args, output).await,
            Verb::Work(args) => work::run(&common, args, output).await,
            Verb::Events(args) => events::run(&common, args, output).await,
            Verb::Export(args) => export::run(&common, &args, output),
            Verb::Schema(args) => schema::run(&args, output),
            Verb::Completions(args) => completions::run(&args, Cli::command()),
            Verb::Man(args) => man::run(&args, Cli::command(), output),
        }
    });
    // What still runs is dropped, and its programs are killed with it. A read of standard input alone cannot be called off,
    // and nobody wants to wait for its end.
    runtime.shutdown_timeout(LAST_DROPS);
    result
}

/// Says what went wrong, and turns it into the process's exit code.
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
    use clap::Command;

    use super::*;

    /// `topology` and each of its verbs.
    fn commands() -> Vec<Command> {
        let mut topology = Cli::command().disable_help_subcommand(true);
        topology.build();
        man::with_verbs(topology)
    }

    #[test]
    fn without_colours_means_the_help_too() {
        let choice = |line: &str| colors(&line.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(choice("topology --no-color plan --help"), ColorChoice::Never);
        assert_eq!(choice("topology plan --wrong --no-color"), ColorChoice::Never);
        assert_eq!(choice("topology work --exec ls --no-color"), ColorChoice::Auto);
        assert_eq!(choice("topology plan"), ColorChoice::Auto);
    }

    #[test]
    fn a_negative_delay_is_said_to_be_one() {
        let parsed = Cli::try_parse_from(["topology", "publish", "mail", "--delay", "-5s"]);
        let Err(error) = parsed else { panic!("refused") };
        assert!(error.to_string().contains("`-5s` is negative; write how long from now"), "{error}");
    }

    #[test]
    fn the_arguments_fit_together() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_help_has_examples_and_80_columns() {
        let mut wrong = Vec::new();
        for mut command in commands() {
            let below = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(below.contains("Examples:\n"), "{}", command.get_name());
            let help = format!("{}\n{}", command.render_help(), command.render_long_help());
            // What is written by hand is not to be broken either.
            let lines = help.lines().chain(below.lines()).filter(|line| line.chars().count() > 80);
            wrong.extend(lines.map(|line| format!("{}: {line}", command.get_name())));
        }
        assert!(wrong.is_empty(), "longer than 80:\n{}", wrong.join("\n"));
    }
}
