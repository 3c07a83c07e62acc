//! The dead letters that a request names, and what cannot be seen of them.

use std::{num::NonZeroU32, time::Duration};

use axum::http::StatusCode;
use hatchery::BrokerError;
use hatchery_admin::{
    dead_letters::{
        DeadLetters, DeadLettersError, Letter, LetterQueue, Looked, Patience, Seen, Selection, Standing, unseen,
    },
    notation::{Moment, Span, Time},
};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::{api::Api, body::whole, problem::Problem, room::Place, tokens::Caller};

/// How long to wait for somebody else who reads a queue.
pub(super) const WAIT: Duration = Duration::from_secs(10);
/// How long a rate may stretch a replay.
const LONGEST: Duration = Duration::from_mins(4);
/// How many letters a request may name at most.
pub(super) const MOST: u32 = 10_000;

/// Which letters. A letter must match all fields.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ChosenLetters {
    /// Letters of this type, or of a source (`source-NAME`).
    pub(super) r#type: Option<String>,
    /// Letters about this object.
    pub(super) reference: Option<String>,
    /// The letter with this id.
    pub(super) id: Option<String>,
    /// Letters with this text in their reason or failure, in any case.
    pub(super) reason: Option<String>,
    /// Failed at this time or later: `2026-06-01T09:00:00Z`, `2h ago`.
    pub(super) since: Option<Moment>,
    /// Failed before this time.
    pub(super) until: Option<Moment>,
    /// The messages that no queue has taken, instead of dead letters.
    pub(super) unrouted: bool,
    /// Only letters whose event has run, was cancelled or was replaced since; not of a replay.
    pub(super) obsolete: bool,
    /// The most letters; if it is not given 100 of a list, which counts the others, else 10,000.
    #[serde(deserialize_with = "whole")]
    #[schemars(range(min = 1, max = MOST))]
    pub(super) limit: Option<u32>,
    /// Of a replay or a discard: whether nothing is changed. Yes, unless this is `false`.
    pub(super) dry_run: Option<bool>,
    /// Of a discard, which needs them: only letters whose line has one of these digests. The dry run answers with the lines and their
    /// digests.
    pub(super) digests: Option<Vec<String>>,
    /// Of a replay: run the events not before this time.
    pub(super) at: Option<Time>,
    /// Of a replay: run the events after this delay at the earliest, instead of `at`.
    pub(super) delay: Option<Span>,
    /// Of a replay: the most letters in a second.
    #[serde(deserialize_with = "whole")]
    #[schemars(range(max = u32::MAX))]
    pub(super) rate: Option<NonZeroU32>,
}

