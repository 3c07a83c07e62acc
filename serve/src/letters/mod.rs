//! Dead letters: lists, replays and discards.

mod chosen;
mod list;
mod sweep;

pub(crate) use self::{
    chosen::ChosenLetters,
    list::{ShownLetter, list, query, show},
    sweep::{discard, replay},
};
