//! A consumer of a queue in memory.

use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;

use super::vhost::{Unacknowledged, Vhost, timestamp};
use crate::{
    domain::time::until,
    ports::{Deliveries, Delivery, Order},
};

pub(super) struct Consumer {
    pub(super) shared: Arc<Vhost>,
    pub(super) number: u64,
    pub(super) queue: String,
    pub(super) prefetch: u16,
    pub(super) order: Order,
    /// The number of deliveries that are left until the consumer ends, if a test limits them.
    pub(super) left: Option<u16>,
}

impl Consumer {
    /// Returns the next delivery, or `None` once the consumer is cancelled. Without a message the error is the time of
    /// the next expiry, which may bring one.
    fn look(&self) -> Result<Option<Delivery>, Option<Timestamp>> {
        let mut state = self.shared.state();
        if !state.consumers.contains_key(&self.number) {
            return Ok(None);
        }
        if state.is_active(self.number, &self.queue, self.order)
            && state.has_room(self.number, self.prefetch)
            && let Some(delivery) = self.shared.deliver(&mut state, Some(self.number), &self.queue)
        {
            return Ok(Some(delivery));
        }
        Err(state.queues.next_expiry().and_then(|(at, _)| timestamp(at)))
    }

    fn cancel_now(&self) {
        let was_consuming = self.shared.state().consumers.remove(&self.number).is_some();
        if was_consuming {
            self.shared.changed.notify_waiters();
        }
    }
}

#[async_trait]
impl Deliveries for Consumer {
    async fn next(&mut self) -> Option<Delivery> {
        if let Some(left) = &mut self.left {
            *left = left.checked_sub(1)?;
        }
        loop {
            let mut changed = std::pin::pin!(self.shared.changed.notified());
            // Enabled before the look, so that a change between the look and the wait is not missed.
            changed.as_mut().enable();
            let expiry = match self.look() {
                Ok(delivery) => return delivery,
                Err(expiry) => expiry,
            };
            let expired = async {
                match expiry {
                    Some(at) => tokio::time::sleep(until(self.shared.clock.now(), at)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = changed => {}
                () = expired => {}
            }
        }
    }

    async fn cancel(&mut self) {
        self.cancel_now();
    }

    fn outlived(&self) -> bool {
        self.left.is_some()
    }

    async fn close(self: Box<Self>) {
        self.shared.note("close");
        let mut state = self.shared.state();
        let of_this = |delivery: &Unacknowledged| delivery.consumer == Some(self.number);
        for (_, delivery) in state.unacknowledged.extract_if(.., |_, delivery| of_this(delivery)).collect::<Vec<_>>() {
            state.give_back(delivery);
        }
        // Dropping the consumer cancels it, which wakes the others.
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.cancel_now();
    }
}
