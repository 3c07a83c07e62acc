//! Who may kill the process runs while nothing else does: then its death is counted against nobody else.
//!
//! One lock of the worker: whatever runs holds it shared, and a suspect alone. Nobody else holds it for what may last for
//! ever, for a broker that is blocked or a Redis that is away: [`for_a_while`].

use std::{
    sync::{Arc, PoisonError, Weak},
    time::Duration,
};

use tokio::{
    sync::{Mutex, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock},
    time::Instant,
};

/// How long is waited until nothing runs, for what is not to run itself; and how long anything is kept waiting by what does
/// not run yet, or any more.
const STILL: Duration = Duration::from_secs(5);

/// What else may run in this process, until it is dropped.
pub(super) enum Quiet {
    /// Whatever else holds it so.
    Shared { _guard: OwnedRwLockReadGuard<()> },
    /// Nothing.
    Alone { _guard: OwnedRwLockWriteGuard<()> },
}

impl Quiet {
    pub(super) const fn is_alone(&self) -> bool {
        matches!(self, Self::Alone { .. })
    }
}

/// The lock.
#[derive(Default)]
pub(super) struct Isolation {
    lock: Arc<RwLock<()>>,
    /// Who has it alone and shares that with all who wait for the same.
    still: Mutex<Still>,
    /// When that was last waited for in vain.
    in_vain: std::sync::Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Still {
    guard: Weak<Quiet>,
    /// Until then it is shared: one after the other, they would keep it for ever.
    until: Option<Instant>,
}

impl Isolation {
    /// To run beside others.
    pub(super) async fn shared(&self) -> Quiet {
        Quiet::Shared { _guard: Arc::clone(&self.lock).read_owned().await }
    }

    /// To run while nothing else does: nothing starts from here on, and what runs is waited for.
    pub(super) async fn alone(&self) -> Quiet {
        Quiet::Alone { _guard: Arc::clone(&self.lock).write_owned().await }
    }

    /// Nothing runs, if that can be had within a while; for all who want the same at a time. Where it could not be had lately
    /// it is not waited for: nothing would start meanwhile, again and again.
    pub(super) async fn still(&self) -> Option<Arc<Quiet>> {
        let lately = self.last_in_vain().is_some_and(|then| then.elapsed() < STILL);
        let still = async {
            let mut still = self.still.lock().await;
            if still.until.is_some_and(|until| Instant::now() < until)
                && let Some(guard) = still.guard.upgrade()
            {
                return guard;
            }
            let guard = Arc::new(self.alone().await);
            *still = Still { guard: Arc::downgrade(&guard), until: Some(Instant::now() + STILL) };
            guard
        };
        let still = tokio::time::timeout(if lately { Duration::ZERO } else { STILL }, still).await.ok();
        if still.is_none() && !lately {
            *self.last_in_vain() = Some(Instant::now());
        }
        still
    }

    fn last_in_vain(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.in_vain.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Does what there is to do for an event that does not run yet, or any more, and gives back what has kept others from starting
/// meanwhile. Where that takes long it is let go of, and not given back.
pub(super) async fn for_a_while<T, Q>(quiet: Option<Q>, work: impl Future<Output = T>) -> (T, Option<Q>) {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(STILL, &mut work).await {
        return (done, quiet);
    }
    drop(quiet);
    (work.await, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_shared_is_not_handed_on_for_ever() {
        let quietness = Arc::new(Isolation::default());
        let mut held = quietness.still().await;
        let starts = tokio::spawn({
            let quietness = Arc::clone(&quietness);
            async move { drop(quietness.shared().await) }
        });
        // Each takes it over from the one before it.
        for _ in 0..30 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            let next = quietness.still().await;
            drop(std::mem::replace(&mut held, next));
        }
        assert!(starts.is_finished());
    }

    #[tokio::test(start_paused = true)]
    async fn who_wants_it_still_at_the_same_time_shares_it() {
        let quietness = Isolation::default();
        let (first, second) = tokio::join!(quietness.still(), quietness.still());
        assert!(first.is_some_and(|first| second.is_some_and(|second| Arc::ptr_eq(&first, &second))));
        let _runs = quietness.shared().await;
        assert!(quietness.still().await.is_none(), "it waits for a while alone");
    }

    #[tokio::test(start_paused = true)]
    async fn what_runs_for_long_is_not_waited_for_again_and_again() {
        let quietness = Isolation::default();
        let runs = quietness.shared().await;
        assert!(quietness.still().await.is_none());
        let since = Instant::now();
        assert!(quietness.still().await.is_none());
        assert_eq!(since.elapsed(), Duration::ZERO);
        tokio::time::sleep(STILL).await;
        assert!(quietness.still().await.is_none());
        assert_eq!(since.elapsed(), 2 * STILL, "then it is");
        drop(runs);
        let (first, second) = tokio::join!(quietness.still(), quietness.still());
        assert!(first.is_some_and(|first| second.is_some_and(|second| Arc::ptr_eq(&first, &second))), "nothing runs");
    }
}
