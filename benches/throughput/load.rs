//! The load of a round.

/// The load that both sides get.
pub(crate) struct Load {
    pub(crate) events: usize,
    pub(crate) payload: Vec<u8>,
    pub(crate) window: usize,
    pub(crate) prefetch: u16,
    pub(crate) concurrency: u16,
}
