//! Runs the sides of a case in turns: ours, bare, ours, bare and so on.

use hatchery_soak::console::Console;
use serde::Serialize;

use crate::{
    args::Args,
    cases::Case,
    meter::{Cpu, Late, Measured},
    side::Side,
    statistics::{Middle, median},
    surroundings::Surroundings,
};

/// The rounds of a case, and what they come to.
#[derive(Serialize)]
pub(crate) struct Results {
    pub(crate) case: &'static str,
    pub(crate) about: &'static str,
    pub(crate) beside: &'static str,
    pub(crate) ours: Median,
    pub(crate) bare: Median,
    /// Events a second of ours divided by those of the baseline, round by round.
    pub(crate) ratio: Middle,
    rounds: Vec<Round>,
}

#[derive(Serialize)]
struct Round {
    ours: Measured,
    bare: Measured,
    ratio: f64,
}

/// The medians of one side.
#[derive(Serialize)]
pub(crate) struct Median {
    pub(crate) events_per_second: f64,
    pub(crate) cpu_micros_per_event: Cpu,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) late_millis: Option<Late>,
}

impl Results {
    pub(crate) async fn run(
        args: &Args,
        case: &Case,
        around: &mut Surroundings,
        console: &mut Console,
    ) -> anyhow::Result<Self> {
        let load = args.load(case.events);
        let sides = 2 * args.rounds() as usize;
        let mut rounds = Vec::new();
        for _ in 0..args.rounds() {
            console.progress(2 * rounds.len(), sides, "");
            let ours = case.run(around, &load, Side::Ours).await?;
            console.progress(2 * rounds.len() + 1, sides, "");
            let bare = case.run(around, &load, Side::Bare).await?;
            rounds.push(Round { ours, bare, ratio: ours.events_per_second / bare.events_per_second });
        }
        console.end_progress();
        Ok(Self {
            case: case.name,
            about: case.about,
            beside: case.beside,
            ours: Median::of(rounds.iter().map(|round| round.ours)),
            bare: Median::of(rounds.iter().map(|round| round.bare)),
            ratio: Middle::of(rounds.iter().map(|round| round.ratio)),
            rounds,
        })
    }
}

impl Median {
    pub(crate) fn of(rounds: impl Iterator<Item = Measured>) -> Self {
        let rounds: Vec<Measured> = rounds.collect();
        let cpu = |of: fn(Cpu) -> f64| median(rounds.iter().map(|round| of(round.cpu_micros_per_event)));
        let late = |of: fn(Late) -> f64| median(rounds.iter().filter_map(|round| round.late_millis).map(of));
        let has_late = rounds.iter().any(|round| round.late_millis.is_some());
        Self {
            events_per_second: median(rounds.iter().map(|round| round.events_per_second)),
            cpu_micros_per_event: Cpu {
                client: cpu(|cpu| cpu.client),
                broker: cpu(|cpu| cpu.broker),
                redis: cpu(|cpu| cpu.redis),
            },
            late_millis: has_late.then(|| Late { p50: late(|late| late.p50), p99: late(|late| late.p99) }),
        }
    }
}
