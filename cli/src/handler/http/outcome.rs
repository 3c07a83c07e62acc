//! Decides the outcome of a service's answer: a pure function of its status, two of its headers and its body.

use std::time::Duration;

use hatchery::internals::{reason::cut_reason, secret_url::SecretUrl, settlement::Outcome, time, ttl::LONGEST};
use jiff::Timestamp;
use reqwest::StatusCode;

use crate::handler::answer;

/// The parts of an answer that count.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) retry_after: Option<String>,
    pub(super) location: Option<String>,
    pub(super) body: Vec<u8>,
    pub(super) end: End,
}

/// How the reading of a body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The body was read to its end.
    Whole,
    /// The body is longer than the limit.
    Cut,
    /// The connection broke.
    Broken(String),
}

/// The statuses that mean that this event will never work. Other statuses of 4xx may come from a deployment that is not
/// ready (404), a credential that is being changed (401, 403), or a limit (429).
const NEVER: [StatusCode; 6] = [
    StatusCode::BAD_REQUEST,
    StatusCode::CONFLICT,
    StatusCode::GONE,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
    StatusCode::UNPROCESSABLE_ENTITY,
];

/// Returns the outcome for an answer.
pub(super) fn outcome(answer: &Answer, now: Timestamp) -> Outcome {
    let text = String::from_utf8_lossy(&answer.body);
    let text = answer::bare(&text);
    if answer.status.is_success() {
        return success(answer, text, now).unwrap_or_else(|reason| retry(answer, reason, now));
    }
    let reason = reason(answer, text);
    if NEVER.contains(&answer.status) { Outcome::DeadLetter { reason } } else { retry(answer, reason, now) }
}

/// Returns the outcome for a success: done, or as the body says. A body that was not read to its end may hold another
/// answer.
fn success(answer: &Answer, text: &str, now: Timestamp) -> Result<Outcome, String> {
    match &answer.end {
        End::Broken(why) => Err(format!("{}: the answer broke off: {why}", status(answer))),
        End::Cut if answer::begins(text) => Err(format!("{}: the answer is too long", status(answer))),
        End::Cut => Ok(Outcome::Done),
        End::Whole => answer::read(text, now),
    }
}

fn retry(answer: &Answer, reason: String, now: Timestamp) -> Outcome {
    Outcome::Retry { reason, after: answer.retry_after.as_deref().and_then(|value| wait(value, now)) }
}

/// Reads `Retry-After`, in seconds or as a date. A date in the past counts as none, because the type's own delay is
/// better than no delay.
fn wait(value: &str, now: Timestamp) -> Option<Duration> {
    let value = value.trim();
    let wait = if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        Duration::from_secs(value.parse().unwrap_or(u64::MAX))
    } else {
        time::until(now, Timestamp::try_from(httpdate::parse_http_date(value).ok()?).ok()?)
    };
    Some(wait.min(LONGEST)).filter(|wait| !wait.is_zero())
}

/// Returns the status and the first line of the body, or where a redirect leads.
fn reason(answer: &Answer, text: &str) -> String {
    let status = status(answer);
    if answer.status.is_redirection()
        && let Some(location) = &answer.location
    {
        return format!("{status}: redirects are not followed, and this one leads to {}", leads_to(location));
    }
    match text.lines().map(str::trim).find(|line| !line.is_empty()) {
        Some(line) => format!("{status}: {}", cut_reason(line)),
        None => status,
    }
}

fn status(answer: &Answer) -> String {
    let code = answer.status.as_u16();
    answer.status.canonical_reason().map_or_else(|| format!("status {code}"), |name| format!("{code} {name}"))
}

