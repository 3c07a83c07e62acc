//! The page about the metrics.

use std::fmt::Write as _;

use hatchery::internals::meter::{Kind, METRICS, Metric};

use super::markdown::{code, codes, page, sentence, wrapped};
use crate::listen::BUCKETS;

fn labels(metric: &Metric) -> String {
    let label = |label: &hatchery::internals::meter::Label| match label.values {
        [] => code(label.name),
        values => format!("{} ({})", code(label.name), codes(values.iter().copied())),
    };
    metric.labels.iter().map(label).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_page_of_the_metrics_is_as_the_code_says() {
    let all = || METRICS.iter().chain(&hatchery_serve::METRICS);
    let is_counter = |metric: &&Metric| metric.kind == Kind::Counter;
    let histograms = all().filter(|metric| metric.kind == Kind::Histogram).map(|metric| metric.name);
    assert!(all().all(|metric| is_counter(&metric) == metric.name.ends_with("_total")), "a counter by another name");
    let mut text = format!(
        "# Metrics\n\n{}\n\n{}\n\n{}\n\n",
        wrapped(
            "`topology work --listen :9464` serves these metrics at `/metrics`, in the text format of Prometheus. They are those of one \
             process, so sum them. `topology publish` has no port: its events are not counted there. `topology serve --metrics :9464` \
             serves those of its publishing, and those that begin with `hatchery_status_`. Take the `max` of these, and of the metrics \
             of schedules: each server and each worker tells them of the whole topology."
        ),
        wrapped(
            "The labels `type`, `source` and `schedule` have the names of the file as values. *Alert on* is the value at which \
             somebody should look; `deploy/prometheus/hatchery.rules.yml` has alert rules."
        ),
        wrapped(&format!(
            "A metric whose name ends in `_total` is a counter; {} are histograms in seconds, with `_bucket`, `_sum` and `_count`; all \
             others are gauges. The upper bounds of the buckets are {}.",
            codes(histograms),
            BUCKETS.map(|bound| bound.to_string()).join(", ")
        ))
    );
    for metric in all() {
        let _ = write!(text, "## `{}`\n\n{}\n\n", metric.name, wrapped(&sentence(metric.about)));
        let labels = labels(metric);
        if !labels.is_empty() {
            let _ = writeln!(text, "{}", wrapped(&format!("- Labels: {labels}")).replace('\n', "\n  "));
        }
        if !metric.alert.is_empty() {
            let _ = writeln!(text, "- Alert on: {}", metric.alert);
        }
        if !labels.is_empty() || !metric.alert.is_empty() {
            text.push('\n');
        }
    }
    text += "## Outcomes\n\n";
    text += &wrapped(
        "`retried` counts tries in place too. An event that expires counts as `dead-lettered`, or with `on-expiry: discard` as \
         `expired`. `poison` is no valid event, and of a `rejected` one the copy is larger than the broker takes: both are dead letters.",
    );
    text += "\n";
    page("metrics", &text);
}
