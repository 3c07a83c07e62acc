//! The two sides of a case.

/// Who does the work of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Side {
    /// Hatchery; or the first of two ways with bare lapin.
    Ours,
    /// The baseline.
    Bare,
}

impl Side {
    /// Returns the value of the argument that names the side.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Bare => "bare",
        }
    }
}
