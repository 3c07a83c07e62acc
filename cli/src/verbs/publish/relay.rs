//! Passes the lines of a batch on to a server of the API, in one request after the other: the lines that have come by the time
//! the request before is answered. So a line that comes alone does not wait, and many lines share a request.

use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream::BoxStream};
use hatchery_admin::batch::{AnsweredLine, Numbered, Request};

use crate::server::Server;

/// How many lines a request has, and how many wait for the next one. A server takes 10,000, and reads them for up to five minutes.
const LINES: usize = 1_000;
/// How many bytes may wait before no further line is read. A server takes 64 MiB.
const BYTES: usize = 8 * 1024 * 1024;
/// How long requests are repeated that the server does not take for now: another server may take the place of one that stops.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) struct Relay<'a> {
    server: &'a Server,
    /// The lines that wait, and how many bytes they hold.
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// The lines of the request under way that have no answer yet, by their numbers in it, and the answers.
    sent: BTreeMap<u64, Numbered>,
    answers: Option<BoxStream<'a, anyhow::Result<AnsweredLine>>>,
    /// Why the rest of the request has no answer.
    failed: Option<String>,
    /// When the request under way was sent.
    sent_at: Instant,
    /// Since when no request was answered. A long file does not wait with each of its requests.
    away_since: Option<Instant>,
}

struct Waiting {
    line: Numbered,
    /// Whether it changes events; or why it is refused.
    is_change: Result<bool, String>,
}

impl<'a> Relay<'a> {
    pub(super) fn new(server: &'a Server) -> Self {
        let (waiting, sent) = (VecDeque::new(), BTreeMap::new());
        Self { server, waiting, bytes: 0, sent, answers: None, failed: None, sent_at: Instant::now(), away_since: None }
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < LINES && self.bytes < BYTES
    }

    pub(super) fn unanswered(&self) -> usize {
        self.sent.len() + self.waiting.len()
    }

    pub(super) fn begin(&mut self, line: Numbered, request: Result<Request, String>) {
        self.bytes += line.line.len();
        let is_change = request.map(|request| matches!(request, Request::Change(_)));
        self.waiting.push_back(Waiting { line, is_change });
    }

    /// Returns the next answer; `None` if no line waits for one. With `is_behind` a change whose turn it is is refused, because a line
    /// before it was. Nothing is lost if the future is dropped before it is ready.
    pub(super) async fn next(&mut self, is_behind: bool) -> Option<(Numbered, AnsweredLine)> {
        loop {
            if let Some(why) = &self.failed {
                match self.sent.pop_first() {
                    Some((_, line)) => return Some(refused(line, why.clone())),
                    None => self.failed = None,
                }
            }
            if let Some(answers) = &mut self.answers {
                match answers.next().await {
                    Some(Ok(answered)) => {
                        self.away_since = None;
                        if let Some(line) = self.sent.remove(&answered.line) {
                            let answered = AnsweredLine { line: line.number, ..answered };
                            return Some((line, answered));
                        }
                    }
                    Some(Err(error)) => self.fail(format!("{error:#}")),
                    None => self.fail("the server has not answered this line; it may be published or not".to_owned()),
                }
                continue;
            }
            let Waiting { line, is_change } = self.take()?;
            match is_change {
                Err(why) => return Some(refused(line, why)),
                Ok(true) if is_behind => {
                    return Some(refused(line, "not tried, because an earlier line is among the rejects".to_owned()));
                }
                Ok(is_change) => self.send(line, is_change),
            }
        }
    }

    fn take(&mut self) -> Option<Waiting> {
        let next = self.waiting.pop_front()?;
        self.bytes -= next.line.line.len();
        Some(next)
    }

    /// Sends a line, and those after it. A change is sent alone: whether it is sent depends on the answers before it.
    fn send(&mut self, first: Numbered, is_change: bool) {
        let (mut body, mut count, mut next) = (Vec::new(), 0, Some(first));
        while let Some(line) = next {
            body.extend_from_slice(&line.line);
            body.push(b'\n');
            count += 1;
            self.sent.insert(count, line);
            let is_next = self.waiting.front().is_some_and(|next| next.is_change == Ok(false));
            next = if is_next && !is_change { self.take().map(|next| next.line) } else { None };
        }
        let patience = self.away_since.map_or(PATIENCE, |since| PATIENCE.saturating_sub(since.elapsed()));
        self.sent_at = Instant::now();
        self.answers = Some(self.server.batch(body, patience).boxed());
    }

    /// Notes why the rest of the request has no answer. Of a request that was answered whole there is no rest.
    fn fail(&mut self, why: String) {
        if !self.sent.is_empty() {
            self.away_since.get_or_insert(self.sent_at);
        }
        (self.answers, self.failed) = (None, Some(why));
    }
}

fn refused(line: Numbered, why: String) -> (Numbered, AnsweredLine) {
    let answered = AnsweredLine { line: line.number, error: Some(why), ..AnsweredLine::default() };
    (line, answered)
}
