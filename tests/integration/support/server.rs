//! The addresses of a running RabbitMQ.

use std::process::Child;

use url::Url;

pub(super) struct Server {
    pub(super) amqp: Url,
    pub(super) management: Url,
    /// The process that keeps the server running. It ends the server when its standard input ends, which happens when
    /// this process ends, however it ends.
    pub(super) _hold: Option<Child>,
}
