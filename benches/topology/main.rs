//! Measures `topology apply`, `plan` and `status` of many types, and compares them with the time that the broker itself
//! takes for the same objects.
//!
//! `scripts/bench-topology --help` describes how to run it, and what each side does.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that fails stops")]

mod bare;
mod broker;

use std::{
    env,
    fmt::Write as _,
    fs,
    io::{self, Write as _},
    path::Path,
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

use hatchery::internals::compile::{Desired, compile};

use self::broker::Broker;

/// The largest ratio of `apply` to a bare loop.
const APPLY_LIMIT: f64 = 1.3;
/// The largest ratio of `plan` to `curl`.
const PLAN_LIMIT: f64 = 1.5;
/// The longest time that `status` may take beside what `curl` takes.
const STATUS_LIMIT: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let number = |name: &str| env::var(name).unwrap().parse::<usize>().unwrap();
    let (types, rounds, plans) = (number("BENCH_TYPES"), number("BENCH_ROUNDS"), number("BENCH_PLANS"));
    let text = topology(types, number("BENCH_DELAYS"));
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("topology.yaml");
    fs::write(&file, &text).unwrap();
    let desired = compile(&hatchery::file::read(&text, "topology.yaml").unwrap()).unwrap();
    let (exchanges, queues, bindings) = (desired.exchanges.len(), desired.queues.len(), desired.bindings.len());
    say(&format!("{types} types: {exchanges} exchanges, {queues} queues, {bindings} bindings"));

    let (mut applied, mut bare) = (Vec::new(), Vec::new());
    let (mut planned, mut listed) = (Vec::new(), Vec::new());
    let (mut shown, mut figures) = (Vec::new(), Vec::new());
    for round in 1..=rounds {
        let mut other = None;
        if round % 2 == 0 {
            other = Some(one_bare(&desired));
        }
        let broker = Broker::start();
        if round == 1 {
            say(&format!("RabbitMQ {}", broker.version()));
        }
        let one = run(&broker, &file, &["apply", "--auto-approve"]);
        assert_eq!(broker.queues(), queues, "apply has created all queues");
        // Both sides of a pair use the same broker, and take turns at being first.
        for pair in 0..plans {
            let plan = || run(&broker, &file, &["plan", "--detailed-exitcode"]);
            if pair % 2 == 0 {
                planned.push(plan());
                listed.push(broker.lists());
            } else {
                listed.push(broker.lists());
                planned.push(plan());
            }
            let status = || run(&broker, &file, &["status"]);
            if pair % 2 == 0 {
                shown.push(status());
                figures.push(broker.figures());
            } else {
                figures.push(broker.figures());
                shown.push(status());
            }
        }
        drop(broker);
        let other = other.unwrap_or_else(|| one_bare(&desired));
        say(&format!("round {round}: apply {}, the bare loop {}", seconds(one), seconds(other)));
        applied.push(one);
        bare.push(other);
    }
    let mut holds = compare("apply", &applied, "the bare loop", &bare, APPLY_LIMIT);
    holds &= compare("plan", &planned, "curl", &listed, PLAN_LIMIT);
    holds &= within("status", &shown, "curl", &figures, STATUS_LIMIT);
    if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns the file, with this many types and retry delays for each type.
fn topology(types: usize, delays: usize) -> String {
    let delays: Vec<String> = (1..=delays).map(|n| format!("{n}m")).collect();
    let mut text = format!(
        "version: 1\nname: bench\ndefaults:\n  retry: {{ delays: [{}], max-attempts: 6 }}\ntypes:\n",
        delays.join(", ")
    );
    for n in 0..types {
        writeln!(text, "  type-{n:04}: {{}}").unwrap();
    }
    text
}

/// Runs `topology`, and returns the time of the whole process.
fn run(broker: &Broker, file: &Path, verb: &[&str]) -> Duration {
    let mut command = Command::new(env!("CARGO_BIN_EXE_topology"));
    command
        .args(verb)
        .env("TOPOLOGY_FILE", file)
        .env("AMQP_URL", &broker.amqp)
        .env("RABBITMQ_MANAGEMENT_URL", &broker.management)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let started = Instant::now();
    let status = command.status().unwrap();
    let elapsed = started.elapsed();
    assert!(status.success(), "topology {verb:?}: {status}");
    elapsed
}

fn one_bare(desired: &Desired) -> Duration {
    let broker = Broker::start();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let started = Instant::now();
    runtime.block_on(bare::declare(&broker.amqp, desired)).unwrap();
    let elapsed = started.elapsed();
    assert_eq!(broker.queues(), desired.queues.len(), "the bare loop has created all queues");
    elapsed
}

/// Prints the times of both sides, and returns whether the ratio is within its limit. The ratio is the median of the
/// pairs' ratios.
fn compare(what: &str, ours: &[Duration], other: &str, theirs: &[Duration], limit: f64) -> bool {
    let pairs = ours.iter().zip(theirs);
    let mut ratios: Vec<f64> = pairs.map(|(one, two)| one.as_secs_f64() / two.as_secs_f64()).collect();
    ratios.sort_by(f64::total_cmp);
    let ratio = ratios[ratios.len() / 2];
    let verdict = if ratio <= limit { "holds" } else { "DOES NOT HOLD" };
    say(&format!(
        "{what}: {} (best {}); {other}: {} (best {}); ratio {ratio:.2} ({:.2} to {:.2}), at most {limit}: {verdict}",
        seconds(median(ours)),
        seconds(*ours.iter().min().unwrap()),
        seconds(median(theirs)),
        seconds(*theirs.iter().min().unwrap()),
        ratios[0],
        ratios[ratios.len() - 1],
    ));
    ratio <= limit
}

/// Prints the times of both sides, and returns whether the median of the differences is within its limit.
fn within(what: &str, ours: &[Duration], other: &str, theirs: &[Duration], limit: Duration) -> bool {
    let more: Vec<Duration> = ours.iter().zip(theirs).map(|(one, two)| one.saturating_sub(*two)).collect();
    let holds = median(&more) <= limit;
    say(&format!(
        "{what}: {} (best {}); {other}: {} (best {}); {} more, at most {}: {}",
        seconds(median(ours)),
        seconds(*ours.iter().min().unwrap()),
        seconds(median(theirs)),
        seconds(*theirs.iter().min().unwrap()),
        seconds(median(&more)),
        seconds(limit),
        if holds { "holds" } else { "DOES NOT HOLD" },
    ));
    holds
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

fn seconds(time: Duration) -> String {
    format!("{:.2} s", time.as_secs_f64())
}

fn say(line: &str) {
    writeln!(io::stdout().lock(), "{line}").unwrap();
}
