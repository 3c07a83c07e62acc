//! The tables, which fit 80 columns, the list of the cases, and the file with every round.

use std::{fs, path::Path};

use anyhow::Context as _;
use hatchery_soak::{
    console::Console,
    table::{Table, grouped},
};
use serde::Serialize;

use crate::{
    args::Args,
    cases::Case,
    meter::{Cpu, Figure, Latency},
    peers,
    rounds::{Results, median},
    surroundings::{About, load_average},
};

/// Prints the cases with their baselines.
pub(crate) fn list(cases: &[&Case], console: &Console) {
    for case in cases {
        console.say(&format!("{:<25} {}", case.name, case.about));
        console.say(&format!("{:<25} beside: {}", "", case.beside));
    }
}

pub(crate) fn print(all: &[Results], console: &Console) {
    let mut table = Table::new(&["case", "ours/s", "bare/s", "ratio", "from..to", "CPU ours", "CPU bare"]).narrow();
    for results in all {
        let ratio = results.ratio;
        table.tell(&[
            results.case,
            &whole(results.ours.events_per_second),
            &whole(results.bare.events_per_second),
            &share(ratio.median),
            &format!("{}..{}", share(ratio.from), share(ratio.to)),
            &cpu(results.ours.cpu_micros_per_event),
            &cpu(results.bare.cpu_micros_per_event),
        ]);
    }
    console.say(&table.render());
    console.note("/s: events a second, the median; ratio: ours to bare, the median, and all rounds");
    console.note("ours and bare are the two sides of a case; --list says what each is compared with");
    console.note("CPU: microseconds an event of client+broker+redis, the median");
    for Results { case, ours, bare, .. } in all {
        for (ours, bare) in ours.figures.iter().zip(&bare.figures) {
            console.note(&format!("{case}, {}: ours {}; bare {}", ours.what, shown(ours), shown(bare)));
        }
    }
}

/// Prints the latencies of the cases that have some: the medians of the rounds, and of their ratios.
pub(crate) fn print_latencies(all: &[Results], console: &Console) {
    let head = ["latency, ms", "p50", "p99", "p99.9", "bare", "p99", "p99.9", "ratio", "p99"];
    let mut table = Table::new(&head).narrow();
    let (mut sides, mut is_empty) = (Vec::new(), true);
    for results in all {
        for n in 0.. {
            sides.clear();
            sides.extend(results.rounds.iter().filter_map(|round| round.latencies(n)));
            let Some((first, _)) = sides.first() else { break };
            let middle = |of: fn(&(&Latency, &Latency)) -> f64| format!("{:.2}", median(sides.iter().map(of)));
            table.tell(&[
                &format!("{} {}", results.case.trim_start_matches("latency-"), first.step),
                &middle(|(ours, _)| ours.p50),
                &middle(|(ours, _)| ours.p99),
                &middle(|(ours, _)| ours.p999),
                &middle(|(_, bare)| bare.p50),
                &middle(|(_, bare)| bare.p99),
                &middle(|(_, bare)| bare.p999),
                &middle(|(ours, bare)| ours.p50 / bare.p50),
                &middle(|(ours, bare)| ours.p99 / bare.p99),
            ]);
            is_empty = false;
        }
    }
    if !is_empty {
        console.say(&table.render());
        console.note("confirm, start: since the event was to be published; late: since it was due");
        console.note("ack: from the handler's end until the acknowledgement is written");
        console.note("ratio: ours to bare, p50 and p99");
    }
}

/// Prints what the figures depend on.
pub(crate) fn print_about(about: &About, console: &Console) {
    let About { rabbitmq, redis, cores, load_at_start } = about;
    console.note(&format!(
        "RabbitMQ {rabbitmq}, Redis {redis}, {cores} cores, load average {load_at_start} before and {} after",
        load_average()
    ));
}

#[derive(Serialize)]
struct File<'a> {
    about: &'a About,
    bytes: usize,
    prefetch: u16,
    concurrency: u16,
    cases: &'a [Results],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    peers: &'a [peers::Results],
}

/// Writes every round to a file.
pub(crate) fn write(
    file: &Path,
    args: &Args,
    about: &About,
    cases: &[Results],
    peers: &[peers::Results],
) -> anyhow::Result<()> {
    let Args { bytes, prefetch, concurrency, .. } = *args;
    let content = File { about, bytes, prefetch, concurrency, cases, peers };
    let text = serde_json::to_string_pretty(&content)?;
    fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}

/// Formats a ratio with at least two digits, unless it is below 0.01.
fn share(ratio: f64) -> String {
    if ratio < 0.1 { format!("{ratio:.3}") } else { format!("{ratio:.2}") }
}

/// Formats a figure with at least two digits.
fn shown(figure: &Figure) -> String {
    let Figure { value, unit, .. } = *figure;
    let number = if value < 10.0 { format!("{value:.1}") } else { whole(value) };
    format!("{number} {unit}").trim_end().to_owned()
}

pub(crate) fn whole(number: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate, far below 2^53")]
    grouped(number.round() as u64)
}

pub(crate) fn cpu(cpu: Cpu) -> String {
    format!("{:.0}+{:.0}+{:.0}", cpu.client, cpu.broker, cpu.redis)
}
