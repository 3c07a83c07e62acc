//! `scripts/demo` runs hatchery with failing handlers, a `kill -9` and broken messages. At the end it accounts for
//! every event without asking hatchery. `scripts/demo --help` says more.

mod account;
mod broker;
#[path = "../../soak/src/console.rs"]
#[allow(unreachable_pub, reason = "also a module of the library hatchery_soak")]
mod console;
mod processes;
mod publish;
mod raw;
mod report;
mod sample;
mod watch;

use std::{
    path::Path,
    process::{ExitCode, Stdio},
    time::{Duration, Instant},
};

use anyhow::ensure;
use clap::Parser;
use hatchery::Topology;
use tokio::signal::unix::{SignalKind, signal};

use self::{
    account::{Account, Fate, Published},
    broker::Broker,
    console::{Console, GREEN, RED},
    processes::{House, Workers},
    watch::{Handled, Progress},
};

const EVENTS: &str = "demo/events.ndjson";

/// The names of the worker that is killed, of the other worker, and of the one that replaces the killed worker.
const VICTIM: &str = "1";
const OTHER: &str = "2";
const AGAIN: &str = "1-again";

/// How long all events may take, except those that must still wait at the end. An event that ran in the killed worker
/// waits until its lease of 15 s ends, and may fail when it runs again. A busy machine takes longer than the half minute of a
/// quiet one.
const LIMIT: Duration = Duration::from_secs(90);
const TICK: Duration = Duration::from_millis(100);

#[derive(Parser)]
struct Args {
    /// Take one waiting event out of its queue, to prove that the account notices
    #[arg(long)]
    take_one: bool,
    /// A line to print at the end
    #[arg(long)]
    hint: Vec<String>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    // Fails if a provider is installed already; that one serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let args = Args::parse();
    let mut console = Console::new();
    match run(&args, &mut console).await {
        Ok(exit) => exit,
        Err(error) => {
            console.end_progress();
            console.say(&format!("{RED}demo:{RED:#} {error:#}"));
            ExitCode::FAILURE
        }
    }
}

