//! RabbitMQ over AMQP 0.9.1, with lapin.
//!
//! Connections are supervised here and not by lapin's own recovery, which can acknowledge deliveries that nobody
//! processed (measured: `basic_ack(old_tag, multiple)` after a recovery).

pub mod connection;
