//! The header `reason`: why a message is in its queue, for people.

/// The longest `reason`, in bytes. Every list of the management UI shows it.
pub const REASON_LIMIT: usize = 1_000;

/// Cuts a reason to at most [`REASON_LIMIT`] bytes, at a character's boundary.
#[must_use]
pub fn cut_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_LIMIT)]
}

/// Returns the reason of a copy that was sent on `busy` times in a row because its reference was busy. The event's own
/// reason follows, because the handler must still be able to read it.
pub(super) fn waiting(busy: u32, own: Option<&str>) -> Option<String> {
    match (busy, own) {
        (0, own) => own.map(str::to_owned),
        (_, None) => Some(say(busy)),
        (_, Some(own)) => Some(format!("{}; {own}", say(busy))),
    }
}

/// Returns the event's own part of a reason that [`waiting`] made.
pub(super) fn own(busy: u32, reason: &str) -> Option<&str> {
    match reason.strip_prefix(&say(busy)) {
        Some("") if busy > 0 => None,
        Some(rest) if busy > 0 => Some(rest.strip_prefix("; ").unwrap_or(reason)),
        _ => Some(reason),
    }
}

/// Tells whether this is the reason of a dead letter. A handler may write a reason that begins like one.
pub(super) fn is_of_a_dead_letter(reason: &str) -> bool {
    ["given up: ", "dead-letter: ", "crash: its worker died "].iter().any(|start| reason.starts_with(start))
}

fn say(busy: u32) -> String {
    format!("busy: times={busy} its reference was taken, or could not be read")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        let reason = "ä".repeat(800);
        assert_eq!(cut_reason(&reason).len(), 1_000);
        assert_eq!(cut_reason(&format!("x{reason}")).len(), 999);
    }

    #[rstest]
    #[case(0, None, None)]
    #[case(0, Some("why"), Some("why"))]
    #[case(1, None, Some("busy: times=1 its reference was taken, or could not be read"))]
    #[case(7, Some("why"), Some("busy: times=7 its reference was taken, or could not be read; why"))]
    #[case(7, Some(""), Some("busy: times=7 its reference was taken, or could not be read; "))]
    fn a_busy_copy_says_so_and_keeps_its_own_reason(
        #[case] busy: u32,
        #[case] before: Option<&str>,
        #[case] shown: Option<&str>,
    ) {
        let waits = waiting(busy, before);
        assert_eq!(waits.as_deref(), shown);
        assert_eq!(waits.as_deref().and_then(|reason| own(busy, reason)), before);
    }

    #[rstest]
    #[case::not_written_here("why")]
    #[case::another_count("busy: times=2 its reference was taken, or could not be read; why")]
    #[case::something_else("busy: times=1 its reference was taken, or could not be read, and why")]
    fn a_foreign_reason_is_left_unchanged(#[case] reason: &str) {
        assert_eq!(own(1, reason), Some(reason));
        assert_eq!(own(0, reason), Some(reason));
    }
}
