//! The last release and this tree side by side on one topology: an upgrade, a roll-back and an upgrade again under load,
//! one process after the other.

mod account;
mod load;
mod notes;
mod plan;
mod programs;
mod service;

use std::{path::PathBuf, time::Duration};

use futures_util::future::try_join_all;
use hatchery::CancellationToken;
use jiff::Timestamp;
use tokio::{sync::mpsc, time::Instant};

use self::{
    account::Account,
    load::Pod,
    notes::{SharedNotes, Side},
    plan::{Kind, TICK},
    programs::{Programs, Worker},
};
use crate::{
    harness::{Chance, Common, Console, Look, Note, PATIENCE, Queues, Stage, Step, Table, grouped, until_over},
    schedules::{
        account::{Account as Ticks, Period},
        states::States,
    },
};

const TICK_TIME: Duration = Duration::from_millis(100);

/// The roll-outs: an upgrade, a roll-back, and the upgrade again.
const ROLL_OUTS: [Side; 3] = [Side::This, Side::Released, Side::This];

/// The workers and publishers that are rolled out, and how the commands beside them ended.
struct Deployment<'a> {
    programs: &'a Programs<'a>,
    seen: SharedNotes,
    workers: Vec<Worker>,
    publishers: Vec<Pod>,
    /// The number of the next worker.
    names: u32,
    commands: Commands,
}

/// How the commands ended: those of each kind, and how many of them failed. A plan that is not in sync has failed.
#[derive(Default)]
struct Commands {
    applies: [usize; 2],
    plans: [usize; 2],
    replays: [usize; 2],
    cancels_failed: usize,
}

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    common: Common,
    /// The `topology` of the last release; scripts/soak builds it if this is not given
    #[arg(long, value_name = "PROGRAM")]
    released: PathBuf,
    /// Seconds of load, with an upgrade, a roll-back and an upgrade
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(20..))]
    seconds: u32,
    /// Events a second
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(10..=1_000))]
    rate: u32,
    /// Worker processes
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=20))]
    workers: u32,
    /// Publisher processes
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=20))]
    publishers: u32,
}

pub(crate) async fn run(args: &Args, console: &mut Console) -> anyhow::Result<bool> {
    let (stage, queues, chance) = args.common.begin(console, &plan::file()).await?;
    let holds = act(args, console, &stage, &queues, chance).await;
    stage.end(console, *holds.as_ref().unwrap_or(&false)).await;
    holds
}

async fn act(
    args: &Args,
    console: &mut Console,
    stage: &Stage,
    queues: &Queues,
    chance: Chance,
) -> anyhow::Result<bool> {
    let seen = SharedNotes::default();
    let programs = Programs::new(stage, &args.released, service::start(seen.clone()).await?)?;
    stage.exchange(&plan::file_with_schedules())?;
    let mut deployment = Deployment {
        programs: &programs,
        seen,
        workers: Vec::new(),
        publishers: Vec::new(),
        names: 0,
        commands: Commands::default(),
    };
    deployment.apply(Side::Released).await?;
    let mut states = States::connect(stage).await?;
    let first = states.armed().await?;
    for _ in 0..args.workers {
        deployment.add_worker(Side::Released)?;
    }
    for name in 0..args.publishers {
        deployment.publishers.push(Pod::new(name, deployment.programs.publish(Side::Released, name)?));
    }

    console.step(&format!(
        "Upgrade, roll back and upgrade again, for {} s and {} events a second",
        args.seconds, args.rate
    ));
    deployment.upgrade(args, console, chance).await?;
    let until = Timestamp::now().as_millisecond();

    console.step("Wait until all events are handled");
    let period = Period { first: &first, end: until, roll_outs: &[] };
    deployment.finish(console, &period).await?;
    // The schedules would keep the queues busy.
    stage.exchange(&plan::file())?;
    deployment.apply(Side::This).await?;
    deployment.settle(console, queues).await?;
    for worker in deployment.workers.drain(..) {
        worker.process.terminate().await?;
    }

    // Dead-letter and `unrouted` included.
    let left = queues.ready(&queues.all).await?;
    console.step(&format!("The account, of RabbitMQ {}", stage.version));
    let account = deployment.account(true);
    let unversioned = deployment.programs.unversioned(args.publishers)?;
    let kinds = kinds_table(&account);
    let others = others_table(&account, &deployment.ticks(&period), &deployment.commands, (unversioned, left));
    console.say(&kinds.render());
    console.say(&others.render());
    Ok(kinds.holds() && others.holds())
}

