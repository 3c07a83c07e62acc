//! The load of a round.

/// What both sides get.
pub(crate) struct Load {
    pub(crate) events: usize,
    pub(crate) payload: Vec<u8>,
    pub(crate) window: usize,
    pub(crate) prefetch: u16,
    pub(crate) concurrency: u16,
}
