//! A look at a queue in memory.

use std::sync::Arc;

use async_trait::async_trait;

use super::vhost::{Vhost, missing_queue};
use crate::{
    adapters::kept::Kept,
    ports::{BrokerError, Delivery, LOOK_IN_FLIGHT, Look},
};

pub(super) struct QueueLook {
    shared: Arc<Vhost>,
    queue: String,
    kept: Kept,
    ready: u64,
    consumers: u32,
    read: u64,
    passed_returned: bool,
}

impl QueueLook {
    pub(super) fn open(shared: &Arc<Vhost>, queue: &str) -> Result<Self, BrokerError> {
        let mut state = shared.state();
        let count = state.queues.count(queue).ok_or_else(|| missing_queue(queue))?;
        if !state.looked_at.insert(queue.to_owned()) {
            return Err(BrokerError::Locked { object: format!("the queue {queue}") });
        }
        let consumers = state.consumers.values().filter(|consumed| *consumed == queue).count();
        Ok(Self {
            shared: Arc::clone(shared),
            queue: queue.to_owned(),
            kept: Kept::default(),
            ready: u64::try_from(count).unwrap_or(u64::MAX),
            consumers: u32::try_from(consumers).unwrap_or(u32::MAX),
            read: 0,
            passed_returned: false,
        })
    }
}

#[async_trait]
impl Look for QueueLook {
    fn ready(&self) -> u64 {
        self.ready
    }

    fn consumers(&self) -> u32 {
        self.consumers
    }

    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, BrokerError> {
        let left = usize::try_from(self.ready - self.read).unwrap_or(usize::MAX);
        let mut state = self.shared.state();
        let mut batch = Vec::new();
        while batch.len() < most.min(left)
            && let Some(delivery) = self.shared.deliver(&mut state, None, &self.queue)
        {
            self.read += 1;
            self.passed_returned |= !delivery.redelivered;
            batch.push(Delivery { receipt: self.kept.receipt(delivery.receipt), ..delivery });
        }
        Ok(batch)
    }

    async fn close(mut self: Box<Self>) -> Result<(), BrokerError> {
        // As in a real queue: what returns stands behind what was returned earlier.
        while !self.passed_returned && !self.next(LOOK_IN_FLIGHT).await?.is_empty() {}
        Ok(())
    }
}

impl Drop for QueueLook {
    fn drop(&mut self) {
        // Each message returns when its receipt is dropped.
        drop(self.kept.take());
        self.shared.state().looked_at.remove(&self.queue);
    }
}
