//! Removes all objects that a topology owns from the broker.

use std::{
    collections::BTreeSet,
    fmt::Display,
    time::{Duration, Instant},
};

use hatchery::BrokerError;

use crate::{
    admin::Admin,
    broker::{
        declare::{DeclareCause, Declarer},
        destroy::first_in_use,
        look::look,
    },
    error::AdminError,
    live::{Counts, LiveQueue, Observed},
    management::Management as _,
    names,
    plan::{Address, Destruction, Step, destruction},
    register::Looked,
    results::Doomed,
    text::count,
    watch::Watch,
};

/// The pause between two readings while the broker does not report all counts yet.
const PAUSE: Duration = Duration::from_millis(500);

/// How long to wait for missing counts: a few intervals of the broker's statistics.
const PATIENCE: Duration = Duration::from_secs(21);

/// How long to wait for statistics that lag behind what AMQP tells: two of their intervals.
const LAG: Duration = Duration::from_secs(12);

/// After this time a note explains the wait.
const TELL: Duration = Duration::from_secs(2);

impl Admin {
    /// Returns the objects that the topology owns on the broker, and writes nothing. Without `force`, objects in use block a
    /// destroy.
    ///
    /// # Errors
    /// When the broker or its management API is unreachable or refuses, or they are of two brokers.
    pub async fn plan_destroy(&self, force: bool, watch: &dyn Watch) -> Result<Doomed, AdminError> {
        let doomed = self.owned(force, watch).await?;
        self.one_broker(&doomed.observed).await?;
        let stream = names::control(&self.desired.owner);
        if doomed.found.queues().all(|queue| queue != stream) {
            return Ok(doomed);
        }
        // A destroy does not fail because of what it forgets.
        let switches = self.switches().await.unwrap_or_else(|error| {
            watch.warn(&format!("which pauses it forgets is not known: {error}"));
            None
        });
        let (switches, now) = (switches.unwrap_or_default(), self.time().await?);
        let pauses = switches.pauses.into_iter().filter(|pause| pause.lasts(now)).collect();
        Ok(Doomed { pauses, ..doomed })
    }

    /// Removes all objects that the topology owns, and what Redis knows of its schedules. Returns what was found under the lock,
    /// and how many objects were removed. With `as_shown`, they must be those that were shown.
    ///
    /// # Errors
    /// When objects are in use, somebody else holds the lock, or a server is unreachable or refuses.
    pub async fn destroy(
        &self,
        shown: &Doomed,
        lock_timeout: Duration,
        as_shown: bool,
        watch: &dyn Watch,
    ) -> Result<(Doomed, usize), AdminError> {
        refuse(shown)?;
        let lock = self.lock(lock_timeout, watch).await?;
        let destroying = Box::pin(async {
            self.same_broker().await?;
            if shown.found.plan.changes.is_empty() {
                // An interrupted destroy may have removed everything, and left its name in Redis. The lock rules out that an
                // `apply` is under way, and one may have ended since.
                if !self.owned(shown.force, watch).await?.found.plan.changes.is_empty() {
                    return Err(AdminError::Stale);
                }
                let looked = self.look_at_register(&shown.observed, &[], watch).await?;
                self.forget(looked, watch).await?;
                return Ok((shown.clone(), 0));
            }
            let looked = self.look_at_register(&shown.observed, &[], watch).await?;
            let gone = self.remove(&lock, shown, as_shown, watch).await?;
            self.forget(looked, watch).await?;
            Ok(gone)
        });
        let result = tokio::select! {
            result = destroying => result,
            () = watch.stopped() => Err(AdminError::Interrupted),
        };
        lock.release().await;
        result
    }

    /// Removes the record of the register's user, and the schedules, unless another topology or broker uses the register: then the schedules
    /// in Redis are those of that one.
    async fn forget(&self, looked: Option<Looked>, watch: &dyn Watch) -> Result<(), AdminError> {
        match looked.map(Looked::free) {
            Some(Ok(free)) => free.leave(watch).await,
            Some(Err(_)) => return Ok(()),
            None => {}
        }
        self.remove_schedules(watch).await
    }

