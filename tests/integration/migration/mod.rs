//! A topology changes under live traffic while `kill -9` ends the apply again and again. No event is lost.

mod kills;
mod traffic;
mod under_traffic;

use crate::support::say;

/// Random numbers from a seed, so that a run can be repeated.
pub(crate) struct Random(u64);

impl Random {
    /// Takes the seed from `HATCHERY_SEED` or chooses one, and prints it.
    pub(crate) fn new(name: &str) -> Self {
        let given = std::env::var("HATCHERY_SEED").ok().map(|seed| seed.parse().expect("HATCHERY_SEED is a number"));
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
        // Each scenario has its own sequence of numbers.
        let salt = name.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        say(&format!("{name}: HATCHERY_SEED={seed}"));
        Self(seed ^ (salt << 20) ^ 0x9E37_79B9_7F4A_7C15)
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // xorshift64*: good enough to choose where to kill.
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % limit
    }
}
