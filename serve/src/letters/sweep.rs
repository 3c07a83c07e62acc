//! `POST /v1/dead-letters/replay` and `discard`: without `"dry_run": false` they only say what they would do.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Extension,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use hatchery::{CancellationToken, jiff::Timestamp};
use hatchery_admin::{
    dead_letters::{
        Bounds, Counts, DeadLetters, Due, GroupView, Groups, LetterQueue, Selection, Standing, Sweep, Swept,
        SweptLetters, Tally, group_view, unseen,
    },
    notation::{Span, Time},
};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    chosen::{Chosen, ChosenLetters, MOST, PATIENCE, pass_over, refuse},
    lines::{LetterLine, Lines},
};
use crate::{answer::answer, api::Api, body, problem::Problem, tokens::Caller};

/// How long a request for a replay may be, in bytes.
const REPLAY: usize = 16 * 1024;
/// How long a request for a discard may be: it has a digest for each letter.
const DISCARD: usize = 1024 * 1024;
/// How many reasons are told apart.
const REASONS: usize = 1_000;

/// What a replay or a discard has done, or would do.
#[derive(Serialize, JsonSchema)]
pub(crate) struct DoneLetters {
    #[serde(flatten)]
    swept: SweptLetters,
    /// The reasons of the letters that it would act on, the most frequent first; only in a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<GroupView>>,
    /// The letters that a discard would remove; only in its dry run. Save the lines, then send their digests.
    #[serde(skip_serializing_if = "Option::is_none")]
    lines: Option<Vec<LetterLine>>,
    /// Whether there are more letters to discard than `lines` has; only in the dry run of a discard.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<bool>,
    /// Why letters were not seen, or were not acted on. Repeat the request for the rest.
    warnings: Vec<String>,
}

/// What to do with letters.
#[derive(Clone, Copy)]
enum Verb {
    Replay(Due),
    Discard,
}

impl Verb {
    const fn name(self) -> &'static str {
        match self {
            Self::Replay(_) => "replay",
            Self::Discard => "discard",
        }
    }

    fn leaves(self, standing: &Standing) -> bool {
        matches!(self, Self::Replay(due) if due.leaves(standing))
    }
}

pub(crate) async fn replay(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asked: ChosenLetters = body::json(request, REPLAY).await?;
    refuse(&[("obsolete", asked.obsolete), ("digests", asked.digests.is_some())])?;
    let due = match (&asked.at, &asked.delay) {
        (Some(_), Some(_)) => return Err(Problem::bad("`at` and `delay` exclude each other")),
        (Some(Time(at)), None) => Due::At(*at),
        (None, Some(Span(delay))) => {
            let at = Timestamp::now().checked_add(*delay);
            Due::At(at.map_err(|_| Problem::bad("the delay leads beyond the year 9999"))?)
        }
        (None, None) => Due::AsBefore,
    };
    act(api, caller, asked, Verb::Replay(due)).await
}

pub(crate) async fn discard(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asked: ChosenLetters = body::json(request, DISCARD).await?;
    require_digests(&asked)?;
    refuse(&[("at", asked.at.is_some()), ("delay", asked.delay.is_some()), ("rate", asked.rate.is_some())])?;
    act(api, caller, asked, Verb::Discard).await
}

/// Fails without the digests of the letters to remove. Whoever has the digests has the letters too, so no answer is their only copy.
fn require_digests(asked: &ChosenLetters) -> Result<(), Problem> {
    let is_digest = |digest: &String| digest.len() == 64 && digest.bytes().all(|digit| digit.is_ascii_hexdigit());
    let wrong = match &asked.digests {
        None if asked.dry_run == Some(false) => {
            "a discard takes the `digests` of the letters to remove: the dry run answers with the letters and their digests"
        }
        Some(digests) if !digests.iter().all(is_digest) => "a digest is a SHA-256 in 64 hexadecimal digits",
        _ => return Ok(()),
    };
    Err(Problem::new(StatusCode::UNPROCESSABLE_ENTITY, wrong))
}

async fn act(api: Arc<Api>, caller: Caller, asked: ChosenLetters, verb: Verb) -> Result<Response, Problem> {
    // Among equal letters, no more are removed than there were lines of them.
    let named = asked.digests.as_ref().map_or(u64::MAX, |digests| u64::try_from(digests.len()).unwrap_or(u64::MAX));
    let limit = u64::from(asked.limit(MOST, MOST)?).min(named);
    asked.require_speed(limit)?;
    if asked.dry_run.unwrap_or(true) {
        return dry_run(&api, &caller, &asked, limit, verb).await;
    }
    // If the client goes away, the letters that are under way are done, and no more: they are held for it.
    let stop = api.stop.child_token();
    let _ends_with_the_request = stop.clone().drop_guard();
    let work = api.work.clone();
    let done = work.finish(async move { sweep(&api, &caller, &asked, limit, verb, &stop).await }).await?;
    Ok(answer(StatusCode::OK, &done))
}