    /// Returns the objects to remove. The broker reports no counts of a new queue at first, and those of a worker that has ended for
    /// some seconds more, so they are read again for a while.
    async fn owned(&self, force: bool, watch: &dyn Watch) -> Result<Doomed, AdminError> {
        let began = Instant::now();
        let mut is_told = false;
        loop {
            let counts = self.management.counts().await?;
            let observed = self.management.observe().await?.with_counts(&counts);
            let found = destruction(&self.desired, &observed, force);
            let owned: BTreeSet<&str> = found.queues().collect();
            let is_known = held(&observed, &owned).all(|live| live.messages.is_some() && live.consumers.is_some());
            let waited = began.elapsed();
            let is_over = force || waited >= if is_known { LAG } else { PATIENCE };
            if is_over || is_known && !self.lag(&observed, &owned).await? {
                return Ok(Doomed { found, observed, force, pauses: Vec::new() });
            }
            if !is_told && began.elapsed() >= TELL {
                watch.note("Waiting for the broker to report the present counts of its queues …");
                is_told = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Returns whether the statistics show messages or consumers where AMQP shows none. AMQP alone is not enough for deleting
    /// anything: it shows zeros for a queue whose leader is away.
    async fn lag(&self, observed: &Observed, owned: &BTreeSet<&str>) -> Result<bool, BrokerError> {
        let is_used = |live: &&LiveQueue| live.messages != Some(0) || live.consumers != Some(0);
        let used = held(observed, owned).filter(is_used);
        let used: Vec<String> = used.map(|live| live.name.clone()).collect();
        if used.is_empty() {
            return Ok(false);
        }
        let looked = look(&self.broker, self.builder.connection_name(), &[], &used).await?;
        let is_free = |counts: &Counts| counts.messages_ready == Some(0) && counts.consumers == Some(0);
        Ok(!looked.queues.is_empty() && looked.queues.values().all(is_free))
    }

    /// Reads the objects again under the lock, when no apply runs, and removes them.
    async fn remove(
        &self,
        lock: &Declarer,
        shown: &Doomed,
        as_shown: bool,
        watch: &dyn Watch,
    ) -> Result<(Doomed, usize), AdminError> {
        let doomed = self.owned(shown.force, watch).await?;
        refuse(&doomed)?;
        if as_shown && addresses(&doomed.found) != addresses(&shown.found) {
            return Err(AdminError::Stale);
        }
        let mut removed = 0;
        self.delete(lock, &doomed.found.entries, shown.force, &mut removed, watch).await?;
        if !shown.force {
            // The topology's own exchanges and bindings bring in nothing any more, so the queues can be checked for
            // good.
            let owned: BTreeSet<&str> = doomed.found.queues().collect();
            let queues = held(&doomed.observed, &owned).map(|live| live.name.clone()).collect();
            let used = first_in_use(&queues, &self.management).await.map_err(|error| halfway(error, removed))?;
            if let Some(queue) = used {
                return Err(came(&format!("queue {queue}"), removed));
            }
        }
        self.delete(lock, &doomed.found.rest, shown.force, &mut removed, watch).await?;
        Ok((doomed, removed))
    }

    async fn delete(
        &self,
        lock: &Declarer,
        steps: &[Step],
        force: bool,
        removed: &mut usize,
        watch: &dyn Watch,
    ) -> Result<(), AdminError> {
        watch.begin(Some(steps.len()));
        let deleted = lock.delete(steps, force, &self.management, |address| {
            *removed += 1;
            watch.step(&address.to_string());
        });
        let deleted = deleted.await;
        watch.end();
        match deleted {
            Ok(None) => Ok(()),
            Ok(Some(address)) => Err(came(&address.to_string(), *removed)),
            Err(DeclareCause::Broker(error)) if *removed == 0 => Err(error.into()),
            Err(cause) => Err(halfway(cause, *removed)),
        }
    }
}

/// Returns the owned queues that may hold events. A stream holds none, and who reads it takes nothing.
fn held<'a>(observed: &'a Observed, owned: &'a BTreeSet<&str>) -> impl Iterator<Item = &'a LiveQueue> {
    observed.queues.iter().filter(|live| owned.contains(live.name.as_str()) && !live.is_stream())
}

/// Returns the error for an object that came into use during the removal, because events were still on their way.
fn came(what: &str, removed: usize) -> AdminError {
    halfway(format!("the {what} is in use after all: it was used after the check"), removed)
}

fn halfway(why: impl Display, removed: usize) -> AdminError {
    let advice = "`topology destroy` removes the rest, `topology apply` creates everything again";
    AdminError::PartlyRemoved { why: format!("{why}; {} removed. {advice}", count(removed, "object")), removed }
}

fn refuse(doomed: &Doomed) -> Result<(), AdminError> {
    if doomed.found.plan.is_blocked(true) { Err(AdminError::ObjectsInUse(Box::new(doomed.clone()))) } else { Ok(()) }
}

fn addresses(found: &Destruction) -> BTreeSet<&Address> {
    found.plan.changes.iter().map(|change| &change.address).collect()
}
