//! What the verbs need from the management API.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hatchery::internals::compile::Policy;

use crate::observed::{Counts, Observed};

/// RabbitMQ's management API, for one virtual host: what AMQP does not tell.
#[async_trait]
pub trait Management: Send + Sync + 'static {
    /// Everything that is there.
    ///
    /// # Errors
    /// When the API is away, or this user may not see it.
    async fn observe(&self) -> Result<Observed, ManagementError>;

    /// Creates a policy, or puts it back.
    ///
    /// # Errors
    /// When the API is away, or this user may not set policies.
    async fn put_policy(&self, policy: &Policy) -> Result<(), ManagementError>;

    /// Deletes a policy; one that is not there is deleted.
    ///
    /// # Errors
    /// When the API is away, or this user may not set policies.
    async fn delete_policy(&self, name: &str) -> Result<(), ManagementError>;

    /// A reading of the statistics of every queue, by name. They are some seconds old.
    ///
    /// # Errors
    /// When the API is away, or this user may not see it.
    async fn counts(&self) -> Result<BTreeMap<String, Counts>, ManagementError>;
}

/// Why the management API did not do it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagementError {
    /// Not reachable.
    #[error("the management API at {url} is unreachable: {reason}")]
    Unreachable {
        /// Where, without the password.
        url: String,
        /// What happened.
        reason: String,
    },
    /// Reachable, and it refuses this user.
    #[error("the management API at {url} refuses {what}: {reason}")]
    Refused {
        /// Where, without the password.
        url: String,
        /// What was asked.
        what: String,
        /// What it said.
        reason: String,
    },
    /// Any other answer than the one that was asked for.
    #[error("the management API at {url} does not answer {what}: {reason}")]
    Unexpected {
        /// Where, without the password.
        url: String,
        /// What was asked.
        what: String,
        /// What it said.
        reason: String,
    },
}
