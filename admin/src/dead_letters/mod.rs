//! Dead letters, and messages that no queue has taken: looks at them, replays them, discards them.
//!
//! The letters are read from their queues, so they are shown whether or not the register knows them. The register only
//! tells which of them are obsolete.

mod check;
mod discard;
mod error;
mod groups;
mod letter;
mod look;
mod queues;
mod replay;
mod selection;
mod standing;
mod sweep;
#[cfg(test)]
mod tests;

pub use self::{
    discard::Keep,
    error::DeadLettersError,
    groups::{Group, Groups},
    letter::Letter,
    look::{Patience, Seen},
    queues::{DeadLetters, LetterQueue},
    replay::Due,
    selection::Selection,
    standing::Standing,
    sweep::{Bounds, Sweep, Swept, Tally},
};
