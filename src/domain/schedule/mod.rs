//! Schedules: when an event that comes again is due.

pub mod calendar;
