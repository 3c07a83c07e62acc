//! A message in a queue, and why other queues dead-lettered it.

/// A message in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<T> {
    /// The properties and the payload, which these rules do not look at.
    pub content: T,
    /// The routing key.
    pub key: String,
    /// The queues that have dead-lettered the message, and why: newest first, each pair once (`x-death`).
    pub deaths: Vec<(String, Death)>,
    /// How often a consumer has returned the message to its queue.
    pub returns: i64,
    /// When its TTL in its queue ends, in milliseconds.
    pub expires: Option<u64>,
}

impl<T> Message<T> {
    /// Returns a message as a client publishes it.
    pub fn new(key: &str, content: T) -> Self {
        Self { content, key: key.to_owned(), deaths: Vec::new(), returns: 0, expires: None }
    }
}

/// Why a queue dead-letters a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// Its TTL has ended.
    Expired,
    /// The queue was full.
    MaxLength,
    /// The message was returned more often than the queue allows.
    DeliveryLimit,
    /// A consumer rejected it. The other reasons are automatic.
    Rejected,
}
