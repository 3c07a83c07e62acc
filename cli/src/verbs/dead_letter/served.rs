//! The letters by a server of the API, which reads and changes them in requests of some thousand letters.

use std::collections::BTreeSet;

use anyhow::Context as _;
use hatchery_admin::dead_letters::{DoneLetters, FoundLetters, ShownLetters, SweptLetters, Tally, Verb, Whole};
use serde_json::{Map, Value};

use super::{file::LetterFile, filters::Filters, report};
use crate::{
    exit::{Ended, Exit},
    output::Output,
    server::{Declined, Server, segment},
    stop::Stop,
};

/// How many letters a server lists at most.
pub(super) const LISTED: u32 = 1_000;
/// How many bytes of a payload a server shows at most.
const SHOWN: usize = 1024 * 1024;
/// How many letters a request names at most.
const MOST: u64 = 10_000;
/// How many seconds a rate may stretch a request.
pub(super) const LONGEST: u64 = 240;

/// Finds letters by their groups, and the first ones. Warns of what was not seen.
pub(super) async fn find(
    server: &Server,
    filters: &Filters,
    id: Option<String>,
    limit: u32,
    output: Output,
) -> anyhow::Result<FoundLetters> {
    let mut query: Vec<(String, Option<String>)> = Vec::new();
    for (name, value) in filters.fields()? {
        query.push((name, Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))));
    }
    if let Some(id) = id {
        query.retain(|(name, _)| name != "id");
        query.push(("id".to_owned(), Some(id)));
    }
    query.push(("limit".to_owned(), Some(limit.to_string())));
    let query: Vec<(&str, Option<String>)> = query.iter().map(|(name, value)| (&**name, value.clone())).collect();
    let found: FoundLetters = server.find("/v1/dead-letters", &query).await.map_err(limited)?;
    found.warnings.iter().for_each(|warning| output.warn(warning));
    Ok(found)
}

/// Returns how many letters there are with this id or about an object, and the first ones with their payloads.
pub(super) async fn show(
    server: &Server,
    filters: &Filters,
    id: Option<String>,
    most: usize,
    payload_limit: usize,
    output: Output,
) -> anyhow::Result<(usize, Vec<Whole>)> {
    Server::refuse(&[("--payload-limit above 1048576", payload_limit > SHOWN)])?;
    let found = find(server, filters, id, u32::try_from(most)?, output).await?;
    let (mut shown, mut asked) = (Vec::new(), BTreeSet::new());
    for letter in found.letters {
        let Some(id) = letter.letter.id.clone().filter(|_| letter.payload_cut || letter.letter.size > payload_limit)
        else {
            shown.push(letter);
            continue;
        };
        // A list has the begin of a payload alone. Letters of one id come together.
        let event_type = letter.letter.event_type.clone();
        if asked.insert((event_type.clone(), id.clone())) {
            let path = format!("/v1/dead-letters/{}/{}", segment(&event_type), segment(&id));
            let unrouted = (!filters.of().is_empty()).to_string();
            let query = [("unrouted", Some(unrouted)), ("payload_limit", Some(payload_limit.to_string()))];
            let whole: ShownLetters = server.find(&path, &query).await.map_err(limited)?;
            shown.extend(whole.letters);
        }
    }
    shown.truncate(most);
    Ok((usize::try_from(found.found)?, shown))
}

/// A request to act on letters.
pub(super) struct Asked<'a> {
    pub(super) server: &'a Server,
    pub(super) filters: &'a Filters,
    pub(super) fields: Map<String, Value>,
    pub(super) verb: Verb,
    pub(super) output: Output,
}

/// The sum of several requests.
struct Done {
    answer: Option<SweptLetters>,
    sum: Tally,
    is_unseen: bool,
    /// How many more letters may be acted on: no more than there were in the beginning, because letters may come back.
    left: u64,
}

