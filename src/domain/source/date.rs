//! The dates in messages.

use jiff::{Timestamp, Zoned, civil::DateTime, fmt::temporal::Pieces, tz::TimeZone};
use serde_json::{Number, Value};

use crate::domain::ttl::parse_time;

/// The numbers of digits of seconds and of milliseconds since 1970. Eight digits are a date, like `20260601`.
const SECONDS: std::ops::RangeInclusive<usize> = 9..=11;
const MILLIS: std::ops::RangeInclusive<usize> = 12..=14;

/// Reads a date. `Ok(None)` is a date that is not set, `Err` a value that is no date.
///
/// A date without a time is the first instant of its day. A local time that the zone skips is the one after the gap, and
/// of a local time that comes twice the first counts.
pub(super) fn read(value: &Value, zone: &TimeZone) -> Result<Option<Timestamp>, NoDate> {
    match value {
        Value::Null => Ok(None),
        Value::Number(number) => number_of(number, zone).map(Some),
        Value::String(text) => text_of(text.trim(), zone).map(Some),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(NoDate),
    }
}

/// A value is no date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoDate;

fn number_of(number: &Number, zone: &TimeZone) -> Result<Timestamp, NoDate> {
    if let Some(whole) = number.as_u64() {
        return digits(&whole.to_string(), zone);
    }
    // Seconds with a fraction, as Python's `time.time()` has them. Rounded up, so that no event is early.
    let seconds = number.as_f64().filter(|seconds| (1e8..1e11).contains(seconds)).ok_or(NoDate)?;
    #[expect(clippy::cast_possible_truncation, reason = "at most 10^14")]
    let millis = (seconds * 1_000.0).ceil() as i64;
    Timestamp::from_millisecond(millis).map_err(|_| NoDate)
}

fn text_of(text: &str, zone: &TimeZone) -> Result<Timestamp, NoDate> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return digits(text, zone);
    }
    let pieces = Pieces::parse(text).map_err(|_| NoDate)?;
    if pieces.time_zone_annotation().is_some() {
        return text.parse::<Zoned>().map(|zoned| zoned.timestamp()).map_err(|_| NoDate);
    }
    if pieces.offset().is_some() {
        return parse_time(text).map_err(|_| NoDate);
    }
    at(DateTime::from_parts(pieces.date(), pieces.time().unwrap_or_default()), pieces.time().is_none(), zone)
}

fn digits(text: &str, zone: &TimeZone) -> Result<Timestamp, NoDate> {
    let number = || text.parse::<i64>().map_err(|_| NoDate);
    let timestamp = match text.len() {
        8 => {
            let date = jiff::civil::Date::strptime("%Y%m%d", text).map_err(|_| NoDate)?;
            return at(date.to_datetime(jiff::civil::Time::midnight()), true, zone);
        }
        length if SECONDS.contains(&length) => Timestamp::from_second(number()?),
        length if MILLIS.contains(&length) => Timestamp::from_millisecond(number()?),
        _ => return Err(NoDate),
    };
    timestamp.map_err(|_| NoDate)
}

