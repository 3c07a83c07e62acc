//! The verbs that need no broker, and what RabbitMQ makes of `export`.

mod drawn;
mod exported;
mod printed;
mod started;
mod unwritten;
