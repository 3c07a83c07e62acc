//! Two types with a circuit breaker, of which each hundredth event fails a few times: an ordinary one, and one that keeps its order.

use std::{collections::BTreeMap, fs};

use anyhow::ensure;
use hatchery::NewEvent;
use jiff::Timestamp;

use super::openings::{Opening, Openings, Resumed, Rules};
use crate::harness::{
    Account, Chance, Console, Crew, Lateness, Look, Note, PATIENCE, PAYLOAD, Queues, Stage, Step, Table, backwards,
    grouped, millis, of, publish_all, until_over,
};

const PLAIN: &str = "plain";
const LINE: &str = "line";
/// The type of the events that tell of an opening.
const ON_CALL: &str = "on-call";
/// The references of the type that keeps its order.
const REFERENCES: u32 = 100;

const FAIL_EVERY: u32 = 100;
/// How often such an event fails: of the ordinary type until it is a dead letter. The last error of an opening is mostly the last one
/// of an event, so most probes of the type that keeps its order go well.
const FAILS: u32 = 5;

const COOLDOWN: u32 = 3;
const PROBES: u32 = 5;

/// How long a person waits, in microseconds: longer than the limit, so that a late start is seen.
const BY_HAND_AFTER: i64 = 2_000_000;
/// From the last error to the last start, in microseconds.
const LIMIT: i64 = 1_000_000;

#[derive(clap::Args)]
pub(super) struct Breaking {
    /// Events of each type with a breaker; each hundredth fails five times
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    events: u32,
    /// The errors of all workers within the window that open a breaker
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(5..=10_000))]
    errors: u32,
    /// Seconds of the window. Hatchery counts in tenths of it, so the errors have to come much faster
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(10..=3_600))]
    window: u32,
}

impl Breaking {
    /// Returns the types for the topology.
    pub(super) fn types(&self) -> String {
        let Self { errors, window, .. } = self;
        let breaker =
            format!("breaker: {{ errors: {errors}, window: {window}s, cooldown: {COOLDOWN}s, probes: {PROBES} }}");
        format!(
            "\
notify: {{ type: {ON_CALL} }}
types:
  {ON_CALL}: {{}}
  {PLAIN}: {{ retry: {{ delays: [1s], max-attempts: {FAILS} }}, {breaker} }}
  {LINE}: {{ on-failure: block, retry: {{ delays: [50ms] }}, {breaker} }}
"
        )
    }

    fn rules(&self) -> Rules {
        let micros = |seconds: u32| i64::from(seconds) * 1_000_000;
        let (window, cooldown) = (micros(self.window), micros(COOLDOWN));
        Rules { errors: self.errors as usize, window, cooldown, probes: PROBES as usize }
    }
}

/// A type with a breaker, while it is watched.
struct Watched {
    event_type: &'static str,
    openings: Openings,
    /// When `topology breaker close` was called, in microseconds since 1970.
    closes: Vec<i64>,
}

impl Watched {
    fn new(event_type: &'static str, rules: Rules) -> Self {
        Self { event_type, openings: Openings::new(rules), closes: Vec::new() }
    }

    /// Closes the breaker by hand if it is time: every second opening, and each whose probes have failed.
    async fn close_if_due(&mut self, stage: &Stage) -> anyhow::Result<()> {
        let (now, all) = (Timestamp::now().as_microsecond(), &self.openings.all);
        let waits = all.last().is_some_and(|opening| all.len().is_multiple_of(2) || opening.failed_rounds > 0);
        if !waits || self.openings.is_open(now).is_none_or(|since| now < since + BY_HAND_AFTER) {
            return Ok(());
        }
        self.closes.push(now);
        self.openings.close(now);
        let status = stage.topology(&["breaker", "close", self.event_type])?.status().await?;
        ensure!(status.success(), "topology breaker close: {status}");
        Ok(())
    }
}

