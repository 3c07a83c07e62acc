//! Tests calendars on tables.

mod watched;

use jiff::civil::date;
use rstest::rstest;

use super::*;

fn at(text: &str) -> Timestamp {
    text.parse().expect("a timestamp")
}

fn cron(expression: &str, zone: &str) -> Calendar {
    Calendar::cron(expression, zone).expect("valid")
}

/// Returns the next instants as the clock of the zone shows them.
fn following(calendar: &Calendar, after: &str, count: usize) -> Vec<String> {
    let next = |instant: &Timestamp| calendar.next_after(*instant);
    let shown = |instant: Timestamp| instant.to_zoned(calendar.zone()).strftime("%F %T%:z").to_string();
    std::iter::successors(next(&at(after)), next).take(count).map(shown).collect()
}

#[rstest]
#[case::every_minute("* * * * *", "2026-01-01T00:00:30Z", &["2026-01-01 00:01:00", "2026-01-01 00:02:00"])]
#[case::strictly_after("0 3 * * *", "2026-01-01T03:00:00Z", &["2026-01-02 03:00:00"])]
#[case::less_than_a_second_before("0 3 * * *", "2026-01-01T02:59:59.999999999Z", &["2026-01-01 03:00:00"])]
#[case::less_than_a_second_after("0 3 * * *", "2026-01-01T03:00:00.000000001Z", &["2026-01-02 03:00:00"])]
#[case::before_1970("0 3 * * *", "1969-12-31T02:59:59.5Z", &["1969-12-31 03:00:00", "1970-01-01 03:00:00"])]
#[case::a_list("5,35 8,17 * * *", "2026-01-01T08:05:00Z", &["2026-01-01 08:35:00", "2026-01-01 17:05:00", "2026-01-01 17:35:00", "2026-01-02 08:05:00"])]
#[case::a_range("0 9-11 * * *", "2026-01-01T09:00:00Z", &["2026-01-01 10:00:00", "2026-01-01 11:00:00", "2026-01-02 09:00:00"])]
#[case::a_step("*/25 * * * *", "2026-01-01T00:00:00Z", &["2026-01-01 00:25:00", "2026-01-01 00:50:00", "2026-01-01 01:00:00"])]
#[case::a_step_in_a_range("10-30/10 0 * * *", "2026-01-01T00:00:00Z", &["2026-01-01 00:10:00", "2026-01-01 00:20:00", "2026-01-01 00:30:00", "2026-01-02 00:10:00"])]
#[case::a_step_from_a_value("50/5 0 * * *", "2026-01-01T00:00:00Z", &["2026-01-01 00:50:00", "2026-01-01 00:55:00", "2026-01-02 00:50:00"])]
#[case::seconds("*/20 59 23 * * *", "2026-12-31T23:59:00Z", &["2026-12-31 23:59:20", "2026-12-31 23:59:40", "2027-01-01 23:59:00"])]
#[case::month_ends("0 0 31 * *", "2026-01-31T00:00:00Z", &["2026-03-31 00:00:00", "2026-05-31 00:00:00", "2026-07-31 00:00:00", "2026-08-31 00:00:00", "2026-10-31 00:00:00"])]
#[case::leap_days("0 12 29 2 *", "2026-01-01T00:00:00Z", &["2028-02-29 12:00:00", "2032-02-29 12:00:00"])]
#[case::no_leap_day_in_2100("0 12 29 2 *", "2096-02-29T12:00:00Z", &["2104-02-29 12:00:00"])]
#[case::a_leap_day_in_2000("0 12 29 2 *", "1996-03-01T00:00:00Z", &["2000-02-29 12:00:00"])]
#[case::a_day_that_february_lacks_or_a_monday("0 0 31 2 1", "2026-01-01T00:00:00Z", &["2026-02-02 00:00:00", "2026-02-09 00:00:00"])]
#[case::names("0 0 * JAN,jul Mon", "2026-01-20T00:00:00Z", &["2026-01-26 00:00:00", "2026-07-06 00:00:00"])]
#[case::zero_is_sunday("0 0 * * 0", "2026-01-01T00:00:00Z", &["2026-01-04 00:00:00"])]
#[case::one_is_monday("0 0 * * 1", "2026-01-01T00:00:00Z", &["2026-01-05 00:00:00"])]
#[case::six_is_saturday("0 0 * * 6", "2026-01-01T00:00:00Z", &["2026-01-03 00:00:00"])]
#[case::seven_is_sunday("0 0 * * 7", "2026-01-01T00:00:00Z", &["2026-01-04 00:00:00"])]
#[case::sunday_ends_a_week("0 0 * * FRI-SUN", "2026-01-01T00:00:00Z", &["2026-01-02 00:00:00", "2026-01-03 00:00:00", "2026-01-04 00:00:00", "2026-01-09 00:00:00"])]
#[case::saturday_to_seven("0 0 * * 6-7", "2026-01-01T00:00:00Z", &["2026-01-03 00:00:00", "2026-01-04 00:00:00", "2026-01-10 00:00:00"])]
#[case::zero_to_seven("0 0 * * 0-7", "2026-01-01T00:00:00Z", &["2026-01-02 00:00:00", "2026-01-03 00:00:00"])]
#[case::a_step_in_the_week("0 0 * * */2", "2026-01-04T00:00:00Z", &["2026-01-06 00:00:00", "2026-01-08 00:00:00", "2026-01-10 00:00:00", "2026-01-11 00:00:00"])]
#[case::a_step_from_friday("0 0 * * 5/1", "2026-01-01T00:00:00Z", &["2026-01-02 00:00:00", "2026-01-03 00:00:00", "2026-01-09 00:00:00"])]
#[case::hourly("@hourly", "2026-01-01T00:00:00Z", &["2026-01-01 01:00:00", "2026-01-01 02:00:00"])]
#[case::daily("@daily", "2026-01-01T00:00:00Z", &["2026-01-02 00:00:00"])]
#[case::midnight("@midnight", "2026-01-01T00:00:00Z", &["2026-01-02 00:00:00"])]
#[case::weekly("@weekly", "2026-01-01T00:00:00Z", &["2026-01-04 00:00:00"])]
#[case::monthly("@Monthly", "2026-01-01T00:00:00Z", &["2026-02-01 00:00:00"])]
#[case::yearly("@yearly", "2026-01-01T00:00:00Z", &["2027-01-01 00:00:00"])]
#[case::annually("@annually", "2026-01-01T00:00:00Z", &["2027-01-01 00:00:00"])]
fn a_cron_expression_has_these_instants(#[case] expression: &str, #[case] after: &str, #[case] expected: &[&str]) {
    let expected: Vec<String> = expected.iter().map(|time| format!("{time}+00:00")).collect();
    assert_eq!(following(&cron(expression, "UTC"), after, expected.len()), expected);
}

