//! What `apply` and `destroy` do on the broker over AMQP: declare objects, take the steps of a migration, move messages.

pub mod declare;
pub mod destroy;
mod mover;
pub mod steps;
