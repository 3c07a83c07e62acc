//! The two sides of a case.

/// Who does the work of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Hatchery.
    Ours,
    /// The baseline.
    Bare,
}
