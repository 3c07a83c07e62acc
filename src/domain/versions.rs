//! The versions of RabbitMQ with faults that no topology can prevent.

/// Describes the faults of this version of RabbitMQ. Returns `None` for a version without them, and for an unknown one.
#[must_use]
pub fn fault(version: &str) -> Option<String> {
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next()??, numbers.next()??);
    // At-least-once dead-lettering began with 3.10. RabbitMQ 4 does not read the header that clients send.
    ((3, 10)..(4, 0)).contains(&(major, minor)).then(|| {
        format!(
            "RabbitMQ {version} stops timers when a publisher sends a broken x-death header, and no topology can prevent that \
             (docs/operations/broken-x-death.md); after the death of a node its timers may be six minutes late. RabbitMQ \
             4.3 has neither fault"
        )
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::before_at_least_once("3.9.29", false)]
    #[case::first("3.10.0", true)]
    #[case::debian_12("3.10.8", true)]
    #[case::candidate("3.13.0-rc.1", true)]
    #[case::last("3.13.7", true)]
    #[case::four("4.0.5", false)]
    #[case::newest("4.3.6", false)]
    #[case::no_version("", false)]
    #[case::a_word("unknown", false)]
    fn a_version_that_reads_a_clients_x_death_gets_a_warning(#[case] version: &str, #[case] is_told: bool) {
        assert_eq!(fault(version).is_some(), is_told);
    }
}
