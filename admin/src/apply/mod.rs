//! Plans a topology, and applies it.

mod carry_out;

use crate::{
    admin::Admin,
    error::AdminError,
    live::Observed,
    management::{Management as _, ManagementError},
    plan::{Plan, plan},
    register::Looked,
    results::{Applied, Options, Planned},
    watch::Watch,
};

impl Admin {
    /// Compares the topology with the broker, and writes nothing.
    ///
    /// # Errors
    /// When the broker or its management API is unreachable or refuses, or they are of two brokers.
    pub async fn plan(&self) -> Result<Planned, AdminError> {
        let (plan, observed) = self.compare().await?;
        self.one_broker(&observed).await?;
        let left_types = self.left_types(&plan).await;
        let pauses = self.plan_pauses(&observed).await;
        Ok(Planned { plan, observed, left_types, schedules: self.plan_schedules().await, pauses })
    }

    /// Changes the broker so that it matches the topology, and arms the schedules. Only one apply runs at a time. One that was
    /// interrupted at any point continues when it is run again.
    ///
    /// # Errors
    /// When the plan is blocked, somebody else holds the lock, or a server is unreachable or refuses.
    pub async fn apply(&self, planned: &Planned, options: &Options, watch: &dyn Watch) -> Result<Applied, AdminError> {
        if planned.is_blocked(options.asked) {
            return Err(AdminError::Blocked(Box::new(planned.clone())));
        }
        let looked = self.look_at_register(&planned.observed, &options.moved_from, watch).await?;
        let free = looked.map(Looked::free).transpose()?;
        let mut applied = if options.asked.nothing_to_do(&planned.plan) {
            if let Some(free) = free {
                // Without the lock, and so without `same_broker`: the register is told the cluster's name alone, and `plan` has found
                // that both URLs lead to brokers of that name.
                free.take(watch).await;
            }
            let pauses = self.write_pauses(&planned.observed, options.lock_timeout, watch).await?;
            Applied { pauses, ..Applied::from(planned.clone()) }
        } else {
            let lock = self.lock(options.lock_timeout, watch).await?;
            let result = tokio::select! {
                result = Box::pin(self.carry_out(&lock, planned, free.as_ref(), options, watch)) => result,
                () = watch.stopped() => Err(AdminError::Interrupted),
            };
            lock.release().await;
            result?
        };
        self.take_over_pauses(options.lock_timeout, watch).await?;
        applied.schedules = self.arm(watch).await?;
        Ok(applied)
    }

    /// Compares the topology with the objects of the broker.
    async fn compare(&self) -> Result<(Plan, Observed), ManagementError> {
        let observed = self.management.observe().await?;
        Ok((plan(&self.desired, &observed), observed))
    }
}
