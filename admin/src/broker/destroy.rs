//! Removes a topology: checks that its queues stay empty, and deletes one object after the other.

use std::collections::BTreeSet;

use hatchery::BrokerError;
use lapin::Channel;
use tokio::time::{Instant, sleep};

use super::{
    declare::{DeclareCause, Declarer},
    steps::{APART, LOOK},
};
use crate::{
    live::Counts,
    management::{Management, ManagementError},
    plan::{Address, Step},
};

/// Reads the statistics for a statistics interval, and returns the first queue that is in use at any reading; `None` if
/// all are provably empty.
///
/// # Errors
/// When the management API is unreachable.
pub async fn first_in_use(
    queues: &BTreeSet<String>,
    management: &dyn Management,
) -> Result<Option<String>, ManagementError> {
    let began = Instant::now();
    loop {
        let now = Instant::now();
        let counts = management.counts().await?;
        let is_free = |counts: &Counts| counts.held() == Some(0) && counts.consumers == Some(0);
        // A queue that is gone holds nothing.
        let used = queues.iter().find(|queue| counts.get(*queue).is_some_and(|counts| !is_free(counts)));
        if used.is_some() || now.duration_since(began) >= APART {
            return Ok(used.cloned());
        }
        sleep(LOOK).await;
    }
}

impl Declarer {
    /// Deletes the objects of these steps in their order, without waiting for consumers. Without `force` it stops at a
    /// queue that has messages or consumers after all, and returns it. An object that is gone already is no error.
    ///
    /// # Errors
    /// When the broker or the management API is unreachable or refuses.
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
                // The refusal has closed the channel.
                Err(DeclareCause::Broker(BrokerError::Missing { .. })) => channel = self.channel().await?,
                Err(cause) => return Err(cause),
            }
            deleted(&address);
            fail_point!("apply.step");
        }
        Ok(None)
    }

    /// Takes one step, and returns whether the object is gone.
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
                    // Quorum queues do not support `if-empty`. This count is the current one, while that of the
                    // statistics is older.
                    let live = self.look_at(channel, name).await?;
                    if live.message_count() > 0 || live.consumer_count() > 0 {
                        return Ok(false);
                    }
                }
                self.delete_queue(channel, name).await?;
            }
            Step::DeleteStream(name) => self.delete_queue(channel, name).await?,
            Step::DeletePolicy(name) => management.delete_policy(name).await?,
            // The other steps delete nothing.
            Step::Create(_) | Step::Replace { .. } | Step::Unbind(_) | Step::Move(_) => {}
        }
        Ok(true)
    }
}
