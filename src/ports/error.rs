//! Why a port did not do what it was asked for.

use crate::domain::trouble::Trouble;

/// Why the broker did not do it. No message has a password in it.
///
/// ```
/// use hatchery::{BrokerError, ConnectError};
///
/// /// Whether a program that starts had better wait than give up.
/// fn is_worth_waiting(error: &ConnectError) -> bool {
///     matches!(error, ConnectError::Broker(error) if error.is_transient())
/// }
///
/// let (url, reason) = ("amqp://rabbit/prod".to_owned(), "timed out".to_owned());
/// let away = BrokerError::Unreachable { url, reason };
/// assert!(is_worth_waiting(&away.into()));
/// let missing = BrokerError::Missing { object: "billing.processor.mail".to_owned() };
/// assert!(missing.to_string().ends_with("does not exist on the broker; run `topology apply`"));
/// assert!(!is_worth_waiting(&missing.into()));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// Not reachable, or it broke off: trying again may help.
    #[error("the broker at {url} is unreachable: {reason}")]
    Unreachable {
        /// Where, without the password.
        url: String,
        /// What happened.
        reason: String,
    },
    /// Reachable, and it refuses this client.
    #[error("the broker at {url} refuses the connection: {reason}")]
    Refused {
        /// Where, without the password.
        url: String,
        /// What it said.
        reason: String,
    },
    /// This program has closed its connections to the broker.
    #[error("this program has closed its connections to the broker")]
    Closed,
    /// An object is missing.
    #[error("{object} does not exist on the broker; run `topology apply`")]
    Missing {
        /// Which one.
        object: String,
    },
    /// The broker answered a publish with a negative acknowledgement.
    #[error("the broker did not take a message for {exchange}: {reason}")]
    Nacked {
        /// Where it was to go.
        exchange: String,
        /// What it said.
        reason: String,
    },
    /// It takes no message of this size, and will take this one no sooner than its limit is raised.
    #[error("the broker takes no message of {size} bytes for {exchange}: {reason}")]
    TooLarge {
        /// Where it was to go.
        exchange: String,
        /// The payload's bytes.
        size: usize,
        /// What it said.
        reason: String,
    },
    /// Somebody else holds an exclusive object.
    #[error("{object} is held by another connection")]
    Locked {
        /// Which one.
        object: String,
    },
    /// Anything else that the broker says no to.
    #[error("the broker refuses {what}: {reason}")]
    Rejected {
        /// What was asked.
        what: String,
        /// What it said.
        reason: String,
    },
}

impl BrokerError {
    /// Whether the same call may work in a moment: the broker was not reached, or did not take a message for now.
    ///
    /// ```
    /// assert!(!hatchery::BrokerError::Closed.is_transient());
    /// ```
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Nacked { .. })
    }
}

/// Why the register did not answer. No message has a password in it.
///
/// ```
/// use hatchery::{ConnectError, Hatchery, RegisterError, Trouble};
///
/// let builder = Hatchery::builder(hatchery::read_file("topology.yaml")?);
/// let refused = builder.redis_url("http://:secret@redis").events().expect_err("no Redis URL");
/// let ConnectError::Register(error) = refused else { panic!("{refused}") };
/// assert!(matches!(error, RegisterError::Address(_)));
/// assert!(!error.to_string().contains("secret"));
/// assert_eq!(error.trouble(), Trouble::Refusing);
/// # Ok::<(), hatchery::ReadError>(())
/// ```
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegisterError {
    /// Not an address, and why not; it is not quoted, because a password may be in it.
    #[error("not the address of a Redis: {0}")]
    Address(&'static str),
    /// It does not answer as it should: trying again may help.
    #[error("Redis at {url} is {trouble}: {reason}")]
    Unreachable {
        /// Where, without the password.
        url: String,
        /// In one word.
        trouble: Trouble,
        /// What happened.
        reason: String,
    },
    /// Reachable, and it refuses this client or this command.
    #[error("Redis at {url} refuses: {reason}")]
    Refused {
        /// Where, without the password.
        url: String,
        /// What it said.
        reason: String,
    },
    /// It answers, and a key that was asked about holds what the register did not write. Nobody else's question may be
    /// touched by that.
    #[error("Redis at {url} holds what cannot be read: {reason}")]
    Unreadable {
        /// Where, without the password.
        url: String,
        /// What it said.
        reason: String,
    },
    /// The same keys are the register of a topology on another broker. Nothing was asked or told.
    #[error(
        "the register in Redis at {url} is in use by the broker `{by}`, and this is the broker `{here}`: each would drop events of \
         the other; if the topology has moved here, run `topology apply --moved-from {by}`, else give it a prefix of its own \
         (`redis: {{ prefix: … }}`)"
    )]
    InUse {
        /// Where, without the password.
        url: String,
        /// The cluster name of the broker that uses it.
        by: String,
        /// The cluster name of the broker that this program is connected to.
        here: String,
    },
}

impl RegisterError {
    /// In one word, that of the log and the metrics.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) {
    /// if let Err(error) = hatchery.require_register().await {
    ///     eprintln!("Redis is {}", error.trouble()); // away, slow, read-only, out of memory, …
    /// }
    /// # }
    /// ```
    #[must_use]
    pub const fn trouble(&self) -> Trouble {
        match self {
            Self::Unreachable { trouble, .. } => *trouble,
            Self::Address(_) | Self::Refused { .. } | Self::Unreadable { .. } | Self::InUse { .. } => Trouble::Refusing,
        }
    }
}
