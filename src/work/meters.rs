//! The metrics of one type in a worker, beside its counters: made when the worker starts, and not looked up for each event.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tokio::time::Instant;

use crate::{
    domain::{event::Event, register::ClaimAnswer, words::EventType},
    meter,
    ports::Clock,
};

pub(super) struct Meters {
    in_flight: Gauge,
    duration: Histogram,
    lateness: Histogram,
    pub(super) leases_lost: Counter,
    claims: Claims,
}

/// The answers to claims. The last one is of a key in Redis that cannot be read.
struct Claims {
    run: Counter,
    alone: Counter,
    busy: Counter,
    later: Counter,
    stale: Counter,
    replaced: Counter,
    unreadable: Counter,
}

impl Meters {
    pub(super) fn new(event_type: &EventType) -> Self {
        let name = event_type.as_str().to_owned();
        let answer = |answer: &'static str| counter!(meter::CLAIMS, "type" => name.clone(), "answer" => answer);
        Self {
            in_flight: gauge!(meter::IN_FLIGHT, "type" => name.clone()),
            duration: histogram!(meter::HANDLER_DURATION, "type" => name.clone()),
            lateness: histogram!(meter::LATENESS, "type" => name.clone()),
            leases_lost: counter!(meter::LEASES_LOST, "type" => name.clone()),
            claims: Claims {
                run: answer("run"),
                alone: answer("alone"),
                busy: answer("busy"),
                later: answer("later"),
                stale: answer("stale"),
                replaced: answer("replaced"),
                unreadable: answer("unreadable"),
            },
        }
    }

    /// Counts the answer to a claim. `None` if the key in Redis cannot be read.
    pub(super) fn claimed(&self, answer: Option<&ClaimAnswer>) {
        let Claims { run, alone, busy, later, stale, replaced, unreadable } = &self.claims;
        let counter = match answer {
            Some(ClaimAnswer::Run { .. }) => run,
            Some(ClaimAnswer::Alone) => alone,
            Some(ClaimAnswer::Busy) => busy,
            Some(ClaimAnswer::Later(_)) => later,
            Some(ClaimAnswer::Stale) => stale,
            Some(ClaimAnswer::Replaced) => replaced,
            None => unreadable,
        };
        counter.increment(1);
    }

    /// Notes that a handler starts. `is_first` tells whether it is the event's first run: a retry is late on purpose, and so is
    /// an event that a person has sent again.
    pub(super) fn start(&self, event: &Event, is_first: bool, clock: &dyn Clock) -> Running<'_> {
        if is_first && !event.by_hand {
            let late = clock.shared().duration_since(event.due());
            self.lateness.record(Duration::try_from(late).unwrap_or_default());
        }
        self.in_flight.increment(1.0);
        Running { meters: self, since: Instant::now() }
    }
}

/// A handler that runs. It is in flight until this is dropped.
pub(super) struct Running<'a> {
    meters: &'a Meters,
    since: Instant,
}

impl Running<'_> {
    /// Records how long the run took. A run that is given up has no duration.
    pub(super) fn ended(&self) {
        self.meters.duration.record(self.since.elapsed());
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.meters.in_flight.decrement(1.0);
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use crate::{NewEvent, Outcome, Run, testing::TestHatchery};

    const FILE: &str = "
version: 1
name: t
hatcheries: [5s]
types:
  mail: { retry: { delays: [10s], jitter: 0% } }
  import: { exclusive: true }
";

    /// Fails in the first run of an event. The payload says what follows from the second.
    async fn mail(run: Run) -> Result<Outcome, String> {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        match &run.event.payload[..] {
            _ if run.event.attempts == 0 => Err("421".to_owned()),
            b"letter" => Ok(Outcome::dead_letter("550")),
            _ => Ok(Outcome::Done),
        }
    }

    async fn import(_: Run) -> Result<Outcome, String> {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        Ok(Outcome::Done)
    }

    #[tokio::test(start_paused = true)]
    async fn the_metrics_count_events_by_type_from_their_publish_to_their_end() {
        let recorder = PrometheusBuilder::new().set_buckets(&[1.0, 2.5, 5.0]).expect("buckets").build_recorder();
        let _counted_here = metrics::set_default_local_recorder(&recorder);
        let hatchery = TestHatchery::new(crate::file::read(FILE, "topology.yaml").expect("a valid file"));
        hatchery.start(hatchery.worker().handle("mail", mail).handle("import", import));
        let seconds = std::time::Duration::from_secs;
        let events = [
            NewEvent::new("mail", "letter"),
            NewEvent::new("mail", "").delay(seconds(5)),
            NewEvent::new("mail", "").delay(seconds(7)),
            NewEvent::new("import", "").reference("1"),
            NewEvent::new("import", "").reference("1"),
        ];
        for event in events {
            hatchery.publisher().publish(event).await.expect("published");
        }
        hatchery.advance(seconds(1)).await.expect("the worker runs");
        let running = recorder.handle().render();
        hatchery.advance(seconds(60)).await.expect("the worker runs");
        let page = recorder.handle().render();
        hatchery.stop().await.expect("the worker ends");

        for line in [r#"hatchery_in_flight{type="mail"} 1"#, r#"hatchery_consuming{type="import"} 1"#] {
            assert!(running.lines().any(|shown| shown == line), "{line} is not in\n{running}");
        }
        for line in [
            r#"hatchery_published_total{type="mail",route="now"} 1"#,
            r#"hatchery_published_total{type="mail",route="hatchery"} 1"#,
            r#"hatchery_published_total{type="mail",route="ladder"} 1"#,
            r#"hatchery_publish_failures_total{type="mail"} 0"#,
            r#"hatchery_delivered_total{type="mail"} 6"#,
            r#"hatchery_handled_total{type="mail",outcome="retried"} 3"#,
            r#"hatchery_handled_total{type="mail",outcome="done"} 2"#,
            r#"hatchery_handled_total{type="mail",outcome="dead-lettered"} 1"#,
            r#"hatchery_handled_total{type="import",outcome="done"} 2"#,
            r#"hatchery_claims_total{type="mail",answer="run"} 6"#,
            r#"hatchery_claims_total{type="import",answer="run"} 2"#,
            r#"hatchery_in_flight{type="mail"} 0"#,
            r#"hatchery_leases_lost_total{type="mail"} 0"#,
            r#"hatchery_handler_duration_seconds_bucket{type="mail",le="1"} 0"#,
            r#"hatchery_handler_duration_seconds_bucket{type="mail",le="2.5"} 6"#,
            // Of each event its first run alone.
            r#"hatchery_lateness_seconds_count{type="mail"} 3"#,
            r#"hatchery_lateness_seconds_bucket{type="mail",le="1"} 3"#,
            // The second one waited for the first one of its reference.
            r#"hatchery_lateness_seconds_bucket{type="import",le="2.5"} 1"#,
            r#"hatchery_lateness_seconds_count{type="import"} 2"#,
        ] {
            assert!(page.lines().any(|shown| shown == line), "{line} is not in\n{page}");
        }
        let busy = page.lines().find(|line| line.starts_with(r#"hatchery_claims_total{type="import",answer="busy"} "#));
        assert!(busy.is_some_and(|line| !line.ends_with(" 0")), "{page}");
        assert!(page.contains("# HELP hatchery_lateness_seconds Time from"), "{page}");
    }
}
