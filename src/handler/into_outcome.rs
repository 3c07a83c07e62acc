//! Turns the return value of a handler function into an [`Outcome`].

use std::{convert::Infallible, error::Error, fmt::Display, io};

use jiff::Timestamp;

use crate::domain::settlement::Outcome;

/// A value that a handler function may return.
///
/// A handler returns an [`Outcome`], or a `Result` of `()` or `Outcome` whose error implements this trait. `Ok(())` is
/// [`Outcome::Done`].
///
/// | error type | outcome |
/// | --- | --- |
/// | `String`, `&'static str` | [`Outcome::Retry`], with the text as the reason |
/// | `std::io::Error`, `Box<dyn Error>`, `anyhow::Error` (feature `anyhow`), errors of this crate, of `serde_json` and of `tokio` | [`Outcome::Retry`], with the error and its causes as the reason |
/// | [`Outcome`] | itself |
/// | a type of the program | whatever its implementation decides |
///
/// With `Outcome` as the error type, `?` on any other error means a retry, and `map_err` chooses something else:
///
/// ```
/// use hatchery::{Outcome, Run};
/// # async fn deliver(_: std::net::IpAddr) -> std::io::Result<()> { Ok(()) }
///
/// async fn notify(run: Run) -> Result<(), Outcome> {
///     let text = str::from_utf8(&run.event.payload).map_err(Outcome::dead_letter)?; // the next attempt would read the same
///     let host = text.parse().map_err(Outcome::dead_letter)?;
///     deliver(host).await?; // a retry
///     Ok(())
/// }
/// ```
///
/// An error type of the program decides for each of its variants, and the handlers only write `?`:
///
/// ```
/// use hatchery::{IntoOutcome, Outcome, Run};
///
/// enum MailError {
///     NoSuchMailbox(String),
///     Server(std::io::Error),
/// }
///
/// impl IntoOutcome for MailError {
///     fn into_outcome(self) -> Outcome {
///         match self {
///             Self::NoSuchMailbox(name) => Outcome::dead_letter(format!("no such mailbox: {name}")),
///             Self::Server(error) => Outcome::retry(error),
///         }
///     }
/// }
///
/// # async fn deliver(_: &[u8]) -> Result<(), MailError> { Ok(()) }
/// async fn send(run: Run) -> Result<(), MailError> {
///     deliver(&run.event.payload).await?;
///     Ok(())
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "this handler returns it",
    note = "a handler returns `Outcome`, or `Result<(), E>` or `Result<Outcome, E>` where `E: IntoOutcome`",
    note = "implement `IntoOutcome` for the error type, or return `Result<(), Outcome>`: `?` turns an error into a retry",
    note = "for `anyhow::Error`, enable the feature `anyhow` of hatchery"
)]
pub trait IntoOutcome {
    /// Returns the outcome of the run.
    fn into_outcome(self) -> Outcome;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl<E: IntoOutcome> IntoOutcome for Result<Outcome, E> {
    fn into_outcome(self) -> Outcome {
        self.unwrap_or_else(E::into_outcome)
    }
}

impl<E: IntoOutcome> IntoOutcome for Result<(), E> {
    fn into_outcome(self) -> Outcome {
        self.map_or_else(E::into_outcome, |()| Outcome::Done)
    }
}

impl IntoOutcome for Infallible {
    fn into_outcome(self) -> Outcome {
        match self {}
    }
}

macro_rules! retried {
    ($($error:ty),+ $(,)?) => {$(
        impl IntoOutcome for $error {
            fn into_outcome(self) -> Outcome {
                Outcome::retry(self)
            }
        }
    )+};
}

retried!(String, &'static str);

macro_rules! retried_with_causes {
    ($($error:ty),+ $(,)?) => {$(
        impl IntoOutcome for $error {
            fn into_outcome(self) -> Outcome {
                Outcome::retry(with_causes(&self))
            }
        }
    )+};
}

retried_with_causes!(io::Error, serde_json::Error, tokio::task::JoinError, tokio::time::error::Elapsed);

impl IntoOutcome for Box<dyn Error> {
    fn into_outcome(self) -> Outcome {
        Outcome::retry(with_causes(&*self))
    }
}

impl IntoOutcome for Box<dyn Error + Send + Sync> {
    fn into_outcome(self) -> Outcome {
        Outcome::retry(with_causes(&*self))
    }
}

#[cfg(feature = "anyhow")]
impl IntoOutcome for anyhow::Error {
    fn into_outcome(self) -> Outcome {
        Outcome::retry(format!("{self:#}"))
    }
}

/// `?` in a handler that returns `Result<_, Outcome>`: a retry, with the error and its causes as the reason.
impl<E: Error> From<E> for Outcome {
    fn from(error: E) -> Self {
        Self::retry(with_causes(&error))
    }
}

/// Constructors for handlers, where the reason is often an error: `map_err(Outcome::dead_letter)`.
impl Outcome {
    /// Returns [`Outcome::Retry`] after the delay that the type's `retry` has next.
    #[must_use]
    pub fn retry(reason: impl Display) -> Self {
        Self::Retry { reason: reason.to_string(), after: None }
    }

    /// Returns [`Outcome::DeadLetter`].
    ///
    /// ```
    /// use hatchery::Outcome;
    ///
    /// fn page(text: &str) -> Result<u32, Outcome> {
    ///     text.parse().map_err(Outcome::dead_letter)
    /// }
    /// assert_eq!(page("3"), Ok(3));
    /// assert_eq!(page("three"), Err(Outcome::dead_letter("invalid digit found in string")));
    /// ```
    #[must_use]
    pub fn dead_letter(reason: impl Display) -> Self {
        Self::DeadLetter { reason: reason.to_string() }
    }

    /// Returns [`Outcome::Discard`].
    #[must_use]
    pub fn discard(reason: impl Display) -> Self {
        Self::Discard { reason: reason.to_string() }
    }

    /// Returns [`Outcome::Unavailable`].
    ///
    /// ```
    /// use hatchery::{Outcome, Run};
    ///
    /// # async fn connect() -> std::io::Result<()> { Ok(()) }
    /// async fn store(run: Run) -> Result<(), Outcome> {
    ///     connect().await.map_err(Outcome::unavailable)?; // the worker waits for the database
    ///     let _row = str::from_utf8(&run.event.payload).map_err(Outcome::dead_letter)?;
    ///     Ok(())
    /// }
    /// ```
    #[must_use]
    pub fn unavailable(reason: impl Display) -> Self {
        Self::Unavailable { reason: reason.to_string() }
    }

    /// Returns [`Outcome::Requeue`] for this time.
    #[must_use]
    pub fn requeue(at: Timestamp, reason: impl Display) -> Self {
        Self::Requeue { at, reason: reason.to_string() }
    }
}

/// The texts of an error and of its causes, separated by `: `. Many errors have the text of their cause in their own: it
/// is not repeated.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let reason = cause.to_string();
        if !text.ends_with(&reason) {
            text = format!("{text}: {reason}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    /// An error with a cause, whose own text has that of the cause or not.
    #[derive(Debug)]
    struct Caused {
        text: &'static str,
        cause: io::Error,
    }

    impl fmt::Display for Caused {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.text)
        }
    }

    impl Error for Caused {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.cause)
        }
    }

    fn caused(text: &'static str) -> Caused {
        Caused { text, cause: io::Error::other("connection refused") }
    }

    fn question_mark(error: impl Error) -> Outcome {
        let run = || -> Result<(), Outcome> { Err(error)? };
        run().into_outcome()
    }

    #[test]
    fn a_handler_that_returns_nothing_is_done() {
        assert_eq!(Ok::<(), Outcome>(()).into_outcome(), Outcome::Done);
        assert_eq!(Ok::<_, Infallible>(Outcome::discard("left")).into_outcome(), Outcome::discard("left"));
    }

    #[test]
    fn an_error_is_a_retry_with_its_causes_as_the_reason() {
        assert_eq!(question_mark(caused("no mail sent")), Outcome::retry("no mail sent: connection refused"));
        let told = caused("no mail sent: connection refused");
        assert_eq!(question_mark(told), Outcome::retry("no mail sent: connection refused"));
        let boxed: Box<dyn Error + Send + Sync> = Box::new(caused("no mail sent"));
        assert_eq!(Err::<(), _>(boxed).into_outcome(), Outcome::retry("no mail sent: connection refused"));
        assert_eq!(Err::<Outcome, _>("421").into_outcome(), Outcome::retry("421"));
    }

    #[test]
    fn an_error_may_say_that_no_attempt_would_succeed() {
        let run = || -> Result<(), Outcome> {
            let _: u8 = "300".parse().map_err(Outcome::dead_letter)?;
            Ok(())
        };
        assert_eq!(run().into_outcome(), Outcome::dead_letter("number too large to fit in target type"));
    }

    #[cfg(feature = "anyhow")]
    #[test]
    fn an_anyhow_error_is_a_retry_with_its_whole_chain_as_the_reason() {
        let error = anyhow::Error::from(io::Error::other("connection refused")).context("no mail sent");
        assert_eq!(Err::<(), _>(error).into_outcome(), Outcome::retry("no mail sent: connection refused"));
    }
}
