//! A reader of a stream in memory.

use std::sync::Arc;

use async_trait::async_trait;

use super::vhost::{Vhost, missing_queue};
use crate::ports::{BrokerError, Deliveries, Delivery, Disposition, Receipt, Written};

pub(super) struct Follower {
    shared: Arc<Vhost>,
    stream: String,
    /// The place of the next message.
    next: usize,
}

impl Follower {
    /// Begins at the last message.
    pub(super) fn open(shared: &Arc<Vhost>, stream: &str) -> Result<Self, BrokerError> {
        if let Some(script) = &shared.script {
            script.follow(stream)?;
        }
        let state = shared.state();
        let messages = state.queues.stream(stream).ok_or_else(|| missing_queue(stream))?;
        Ok(Self { shared: Arc::clone(shared), stream: stream.to_owned(), next: messages.len().saturating_sub(1) })
    }

    fn look(&mut self) -> Option<Delivery> {
        let state = self.shared.state();
        let message = state.queues.stream(&self.stream)?.get(self.next)?;
        self.next += 1;
        let message = state.incoming(&self.stream, message);
        Some(Delivery { message, priority: None, redelivered: false, receipt: Box::new(Kept) })
    }

    fn has_ended(&self) -> bool {
        self.shared.script.as_ref().is_some_and(|script| script.follow(&self.stream).is_err())
    }
}

#[async_trait]
impl Deliveries for Follower {
    async fn next(&mut self) -> Option<Delivery> {
        loop {
            let shared = Arc::clone(&self.shared);
            let mut changed = std::pin::pin!(shared.changed.notified());
            changed.as_mut().enable();
            if self.has_ended() {
                return None;
            }
            if let Some(delivery) = self.look() {
                return Some(delivery);
            }
            changed.await;
        }
    }

    async fn cancel(&mut self) {}

    async fn close(self: Box<Self>) {}
}

/// The receipt of a message that stays in its stream, whatever the answer.
struct Kept;

impl Receipt for Kept {
    fn answer(self: Box<Self>, _disposition: Disposition) -> Written {
        Written::default()
    }
}
