//! Carries a plan out: creates missing objects, then migrates, then prunes.

use std::time::{Duration, Instant};

use backon::{ExponentialBuilder, Retryable as _};
use hatchery_admin::{
    broker::{
        declare::{DeclareCause, DeclareError, Declarer},
        steps::APART,
    },
    management::{Management as _, ManagementError},
    observed::Observed,
    plan::{Address, Plan, Step, kept, plan},
};
use indicatif::ProgressBar;

use super::{
    answer::{Answer, Unfinished},
    carried::{Carried, first},
    context::Apply,
};
use crate::{
    change::same_broker,
    exit::{Ended, Exit},
    plan_document::digest,
    register::Free,
};

/// How often the result is checked again: in a cluster the broker's own lists may lag behind.
const LOOKS: usize = 6;

/// The pause between two rounds of a migration or of pruning, if the last one made no progress.
const PAUSE: Duration = Duration::from_millis(500);

/// The progress that some steps have made.
#[derive(Default)]
struct Progress {
    any: bool,
    moved: u64,
}

impl Apply {
    /// Makes the plan again under the lock, when nobody else writes, and carries it out. With `any` the new plan may
    /// differ from the one that was shown.
    pub(super) async fn carry_out(
        &self,
        lock: &Declarer,
        shown: &Plan,
        any: bool,
        free: Option<&Free>,
    ) -> anyhow::Result<Carried> {
        same_broker(&self.management, &self.desired).await?;
        let (plan, observed) = self.plan().await?;
        if plan.is_blocked(self.asked.migrate) {
            self.output.note(self.render(&plan, &[]).trim_end());
        }
        let left = self.register.ask(&plan).await;
        self.refuse_blocked(&plan, &observed, &left, None)?;
        let nothing_to_do = self.asked.nothing_to_do(&plan);
        if !nothing_to_do && !any && digest(&plan) != digest(shown) {
            let message = "the broker has changed since the plan was shown; nothing was written. Run it again";
            return Err(Ended::new(Exit::Locked, message).into());
        }
        // Before the first write, so that what is written never shares the register with another broker.
        if let Some(free) = free {
            free.take(self.output).await;
        }
        if nothing_to_do {
            self.output.note("Nothing is left to do: another apply has made these changes meanwhile.");
            return Ok(Carried::nothing(plan, observed, left));
        }
        self.write(lock, &plan).await.map_err(|error| self.interrupted(error))?;
        let mut carried = Carried::nothing(plan, observed, left);
        if self.asked.migrate {
            carried.moved = self.migrate(lock).await?;
        }
        self.verify().await?;
        if self.asked.prune {
            self.prune(lock, &mut carried).await?;
        }
        Ok(carried)
    }

    async fn write(&self, lock: &Declarer, plan: &Plan) -> Result<(), DeclareError> {
        let bar = self.output.steps(plan.to_write().count());
        let written = lock.carry_out(plan, &self.management, |address| {
            bar.set_message(address.to_string());
            bar.inc(1);
        });
        let written = written.await;
        bar.finish_and_clear();
        written
    }

