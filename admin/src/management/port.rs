//! The trait through which the verbs use the management API.

use std::collections::BTreeMap;

use async_trait::async_trait;
use hatchery::internals::compile::Policy;

use crate::live::{Counts, Observed};

/// RabbitMQ's management API for one virtual host: listing objects, statistics and policies, which AMQP cannot do.
#[async_trait]
pub trait Management: Send + Sync + 'static {
    /// Lists all exchanges, queues, bindings and policies.
    ///
    /// # Errors
    /// When the API is unreachable, or this user may not use it.
    async fn observe(&self) -> Result<Observed, ManagementError>;

    /// Creates a policy, or replaces the one of this name.
    ///
    /// # Errors
    /// When the API is unreachable, or this user may not set policies.
    async fn put_policy(&self, policy: &Policy) -> Result<(), ManagementError>;

    /// Deletes a policy. A policy that does not exist is no error.
    ///
    /// # Errors
    /// When the API is unreachable, or this user may not set policies.
    async fn delete_policy(&self, name: &str) -> Result<(), ManagementError>;

    /// Reads the statistics of every queue, by name. They are some seconds old.
    ///
    /// # Errors
    /// When the API is unreachable, or this user may not use it.
    async fn counts(&self) -> Result<BTreeMap<String, Counts>, ManagementError>;
}

/// Why a call of the management API failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManagementError {
    /// No node can be reached.
    #[error("the management API at {url} is unreachable: {reason}")]
    Unreachable {
        /// The URL, without the password.
        url: String,
        /// The cause.
        reason: String,
    },
    /// The API refuses this user.
    #[error("the management API at {url} refuses {what}: {reason}")]
    Refused {
        /// The URL, without the password.
        url: String,
        /// The resource: the first segment of the path.
        what: String,
        /// The status, and the reason that the API gives.
        reason: String,
    },
    /// The API gives any other error, or an answer that cannot be read.
    #[error("the management API at {url} gave an unexpected answer for {what}: {reason}")]
    Unexpected {
        /// The URL, without the password.
        url: String,
        /// The resource: the first segment of the path.
        what: String,
        /// The status, and the reason that the API gives, or why its answer cannot be used.
        reason: String,
    },
}
