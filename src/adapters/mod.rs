//! The ports' implementations: [`rabbitmq`] speaks AMQP 0.9.1.

pub mod rabbitmq;
