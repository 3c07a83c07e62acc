//! The ports' implementations: [`rabbitmq`] speaks AMQP 0.9.1, [`management`] RabbitMQ's management API, [`redis`]
//! keeps the register, [`tls`] says whom they trust, `memory` has a broker and a register in memory, for tests.

#[doc(hidden)]
pub mod bounded_file;
pub(crate) mod clock;
#[cfg(any(test, feature = "internals", feature = "testing"))]
#[doc(hidden)]
pub mod memory;
pub mod rabbitmq;
pub mod redis;
#[doc(hidden)]
pub mod secret_url;
pub mod tls;
