//! The API of `topology serve`, with clients as other languages have them.

mod asked;
mod away;
mod batches;
mod changed;
mod changes;
mod client;
mod letters;
mod limits;
mod published;
mod rights;
mod shown;
mod stopping;
mod switched;
