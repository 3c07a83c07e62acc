//! Removes a topology: proves that its queues are empty, and deletes one thing after the other.

use std::collections::BTreeSet;

use fail::fail_point;
use hatchery::BrokerError;
use lapin::Channel;
use tokio::time::{Instant, sleep};

use super::{
    declare::{DeclareCause, Declarer},
    steps::{APART, LOOK},
};
use crate::{
    management::{Management, ManagementError},
    observed::Counts,
    plan::{Address, Step},
};

/// The first queue that is in use at any of the readings of a statistics interval; none once all are provably empty.
///
/// # Errors
/// When the management API is away.
pub async fn first_in_use(
    queues: &BTreeSet<String>,
    management: &dyn Management,
) -> Result<Option<String>, ManagementError> {
    let began = Instant::now();
    loop {
        let now = Instant::now();
        let counts = management.counts().await?;
        let is_free = |counts: &Counts| counts.held() == Some(0) && counts.consumers == Some(0);
        // One that is gone holds nothing.
        let used = queues.iter().find(|queue| counts.get(*queue).is_some_and(|counts| !is_free(counts)));
        if used.is_some() || now.duration_since(began) >= APART {
            return Ok(used.cloned());
        }
        sleep(LOOK).await;
    }
}

impl Declarer {
    /// Deletes what these steps name, in their order, and waits for nobody. Without force it stops at a queue that has
    /// messages or consumers after all, which is returned. What is gone already is gone.
    ///
    /// # Errors
    /// When the broker is away or refuses.
    pub async fn delete(
        &self,
        steps: &[Step],
        force: bool,
        management: &dyn Management,
        mut deleted: impl FnMut(&Address),
    ) -> Result<Option<Address>, DeclareCause> {
        let mut channel = self.channel().await?;
        for step in steps {
            let address = step.address();
            match self.delete_one(&channel, step, force, management).await {
                Ok(true) => {}
                Ok(false) => return Ok(Some(address)),
                // The channel is gone too.
                Err(DeclareCause::Broker(BrokerError::Missing { .. })) => channel = self.channel().await?,
                Err(cause) => return Err(cause),
            }
            deleted(&address);
            fail_point!("apply.step");
        }
        Ok(None)
    }

    /// Whether it is gone.
    async fn delete_one(
        &self,
        channel: &Channel,
        step: &Step,
        force: bool,
        management: &dyn Management,
    ) -> Result<bool, DeclareCause> {
        match step {
            Step::DeleteExchange(_) => self.call(channel, step).await?,
            Step::DeleteQueue { name, .. } => {
                if !force {
                    // Quorum queues know no `if-empty`; this count is of now, and that of the statistics was of before.
                    let live = self.look_at(channel, name).await?;
                    if live.message_count() > 0 || live.consumer_count() > 0 {
                        return Ok(false);
                    }
                }
                self.delete_queue(channel, name).await?;
            }
            Step::DeletePolicy(name) => management.delete_policy(name).await?,
            // Nothing else is deleted.
            Step::Create(_) | Step::Unbind(_) | Step::Move(_) => {}
        }
        Ok(true)
    }
}
