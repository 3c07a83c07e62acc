//! `topology schedule show`.

use hatchery_admin::schedules::{INSTANTS, ScheduleView, Schedules, when};

use crate::{
    args::Common,
    connect,
    exit::{Ended, Exit},
    load,
    output::Output,
    server::{Server, segment},
    text::beside,
};

/// Show one schedule: its definition, its next instants and its last run
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schedule show nightly-import
  topology schedule show nightly-import -o json")]
pub(crate) struct Args {
    /// The schedule
    #[arg(value_name = "SCHEDULE")]
    name: String,
}

pub(super) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        // As many instants as a list has.
        return tell(&server.get(&format!("/v1/schedules/{}?count={INSTANTS}", segment(&args.name))).await?, output);
    }
    let events = connect::events(common, load::topology(common, output)?, "topology schedule")?;
    let list = Schedules(events).list().await?;
    let Some(info) = list.iter().find(|info| info.name == args.name) else {
        let message = format!("neither the file nor Redis has a schedule `{}`", args.name);
        return Err(Ended::new(Exit::Error, message).into());
    };
    tell(&ScheduleView::of(info), output)
}

fn tell(view: &ScheduleView, output: Output) -> anyhow::Result<Exit> {
    output.answer(view, || screen(view, Output::columns()))?;
    Ok(Exit::Done)
}

/// The columns before the values of a schedule.
const NAMES: usize = 11;

/// Returns the screen of a schedule.
pub(super) fn screen(view: &ScheduleView, columns: usize) -> String {
    let zone = view.zone();
    let mut lines = vec![("schedule", view.name.clone()), ("state", view.state.to_string())];
    if let (Some(since), Some(reason)) = (view.paused_since, &view.paused_because) {
        lines.push(("paused", format!("since {}: {reason}", when(since, &zone))));
    }
    lines.extend(view.event_type.clone().map(|name| ("type", name)));
    lines.extend(view.reference.clone().map(|name| ("reference", name)));
    lines.extend(view.calendar.clone().map(|text| ("calendar", text)));
    lines.extend(view.mode.as_ref().map(|mode| ("mode", mode.to_string())));
    let rule = [
        ("jitter", &view.jitter),
        ("overlap", &view.overlap),
        ("catch-up", &view.catch_up),
        ("on-failure", &view.on_failure),
    ];
    lines.extend(rule.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))));
    for (place, at) in view.next.iter().enumerate() {
        lines.push((if place == 0 { "next" } else { "" }, format!("{}  ({at})", when(*at, &zone))));
    }
    if let Some(last) = &view.last {
        lines.push(("last run", last.id.clone()));
        lines.extend(last.started.map(|at| ("  began", when(at, &zone))));
        lines.extend(last.ended.map(|at| ("  ended", when(at, &zone))));
        lines.extend(last.outcome.clone().map(|outcome| ("  outcome", outcome)));
    }
    let lines: Vec<String> =
        lines.iter().map(|(head, text)| format!("{head:<10} {}\n", beside(NAMES, text, columns))).collect();
    lines.concat()
}