impl ChosenLetters {
    /// Returns the selection. The types of dead letters are those of their queues.
    pub(super) fn selection(&self) -> Selection {
        Selection {
            types: if self.unrouted { Vec::from_iter(self.r#type.clone()) } else { Vec::new() },
            reference: self.reference.clone(),
            id: self.id.clone(),
            reason: self.reason.clone(),
            since: self.since.as_ref().map(|Moment(at)| *at),
            until: self.until.as_ref().map(|Moment(at)| *at),
            obsolete: self.obsolete,
            digests: self.digests.as_ref().map(|all| all.iter().map(|digest| digest.to_ascii_lowercase()).collect()),
        }
    }

    /// Fails if the rate would keep the letters of a queue from others for too long.
    pub(super) fn require_speed(&self, limit: u64) -> Result<(), Problem> {
        match self.rate {
            Some(rate) if limit > u64::from(rate.get()) * LONGEST.as_secs() => Err(Problem::wrong(format!(
                "{limit} letters at this `rate` take longer than {} s; set a lower `limit`",
                LONGEST.as_secs()
            ))),
            _ => Ok(()),
        }
    }

    pub(super) fn limit(&self, usual: u32, most: u32) -> Result<u32, Problem> {
        match self.limit.unwrap_or(usual) {
            limit if (1..=most).contains(&limit) => Ok(limit),
            _ => Err(Problem::bad(format!("`limit` is 1 to {most}"))),
        }
    }
}

/// Refuses fields of other operations that are there.
pub(super) fn refuse(fields: &[(&str, bool)]) -> Result<(), Problem> {
    match fields.iter().find(|(_, is_there)| *is_there) {
        Some((name, _)) => Err(Problem::wrong(format!("`{name}` does not belong here"))),
        None => Ok(()),
    }
}

/// The letters of a request.
pub(super) struct Chosen {
    pub(super) letters: DeadLetters,
    pub(super) queues: Vec<LetterQueue>,
    pub(super) selection: Selection,
    _place: Place,
}

impl Chosen {
    /// Finds the queues. Fails if a look at them may delete letters.
    pub(super) async fn new(api: &Api, caller: &Caller, chosen: &ChosenLetters) -> Result<Self, Problem> {
        let place = api.letters.take(caller).await?;
        let mut limits = api.backend.delivery_limits().await?;
        // Without a look at the policies a look at letters might delete them, and nobody watches a program that asks again and again.
        if let Ok(Some(unknown)) = limits.allow(&[]) {
            return Err(Problem::for_now(format!("nothing was read: {unknown}")));
        }
        let letters = DeadLetters(api.events.clone());
        let types = Vec::from_iter(chosen.r#type.clone());
        let queues = if chosen.unrouted {
            vec![letters.unrouted()]
        } else {
            let leftovers = std::mem::take(&mut limits.leftovers);
            let unknown = |error: hatchery::UnknownType| Problem::new(StatusCode::NOT_FOUND, error.to_string());
            letters.queues(&types, leftovers).map_err(unknown)?
        };
        let limited =
            |error: hatchery_admin::dead_letters::Limited| Problem::new(StatusCode::CONFLICT, error.to_string());
        limits.allow(&queues).map_err(limited)?;
        Ok(Self { letters, queues, selection: chosen.selection(), _place: place })
    }

    /// Reads the letters. Returns what was seen, and says what was not. A queue that is missing, or has a message that cannot be read,
    /// does not hide the letters of the others. Fails if that leaves nothing.
    pub(super) async fn read(
        &self,
        each: impl FnMut(&LetterQueue, Letter, Standing) + Send,
    ) -> Result<(Looked<'_>, Vec<String>), Problem> {
        let (mut warnings, mut missing) = (Vec::new(), None);
        let told = |queue: &LetterQueue, seen: Result<&Seen, DeadLettersError>| -> Result<(), Problem> {
            match seen {
                Ok(seen) => warnings.extend(unseen(queue, seen.unread(), seen.consumers)),
                Err(error) => {
                    let problem = pass_over(error, queue)?;
                    warnings.push(problem.detail().to_owned());
                    missing = Some(problem);
                }
            }
            Ok(())
        };
        let looked = self.letters.read_queues(&self.queues, &self.selection, PATIENCE, told, each).await?;
        match missing {
            Some(problem) if looked.is_empty() => Err(problem),
            _ => Ok((looked, warnings)),
        }
    }
}

pub(super) const PATIENCE: Patience<'static> = Patience { limit: WAIT, waiting: &|_| () };

/// Returns the problem of a queue that is passed over, because it is missing or has a message that cannot be read. Fails with any other.
pub(super) fn pass_over(error: DeadLettersError, queue: &LetterQueue) -> Result<Problem, Problem> {
    let passes = error.is_of_one(queue);
    let problem = match error {
        DeadLettersError::Broker(BrokerError::Locked { .. }) => Problem::locked(format!(
            "another `topology dead-letter`, or another server, holds letters of {}, so they cannot be seen",
            queue.name
        )),
        error => Problem::for_now(error.to_string()),
    };
    if passes { Ok(problem) } else { Err(problem) }
}