/// January 2026 begins with a Thursday.
#[rstest]
#[case::neither_is_restricted("0 0 * * *", &[1, 2, 3, 4, 5])]
#[case::the_day_of_the_month("0 0 2,4 * *", &[2, 4])]
#[case::the_weekday("0 0 * * 5", &[2, 9, 16, 23, 30])]
#[case::either_of_both("0 0 3 * 5", &[2, 3, 9, 16, 23])]
#[case::a_question_mark_restricts_nothing("0 0 ? * 5", &[2, 9, 16, 23, 30])]
#[case::nor_does_one_for_the_weekday("0 0 2,4 * ?", &[2, 4])]
#[case::nor_does_a_step_of_one("0 0 */1 * 5", &[2, 9, 16, 23, 30])]
#[case::a_step_restricts("0 0 */10 * 5", &[1, 2, 9, 11, 16])]
#[case::all_days_written_out_restrict("0 0 1-31 * 5", &[1, 2, 3, 4, 5])]
fn two_restricted_day_fields_are_alternatives(#[case] expression: &str, #[case] days: &[i8]) {
    let days: Vec<String> = days.iter().map(|day| format!("{} 00:00:00+00:00", date(2026, 1, *day))).collect();
    assert_eq!(following(&cron(expression, "UTC"), "2025-12-31T23:59:59Z", days.len()), days);
}

