//! The progress of a change or a look, for the program that makes it.

use async_trait::async_trait;

/// Hears of a change, or of a look at the broker, while it runs. Every method may be left as it is; `()` hears nothing.
#[async_trait]
pub trait Watch: Send + Sync {
    /// A note: what the change waits for, for example.
    fn note(&self, _text: &str) {}

    /// A warning: a part of the change that did not succeed and stops nothing.
    fn warn(&self, text: &str) {
        tracing::warn!("{text}");
    }

    /// Some steps begin, of which the number may be known.
    fn begin(&self, _steps: Option<usize>) {}

    /// A step is done, or is about to be.
    fn step(&self, _what: &str) {}

    /// The steps have ended. After a failure or an interruption this may not be called.
    fn end(&self) {}

    /// Ends when the change has to stop. It is heard while the lock is held. What is done by then stays.
    async fn stopped(&self) {
        std::future::pending::<()>().await;
    }
}

impl Watch for () {}
