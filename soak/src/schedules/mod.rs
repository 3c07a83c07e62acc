//! Schedules that run every second. First their workers and applies are killed all the time, and two revisions are rolled out:
//! each instant runs once. Then their events, their states or both are lost: all chains run again by themselves.

pub(crate) mod account;
mod applies;
mod args;
pub(crate) mod plan;
pub(crate) mod states;
mod workers;

use std::{collections::BTreeMap, time::Duration};

use anyhow::ensure;
use futures_util::future::try_join_all;
use hatchery::CancellationToken;
use jiff::Timestamp;
use tokio::time::Instant;

pub(crate) use self::args::Args;
use self::{
    account::{Account, Period},
    applies::Applies,
    args::Loss,
    plan::{Kind, Schedule, place},
    states::States,
    workers::Workers,
};
use crate::harness::{Chance, Console, Killed, Lateness, Note, Queues, Stage, Step, Table, grouped, millis};

const TICK: Duration = Duration::from_millis(50);

/// How long the schedules may take after the kills until none is late. The healing of a chain whose revision changed while its
/// event began takes up to 100 s, and then the instants of this time run.
const SETTLES: Duration = Duration::from_mins(4);

/// How long the schedules are watched while nothing is killed, in seconds.
const WATCHED: i64 = 10;

/// How long after a loss each schedule has to run again. It is two minutes, of which an event counts as lost after one, and ten
/// seconds for a busy machine.
const WHOLE_AGAIN: Duration = Duration::from_secs(130);

/// How long after a loss a run may still be of the time before it.
const UNDER_WAY: Duration = Duration::from_millis(250);

/// How many faults of each kind are printed.
const SHOWN: usize = 5;

/// The servers and settings that all parts of the run use.
struct Scene<'a> {
    stage: &'a Stage,
    schedules: Vec<Schedule>,
    queues: Queues,
    states: States,
    /// The queues in which events wait for their time.
    ladder: Vec<String>,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let schedules = plan::schedules(args.schedules, args.sequential);
    let (stage, queues, chance) = args.common.begin(console, &plan::file(&schedules, 1)).await?;
    let holds = act(args, console, &stage, queues, schedules, chance).await;
    stage.end(console, *holds.as_ref().unwrap_or(&false)).await;
    holds
}

async fn act(
    args: &Args,
    console: &mut Console,
    stage: &Stage,
    queues: Queues,
    schedules: Vec<Schedule>,
    mut chance: Chance,
) -> anyhow::Result<bool> {
    let waits = |name: &&String| name.contains(".ladder.") || name.contains(".hatchery.");
    let ladder: Vec<String> = queues.ways.iter().filter(waits).cloned().collect();
    ensure!(!ladder.is_empty(), "no queue of the ladder among {:?}", queues.ways);
    let states = States::connect(stage).await?;
    let mut scene = Scene { stage, schedules, queues, states, ladder };
    let first = scene.states.armed().await?;
    let mut workers = Workers::start(stage, args, chance.fork()).await?;

    let (many, seconds) = (grouped(scene.schedules.len()), args.seconds);
    console.step(&format!("Run {many} schedules for {seconds} s, kill workers and applies, roll out two revisions"));
    let stop = CancellationToken::new();
    let loops = (0..args.applies).map(|n| applies::repeat(stage, n, chance.fork(), &stop));
    let harming = async {
        let roll_outs = scene.harm(args, console, &mut workers).await;
        stop.cancel();
        roll_outs
    };
    let (roll_outs, applied) = tokio::try_join!(harming, try_join_all(loops))?;
    stage.apply().await?;
    let calm = scene.calm(console, &mut workers, "Wait until no schedule is late").await?;
    let watched = scene.watch(console, &mut workers).await?;

    console.step(&format!("The account, of RabbitMQ {}", stage.version));
    let period = Period { first: &first, end: watched.until, roll_outs: &roll_outs };
    let account = Account::take(&scene.schedules, &workers.crew.notes, &period);
    let mut table = Table::new(&["", "", "must be"]);
    tell_of_kills(&mut table, args, &workers.killer.killed, &Applies::sum(applied), roll_outs.len());
    tell_of_runs(&mut table, console, &account, &workers.killer.killed);
    table.must(calm.is_some(), &["s until none was late after the kills", &shown_seconds(calm), "240"]);
    watched.tell(&mut table, &scene.schedules);
    console.say(&table.render());
    let mut holds = table.holds();

    let mut table = Table::new(&["ran again after", "messages", "median", "longest", "must be"]);
    let mut doubled = Vec::new();
    for loss in &args.losses {
        scene.lose(console, &mut workers, *loss, &mut table).await?;
        scene.calm(console, &mut workers, "Wait until no schedule is late").await?;
        doubled.push((*loss, scene.watch(console, &mut workers).await?));
    }
    workers.crew.stop().await?;
    if !args.losses.is_empty() {
        console.step(&format!("The losses, of RabbitMQ {}", stage.version));
        console.say(&table.render());
        holds &= table.holds();
        let mut table = Table::new(&["", "", "must be"]);
        for (loss, watched) in &doubled {
            table.tell(&[&format!("after {}", loss.said()), "", ""]);
            watched.tell(&mut table, &scene.schedules);
        }
        console.say(&table.render());
        holds &= table.holds();
    }
    Ok(holds)
}