#[rstest]
// 2026-03-29: 02:00 +01:00 becomes 03:00 +02:00. 2026-10-25: 03:00 +02:00 becomes 02:00 +01:00.
#[case::before_the_gap("Europe/Berlin", "59 1 * * *", "2026-03-28T12:00:00Z", &["2026-03-29 01:59:00+01:00", "2026-03-30 01:59:00+02:00"])]
#[case::in_the_gap("Europe/Berlin", "30 2 * * *", "2026-03-28T12:00:00Z", &["2026-03-29 03:00:00+02:00", "2026-03-30 02:30:00+02:00"])]
#[case::first_of_the_gap("Europe/Berlin", "0 2 * * *", "2026-03-28T12:00:00Z", &["2026-03-29 03:00:00+02:00", "2026-03-30 02:00:00+02:00"])]
#[case::after_the_gap("Europe/Berlin", "0 3 * * *", "2026-03-28T12:00:00Z", &["2026-03-29 03:00:00+02:00", "2026-03-30 03:00:00+02:00"])]
#[case::several_in_one_gap("Europe/Berlin", "*/20 2 * * *", "2026-03-28T12:00:00Z", &["2026-03-29 03:00:00+02:00", "2026-03-30 02:00:00+02:00"])]
#[case::around_the_gap("Europe/Berlin", "*/30 1-3 * * *", "2026-03-28T12:00:00Z", &["2026-03-29 01:00:00+01:00", "2026-03-29 01:30:00+01:00", "2026-03-29 03:00:00+02:00", "2026-03-29 03:30:00+02:00"])]
#[case::hourly_over_the_gap("Europe/Berlin", "15 * * * *", "2026-03-29T00:00:00Z", &["2026-03-29 01:15:00+01:00", "2026-03-29 03:00:00+02:00", "2026-03-29 03:15:00+02:00"])]
#[case::from_inside_the_instant("Europe/Berlin", "30 2 * * *", "2026-03-29T01:00:00Z", &["2026-03-30 02:30:00+02:00"])]
#[case::in_the_fold("Europe/Berlin", "30 2 * * *", "2026-10-24T12:00:00Z", &["2026-10-25 02:30:00+02:00", "2026-10-26 02:30:00+01:00"])]
#[case::from_the_second_pass("Europe/Berlin", "30 2 * * *", "2026-10-25T01:10:00Z", &["2026-10-26 02:30:00+01:00"])]
#[case::after_the_fold("Europe/Berlin", "0 3 * * *", "2026-10-24T12:00:00Z", &["2026-10-25 03:00:00+01:00"])]
#[case::every_so_often_in_the_fold("Europe/Berlin", "*/30 * * * *", "2026-10-25T00:00:00Z", &["2026-10-25 02:30:00+02:00", "2026-10-25 03:00:00+01:00"])]
#[case::every_so_often_from_the_second_pass("Europe/Berlin", "*/30 * * * *", "2026-10-25T01:00:00Z", &["2026-10-25 03:00:00+01:00"])]
// 2026-03-08: 02:00 -05:00 becomes 03:00 -04:00. 2026-11-01: 02:00 -04:00 becomes 01:00 -05:00.
#[case::in_the_gap("America/New_York", "30 2 * * *", "2026-03-08T00:00:00Z", &["2026-03-08 03:00:00-04:00", "2026-03-09 02:30:00-04:00"])]
#[case::in_the_fold("America/New_York", "30 1 * * *", "2026-11-01T00:00:00Z", &["2026-11-01 01:30:00-04:00", "2026-11-02 01:30:00-05:00"])]
#[case::after_the_fold("America/New_York", "0 2 * * *", "2026-11-01T00:00:00Z", &["2026-11-01 02:00:00-05:00"])]
// 2026-04-05: 02:00 +11:00 becomes 01:30 +10:30. 2026-10-04: 02:00 +10:30 becomes 02:30 +11:00.
#[case::in_the_gap("Australia/Lord_Howe", "15 2 * * *", "2026-10-03T12:00:00Z", &["2026-10-04 02:30:00+11:00", "2026-10-05 02:15:00+11:00"])]
#[case::after_the_gap("Australia/Lord_Howe", "45 2 * * *", "2026-10-03T12:00:00Z", &["2026-10-04 02:45:00+11:00"])]
#[case::in_the_fold("Australia/Lord_Howe", "*/15 1 * * *", "2026-04-04T12:00:00Z", &["2026-04-05 01:00:00+11:00", "2026-04-05 01:15:00+11:00", "2026-04-05 01:30:00+11:00", "2026-04-05 01:45:00+11:00", "2026-04-06 01:00:00+10:30"])]
// The offset is not whole hours, and never changes.
#[case::every_day("Asia/Kolkata", "30 2 * * *", "2026-03-28T12:00:00Z", &["2026-03-29 02:30:00+05:30", "2026-03-30 02:30:00+05:30"])]
// Ramadan 2026: 03:00 +01:00 becomes 02:00 +00:00 on 15 February, and 02:00 +00:00 becomes 03:00 +01:00 on 22 March.
#[case::before_ramadan("Africa/Casablanca", "30 2 * * *", "2026-02-14T12:00:00Z", &["2026-02-15 02:30:00+01:00", "2026-02-16 02:30:00+00:00"])]
#[case::after_ramadan("Africa/Casablanca", "30 2 * * *", "2026-03-21T12:00:00Z", &["2026-03-22 03:00:00+01:00", "2026-03-23 02:30:00+01:00"])]
// 2026-04-24: 00:00 +02:00 becomes 01:00 +03:00. 2026-10-30: 00:00 +03:00 becomes 23:00 +02:00 of the day before.
#[case::no_midnight("Africa/Cairo", "@daily", "2026-04-23T12:00:00Z", &["2026-04-24 01:00:00+03:00", "2026-04-25 00:00:00+03:00"])]
#[case::the_day_ends_twice("Africa/Cairo", "30 23 * * *", "2026-10-29T12:00:00Z", &["2026-10-29 23:30:00+03:00", "2026-10-30 23:30:00+02:00"])]
#[case::midnight_after_the_fold("Africa/Cairo", "@daily", "2026-10-29T12:00:00Z", &["2026-10-30 00:00:00+02:00"])]
// The 30 December 2011 does not exist.
#[case::a_day_that_does_not_exist("Pacific/Apia", "0 */8 * * *", "2011-12-30T09:00:00Z", &["2011-12-31 00:00:00+14:00", "2011-12-31 08:00:00+14:00"])]
fn daylight_saving_runs_each_local_time_once(
    #[case] zone: &str,
    #[case] expression: &str,
    #[case] after: &str,
    #[case] expected: &[&str],
) {
    assert_eq!(following(&cron(expression, zone), after, expected.len()), expected);
}

