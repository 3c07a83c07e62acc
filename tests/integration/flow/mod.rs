//! An event's way through a real broker and a real Redis.

mod breaker;
mod classic;
mod coalescing;
mod cut;
mod delays;
mod expiring;
mod foreign;
mod in_order;
mod in_place;
mod large;
mod listed;
mod once;
mod outcomes;
mod paused;
mod published;
mod quarantine;
mod recorded;
mod redis_away;
mod stopping;
