//! Carries out plans over AMQP, for `apply` and `destroy`: declares objects, takes the steps of a migration, moves
//! messages.

pub mod declare;
pub mod destroy;
mod mover;
pub mod steps;
