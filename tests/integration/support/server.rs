//! A RabbitMQ that answers.

use std::process::Child;

use url::Url;

pub(super) struct Server {
    pub(super) amqp: Url,
    pub(super) management: Url,
    /// Its standard input lives as long as this process: when that ends, however it ends, the server goes.
    pub(super) _hold: Option<Child>,
}
