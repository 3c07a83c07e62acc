//! Publishes the sample and the raw messages, and checks that the bad lines are refused.

use std::{collections::BTreeMap, fs, path::Path, process::Stdio};

use anyhow::{Context as _, ensure};
use jiff::Timestamp;
use serde::Deserialize;

use crate::{account::Published, broker::Broker, processes::House, raw, sample::Sample};

/// An answer of `topology publish --batch … -o ndjson`.
#[derive(Deserialize)]
struct Answer {
    line: u64,
    id: Option<String>,
}

/// Publishes the sample and the raw messages. Returns the confirmed events in order, and the number of refused lines.
pub(crate) async fn publish(house: &House, broker: &Broker, events: &Path) -> anyhow::Result<(Vec<Published>, usize)> {
    let sample = Sample::read(events, Timestamp::now())?;
    let rejects = house.empty("rejects.ndjson")?;
    let mut command = house.topology(&["publish", "-o", "ndjson", "--batch"]);
    let ended = command.arg(events).arg("--rejects").arg(&rejects).stderr(Stdio::inherit()).output().await?;
    ensure!(ended.status.code() == Some(5), "topology publish must refuse the bad lines: {}", ended.status);
    let mut ids = BTreeMap::new();
    let mut answers = 0;
    for line in String::from_utf8(ended.stdout)?.lines() {
        let answer: Answer = serde_json::from_str(line).with_context(|| format!("the answer {line}"))?;
        answers += 1;
        ids.extend(answer.id.map(|id| (answer.line, id)));
    }
    ensure!(answers == sample.0.len(), "{answers} answers to {} lines", sample.0.len());
    let mut published = sample.confirmed(ids)?;

    let mut bad = sample.bad();
    let rejects = fs::read_to_string(rejects)?;
    let mut refused: Vec<&str> = rejects.lines().collect();
    bad.sort_unstable();
    refused.sort_unstable();
    ensure!(bad == refused, "the rejects are not exactly the bad lines: {refused:?}");

    let raw = raw::messages();
    broker.publish(&raw).await?;
    published.extend(raw.into_iter().map(|raw| raw.event));
    Ok((published, bad.len()))
}
