//! `GET /v1/events` and `GET /v1/events/{type}`: finds events that wait, run, are retried or were dead-lettered, and what the register
//! knows of events.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};
use futures_util::{Stream, TryStreamExt as _};
use hatchery::{EventInfo, EventsError, Filter};
use hatchery_admin::{
    Unlisted,
    batch::selected,
    event_view::{EventView, view},
    location::KnownEvent,
    notation::Moment,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use crate::{
    answer::{Named, answer, event_type},
    api::Api,
    problem::Problem,
    query,
    tokens::Caller,
};

/// How many events a list has if the request does not say.
const USUAL: u32 = 100;
/// How many events a list has at most.
const MOST: u32 = 1_000;
/// How long to look. A filter that few events match may have to look at millions.
const LONGEST: Duration = Duration::from_secs(10);
/// How long to go on counting the events that are not in the list. There may be millions.
const COUNTING: Duration = Duration::from_secs(2);

/// Which events. An event must match all fields.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SearchedEvents {
    /// Events of this type, or of these, separated by commas.
    r#type: Option<String>,
    /// The event with this id.
    id: Option<String>,
    /// Events about this object.
    reference: Option<String>,
    /// Events about objects whose name begins with this prefix.
    reference_prefix: Option<String>,
    /// `waiting`, `running`, `retry` or `dead-letter`, or some of them, separated by commas.
    #[schemars(regex(pattern = "^(waiting|running|retry|dead-letter)(,(waiting|running|retry|dead-letter))*$"))]
    state: Option<String>,
    /// Due before this time: `2026-06-01T09:00:00Z`, `1h`, `1h ago`.
    due_before: Option<Moment>,
    /// Due at this time or later.
    due_after: Option<Moment>,
    /// Events that failed at least this often.
    #[schemars(range(max = u32::MAX))]
    attempts: Option<u32>,
    /// Events with this text in their reason, in any case.
    reason: Option<String>,
    /// The most events; 100 if it is not given.
    #[schemars(range(min = 1, max = MOST))]
    limit: Option<u32>,
    /// `true`: also how many events there are, and where messages are that the list cannot have.
    #[serde(default)]
    count: bool,
}

/// The events that were found.
#[derive(Serialize, JsonSchema)]
pub(crate) struct EventList {
    /// The events, the next one first.
    events: Vec<EventView>,
    /// Whether there may be more events than these.
    more: bool,
    /// The number of events, if it was asked for and counting took no longer than two seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
    /// How many events were counted, if counting took longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_than: Option<usize>,
    /// Where messages are that have no line in the list, if the number was asked for and the broker and Redis tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    unlisted: Option<Vec<Unlisted>>,
}

