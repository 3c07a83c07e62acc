//! Dead letters, and messages that no queue has taken: looks at them, replays them, discards them.
//!
//! The letters are read from their queues, so they are shown whether or not the register knows them. The register only
//! tells which of them are obsolete.

mod account;
mod answer;
mod check;
mod discard;
mod error;
mod groups;
mod letter;
mod limits;
mod look;
mod queues;
mod replay;
mod saved;
mod selection;
mod standing;
mod sweep;
#[cfg(test)]
mod tests;
mod view;

pub use self::{
    account::{Account, Verb},
    answer::{Counts, DoneLetters, FoundLetters, LetterLine, ShownLetters, SweptLetters},
    discard::Keep,
    error::DeadLettersError,
    groups::Groups,
    letter::Letter,
    limits::{DeliveryLimits, Limited},
    look::{Looked, Patience, Seen, unseen},
    queues::{DeadLetters, LetterQueue},
    replay::Due,
    saved::{digest, line},
    selection::Selection,
    standing::Standing,
    sweep::{Bounds, Sweep, Swept, Tally},
    view::{GroupView, LetterView, QueueView, Whole, view, whole},
};
