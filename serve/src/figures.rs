//! What `topology status` finds, as metrics: its findings, and the figures of its tables.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hatchery::internals::meter::{Kind, Label, Metric};
use hatchery_admin::status::Status;
use metrics::{describe_gauge, gauge};
use serde_json::Value;
use tokio::time::sleep;

use crate::api::Api;

/// How long after a look the next one begins, however often the metrics are read: each look makes the broker list its queues.
const EVERY: Duration = Duration::from_secs(30);

const FINDING: &str = "hatchery_status_finding";
const LOOKED: &str = "hatchery_status_timestamp_seconds";
const EVENTS: &str = "hatchery_status_events";
const LATE: &str = "hatchery_status_late_seconds";
const RATE: &str = "hatchery_status_rate";
const WORKERS: &str = "hatchery_status_workers";
const MESSAGES: &str = "hatchery_status_source_messages";
const SOURCE_WORKERS: &str = "hatchery_status_source_workers";

const TYPE: Label = Label { name: "type", values: &[] };
const SOURCE: Label = Label { name: "source", values: &[] };

/// The metrics of the status. `docs/reference/metrics.md` is made from these rows.
pub static METRICS: [Metric; 8] = [
    row(FINDING, &[
        Label { name: "kind", values: &[] },
        Label { name: "severity", values: &["look", "stuck"] },
    ], "How often `topology status` finds this now: the label `kind` is that of its JSON, and has its section in the runbook")
    .alert("above 0 for two minutes"),
    row(LOOKED, &[], "When the status was last looked up, since 1970; 0 before the first look. The next look begins 30 s later")
        .alert("five minutes ago"),
    row(EVENTS, &[
        TYPE,
        Label { name: "state", values: &["due", "delayed", "retrying", "dead"] },
    ], "Events of the type that are due or run, wait for their time, wait in retry queues, or are dead letters; NaN if that is not known"),
    row(LATE, &[TYPE], "How long the oldest due event of the type has waited; NaN if that is not known"),
    row(RATE, &[
        TYPE,
        Label { name: "direction", values: &["in", "out"] },
    ], "Events that come into the processing queue of the type, or leave it, a second; NaN if that is not known"),
    row(WORKERS, &[TYPE], "Consumers of the processing queue of the type; NaN if that is not known"),
    row(MESSAGES, &[
        SOURCE,
        Label { name: "state", values: &["waiting", "dead"] },
    ], "Messages in the queue of the source, or in its dead-letter queue; NaN if that is not known"),
    row(SOURCE_WORKERS, &[SOURCE], "Consumers of the queue of the source; NaN if that is not known"),
];

const fn row(name: &'static str, labels: &'static [Label], about: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, labels, about, alert: "" }
}

/// Looks at the status again and again until the stop, and sets the metrics of [`METRICS`].
pub(crate) async fn measure(api: Arc<Api>) {
    for metric in &METRICS {
        describe_gauge!(metric.name, metric.unit(), metric.about);
    }
    gauge!(LOOKED).set(0.0);
    let (mut found, mut was_told) = (BTreeSet::new(), false);
    let looks = async {
        loop {
            match api.status().await {
                Ok(status) => {
                    set(&status, &mut found);
                    was_told = false;
                }
                Err(problem) if !was_told => {
                    tracing::warn!(
                        error = problem.detail(),
                        "the status cannot be looked up; its metrics stay as they are, trying again"
                    );
                    was_told = true;
                }
                Err(_) => {}
            }
            sleep(EVERY).await;
        }
    };
    api.stop.run_until_cancelled(looks).await;
}

/// Sets the metrics. `found` has the kinds and severities that were found before, which are 0 once they are found no more.
fn set(status: &Status, found: &mut BTreeSet<(String, String)>) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let values = status.findings.iter().filter_map(|one| serde_json::to_value(one).ok());
    let now: Vec<_> = values.map(|one| (word(&one["kind"]), word(&one["severity"]))).collect();
    found.extend(now.iter().cloned());
    for one in &*found {
        let count = now.iter().filter(|other| *other == one).count();
        gauge!(FINDING, "kind" => one.0.clone(), "severity" => one.1.clone()).set(number(u64::try_from(count).ok()));
    }
    for line in &status.types {
        let of = |metric: &'static str| gauge!(metric, "type" => line.name.clone());
        of(LATE).set(number(line.late_seconds));
        of(WORKERS).set(number(line.workers));
        let states = [("due", line.due), ("delayed", line.delayed), ("retrying", line.retrying), ("dead", line.dead)];
        for (state, events) in states {
            gauge!(EVENTS, "type" => line.name.clone(), "state" => state).set(number(events));
        }
        for (direction, rate) in [("in", line.in_rate), ("out", line.out_rate)] {
            gauge!(RATE, "type" => line.name.clone(), "direction" => direction).set(rate.unwrap_or(f64::NAN));
        }
    }
    for line in &status.sources {
        for (state, messages) in [("waiting", line.waiting), ("dead", line.dead)] {
            gauge!(MESSAGES, "source" => line.source.clone(), "state" => state).set(number(messages));
        }
        gauge!(SOURCE_WORKERS, "source" => line.source.clone()).set(number(line.workers));
    }
    gauge!(LOOKED).set(status.at.as_duration().as_secs_f64());
}

fn number(figure: Option<u64>) -> f64 {
    figure.map_or(f64::NAN, |figure| f64::from(u32::try_from(figure).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use hatchery_admin::status::{Finding, Queue};
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn a_finding_is_counted_and_is_0_once_it_is_gone() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let _set_here = metrics::set_default_local_recorder(&recorder);
        let queue = Queue { queue: "t.unrouted".to_owned(), messages: 1 };
        let (mut status, mut found) = (Status::default(), BTreeSet::new());
        status.findings.push(Finding::Unrouted { queue }.into());
        set(&status, &mut found);
        let line = "hatchery_status_finding{kind=\"unrouted\",severity=\"stuck\"}";
        assert!(recorder.handle().render().contains(&format!("{line} 1")), "{}", recorder.handle().render());
        status.findings.clear();
        set(&status, &mut found);
        assert!(recorder.handle().render().contains(&format!("{line} 0")), "{}", recorder.handle().render());
    }
}
