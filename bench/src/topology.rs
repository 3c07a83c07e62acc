//! The topology of the benchmark.

use std::time::Duration;

use crate::args::Args;

/// The scheduler's exchange.
pub(crate) const SCHEDULER: &str = "bench.scheduler";

/// A type of events.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type {
    /// The register is on, and nothing coalesces.
    Each,
    /// `coalesce: latest`.
    Latest,
    /// `immediate: latest` with a window.
    Windowed,
    /// `register: off`.
    Unregistered,
}

impl Type {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Each => "each",
            Self::Latest => "latest",
            Self::Windowed => "windowed",
            Self::Unregistered => "unregistered",
        }
    }

    pub(crate) fn queue(self) -> String {
        format!("bench.processor.{}", self.name())
    }
}

/// Returns the file. It has a named hatchery of this delay.
pub(crate) fn text(args: &Args, hatchery: Duration) -> String {
    let Args { prefetch, concurrency, life_cycle, .. } = args;
    let [each, latest, windowed, unregistered] =
        [Type::Each, Type::Latest, Type::Windowed, Type::Unregistered].map(Type::name);
    format!(
        "version: 1\n\
         name: bench\n\
         life-cycle: {life_cycle}\n\
         hatcheries: [{}s]\n\
         ladder: {{ resolution: 250ms, horizon: 365d }}\n\
         defaults:\n  prefetch: {prefetch}\n  concurrency: {concurrency}\n  handler-timeout: 10s\n  retry: {{ delays: [1m] }}\n\
         types:\n  {each}: {{}}\n  {latest}: {{ coalesce: latest }}\n  {unregistered}: {{ register: off }}\n\
         \x20 {windowed}: {{ coalesce: {{ immediate: latest, window: 1s }} }}\n",
        hatchery.as_secs()
    )
}