/// Returns a location without parts that may be secret. The path often is that of the request.
fn leads_to(location: &str) -> String {
    match SecretUrl::parse(location, &["http", "https"]) {
        Ok(url) => url.origin(),
        Err(_) if location.starts_with('/') && !location.starts_with("//") => "another path".to_owned(),
        Err(_) => "another place".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn now() -> Timestamp {
        "2026-06-01T09:00:00Z".parse().expect("a time")
    }

    fn answer(status: u16, body: &str) -> Answer {
        let status = StatusCode::from_u16(status).expect("a status");
        Answer { status, retry_after: None, location: None, body: body.into(), end: End::Whole }
    }

    fn says(status: u16, body: &str) -> Outcome {
        outcome(&answer(status, body), now())
    }

    fn never(reason: &str) -> Outcome {
        Outcome::DeadLetter { reason: reason.into() }
    }

    fn again(reason: &str) -> Outcome {
        Outcome::Retry { reason: reason.into(), after: None }
    }

    fn again_after(reason: &str, seconds: u64) -> Outcome {
        Outcome::Retry { reason: reason.into(), after: Some(Duration::from_secs(seconds)) }
    }

    #[rstest]
    #[case::done(200, "", Outcome::Done)]
    #[case::created(201, r#"{"id": 7}"#, Outcome::Done)]
    #[case::accepted(202, "thank you", Outcome::Done)]
    #[case::no_content(204, "", Outcome::Done)]
    #[case::any_success(299, "<html>", Outcome::Done)]
    #[case::discard(200, r#"{"discard": {"reason": "left"}}"#, Outcome::Discard { reason: "left".into() })]
    #[case::in_lines(200, "\u{feff}\r\n{\n  \"dead-letter\": {\n    \"reason\": \"left\"\n  }\n}\n", never("left"))]
    #[case::retry(200, r#"{"retry": {"after": "30s", "reason": "busy"}}"#, again_after("busy", 30))]
    #[case::requeue(
        200,
        r#"{"requeue": {"at": "2026-06-01T09:00:00Z", "reason": "end_date"}}"#,
        Outcome::Requeue { at: now(), reason: "end_date".into() }
    )]
    #[case::misspelt(
        200,
        r#"{"dead_letter": {}}"#,
        again("the answer cannot be understood: is `dead_letter` meant as `dead-letter`?")
    )]
    #[case::bad_request(400, "\n  no such employee \nat line 3", never("400 Bad Request: no such employee"))]
    #[case::conflict(409, "", never("409 Conflict"))]
    #[case::gone(410, "", never("410 Gone"))]
    #[case::too_large(413, "", never("413 Payload Too Large"))]
    #[case::media_type(415, "", never("415 Unsupported Media Type"))]
    #[case::unprocessable(422, "{}", never("422 Unprocessable Entity: {}"))]
    #[case::unauthorized(401, "", again("401 Unauthorized"))]
    #[case::not_found(404, "no route", again("404 Not Found: no route"))]
    #[case::timeout(408, "", again("408 Request Timeout"))]
    #[case::limit(429, "slowly", again("429 Too Many Requests: slowly"))]
    #[case::broken(500, "oops", again("500 Internal Server Error: oops"))]
    #[case::an_answer_counts_only_with_a_success(
        503,
        r#"{"discard": {}}"#,
        again(r#"503 Service Unavailable: {"discard": {}}"#)
    )]
    #[case::not_modified(304, "", again("304 Not Modified"))]
    #[case::foreign(599, "", again("status 599"))]
    fn a_status_and_a_body_have_one_meaning(#[case] status: u16, #[case] body: &str, #[case] expected: Outcome) {
        assert_eq!(says(status, body), expected);
    }

    #[rstest]
    #[case("30", Some(30))]
    #[case(" 1 ", Some(1))]
    #[case::the_longest("99999999999999999999999", Some(LONGEST.as_secs()))]
    #[case::nothing("0", None)]
    #[case("-1", None)]
    #[case("1.5", None)]
    #[case("soon", None)]
    #[case("", None)]
    #[case::date("Mon, 01 Jun 2026 09:02:00 GMT", Some(120))]
    #[case::of_rfc_850("Monday, 01-Jun-26 09:02:00 GMT", Some(120))]
    #[case::of_asctime("Mon Jun  1 09:02:00 2026", Some(120))]
    #[case::past("Mon, 01 Jun 2026 08:59:59 GMT", None)]
    #[case::no_date("Mon, 31 Jun 2026 09:02:00 GMT", None)]
    fn retry_after_is_honoured(#[case] value: &str, #[case] seconds: Option<u64>) {
        let busy = |status| Answer { retry_after: Some(value.into()), ..answer(status, "") };
        let expected =
            Outcome::Retry { reason: "503 Service Unavailable".into(), after: seconds.map(Duration::from_secs) };
        assert_eq!(outcome(&busy(503), now()), expected);
        assert_eq!(outcome(&busy(400), now()), never("400 Bad Request"));
        assert_eq!(outcome(&busy(200), now()), Outcome::Done);
    }

    #[rstest]
    #[case("https://u:s3cret@other/s3cret?token=s3cret#x", "https://other")]
    #[case("/s3cret?token=s3cret", "another path")]
    #[case("//u:s3cret@other/path", "another place")]
    #[case("https://u:80/s3cret@other/path", "another place")]
    fn a_redirect_is_not_followed(#[case] location: &str, #[case] to: &str) {
        let redirect = Answer { location: Some(location.into()), ..answer(302, "moved") };
        let reason = format!("302 Found: redirects are not followed, and this one leads to {to}");
        assert_eq!(outcome(&redirect, now()), again(&reason));
    }

    #[rstest]
    #[case(200, "fine", End::Cut, Outcome::Done)]
    #[case(200, r#"{"discard": {"reason": "lon"#, End::Cut, again("200 OK: the answer is too long"))]
    #[case(200, r#"{"disc"#, End::Broken("reset".into()), again("200 OK: the answer broke off: reset"))]
    #[case(400, "no such", End::Broken("reset".into()), never("400 Bad Request: no such"))]
    #[case(500, "oops", End::Cut, again("500 Internal Server Error: oops"))]
    fn a_body_without_its_end_is_not_taken_for_the_whole(
        #[case] status: u16,
        #[case] body: &str,
        #[case] end: End,
        #[case] expected: Outcome,
    ) {
        assert_eq!(outcome(&Answer { end, ..answer(status, body) }, now()), expected);
    }

    #[test]
    fn a_very_long_line_and_invalid_utf_8_are_reasons_too() {
        let mut long = answer(500, "");
        long.body = [vec![0xe9], vec![b'a'; 60_000]].concat();
        let Outcome::Retry { reason, .. } = outcome(&long, now()) else { panic!("a retry") };
        assert!(reason.starts_with("500 Internal Server Error: \u{fffd}aaa") && reason.len() < 1_100, "{reason}");
    }
}
