//! Measures publishing with confirms, and working with a handler that does nothing, and compares both with bare lapin
//! on the same queue.
//!
//! `scripts/bench-throughput --help` describes how to run it, and what each side does.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a benchmark that fails stops")]

mod bare;
mod load;
mod ours;

use std::{
    env, fs,
    io::{self, Write as _},
    process::{Command, Stdio},
    time::Duration,
};

use self::load::Load;

/// A kind of event: the name of its type in the file, and its title in the table.
struct Kind {
    event_type: &'static str,
    title: &'static str,
}

const KINDS: [Kind; 2] =
    [Kind { event_type: "plain", title: "no coalescing" }, Kind { event_type: "latest", title: "coalesce: latest" }];

fn main() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let number = |name: &str| env::var(name).unwrap().parse::<usize>().unwrap();
    let load = Load {
        events: number("BENCH_EVENTS"),
        payload: vec![b'x'; number("BENCH_BYTES")],
        window: 1_000,
        prefetch: 1_000,
        concurrency: 100,
    };
    let rounds = number("BENCH_ROUNDS");
    let (amqp, redis) = (env::var("AMQP_URL").unwrap(), env::var("REDIS_URL").unwrap());
    let text = topology(&load);
    apply(&text);

    let Load { events, window, prefetch, concurrency, .. } = load;
    say(&format!(
        "{events} events of {} bytes, {window} unconfirmed at a time, prefetch {prefetch},",
        load.payload.len()
    ));
    say(&format!("concurrency {concurrency}; {rounds} rounds, in turns; events a second, the median\n"));
    say(&format!("{:<9} {:<18} {:>10} {:>10}   {:<6} {}", "", "", "hatchery", "bare lapin", "ratio", "(from, to)"));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let hatchery = ours::connect(&text, &amqp, &redis).await;
        for Kind { event_type, title } in KINDS {
            let (mut publish, mut work) = (Pairs::default(), Pairs::default());
            for round in 0..rounds {
                let turns = if round % 2 == 0 { [true, false] } else { [false, true] };
                for ours in turns {
                    publish.add(
                        ours,
                        if ours {
                            ours::publish(&hatchery, event_type, &load).await
                        } else {
                            bare::publish(&amqp, event_type, &load).await
                        },
                    );
                    bare::purge(&amqp, event_type).await;
                }
                for ours in turns {
                    ours::publish(&hatchery, event_type, &load).await;
                    work.add(
                        ours,
                        if ours {
                            ours::work(&hatchery, event_type, &load).await
                        } else {
                            bare::work(&amqp, event_type, &load).await
                        },
                    );
                }
            }
            publish.print("publish", title, events);
            work.print("work", title, events);
        }
        hatchery.close().await;
    });
}

fn topology(load: &Load) -> String {
    let Load { prefetch, concurrency, .. } = load;
    format!(
        "version: 1\nname: bench\ndefaults: {{ prefetch: {prefetch}, concurrency: {concurrency} }}\n\
         types:\n  plain: {{}}\n  latest: {{ coalesce: latest }}\n"
    )
}

fn apply(text: &str) {
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("topology.yaml");
    fs::write(&file, text).unwrap();
    let mut apply = Command::new(env!("CARGO_BIN_EXE_topology"));
    apply.args(["apply", "--auto-approve", "-f"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null());
    assert!(apply.status().unwrap().success(), "topology apply");
}

/// The times of both sides.
#[derive(Default)]
struct Pairs {
    ours: Vec<Duration>,
    bare: Vec<Duration>,
}

impl Pairs {
    fn add(&mut self, ours: bool, time: Duration) {
        if ours { self.ours.push(time) } else { self.bare.push(time) }
    }

    /// Prints the rates and their ratio, each the median of the rounds. A ratio above 1 means that hatchery is faster.
    fn print(&self, what: &str, title: &str, events: usize) {
        let pairs = self.ours.iter().zip(&self.bare);
        let mut ratios: Vec<f64> = pairs.map(|(ours, bare)| bare.as_secs_f64() / ours.as_secs_f64()).collect();
        ratios.sort_by(f64::total_cmp);
        #[allow(clippy::cast_precision_loss, reason = "a rate for people")]
        let rate = |times: &[Duration]| {
            let mut times = times.to_vec();
            times.sort();
            events as f64 / times[times.len() / 2].as_secs_f64()
        };
        say(&format!(
            "{what:<9} {title:<18} {:>10.0} {:>10.0}   {:<6.2} ({:.2}, {:.2})",
            rate(&self.ours),
            rate(&self.bare),
            ratios[ratios.len() / 2],
            ratios[0],
            ratios[ratios.len() - 1],
        ));
    }
}

fn say(line: &str) {
    writeln!(io::stdout().lock(), "{line}").unwrap();
}
