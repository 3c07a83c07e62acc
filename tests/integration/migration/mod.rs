//! A topology changes under live traffic while `kill -9` ends the apply again and again. No event is lost.

mod traffic;
mod under_traffic;

use std::{
    process::{Output, Stdio},
    time::{Duration, Instant},
};

use tokio::process::Command;

use crate::support::{
    broker::PATIENCE,
    cli::{Bench, is_busy},
    say,
};

/// Random numbers from a seed, so that a run can be repeated.
pub(crate) struct Random(u64);

impl Random {
    /// Takes the seed from `HATCHERY_SEED` or chooses one, and prints it.
    pub(crate) fn new(name: &str) -> Self {
        let given = std::env::var("HATCHERY_SEED").ok().map(|seed| seed.parse().expect("HATCHERY_SEED is a number"));
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
        // Each scenario has its own sequence of numbers.
        let salt = name.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        say(&format!("{name}: HATCHERY_SEED={seed}"));
        Self(seed ^ (salt << 20) ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*: good enough to choose where to kill.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}

/// The fail points, and how many times at most each may be passed until the kill.
const POINTS: [(&str, u64); 5] =
    [("apply.declared", 12), ("apply.step", 12), ("apply.confirmed", 40), ("apply.moved", 3), ("apply.deleted", 2)];

/// Returns the number of kills of a scenario, from `HATCHERY_KILLS`.
fn budget() -> u32 {
    std::env::var("HATCHERY_KILLS").map_or(1, |kills| kills.parse().expect("HATCHERY_KILLS is a number"))
}

fn command(bench: &Bench, arguments: &[&str]) -> Command {
    let mut command = Command::from(bench.process(arguments));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Applies until an apply succeeds. Before that, it kills up to `budget` applies: half of them at a fail point, half of
/// them after a random time. Returns the number of kills.
async fn apply(bench: &Bench, arguments: &[&str], random: &mut Random, budget: u32) -> u32 {
    let mut kills = 0;
    // An apply that succeeds before its kill leaves nothing to do for the next one.
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
            tokio::time::timeout(4 * PATIENCE, child.wait())
                .await
                .expect("the apply did not end in time")
                .unwrap()
                .code()
        } else {
            let ended = tokio::time::timeout(after, child.wait()).await;
            child.kill().await.unwrap();
            ended.ok().and_then(|ended| ended.unwrap().code())
        };
        match ended {
            None => kills += 1,
            Some(0) => break,
            Some(_) => assert_is_busy(arguments, &child.wait_with_output().await.unwrap()),
        }
    }
    let until = Instant::now() + PATIENCE;
    loop {
        let output = tokio::time::timeout(4 * PATIENCE, command(bench, arguments).output())
            .await
            .expect("the apply did not end in time")
            .unwrap();
        if output.status.success() {
            return kills;
        }
        assert!(Instant::now() < until, "{arguments:?}: the broker was busy for {PATIENCE:?}");
        assert_is_busy(arguments, &output);
    }
}

/// Fails unless an apply failed because the broker was busy. Then it is run again, as its message says.
fn assert_is_busy(arguments: &[&str], output: &Output) {
    let [out, error] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let code = output.status.code();
    assert!(code.is_some_and(|code| is_busy(code, &error)), "{arguments:?} ended with {code:?}: {out}\n{error}");
}
