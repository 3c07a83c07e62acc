//! `topology schedule pause`, `resume` and `run-now`.

use std::time::Duration;

use hatchery::Word;
use hatchery_admin::{
    Admin, ChangedPauses, Name, Paused,
    schedules::{ActedSchedule, Schedules},
};
use serde_json::json;

use crate::{
    args::Common,
    connect::{self, told},
    exit::Exit,
    load,
    output::Output,
    progress::Screen,
    server::{Server, segment, unknown_is_usage},
};

/// How long to wait for somebody else who changes the pauses.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause a schedule: its next event does not run
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schedule pause nightly-import
  topology schedule pause nightly-import --reason \"the bank is closed\"

A run that has begun goes on. `topology schedule resume` resumes the schedule;
instants that pass meanwhile are not made up for.")]
pub(crate) struct PauseArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE")]
    name: Word,

    /// The reason that `schedule list` and `status` show
    #[arg(long, value_name = "TEXT", default_value = "paused by hand")]
    reason: String,
}

/// Resume a paused schedule
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schedule resume nightly-import

The next event is that of the next instant. `topology schedule backfill` runs
instants that have passed.")]
pub(crate) struct ResumeArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE")]
    name: Word,
}

/// Run an event of a schedule now, beside those that are due at its instants
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schedule run-now nightly-import

The event runs also while the schedule is paused, and moves no other event.")]
pub(crate) struct RunNowArgs {
    /// The schedule
    #[arg(value_name = "SCHEDULE")]
    name: String,
}

fn answer(output: Output, text: &str, answer: &ActedSchedule) -> anyhow::Result<Exit> {
    output.answer(answer, || format!("{text}\n"))?;
    Ok(Exit::Done)
}

pub(super) async fn pause(common: &Common, args: &PauseArgs, output: Output) -> anyhow::Result<Exit> {
    let (name, what) = (&args.name, [Paused::Schedule(Name(args.name.clone()))]);
    let switched = if let Some(server) = Server::named(common)? {
        let pause = json!({ "schedule": name.as_str(), "reason": args.reason });
        server.post("/v1/pauses", &pause).await.map_err(unknown_is_usage)?
    } else {
        let pausing = admin(common, output)?.pause(&what, &args.reason, None, PATIENCE, &Screen::new(output)).await;
        ChangedPauses::from(&pausing.map_err(told)?)
    };
    // No pause was ended, and there is none beside the new one.
    let changed = switched.changed && switched.ended.is_empty() && switched.pauses.len() == 1;
    let text = if changed { format!("{name} is paused.") } else { format!("{name} was paused before.") };
    answer(output, &text, &ActedSchedule { schedule: name.to_string(), changed, next: None, id: None })
}

pub(super) async fn resume(common: &Common, args: &ResumeArgs, output: Output) -> anyhow::Result<Exit> {
    let (name, what) = (&args.name, [Paused::Schedule(Name(args.name.clone()))]);
    let switched = if let Some(server) = Server::named(common)? {
        server.post("/v1/pauses/end", &json!({ "schedule": name.as_str() })).await.map_err(unknown_is_usage)?
    } else {
        let resumed = admin(common, output)?.resume(&what, PATIENCE, &Screen::new(output)).await;
        ChangedPauses::from(&resumed.map_err(told)?)
    };
    let next = switched.next.values().next().copied();
    let text = match next {
        Some(at) => format!("{name} is resumed; its next event is due at {at}."),
        // A worker was faster, and has armed the next event.
        None if !switched.ended.is_empty() => format!("{name} is resumed."),
        None => format!("{name} was not paused."),
    };
    let changed = next.is_some() || !switched.ended.is_empty();
    answer(output, &text, &ActedSchedule { schedule: name.to_string(), changed, next, id: None })
}

fn admin(common: &Common, output: Output) -> anyhow::Result<Admin> {
    connect::admin(common, load::topology(common, output)?, "topology schedule")
}

pub(super) async fn run_now(common: &Common, args: &RunNowArgs, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        let path = format!("/v1/schedules/{}/run-now", segment(&args.name));
        let acted: ActedSchedule = server.post(&path, &json!({})).await.map_err(unknown_is_usage)?;
        return answer(output, acted.id.as_deref().unwrap_or_default(), &acted);
    }
    let topology = load::topology(common, output)?;
    connect::with_events(common, topology, "topology schedule", async |events| {
        let name = &args.name;
        let id = Schedules::new_id(name);
        Schedules(events.clone()).run_now(name, &id).await?;
        answer(output, &id, &ActedSchedule { schedule: name.clone(), changed: true, next: None, id: Some(id.clone()) })
    })
    .await
}
