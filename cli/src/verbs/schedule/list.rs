//! `topology schedule list`.

use anstyle::Style;
use hatchery_admin::{
    schedules::{LastRun, ScheduleList, ScheduleView, Schedules, WHEN, shown},
    text::relative,
};
use jiff::Timestamp;

use crate::{
    args::Common,
    connect,
    exit::Exit,
    load,
    output::{CYAN, Format, Output, RED, YELLOW},
    server::Server,
    table::{GAP, paint, table, widest},
    text::{LEAST, cut},
};

/// List the schedules, their next instants and their last runs
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schedule list
  topology schedule list -o ndjson | jq -r 'select(.state == \"paused\").name'

The next three instants are shown in the time zone of the schedule and in UTC.")]
pub(crate) struct Args {}

pub(super) async fn run(common: &Common, _: &Args, output: Output) -> anyhow::Result<Exit> {
    if let Some(server) = Server::named(common)? {
        return show(&server.get("/v1/schedules").await?, output);
    }
    let events = connect::events(common, load::topology(common, output)?, "topology schedule")?;
    let schedules = Schedules(events).list().await?;
    show(&ScheduleList { schedules: schedules.iter().map(ScheduleView::of).collect() }, output)
}

fn show(list: &ScheduleList, output: Output) -> anyhow::Result<Exit> {
    match output.format {
        Format::Text => output.print(&screen(&list.schedules, Timestamp::now(), Output::columns()))?,
        Format::Json => output.json(list)?,
        Format::Ndjson => list.schedules.iter().try_for_each(|view| output.json(view))?,
    }
    Ok(Exit::Done)
}

/// From this width on there is room for whole times.
const WIDE: usize = 120;
/// The least width of a name, and of how the last run ended.
const NAME: usize = 12;
const LAST: usize = 10;

/// Returns the table: for each schedule a line for its next instant, and one for each further instant.
///
/// People copy the names. So a terminal that is not wide gets shorter times: without seconds if all are 0, else without year and offset.
pub(super) fn screen(views: &[ScheduleView], now: Timestamp, columns: usize) -> String {
    if views.is_empty() {
        return "The file has no schedule, and Redis knows none.\n".to_owned();
    }
    let has_seconds = views.iter().flat_map(|view| &view.next).any(|at| at.as_second() % 60 != 0);
    let (local, utc) = match (columns >= WIDE, has_seconds) {
        (true, _) => (WHEN, "%Y-%m-%d %H:%M:%SZ"),
        (false, true) => ("%m-%d %H:%M:%S", "%m-%d %H:%M:%SZ"),
        (false, false) => ("%Y-%m-%d %H:%M %:z", "%m-%d %H:%MZ"),
    };
    let mut rows: Vec<[String; 5]> = Vec::new();
    for view in views {
        let zone = view.zone();
        let last = view.last.as_ref().map(|last| last_run(last, now)).unwrap_or_default();
        let mut row = [view.name.clone(), view.state.to_string(), String::new(), String::new(), last];
        let next = view.next.iter().map(|at| (shown(*at, &zone, local), at.strftime(utc).to_string()));
        for (at, utc) in next.chain(view.next.is_empty().then(|| ("-".to_owned(), String::new()))) {
            (row[2], row[3]) = (at, utc);
            rows.push(std::mem::take(&mut row));
        }
    }
    let widest = |place| widest(&HEADS, &rows, place);
    let taken: usize = (1..4).map(widest).sum::<usize>() + 4 * usize::from(GAP);
    let room = columns.max(LEAST).saturating_sub(taken);
    let shows_last = room >= NAME + LAST;
    let name = widest(0).min(if shows_last { room - widest(4).min(LAST) } else { room + usize::from(GAP) });
    let last = room.saturating_sub(name);

    let columns = if shows_last { HEADS.len() } else { HEADS.len() - 1 };
    for row in &mut rows {
        (row[0], row[4]) = (cut(&row[0], name), cut(&row[4], last));
        if !row[1].is_empty() {
            row[1] = paint(style(&row[1]), &row[1]);
        }
    }
    table(&HEADS[..columns], rows.iter().map(|row| &row[..columns]), 0..0) + "\n"
}

const HEADS: [&str; 5] = ["SCHEDULE", "STATE", "NEXT", "UTC", "LAST"];

fn last_run(last: &LastRun, now: Timestamp) -> String {
    match (last.ended, &last.outcome, last.started) {
        (Some(ended), Some(outcome), _) => format!("{} {outcome}", relative(now, ended, 1)),
        (_, _, Some(started)) => format!("{} running", relative(now, started, 1)),
        _ => String::new(),
    }
}

fn style(state: &str) -> Style {
    match state {
        "armed" => CYAN,
        "paused" => YELLOW,
        _ => RED,
    }
}
