//! The errors of the ports, and calls about batches in which one key may be unreadable.

use futures_util::future::BoxFuture;

use crate::domain::{register::ClaimAnswer, trouble::Trouble};

/// Why a call to the broker failed. No message contains a password.
///
/// ```
/// use hatchery::{BrokerError, ConnectError};
///
/// /// Tells whether a starting program should wait instead of giving up.
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
    /// The broker is not reachable, or the connection broke. A retry may succeed.
    #[error("the broker at {url} is unreachable: {reason}")]
    Unreachable {
        /// The broker's URL, without the password.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The broker is reachable, but refuses this client.
    #[error("the broker at {url} refuses the connection: {reason}")]
    Refused {
        /// The broker's URL, without the password.
        url: String,
        /// The broker's answer.
        reason: String,
    },
    /// This program has closed its connections to the broker.
    #[error("this program has closed its connections to the broker")]
    Closed,
    /// An object is missing.
    #[error("{object} does not exist on the broker; run `topology apply`")]
    Missing {
        /// The missing object.
        object: String,
    },
    /// The broker answered a publish with a negative acknowledgement.
    #[error("the broker did not take a message for {exchange}: {reason}")]
    Nacked {
        /// The exchange of the message.
        exchange: String,
        /// The cause.
        reason: String,
    },
    /// The broker blocks publishers, because it is low on memory or disk space. Nothing was sent.
    #[error("the broker at {url} takes no messages for now: it is low on memory or disk space")]
    Blocked {
        /// The broker's URL, without the password.
        url: String,
    },
    /// No queue takes the message: the exchange has no binding for its routing key, and no alternate exchange that leads to a
    /// queue. The broker has returned the message.
    #[error(
        "the exchange {exchange} leads `{routing_key}` to no queue, and has no alternate exchange that does; run `topology apply`"
    )]
    Unroutable {
        /// The exchange of the message.
        exchange: String,
        /// The routing key of the message.
        routing_key: String,
    },
    /// The message is larger than the broker's limit. A retry fails until the limit is raised.
    #[error("the broker takes no message of {size} bytes for {exchange}: {reason}")]
    TooLarge {
        /// The exchange of the message.
        exchange: String,
        /// The size of the payload, in bytes.
        size: usize,
        /// The broker's answer.
        reason: String,
    },
    /// Another connection holds an exclusive object.
    #[error("{object} is held by another connection")]
    Locked {
        /// The exclusive object.
        object: String,
    },
    /// The queue is a stream. A consumer would begin with the next message, and an acknowledgement would remove none.
    #[error("{object} is a stream, and streams cannot be consumed like a queue")]
    Stream {
        /// The queue.
        object: String,
    },
    /// A queue has a message that ends each connection that it is delivered to. It hides the messages behind it.
    #[error("{object} has a message that cannot be read: {why}; remove it (docs/operations/untranslatable.md)")]
    Unreadable {
        /// The queue.
        object: String,
        /// The cause.
        why: &'static str,
    },
    /// The broker refuses a call for another reason.
    #[error("the broker refuses {what}: {reason}")]
    Rejected {
        /// The object or the operation that is refused.
        what: String,
        /// The broker's answer.
        reason: String,
    },
}

impl BrokerError {
    /// Tells whether the user lacks a right.
    pub(crate) fn is_no_right(&self) -> bool {
        matches!(self, Self::Rejected { reason, .. } if reason.contains("ACCESS_REFUSED"))
    }

    /// Tells whether the same call may succeed in a moment, because the broker was not reached or did not take the
    /// message for now.
    ///
    /// ```
    /// assert!(!hatchery::BrokerError::Closed.is_transient());
    /// ```
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Nacked { .. } | Self::Blocked { .. })
    }
}

/// Why a call to the register failed. No message contains a password.
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
    /// The text is not a Redis URL, for this reason. The text is not quoted, because it may contain a password.
    #[error("not the address of a Redis: {0}")]
    Address(&'static str),
    /// Redis is not reachable, or not ready. A retry may succeed.
    #[error("Redis at {url} is {trouble}: {reason}")]
    Unreachable {
        /// The URL of Redis, without the password.
        url: String,
        /// The cause, in one word.
        trouble: Trouble,
        /// The cause, in detail.
        reason: String,
    },
    /// Redis is reachable, but refuses this client or this command.
    #[error("Redis at {url} refuses: {reason}")]
    Refused {
        /// The URL of Redis, without the password.
        url: String,
        /// The answer of Redis.
        reason: String,
    },
    /// A key holds a value that the register did not write. Only the calls that need this key may fail.
    #[error("Redis at {url} holds a value that cannot be read: {reason}")]
    Unreadable {
        /// The URL of Redis, without the password.
        url: String,
        /// The cause.
        reason: String,
    },
    /// These keys are the register of a topology on another broker. Nothing was read or written.
    #[error(
        "the register in Redis at {url} is in use by the broker `{by}`, and this is the broker `{here}`: each would drop events of \
         the other; if the topology has moved here, run `topology apply --moved-from {by}`, else give it a prefix of its own \
         (`redis: {{ prefix: … }}`)"
    )]
    InUse {
        /// The URL of Redis, without the password.
        url: String,
        /// The cluster name of the broker that uses the register.
        by: String,
        /// The cluster name of the broker that this program is connected to.
        here: String,
    },
}

impl RegisterError {
    /// Returns the cause in one word, as the log and the metrics have it.
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

/// The answers to [`settle_and_claim`](super::Register::settle_and_claim), in the order of its items. An error concerns one
/// item alone: its key cannot be read.
#[derive(Debug)]
pub struct SettledAndClaimed {
    /// The answers to the settlements.
    pub settled: Vec<Result<(), RegisterError>>,
    /// The answers to the claims.
    pub claimed: Vec<Result<ClaimAnswer, RegisterError>>,
}

/// Calls the register about a batch. A key that cannot be read fails a whole call, so the batch is halved until each call
/// about such a key stands alone.
///
/// # Errors
/// When the register does not answer, or refuses this client.
pub(crate) async fn in_parts<'a, C, A>(
    batch: &'a [C],
    call: impl Fn(&'a [C]) -> BoxFuture<'a, Result<Vec<A>, RegisterError>>,
) -> Result<Vec<Result<A, RegisterError>>, RegisterError> {
    let mut answers = Vec::with_capacity(batch.len());
    let mut parts = vec![batch];
    while let Some(part) = parts.pop().filter(|part| !part.is_empty()) {
        match call(part).await {
            Ok(answered) => answers.extend(answered.into_iter().map(Ok)),
            Err(RegisterError::Unreadable { .. }) if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error @ RegisterError::Unreadable { .. }) => answers.push(Err(error)),
            Err(error) => return Err(error),
        }
    }
    Ok(answers)
}
