//! Tests calendars beside a clock that is watched minute by minute.

use std::collections::BTreeSet;

use jiff::{ToSpan, tz::TimeZoneDatabase};
use proptest::prelude::*;

use super::*;

const ZONES: [&str; 7] = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    // Half an hour of daylight saving.
    "Australia/Lord_Howe",
    // No daylight saving, and an offset of half an hour.
    "Asia/Kolkata",
    // Daylight saving is the winter time, and pauses in Ramadan.
    "Africa/Casablanca",
    // At midnight, so that 00:00 does not exist on one day of the year.
    "Africa/Cairo",
];

/// Returns the instants in (after, until].
fn between(calendar: &Calendar, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let next = |instant: &Timestamp| calendar.next_after(*instant).filter(|next| *next <= until);
    std::iter::successors(next(&after), next).collect()
}

/// A field as text and the values that it stands for.
type Chosen = (String, BTreeSet<i8>);

fn field(first: i8, last: i8) -> impl Strategy<Value = Chosen> {
    let value = first..=last;
    let part = prop_oneof![
        value.clone().prop_map(|value| (value.to_string(), BTreeSet::from([value]))),
        (value.clone(), value.clone()).prop_map(|(a, b)| {
            let (a, b) = (a.min(b), a.max(b));
            (format!("{a}-{b}"), (a..=b).collect())
        }),
        (value.clone(), 1..=last).prop_map(move |(from, step)| {
            (format!("{from}-{last}/{step}"), (from..=last).filter(|value| (value - from) % step == 0).collect())
        }),
        (1..=last).prop_map(move |step| {
            (format!("*/{step}"), (first..=last).filter(|value| (value - first) % step == 0).collect())
        }),
    ];
    prop_oneof![
        2 => Just(("*".to_owned(), (first..=last).collect())),
        3 => prop::collection::vec(part, 1..3).prop_map(|parts: Vec<Chosen>| {
            let text: Vec<String> = parts.iter().map(|(text, _)| text.clone()).collect();
            (text.join(","), parts.into_iter().flat_map(|(_, values)| values).collect())
        }),
    ]
}

/// An expression of five fields, and what its fields stand for.
#[derive(Clone, Debug)]
struct Line {
    minute: Chosen,
    hour: Chosen,
    day: Chosen,
    month: Chosen,
    weekday: Chosen,
}

impl Line {
    fn text(&self) -> String {
        let Self { minute, hour, day, month, weekday } = self;
        [minute, hour, day, month, weekday].map(|(text, _)| text.as_str()).join(" ")
    }

    fn matches(&self, local: DateTime) -> bool {
        let day = self.day.1.contains(&local.day());
        let weekday = self.weekday.1.contains(&(local.weekday().to_sunday_zero_offset()));
        let is_all = |text: &str| text == "*" || text == "*/1";
        let day = match (is_all(&self.day.0), is_all(&self.weekday.0)) {
            (false, false) => day || weekday,
            (true, _) => weekday,
            (_, true) => day,
        };
        let time = self.minute.1.contains(&local.minute()) && self.hour.1.contains(&local.hour());
        day && time && self.month.1.contains(&local.month())
    }
}

fn line() -> impl Strategy<Value = Line> {
    (field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6))
        .prop_map(|(minute, hour, day, month, weekday)| Line { minute, hour, day, month, weekday })
}

/// Watches the clock of a zone, minute by minute, from an instant that is a whole minute: returns the instants in
/// (after, until] at which it shows a time of the line for the first time or has skipped one.
fn watched(line: &Line, zone: &TimeZone, after: Timestamp, until: Timestamp) -> Vec<Timestamp> {
    let mut found = Vec::new();
    // A fold may have begun before.
    let mut now = after - 3.hours();
    let mut latest = zone.to_datetime(now);
    while now < until {
        now += 1.minute();
        let shown = zone.to_datetime(now);
        let mut is_due = false;
        while latest < shown {
            latest += 1.minute();
            is_due |= line.matches(latest);
        }
        if is_due && now > after {
            found.push(now);
        }
    }
    found
}

/// Returns the changes of a zone's offset in these years.
fn changes(zone: &TimeZone, from: i16, to: i16) -> Vec<Timestamp> {
    let start = date(from, 1, 1).to_zoned(TimeZone::UTC).expect("in range").timestamp();
    let end = date(to, 1, 1).to_zoned(TimeZone::UTC).expect("in range").timestamp();
    zone.following(start).map(|change| change.timestamp()).take_while(|change| *change < end).collect()
}

/// An instant that is often near a change of the zone's offset.
fn instant(zone: &'static str) -> impl Strategy<Value = Timestamp> {
    let zone = TimeZone::get(zone).expect("known");
    let anywhere = (0..4_000_000_000_i64).prop_map(|second| Timestamp::from_second(second).expect("in range")).boxed();
    let changes = changes(&zone, 1990, 2030);
    if changes.is_empty() {
        return anywhere;
    }
    let near = (prop::sample::select(changes), -9_000..9_000_i64).prop_map(|(change, away)| change + away.seconds());
    prop_oneof![anywhere, near].boxed()
}

fn place() -> impl Strategy<Value = (&'static str, Timestamp)> {
    prop::sample::select(&ZONES[..]).prop_flat_map(|zone| instant(zone).prop_map(move |instant| (zone, instant)))
}

