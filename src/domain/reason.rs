//! The header `reason`: why a message is in its queue, for people.

#[cfg(feature = "internals")]
use jiff::Timestamp;

/// The longest `reason`, in bytes. Every list of the management UI shows it.
pub const REASON_LIMIT: usize = 1_000;

/// Cuts a reason to at most [`REASON_LIMIT`] bytes, at a character's boundary.
#[must_use]
pub fn cut_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_LIMIT)]
}

/// Returns the reason of a copy that was sent on `busy` times in a row because its reference was busy. The event's own
/// reason follows, because the handler must still be able to read it.
pub(crate) fn waiting(busy: u32, own: Option<&str>) -> Option<String> {
    match (busy, own) {
        (0, own) => own.map(str::to_owned),
        (_, None) => Some(say(busy)),
        (_, Some(own)) => Some(format!("{}; {own}", say(busy))),
    }
}

/// Returns the event's own part of a reason that [`waiting`] made.
pub(crate) fn own(busy: u32, reason: &str) -> Option<&str> {
    match reason.strip_prefix(&say(busy)) {
        Some("") if busy > 0 => None,
        Some(rest) if busy > 0 => Some(rest.strip_prefix("; ").unwrap_or(reason)),
        _ => Some(reason),
    }
}

/// Tells whether this is the reason of a dead letter. A handler may write a reason that begins like one.
pub(crate) fn is_of_a_dead_letter(reason: &str) -> bool {
    // The last one is that of an older version.
    ["given up: ", "dead-letter: ", "expired at ", "crash: it ", "crash: its worker died "]
        .iter()
        .any(|start| reason.starts_with(start))
}

/// Returns the error alone of a failed event's reason: `KeyError: name` of `retry: attempt=2 failed_at=… error="KeyError: name"`.
/// Any other reason is returned unchanged.
#[must_use]
pub fn error_of(reason: &str) -> &str {
    let after_failure = ["retry: ", "given up: ", "drop: ", "block: ", "in-place: "];
    if after_failure.iter().any(|start| reason.starts_with(&format!("{start}attempt="))) {
        let error = reason.split_once(" error=\"").map(|(_, error)| error);
        // The end of a long reason was cut off.
        return error.map_or(reason, |error| error.strip_suffix('"').unwrap_or(error));
    }
    reason.strip_prefix("dead-letter: ").unwrap_or(reason)
}

/// Returns the time of the failure that a failed event's reason names.
#[cfg(feature = "internals")]
#[must_use]
pub fn failed_at(reason: &str) -> Option<Timestamp> {
    let (_, rest) = reason.split_once(" failed_at=")?;
    rest.split(' ').next()?.parse().ok()
}

/// Returns the part of the former reason that the new one keeps. If the event was moved before, that is the reason
/// before the first move, so that ten moves are not listed.
#[must_use]
pub fn was(reason: &str) -> Option<String> {
    if ["run now: ", "reschedule: ", "replay: "].iter().any(|moved| reason.starts_with(moved)) {
        return reason.find(" was=\"").map(|at| reason[at..].to_owned());
    }
    let escaped = reason.replace('\\', "\\\\").replace('"', "\\\"");
    Some(format!(" was=\"{escaped}\""))
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
    #[case(r#"retry: attempt=2 failed_at=2026-06-01T09:00:00.000Z error="KeyError: "name"""#, "KeyError: \"name\"")]
    #[case(r#"given up: attempt=3 tries=2 failed_at=x error="no luck""#, "no luck")]
    #[case::cut_at_the_limit(r#"retry: attempt=2 failed_at=x error="no lu"#, "no lu")]
    #[case("dead-letter: no such customer", "no such customer")]
    #[case::not_a_failure("next-change: end_date=2022-06-01", "next-change: end_date=2022-06-01")]
    #[case::a_handlers_own(r#"retry: the error="x""#, r#"retry: the error="x""#)]
    fn the_error_stands_alone_in_a_failures_reason(#[case] reason: &str, #[case] error: &str) {
        assert_eq!(error_of(reason), error);
    }

    #[test]
    fn a_failures_reason_has_its_time() {
        let failed = r#"retry: attempt=2 failed_at=2026-06-01T09:00:00.250Z error="no luck""#;
        assert_eq!(failed_at(failed), "2026-06-01T09:00:00.250Z".parse().ok());
        assert_eq!(failed_at("message: queue=hr-changes"), None);
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
