//! How late events were, and how that compares.

/// Times beyond the moment at which each event was due, in microseconds.
pub(crate) struct Lateness(Vec<i64>);

impl Lateness {
    pub(crate) fn of(times: impl IntoIterator<Item = i64>) -> Self {
        let mut times: Vec<i64> = times.into_iter().collect();
        times.sort_unstable();
        Self(times)
    }

    /// So many of a thousand are at most this late; 0 where there is none.
    pub(crate) fn permille(&self, permille: usize) -> i64 {
        let rank = (self.0.len() * permille).div_ceil(1_000).max(1);
        self.0.get(rank - 1).or(self.0.last()).copied().unwrap_or(0)
    }
}

/// As people read it.
pub(crate) fn millis(micros: i64) -> String {
    format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
}

/// How many times the one is the other.
pub(crate) fn ratio(one: i64, other: i64) -> f64 {
    let float = |n: i64| f64::from(i32::try_from(n.max(1)).unwrap_or(i32::MAX));
    float(one) / float(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_of_what_was_seen() {
        let lateness = Lateness::of((1..=200).rev());
        assert_eq!([500, 990, 1_000].map(|p| lateness.permille(p)), [100, 198, 200]);
        assert_eq!(Lateness::of([7]).permille(500), 7);
        assert_eq!(Lateness::of([]).permille(990), 0);
    }

    #[test]
    fn ratios_and_millis_are_for_people() {
        assert_eq!(millis(31_450), "31.4 ms");
        assert!((ratio(3_000, 2_000) - 1.5).abs() < 1e-9);
    }
}
