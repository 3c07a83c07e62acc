//! Runs the sides of a case in turns, ours, bare, ours, bare and so on, and takes the medians of the rounds.

use hatchery_soak::console::Console;
use serde::Serialize;

use crate::{
    args::Args,
    cases::Case,
    load::Side,
    meter::{Cpu, Figure, Latency, Measured},
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
    pub(crate) rounds: Vec<Round>,
}

#[derive(Serialize)]
pub(crate) struct Round {
    ours: Measured,
    bare: Measured,
    ratio: f64,
}

/// The medians of one side.
#[derive(Serialize)]
pub(crate) struct Median {
    pub(crate) events_per_second: f64,
    pub(crate) cpu_micros_per_event: Cpu,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) figures: Vec<Figure>,
}

impl Round {
    /// Returns how long a step took on both sides.
    pub(crate) fn latencies(&self, step: usize) -> Option<(&Latency, &Latency)> {
        self.ours.latencies.get(step).zip(self.bare.latencies.get(step))
    }
}

impl Results {
    pub(crate) async fn run(
        args: &Args,
        case: &Case,
        around: &Surroundings,
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
            let ratio = ours.events_per_second / bare.events_per_second;
            rounds.push(Round { ours, bare, ratio });
        }
        console.end_progress();
        Ok(Self {
            case: case.name,
            about: case.about,
            beside: case.beside,
            ours: Median::of(rounds.iter().map(|round| &round.ours)),
            bare: Median::of(rounds.iter().map(|round| &round.bare)),
            ratio: Middle::of(rounds.iter().map(|round| round.ratio)),
            rounds,
        })
    }
}

impl Median {
    pub(crate) fn of<'a>(rounds: impl Iterator<Item = &'a Measured>) -> Self {
        let rounds: Vec<&Measured> = rounds.collect();
        let cpu = |of: fn(Cpu) -> f64| median(rounds.iter().map(|round| of(round.cpu_micros_per_event)));
        let figures = rounds.first().map_or(&[][..], |first| &first.figures);
        let figure = |figure: &Figure| {
            let same = rounds.iter().flat_map(|round| &round.figures).filter(|other| other.what == figure.what);
            Figure { value: median(same.map(|figure| figure.value)), ..*figure }
        };
        Self {
            events_per_second: median(rounds.iter().map(|round| round.events_per_second)),
            cpu_micros_per_event: Cpu {
                client: cpu(|cpu| cpu.client),
                broker: cpu(|cpu| cpu.broker),
                redis: cpu(|cpu| cpu.redis),
            },
            figures: figures.iter().map(figure).collect(),
        }
    }
}

/// The median of some numbers, with the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Middle {
    /// Returns zeros if there are no numbers.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let at = |n: usize| numbers.get(n).copied().unwrap_or_default();
        let (half, last) = (numbers.len() / 2, numbers.len().saturating_sub(1));
        let even = numbers.len() > 1 && numbers.len().is_multiple_of(2);
        Self { median: if even { f64::midpoint(at(half - 1), at(half)) } else { at(half) }, from: at(0), to: at(last) }
    }
}

/// Returns the median.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    Middle::of(numbers).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_has_the_median_of_its_own_rounds() {
        let round = |runs, ready| {
            let measured = Measured {
                events: 1,
                seconds: 1.0,
                events_per_second: runs,
                cpu_micros_per_event: Cpu::default(),
                figures: Vec::new(),
                latencies: Vec::new(),
            };
            measured.with("runs", runs, "").with("ready", ready, "ms")
        };
        let median = Median::of([round(1.0, 30.0), round(3.0, 20.0), round(2.0, 10.0)].iter());
        let values: Vec<_> = median.figures.iter().map(|figure| (figure.what, figure.value, figure.unit)).collect();
        assert_eq!(values, [("runs", 2.0, ""), ("ready", 20.0, "ms")]);
    }

    #[test]
    fn the_median_of_an_even_number_of_rounds_is_between_the_middle_two() {
        assert_eq!(Middle::of([4.0, 1.0, 2.0]), Middle { median: 2.0, from: 1.0, to: 4.0 });
        assert_eq!(Middle::of([4.0, 1.0, 2.0, 3.0]), Middle { median: 2.5, from: 1.0, to: 4.0 });
        assert_eq!(Middle::of([7.0]), Middle { median: 7.0, from: 7.0, to: 7.0 });
        assert_eq!(Middle::of([]), Middle { median: 0.0, from: 0.0, to: 0.0 });
    }
}
