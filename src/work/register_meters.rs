//! The metrics of what Redis knows: of each schedule, and how long the oldest due event of each type waits. Every worker reads them, also
//! for types that it does not handle.

use std::time::Duration;

use metrics::{Gauge, gauge};
use tokio::time::Instant;

use super::lane::Common;
use crate::{
    domain::{
        schedule::{definition::Definition, run::RunOutcome, state::ScheduleState},
        spec::Topology,
        words::EventType,
    },
    meter,
    ports::StateKind,
};

/// The time between two readings of how long events wait.
const APART: Duration = Duration::from_secs(30);

/// The metrics of all schedules of the file.
pub(super) struct ScheduleMeters<'a>(Vec<(&'a Definition, Meters)>);

struct Meters {
    overdue: Gauge,
    last_start: Gauge,
    failed: Gauge,
}

impl<'a> ScheduleMeters<'a> {
    pub(super) fn new(topology: &'a Topology) -> Self {
        let meters = |definition: &Definition| {
            let name = definition.name.as_str();
            Meters {
                overdue: gauge!(meter::SCHEDULE_OVERDUE, "schedule" => name.to_owned()),
                last_start: gauge!(meter::SCHEDULE_LAST_START, "schedule" => name.to_owned()),
                failed: gauge!(meter::SCHEDULE_FAILED, "schedule" => name.to_owned()),
            }
        };
        Self(topology.schedules.values().map(|definition| (definition, meters(definition))).collect())
    }

    /// Reads the states of the schedules. While Redis does not answer, the metrics stay as they are.
    pub(super) async fn read(&self, common: &Common) {
        let states = match common.register.states(StateKind::Schedule).await {
            Ok(states) => states,
            Err(error) => return tracing::debug!(%error, "the states of the schedules are not read"),
        };
        let now = common.clock.shared();
        for (definition, meters) in &self.0 {
            let state =
                states.get(definition.name.as_str()).and_then(|text| ScheduleState::parse(text)).unwrap_or_default();
            // The event of another definition is not the one that the file asks for. `topology status` finds it.
            let due = state.overdue_since(now).filter(|_| state.digest == definition.digest());
            meters.overdue.set(due.map_or(0.0, |due| now.duration_since(due).as_secs_f64()));
            if let Some(run) = &state.run {
                meters.last_start.set(crate::schedules::time(run.started).as_duration().as_secs_f64());
                meters.failed.set(if matches!(run.outcome, Some(RunOutcome::DeadLetter(_))) { 1.0 } else { 0.0 });
            }
        }
    }
}

/// The metrics of how long the oldest due event of each type waits.
pub(super) struct WaitingMeters {
    types: Vec<EventType>,
    gauges: Vec<Gauge>,
    next: Instant,
}

impl WaitingMeters {
    pub(super) fn new(topology: &Topology) -> Self {
        let registered = topology.types.iter().filter(|(_, spec)| spec.register);
        let types: Vec<EventType> = registered.map(|(name, _)| name.clone()).collect();
        let gauges = types.iter().map(|name| gauge!(meter::OLDEST_DUE, "type" => name.to_string())).collect();
        Self { types, gauges, next: Instant::now() }
    }

    /// Reads how long events wait, if it is time to. While Redis does not answer, the metrics stay as they are.
    pub(super) async fn read(&mut self, common: &Common) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + APART;
        let now = common.clock.shared();
        match common.register.oldest_due(&self.types, now).await {
            Ok(oldest) => {
                for (gauge, due) in self.gauges.iter().zip(oldest) {
                    gauge.set(due.map_or(f64::NAN, |due| now.duration_since(due).as_secs_f64()));
                }
            }
            Err(error) => tracing::debug!(%error, "how long events wait is not read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::{Outcome, Run, testing::TestHatchery};

    const FILE: &str = "
version: 1
name: t
types: { good: {}, bad: {}, unhandled: {} }
schedules:
  good: { type: good, every: 1m }
  bad: { type: bad, every: 1m }
  unhandled: { type: unhandled, every: 1m }
";

    #[tokio::test(start_paused = true)]
    async fn a_schedule_that_does_not_run_is_seen_in_the_metrics() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _counted_here = metrics::set_default_local_recorder(&recorder);
        let hatchery = TestHatchery::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"));
        let good = async |_: Run| Ok::<_, String>(Outcome::Done);
        let bad = async |_: Run| Ok::<_, String>(Outcome::dead_letter("550"));
        hatchery.start(hatchery.worker().handle("good", good).handle("bad", bad));
        hatchery.advance(Duration::from_mins(5)).await.expect("the worker runs");
        let page = recorder.handle().render();
        hatchery.stop().await.expect("the worker ends");

        let value = |metric: &str, schedule: &str| -> Option<f64> {
            let head = format!("hatchery_schedule_{metric}{{schedule=\"{schedule}\"}} ");
            page.lines().find_map(|line| line.strip_prefix(&head)?.parse().ok())
        };
        let all = |metric: &str| ["good", "bad", "unhandled"].map(|schedule| value(metric, schedule));
        let [good, bad, unhandled] = all("overdue_seconds");
        assert_eq!((good, bad), (Some(0.0), Some(0.0)), "{page}");
        assert!(unhandled.is_some_and(|late| late > 180.0), "{page}");
        assert_eq!(all("failed"), [Some(0.0), Some(1.0), Some(0.0)], "{page}");
        let [good, bad, unhandled] = all("last_start_timestamp_seconds");
        assert!(good > Some(0.0) && bad > Some(0.0), "{page}");
        assert_eq!(unhandled, Some(0.0), "{page}");
    }
}