impl Scene<'_> {
    /// Kills workers at random moments, and exchanges the file twice. Returns the times of the roll-outs, in ms since 1970.
    async fn harm(&self, args: &Args, console: &mut Console, workers: &mut Workers) -> anyhow::Result<Vec<i64>> {
        let (began, all) = (Instant::now(), Duration::from_secs(args.seconds.into()));
        // Back to the first one, whose events of before the first roll-out may still be under way.
        let mut revisions = [2, 1].into_iter();
        let mut roll_outs = Vec::new();
        while began.elapsed() < all {
            tokio::time::sleep(TICK).await;
            workers.look()?;
            let seconds = usize::try_from(began.elapsed().as_secs())?;
            let late = workers.late(&self.schedules).len();
            let said = format!(" s{}, {late} late", workers.killer.said());
            console.progress(seconds, all.as_secs().try_into()?, &said);
            workers.killer.kill_if_due(&mut workers.crew, self.stage).await?;
            let third = all * u32::try_from(roll_outs.len() + 1)? / 3;
            if began.elapsed() >= third
                && let Some(revision) = revisions.next()
            {
                roll_outs.push(Timestamp::now().as_millisecond());
                self.stage.exchange(&plan::file(&self.schedules, revision))?;
            }
        }
        console.end_progress();
        Ok(roll_outs)
    }

    /// Waits until no schedule is late. Returns how many seconds that took, or `None` if it took too long.
    async fn calm(&mut self, console: &mut Console, workers: &mut Workers, title: &str) -> anyhow::Result<Option<u64>> {
        console.step(title);
        let began = Instant::now();
        loop {
            tokio::time::sleep(TICK).await;
            workers.look()?;
            let late = workers.late(&self.schedules);
            console.progress(self.schedules.len() - late.len(), self.schedules.len(), ", the others are late");
            if late.is_empty() || began.elapsed() > SETTLES {
                console.end_progress();
                for text in self.states.texts(&late[..late.len().min(SHOWN)]).await? {
                    console.note(&format!("late: {text}"));
                }
                return Ok(late.is_empty().then_some(began.elapsed().as_secs()));
            }
        }
    }

    /// Watches the schedules while nothing is killed.
    async fn watch(&mut self, console: &mut Console, workers: &mut Workers) -> anyhow::Result<Watched> {
        console.step(&format!("Watch them for {WATCHED} s"));
        let now = Timestamp::now().as_millisecond();
        let from = (now / 1_000 + 2) * 1_000;
        let until = from + WATCHED * 1_000;
        let mut messages = u64::MAX;
        // Late runs of the last instant are awaited too. On a busy machine they are seconds late.
        while Timestamp::now().as_millisecond() < until + 15_000 {
            messages = messages.min(self.queues.ready(&self.queues.ways).await?);
            tokio::time::sleep(TICK * 5).await;
            workers.look()?;
        }
        let armed = self.states.armed().await?.len();
        let mut watched = Watched { from, until, messages, armed, runs: Vec::new(), late: Vec::new() };
        let mut runs: BTreeMap<&str, i64> = BTreeMap::new();
        let recent = |mark: &&Note| mark.step == Step::Begun && mark.at >= from * 1_000;
        for mark in workers.crew.notes.iter().filter(recent) {
            let Some((schedule, position)) = place(&mark.id) else { continue };
            let is_fixed = mark.id.contains('@');
            let at = if is_fixed { position } else { mark.at / 1_000 };
            if (from..until).contains(&at) {
                *runs.entry(schedule).or_default() += 1;
                watched.late.extend(is_fixed.then_some(mark.at - position * 1_000));
            }
        }
        let count = |schedule: &Schedule| runs.get(schedule.name.as_str()).copied().unwrap_or_default();
        watched.runs = self.schedules.iter().map(count).collect();
        Ok(watched)
    }

    /// Loses events, states or both, and waits until each schedule has run again.
    async fn lose(
        &mut self,
        console: &mut Console,
        workers: &mut Workers,
        loss: Loss,
        table: &mut Table,
    ) -> anyhow::Result<()> {
        let what = loss.said();
        console.step(&format!("Wait until each schedule has run after {what}"));
        // Between two instants the events of all chains wait in the ladder.
        let past = Timestamp::now().as_millisecond().rem_euclid(1_000);
        tokio::time::sleep(Duration::from_millis(u64::try_from(1_600 - past)?)).await;
        let mut purged = 0;
        if loss != Loss::Flush {
            purged += self.queues.purge(&self.ladder).await?;
        }
        if loss != Loss::Purge {
            self.states.flush().await?;
        }
        if loss != Loss::Flush {
            purged += self.queues.purge(&self.ladder).await?;
        }
        tokio::time::sleep(UNDER_WAY).await;
        let (lost, began) = (Timestamp::now().as_microsecond(), Instant::now());
        let mut after = Vec::new();
        while began.elapsed() < WHOLE_AGAIN {
            tokio::time::sleep(TICK * 4).await;
            workers.look()?;
            after = workers.first_after(&self.schedules, lost);
            let ran = after.iter().flatten().count();
            console.progress(ran, after.len(), "");
            if ran == after.len() {
                break;
            }
        }
        console.end_progress();
        let waiting: Vec<String> =
            self.schedules.iter().zip(&after).filter(|(_, at)| at.is_none()).map(|(s, _)| s.name.clone()).collect();
        for text in self.states.texts(&waiting[..waiting.len().min(SHOWN)]).await? {
            console.note(&format!("does not run: {text}"));
        }
        let mut row = |kind: &str, of: fn(Kind) -> bool| {
            let times: Vec<Option<i64>> =
                self.schedules.iter().zip(&after).filter(|(s, _)| of(s.kind)).map(|(_, at)| *at).collect();
            let never = times.iter().filter(|at| at.is_none()).count();
            let times = Lateness::of(times.into_iter().flatten());
            let seconds = |permille| {
                format!("{:.1} s", f64::from(i32::try_from(times.permille(permille)).unwrap_or(i32::MAX)) / 1e3)
            };
            let longest = if never == 0 { seconds(1_000) } else { format!("{never} did not") };
            let must = format!("{} s", WHOLE_AGAIN.as_secs());
            table.must(never == 0, &[&format!("{what}: {kind}"), &grouped(purged), &seconds(500), &longest, &must]);
        };
        row("fixed, 1 s", |kind| kind == Kind::Fixed { every: 1 });
        row("sequential, 1 s", |kind| kind == Kind::Sequential { every: 1 });
        row("fixed, 15 s", |kind| kind == Kind::Fixed { every: 15 });
        row("sequential, 20 s", |kind| kind == Kind::Sequential { every: 20 });
        Ok(())
    }
}

