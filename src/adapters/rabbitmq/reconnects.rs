//! The metric of connections that are opened again.

use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{Counter, counter};

use crate::meter;

/// Counts the connections of one purpose that are opened again.
pub(super) struct Reconnects {
    again: Counter,
    was_open: AtomicBool,
}

impl Reconnects {
    pub(super) fn new(connection: &'static str) -> Self {
        let again = counter!(meter::RECONNECTS, "connection" => connection);
        Self { again, was_open: AtomicBool::new(false) }
    }

    /// Notes that a connection was opened.
    pub(super) fn opened(&self) {
        if self.was_open.swap(true, Ordering::Relaxed) {
            self.again.increment(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::adapters::rabbitmq::{AmqpUrl, RabbitMq};

    #[tokio::test]
    async fn every_connection_is_in_the_row_of_the_metric() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let url = AmqpUrl::new("amqp://localhost").expect("a valid URL");
        metrics::with_local_recorder(&recorder, || RabbitMq::new(url, "t"));
        let page = recorder.handle().render();
        let shown = page.lines().filter_map(|line| line.strip_prefix(meter::RECONNECTS)?.split('"').nth(1));
        let row = meter::METRICS.iter().find(|metric| metric.name == meter::RECONNECTS).expect("a row");
        let listed = row.labels[0].values.iter().copied();
        assert_eq!(shown.collect::<BTreeSet<_>>(), listed.collect());
    }

    #[test]
    fn the_first_connection_is_no_reconnect() {
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let reconnects = Reconnects::new("publishing");
            let shown = || recorder.handle().render();
            reconnects.opened();
            assert!(shown().contains(r#"hatchery_broker_reconnects_total{connection="publishing"} 0"#), "{}", shown());
            reconnects.opened();
            assert!(shown().contains(r#"hatchery_broker_reconnects_total{connection="publishing"} 1"#), "{}", shown());
        });
    }
}