pub(crate) async fn search(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    uri: Uri,
) -> Result<Response, Problem> {
    let asked: SearchedEvents = query::read(&uri)?;
    let limit = asked.limit.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        return Err(Problem::bad(format!("`limit` is 1 to {MOST}")));
    }
    let _place = api.asking.take(&caller).await?;
    let limit = usize::try_from(limit).unwrap_or_default();
    let (types, count) = (words(asked.r#type.as_deref()), asked.count);
    let mut found = Box::pin(api.events.search(&filter(asked)?));
    let (read, events) = first(limit, &mut found).await?;
    let events: Vec<_> = events.iter().map(|event| view(event, api.backend.topology())).collect();
    let mut list = EventList { events, more: read.is_some(), total: None, more_than: None, unlisted: None };
    if count {
        (list.total, list.more_than) = match read {
            Some(read) => counted(read, found).await?,
            None => (Some(list.events.len()), None),
        };
        // The list is from Redis, and worth an answer without the broker.
        list.unlisted = api.status().await.ok().map(|status| {
            let is_asked = |place: &&Unlisted| types.is_empty() || types.contains(&place.place);
            status.unlisted.iter().filter(is_asked).cloned().collect()
        });
    }
    Ok(answer(StatusCode::OK, &list))
}

/// Returns the first events, and how many were read if there may be more.
async fn first<T>(
    limit: usize,
    mut found: impl Stream<Item = Result<T, EventsError>> + Unpin,
) -> Result<(Option<usize>, Vec<T>), EventsError> {
    let (mut events, until) = (Vec::new(), Instant::now() + LONGEST);
    loop {
        match timeout_at(until, found.try_next()).await {
            Ok(event) => match event? {
                Some(_) if events.len() == limit => return Ok((Some(limit + 1), events)),
                Some(event) => events.push(event),
                None => return Ok((None, events)),
            },
            Err(_) => return Ok((Some(events.len()), events)),
        }
    }
}

/// Counts on from so many events. Returns how many there are, or else how many were counted in time.
async fn counted(
    mut count: usize,
    mut rest: impl Stream<Item = Result<EventInfo, EventsError>> + Unpin,
) -> Result<(Option<usize>, Option<usize>), Problem> {
    let until = Instant::now() + COUNTING;
    while let Ok(event) = timeout_at(until, rest.try_next()).await {
        match event? {
            Some(_) => count += 1,
            None => return Ok((Some(count), None)),
        }
    }
    Ok((None, Some(count)))
}

/// Returns the words of a list.
fn words(list: Option<&str>) -> Vec<String> {
    list.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
}

fn filter(asked: SearchedEvents) -> Result<Filter, Problem> {
    let mut filter = Filter::default().attempts(asked.attempts.unwrap_or(0));
    for name in words(asked.r#type.as_deref()) {
        filter = filter.event_type(name);
    }
    if let Some(id) = asked.id {
        filter = filter.id(id);
    }
    if let Some(reference) = asked.reference {
        filter = filter.reference(reference);
    }
    if let Some(prefix) = asked.reference_prefix {
        filter = filter.reference_prefix(prefix);
    }
    for state in words(asked.state.as_deref()) {
        filter = filter.state(state.parse().map_err(|error: hatchery::StateError| Problem::bad(error.to_string()))?);
    }
    if let Some(Moment(time)) = asked.due_before {
        filter = filter.due_before(time);
    }
    if let Some(Moment(time)) = asked.due_after {
        filter = filter.due_from(time);
    }
    if let Some(text) = asked.reason {
        filter = filter.reason(text);
    }
    Ok(filter)
}

/// What the register knows.
#[derive(Serialize, JsonSchema)]
pub(crate) struct KnownEvents {
    /// The events, also those that have ended, while the register remembers them.
    events: Vec<KnownEvent>,
}

/// Which events.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NamedEvents {
    /// The object that the events are about.
    reference: Option<String>,
    /// The id of the one event.
    id: Option<String>,
    /// `true`: also where the events are, from the counts of queues; takes up to twelve seconds.
    #[serde(default)]
    place: bool,
}

pub(crate) async fn show(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    path: Named,
    uri: Uri,
) -> Result<Response, Problem> {
    let event_type = event_type(path)?;
    let NamedEvents { reference, id, place } = query::read(&uri)?;
    let known = api.events.show(&selected(event_type, reference, id)?).await?;
    if known.is_empty() {
        return Err(Problem::new(StatusCode::NOT_FOUND, "nothing is known of such an event"));
    }
    let _place = if place { Some(api.asking.take(&caller).await?) } else { None };
    Ok(answer(StatusCode::OK, &KnownEvents { events: api.known(known, place).await? }))
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::all(stream::iter(0..2).boxed(), None)]
    #[case::one_more(stream::iter(0..3).boxed(), Some(3))]
    #[case::late(stream::iter(0..2).chain(stream::pending()).boxed(), Some(2))]
    #[tokio::test(start_paused = true)]
    async fn an_event_counts_only_if_it_was_read(
        #[case] found: stream::BoxStream<'static, u32>,
        #[case] expected: Option<usize>,
    ) {
        let read = first(2, found.map(Ok)).await.expect("it is read");
        assert_eq!(read, (expected, vec![0, 1]));
    }
}
