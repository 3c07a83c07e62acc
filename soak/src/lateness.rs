//! Statistics of how late events were.

use crate::table::Table;

/// The times by which events were late, in microseconds, sorted.
pub struct Lateness(Vec<i64>);

impl Lateness {
    /// Sorts the times.
    pub fn of(times: impl IntoIterator<Item = i64>) -> Self {
        let mut times: Vec<i64> = times.into_iter().collect();
        times.sort_unstable();
        Self(times)
    }

    /// Returns the lateness that this many of a thousand events do not exceed, in microseconds; 0 if there are no
    /// events.
    pub fn permille(&self, permille: usize) -> i64 {
        let rank = (self.0.len() * permille).div_ceil(1_000).max(1);
        self.0.get(rank - 1).or(self.0.last()).copied().unwrap_or(0)
    }
}

/// Formats microseconds as milliseconds with one decimal.
pub fn millis(micros: i64) -> String {
    format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100)
}

/// Adds a row with what this many of a thousand events of both sides do not exceed, and the ratio. With a limit the ratio
/// must not exceed it.
pub fn ratio_row(table: &mut Table, what: &str, sides: [&Lateness; 2], permille: usize, limit: Option<f64>) {
    let [one, two] = sides.map(|side| side.permille(permille));
    let ratio = ratio(one, two);
    let must = limit.map_or_else(String::new, |limit| format!("at most {limit}"));
    let (shown, one, two) = (format!("{ratio:.2}"), millis(one), millis(two));
    let cells = [what, &one, &two, &shown, &must];
    match limit {
        Some(limit) => table.must(ratio <= limit, &cells),
        None => table.tell(&cells),
    }
}

/// Returns `one` divided by `other`.
pub fn ratio(one: i64, other: i64) -> f64 {
    let float = |n: i64| f64::from(i32::try_from(n.max(1)).unwrap_or(i32::MAX));
    float(one) / float(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permille_is_one_of_the_times() {
        let lateness = Lateness::of((1..=200).rev());
        assert_eq!([500, 990, 1_000].map(|p| lateness.permille(p)), [100, 198, 200]);
        assert_eq!(Lateness::of([7]).permille(500), 7);
        assert_eq!(Lateness::of([]).permille(990), 0);
    }

    #[test]
    fn millis_and_ratios_have_the_expected_values() {
        assert_eq!(millis(31_450), "31.4 ms");
        assert!((ratio(3_000, 2_000) - 1.5).abs() < 1e-9);
    }
}