/// The observations while nothing was killed.
struct Watched {
    /// The first instant, in ms since 1970.
    from: i64,
    /// The instant after the last one.
    until: i64,
    /// The least number of messages in all queues at a look.
    messages: u64,
    /// The number of schedules whose state has a next event.
    armed: usize,
    /// The number of runs of each schedule.
    runs: Vec<i64>,
    /// How late fixed runs began, in microseconds.
    late: Vec<i64>,
}

impl Watched {
    fn tell(&self, table: &mut Table, schedules: &[Schedule]) {
        let off = |schedule: &Schedule, runs: i64| {
            let every = i64::from(schedule.kind.every());
            let instants = (self.until - 1) / (every * 1_000) - (self.from - 1) / (every * 1_000);
            match schedule.kind {
                Kind::Fixed { .. } => runs != instants,
                // Each run takes up to a step of the ladder more than its second.
                Kind::Sequential { .. } => runs > WATCHED / every + 1 || runs < WATCHED / every / 2,
            }
        };
        let off = schedules.iter().zip(&self.runs).filter(|(schedule, runs)| off(schedule, **runs)).count();
        let all = schedules.len();
        table.none("watched: schedules that ran more or less often", off);
        table.must(self.armed == all, &["watched: schedules with a next event", &grouped(self.armed), &grouped(all)]);
        let must = format!("at most {all}, one each");
        table.must(self.messages <= all as u64, &["watched: messages in all queues", &grouped(self.messages), &must]);
        tell_lateness(table, "watched: late", &self.late);
    }
}