#[rstest]
#[case("0 3 * * *", "2026-01-02T03:00:00Z", "2026-01-01T03:00:00Z", Some("2026-01-02T03:00:00Z"))]
#[case("0 3 * * *", "2026-01-02T02:59:59Z", "2026-01-01T03:00:00Z", None)]
#[case("0 3 * * *", "2026-01-02T02:59:59Z", "2026-01-01T02:59:59Z", Some("2026-01-01T03:00:00Z"))]
#[case("0 3 * * *", "2026-01-02T03:00:00.5Z", "2026-01-02T03:00:00Z", None)]
#[case("0 3 * * *", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z", None)]
#[case("* * * * * *", "2026-02-01T00:00:00.9Z", "2026-01-01T00:00:00Z", Some("2026-02-01T00:00:00Z"))]
#[case("0 12 29 2 *", "2104-02-29T11:59:59Z", "2000-01-01T00:00:00Z", Some("2096-02-29T12:00:00Z"))]
fn the_last_instant_is_found_from_now(
    #[case] expression: &str,
    #[case] now: &str,
    #[case] after: &str,
    #[case] expected: Option<&str>,
) {
    assert_eq!(cron(expression, "UTC").last_at_or_before(at(now), at(after)), expected.map(at));
}

#[rstest]
#[case::a_gap("2026-03-29T01:00:00Z", "30 2 * * *", Some("2026-03-29T01:00:00Z"))]
#[case::before_a_gap("2026-03-29T00:59:59Z", "30 2 * * *", Some("2026-03-28T01:30:00Z"))]
#[case::the_first_pass("2026-10-25T00:10:00Z", "*/15 * * * *", Some("2026-10-25T00:00:00Z"))]
#[case::the_second_pass("2026-10-25T01:10:00Z", "*/15 * * * *", Some("2026-10-25T00:45:00Z"))]
#[case::after_the_fold("2026-10-25T02:00:00Z", "*/15 * * * *", Some("2026-10-25T02:00:00Z"))]
fn the_last_instant_respects_daylight_saving(
    #[case] now: &str,
    #[case] expression: &str,
    #[case] expected: Option<&str>,
) {
    let calendar = cron(expression, "Europe/Berlin");
    assert_eq!(calendar.last_at_or_before(at(now), Timestamp::UNIX_EPOCH), expected.map(at));
}

