//! The ports' implementations: [`rabbitmq`] speaks AMQP 0.9.1, [`management`] the management API.

pub mod management;
pub mod rabbitmq;