async fn run(args: &Args, console: &mut Console) -> anyhow::Result<ExitCode> {
    let house = House::new()?;
    let _lock = house.lock()?;
    let mut workers = Workers::new(&house, &house.empty("handled.tsv")?);
    let ended = tokio::select! {
        ended = demo(args, console, &house, &mut workers) => Some(ended),
        signal = interrupted() => { signal?; None }
    };
    console.end_progress();
    let stopped = workers.stop().await;
    let Some(ended) = ended else {
        console.say("Interrupted; the workers are stopped. The other events wait in the queues.");
        return Ok(ExitCode::from(130));
    };
    let well = ended?;
    stopped?;
    for hint in &args.hint {
        console.say(hint);
    }
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs all steps of the demo. Returns false if the account finds a fault.
async fn demo(args: &Args, console: &mut Console, house: &House, workers: &mut Workers<'_>) -> anyhow::Result<bool> {
    let topology = hatchery::read_file("topology.yaml")?;
    let broker = Broker::connect(&topology).await?;

    console.step("Apply topology.yaml to the broker");
    console.note(&apply(house).await?);
    broker.require_no_workers().await?;

    console.step("Start two workers");
    for name in [VICTIM, OTHER] {
        console.note(&format!("worker {name} has the process id {}", workers.start(name)?));
    }

    console.step("Publish the sample file, and messages with broken headers");
    let (published, refused) = publish::publish(house, &broker, Path::new(EVENTS)).await?;
    console.note(&format!("{EVENTS} and raw messages: {} confirmed, {refused} refused", published.len()));
    if args.take_one {
        take_one(console, &broker, &published).await?;
    }

    console.step("Wait until all due events are done, and kill a worker midway");
    let handled = watch(console, house, &broker, &topology, workers, &published).await?;

    console.step("Stop the workers, and read every queue");
    let account = settle(workers, &broker, handled, &published).await?;

    console.step("The account");
    console.say(&report::table(&published, refused, &account));
    let (seconds, well) = (console.elapsed().as_secs(), account.off.is_empty());
    let verdict = if well { format!("{GREEN}All is well{GREEN:#}") } else { format!("{RED}Not well{RED:#}") };
    console.say(&format!("{verdict}, after {seconds} s."));
    Ok(well)
}

async fn apply(house: &House) -> anyhow::Result<String> {
    let ended = house.topology(&["apply", "--auto-approve"]).stderr(Stdio::inherit()).output().await?;
    ensure!(ended.status.success(), "topology apply: {}", ended.status);
    let said = String::from_utf8_lossy(&ended.stdout);
    Ok(said.lines().last().unwrap_or_default().to_owned())
}

async fn take_one(console: &Console, broker: &Broker, published: &[Published]) -> anyhow::Result<()> {
    let waiting: Vec<&str> =
        published.iter().filter(|event| event.fate == Fate::Waiting).map(|event| event.id.as_str()).collect();
    let (id, queue) = broker.take_one(&waiting).await?;
    console.note(&format!("{RED}took one out of {queue}{RED:#}, and the account must notice:"));
    console.note(&id);
    Ok(())
}

/// Waits until the handlers have finished all due events, and no event is on its way to them. Midway kills a worker and
/// starts another one.
async fn watch(
    console: &mut Console,
    house: &House,
    broker: &Broker,
    topology: &Topology,
    workers: &mut Workers<'_>,
    published: &[Published],
) -> anyhow::Result<Handled> {
    let tries = topology.types.values().map(|spec| spec.retry.max_attempts).max().unwrap_or(1);
    let mut handled = Handled::new(house.folder.join("handled.tsv"));
    let (started, mut killed, mut calm) = (Instant::now(), false, 0);
    while calm < 3 && started.elapsed() < LIMIT {
        tokio::time::sleep(TICK).await;
        workers.require_alive()?;
        handled.read()?;
        let Progress { finished, failed, pending } = Progress::of(published, &handled.runs, tries);
        console.progress(finished, finished + pending, &format!(", {failed} failed runs"));
        let busy = handled.runs.iter().filter(|run| run.worker == VICTIM && run.event_type == "hr-import").count();
        if !killed && (busy >= 20 || pending == 0) {
            killed = true;
            let (old, new) = (workers.kill(VICTIM).await?, workers.start(AGAIN)?);
            console.note(&format!("kill -9 {old}: worker {VICTIM} is gone, and started again as {new};"));
            console.note("its events run again when their lease of 15 s has ended");
        }
        calm = if killed && pending == 0 && broker.quiet().await? { calm + 1 } else { 0 };
    }
    console.end_progress();
    if calm == 0 {
        console.note(&format!("some events are not finished after {} s; see the account", LIMIT.as_secs()));
    }
    Ok(handled)
}

/// Stops the workers, so that each event is either in the handlers' file or in a queue. Then reads both and takes the
/// account.
async fn settle(
    workers: &mut Workers<'_>,
    broker: &Broker,
    mut handled: Handled,
    published: &[Published],
) -> anyhow::Result<Account> {
    workers.stop().await?;
    let mut found = broker.read().await?;
    handled.read()?;
    let account = Account::take(published, &handled.runs, &found, VICTIM);
    if account.off.is_empty() {
        return Ok(account);
    }
    // An event may have moved between two queues of the ladder during the reading, and have been missed.
    tokio::time::sleep(TICK * 10).await;
    found.extend(broker.read().await?);
    Ok(Account::take(published, &handled.runs, &found, VICTIM))
}

/// Waits for SIGINT, SIGTERM or SIGHUP.
async fn interrupted() -> anyhow::Result<()> {
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .map(|kind| signal(kind).map_err(anyhow::Error::from));
    let [Ok(interrupt), Ok(terminate), Ok(hangup)] = &mut signals else {
        return Err(anyhow::anyhow!("cannot install the signal handlers"));
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}