#[test]
fn an_interval_is_anchored_to_1970() {
    let calendar = Calendar::every(Duration::from_mins(7)).expect("valid");
    assert_eq!(calendar.next_after(at("1970-01-01T00:00:00Z")), Some(at("1970-01-01T00:07:00Z")));
    assert_eq!(calendar.next_after(at("1970-01-01T00:06:59.999Z")), Some(at("1970-01-01T00:07:00Z")));
    assert_eq!(calendar.next_after(at("1969-12-31T23:59:59.999Z")), Some(at("1970-01-01T00:00:00Z")));
    let now = at("1970-01-08T00:00:01Z");
    assert_eq!(calendar.last_at_or_before(now, Timestamp::UNIX_EPOCH), Some(at("1970-01-08T00:00:00Z")));
    assert_eq!(calendar.last_at_or_before(now, at("1970-01-08T00:00:00Z")), None);
}

#[test]
fn a_calendar_ends_with_the_last_timestamp() {
    for calendar in
        [cron("* * * * * *", "Pacific/Kiritimati"), cron("* * * * * *", "Pacific/Pago_Pago"), cron("0 0 1 1 *", "UTC")]
    {
        assert_eq!(calendar.next_after(Timestamp::MAX), None, "{calendar}");
        assert_eq!(calendar.last_at_or_before(Timestamp::MIN, Timestamp::MIN), None, "{calendar}");
    }
    let calendar = Calendar::every(LONGEST).expect("valid");
    assert_eq!(calendar.next_after(Timestamp::MAX), None);
    assert_eq!(calendar.last_at_or_before(Timestamp::MIN, Timestamp::MIN), None);
}

#[test]
fn a_calendar_is_shown_as_people_write_it() {
    let calendar = cron("  0 3\t* *   1-5 ", "europe/berlin");
    assert_eq!(calendar.to_string(), "0 3 * * 1-5 Europe/Berlin");
    assert_eq!((calendar.expression(), calendar.zone_name()), (Some("0 3 * * 1-5"), "Europe/Berlin"));
    assert_eq!(calendar.interval(), None);
    assert_eq!(cron("@daily", "utc").to_string(), "@daily UTC");
    let calendar = Calendar::every(Duration::from_mins(5)).expect("valid");
    assert_eq!(calendar.to_string(), "every 5m");
    assert_eq!((calendar.expression(), calendar.zone_name()), (None, "UTC"));
    assert_eq!(calendar.interval(), Some(Duration::from_mins(5)));
}

