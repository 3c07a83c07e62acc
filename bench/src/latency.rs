//! How long the steps of an event take: percentiles, and their table.

use hatchery_soak::{console::Console, lateness::Lateness, table::Table};
use serde::Serialize;

use crate::{rounds::Results, statistics::median};

/// How long a step takes, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Latency {
    step: &'static str,
    p50: f64,
    p99: f64,
    p999: f64,
}

impl Latency {
    /// Takes the percentiles of these times, which are in microseconds.
    pub(crate) fn of(step: &'static str, micros: impl IntoIterator<Item = i64>) -> anyhow::Result<Self> {
        let times = Lateness::of(micros);
        let millis = |permille| anyhow::Ok(f64::from(i32::try_from(times.permille(permille))?) / 1e3);
        Ok(Self { step, p50: millis(500)?, p99: millis(990)?, p999: millis(999)? })
    }
}

/// Prints the latencies of the cases that have some: the medians of the rounds, and of their ratios.
pub(crate) fn print(all: &[Results], console: &Console) {
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
