//! The page about the metrics.

use std::fmt::Write as _;

use hatchery::internals::meter::{Kind, METRICS, Metric};

use super::markdown::{code, codes, page, sentence, table, wrapped};
use crate::listen::BUCKETS;

fn labels(metric: &Metric) -> String {
    let label = |label: &hatchery::internals::meter::Label| match label.values {
        [] => code(label.name),
        values => format!("{} ({})", code(label.name), codes(values.iter().copied())),
    };
    metric.labels.iter().map(label).collect::<Vec<_>>().join(", ")
}

fn kind(metric: &Metric) -> &'static str {
    match (metric.kind, metric.name.contains("_timestamp_")) {
        (Kind::Counter, _) => "counter",
        (Kind::Gauge, true) => "gauge, seconds since 1970",
        (Kind::Gauge, false) if metric.name.contains("_seconds") => "gauge, seconds",
        (Kind::Gauge, false) => "gauge",
        (Kind::Histogram, _) => "histogram, seconds",
    }
}

#[test]
fn the_page_of_the_metrics_is_as_the_code_says() {
    let mut text = format!(
        "# Metrics\n\n{}\n\n{}\n\n{}\n\n",
        wrapped(
            "`topology work --listen :9464` serves these metrics at `/metrics`, in the text format of Prometheus. They are those of one \
             process, so sum them. `topology publish` has no port: its events are not counted there. `topology serve --metrics :9464` \
             serves those of its publishing, and those that begin with `hatchery_status_`: each server shows the whole topology, so take \
             the `max` of them."
        ),
        wrapped(
            "The labels `type`, `source` and `schedule` have the names of the file as values. *Alert on* is the value at which \
             somebody should look; `deploy/prometheus/hatchery.rules.yml` has alert rules."
        ),
        wrapped(&format!(
            "A histogram has `_bucket`, `_sum` and `_count`. The upper bounds of its buckets are {} seconds.",
            BUCKETS.map(|bound| bound.to_string()).join(", ")
        ))
    );
    for metric in METRICS.iter().chain(&hatchery_serve::METRICS) {
        let _ =
            write!(text, "## `{}`\n\n{}\n\n- Kind: {}\n", metric.name, wrapped(&sentence(metric.about)), kind(metric));
        let labels = labels(metric);
        if !labels.is_empty() {
            let _ = writeln!(text, "{}", wrapped(&format!("- Labels: {labels}")).replace('\n', "\n  "));
        }
        if !metric.alert.is_empty() {
            let _ = writeln!(text, "- Alert on: {}", metric.alert);
        }
        text.push('\n');
    }
    text += "## Outcomes\n\nThe values of `outcome` in `hatchery_handled_total`:\n\n";
    let rows = [
        ("done", "the handler succeeded"),
        ("discarded", "the handler discarded the event"),
        ("cancelled", "the event was cancelled while it ran"),
        ("retried", "the run failed, and the event is tried again, also in place"),
        ("requeued", "the handler put the event off"),
        ("dropped", "the run failed in a type with `on-failure: drop`"),
        ("dead-lettered", "the event failed for good, or expired before it started; it is a dead letter"),
        ("expired", "the event expired before it started, and was discarded (`on-expiry: discard`)"),
        ("poison", "the message is no valid event; it is a dead letter"),
        ("rejected", "the copy of the event is larger than the broker takes; the broker dead-letters the delivery"),
    ];
    let known = METRICS.iter().flat_map(|metric| metric.labels).find(|label| label.name == "outcome").expect("a label");
    assert_eq!(known.values, rows.map(|(outcome, _)| outcome));
    table(&mut text, ["outcome", "meaning"], rows.map(|(outcome, about)| [code(outcome), about.to_owned()]));
    text += "\n";
    text += &wrapped(
        "Every worker reads the states of all schedules of its file from Redis each 10 s, also of types that it does not handle. \
         So take the `max` of the metrics of schedules by `schedule`.",
    );
    text += "\n";
    page("metrics", &text);
}
