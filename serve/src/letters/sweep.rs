//! `POST /v1/dead-letters/replay` and `discard`: without `"dry_run": false` they only say what they would do.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Extension,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use hatchery::{CancellationToken, jiff::Timestamp};
use hatchery_admin::{
    dead_letters::{
        Bounds, Counts, DeadLetters, Due, GroupView, Groups, Keep, Letter, LetterQueue, Selection, Standing, Sweep,
        Swept, SweptLetters, Tally, group_view, line,
    },
    notation::{Span, Time},
};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;

use super::chosen::{Chosen, ChosenLetters, MOST, PATIENCE, pass_over, refuse};
use crate::{answer::answer, api::Api, body, problem::Problem, tokens::Caller};

/// How long a request may be, in bytes.
const REQUEST: usize = 16 * 1024;
/// How many bytes of discarded letters an answer has at most.
const SAVED: usize = 32 * 1024 * 1024;
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
    /// The discarded letters, each as a line that `topology publish --batch` takes. They are nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<serde_json::Value>>")]
    saved: Option<Vec<Box<RawValue>>>,
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
}

pub(crate) async fn replay(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asked: ChosenLetters = body::json(request, REQUEST).await?;
    refuse(&[("obsolete", asked.obsolete)])?;
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
    let asked: ChosenLetters = body::json(request, REQUEST).await?;
    refuse(&[("at", asked.at.is_some()), ("delay", asked.delay.is_some()), ("rate", asked.rate.is_some())])?;
    act(api, caller, asked, Verb::Discard).await
}

async fn act(api: Arc<Api>, caller: Caller, asked: ChosenLetters, verb: Verb) -> Result<Response, Problem> {
    let limit = u64::from(asked.limit(MOST, MOST)?);
    if asked.dry_run.unwrap_or(true) {
        return dry_run(&api, &caller, &asked, limit, verb).await;
    }
    // It goes on although the client goes away: letters that are under way are held.
    let swept = tokio::spawn(async move { sweep(&api, &caller, &asked, limit, verb).await }).await;
    let done = swept.map_err(|_| Problem::for_now("it has ended without an answer"))??;
    Ok(answer(StatusCode::OK, &done))
}

async fn dry_run(
    api: &Api,
    caller: &Caller,
    asked: &ChosenLetters,
    limit: u64,
    verb: Verb,
) -> Result<Response, Problem> {
    let mut chosen = Chosen::new(api, caller, asked).await?;
    let (mut tally, mut groups, mut selected) = (Tally::default(), Groups::default(), 0_u64);
    let leaves = matches!(verb, Verb::Replay(_));
    let looked = chosen
        .read(|_, letter, standing| {
            selected += 1;
            match standing {
                Standing::Obsolete(_) if leaves => tally.obsolete += 1,
                Standing::Unreadable(_) if leaves => tally.unreadable += 1,
                _ if tally.done >= limit => tally.others += 1,
                _ => {
                    tally.done += 1;
                    groups.add_one_of(&letter, &standing, REASONS);
                }
            }
        })
        .await?;
    if let Some(error) = looked.unknown {
        return Err(Problem::for_now(format!("which letters are obsolete is not known: {error}")));
    }
    (tally.ready, tally.unread) = (looked.ready, looked.unread);
    tally.others += looked.read.saturating_sub(selected);
    let swept = SweptLetters { verb: verb.name(), dry_run: true, letters: Counts::would_be(tally), queues: None };
    let groups = Some(groups.largest_first().iter().map(group_view).collect());
    Ok(answer(StatusCode::OK, &DoneLetters { swept, groups, saved: None, warnings: looked.warnings }))
}

/// Acts on one queue after the other, until as many letters are done as may be.
async fn sweep(
    api: &Api,
    caller: &Caller,
    asked: &ChosenLetters,
    limit: u64,
    verb: Verb,
) -> Result<DoneLetters, Problem> {
    let mut chosen = Chosen::new(api, caller, asked).await?;
    let mut warnings = std::mem::take(&mut chosen.warnings);
    let (mut sum, mut by_queue) = (Tally::default(), BTreeMap::new());
    let saved = Saved::default();
    for queue in &chosen.queues {
        let left = limit.saturating_sub(sum.done);
        let bounds = Bounds { limit: Some(left), rate: asked.rate };
        let Swept { tally, consumers, interrupted, error } =
            sweep_one(&chosen.letters, queue, &chosen.selection, bounds, &api.stop, verb, &saved).await;
        sum.add(tally);
        if error.is_none() || tally.ready > 0 {
            by_queue.insert(queue.name.clone(), Counts::done(tally));
        }
        if tally.done < left && (tally.unread > 0 || consumers > 0) {
            warnings
                .push(format!("not all letters of {} were seen: others hold them, or the broker is slow", queue.name));
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
    let saved = matches!(verb, Verb::Discard).then(|| saved.lines());
    Ok(DoneLetters { swept, groups: None, saved, warnings })
}

async fn sweep_one(
    letters: &DeadLetters,
    queue: &LetterQueue,
    selection: &Selection,
    bounds: Bounds,
    stop: &CancellationToken,
    verb: Verb,
    saved: &Saved,
) -> Swept {
    let sweep = Sweep { queue, selection, bounds, patience: PATIENCE, stop, progress: &|_| () };
    match verb {
        Verb::Replay(due) => letters.replay(sweep, due).await,
        Verb::Discard => {
            let saved = saved.clone();
            let keep: Keep = Arc::new(move |letters: &[Letter]| saved.keep(letters));
            letters.discard(sweep, keep).await
        }
    }
}

/// The discarded letters of an answer.
#[derive(Clone, Default)]
struct Saved(Arc<Mutex<(Vec<Box<RawValue>>, usize)>>);

impl Saved {
    /// Keeps letters for the answer. Fails if they have no room in it: they stay in their queue.
    fn keep(&self, letters: &[Letter]) -> io::Result<()> {
        let lines: Vec<Box<RawValue>> = letters
            .iter()
            .map(|letter| {
                let line = String::from_utf8(line(letter)?).map_err(io::Error::other)?;
                RawValue::from_string(line).map_err(io::Error::other)
            })
            .collect::<io::Result<_>>()?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = kept.1 + lines.iter().map(|line| line.get().len()).sum::<usize>();
        if bytes > SAVED {
            return Err(io::Error::other("an answer has no room for so many; set a lower `limit`"));
        }
        kept.0.extend(lines);
        kept.1 = bytes;
        Ok(())
    }

    fn lines(self) -> Vec<Box<RawValue>> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).0)
    }
}