pub(super) async fn run(
    args: &Breaking,
    workers: u32,
    console: &mut Console,
    stage: &Stage,
    queues: &Queues,
    chance: &mut Chance,
    no_times: bool,
) -> anyhow::Result<Table> {
    let (events, all) = (args.events, 2 * args.events as usize);
    console.step(&format!("Handle {} events of two types, of which each hundredth fails {FAILS} times", grouped(all)));
    let mut order: Vec<u32> = (0..events).collect();
    chance.shuffle(&mut order);
    let hatchery = stage.connect().await?;
    let publisher = hatchery.publisher();
    let publishing = tokio::spawn(async move {
        let event = |event_type, number: u32| NewEvent::new(event_type, PAYLOAD.to_vec()).id(number.to_string());
        let line = |number: u32| event(LINE, number).reference((number % REFERENCES).to_string());
        let plain = order.into_iter().map(|number| event(PLAIN, number));
        tokio::try_join!(publish_all(&publisher, plain), publish_all(&publisher, (0..events).map(line)))
    });
    let (every, fails) = (FAIL_EVERY.to_string(), FAILS.to_string());
    let types = ["--type", PLAIN, "--type", LINE, "--type", ON_CALL];
    let arguments = [&types[..], &["--pause", "2", "--fail-every", &every, "--fails", &fails]].concat();
    let mut crew = Crew::start(stage, "worker", workers, &arguments)?;
    let mut watched = [PLAIN, LINE].map(|event_type| Watched::new(event_type, args.rules()));
    let (mut done, mut told) = (0, 0);
    until_over(console, PATIENCE, async || {
        let mut new: Vec<&Note> = crew.look()?.iter().collect();
        new.sort_by_key(|note| note.at);
        for note in new {
            match watched.iter_mut().find(|watched| note.event_type == watched.event_type) {
                Some(watched) => {
                    watched.openings.take(note);
                    done += usize::from(is_last(note));
                }
                None => told += usize::from(note.step == Step::Done),
            }
        }
        for watched in &mut watched {
            watched.close_if_due(stage).await?;
        }
        let openings = watched.iter().map(|watched| watched.openings.all.len()).sum();
        let is_over = done >= all && told >= openings && !queues.are_busy(&[]).await?;
        Ok(Look { done, all, said: format!(", {openings} openings"), is_over })
    })
    .await?;
    publishing.await??;
    hatchery.close().await;
    crew.stop().await?;
    // The workers of the pauses have notes of their own.
    fs::rename(stage.path("worker.notes"), stage.path("breakers.notes"))?;

    let mut notes = std::mem::take(&mut crew.notes);
    notes.sort_by_key(|note| note.at);
    let mut sides = Vec::new();
    for Watched { event_type, closes, .. } in &watched {
        let letters = queues.drain(&stage.names().dead_letters(&event_type.parse()?)).await?;
        sides.push(Side::of(args, &notes, event_type, closes, &letters));
    }
    Ok(table(args, &sides, no_times))
}

/// The number of runs of an event if waiting spends no attempt.
fn runs_of(event_type: &str, number: u32) -> u32 {
    match number.is_multiple_of(FAIL_EVERY) {
        true if event_type == LINE => FAILS + 1,
        true => FAILS,
        false => 1,
    }
}

/// Whether this is the end of an event's last run.
fn is_last(note: &Note) -> bool {
    note.step == Step::Done
        || note.step == Step::Failed && note.attempts + 1 >= runs_of(&note.event_type, note.number())
}

/// The account of a type.
struct Side {
    openings: Vec<Opening>,
    /// The openings of which an event told.
    told: usize,
    /// The events that told of an opening again.
    told_again: usize,
    handled: usize,
    lost: usize,
    letters: usize,
    /// The dead letters of events that should be none, and missing ones.
    wrong_letters: usize,
    /// The events whose runs saw other attempts than 0, 1, 2 and so on to the expected one.
    attempts: usize,
    /// The starts of events before earlier ones.
    backwards: usize,
}

