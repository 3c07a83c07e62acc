//! The work that needs AMQP alone. Carries out plans for `apply` and `destroy`: declares objects, takes the steps of a migration, moves
//! messages. Looks at queues for `status`.

pub(crate) mod control;
pub mod declare;
pub mod destroy;
pub mod look;
mod mover;
pub mod steps;
