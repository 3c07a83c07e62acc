//! The commands that need no broker, RabbitMQ's import of `export`, and commands whose output cannot be written.

mod answered;
mod drawn;
mod exported;
mod printed;
mod published;
mod started;
mod unwritten;
