//! Runs `topology apply` again and again, and kills some of them.

use std::{collections::BTreeMap, fs::File, process::Stdio, time::Duration};

use anyhow::ensure;
use hatchery::CancellationToken;
use tokio::time::{Instant, timeout};

use crate::harness::{Chance, Stage};

/// The pause between two applies of a loop, at most.
const PAUSE: u64 = 1_000;

/// How long an apply may take.
const LIMIT: Duration = Duration::from_mins(2);

/// How the applies have ended.
#[derive(Debug, Default)]
pub(super) struct Applies {
    pub(super) killed: usize,
    /// The number of applies with each exit code.
    pub(super) exits: BTreeMap<i32, usize>,
}

impl Applies {
    /// Returns the sum of several loops.
    pub(super) fn sum(of: Vec<Self>) -> Self {
        of.into_iter().fold(Self::default(), |mut sum, one| {
            sum.killed += one.killed;
            for (code, count) in one.exits {
                *sum.exits.entry(code).or_default() += count;
            }
            sum
        })
    }

    /// Returns how many applies ended with another code than: done, partly done, unreachable, the lock is held.
    pub(super) fn unexpected(&self) -> usize {
        self.exits.iter().filter(|(code, _)| ![0, 5, 6, 7].contains(*code)).map(|(_, count)| count).sum()
    }
}

/// Runs `topology apply` until `stop` is cancelled. Every second one is killed with SIGKILL at a random moment, if it runs so long.
pub(super) async fn repeat(
    stage: &Stage,
    name: u32,
    mut chance: Chance,
    stop: &CancellationToken,
) -> anyhow::Result<Applies> {
    let (mut applies, mut took) = (Applies::default(), Duration::from_millis(500));
    let mut number = 0;
    while !stop.is_cancelled() {
        number += 1;
        let log = stage.path(&format!("apply-{name}-{number}.log"));
        let mut apply =
            stage.topology(&["apply", "--auto-approve"])?.stdin(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        let began = Instant::now();
        let kills = chance.between(0, 1) == 0;
        let whole = u64::try_from(took.as_millis())?.max(1);
        let limit = if kills { Duration::from_millis(chance.between(1, whole)) } else { LIMIT };
        if let Ok(status) = timeout(limit, apply.wait()).await {
            took = began.elapsed();
            let code = status?.code().unwrap_or(-1);
            *applies.exits.entry(code).or_default() += 1;
            if [0, 7].contains(&code) {
                let _ = std::fs::remove_file(log);
            }
        } else {
            ensure!(kills, "topology apply does not end within {LIMIT:?}");
            apply.kill().await?;
            applies.killed += 1;
            let _ = std::fs::remove_file(log);
        }
        let pause = tokio::time::sleep(Duration::from_millis(chance.between(0, PAUSE)));
        stop.run_until_cancelled(pause).await;
    }
    Ok(applies)
}
