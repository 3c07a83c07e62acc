//! Dead letters: lists, replays and discards.

mod chosen;
mod list;
mod sweep;

pub(crate) use self::{
    chosen::ChosenLetters,
    list::{FoundLetters, ShownLetters, list, show},
    sweep::{DoneLetters, discard, replay},
};
