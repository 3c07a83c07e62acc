//! Decides whether a process's memory stays flat. The functions are pure.

/// The allowed factor over the most memory in the first tenth of the time.
const TIMES: f64 = 1.2;
/// Memory that an allocator may keep for itself, in KiB.
const SLACK: u64 = 8 * 1_024;

pub(super) const RULE: &str = "flat: at most 1.2 times the most in the first tenth, and 8 MiB";

/// Samples of a process's resident memory in KiB, in order, each with the progress of the run from 0 to 1.
#[derive(Default)]
pub(super) struct Resident(Vec<(f64, u64)>);

impl Resident {
    pub(super) fn sample(&mut self, progress: f64, kib: u64) {
        self.0.push((progress, kib));
    }

    /// Returns the most memory in the first tenth of the run, in KiB.
    pub(super) fn first(&self) -> u64 {
        let first = self.0.iter().enumerate().filter(|(n, (progress, _))| *n == 0 || *progress <= 0.1);
        first.map(|(_, (_, kib))| *kib).max().unwrap_or(0)
    }

    /// Returns the most memory of all samples, in KiB.
    pub(super) fn most(&self) -> u64 {
        self.0.iter().map(|(_, kib)| *kib).max().unwrap_or(0)
    }

    pub(super) fn samples(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_flat(&self) -> bool {
        self.most() <= self.limit()
    }

    /// Returns the most memory that counts as flat, in KiB.
    pub(super) fn limit(&self) -> u64 {
        let first = f64::from(u32::try_from(self.first()).unwrap_or(u32::MAX));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "KiB, far below 2^53")]
        let times = (first * TIMES) as u64;
        times + SLACK
    }
}

/// Formats KiB as MiB with one decimal.
pub(super) fn mib(kib: u64) -> String {
    format!("{}.{} MiB", kib / 1_024, kib % 1_024 * 10 / 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(kib: &[u64]) -> Resident {
        let mut resident = Resident::default();
        for (n, kib) in (0_u32..).zip(kib) {
            resident.sample(f64::from(n) / 20.0, *kib);
        }
        resident
    }

    #[test]
    fn growing_memory_is_not_flat() {
        let steady: Vec<u64> = (0..20).map(|n| 20_000 + n % 3 * 500).collect();
        assert!(samples(&steady).is_flat());
        let growing: Vec<u64> = (0..20).map(|n| 20_000 + n * 2_000).collect();
        let growing = samples(&growing);
        assert_eq!((growing.first(), growing.most(), growing.limit()), (24_000, 58_000, 36_992));
        assert!(!growing.is_flat());
    }

    #[test]
    fn mebibytes_have_one_decimal() {
        assert_eq!([1_024, 20_992, 1_535].map(mib), ["1.0 MiB", "20.5 MiB", "1.4 MiB"]);
    }
}
