//! Starts a worker as a process of its own while many events wait in its queue. Measures the time until the first event is
//! handled, and the most memory that the process had at full speed.

use std::{
    fs,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{ChildStdout, Command},
    time::timeout,
};

use crate::{
    child::{ALL, ENDED, FIRST, TYPE},
    load::{Load, Side},
    meter::Measured,
    ours,
    surroundings::Surroundings,
};

/// How long the process may take to end.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(around: &Surroundings, load: &Load, side: Side) -> anyhow::Result<Measured> {
    let hatchery = around.hatchery().await?;
    ours::publish_now(&hatchery, TYPE, load).await?;
    hatchery.close().await;

    let mut command = Command::new(std::env::current_exe()?);
    around.stage.with_urls(&mut command).args(["--child", side.name()]);
    command.args(["--events", &load.events.to_string(), "--prefetch", &load.prefetch.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut measuring = around.meter.begin()?;
    let started = Instant::now();
    let mut child = command.spawn()?;
    let pid = child.id().context("the process has ended")?;
    measuring.set_client(pid);
    let mut answers = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    expect(&mut answers, FIRST, load.limit()).await?;
    let ready = started.elapsed();
    expect(&mut answers, ALL, load.limit()).await?;
    measuring.stop_clock();
    expect(&mut answers, ENDED, load.limit()).await?;
    let measured = measuring.end(load.events)?;
    let peak = peak_mebibytes(pid)?;

    // The process ends with its standard input.
    drop(child.stdin.take());
    let status = timeout(PATIENCE, child.wait()).await.context("the process does not end")??;
    ensure!(status.success(), "the process: {status}");
    Ok(measured.with("first event after", ready.as_secs_f64() * 1e3, "ms").with("most memory", peak, "MiB"))
}

async fn expect(answers: &mut Lines<BufReader<ChildStdout>>, line: &str, limit: Duration) -> anyhow::Result<()> {
    let answer =
        timeout(limit, answers.next_line()).await.with_context(|| format!("no {line:?} from the process"))??;
    ensure!(answer.as_deref() == Some(line), "the process says {answer:?} instead of {line:?}");
    Ok(())
}

/// Returns the most resident memory that a process has had.
fn peak_mebibytes(pid: u32) -> anyhow::Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
    let kibibytes: u32 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(f64::from(kibibytes) / 1_024.0)
}
