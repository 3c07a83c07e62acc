//! Carries a plan out: creates missing objects, then migrates, then prunes.

use std::{
    fmt::Display,
    time::{Duration, Instant},
};

use backon::{ExponentialBuilder, Retryable as _};

use crate::{
    admin::Admin,
    broker::{
        declare::{DeclareCause, DeclareError, Declarer},
        steps::APART,
    },
    error::AdminError,
    live::Observed,
    management::{Management as _, ManagementError},
    plan::{Address, Plan, Step, obstacles, plan},
    register::Free,
    results::{Applied, Options, Planned},
    watch::Watch,
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

impl Admin {
    /// Makes the plan again under the lock, when nobody else writes, and carries it out.
    pub(super) async fn carry_out(
        &self,
        lock: &Declarer,
        shown: &Planned,
        free: Option<&Free>,
        options: &Options,
        watch: &dyn Watch,
    ) -> Result<Applied, AdminError> {
        self.same_broker().await?;
        let (plan, observed) = self.compare().await?;
        let left_types = self.left_types(&plan).await;
        let (schedules, pauses) = (shown.schedules.clone(), shown.pauses.clone());
        let planned = Planned { plan, observed, left_types, schedules, pauses };
        if planned.is_blocked(options.asked) {
            return Err(AdminError::Blocked(Box::new(planned)));
        }
        let nothing_to_do = options.asked.nothing_to_do(&planned.plan);
        if !nothing_to_do && options.as_planned && !planned.plan.has_changes_of(&shown.plan) {
            return Err(AdminError::Stale);
        }
        // Before the first write, so that what is written never shares the register with another broker.
        if let Some(free) = free {
            free.take(watch).await;
        }
        let mut applied = Applied::from(planned);
        if nothing_to_do {
            watch.note("Nothing is left to do: another apply has made these changes meanwhile.");
            applied.pauses = self.write_pauses(&applied.observed, options.lock_timeout, watch).await?;
            return Ok(applied);
        }
        // A new type that the file pauses must not run for a moment. The first snapshot can be written only once its stream is declared, and
        // must not wait for a migration, which may take minutes: workers start nothing before they have read it.
        let is_bound = self.has_bound_stream(&applied.observed);
        if is_bound {
            applied.pauses = self.write_pauses(&applied.observed, options.lock_timeout, watch).await?;
        }
        self.write(lock, &applied.plan, watch).await.map_err(interrupted)?;
        if !is_bound {
            applied.pauses = self.write_pauses(&applied.observed, options.lock_timeout, watch).await?;
        }
        if options.asked.migrate {
            applied.moved = self.migrate(lock, options, watch).await?;
        }
        self.verify().await?;
        if options.asked.prune {
            self.prune(lock, &mut applied, options, watch).await?;
        }
        Ok(applied)
    }

    async fn write(&self, lock: &Declarer, plan: &Plan, watch: &dyn Watch) -> Result<(), DeclareError> {
        watch.begin(Some(plan.to_write().count()));
        let written = lock.carry_out(plan, &self.management, |address| watch.step(&address.to_string())).await;
        watch.end();
        written
    }

    /// Takes the next steps of the migrations and plans again, until no step is left. Returns how many messages were
    /// moved. Fails when the queues have not drained in time.
    async fn migrate(&self, lock: &Declarer, options: &Options, watch: &dyn Watch) -> Result<u64, AdminError> {
        watch.begin(None);
        let until = Instant::now() + options.drain_timeout;
        let mut moved = 0;
        loop {
            let (plan, _) = self.compare().await.map_err(unfinished)?;
            let missing = plan.to_write().map(|change| change.address.to_string());
            let open: Vec<String> =
                missing.chain(plan.migration.iter().map(|step| step.address().to_string())).collect();
            if open.is_empty() {
                break;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(partly("not drained within --drain-timeout", open));
            }
            if plan.to_write().next().is_some() {
                // A step may leave an object missing, such as the new form of a queue that was just deleted.
                self.write(lock, &plan, watch).await.map_err(unfinished)?;
                continue;
            }
            let taken = self.next(lock, &plan.migration, left, watch).await.map_err(unfinished)?;
            moved += taken.moved;
            if !taken.any {
                tokio::time::sleep(PAUSE).await;
            }
        }
        watch.end();
        Ok(moved)
    }

    /// Removes leftovers step by step, until none is left, none can be removed, or the time to drain has passed.
    async fn prune(
        &self,
        lock: &Declarer,
        applied: &mut Applied,
        options: &Options,
        watch: &dyn Watch,
    ) -> Result<(), AdminError> {
        watch.begin(None);
        let until = Instant::now() + options.drain_timeout;
        let mut idle: Option<Instant> = None;
        let mut all: Option<usize> = None;
        loop {
            let observed = self.counted().await.map_err(unfinished)?;
            let plan = plan(&self.desired, &observed);
            let left = until.saturating_duration_since(Instant::now());
            let taken = self.next(lock, &plan.pruning, left, watch).await.map_err(unfinished)?;
            let leftover = plan.counts().leftover;
            let all = *all.get_or_insert(leftover);
            if taken.any && !left.is_zero() {
                idle = None;
            } else if leftover > 0 && idle.get_or_insert_with(Instant::now).elapsed() < APART && !left.is_zero() {
                // The counts may be older than the moment when the last message left the queue.
                tokio::time::sleep(PAUSE).await;
            } else {
                applied.removed = all.saturating_sub(leftover);
                applied.left = Some(obstacles(&self.desired, &observed, &plan));
                watch.end();
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
        watch: &dyn Watch,
    ) -> Result<Progress, DeclareCause> {
        let mut progress = Progress::default();
        let mut tell = |step: &Step| {
            progress.any = true;
            watch.step(&step.to_string());
        };
        if steps.iter().any(|step| !step.is_long()) {
            lock.take(steps, &self.management, &mut tell).await?;
        } else {
            if let Some(step) = steps.first() {
                watch.step(&step.to_string());
            }
            let moved = lock.empty(steps, &self.management, patience, &mut tell).await?;
            progress.any |= moved > 0;
            progress.moved = moved;
        }
        Ok(progress)
    }

    /// Fails unless the broker shows every object as the file describes it.
    async fn verify(&self) -> Result<(), AdminError> {
        let look = || async {
            match self.compare().await {
                Ok((plan, _)) if plan.in_sync() => Ok(()),
                Ok((plan, _)) => Err(Ok(plan)),
                Err(error) => Err(Err(error)),
            }
        };
        let seen = look.retry(ExponentialBuilder::default().with_max_times(LOOKS)).when(Result::is_ok).await;
        seen.map_err(|seen| seen.map_or_else(unfinished, |plan| AdminError::Differs(Box::new(plan))))
    }
}

fn interrupted(error: DeclareError) -> AdminError {
    if error.done == 0 {
        return error.into();
    }
    let left = error.left.iter().map(Address::to_string).collect();
    partly(&format!("{error}; {} written", error.done), left)
}

fn partly(why: &str, left: Vec<String>) -> AdminError {
    let why = format!("{why}, left: {}. Run it again", first(&left));
    AdminError::Partly { why, left: Some(left) }
}

/// Returns the error for a failure after something may have been written.
fn unfinished(cause: impl Display) -> AdminError {
    let why = format!("{cause}; partly done, and nothing is lost. Run it again with the same flags");
    AdminError::Partly { why, left: None }
}

/// Returns the first few names, and the number of the others.
fn first(left: &[String]) -> String {
    const SHOWN: usize = 5;
    let shown = left.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match left.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
