//! Reads the answer of a program or a service: one JSON object.

use std::time::Duration;

use hatchery::internals::{settlement::Outcome, time};
use hatchery_admin::notation::{Span, Time};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// The keys that make a JSON object an answer. A program may print any other object, which means nothing.
const WORDS: [&str; 4] = ["requeue", "retry", "discard", "dead-letter"];

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Answer {
    Requeue(Requeue),
    Retry(Retry),
    Discard(Reason),
    DeadLetter(Reason),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Requeue {
    at: Option<Time>,
    after: Option<Span>,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Retry {
    after: Option<Span>,
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reason {
    reason: Option<String>,
}

/// Reads an answer that was given `now`. A text that is no answer means done.
///
/// # Errors
/// When the text is meant as an answer and cannot be understood. Taking it for done would lose the handler's intention.
pub(super) fn read(text: &str, now: Timestamp) -> Result<Outcome, String> {
    let text = bare(text);
    let object = match serde_json::from_str::<serde_json::Map<String, Value>>(text) {
        Ok(object) => object,
        Err(error) if begins(text) && error.is_eof() => return Err("the answer is broken off".to_owned()),
        Err(error) if begins(text) => return Err(not_understood(&error)),
        Err(_) => return Ok(Outcome::Done),
    };
    if !is_answer(&object) {
        return match misspelt(&object) {
            Some((key, word)) => Err(format!("the answer cannot be understood: is `{key}` meant as `{word}`?")),
            None => Ok(Outcome::Done),
        };
    }
    understandable(&object)?;
    let answer = serde_json::from_str(text).map_err(|error| not_understood(&error))?;
    let or = |reason: Option<String>, otherwise: &str| reason.unwrap_or_else(|| otherwise.to_owned());
    Ok(match answer {
        Answer::Requeue(Requeue { at, after, reason }) => {
            let at = match (at, after) {
                (Some(Time(at)), None) => at,
                (None, Some(Span(after))) => from_now(now, after)?,
                _ => return Err("the answer cannot be understood: requeue takes either `at` or `after`".to_owned()),
            };
            Outcome::Requeue { at, reason: or(reason, "requeue") }
        }
        Answer::Retry(Retry { after, reason }) => {
            if let Some(Span(after)) = after {
                from_now(now, after)?;
            }
            Outcome::Retry { reason: or(reason, "the handler asked for it"), after: after.map(|Span(after)| after) }
        }
        Answer::Discard(Reason { reason }) => Outcome::Discard { reason: or(reason, "discarded") },
        Answer::DeadLetter(Reason { reason }) => Outcome::DeadLetter { reason: or(reason, "the handler asked for it") },
    })
}

fn from_now(now: Timestamp, after: Duration) -> Result<Timestamp, String> {
    let end = || "the answer cannot be understood: `after` leads beyond the year 9999".to_owned();
    time::due(now, after).ok_or_else(end)
}

fn not_understood(error: &serde_json::Error) -> String {
    format!("the answer cannot be understood: {error}")
}

/// Reports frequent mistakes in better words than the parser's.
fn understandable(object: &serde_json::Map<String, Value>) -> Result<(), String> {
    if object.len() > 1 {
        let keys: Vec<String> = object.keys().map(|key| format!("`{key}`")).collect();
        return Err(format!("the answer cannot be understood: it has {}, and only one is allowed", keys.join(" and ")));
    }
    match object.iter().next() {
        Some((word, Value::String(_))) => {
            let inner = if word == "requeue" { "after" } else { "reason" };
            Err(format!(r#"the answer cannot be understood: write {{"{word}": {{"{inner}": …}}}}"#))
        }
        _ => Ok(()),
    }
}

/// Removes the space around a text, and the byte order mark that some systems put before it.
pub(super) fn bare(text: &str) -> &str {
    text.trim_start_matches('\u{feff}').trim()
}

/// Whether an object is meant as an answer: one of the keys leads to an object, or it is the only key and leads to a
/// text. A service that says `"status": "ok", "retry": false` only reports about itself.
fn is_answer(object: &serde_json::Map<String, Value>) -> bool {
    let is_meant = |value: &Value| value.is_object() || (object.len() == 1 && value.is_string());
    WORDS.iter().any(|word| object.get(*word).is_some_and(is_meant))
}

/// Returns the key of an object that is an answer but for the spelling of its key, and the right key. It must be the
/// only key, lead to an object, and differ in at most a letter, besides its case, `_` and `-`. A key that resembles an
/// answer less belongs to the service: a success that is taken for a failure would run again and again, and end in
/// dead-letter.
fn misspelt(object: &serde_json::Map<String, Value>) -> Option<(&str, &'static str)> {
    let mut keys = object.iter();
    let (Some((key, Value::Object(_))), None) = (keys.next(), keys.next()) else { return None };
    let plain = |text: &str| text.to_lowercase().replace(['_', '-'], "");
    let said = plain(key);
    let word = WORDS.into_iter().find(|word| strsim::levenshtein(&said, &plain(word)) <= 1)?;
    Some((key, word))
}

/// Whether a text that was cut off begins like an answer, which has one key that leads to an object. If the text ends
/// within the key, its first four characters are enough.
pub(super) fn begins(text: &str) -> bool {
    const HALF: usize = 4;
    let key = bare(text).strip_prefix('{').and_then(|rest| rest.trim_start().strip_prefix('"'));
    let leads = |rest: &str| match rest.trim_start().strip_prefix(':') {
        Some(value) => value.trim_start().is_empty() || value.trim_start().starts_with('{'),
        None => rest.trim_start().is_empty(),
    };
    key.is_some_and(|rest| match rest.split_once('"') {
        Some((key, rest)) => WORDS.contains(&key) && leads(rest),
        None => rest.len() >= HALF && WORDS.iter().any(|word| word.starts_with(rest)),
    })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn read(text: &str) -> Result<Outcome, String> {
        super::read(text, Timestamp::UNIX_EPOCH)
    }

    #[rstest]
    #[case("")]
    #[case("imported 3 rows")]
    #[case(r#"{"status": "ok"}"#)]
    #[case(r#"{"result": 3, "rows": 7}"#)]
    #[case(r#"["retry"]"#)]
    #[case("{broken")]
    #[case(r#"{"request_id": "0196f3a2"}"#)]
    #[case(r#"{"request": {"id": 7}}"#)]
    #[case(r#"{"requestId": {"value": 7}}"#)]
    #[case(r#"{"required": {}}"#)]
    #[case(r#"{"queue": {"length": 7}}"#)]
    #[case(r#"{"requeued": 3}"#)]
    #[case(r#"{"requeued": 3, "discarded": 4}"#)]
    #[case(r#"{"deleted": true}"#)]
    #[case(r#"{"deleted": {"rows": 3}}"#)]
    #[case(r#"{"discarded": {"rows": 3}}"#)]
    #[case(r#"{"dead": {}}"#)]
    #[case(r#"{"letter": {}}"#)]
    #[case(r#"{"dead_letters": 0}"#)]
    #[case(r#"{"entry": {"id": 7}}"#)]
    #[case(r#"{"retries": {"left": 3}}"#)]
    #[case(r#"{"retried": {}}"#)]
    #[case(r#"{"retry_count": {"total": 0}}"#)]
    #[case(r#"{"Retry-After": {}}"#)]
    #[case(r#"{"result": {}}"#)]
    #[case(r#"{"disc": {}}"#)]
    #[case(r#"{"retry": false}"#)]
    #[case(r#"{"retry": null}"#)]
    #[case(r#"{"retry": 0}"#)]
    #[case(r#"{"discard": []}"#)]
    #[case(r#"{"status": "ok", "retry": false}"#)]
    #[case(r#"{"status": "ok", "retry": "never"}"#)]
    #[case(r#"{"status": "ok", "Retry": {}}"#)]
    #[case(r#"{"Retry": {}, "discards": {}}"#)]
    #[case(r#"{"dead_letter": "none"}"#)]
    fn a_text_that_is_no_answer_means_done(#[case] text: &str) {
        assert_eq!(read(text), Ok(Outcome::Done));
    }

    #[rstest]
    #[case(r#"{"requeue": {}}"#)]
    #[case(r#"{"requeue": {"at": "soon"}}"#)]
    #[case(r#"{"requeue": {"at": "2026-06-01T00:00:00Z", "after": "1h"}}"#)]
    #[case(r#"{"retry": {"after": "5"}}"#)]
    #[case(r#"{"retry": {"afer": "5s"}}"#)]
    #[case(r#"{"retry": {}, "discard": {}}"#)]
    #[case(r#"{"dead-letter": "because"}"#)]
    #[case(r#"{"dead_letter": {"reason": "never"}}"#)]
    #[case(r#"{"Requeue": {"after": "1h"}}"#)]
    #[case(r#"{"re-queue": {"after": "1h"}}"#)]
    #[case(r#"{"requeu": {"after": "1h"}}"#)]
    #[case(r#"{"DEADLETTER": {}}"#)]
    #[case(r#"{"dead-leter": {}}"#)]
    #[case(r#"{"discards": {}}"#)]
    #[case(r#"{"retri": {}}"#)]
    #[case(r#"{"retry": "5s"}"#)]
    #[case(r#"{"retry": {}, "status": "busy"}"#)]
    #[case(r#"{"requeue":{"after":"1h"#)]
    #[case(r#"{"requeue":{"after":"1h"}"#)]
    #[case(r#"{"discard": {}} {"rows": 3}"#)]
    #[case("{\"discard\": {'reason': 'left'}}")]
    fn a_broken_answer_is_a_failure_and_not_done(#[case] text: &str) {
        assert!(read(text).is_err());
    }

    #[rstest]
    #[case(r#"{"discard": {"reason": "and so on"#, true)]
    #[case("\n { \n \"dead-letter\" : {", true)]
    #[case(r#"{"rows": [{"retry": {"after": "1s"}}, "#, false)]
    #[case(r#"{"retry"#, true)]
    #[case(r#"{"dead-lett"#, true)]
    #[case(r#"{"ret"#, false)]
    #[case(r#"{"discard""#, true)]
    #[case(r#"{"discard":"#, true)]
    #[case(r#"{"discard": 3"#, false)]
    #[case(r#"{"discarded""#, false)]
    #[case(r#"{"retry": false, "rows": ["#, false)]
    #[case("<!DOCTYPE html>", false)]
    fn the_beginning_of_an_answer_is_recognised(#[case] text: &str, #[case] expected: bool) {
        assert_eq!(begins(text), expected);
    }

    #[rstest]
    #[case(r#"{"requeue": {"after": "1h""#, "the answer is broken off")]
    #[case(r#"{"discard":"#, "the answer is broken off")]
    #[case(r#"{"dead-lett"#, "the answer is broken off")]
    #[case(r#"{"retry": {}, "discard": {}}"#, "it has `discard` and `retry`, and only one is allowed")]
    #[case(r#"{"requeue": {"at": "9999-12-31T23:59:59Z"}}"#, "`9999-12-31T23:59:59Z` is too late; the last time")]
    #[case(r#"{"requeue": {"after": "3000000d"}}"#, "`after` leads beyond the year 9999")]
    #[case(r#"{"retry": {"after": "3000000d"}}"#, "`after` leads beyond the year 9999")]
    #[case(r#"{"discard": "left"}"#, r#"write {"discard": {"reason": …}}"#)]
    #[case(r#"{"requeue": "1h"}"#, r#"write {"requeue": {"after": …}}"#)]
    fn the_error_names_the_mistake(#[case] text: &str, #[case] expected: &str) {
        let error = read(text).expect_err("broken");
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn an_answer_says_more_than_done() {
        let at = "2026-06-01T00:00:00Z".parse().expect("a time");
        let requeue = r#"{"requeue": {"at": "2026-06-01T00:00:00Z", "reason": "end_date"}}"#;
        assert_eq!(read(requeue), Ok(Outcome::Requeue { at, reason: "end_date".into() }));
        let retry = Outcome::Retry { reason: "the handler asked for it".into(), after: Some(Duration::from_secs(30)) };
        assert_eq!(read(r#"{"retry": {"after": "30s"}}"#), Ok(retry));
        assert_eq!(
            read("\u{feff} {\"discard\": {\"reason\": \"left\"}}"),
            Ok(Outcome::Discard { reason: "left".into() })
        );
        let dead = Outcome::DeadLetter { reason: "no such employee".into() };
        assert_eq!(read(r#"{"dead-letter": {"reason": "no such employee"}}"#), Ok(dead));
        let at = Timestamp::from_second(3_600).expect("a time");
        let requeue = read(r#"{"requeue": {"after": "1h"}}"#);
        assert_eq!(requeue, Ok(Outcome::Requeue { at, reason: "requeue".into() }));
    }
}
