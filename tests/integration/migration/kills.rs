//! An apply that is killed.

use std::{process::Stdio, time::Duration};

use tokio::process::Command;

use super::Random;
use crate::support::{broker::PATIENCE, cli::Bench};

/// Where to kill, and how often such a place may be passed before.
const POINTS: [(&str, u64); 5] =
    [("apply.declared", 12), ("apply.step", 12), ("apply.confirmed", 40), ("apply.moved", 3), ("apply.deleted", 2)];

/// How many kills a scenario takes: `HATCHERY_KILLS`.
pub(super) fn budget() -> u32 {
    std::env::var("HATCHERY_KILLS").map_or(1, |kills| kills.parse().expect("HATCHERY_KILLS is a number"))
}

fn command(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = Command::from(bench.process(arguments));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Applies until it is done, and kills it on the way as often as the budget says: half of the time at a place on its way,
/// half of the time after a random while. How often it was killed.
pub(super) async fn apply(bench: &Bench, arguments: &[&str], random: &mut Random, budget: u32) -> u32 {
    let mut kills = 0;
    // A run that gets through before its kill has nothing left for the next.
    for _ in 0..budget {
        let mut run = command(bench, arguments);
        let by_place = random.below(2) == 0;
        let after = Duration::from_millis(if random.below(2) == 0 { random.below(1_000) } else { random.below(8_000) });
        if by_place {
            let (point, most) = POINTS[usize::try_from(random.below(POINTS.len() as u64)).unwrap()];
            run.env("HATCHERY_KILL_AT", format!("{point}:{}", 1 + random.below(most)));
        }
        let mut child = run.spawn().unwrap();
        let ended = if by_place {
            tokio::time::timeout(4 * PATIENCE, child.wait()).await.expect("it ends").unwrap().code()
        } else {
            let ended = tokio::time::timeout(after, child.wait()).await;
            child.kill().await.unwrap();
            ended.ok().and_then(|ended| ended.unwrap().code())
        };
        match ended {
            None => kills += 1,
            Some(0) => break,
            Some(code) => {
                let output = child.wait_with_output().await.unwrap();
                panic!("{arguments:?} ended with {code}: {}", String::from_utf8_lossy(&output.stderr));
            }
        }
    }
    let output =
        tokio::time::timeout(4 * PATIENCE, command(bench, arguments).output()).await.expect("it ends").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{arguments:?}: {}\n{}", text(&output.stdout), text(&output.stderr));
    kills
}
