//! What requests change, each in a task of its own: hyper drops a request when its client goes away, and a change that ends between the
//! confirm of an event and its record in Redis lets the event run twice.

use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::problem::Problem;

/// The changes that are under way. Copies are of the same changes.
#[derive(Clone, Default)]
pub(crate) struct Work(TaskTracker);

impl Work {
    /// Carries out a change to its end, also if the caller is dropped.
    pub(crate) async fn finish<T: Send + 'static>(
        &self,
        change: impl Future<Output = Result<T, Problem>> + Send + 'static,
    ) -> Result<T, Problem> {
        let done = self.begin(change).await;
        done.unwrap_or_else(|_| Err(Problem::for_now("it has ended without an answer")))
    }

    /// Begins a change that is carried out to its end.
    pub(crate) fn begin<T: Send + 'static>(&self, change: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        self.0.spawn(change)
    }

    pub(crate) fn under_way(&self) -> usize {
        self.0.len()
    }

    /// Waits until none is under way.
    pub(crate) async fn ended(&self) {
        self.0.close();
        self.0.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tokio::{
        sync::{Notify, oneshot},
        time::timeout,
    };

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_ends_although_its_request_is_dropped_and_a_stop_waits_for_it() {
        let (work, confirmed) = (Work::default(), Arc::new(Notify::new()));
        let (recorded, has_recorded) = oneshot::channel();
        let confirm = Arc::clone(&confirmed);
        let request = work.finish(async move {
            confirm.notified().await;
            recorded.send(()).map_err(|()| Problem::bad("nobody waits for it"))
        });
        let moment = Duration::from_secs(1);
        assert!(timeout(moment, request).await.is_err(), "nothing is confirmed");
        assert!(timeout(moment, work.ended()).await.is_err(), "the change is under way");
        confirmed.notify_one();
        work.ended().await;
        has_recorded.await.expect("it is recorded");
    }

    #[tokio::test]
    async fn a_panic_is_a_problem() {
        let problem = Work::default().finish::<()>(async { panic!("of the test") }).await.expect_err("a problem");
        assert_eq!(problem.detail(), "it has ended without an answer");
    }
}
