//! Medians, and the range of the rounds.

/// The median of some numbers, with the smallest and the largest.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub(crate) struct Middle {
    pub(crate) median: f64,
    pub(crate) from: f64,
    pub(crate) to: f64,
}

impl Middle {
    /// Returns zeros if there are no numbers.
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let at = |n: usize| numbers.get(n).copied().unwrap_or_default();
        let (half, last) = (numbers.len() / 2, numbers.len().saturating_sub(1));
        let even = numbers.len() > 1 && numbers.len().is_multiple_of(2);
        Self { median: if even { f64::midpoint(at(half - 1), at(half)) } else { at(half) }, from: at(0), to: at(last) }
    }
}

/// Returns the median.
pub(crate) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    Middle::of(numbers).median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_rounds_is_between_the_middle_two() {
        assert_eq!(Middle::of([4.0, 1.0, 2.0]), Middle { median: 2.0, from: 1.0, to: 4.0 });
        assert_eq!(Middle::of([4.0, 1.0, 2.0, 3.0]), Middle { median: 2.5, from: 1.0, to: 4.0 });
        assert_eq!(Middle::of([7.0]), Middle { median: 7.0, from: 7.0, to: 7.0 });
        assert_eq!(Middle::of([]), Middle { median: 0.0, from: 0.0, to: 0.0 });
    }
}
