//! Sends messages: [`until_confirmed`] sends one for publishers, workers and people's commands, and [`Line`] lets publishers send those of
//! a type in turn.
//!
//! The publishes of a type begin one after the other: each when the one before has given its message to the broker. One that
//! cannot begin at once, because it waits for its version, for room or for a connection, is begun by a task, and later ones wait in
//! line behind it. So the order is that of arrival, whenever their callers are polled. A caller that is not polled again delays
//! nobody, and one that is dropped leaves the line.

use std::{
    collections::VecDeque,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use backon::Retryable;
use futures_util::future::BoxFuture;
use tokio::{
    runtime::Handle,
    select,
    sync::oneshot,
    task::unconstrained,
    time::{Instant, timeout_at},
};

use super::published::PublishError;
use crate::{
    domain::wire::Message,
    outage::{BrokerOutage, backoff},
    ports::{Broker, BrokerError, Confirming},
};

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

/// A sent message that waits for its confirm, or the error of sending.
pub(super) type Given = Result<Confirming, BrokerError>;

/// Publishes until the broker confirms, at most until the limit. `message` builds the message anew for each try, and returns
/// `None` once it is too late.
pub(crate) async fn send(
    broker: &dyn Broker,
    outage: &BrokerOutage,
    within: Duration,
    message: impl FnMut() -> Option<Message>,
) -> Result<(), PublishError> {
    confirm(broker, outage, Instant::now() + within, None, message).await
}

/// Waits for the confirm of a message that was `given`, if one was, and publishes until the broker confirms, at most until the deadline.
pub(super) async fn confirm(
    broker: &dyn Broker,
    outage: &BrokerOutage,
    deadline: Instant,
    given: Option<Given>,
    message: impl FnMut() -> Option<Message>,
) -> Result<(), PublishError> {
    let sent = until_confirmed(broker, outage, given, BrokerError::is_transient, message);
    match timeout_at(deadline, sent).await {
        Ok(Ok(true)) => Ok(()),
        Ok(Ok(false)) | Err(_) => Err(PublishError::Timeout),
        Ok(Err(error)) => Err(error.into()),
    }
}

/// Publishes until the broker confirms, until there is no message any more, or until an error that is not worth a repetition. A missing copy
/// would lose the event. Of two that arrive, the register drops one; without the register both run. Returns whether the broker
/// has confirmed one.
pub(crate) async fn until_confirmed(
    broker: &dyn Broker,
    outage: &BrokerOutage,
    mut given: Option<Given>,
    is_repeated: impl Fn(&BrokerError) -> bool,
    mut message: impl FnMut() -> Option<Message>,
) -> Result<bool, BrokerError> {
    let publish = || {
        let given = given.take();
        let message = if given.is_none() { message() } else { None };
        async move {
            match (given, message) {
                (Some(given), _) => given?.await?,
                (None, Some(message)) => broker.publish(message).await?,
                (None, None) => return Ok(false),
            }
            Ok(true)
        }
    };
    let is_confirmed = publish.retry(backoff()).when(is_repeated).notify(|error, _| outage.begins(error)).await?;
    if is_confirmed {
        outage.ends();
    }
    Ok(is_confirmed)
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