impl Deployment<'_> {
    fn add_worker(&mut self, side: Side) -> anyhow::Result<()> {
        self.names += 1;
        self.workers.push(self.programs.work(side, self.names)?);
        Ok(())
    }

    fn look(&mut self) -> anyhow::Result<()> {
        self.workers.iter_mut().try_for_each(|worker| worker.process.require_alive())
    }

    /// Applies the file with the program of one side. Then the plans of both sides have to be in sync.
    async fn apply(&mut self, side: Side) -> anyhow::Result<()> {
        let code = self.programs.run(side, &["apply", "--auto-approve"]).await?;
        note(&mut self.commands.applies, code);
        for by in Side::BOTH {
            let code = self.programs.run(by, &["plan", "--detailed-exitcode"]).await?;
            note(&mut self.commands.plans, code);
        }
        Ok(())
    }

    async fn replay(&mut self, side: Side) -> anyhow::Result<()> {
        let arguments = ["dead-letter", "replay", "--type", Kind::Hopeless.name(), "--yes"];
        let code = self.programs.run(side, &arguments).await?;
        note(&mut self.commands.replays, code);
        Ok(())
    }

    /// Publishes, and rolls out one side after the other.
    async fn upgrade(&mut self, args: &Args, console: &mut Console, mut chance: Chance) -> anyhow::Result<()> {
        let (stop, every) = (CancellationToken::new(), Duration::from_secs(1) * args.publishers / args.rate);
        let (cancels, to_cancel) = mpsc::unbounded_channel();
        let publishers = std::mem::take(&mut self.publishers);
        let seen = self.seen.clone();
        let publishing =
            try_join_all(publishers.iter().map(|pod| pod.publish(&seen, chance.fork(), every, cancels.clone(), &stop)));
        drop(cancels);
        let cancelling = load::cancel(self.programs, &seen, to_cancel);
        let rolling = async {
            let rolled = self.roll(args, console, &publishers).await;
            stop.cancel();
            rolled
        };
        let publishing = async {
            let published = publishing.await;
            stop.cancel();
            published
        };
        let ((), _, failed) = tokio::try_join!(rolling, publishing, cancelling)?;
        self.commands.cancels_failed = failed;
        for pod in &publishers {
            pod.replace(None).await?;
        }
        Ok(())
    }

    async fn roll(&mut self, args: &Args, console: &mut Console, publishers: &[Pod]) -> anyhow::Result<()> {
        let began = Instant::now();
        let steps = u32::try_from(ROLL_OUTS.len())? * (args.workers + args.publishers);
        let step = Duration::from_secs(args.seconds.into()) / (steps + 1);
        let mut next = began + step;
        for side in ROLL_OUTS {
            self.apply(side).await?;
            let mut pods = publishers.iter();
            for n in 0..args.workers.max(args.publishers) {
                if n < args.workers {
                    self.wait_until(console, began, next, args.seconds).await?;
                    next += step;
                    // The oldest worker is the first one. The new one starts before the old one stops.
                    self.add_worker(side)?;
                    self.workers.remove(0).process.terminate().await?;
                }
                if let Some(pod) = pods.next() {
                    self.wait_until(console, began, next, args.seconds).await?;
                    next += step;
                    pod.replace(Some(self.programs.publish(side, pod.name)?)).await?;
                }
            }
            // The letters of either side's workers.
            self.replay(side.other()).await?;
        }
        self.wait_until(console, began, next, args.seconds).await
    }

    async fn wait_until(
        &mut self,
        console: &mut Console,
        began: Instant,
        until: Instant,
        all: u32,
    ) -> anyhow::Result<()> {
        while Instant::now() < until {
            tokio::time::sleep(TICK_TIME).await;
            self.look()?;
            let of = |side| self.workers.iter().filter(|worker| worker.side == side).count();
            let (released, this) = (of(Side::Released), of(Side::This));
            let (sent, runs) = {
                let notes = self.seen.lock();
                (notes.sent.len(), notes.runs.len())
            };
            let text = format!(" s; workers {released} released, {this} this; {sent} events, {runs} runs");
            console.progress(usize::try_from(began.elapsed().as_secs())?, all as usize, &text);
        }
        Ok(())
    }

    fn account(&self, is_over: bool) -> Account {
        let notes = self.seen.lock();
        Account::take(&notes.sent, &notes.runs, is_over)
    }

    fn ticks(&self, period: &Period<'_>) -> Ticks {
        let notes = self.seen.lock();
        let marks: Vec<Note> = notes
            .runs
            .iter()
            .filter(|run| run.event_type == TICK)
            .flat_map(|run| {
                let mark = |step, at| {
                    let (by, event_type, id) = (run.worker, TICK.to_owned(), run.id.clone());
                    Note { by, step, event_type, id, attempts: 0, at }
                };
                [mark(Step::Begun, run.begun), mark(Step::Done, run.ended)]
            })
            .collect();
        Ticks::take(&plan::schedules(), &marks, period)
    }

    /// Waits until all events are handled, and replays the dead letters once only they are open.
    async fn finish(&mut self, console: &mut Console, period: &Period<'_>) -> anyhow::Result<()> {
        let mut is_replayed = false;
        until_over(console, PATIENCE, async || {
            self.look()?;
            let open = self.account(is_replayed).open() + self.ticks(period).missing.len();
            let all = self.seen.lock().sent.len();
            let is_over = open == 0 && is_replayed;
            if open == 0 && !is_replayed {
                self.replay(Side::This).await?;
                is_replayed = true;
            }
            Ok(Look { done: all.saturating_sub(open), all, said: String::new(), is_over })
        })
        .await
    }

    /// Waits until the queues are empty, so that a second run of an event is noted too.
    async fn settle(&mut self, console: &mut Console, queues: &Queues) -> anyhow::Result<()> {
        console.step("Wait until the queues are empty");
        let all = self.seen.lock().sent.len();
        until_over(console, PATIENCE, async || {
            self.look()?;
            let is_over = !queues.are_busy(&[]).await?;
            Ok(Look { done: all, all, said: String::new(), is_over })
        })
        .await
    }
}