proptest! {
    #[test]
    fn a_calendar_agrees_with_a_watched_clock(line in line(), (zone, near) in place()) {
        // A line that never matches is refused, which a test below covers.
        let Ok(calendar) = Calendar::cron(&line.text(), zone) else { return Ok(()) };
        let after = Timestamp::from_second(near.as_second().div_euclid(60) * 60).expect("in range");
        let until = after + 26.hours();
        prop_assert_eq!(between(&calendar, after, until), watched(&line, &calendar.zone(), after, until));
    }

    #[test]
    fn the_next_instant_is_later_and_its_local_time_matches(line in line(), (zone, instant) in place()) {
        let Ok(calendar) = Calendar::cron(&line.text(), zone) else { return Ok(()) };
        let next = calendar.next_after(instant).expect("before the year 9999");
        prop_assert!(next > instant);
        let zone = calendar.zone();
        let is_after_gap = zone.to_offset(next) > zone.to_offset(next - 1.second());
        prop_assert!(line.matches(zone.to_datetime(next)) || is_after_gap, "{next}");
        let unambiguous = zone.to_ambiguous_zoned(zone.to_datetime(next)).earlier().expect("in range").timestamp();
        prop_assert_eq!(next, unambiguous, "a local time that exists twice runs the first time");
    }

    #[test]
    fn a_later_instant_has_no_earlier_successor(line in line(), (zone, instant) in place(), later in 0..200_000_i64) {
        let Ok(calendar) = Calendar::cron(&line.text(), zone) else { return Ok(()) };
        prop_assert!(calendar.next_after(instant) <= calendar.next_after(instant + later.seconds()));
    }

    #[test]
    fn the_last_instant_is_the_last_of_all_that_follow(
        line in line(),
        (zone, after) in place(),
        millis in 0..200_000_000_i64,
        interval in prop::option::of(600_000..100_000_000_u64),
    ) {
        let calendar = match interval {
            Some(interval) => Calendar::every(Duration::from_millis(interval)),
            None => Calendar::cron(&line.text(), zone),
        };
        let Ok(calendar) = calendar else { return Ok(()) };
        let now = after + millis.milliseconds();
        prop_assert_eq!(calendar.last_at_or_before(now, after), between(&calendar, after, now).last().copied());
    }

    #[test]
    fn seconds_agree_with_minutes(line in line(), (zone, instant) in place(), second in 0..60_i8) {
        let Ok(minutes) = Calendar::cron(&line.text(), zone) else { return Ok(()) };
        let zero = cron(&format!("0 {}", line.text()), zone);
        prop_assert_eq!(minutes.next_after(instant), zero.next_after(instant));
        let every = cron(&format!("* {}", line.text()), zone);
        prop_assert!(every.next_after(instant) <= minutes.next_after(instant));
        let seconds = cron(&format!("{second} {}", line.text()), zone);
        prop_assert!(seconds.next_after(instant) >= every.next_after(instant));
    }

    #[test]
    fn an_expression_is_refused_if_it_never_matches(line in line()) {
        let mut day = date(2096, 3, 1);
        let mut matches = false;
        // Eight years without a leap day, and the leap day that ends them.
        while day < date(2104, 3, 1) && !matches {
            let minute = *line.minute.1.first().expect("a value");
            let hour = *line.hour.1.first().expect("a value");
            matches = line.matches(day.at(hour, minute, 0, 0));
            day = day.tomorrow().expect("in range");
        }
        prop_assert_eq!(Calendar::cron(&line.text(), "UTC").is_ok(), matches);
    }

    #[test]
    fn no_text_panics(expression in "(?s).{0,60}", zone in "(?s).{0,20}") {
        let _ = Calendar::cron(&expression, "UTC");
        let _ = Calendar::cron("* * * * *", &zone);
    }

    #[test]
    fn no_text_of_cron_characters_panics(
        expression in "[@0-9*/,?JANMONSUL -]{0,40}",
        fields in prop::collection::vec("[0-9*?]{1,3}([-,/#][0-9A-Z*]{0,3}){0,2}", 5..7),
        instant in any::<i64>(),
    ) {
        for text in [expression, fields.join(" ")] {
            let Ok(calendar) = Calendar::cron(&text, "Europe/Berlin") else { continue };
            let instant = Timestamp::from_nanosecond(i128::from(instant)).expect("in range");
            prop_assert!(calendar.next_after(instant).is_none_or(|next| next > instant));
        }
    }
}

/// Each change of offset that the database knows for these years, of every zone: the calendar agrees with a watched clock.
#[test]
fn every_zone_agrees_with_a_watched_clock_at_its_changes() {
    let all = |first, last| ("*".to_owned(), (first..=last).collect());
    let minute = ("7,37".to_owned(), BTreeSet::from([7, 37]));
    let line = Line { minute, hour: all(0, 23), day: all(1, 31), month: all(1, 12), weekday: all(0, 6) };
    let mut seen = BTreeSet::new();
    for name in TimeZoneDatabase::bundled().available() {
        let calendar = cron(&line.text(), name.as_str());
        let zone = calendar.zone();
        for change in changes(&zone, 2005, 2030) {
            // Many zones have the same changes.
            if !seen.insert((change, zone.to_offset(change - 1.second()), zone.to_offset(change))) {
                continue;
            }
            let (after, until) = (change - 2.hours(), change + 3.hours());
            assert_eq!(between(&calendar, after, until), watched(&line, &zone, after, until), "{name} at {change}");
        }
    }
    assert!(seen.len() > 500, "{}", seen.len());
}