fn tell_of_kills(table: &mut Table, args: &Args, killed: &Killed, applies: &Applies, roll_outs: usize) {
    table.at_least("workers killed", killed.open.len(), args.kills.at_least);
    table.must(applies.killed > 0, &["applies killed", &grouped(applies.killed), "some"]);
    for (code, times) in &applies.exits {
        table.tell(&[&format!("applies that ended with {code}"), &grouped(*times), ""]);
    }
    table.none("applies that ended otherwise", applies.unexpected());
    table.must(roll_outs == 2, &["revisions rolled out", &grouped(roll_outs), "2"]);
}

fn tell_of_runs(table: &mut Table, console: &Console, account: &Account, killed: &Killed) {
    table.must(account.instants > 0, &["instants of fixed schedules", &grouped(account.instants), "some"]);
    table.must(account.numbers > 0, &["runs of sequential schedules", &grouped(account.numbers), "some"]);
    table.tell(&["finished and not settled at a kill", &grouped(killed.open.iter().sum::<usize>()), ""]);
    table.tell(&["finished twice", &grouped(account.twice.len()), ""]);
    let unexplained = killed.unexplained(&account.twice);
    let beside: Vec<String> = account.beside.iter().map(|(one, other)| format!("{one} and {other}")).collect();
    for (what, found) in [
        ("of those, settled before the kill", &unexplained),
        ("without a finished run", &account.missing),
        ("runs for no instant", &account.strangers),
        ("runs before their instant", &account.early),
        ("sequential: gaps in the numbers", &account.gaps),
        ("sequential: older after newer", &account.backwards),
        ("sequential: two at a time", &beside),
    ] {
        table.none(what, found.len());
        for one in found.iter().take(SHOWN) {
            console.note(&format!("{what}: {one}"));
        }
    }
    table.tell(&["sequential: chains that a roll-out began", &grouped(account.begun), ""]);
    tell_lateness(table, "under kills: late", &account.late);
}

fn tell_lateness(table: &mut Table, what: &str, late: &[i64]) {
    let late = Lateness::of(late.iter().copied());
    for (name, permille) in [("p50", 500), ("p99", 990), ("at most", 1_000)] {
        table.tell(&[&format!("{what}, {name}"), &millis(late.permille(permille)), ""]);
    }
}

fn shown_seconds(seconds: Option<u64>) -> String {
    seconds.map_or_else(|| "too long".to_owned(), |seconds| seconds.to_string())
}