/// Returns the instant of a local time, or of the start of its day. 9999-12-31 stands for "no end" in many programs, and is the last
/// second of a [`Timestamp`].
fn at(local: DateTime, is_day: bool, zone: &TimeZone) -> Result<Timestamp, NoDate> {
    let zoned = if is_day { local.date().to_zoned(zone.clone()) } else { local.to_zoned(zone.clone()) };
    let last = || Timestamp::from_second(Timestamp::MAX.as_second()).ok().filter(|_| local.year() == 9999);
    zoned.ok().map(|zoned| zoned.timestamp()).or_else(last).ok_or(NoDate)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn read_in(zone: &str, value: &Value) -> Result<Option<String>, NoDate> {
        let zone = TimeZone::get(zone).expect("a zone");
        read(value, &zone).map(|time| time.map(|time| time.to_string()))
    }

    #[rstest]
    #[case::compact(json!("20260601"), "2026-05-31T22:00:00Z")]
    #[case::compact_number(json!(20_260_601), "2026-05-31T22:00:00Z")]
    #[case::date(json!("2026-06-01"), "2026-05-31T22:00:00Z")]
    #[case::in_winter(json!("2026-12-01"), "2026-11-30T23:00:00Z")]
    #[case::leap_day(json!("20280229"), "2028-02-28T23:00:00Z")]
    #[case::white_space(json!(" 2026-06-01 "), "2026-05-31T22:00:00Z")]
    #[case::rfc_3339(json!("2026-06-01T09:00:00+02:00"), "2026-06-01T07:00:00Z")]
    #[case::rfc_3339_utc(json!("2026-06-01T09:00:00.25Z"), "2026-06-01T09:00:00.25Z")]
    #[case::local(json!("2026-06-01T09:00:00"), "2026-06-01T07:00:00Z")]
    #[case::local_with_a_space(json!("2026-06-01 09:00"), "2026-06-01T07:00:00Z")]
    #[case::its_own_zone(json!("2026-06-01T09:00:00[America/New_York]"), "2026-06-01T13:00:00Z")]
    #[case::seconds(json!(1_780_300_800), "2026-06-01T08:00:00Z")]
    #[case::seconds_as_text(json!("1780300800"), "2026-06-01T08:00:00Z")]
    #[case::seconds_with_a_fraction(json!(1_780_300_800.5), "2026-06-01T08:00:00.5Z")]
    #[case::millis(json!(1_780_300_800_250_i64), "2026-06-01T08:00:00.25Z")]
    #[case::long_ago(json!("0001-01-01"), "0000-12-31T23:06:32Z")]
    #[case::no_end(json!("9999-12-31"), "9999-12-30T22:00:00Z")]
    #[case::no_end_compact(json!(99_991_231), "9999-12-30T22:00:00Z")]
    #[case::skipped(json!("2026-03-29T02:30:00"), "2026-03-29T01:30:00Z")]
    #[case::twice(json!("2026-10-25T02:30:00"), "2026-10-25T00:30:00Z")]
    fn a_date_is_read_in_its_zone(#[case] value: Value, #[case] expected: &str) {
        assert_eq!(read_in("Europe/Berlin", &value), Ok(Some(expected.to_owned())), "{value}");
    }

    #[test]
    fn a_day_without_midnight_begins_with_its_first_instant() {
        // Clocks went from 24:00 to 01:00.
        let first = read_in("America/Sao_Paulo", &json!("2018-11-04"));
        assert_eq!(first, Ok(Some("2018-11-04T03:00:00Z".to_owned())));
        // Samoa skipped the whole day.
        let none = read_in("Pacific/Apia", &json!("2011-12-30"));
        assert_eq!(none, Ok(Some("2011-12-30T10:00:00Z".to_owned())));
    }

    #[rstest]
    #[case(json!("soon"))]
    #[case(json!(""))]
    #[case(json!(" "))]
    #[case(json!("01.06.2026"))]
    #[case(json!("06/01/2026"))]
    #[case(json!("2026-02-30"))]
    #[case(json!("20260230"))]
    #[case(json!(20_260_230))]
    #[case(json!("2026-06"))]
    #[case(json!("09:00"))]
    #[case(json!("9999-12-31T23:59:59Z"))]
    #[case(json!(0))]
    #[case(json!(5))]
    #[case(json!(-1_780_300_800))]
    #[case(json!(1e300))]
    #[case(json!(999_999_999_999_999_999_u64))]
    #[case(json!("999999999999999"))]
    #[case(json!(true))]
    #[case(json!(["2026-06-01"]))]
    #[case(json!({ "date": "2026-06-01" }))]
    #[case(json!("2026-06-01T09:00:00[Mars/Phobos]"))]
    fn a_value_that_is_no_date_is_told_from_one(#[case] value: Value) {
        assert_eq!(read_in("Europe/Berlin", &value), Err(NoDate), "{value}");
    }

    #[test]
    fn nothing_is_no_date_and_no_mistake() {
        assert_eq!(read_in("UTC", &Value::Null), Ok(None));
    }

    proptest! {
        #[test]
        fn any_text_and_any_number_is_a_date_or_none(text in ".{0,30}", number in any::<i64>(), float in any::<f64>()) {
            for value in [json!(text), json!(number), json!(float), json!(number.to_string())] {
                let _ = read(&value, &TimeZone::UTC);
            }
        }

        #[test]
        fn a_written_instant_is_read_again(seconds in -62_000_000_000_i64..250_000_000_000) {
            let time = Timestamp::from_second(seconds).expect("an instant");
            prop_assert_eq!(read(&json!(time.to_string()), &TimeZone::UTC), Ok(Some(time)));
        }
    }
}
