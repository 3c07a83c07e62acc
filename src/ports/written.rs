//! The moment at which an answer to a delivery is written to the broker.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::sync::oneshot;

/// Ready once an answer to a delivery is written to the broker, or cannot be written any more. Dropping it does not take
/// the answer back.
#[derive(Debug, Default)]
pub struct Written(Option<oneshot::Receiver<()>>);

impl Written {
    /// Returns an answer that is written when the sender of this channel is dropped.
    #[must_use]
    pub const fn when_dropped(receiver: oneshot::Receiver<()>) -> Self {
        Self(Some(receiver))
    }

    /// Tells whether the answer is written.
    pub fn is_done(&mut self) -> bool {
        self.0.as_mut().is_none_or(|receiver| receiver.try_recv() != Err(oneshot::error::TryRecvError::Empty))
    }
}

impl Future for Written {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Some(receiver) => Pin::new(receiver).poll(context).map(|_| ()),
            None => Poll::Ready(()),
        }
    }
}
