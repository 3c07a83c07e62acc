//! A run for the test of a handler, without a worker.

use jiff::Timestamp;

use super::new_event::NewEvent;
use crate::{domain::words::WordError, handler::Run};

impl Run {
    /// The first run of an event, to try a handler with where there is no broker: as if it was published a moment ago and is due.
    /// A date in the future becomes the present time. The fence is 1.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use hatchery::{NewEvent, Outcome, Run};
    ///
    /// async fn send(run: Run) -> std::io::Result<Outcome> {
    ///     Ok(if run.event.payload.is_empty() {
    ///         Outcome::DeadLetter { reason: "there is nothing to send".to_owned() }
    ///     } else {
    ///         Outcome::Done
    ///     })
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// assert_eq!(send(Run::for_test(NewEvent::new("mail", "Dear Ada"))?).await?, Outcome::Done);
    /// assert!(matches!(send(Run::for_test(NewEvent::new("mail", ""))?).await?, Outcome::DeadLetter { .. }));
    ///
    /// // In a later attempt.
    /// let mut run = Run::for_test(NewEvent::new("mail", "Dear Ada"))?;
    /// Arc::make_mut(&mut run.event).attempts = 3;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// If the type or the reference is invalid.
    pub fn for_test(event: NewEvent) -> Result<Self, WordError> {
        let (event_type, now) = (event.event_type.parse()?, Timestamp::now());
        let nbf = event.date(now, now).0.map(|nbf| nbf.min(now));
        let event = event.into_event(event_type, nbf, now)?;
        Ok(Self::of(event))
    }
}