/// Counts a command with this exit code.
fn note([all, failed]: &mut [usize; 2], code: i32) {
    *all += 1;
    *failed += usize::from(code != 0);
}

fn kinds_table(account: &Account) -> Table {
    let mut table = Table::new(&["events", "sent", "runs", "lost", "twice", "early", "attempts", "order", "must be"]);
    for row in &account.rows {
        let wrong = [row.lost, row.twice, row.early, row.attempts, row.order];
        let cells: Vec<String> = [row.sent, row.runs].into_iter().chain(wrong).map(grouped).collect();
        let cells: Vec<&str> =
            [row.kind.name()].into_iter().chain(cells.iter().map(String::as_str)).chain(["0 wrong"]).collect();
        table.must(row.sent > 0 && wrong == [0; 5], &cells);
    }
    table
}

fn others_table(account: &Account, ticks: &Ticks, commands: &Commands, (unversioned, left): (usize, u64)) -> Table {
    let mut table = Table::new(&["", "", "must be"]);
    for (what, found) in [
        ("published by the release, run by this", account.crossed[0]),
        ("published by this, run by the release", account.crossed[1]),
        ("first run by the release, then by this", account.handed[0]),
        ("first run by this, then by the release", account.handed[1]),
        ("cancelled by the side that did not publish it", account.cancelled),
        ("instants of the fixed schedule", ticks.instants),
        ("runs of the sequential schedule", ticks.numbers),
        ("applies of both sides", commands.applies[0]),
        ("plans of both sides", commands.plans[0]),
        ("replays of dead letters", commands.replays[0]),
    ] {
        table.must(found > 0, &[what, &grouped(found), "some"]);
    }
    let must = format!("at most {unversioned}");
    table.must(
        account.unversioned <= unversioned,
        &["changes without a version, as publishers said", &grouped(account.unversioned), &must],
    );
    for (what, found) in [
        ("began after their cancel", account.ran_after_cancel),
        ("runs of no event", account.strangers),
        ("instants without a run", ticks.missing.len()),
        ("instants and numbers that ran twice", ticks.twice.len()),
        ("runs for no instant, or before it", ticks.strangers.len() + ticks.early.len()),
        ("gaps in the numbers of the sequential schedule", ticks.gaps.len() + ticks.backwards.len() + ticks.begun),
        ("its runs at one time", ticks.beside.len()),
        (
            "applies, replays and cancels that failed",
            commands.applies[1] + commands.replays[1] + commands.cancels_failed,
        ),
        ("plans that were not in sync", commands.plans[1]),
    ] {
        table.none(what, found);
    }
    table.none("messages left in the queues", left);
    table
}
