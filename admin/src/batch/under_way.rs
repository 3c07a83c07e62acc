//! The lines of a batch that are under way: each is sent as soon as it is read, and answered as soon as the broker confirms it. A line
//! that changes events that wait is carried out alone, so that it reaches those that were published before it, and no later one.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, future::BoxFuture, stream::FuturesUnordered};
use hatchery::{BrokerError, Events, PublishError, Published, Publisher};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    change::{Change, ChangedEvents},
    line::Request,
    lines::Numbered,
};

/// How many lines may wait for their confirm at a time.
const IN_FLIGHT: usize = 1_000;
/// How many bytes these lines may hold together.
const BYTES_IN_FLIGHT: usize = 64 * 1024 * 1024;
/// After a line without a confirm, no line is sent for this long.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Whether lines are sent at all. After the broker did not confirm a line, other lines are refused for a second, so
/// that a long file does not wait for the time limit with each of its lines. Then the next lines show whether the
/// broker is back.
#[derive(Default)]
struct Trust(Mutex<Option<Instant>>);

impl Trust {
    fn is_lost(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
    }

    fn lose(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + TRY_AGAIN);
    }
}

/// The result for a line.
pub struct Answer {
    /// The line.
    pub line: Numbered,
    /// The result, or the reason why the line was refused.
    pub done: Result<Done, Refused>,
}

/// Why a line was not carried out.
pub struct Refused {
    /// The reason.
    pub why: String,
    /// The id of the line's event, if the line is one. The event may have arrived all the same: published again under this id it is
    /// no second event.
    pub id: Option<String>,
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self { why, id: None }
    }
}

/// The result of a line that was carried out.
pub enum Done {
    /// An event was published.
    Published(Published),
    /// Waiting events were changed.
    Changed(ChangedEvents),
}

/// The result of one line of a batch.
#[derive(Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AnsweredLine {
    /// The number of the line, from 1.
    pub line: u64,
    /// The id of the event, if it was published. An answer of the server has it with `error` too: published again under this id the
    /// event is no second one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `true` if Redis gave no version: the event competes with no other event of its reference.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unversioned: bool,
    /// Of an answer of the server: the state of the event that Redis knew by this id before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Cow<'static, str>>,
    /// Of a line that cancels or reschedules: the number of events by result, in the words of `topology events cancel` and `reschedule`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub results: Option<BTreeMap<Cow<'static, str>, u64>>,
    /// Of such a line: the ids of the events that were cancelled or rescheduled, as far as Redis knows them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ids: Option<Vec<String>>,
    /// Why the line was not carried out, if it was not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl AnsweredLine {
    /// Returns the answer to the line with this number.
    #[must_use]
    pub fn of(line: u64, done: Result<Done, Refused>) -> Self {
        match done {
            Ok(Done::Published(Published { id, unversioned, .. })) => {
                Self { line, id: Some(id), unversioned, ..Self::default() }
            }
            Ok(Done::Changed(ChangedEvents { results, ids, .. })) => {
                Self { line, results: Some(results), ids: Some(ids), ..Self::default() }
            }
            Err(Refused { why, id }) => Self { line, id, error: Some(why), ..Self::default() },
        }
    }
}

/// The lines of a batch that are carried out.
pub struct Batch<'a> {
    publisher: &'a Publisher,
    events: &'a Events,
    trust: Arc<Trust>,
    under_way: FuturesUnordered<BoxFuture<'a, Answer>>,
    /// How many bytes the lines under way hold, and may hold.
    bytes: usize,
    most: usize,
    /// A change that waits for the lines before it.
    change: Option<(Numbered, Change)>,
    /// Whether a change is under way.
    alone: bool,
}

impl<'a> Batch<'a> {
    /// Begins a batch.
    #[must_use]
    pub fn new(publisher: &'a Publisher, events: &'a Events) -> Self {
        let (trust, under_way) = (Arc::default(), FuturesUnordered::new());
        Self { publisher, events, trust, under_way, bytes: 0, most: BYTES_IN_FLIGHT, change: None, alone: false }
    }

    /// Sets how many bytes the lines under way may hold before no further line begins, instead of 64 MiB.
    #[must_use]
    pub fn most_bytes(self, most: usize) -> Self {
        Self { most, ..self }
    }

    /// Returns whether the next line may begin.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let is_free = !self.alone && self.change.is_none();
        is_free && self.under_way.len() < IN_FLIGHT && self.bytes < self.most
    }

    /// Returns how many lines have begun and have no answer yet.
    #[must_use]
    pub fn unanswered(&self) -> usize {
        self.under_way.len() + usize::from(self.change.is_some())
    }

    /// Begins a line. One that is invalid, or that comes while no line is sent, is answered at once.
    pub fn begin(&mut self, line: Numbered, request: Result<Request, String>) {
        self.bytes += line.line.len();
        let event = match request {
            Ok(Request::Change(change)) => {
                self.change = Some((line, change));
                return;
            }
            Ok(Request::Publish(event)) => Ok(event.identified()),
            Err(why) => Err(why.into()),
        };
        // The versions have the order of these calls, and the queue that of their first polls: so both must be that of the lines.
        let publishing = event.and_then(|(event, id)| {
            if self.trust.is_lost() {
                let why = "not tried, because the broker did not confirm an earlier one".to_owned();
                return Err(Refused { why, id: Some(id) });
            }
            Ok((self.publisher.publish(event), id))
        });
        let trust = Arc::clone(&self.trust);
        self.under_way.push(Box::pin(async move {
            let done = match publishing {
                Ok((publishing, id)) => publishing.await.map(Done::Published).map_err(|error| {
                    if is_of_the_broker(&error) {
                        trust.lose();
                    }
                    Refused { why: error.to_string(), id: Some(id) }
                }),
                Err(refused) => Err(refused),
            };
            Answer { line, done }
        }));
    }

    /// Returns the next answer; `None` if no line is under way. A change whose turn it is begins; with `is_behind` it is refused,
    /// because a line before it was. Nothing is lost if the future is dropped before it is ready.
    pub async fn next(&mut self, is_behind: bool) -> Option<Answer> {
        if self.under_way.is_empty()
            && let Some((line, change)) = self.change.take()
        {
            self.alone = true;
            let events = self.events;
            self.under_way.push(Box::pin(async move {
                let done = if is_behind {
                    Err("not tried, because an earlier line is among the rejects".to_owned().into())
                } else {
                    change.make(events).await.map(Done::Changed).map_err(|error| error.to_string().into())
                };
                Answer { line, done }
            }));
        }
        let answer = self.under_way.next().await?;
        self.bytes -= answer.line.line.len();
        self.alone &= !self.under_way.is_empty();
        Some(answer)
    }
}

/// Returns whether the broker is at fault, not the line or its type.
const fn is_of_the_broker(error: &PublishError) -> bool {
    match error {
        PublishError::Broker(BrokerError::TooLarge { .. } | BrokerError::Unroutable { .. }) => false,
        PublishError::Broker(_) | PublishError::Timeout => true,
        _ => false,
    }
}