impl Side {
    /// Takes the account of the notes, which are in order.
    fn of(args: &Breaking, notes: &[Note], event_type: &str, closes: &[i64], letters: &[String]) -> Self {
        let own = || notes.iter().filter(|note| note.event_type == event_type);
        let started = || own().filter(|note| note.step == Step::Begun);
        let mut notices: BTreeMap<&str, usize> = BTreeMap::new();
        let tells = format!("breaker:{event_type}:");
        for note in of(notes, Step::Done).filter(|note| note.event_type == ON_CALL && note.id.starts_with(&tells)) {
            *notices.entry(&note.id).or_default() += 1;
        }
        let mut attempts: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for note in started() {
            attempts.entry(note.number()).or_default().push(note.attempts);
        }
        let is_off = |(number, seen): &(u32, Vec<u32>)| !seen.iter().copied().eq(0..runs_of(event_type, *number));
        let done = own().filter(|note| note.step == Step::Done).map(Note::number);
        let account = Account::take(0..args.events, done);
        let is_buried = |number: &&u32| letters.iter().any(|id| *id == number.to_string());
        let must_fail = |number: u32| event_type == PLAIN && number.is_multiple_of(FAIL_EVERY);
        let (buried, others): (Vec<u32>, Vec<u32>) = account.missing.iter().partition(is_buried);
        let expected: Vec<u32> = (0..args.events).filter(|number| must_fail(*number)).collect();
        Self {
            openings: Openings::of(args.rules(), own(), closes),
            told: notices.len(),
            told_again: notices.values().map(|times| times - 1).sum(),
            handled: account.handled,
            lost: others.len() + account.strangers,
            letters: letters.len(),
            wrong_letters: letters.len().abs_diff(expected.len()) + usize::from(buried != expected),
            attempts: attempts.into_iter().filter(is_off).count(),
            backwards: backwards(&started().map(Note::number).collect::<Vec<_>>()),
        }
    }

    fn resumed(&self, by: Resumed) -> usize {
        self.openings.iter().filter(|opening| opening.resumed == Some(by)).count()
    }
}

