//! Every operation: its path, who may call it, what it takes and answers. The router and the description are made of this table.

use std::sync::{Arc, LazyLock};

use axum::{
    Router,
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    middleware::{from_fn_with_state, map_response},
    response::Response,
    routing::{MethodRouter, get, post},
};
use hatchery_admin::{
    ChangedPauses,
    batch::{AnsweredLine, ChangeKind, ChangedEvents, ChosenEvents, EventLine},
    breakers::{BreakerList, ClosedBreaker},
    dead_letters::{DoneLetters, FoundLetters, ShownLetters},
    schedules::{ActedSchedule, Backfilled, ScheduleList, ScheduleView},
    status::Document,
    trace::History,
};
use serde_json::{Map, Value};

use crate::{
    answer::JSON,
    api::Api,
    batch::NDJSON,
    breakers, change,
    description::{Content, Operation, content, query},
    guard::{Holder, guard, holder},
    letters::{self, ChosenLetters, ShownLetter},
    page,
    pauses::{self, EndedPause, NewPause, Pauses},
    problem::{PROBLEM, Problem},
    publish::{self, Published},
    schedules::{self, Backfill, ExtraEvent, ListedSchedules, ShownSchedule},
    search::{self, EventList, KnownEvents, NamedEvents, SearchedEvents},
    status,
    tokens::Right,
    topology,
    trace::{self, TracedEvents},
};

