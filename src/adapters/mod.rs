//! Implementations of the traits in `ports`: [`rabbitmq`] speaks AMQP 0.9.1, [`redis`] keeps the register, and
//! `memory` has a broker and a register in memory, for tests and for
//! `topology dev`. [`tls`] holds the certificates that both connections use.

#[doc(hidden)]
pub mod bounded_file;
pub(crate) mod clock;
#[cfg(feature = "internals")]
mod kept;
#[cfg(any(test, feature = "internals", feature = "testing"))]
#[doc(hidden)]
pub mod memory;
#[doc(hidden)]
pub mod oldest;
pub mod rabbitmq;
pub mod redis;
#[doc(hidden)]
pub mod secret_url;
pub mod tls;
