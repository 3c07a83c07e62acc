//! Runs an event that may kill the process while nothing else runs, so that no other event is blamed for the crash.
//!
//! One lock of the worker. Each event loop holds it shared while it starts and runs events; an event that must run alone takes
//! it exclusively, and so do suspects that are put into quarantine. While one waits for it, no event loop starts anything. No permit is held across a call that may never
//! return (blocked broker, Redis down): [`for_a_while`].

use std::{sync::Arc, time::Duration};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use tokio::sync::{RwLock, watch};

/// The longest time that an event may hold its permit while its handler does not run.
pub(super) const A_WHILE: Duration = Duration::from_secs(5);

/// A permit to run handlers in this process until it is dropped: beside others that hold one too, or alone.
pub(super) struct Permit {
    _guard: Box<dyn Send + Sync>,
}

impl Permit {
    fn new(guard: impl Send + Sync + 'static) -> Self {
        Self { _guard: Box::new(guard) }
    }
}

/// The wait of several events for one permit, which lasts until all of them have dropped it.
pub(super) type Together = Shared<BoxFuture<'static, Arc<Permit>>>;

/// The lock.
#[derive(Default)]
pub(super) struct Isolation {
    lock: Arc<RwLock<()>>,
    /// How many events run alone or wait for that, or are put into quarantine.
    wanted: watch::Sender<usize>,
}

impl Isolation {
    /// Returns a shared permit, unless an event runs alone or waits for that.
    pub(super) fn try_shared(&self) -> Option<Permit> {
        Arc::clone(&self.lock).try_read_owned().ok().map(Permit::new)
    }

    /// Waits for a shared permit.
    pub(super) async fn shared(&self) -> Permit {
        Permit::new(Arc::clone(&self.lock).read_owned().await)
    }

    /// Waits until nothing runs. From this call on nothing starts.
    pub(super) async fn alone(&self) -> Permit {
        let wanted = self.nothing_starts();
        Permit::new((Arc::clone(&self.lock).write_owned().await, wanted))
    }

    /// Waits until nothing runs, for several suspects at a time. From this call on nothing starts.
    pub(super) fn together_alone(&self) -> Together {
        let (lock, wanted) = (Arc::clone(&self.lock), self.nothing_starts());
        let alone = async move { Arc::new(Permit::new((lock.write_owned().await, wanted))) };
        alone.boxed().shared()
    }

    fn nothing_starts(&self) -> Wanted {
        self.wanted.send_modify(|wanted| *wanted += 1);
        Wanted(self.wanted.clone())
    }

    /// Returns a receiver of the number of events for which nothing may start.
    pub(super) fn subscribe(&self) -> watch::Receiver<usize> {
        self.wanted.subscribe()
    }
}

/// One event for which nothing may start.
struct Wanted(watch::Sender<usize>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.send_modify(|wanted| *wanted -= 1);
    }
}

/// Does work for an event whose handler does not run, and returns the permit that was held meanwhile. If the work takes
/// longer than [`A_WHILE`], the permit is dropped and not returned.
pub(super) async fn for_a_while<T, P>(permit: Option<P>, work: impl Future<Output = T>) -> (T, Option<P>) {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = tokio::time::timeout(A_WHILE, &mut work).await {
        return (done, permit);
    }
    drop(permit);
    (work.await, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_wanted(isolation: &Isolation) -> bool {
        *isolation.subscribe().borrow() > 0
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_waits_to_run_alone_keeps_others_from_starting() {
        let isolation = Arc::new(Isolation::default());
        let runs = isolation.try_shared().expect("nothing waits to run alone");
        let waits = tokio::spawn({
            let isolation = Arc::clone(&isolation);
            async move { drop(isolation.alone().await) }
        });
        tokio::task::yield_now().await;
        assert!(is_wanted(&isolation) && isolation.try_shared().is_none());
        drop(runs);
        waits.await.expect("no panic");
        assert!(!is_wanted(&isolation) && isolation.try_shared().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_gives_up_waiting_keeps_nothing_from_starting() {
        let isolation = Isolation::default();
        let _runs = isolation.try_shared();
        assert!(tokio::time::timeout(A_WHILE, isolation.alone()).await.is_err());
        assert!(!is_wanted(&isolation) && isolation.try_shared().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_permit_is_given_up_for_work_that_takes_long() {
        let long = tokio::time::sleep(A_WHILE * 2);
        assert!(for_a_while(Some(()), long).await.1.is_none());
        assert!(for_a_while(Some(()), async {}).await.1.is_some());
    }
}