const OPERATIONS: &[Operation] = &[
    Operation {
        method: "post",
        path: "/v1/events",
        id: "publish",
        summary: "Publishes an event, or a batch of up to 10,000 lines, of which each is an event or changes events that wait: \
                  {\"cancel\": …} or {\"reschedule\": …}, as in `topology publish --batch`",
        right: Right::Publish,
        query: None,
        takes: &[content::<EventLine<'_>>(JSON), content::<EventLine<'_>>(NDJSON)],
        takes_nothing: false,
        answers: &[
            (201, "The broker has confirmed the event.", content::<Published>(JSON)),
            (200, ANSWERED, content::<Published>(JSON)),
            (200, ANSWERED, content::<AnsweredLine>(NDJSON)),
        ],
        problems: &[400, 408, 413, 415, 422, 503],
        route: || post(publish::publish),
    },
    Operation {
        path: "/v1/events",
        id: "search",
        summary: "Finds events that wait, run, are retried or were dead-lettered, the next one first",
        query: Some(query::<SearchedEvents>),
        answers: &[(200, "The events.", content::<EventList>(JSON))],
        problems: &[400, 404, 422, 503],
        route: || get(search::search),
        ..READ
    },
    Operation {
        path: "/v1/trace",
        id: "trace",
        summary: "Tells what has happened to an event, to a reference, or in a type, and what Redis knows of it now",
        query: Some(query::<TracedEvents>),
        answers: &[(200, "The records, up to 1,000.", content::<History>(JSON))],
        problems: &[400, 404, 409, 422, 503],
        route: || get(trace::trace),
        ..READ
    },
    Operation {
        path: "/v1/events/{type}",
        id: "find",
        summary: "Tells what Redis knows of the events of a reference, or of one event by its id",
        query: Some(query::<NamedEvents>),
        answers: &[(200, "The events.", content::<KnownEvents>(JSON))],
        problems: &[400, 404, 422, 503],
        route: || get(search::show),
        ..READ
    },
    changing("/v1/events/{type}/cancel", "cancel", "Cancels events that wait, and ends their runs", || {
        change::route(ChangeKind::Cancel)
    }),
    changing("/v1/events/{type}/reschedule", "reschedule", "Gives events that wait another time", || {
        change::route(ChangeKind::Reschedule)
    }),
    changing("/v1/events/{type}/run-now", "runNow", "Runs events that wait now", || change::route(ChangeKind::RunNow)),
    Operation {
        path: "/v1/status",
        id: "status",
        summary: "Tells what is wrong, and how many events are where; takes up to twelve seconds",
        answers: &[(200, "The status, as `topology status -o json` prints it.", content::<Document<'_>>(JSON))],
        route: || get(status::show),
        ..READ
    },
    Operation {
        path: "/v1/pauses",
        id: "pauses",
        summary: "Tells what is paused",
        answers: &[(200, "The pauses.", content::<Pauses>(JSON))],
        problems: &[409, 503],
        route: || get(pauses::list),
        ..READ
    },
    Operation {
        path: "/v1/pauses",
        id: "pause",
        summary: "Pauses a type, a source, a schedule or everything: workers start no event of it; what runs is finished. Answers \
                  once nothing new is started, or names the workers that still consume after ten seconds",
        takes: &[content::<NewPause>(JSON)],
        answers: &[(200, "The pause.", content::<ChangedPauses>(JSON))],
        route: || post(pauses::pause),
        ..OPERATE
    },
    Operation {
        path: "/v1/pauses/end",
        id: "resume",
        summary: "Ends the pause of a type, a source, a schedule or of everything, also that of the file",
        takes: &[content::<EndedPause>(JSON)],
        answers: &[(200, "The pauses that were ended.", content::<ChangedPauses>(JSON))],
        route: || post(pauses::end),
        ..OPERATE
    },
    Operation {
        path: "/v1/breakers",
        id: "breakers",
        summary: "Lists the circuit breakers, and what has opened them",
        answers: &[(200, "The breakers.", content::<BreakerList>(JSON))],
        route: || get(breakers::list),
        ..READ
    },
    Operation {
        path: "/v1/breakers/{type}/close",
        id: "closeBreaker",
        summary: "Closes the circuit breaker of a type: its events start as usual",
        answers: &[(200, "Whether it was open.", content::<ClosedBreaker>(JSON))],
        problems: &[400, 404, 409, 422, 503],
        route: || post(breakers::close),
        ..OPERATE
    },
    Operation {
        path: "/v1/changes",
        id: "changes",
        summary: "Sends the status whenever it has changed, looked up at most each five seconds: events named `status`, or `problem` \
                  while it cannot be looked up. A comment each ten seconds shows that the connection is there",
        answers: &[(
            200,
            "The events. The data of `status` is the answer of /v1/status.",
            content::<String>(status::EVENTS),
        )],
        problems: &[],
        route: || get(status::listen),
        ..READ
    },
    Operation {
        path: "/v1/topology",
        id: "topology",
        summary: "Returns the picture of the topology as nodes and edges, its types, and how many messages are in which queue",
        answers: &[(200, "The topology.", content::<topology::Shown>(JSON))],
        problems: &[409, 503],
        route: || get(topology::show),
        ..READ
    },
    Operation {
        path: "/v1/topology.svg",
        id: "picture",
        summary: "Draws the topology, as `topology graph --format svg`",
        answers: &[(200, "The picture.", content::<String>(topology::SVG))],
        problems: &[],
        route: || get(topology::picture),
        ..READ
    },
    Operation {
        path: "/v1/schedules",
        id: "schedules",
        summary: "Lists the schedules, their next instants and their last runs",
        query: Some(query::<ListedSchedules>),
        answers: &[(200, "The schedules.", content::<ScheduleList>(JSON))],
        problems: &[400, 503],
        route: || get(schedules::list),
        ..READ
    },
    Operation {
        path: "/v1/schedules/{name}",
        id: "schedule",
        summary: "Returns a schedule with its next instants",
        query: Some(query::<ShownSchedule>),
        answers: &[(200, "The schedule.", content::<ScheduleView>(JSON))],
        problems: &[400, 404, 503],
        route: || get(schedules::show),
        ..READ
    },
    Operation {
        path: "/v1/schedules/{name}/run-now",
        id: "runScheduleNow",
        summary: "Runs an event of a schedule now, beside those that are due at its instants",
        takes: &[content::<ExtraEvent>(JSON)],
        takes_nothing: true,
        answers: &[(200, "The id of the event.", content::<ActedSchedule>(JSON))],
        route: || post(schedules::run_now),
        ..OPERATE
    },
    Operation {
        path: "/v1/schedules/{name}/backfill",
        id: "backfill",
        summary: "Runs the events of instants that have passed; without \"dry_run\": false only lists them",
        takes: &[content::<Backfill>(JSON)],
        answers: &[(200, "The instants.", content::<Backfilled>(JSON))],
        route: || post(schedules::backfill),
        ..OPERATE
    },
    Operation {
        path: "/v1/dead-letters",
        id: "deadLetters",
        summary: "Lists dead letters, grouped by the reason of their failure, and the first ones of them; reads every letter",
        query: Some(letters::query),
        answers: &[(200, "The letters.", content::<FoundLetters>(JSON))],
        problems: &[400, 404, 409, 422, 503],
        route: || get(letters::list),
        ..READ
    },
    Operation {
        path: "/v1/dead-letters/{type}/{id}",
        id: "deadLetter",
        summary: "Returns all of a letter: fields, headers, payload",
        query: Some(query::<ShownLetter>),
        answers: &[(200, "The letters with this id.", content::<ShownLetters>(JSON))],
        problems: &[400, 404, 409, 503],
        route: || get(letters::show),
        ..READ
    },
    Operation {
        path: "/v1/dead-letters/replay",
        id: "replay",
        summary: "Publishes the events of letters again, as if they had not failed; without \"dry_run\": false only says how many",
        takes: &[content::<ChosenLetters>(JSON)],
        answers: DONE,
        route: || post(letters::replay),
        ..OPERATE
    },
    Operation {
        path: "/v1/dead-letters/discard",
        id: "discard",
        summary: "Removes the letters with these digests; without \"dry_run\": false answers with the letters and their digests",
        takes: &[content::<ChosenLetters>(JSON)],
        answers: DONE,
        route: || post(letters::discard),
        ..OPERATE
    },
    Operation {
        path: "/v1/token",
        id: "token",
        summary: "Tells what the token of the request may do",
        right: Right::Token,
        answers: &[(200, "The rights.", content::<Holder<'_>>(JSON))],
        problems: &[],
        route: || get(holder),
        ..READ
    },
    Operation {
        path: "/v1/openapi.json",
        id: "description",
        summary: "Returns this description",
        right: Right::None,
        answers: &[(200, "The description.", content::<Map<String, Value>>(JSON))],
        problems: &[],
        route: || get(async || ([(CONTENT_TYPE, JSON)], DESCRIPTION.as_str())),
        ..READ
    },
];

/// What operations that read have in common.
const READ: Operation = Operation {
    method: "get",
    path: "",
    id: "",
    summary: "",
    right: Right::Read,
    query: None,
    takes: &[],
    takes_nothing: false,
    answers: &[],
    problems: &[503],
    route: MethodRouter::new,
};

/// What operations that change something have in common.
const OPERATE: Operation =
    Operation { method: "post", right: Right::Operate, problems: &[400, 404, 408, 409, 413, 415, 422, 503], ..READ };

const DONE: &[(u16, &str, Content)] = &[(200, "What was done, or would be done.", content::<DoneLetters>(JSON))];
const ANSWERED: &str =
    "The same, of an event that Redis knew by its id; or the answers to the lines of a batch, as they are confirmed.";
const CHOSEN: &[Content] = &[content::<ChosenEvents>(JSON)];
const CHANGED: &[(u16, &str, Content)] = &[(200, "What became of the events.", content::<ChangedEvents>(JSON))];

const fn changing(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    route: fn() -> MethodRouter<Arc<Api>>,
) -> Operation {
    Operation { path, id, summary, takes: CHOSEN, answers: CHANGED, route, ..OPERATE }
}

/// The description as it is sent.
static DESCRIPTION: LazyLock<String> = LazyLock::new(|| description().to_string());

/// Returns the description of the API.
#[must_use]
pub fn description() -> Value {
    crate::description::of(OPERATIONS, &content::<Problem>(PROBLEM))
}

/// Returns the routes of all operations, and those of the page.
pub(crate) fn router(api: &Arc<Api>) -> Router {
    let mut router = Router::new();
    for operation in OPERATIONS {
        let state = (Arc::clone(api), operation.right);
        router = router.route(operation.path, (operation.route)().route_layer(from_fn_with_state(state, guard)));
    }
    let unknown = async || Problem::new(StatusCode::NOT_FOUND, "there is no such path; see /v1/openapi.json");
    let method = async || Problem::new(StatusCode::METHOD_NOT_ALLOWED, "the path has other methods");
    // What people have put into events is nothing else than its type says.
    let typed = async |mut response: Response| {
        response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        response
    };
    let router = router.merge(page::routes(api)).fallback(unknown).method_not_allowed_fallback(method);
    router.layer(map_response(typed)).with_state(Arc::clone(api))
}
