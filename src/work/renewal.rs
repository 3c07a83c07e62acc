//! The renewal of leases: one task renews all leases of a worker, in one call.

use std::time::Duration;

use tokio::time::Instant;

use super::common::Common;
use crate::domain::register::Renew;

/// The most leases that one call renews.
const LARGEST: usize = 256;

/// Renews the leases of a worker, until it is dropped.
pub(super) async fn renew(common: &Common) {
    let leases = common.topology.types.values().map(|spec| spec.terms(&common.topology.redis).lease);
    // A lease is renewed when between a third and half of its time is over.
    let mut ticks = tokio::time::interval(leases.min().unwrap_or(Duration::from_secs(6)) / 6);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        for batch in common.leases.due().chunks(LARGEST) {
            let asked = Instant::now();
            match common.register.renew(batch).await {
                Ok(answers) => {
                    for (renew, answer) in batch.iter().zip(answers) {
                        common.leases.renewed(renew, asked, Some(answer));
                    }
                }
                Err(error) => {
                    let Renew { subject, .. } = &batch[0];
                    let event = (subject.id.as_str(), subject.event_type.as_str());
                    common.unanswered(asked, &error, event, "the lease is not renewed");
                    for renew in batch {
                        common.leases.renewed(renew, asked, None);
                    }
                }
            }
        }
    }
}
