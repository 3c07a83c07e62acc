//! Runs a peer's program once. It says on its standard output when a phase begins and ends, and last what it measured.

use std::process::Stdio;

use anyhow::{Context as _, bail, ensure};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{ChildStdout, Command},
};

use crate::{
    load::Load,
    meter::{Measured, Meter},
};

/// One round of a peer.
pub(super) struct Ran {
    pub(super) version: String,
    pub(super) settings: serde_json::Value,
    pub(super) publish: Measured,
    pub(super) work: Measured,
}

/// The last line of a program.
#[derive(Deserialize)]
struct Told {
    version: String,
    settings: serde_json::Value,
    added_per_second: f64,
    processed_per_second: f64,
}

pub(super) async fn run(mut command: Command, url: &str, load: &Load, meter: &Meter) -> anyhow::Result<Ran> {
    command.args([url, &load.events.to_string(), &load.payload.len().to_string()]);
    let text = format!("{:?}", command.as_std());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| text.clone())?;
    let pid = child.id().context("the program has a process")?;
    let mut lines = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    // Reads the warnings while the program runs, so that it never waits for space in the pipe.
    let output = tokio::spawn(child.wait_with_output());
    let measured = measure(pid, &mut lines, load, meter).await;
    let output = output.await??;
    let errors = || format!("{text}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    ensure!(output.status.success(), errors());
    measured.with_context(errors)
}

async fn measure(
    pid: u32,
    lines: &mut Lines<BufReader<ChildStdout>>,
    load: &Load,
    meter: &Meter,
) -> anyhow::Result<Ran> {
    let publish = phase(pid, lines, ["add", "added"], load, meter).await?;
    let work = phase(pid, lines, ["work", "worked"], load, meter).await?;
    let line = lines.next_line().await?.context("no result")?;
    let Told { version, settings, added_per_second, processed_per_second } =
        serde_json::from_str(&line).with_context(|| line.clone())?;
    Ok(Ran { version, settings, publish: publish.at(added_per_second), work: work.at(processed_per_second) })
}

async fn phase(
    pid: u32,
    lines: &mut Lines<BufReader<ChildStdout>>,
    [begin, end]: [&str; 2],
    load: &Load,
    meter: &Meter,
) -> anyhow::Result<Measured> {
    expect(lines, begin).await?;
    let measuring = meter.begin_with(pid)?;
    expect(lines, end).await?;
    measuring.end(load.events)
}

async fn expect(lines: &mut Lines<BufReader<ChildStdout>>, word: &str) -> anyhow::Result<()> {
    match lines.next_line().await? {
        Some(line) if line == word => Ok(()),
        other => bail!("expected {word}, and read {other:?}"),
    }
}