impl Asked<'_> {
    async fn ask(&self, limit: u64, fields: Vec<(&str, Value)>) -> anyhow::Result<DoneLetters> {
        let mut body = self.fields.clone();
        body.insert("limit".to_owned(), limit.into());
        body.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
        let path = format!("/v1/dead-letters/{}", self.verb.name());
        let done: DoneLetters = self.server.post_long(&path, &body).await.map_err(limited)?;
        done.warnings.iter().for_each(|warning| self.output.warn(warning));
        Ok(done)
    }

    /// Shows what would be done.
    pub(super) async fn dry_run(&self, limit: Option<u64>) -> anyhow::Result<Exit> {
        Server::refuse(&[("--limit 0", limit == Some(0))])?;
        let most = limit.unwrap_or(MOST).min(MOST);
        let DoneLetters { swept, groups, .. } = self.ask(most, Vec::new()).await?;
        let tally = Tally::from(&swept.letters);
        let (groups, of) = (groups.unwrap_or_default(), self.filters.of());
        self.output.answer(&swept, || report::dry_run_text(&groups, tally, self.verb, of, Output::columns()))?;
        if tally.done == MOST && limit.is_none_or(|limit| limit > MOST) {
            self.output.note(&format!("There may be more: a server counts up to {MOST} letters. --yes acts on all."));
        }
        Ok(report::named(self.filters, tally)?)
    }

    /// Replays letters, as many as there were in the beginning.
    pub(super) async fn replay(&self, limit: Option<u64>, most: Option<u64>) -> anyhow::Result<Exit> {
        let (stop, mut done) = (Stop::on_signals()?, Done::new(limit));
        while done.left > 0 && !stop.gently.is_cancelled() {
            let most = done.left.min(most.unwrap_or(MOST)).min(MOST);
            let answer = match self.ask(most, vec![("dry_run", false.into())]).await {
                Ok(answer) => answer,
                Err(error) => return self.fail(&done, error),
            };
            if done.add(answer) < most {
                return self.end(&done);
            }
        }
        self.stopped(&done, &stop)
    }

    /// Discards letters, after their lines are in the file.
    pub(super) async fn discard(&self, limit: Option<u64>, file: &LetterFile) -> anyhow::Result<Exit> {
        let (stop, mut done) = (Stop::on_signals()?, Done::new(limit));
        while done.left > 0 && !stop.gently.is_cancelled() {
            let discarding = async {
                let mut found = self.ask(done.left.min(MOST), Vec::new()).await?;
                let lines = found.lines.take().unwrap_or_default();
                if lines.is_empty() {
                    return Ok((found, false));
                }
                let text: String = lines.iter().flat_map(|line| [line.line.as_str(), "\n"]).collect();
                file.append(text.as_bytes()).context("cannot write the letters")?;
                let digests: Vec<String> = lines.into_iter().map(|line| line.digest).collect();
                let count = u64::try_from(digests.len())?;
                let answer = self.ask(count, vec![("dry_run", false.into()), ("digests", digests.into())]).await?;
                anyhow::Ok((answer, found.more == Some(true)))
            };
            let (answer, is_more) = match discarding.await {
                Ok(discarded) => discarded,
                Err(error) => return self.fail(&done, error),
            };
            if done.add(answer) == 0 || !is_more {
                return self.end(&done);
            }
        }
        self.stopped(&done, &stop)
    }

    fn stopped(&self, done: &Done, stop: &Stop) -> anyhow::Result<Exit> {
        if done.left == 0 || !stop.gently.is_cancelled() {
            return self.end(done);
        }
        self.tell(done)?;
        Err(report::unfinished("stopped; ", done.sum, self.verb, " before"))
    }

    fn fail(&self, done: &Done, error: anyhow::Error) -> anyhow::Result<Exit> {
        // Nothing is known to be done, so the error says everything.
        if done.sum.done == 0 {
            return Err(error);
        }
        self.tell(done)?;
        Err(report::unfinished(format_args!("{error:#}; at least "), done.sum, self.verb, " before"))
    }

    fn end(&self, done: &Done) -> anyhow::Result<Exit> {
        self.tell(done).map_err(Ended::untold)?;
        if done.is_unseen {
            return Err(report::unfinished("not all letters were seen; ", done.sum, self.verb, ""));
        }
        Ok(report::named(self.filters, done.sum)?)
    }

    fn tell(&self, done: &Done) -> std::io::Result<()> {
        match &done.answer {
            Some(answer) if !self.output.is_text() => self.output.json(answer),
            _ => self.output.print(&report::text(done.sum, self.verb, self.filters.of(), Output::columns())),
        }
    }
}

impl Done {
    fn new(limit: Option<u64>) -> Self {
        Self { answer: None, sum: Tally::default(), is_unseen: false, left: limit.unwrap_or(u64::MAX) }
    }

    /// Adds the answer to a request. Returns how many letters it has acted on.
    fn add(&mut self, DoneLetters { mut swept, warnings, .. }: DoneLetters) -> u64 {
        let now = Tally::from(&swept.letters);
        // The answer to a dry run that has found nothing.
        let count = if swept.dry_run { 0 } else { now.done };
        swept.dry_run = false;
        swept.letters.would_be_done = None;
        self.is_unseen |= !warnings.is_empty();
        if let Some(before) = self.answer.take() {
            swept.letters.ready = before.letters.ready;
            let before = before.queues.unwrap_or_default();
            for (name, counts) in swept.queues.iter_mut().flatten() {
                if let Some(former) = before.get(name) {
                    counts.ready = former.ready;
                    counts.done = Some(counts.done.unwrap_or_default() + former.done.unwrap_or_default());
                }
            }
        } else {
            self.left = self.left.min(now.ready);
        }
        self.left = self.left.saturating_sub(count);
        swept.letters.done = Some(self.sum.done + count);
        self.sum = Tally::from(&swept.letters);
        self.answer = Some(swept);
        count
    }
}

/// Gives the error of queues that a policy does not let be read the exit code that it has without a server.
fn limited(error: anyhow::Error) -> anyhow::Error {
    if error.downcast_ref().is_some_and(Declined::is_conflict) {
        return Ended::new(Exit::Blocked, error.to_string()).into();
    }
    error
}
