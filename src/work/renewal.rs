//! The renewal of leases: one task renews all leases of a worker, in one call.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::lane::{Common, Lane};
use crate::{domain::transition::Transition, ports::in_parts};

/// The most leases that one call renews.
const LARGEST: usize = 256;

/// Renews the leases of a worker, until it is dropped.
pub(super) async fn renew(common: &Common, lanes: &[Arc<Lane>]) {
    let leases = common.topology.types.values().map(|spec| spec.terms(&common.topology.redis).lease);
    // A lease is renewed when between a third and half of its time is over.
    let mut ticks = tokio::time::interval(leases.min().unwrap_or(Duration::from_secs(6)) / 6);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        // Without a lease this task has no timer, so that a test's paused time passes months in one step.
        common.leases.any().await;
        ticks.tick().await;
        for batch in common.leases.due().chunks(LARGEST) {
            let asked = Instant::now();
            // A key that cannot be read costs its own event the lease, and no other event.
            let answers = match in_parts(batch, |part| common.register.renew(part)).await {
                Ok(answers) => answers,
                Err(error) => vec![Err(error); batch.len()],
            };
            for (renew, answer) in batch.iter().zip(answers) {
                let answer = answer.inspect_err(|error| {
                    let event = (renew.subject.id.as_str(), renew.subject.event_type.as_str());
                    common.unanswered(asked, error, event, "the lease is not renewed");
                });
                let lost = common.leases.renewed(renew, asked, answer.ok());
                if let Some(event) = lost
                    && let Some(lane) = lanes.iter().find(|lane| lane.event_type == event.event_type)
                {
                    common.journal.tell(&lane.counters, &event, &Transition::LeaseLost);
                }
            }
        }
    }
}
