//! A batch: each line is sent as soon as it is read, and answered as soon as the broker confirms it. Lines that come together are looked
//! up in Redis together.
//!
//! The lines are carried out in a task of their own, which reads on although nobody reads its answers: a client may send its whole
//! batch before it reads. The answers that wait are as many as the lines, and no longer than these.

use std::{
    borrow::Cow, collections::BTreeMap, convert::Infallible, future::ready, io, mem::take, sync::Arc, time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, header::CONTENT_TYPE},
    response::{IntoResponse as _, Response},
};
use futures_util::{StreamExt as _, stream};
use hatchery::internals::reason::cut_reason;
use hatchery::{NewEvent, State};
use hatchery_admin::batch::{AnsweredLine, Batch, Lines, Numbered, Refused, Request, read};
use tokio::{
    io::AsyncBufRead,
    pin,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};
use tokio_util::io::StreamReader;

use crate::{
    api::Api,
    body,
    problem::Problem,
    room::Place,
    tokens::{Caller, Right},
};

/// The media type of a batch and of its answers.
pub(crate) const NDJSON: &str = "application/x-ndjson";

/// How many lines a request may have.
const LINES: u64 = 10_000;
/// How many bytes a request may have.
const BYTES: usize = 64 * 1024 * 1024;
/// How many bytes the lines under way may hold before no further line is read.
const IN_FLIGHT: usize = 8 * 1024 * 1024;
/// How long a client may take to send a line.
const IDLE: Duration = Duration::from_secs(30);
/// How long a batch may be read.
const LONGEST: Duration = Duration::from_mins(5);
/// How many answers are sent in one piece at most, and lines looked up in one call.
const TOGETHER: usize = 256;
/// How many bytes lines have that are looked up together, unless one alone has more.
const TOGETHER_BYTES: usize = 1024 * 1024;

/// Begins to carry out a batch. The answers follow in the body of the response.
pub(crate) async fn begin(api: Arc<Api>, caller: Caller, headers: &HeaderMap, body: Body) -> Result<Response, Problem> {
    body::length(headers, BYTES)?;
    let room = api.batches.take(&caller).await?;
    api.require_publishing().await?;
    let (answers, answered) = unbounded_channel();
    let work = api.work.clone();
    work.begin(carry_out(api, caller, Lines::new(input(body)), answers, room));
    Ok(([(CONTENT_TYPE, NDJSON)], Body::from_stream(pieces(answered))).into_response())
}

/// Returns the body as an input that ends with an error where it is too long.
fn input(body: Body) -> impl AsyncBufRead + Unpin + Send {
    let mut left = BYTES;
    StreamReader::new(body.into_data_stream().map(move |part| {
        let part: Bytes = part.map_err(io::Error::other)?;
        left =
            left.checked_sub(part.len()).ok_or_else(|| io::Error::other(format!("it has more than {BYTES} bytes")))?;
        Ok::<_, io::Error>(part)
    }))
}

/// Returns the answers as they are there, some together.
fn pieces(answered: UnboundedReceiver<Vec<u8>>) -> impl stream::Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(answered, async |mut answered| {
        let mut answers = Vec::new();
        let count = answered.recv_many(&mut answers, TOGETHER).await;
        (count > 0).then(|| (Ok(answers.concat().into()), answered))
    })
}

