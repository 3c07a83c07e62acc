//! `topology schedule list`.

use anstyle::Style;
use comfy_table::{ContentArrangement, Table, presets};
use jiff::{Timestamp, tz::TimeZone};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    connected::with_states,
    view::{ScheduleView, when},
};
use crate::{
    args::Common,
    exit::Exit,
    load,
    output::{CYAN, DIM, Format, Output, RED, YELLOW},
    verbs::events::{cut, relative},
};

/// List the schedules, their next instants and their last runs
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology schedule list
  topology schedule list -o ndjson | jq -r 'select(.state == \"paused\").name'

The next three instants are shown in the time zone of the schedule and in UTC.")]
pub(super) struct Args {}

/// The answer of `topology schedule list`.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Answer {
    /// The schedules, by name.
    schedules: Vec<ScheduleView>,
}

pub(super) async fn run(common: &Common, _: &Args, output: Output) -> anyhow::Result<Exit> {
    let topology = load::topology(common, output)?;
    with_states(common, topology, async |schedules| {
        let views: Vec<ScheduleView> = schedules.list().await?.iter().map(ScheduleView::of).collect();
        match output.format {
            Format::Text => output.print(&screen(&views, Timestamp::now(), Output::columns()))?,
            Format::Json => output.json(&Answer { schedules: views })?,
            Format::Ndjson => views.iter().try_for_each(|view| output.json(view))?,
        }
        Ok(Exit::Done)
    })
    .await
}

/// The width of the column with how the last run ended, unless the terminal is wide.
const OUTCOME: usize = 16;
const WIDE: usize = 120;

/// Returns the table: for each schedule a line for its next instant, and one for each further instant.
fn screen(views: &[ScheduleView], now: Timestamp, columns: usize) -> String {
    if views.is_empty() {
        return "The file has no schedule, and Redis knows none.\n".to_owned();
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["SCHEDULE", "STATE", "NEXT", "UTC", "LAST"].map(|head| paint(DIM, head)));
    let room = if columns < WIDE { OUTCOME } else { usize::MAX };
    for view in views {
        let zone = view.zone();
        let last = view.last.as_ref().map(|last| cut(&last_run(last, now), room)).unwrap_or_default();
        let state = paint(style(view.state), view.state);
        let mut cells = [view.name.clone(), state, String::new(), String::new(), last];
        let next = view.next.iter().map(|at| (local(*at, &zone), at.strftime("%m-%d %H:%M:%SZ").to_string()));
        for (at, utc) in next.chain(view.next.is_empty().then(|| ("-".to_owned(), String::new()))) {
            (cells[2], cells[3]) = (at, utc);
            table.add_row(&cells);
            cells = Default::default();
        }
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    format!("{}\n", table.trim_fmt())
}

fn local(at: Timestamp, zone: &TimeZone) -> String {
    when(at, zone)
}

fn last_run(last: &super::view::LastRun, now: Timestamp) -> String {
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

fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