    /// Takes the next steps of the migrations and plans again, until no step is left. Returns how many messages were
    /// moved. Fails after `--drain-timeout`.
    async fn migrate(&self, lock: &Declarer) -> anyhow::Result<u64> {
        let bar = self.output.spinner();
        let until = Instant::now() + self.patience;
        let mut moved = 0;
        loop {
            let (plan, _) = self.plan().await.map_err(|error| self.unfinished(&error))?;
            let missing = plan.to_write().map(|change| change.address.to_string());
            let open: Vec<String> =
                missing.chain(plan.migration.iter().map(|step| step.address().to_string())).collect();
            if open.is_empty() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(self.partly("not drained within --drain-timeout", &open));
            }
            if plan.to_write().next().is_some() {
                // A step may leave an object missing, such as the new form of a queue that was just deleted.
                self.write(lock, &plan).await.map_err(|error| self.unfinished(&error))?;
                continue;
            }
            let taken = self.next(lock, &plan.migration, left, &bar).await.map_err(|cause| self.unfinished(&cause))?;
            moved += taken.moved;
            if !taken.any {
                tokio::time::sleep(PAUSE).await;
            }
        }
        bar.finish_and_clear();
        Ok(moved)
    }

    /// Removes leftovers step by step, until none is left, none can be removed, or `--drain-timeout` has passed.
    async fn prune(&self, lock: &Declarer, carried: &mut Carried) -> anyhow::Result<()> {
        let bar = self.output.spinner();
        let until = Instant::now() + self.patience;
        let mut idle: Option<Instant> = None;
        let mut all: Option<usize> = None;
        loop {
            let observed = self.counted().await.map_err(|error| self.unfinished(&error))?;
            let plan = plan(&self.desired, &observed);
            let left = until.saturating_duration_since(Instant::now());
            let taken = self.next(lock, &plan.pruning, left, &bar).await.map_err(|cause| self.unfinished(&cause))?;
            let leftover = plan.counts().leftover;
            let all = *all.get_or_insert(leftover);
            if taken.any && !left.is_zero() {
                idle = None;
            } else if leftover > 0 && idle.get_or_insert_with(Instant::now).elapsed() < APART && !left.is_zero() {
                // The counts may be older than the moment when the last message left the queue.
                tokio::time::sleep(PAUSE).await;
            } else {
                carried.removed = all.saturating_sub(leftover);
                carried.left = Some(kept(&self.desired, &observed, &plan));
                bar.finish_and_clear();
                return Ok(());
            }
        }
    }

    async fn counted(&self) -> Result<Observed, ManagementError> {
        let counts = self.management.counts().await?;
        Ok(self.management.observe().await?.with_counts(&counts))
    }

    /// Takes the quick steps, or the long ones if there is no quick one.
    async fn next(
        &self,
        lock: &Declarer,
        steps: &[Step],
        patience: Duration,
        bar: &ProgressBar,
    ) -> Result<Progress, DeclareCause> {
        let mut progress = Progress::default();
        let mut tell = |step: &Step| {
            progress.any = true;
            bar.set_message(step.to_string());
        };
        if steps.iter().any(|step| !step.is_long()) {
            lock.take(steps, &self.management, &mut tell).await?;
        } else {
            bar.set_message(steps.first().map(ToString::to_string).unwrap_or_default());
            let moved = lock.empty(steps, &self.management, patience, &mut tell).await?;
            progress.any |= moved > 0;
            progress.moved = moved;
        }
        Ok(progress)
    }

    /// Fails unless the broker shows every object as the file describes it.
    async fn verify(&self) -> anyhow::Result<()> {
        let look = || async {
            match self.plan().await {
                Ok((plan, _)) if plan.in_sync() => Ok(()),
                Ok((plan, _)) => Err(Ok(plan)),
                Err(error) => Err(Err(error)),
            }
        };
        let seen = look.retry(ExponentialBuilder::default().with_max_times(LOOKS)).when(Result::is_ok).await;
        match seen {
            Ok(()) => Ok(()),
            Err(Err(error)) => Err(self.unfinished(&error)),
            Err(Ok(plan)) => {
                self.output.note(self.render(&plan, &[]).trim_end());
                let message = "written, but the broker still differs from the file, see above. Run it again";
                Err(Ended::new(Exit::Partly, message).into())
            }
        }
    }

    fn interrupted(&self, error: DeclareError) -> anyhow::Error {
        if error.done == 0 {
            return error.into();
        }
        let left: Vec<String> = error.left.iter().map(Address::to_string).collect();
        self.partly(&format!("{error}; {} written", error.done), &left)
    }

    fn partly(&self, why: &str, left: &[String]) -> anyhow::Error {
        let message = format!("{why}, left: {}. Run it again", first(left));
        self.ended(Some(left.to_vec()), message)
    }

    /// Returns the error for a failure after something may have been written.
    fn unfinished(&self, cause: &dyn std::fmt::Display) -> anyhow::Error {
        let message = format!("{cause}; partly done, and nothing is lost. Run it again with the same flags");
        self.ended(None, message)
    }

    fn ended(&self, left: Option<Vec<String>>, message: String) -> anyhow::Error {
        if !self.output.is_text()
            && let Err(error) = self.output.json(&Answer::Unfinished(Unfinished { applied: false, left }))
        {
            return error.into();
        }
        Ended::new(Exit::Partly, message).into()
    }
}
