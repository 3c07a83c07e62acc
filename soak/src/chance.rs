//! Random numbers from a seed, so that a run can be repeated (`SplitMix64`).

/// A source of random numbers.
pub struct Chance(u64);

impl Chance {
    /// Starts from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Starts from a text, so that the same text has the same numbers.
    pub fn of(text: &str) -> Self {
        Self(text.bytes().fold(0, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())))
    }

    /// Returns another source of random numbers, for work that goes on beside this one.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self(self.next())
    }

    /// Returns a whole number from `low` to `high`, both included.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// Puts the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.between(0, last as u64)).unwrap_or(last);
            items.swap(last, other);
        }
    }

    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_order_again_and_a_shuffle_keeps_all_items() {
        let shuffled = |seed| {
            let mut items: Vec<u32> = (0..100).collect();
            Chance::new(seed).shuffle(&mut items);
            items
        };
        assert_eq!(shuffled(7), shuffled(7));
        assert_ne!(shuffled(7), shuffled(8));
        let mut sorted = shuffled(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn both_ends_of_a_range_are_drawn() {
        let mut chance = Chance::new(1);
        let drawn: Vec<u64> = (0..200).map(|_| chance.between(3, 5)).collect();
        assert!([3, 4, 5].iter().all(|n| drawn.contains(n)) && drawn.iter().all(|n| (3..=5).contains(n)));
    }
}