async fn dry_run(
    api: &Api,
    caller: &Caller,
    asked: &ChosenLetters,
    limit: u64,
    verb: Verb,
) -> Result<Response, Problem> {
    let chosen = Chosen::new(api, caller, asked).await?;
    let (mut tally, mut groups, mut lines) = (Tally::default(), Groups::default(), Lines::default());
    let (mut selected, mut beyond) = (0_u64, 0_u64);
    let looked = chosen
        .read(|_, letter, standing| {
            selected += 1;
            if verb.leaves(&standing) {
                tally.leave(&standing);
            } else if tally.done >= limit {
                beyond += 1;
            } else {
                tally.done += 1;
                groups.add_one_of(&letter, &standing, REASONS);
                if matches!(verb, Verb::Discard) {
                    lines.add(&letter);
                }
            }
        })
        .await?;
    if let Some(error) = looked.unknown {
        return Err(Problem::for_now(format!("which letters are obsolete is not known: {error}")));
    }
    (tally.ready, tally.unread) = (looked.ready, looked.unread);
    tally.others = beyond + looked.read.saturating_sub(selected);
    let swept = SweptLetters { verb: verb.name(), dry_run: true, letters: Counts::would_be(tally), queues: None };
    let groups = Some(groups.largest_first().iter().map(group_view).collect());
    let (lines, more) = match verb {
        Verb::Replay(_) => (None, None),
        Verb::Discard => (Some(lines.all), Some(lines.more || beyond > 0)),
    };
    Ok(answer(StatusCode::OK, &DoneLetters { swept, groups, lines, more, warnings: looked.warnings }))
}

/// Acts on one queue after the other, until as many letters are done as may be.
async fn sweep(
    api: &Api,
    caller: &Caller,
    asked: &ChosenLetters,
    limit: u64,
    verb: Verb,
    stop: &CancellationToken,
) -> Result<DoneLetters, Problem> {
    let chosen = Chosen::new(api, caller, asked).await?;
    let mut warnings = Vec::new();
    let (mut sum, mut by_queue) = (Tally::default(), BTreeMap::new());
    for queue in &chosen.queues {
        let left = limit.saturating_sub(sum.done);
        let bounds = Bounds { limit: Some(left), rate: asked.rate };
        let Swept { tally, consumers, interrupted, error } =
            sweep_one(&chosen.letters, queue, &chosen.selection, bounds, stop, verb).await;
        sum.add(tally);
        if error.is_none() || tally.ready > 0 {
            by_queue.insert(queue.name.clone(), Counts::done(tally));
        }
        if tally.done < left {
            warnings.extend(unseen(queue, tally.unread, consumers));
        }
        if let Some(error) = error {
            match pass_over(error, queue) {
                Ok(passed) => warnings.push(passed.detail().to_owned()),
                Err(problem) if sum.done == 0 => return Err(problem),
                Err(problem) => {
                    warnings.push(format!("{}; letters that were under way may be done too", problem.detail()));
                    break;
                }
            }
        }
        if interrupted {
            warnings.push("the server stops".to_owned());
            break;
        }
        if sum.done >= limit {
            break;
        }
    }
    if by_queue.is_empty() && !warnings.is_empty() {
        return Err(Problem::for_now(warnings.join("; ")));
    }
    let swept = SweptLetters { verb: verb.name(), dry_run: false, letters: Counts::done(sum), queues: Some(by_queue) };
    Ok(DoneLetters { swept, groups: None, lines: None, more: None, warnings })
}

async fn sweep_one(
    letters: &DeadLetters,
    queue: &LetterQueue,
    selection: &Selection,
    bounds: Bounds,
    stop: &CancellationToken,
    verb: Verb,
) -> Swept {
    let sweep = Sweep { queue, selection, bounds, patience: PATIENCE, stop, progress: &|_| () };
    match verb {
        Verb::Replay(due) => letters.replay(sweep, due).await,
        // The client has them from the dry run.
        Verb::Discard => letters.discard(sweep, Arc::new(|_| Ok(()))).await,
    }
}
