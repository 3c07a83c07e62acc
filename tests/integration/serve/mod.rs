//! The API of `topology serve`, with clients as other languages have them.

mod asked;
mod batches;
mod changes;
mod client;
mod letters;
mod published;
mod rights;
mod shown;
mod trouble;
