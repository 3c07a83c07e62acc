//! Begins publishes one after the other: each when the one before has given its message to the broker.
//!
//! A publish that cannot begin at once, because it waits for its version, for room or for a connection, is begun by a task,
//! and later ones wait in line behind it. So the order is that of arrival, whenever their callers are polled. A caller that
//! is not polled again delays nobody, and one that is dropped leaves the line.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use futures_util::future::BoxFuture;
use tokio::{runtime::Handle, select, sync::oneshot, task::unconstrained};

/// A beginning that waits, and where its result goes.
type Waiting<T> = (BoxFuture<'static, T>, oneshot::Sender<T>);

/// The publishes of one type that have not begun.
pub(super) struct Line<T> {
    /// The publishes that wait behind the one which a task begins. `None` if there is no task.
    waiting: Mutex<Option<VecDeque<Waiting<T>>>>,
    runtime: Handle,
}

impl<T: Send + 'static> Line<T> {
    /// Returns an empty line, whose task will run on this runtime.
    pub(super) const fn new(runtime: Handle) -> Self {
        Self { waiting: Mutex::new(None), runtime }
    }

    /// Runs `beginning` after all those for which this future was polled before. `None` if the runtime has ended.
    pub(super) async fn in_turn(self: &Arc<Self>, mut beginning: BoxFuture<'static, T>) -> Option<T> {
        let begun = {
            let mut waiting = self.lock();
            if waiting.is_none()
                // Unconstrained: a caller that has used up its turn would leave its publish to the task.
                && let Poll::Ready(begun) =
                    pin!(unconstrained(&mut beginning)).poll(&mut Context::from_waker(Waker::noop()))
            {
                return Some(begun);
            }
            let (reply, begun) = oneshot::channel();
            let is_first = waiting.is_none();
            waiting.get_or_insert_default().push_back((beginning, reply));
            // A runtime that has ended drops the task at once, and the task then empties the line.
            drop(waiting);
            if is_first {
                self.runtime.spawn(Task { line: Arc::clone(self), has_ended: false }.run());
            }
            begun
        };
        begun.await.ok()
    }

    /// Returns the next beginning. Without one the task ends.
    fn next(&self) -> Option<Waiting<T>> {
        let mut waiting = self.lock();
        let next = waiting.as_mut()?.pop_front();
        if next.is_none() {
            *waiting = None;
        }
        next
    }

    fn lock(&self) -> MutexGuard<'_, Option<VecDeque<Waiting<T>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task that begins what waits in line.
struct Task<T: Send + 'static> {
    line: Arc<Line<T>>,
    has_ended: bool,
}

impl<T: Send + 'static> Task<T> {
    async fn run(mut self) {
        while let Some((beginning, mut reply)) = self.line.next() {
            select! {
                biased;
                () = reply.closed() => {}
                begun = beginning => {
                    // Fails if the caller was dropped a moment ago.
                    let _ = reply.send(begun);
                }
            }
        }
        self.has_ended = true;
    }
}

impl<T: Send + 'static> Drop for Task<T> {
    /// Empties the line if the runtime ends the task, so that no caller waits for it.
    fn drop(&mut self) {
        let left = if self.has_ended { None } else { self.line.lock().take() };
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_publish_ends_that_waits_in_the_line_of_a_runtime_that_has_ended() {
        let ended = Builder::new_multi_thread().build().expect("a runtime");
        let line = Arc::new(Line::<()>::new(ended.handle().clone()));
        ended.shutdown_background();
        let runtime = Builder::new_current_thread().build().expect("a runtime");
        for _ in 0..2 {
            assert_eq!(runtime.block_on(line.in_turn(Box::pin(pending()))), None);
        }
    }
}