#[rstest]
#[case("60 * * * * *", "second 60 is out of range: 0 to 59")]
#[case("61 * * * *", "minute 61 is out of range: 0 to 59")]
#[case("0 24 * * *", "hour 24 is out of range: 0 to 23")]
#[case("0 0 0 * *", "day of month 0 is out of range: 1 to 31")]
#[case("0 0 1-32 * *", "day of month 32 is out of range: 1 to 31")]
#[case("0 0 1 13 *", "month 13 is out of range: 1 to 12 or JAN to DEC")]
#[case("0 0 1 0 *", "month 0 is out of range: 1 to 12 or JAN to DEC")]
#[case("0 0 * * 8", "day of week 8 is out of range: 0 to 7 (both are Sunday) or SUN to SAT")]
#[case("99999999999999999999999 * * * *", "minute 99999999999999999999999 is out of range: 0 to 59")]
#[case(
    "*/0 * * * *",
    "minute step `0` is not a number from 1 to 59 (to run less often, use an interval, like `every: 90m`)"
)]
#[case(
    "*/90 * * * *",
    "minute step `90` is not a number from 1 to 59 (to run less often, use an interval, like `every: 90m`)"
)]
#[case("0 0 */x * *", "day of month step `x` is not a number from 1 to 31")]
#[case(
    "*/ * * * *",
    "minute step `` is not a number from 1 to 59 (to run less often, use an interval, like `every: 90m`)"
)]
#[case("0 22-6 * * *", "hour 22-6 goes backwards; write two ranges, like 22-23,0-6")]
#[case("0 0 * * SAT-MON", "day of week SAT-MON goes backwards; write two ranges, like 5-6,0-1")]
#[case("1,,2 * * * *", "`` is not a minute; write 0 to 59, as in */15 or 0,30")]
#[case("-5 * * * *", "`` is not a minute; write 0 to 59, as in */15 or 0,30")]
#[case("+5 * * * *", "`+5` is not a minute; write 0 to 59, as in */15 or 0,30")]
#[case("5.5 * * * *", "`5.5` is not a minute; write 0 to 59, as in */15 or 0,30")]
#[case("? * * * *", "`?` is not a minute; write 0 to 59, as in */15 or 0,30")]
#[case("0 0 L * *", "`L` is not a day of month; write 1 to 31, as in 1,15")]
#[case("0 0 * * MOM", "`MOM` is not a day of week; is it `MON`?")]
#[case("0 0 * * MONDAY", "`MONDAY` is not a day of week; is it `MON`?")]
#[case("0 0 * * SUNMON", "`SUNMON` is not a day of week; is it `SUN`?")]
#[case("0 0 1 JULY *", "`JULY` is not a month; is it `JUL`?")]
#[case("0 0 1 * JAN", "`JAN` is not a day of week; write 0 to 7 (both are Sunday) or SUN to SAT, as in MON-FRI")]
#[case("0 0 * * 5#3", "`5#3` is not a day of week; write 0 to 7 (both are Sunday) or SUN to SAT, as in MON-FRI")]
#[case("٣ * * * *", "`٣` is not a minute; write 0 to 59, as in */15 or 0,30")]
#[case("\u{1b}[31m * * * *", "`\\u{1b}[31m` is not a minute; write 0 to 59, as in */15 or 0,30")]
#[case(
    "",
    "`` has no fields and a cron expression has five: minute, hour, day of month, month, day of week (or six, with seconds first)"
)]
#[case(
    " \t\n",
    "`` has no fields and a cron expression has five: minute, hour, day of month, month, day of week (or six, with seconds first)"
)]
#[case(
    "5m",
    "`5m` has one field and a cron expression has five: minute, hour, day of month, month, day of week (or six, with seconds first)"
)]
#[case(
    "0 3 * *",
    "`0 3 * *` has 4 fields and a cron expression has five: minute, hour, day of month, month, day of week (or six, with seconds first)"
)]
#[case(
    "0 0 3 * * * 2026",
    "`0 0 3 * * * 2026` has 7 fields and a cron expression has five: minute, hour, day of month, month, day of week (or six, with seconds first)"
)]
#[case(
    "@reboot",
    "`@reboot` is not a nickname; write @hourly, @daily, @midnight, @weekly, @monthly, @yearly or @annually"
)]
#[case("0 0 30 2 *", "`0 0 30 2 *` never runs, because none of its months has any of its days")]
#[case("0 0 31 4,6,9,11 *", "`0 0 31 4,6,9,11 *` never runs, because none of its months has any of its days")]
fn an_error_names_the_field_and_says_what_to_write(#[case] expression: &str, #[case] message: &str) {
    assert_eq!(Calendar::cron(expression, "UTC").expect_err("invalid").to_string(), message);
}