fn table(args: &Breaking, sides: &[Side], no_times: bool) -> Table {
    let mut table = Table::new(&["circuit breakers", PLAIN, LINE, "must be"]);
    let mut row = |what: &str, of: &dyn Fn(&Side) -> usize, must: Option<(&str, &dyn Fn(usize) -> bool)>| {
        let found: Vec<usize> = sides.iter().map(of).collect();
        let texts: Vec<String> = found.iter().map(|found| grouped(*found)).collect();
        let cells = [what, &texts[0], &texts[1], must.map_or("", |(text, _)| text)];
        match must {
            Some((_, holds)) => table.must(found.into_iter().all(holds), &cells),
            None => table.tell(&cells),
        }
    };
    let zero: Option<(&str, &dyn Fn(usize) -> bool)> = Some(("0", &|found| found == 0));
    row("handled", &|side| side.handled, None);
    row("lost", &|side| side.lost, zero);
    row("dead letters", &|side| side.letters, None);
    row("of those, wrong or missing", &|side| side.wrong_letters, zero);
    row("events with other attempts", &|side| side.attempts, zero);
    row("openings", &|side| side.openings.len(), Some(("at least 1", &|found| found > 0)));
    row("told, of these", &|side| side.told, None);
    row("told and not opened, or not told", &|side| side.told.abs_diff(side.openings.len()), zero);
    row("told again", &|side| side.told_again, zero);
    row("probes beyond those of a round", &|side| side.openings.iter().map(|opening| opening.beyond).sum(), zero);
    row("rounds of probes that failed", &|side| side.openings.iter().map(|o| o.failed_rounds as usize).sum(), None);
    for (what, by) in [("closed by hand", Resumed::ByHand), ("closed by probes", Resumed::ByProbes)] {
        let all: usize = sides.iter().map(|side| side.resumed(by)).sum();
        row(what, &|side| side.resumed(by), Some(("at least 1 in all", &|_| all > 0)));
    }
    let order = grouped(sides[1].backwards);
    table.must(sides[1].backwards == 0, &["started before an earlier event", "", &order, "0"]);
    let limit = format!("below {}", millis(LIMIT));
    let mut late = |what: &str, of: fn(&Opening) -> i64, permille: usize, must: bool| {
        let late: Vec<i64> =
            sides.iter().map(|side| Lateness::of(side.openings.iter().map(of)).permille(permille)).collect();
        let cells = [what, &millis(late[0]), &millis(late[1]), if must && !no_times { &limit } else { "" }];
        if must && !no_times {
            table.must(late.iter().all(|late| *late < LIMIT), &cells);
        } else {
            table.tell(&cells);
        }
    };
    let error = format!("error {} to the last start", args.errors);
    late(&format!("{error}, p50"), |opening| opening.late, 500, false);
    late(&format!("{error}, p99"), |opening| opening.late, 990, true);
    late(&format!("{error}, at most"), |opening| opening.late, 1_000, false);
    late("a bad probe to the last start, at most", |opening| opening.late_again, 1_000, true);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARGS: Breaking = Breaking { events: 101, errors: 100, window: 30 };

    fn note(event_type: &str, id: &str, step: Step, attempts: u32) -> Note {
        Note { by: 1, step, event_type: event_type.to_owned(), id: id.to_owned(), attempts, at: 0 }
    }

    /// The notes of all runs, without a spent attempt.
    fn notes(event_type: &str) -> Vec<Note> {
        let mut notes = Vec::new();
        for number in 0..ARGS.events {
            let (id, runs) = (number.to_string(), runs_of(event_type, number));
            for attempts in 0..runs {
                notes.push(note(event_type, &id, Step::Begun, attempts));
                let fails = number % FAIL_EVERY == 0 && attempts < FAILS;
                notes.push(note(event_type, &id, if fails { Step::Failed } else { Step::Done }, attempts));
            }
        }
        notes
    }

    fn side(event_type: &str, notes: &[Note], letters: &[&str]) -> Side {
        let letters: Vec<String> = letters.iter().map(|id| (*id).to_owned()).collect();
        Side::of(&ARGS, notes, event_type, &[], &letters)
    }

    #[test]
    fn each_event_of_the_ordinary_type_has_to_be_handled_or_a_dead_letter() {
        let notes = notes(PLAIN);
        let of = |letters: &[&str]| {
            let side = side(PLAIN, &notes, letters);
            (side.handled, side.lost, side.wrong_letters > 0)
        };
        assert_eq!(of(&["0", "100"]), (99, 0, false));
        assert_eq!(of(&["0"]), (99, 1, true));
        assert_eq!(of(&["0", "100", "100"]), (99, 0, true));
        assert_eq!(notes.iter().filter(|note| is_last(note)).count(), 101);
    }

    #[test]
    fn other_attempts_another_order_and_another_notice_are_counted() {
        let of = |notes: &[Note]| {
            let side = side(LINE, notes, &[]);
            (side.attempts, side.backwards, side.told, side.told_again)
        };
        let well = notes(LINE);
        assert_eq!(of(&well), (0, 0, 0, 0));
        let mut spent = well.clone();
        spent.iter_mut().filter(|note| note.id == "7").for_each(|note| note.attempts = 1);
        assert_eq!(of(&spent), (1, 0, 0, 0));
        let again = [well.clone(), well[14..16].to_vec()].concat();
        assert_eq!(of(&again), (1, 1, 0, 0), "an event that runs again after later ones");
        let notices = ["breaker:line:7", "breaker:line:7", "breaker:line:8", "breaker:plain:9"];
        let notices = notices.map(|id| note(ON_CALL, id, Step::Done, 0));
        assert_eq!(of(&[&well[..], &notices].concat()), (0, 0, 2, 1));
    }
}
