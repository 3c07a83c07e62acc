//! `/v1/schedules`: when schedules run next, and events of them beside those.

use std::sync::Arc;

use axum::{
    extract::{Path, Request, State},
    http::{StatusCode, Uri},
    response::Response,
};
use hatchery::jiff::Timestamp;
use hatchery_admin::{
    notation::Moment,
    schedules::{ActedSchedule, BackfillError, ScheduleList, ScheduleView, Schedules},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    answer::{Named, answer},
    api::Api,
    body,
    problem::Problem,
    query,
};

/// How long a request may be, in bytes.
const REQUEST: usize = 16 * 1024;
/// How many instants are shown or made up for at most.
const MOST: u32 = 1_000;
/// How many instants are shown if the request does not say.
const USUAL: u32 = 10;
/// How many instants each schedule of a list has if the request does not say, and at most.
const OF_A_LIST: u32 = 3;
const MOST_OF_A_LIST: u32 = 100;

/// How many instants of each schedule to list.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListedSchedules {
    /// How many instants of each; 3 if it is not given.
    #[schemars(range(min = 1, max = MOST_OF_A_LIST))]
    count: Option<u32>,
}

/// How many instants of a schedule to show.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShownSchedule {
    /// How many instants; 10 if it is not given.
    #[schemars(range(min = 1, max = MOST))]
    count: Option<u32>,
}

/// An event of a schedule that runs now.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExtraEvent {
    /// The event's id: the schedule's name, `!`, and more; a new one if there is none. A request that is repeated with its id runs the event
    /// once.
    id: Option<String>,
}

/// The instants to make up for.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Backfill {
    /// The first instant, or a time before it: `2026-06-01T00:00:00Z`, `7d ago`.
    from: Moment,
    /// A time after the last instant; now, if it is not given.
    to: Option<Moment>,
    /// The most instants; 1,000 if it is not given.
    #[serde(default, deserialize_with = "body::whole")]
    #[schemars(range(min = 1, max = MOST))]
    limit: Option<u32>,
    /// Whether nothing is published. Yes, unless this is `false`.
    dry_run: Option<bool>,
}

pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let ListedSchedules { count } = query::read(&uri)?;
    let count = bounded("count", count.unwrap_or(OF_A_LIST), MOST_OF_A_LIST)?;
    let schedules = Schedules(api.events.clone()).list().await?;
    let schedules = schedules.iter().map(|info| ScheduleView::with(info, count)).collect();
    Ok(answer(StatusCode::OK, &ScheduleList { schedules }))
}

pub(crate) async fn show(State(api): State<Arc<Api>>, path: Named, uri: Uri) -> Result<Response, Problem> {
    let name = name(path)?;
    let ShownSchedule { count } = query::read(&uri)?;
    let count = bounded("count", count.unwrap_or(USUAL), MOST)?;
    let schedules = Schedules(api.events.clone()).list().await?;
    let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("neither the file nor Redis has a schedule `{name}`"));
    let info = schedules.iter().find(|info| info.name == name).ok_or_else(unknown)?;
    Ok(answer(StatusCode::OK, &ScheduleView::with(info, count)))
}

pub(crate) async fn run_now(State(api): State<Arc<Api>>, path: Named, request: Request) -> Result<Response, Problem> {
    let schedule = name(path)?;
    let ExtraEvent { id } = body::json_or_nothing(request, REQUEST).await?;
    let id = id.unwrap_or_else(|| Schedules::new_id(&schedule));
    let (schedules, name, of) = (Schedules(api.events.clone()), schedule.clone(), id.clone());
    let published = api.work.finish(async move { Ok(schedules.run_now(&name, &of).await?) }).await;
    published.map_err(|problem| problem.of(id.clone()))?;
    Ok(answer(StatusCode::OK, &ActedSchedule { schedule, changed: true, next: None, id: Some(id) }))
}

pub(crate) async fn backfill(State(api): State<Arc<Api>>, path: Named, request: Request) -> Result<Response, Problem> {
    let schedule = name(path)?;
    let Backfill { from: Moment(from), to, limit, dry_run } = body::json(request, REQUEST).await?;
    let now = Timestamp::now();
    let to = to.map_or(now, |Moment(to)| to);
    let limit = bounded("limit", limit.unwrap_or(MOST), MOST)?;
    if to > now {
        let detail = format!("`to` {to} is not past: the schedule itself runs what is to come");
        return Err(Problem::wrong(detail));
    }
    if from >= to {
        return Err(Problem::wrong(format!("`from` {from} is not before `to` {to}")));
    }
    let schedules = Schedules(api.events.clone());
    let mut events = schedules.would_backfill(&schedule, from, to, limit)?;
    if !dry_run.unwrap_or(true) {
        let failed = |error: BackfillError| Problem::for_now(format!("{error}. Repeat the request")).after(error.done);
        events = api.work.finish(async move { schedules.backfill(events).await.map_err(failed) }).await?;
    }
    Ok(answer(StatusCode::OK, &events))
}

fn name(path: Named) -> Result<String, Problem> {
    path.map(|Path(name)| name).map_err(|rejection| Problem::bad(rejection.body_text()))
}

fn bounded(field: &str, count: u32, most: u32) -> Result<usize, Problem> {
    match usize::try_from(count) {
        Ok(bounded) if (1..=most).contains(&count) => Ok(bounded),
        _ => Err(Problem::bad(format!("`{field}` is 1 to {most}"))),
    }
}
