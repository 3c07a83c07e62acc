//! `topology pause` and `topology resume`.

use std::time::Duration;

use clap::ArgGroup;
use hatchery::Word;
use hatchery_admin::{Admin, ChangedPauses, Name, NotFollowing, Pause, PauseLine, Paused, PausedBy, Switched, Until};

use crate::{
    args::{Common, parse_patience},
    connect::{self, told},
    exit::{Ended, Exit},
    load,
    output::Output,
    progress::Screen,
};

/// Pause types, sources or schedules: workers start no event of them
#[derive(clap::Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["types", "source", "schedule", "all"]))]
#[command(override_usage = "topology pause [OPTIONS] --reason <TEXT> <TYPE>...")]
#[command(after_long_help = "\
Examples:
  topology pause payment --reason \"the provider migrates\"
  topology pause payment --reason \"fails on Mondays\" --until 2h
  topology pause payment mail --reason \"incident 4711\" --until 2026-06-01T09:00Z
  topology pause --source hr --reason \"the payroll is closed\"
  topology pause --schedule nightly --reason \"the bank is closed\"
  topology pause --all --reason \"the new cluster is filled\"

Publishing goes on, and what runs is finished. A pause is on the broker, in the
stream <name>.control: it holds for all workers, also those that start later,
until its end or `topology resume`. The command returns once nothing new is
started. Exit code 5: it is paused, and the output names workers that still
consume, because they do not know of pauses or cannot read the stream.

`topology status` shows what is paused. The key `paused` of the file pauses with
`topology apply`.")]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,

    /// The reason, for people
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    reason: String,

    /// When the pause ends by itself: a time, or how long from now
    #[arg(long, value_name = "TIME|DURATION")]
    until: Option<Until>,
}

/// Resume paused types, sources or schedules
#[derive(clap::Args)]
#[command(group = ArgGroup::new("what").required(true).multiple(true).args(["types", "source", "schedule", "all"]))]
#[command(override_usage = "topology resume [OPTIONS] <TYPE>...")]
#[command(after_long_help = "\
Examples:
  topology resume payment
  topology resume --source hr
  topology resume --schedule nightly
  topology resume --all                    ends the pause that --all has begun

A pause of the file is ended too, and comes back with the next `topology apply`
as long as the key `paused` is there. `--all` ends no pause of a single type.")]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    what: What,
}

#[derive(clap::Args)]
struct What {
    /// The types; or --source, --schedule or --all
    #[arg(value_name = "TYPE")]
    types: Vec<Word>,

    /// A source; may be given more than once
    #[arg(long, value_name = "SOURCE")]
    source: Vec<Word>,

    /// A schedule; may be given more than once
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Vec<Word>,

    /// All types and sources
    #[arg(long)]
    all: bool,

    /// How long to wait for somebody else who changes the pauses
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_patience)]
    lock_timeout: Duration,
}

impl What {
    fn paused(&self) -> Vec<Paused> {
        let types = self.types.iter().map(|name| Paused::Type(Name(name.clone())));
        let sources = self.source.iter().map(|name| Paused::Source(Name(name.clone())));
        let schedules = self.schedule.iter().map(|name| Paused::Schedule(Name(name.clone())));
        let all = self.all.then_some(Paused::All).into_iter();
        let mut all: Vec<Paused> = all.chain(types).chain(sources).chain(schedules).collect();
        all.dedup();
        all
    }
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let admin = admin(common, "topology pause", output)?;
    let what = args.what.paused();
    let screen = Screen::new(output);
    let switched = admin.pause(&what, &args.reason, args.until, args.what.lock_timeout, &screen).await.map_err(told)?;
    output.answer(&ChangedPauses::from(&switched), || paused(&switched))?;
    if switched.not_following.is_empty() {
        return Ok(Exit::Done);
    }
    let left: Vec<String> = switched.not_following.iter().map(consumed).collect();
    let message = format!(
        "paused, but workers still consume: {}. Programs that still consume in a minute know of no pauses, or cannot read the stream: \
         update them, or stop them",
        left.join("; ")
    );
    Err(Ended::new(Exit::Partly, message).into())
}

pub(crate) async fn resume(common: &Common, args: &ResumeArgs, output: Output) -> anyhow::Result<Exit> {
    let admin = admin(common, "topology resume", output)?;
    let what = args.what.paused();
    let switched = admin.resume(&what, args.what.lock_timeout, &Screen::new(output)).await.map_err(told)?;
    output.answer(&ChangedPauses::from(&switched), || resumed(&switched, &what))?;
    Ok(Exit::Done)
}

fn admin(common: &Common, name: &str, output: Output) -> anyhow::Result<Admin> {
    connect::admin(common, load::topology(common, output)?, name)
}

fn paused(switched: &Switched) -> String {
    let line = |pause: &Pause| {
        let by = if pause.by == PausedBy::File { "paused by the file too" } else { "paused" };
        let pause = PauseLine::from(pause);
        format!("{} is {by}, {}\n", pause.what(), pause.about())
    };
    switched.after.iter().map(line).collect()
}

fn resumed(switched: &Switched, what: &[Paused]) -> String {
    let line = |of: &Paused| {
        let ended: Vec<&Pause> = switched.before.iter().filter(|pause| pause.of == *of).collect();
        let done = if ended.is_empty() { "was not paused" } else { "is resumed" };
        let mut lines = vec![format!("{of} {done}.\n")];
        if ended.iter().any(|pause| pause.by == PausedBy::File) {
            let again = "The applied file pauses it: the next `topology apply` pauses it again; remove the key `paused` first.\n";
            lines.push(again.to_owned());
        }
        let next = switched.next.iter().find(|(name, _)| *of == Paused::Schedule(Name(name.clone())));
        if let Some((_, due)) = next {
            lines.push(format!("Its next event is due at {due}.\n"));
        }
        if let Some((_, pause)) = switched.held.iter().find(|(held, _)| held == of) {
            let pause = PauseLine::from(pause);
            lines.push(format!("It still waits: {} is paused, {}\n", pause.what(), pause.about()));
        }
        lines.concat()
    };
    what.iter().map(line).collect()
}

fn consumed(left: &NotFollowing) -> String {
    let NotFollowing { queue, consumers, programs } = left;
    let s = if *consumers == 1 { "" } else { "s" };
    let by = match programs.as_slice() {
        [] => " (perhaps of workers that hold events and start none: the management API does not tell)".to_owned(),
        programs => format!(" ({})", programs.join(", ")),
    };
    format!("queue {queue} has {consumers} consumer{s}{by}")
}