#[test]
fn an_error_repeats_little_of_a_long_text() {
    for text in ["9".repeat(10_000), "* ".repeat(5_000), "ä".repeat(10_000), format!("{} * * * *", "x".repeat(10_000))]
    {
        let error = Calendar::cron(&text, "UTC").expect_err("invalid").to_string();
        assert!(error.len() < 300, "{error}");
        let error = Calendar::cron("@daily", &text).expect_err("invalid").to_string();
        assert!(error.len() < 300, "{error}");
    }
    let long = format!("{}0 * * * *", "0,".repeat(5_000));
    assert_eq!(following(&cron(&long, "UTC"), "2026-01-01T00:00:00Z", 1), ["2026-01-01 01:00:00+00:00"]);
}

#[rstest]
#[case("Europe/Berln", "there is no time zone `Europe/Berln`; is it `Europe/Berlin`?")]
#[case("Berlin", "there is no time zone `Berlin`; is it `Europe/Berlin`?")]
#[case("America/New York", "there is no time zone `America/New York`; is it `America/New_York`?")]
#[case(
    "Europe-Berlin",
    "there is no time zone `Europe-Berlin`; write a name of the IANA database, like Europe/Berlin or UTC"
)]
#[case("", "there is no time zone ``; write a name of the IANA database, like Europe/Berlin or UTC")]
#[case("+02:00", "there is no time zone `+02:00`; write a name of the IANA database, like Europe/Berlin or UTC")]
#[case(
    "Etc/Unknown",
    "there is no time zone `Etc/Unknown`; write a name of the IANA database, like Europe/Berlin or UTC"
)]
#[case(
    "../../etc/passwd",
    "there is no time zone `../../etc/passwd`; write a name of the IANA database, like Europe/Berlin or UTC"
)]
#[case("Москва", "there is no time zone `Москва`; write a name of the IANA database, like Europe/Berlin or UTC")]
fn an_unknown_zone_is_reported_with_the_nearest(#[case] zone: &str, #[case] message: &str) {
    assert_eq!(Calendar::cron("@daily", zone).expect_err("unknown").to_string(), message);
}

#[rstest]
#[case(Duration::ZERO, "every 0s: an interval is at least 1s and at most ten years (3650d)")]
#[case(Duration::from_millis(999), "every 999ms: an interval is at least 1s and at most ten years (3650d)")]
#[case(LONGEST + Duration::from_millis(1), "every 3650d 1ms: an interval is at least 1s and at most ten years (3650d)")]
#[case(Duration::from_micros(1_500_500), "every 1.5005s: an interval is whole milliseconds, like 1500ms")]
fn an_interval_has_limits(#[case] interval: Duration, #[case] message: &str) {
    assert_eq!(Calendar::every(interval).expect_err("refused").to_string(), message);
}
