//! `POST /v1/dead-letters/replay` and `discard`: without `"dry_run": false` they only say what they would do.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use hatchery::{CancellationToken, jiff::Timestamp};
use hatchery_admin::{
    dead_letters::{
        Account, Bounds, DoneLetters, Due, Groups, Letter, LetterLine, LetterQueue, Sweep, Swept, SweptLetters, Tally,
        Verb, digest, line,
    },
    notation::{Span, Time},
};

use super::chosen::{Chosen, ChosenLetters, MOST, PATIENCE, pass_over, refuse};
use crate::{answer::answer, api::Api, body, problem::Problem, tokens::Caller};

/// How long a request for a replay may be, in bytes.
const REPLAY: usize = 16 * 1024;
/// How long a request for a discard may be: it has a digest for each letter.
const DISCARD: usize = 1024 * 1024;
/// How many reasons are told apart.
const REASONS: usize = 1_000;
/// How many bytes the lines of an answer have together at most, unless one alone has more.
const BYTES: usize = 32 * 1024 * 1024;

pub(crate) async fn replay(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> Result<Response, Problem> {
    let asked: ChosenLetters = body::json(request, REPLAY).await?;
    refuse(&[("obsolete", asked.obsolete), ("digests", asked.digests.is_some())])?;
    let due = match (&asked.at, &asked.delay) {
        (Some(_), Some(_)) => return Err(Problem::wrong("`at` and `delay` exclude each other")),
        (Some(Time(at)), None) => Due::At(*at),
        (None, Some(Span(delay))) => {
            let at = Timestamp::now().checked_add(*delay);
            Due::At(at.map_err(|_| Problem::wrong("the delay leads beyond the year 9999"))?)
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
    Err(Problem::wrong(wrong))
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
    let (looked, warnings) = chosen
        .read(|_, letter, standing| {
            if tally.would_take(&standing, verb, Some(limit)) {
                groups.add_one_of(&letter, &standing, REASONS);
                if verb == Verb::Discard {
                    lines.add(&letter);
                }
            }
        })
        .await?;
    let more = Some(lines.more || tally.others > 0);
    let lines = (verb == Verb::Discard).then_some(lines.all);
    let tally = tally.of_dry_run(looked).map_err(|error| Problem::for_now(error.to_string()))?;
    let swept = SweptLetters::would_be(verb, tally);
    let groups = Some(groups.largest_first());
    Ok(answer(StatusCode::OK, &DoneLetters { swept, groups, lines, more, warnings }))
}

/// The letters that a discard would remove, as lines. The client saves them before it names those to remove.
#[derive(Default)]
struct Lines {
    all: Vec<LetterLine>,
    bytes: usize,
    /// Whether a letter had no room.
    more: bool,
}

impl Lines {
    /// Adds a letter if it has room, and all before it had.
    fn add(&mut self, letter: &Letter) {
        let text = line(letter).ok().and_then(|line| String::from_utf8(line).ok());
        let fits = |line: &String| self.all.is_empty() || self.bytes + line.len() <= BYTES;
        match text.filter(|line| !self.more && fits(line)) {
            Some(line) => {
                self.bytes += line.len();
                self.all.push(LetterLine { digest: digest(line.as_bytes()), line });
            }
            None => self.more = true,
        }
    }
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
    let (mut account, mut warnings) = (Account::default(), Vec::new());
    for queue in &chosen.queues {
        let bounds = account.rest(Bounds { limit: Some(limit), rate: asked.rate });
        let swept = sweep_one(&chosen, queue, bounds, stop, verb).await;
        warnings.extend(account.add(queue, bounds, &swept));
        if let Some(error) = swept.error {
            match pass_over(error, queue) {
                Ok(passed) => warnings.push(passed.detail().to_owned()),
                Err(problem) if account.sum.done == 0 => return Err(problem),
                Err(problem) => {
                    warnings.push(format!("{}; letters that were under way may be done too", problem.detail()));
                    break;
                }
            }
        }
        if swept.interrupted {
            warnings.push("the server stops".to_owned());
            break;
        }
        if account.sum.done >= limit {
            break;
        }
    }
    if account.is_empty() && !warnings.is_empty() {
        return Err(Problem::for_now(warnings.join("; ")));
    }
    Ok(DoneLetters { swept: account.answer(verb), groups: None, lines: None, more: None, warnings })
}

async fn sweep_one(
    Chosen { letters, selection, .. }: &Chosen,
    queue: &LetterQueue,
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
