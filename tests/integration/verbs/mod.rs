//! The commands that need no broker, RabbitMQ's import of `export`, and commands whose output cannot be written.

mod answered;
mod printed;
mod started;
mod unwritten;