async fn carry_out(
    api: Arc<Api>,
    caller: Caller,
    mut lines: Lines<impl AsyncBufRead + Unpin>,
    answers: UnboundedSender<Vec<u8>>,
    _room: Place,
) {
    let mut batch = Batch::new(&api.publisher, &api.events).most_bytes(IN_FLIGHT);
    let tell = |answer: &AnsweredLine| {
        let mut line = serde_json::to_vec(answer).unwrap_or_default();
        line.push(b'\n');
        // Without a reader the lines are carried out all the same.
        let _ = answers.send(line);
    };
    let end = sleep(LONGEST);
    pin!(end);
    let (mut gathered, mut states) = (Gathered::default(), BTreeMap::new());
    let mut reading = true;
    while reading || !gathered.lines.is_empty() || batch.unanswered() > 0 {
        let has_room = batch.has_room() && gathered.has_room();
        let next = lines.read() + 1;
        let (line, ended) = tokio::select! {
            biased;
            Some(answer) = batch.next(false) => {
                // An error may repeat what the line has.
                let cut = |refused: Refused| Refused { why: cut_reason(&refused.why).to_owned(), ..refused };
                let (number, state) = (answer.line.number, states.remove(&answer.line.number));
                let state = state.filter(|_| answer.done.is_ok()).map(State::as_str);
                tell(&AnsweredLine { state: state.map(Cow::Borrowed), ..AnsweredLine::of(number, answer.done.map_err(cut)) });
                continue;
            }
            () = api.stop.cancelled(), if reading => (next, "the server stops".to_owned()),
            () = &mut end, if reading => (next, format!("a batch may take {} s", LONGEST.as_secs())),
            line = timeout(IDLE, lines.next()), if reading && has_room => match line {
                Ok(Ok(Some(line))) if line.cut => (line.number, "the line is longer than any event".to_owned()),
                Ok(Ok(Some(line))) if line.number > LINES => (line.number, format!("a batch may have {LINES} lines")),
                Ok(Ok(Some(line))) => {
                    let request = read(&line.line).map_err(|error| error.to_string());
                    gathered.add(line, request.and_then(|request| allowed(&api, &caller, request)));
                    continue;
                }
                Ok(Ok(None)) => {
                    reading = false;
                    continue;
                }
                Ok(Err(error)) => (next, format!("the body cannot be read: {error}")),
                Err(_) => (next, format!("no line has come for {} s", IDLE.as_secs())),
            },
            // No further line is there.
            () = ready(()), if !gathered.lines.is_empty() => {
                let lines = take(&mut gathered).lines;
                let known = api.lookup.states(&lines.iter().map(|(_, request)| event(request)).collect::<Vec<_>>()).await;
                for ((line, request), state) in lines.into_iter().zip(known) {
                    states.extend(state.map(|state| (line.number, state)));
                    batch.begin(line, request);
                }
                continue;
            }
        };
        reading = false;
        let why = format!("{ended}: this line and those after it are not published");
        tell(&AnsweredLine::of(line, Err(why.into())));
    }
}

/// Lines that have come and have not begun.
#[derive(Default)]
struct Gathered {
    lines: Vec<(Numbered, Result<Request, String>)>,
    bytes: usize,
}

impl Gathered {
    /// Returns whether a further line may join them. A change begins after the lines before it alone.
    fn has_room(&self) -> bool {
        let is_change = matches!(self.lines.last(), Some((_, Ok(Request::Change(_)))));
        self.lines.len() < TOGETHER && self.bytes < TOGETHER_BYTES && !is_change
    }

    fn add(&mut self, line: Numbered, request: Result<Request, String>) {
        self.bytes += line.line.len();
        self.lines.push((line, request));
    }
}

/// Returns the event of a line that publishes one.
fn event(request: &Result<Request, String>) -> Option<&NewEvent> {
    match request {
        Ok(Request::Publish(event)) => Some(event),
        _ => None,
    }
}

/// Returns the request of a line if its sender may make it.
fn allowed(api: &Api, caller: &Caller, request: Request) -> Result<Request, String> {
    // A batch may last for minutes.
    if !api.knows(caller) {
        return Err("the token is taken back, or has other rights now".to_owned());
    }
    let may = match &request {
        Request::Publish(event) => caller.may_publish(event.event_type()),
        Request::Change(_) => caller.may(Right::Operate),
    };
    may.map(|()| request).map_err(|problem| problem.detail().to_owned())
}
