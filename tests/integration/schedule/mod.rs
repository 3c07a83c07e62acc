//! Compares the instants of calendars with those of croniter, an implementation of cron in Python that shares no code
//! with hatchery, and reads time zones with Python's `zoneinfo`.

mod clocks;
mod operated;

use std::{
    collections::{BTreeMap, BTreeSet},
    iter::successors,
    path::{Path, PathBuf},
    process::Command,
};

use hatchery::internals::schedule::calendar::Calendar;
use jiff::{
    Timestamp, ToSpan,
    civil::DateTime,
    tz::{AmbiguousOffset, TimeZone},
};
use serde_json::json;

const LINES: [&str; 20] = [
    // Every so often.
    "*/30 * * * SUN",
    "7 * * * *",
    "0 */2 * * *",
    "*/10 1-3 * * *",
    "15,45 2 * * *",
    // Around the hours in which offsets change.
    "30 1 * * *",
    "59 1 * * *",
    "0 2 * * *",
    "30 2 * * *",
    "0 3 * * *",
    "15 2 * 3,4,10,11 *",
    // Days.
    "0 0 * * *",
    "0 3 * * 1-5",
    "0 12 29 2 *",
    "0 0 31 * *",
    "0 0 13 * FRI",
    "0 0 */10 * 1",
    "0 6 1,15 JAN-JUN *",
    "30 23 * * 7",
    "0 22 28-31 */3 ?",
];

const ZONES: [&str; 4] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca"];

/// A leap year in the past, so that no government changes it.
const YEAR: [&str; 2] = ["2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"];

/// Why croniter has other instants than a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    /// A local time of the line is in a gap. A calendar runs at the end of the gap. So does croniter, unless the line's
    /// hour is `*`: then it leaves this run out.
    Gap,
    /// The clock shows a local time of the line twice. A calendar runs the first time, croniter both times.
    Fold,
}

/// Returns the reason for which croniter differs at this instant of ours, and the instant that it leaves out (gap) or has
/// in addition (fold).
fn difference(line: &str, zone: &TimeZone, instant: Timestamp) -> Option<(Reason, Timestamp)> {
    let local = zone.to_datetime(instant);
    let ends_gap = zone.to_offset(instant) > zone.to_offset(instant - 1.second());
    let is_any_hour = line.split(' ').nth(1) == Some("*");
    if ends_gap && is_any_hour && !shows(line, local) {
        return Some((Reason::Gap, instant));
    }
    let ambiguous = zone.to_ambiguous_timestamp(local);
    let AmbiguousOffset::Fold { .. } = ambiguous.offset() else { return None };
    Some((Reason::Fold, ambiguous.later().unwrap()))
}

/// Tells whether the line has this local time, by a zone in which every local time exists once.
fn shows(line: &str, local: DateTime) -> bool {
    let instant = local.to_zoned(TimeZone::UTC).unwrap().timestamp();
    Calendar::cron(line, "UTC").unwrap().next_after(instant - 1.second()) == Some(instant)
}

#[test]
#[ignore = "compares thousands of instants with another library; scripts/test --all runs it"]
fn a_calendar_differs_from_croniter_only_in_gaps_and_folds() {
    let [start, end] = YEAR.map(|text| text.parse::<Timestamp>().unwrap());
    let theirs = croniter(start, end);
    let mut explained: BTreeMap<(Reason, &str), usize> = BTreeMap::new();
    let mut unexplained = Vec::new();
    for (zone_name, line) in ZONES.into_iter().flat_map(|zone| LINES.map(|line| (zone, line))) {
        let zone = TimeZone::get(zone_name).unwrap();
        let calendar = Calendar::cron(line, zone_name).unwrap();
        let next = |instant: &Timestamp| calendar.next_after(*instant).filter(|next| *next < end);
        let ours: BTreeSet<Timestamp> = successors(next(&(start - 1.second())), next).collect();
        assert!(!ours.is_empty(), "{line} never runs in {zone_name}");

        let mut expected = ours.clone();
        for (reason, instant) in ours.iter().filter_map(|instant| difference(line, &zone, *instant)) {
            match reason {
                Reason::Gap => expected.remove(&instant),
                Reason::Fold => expected.insert(instant),
            };
            *explained.entry((reason, zone_name)).or_default() += 1;
        }
        let theirs = &theirs[zone_name][line];
        unexplained.extend(expected.symmetric_difference(theirs).map(|instant| {
            let whose = if theirs.contains(instant) { "croniter's" } else { "ours" };
            format!("{line}: {} is only in {whose}", instant.to_zoned(zone.clone()))
        }));
    }
    assert!(unexplained.is_empty(), "{}", unexplained.join("\n"));
    let met: BTreeSet<(Reason, &str)> = explained.keys().copied().collect();
    assert_eq!(met.len(), 2 * ZONES.len(), "each zone has both: {explained:?}");
}

/// Returns croniter's instants from `start` to before `end`, by zone and line.
fn croniter(start: Timestamp, end: Timestamp) -> BTreeMap<String, BTreeMap<String, BTreeSet<Timestamp>>> {
    let order = json!({ "zones": ZONES, "lines": LINES, "start": start.as_second(), "end": end.as_second() });
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/integration/schedule/slots.py");
    let output = python().arg(script).arg(order.to_string()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let slots: BTreeMap<String, BTreeMap<String, Vec<i64>>> = serde_json::from_slice(&output.stdout).unwrap();
    let timestamp = |second| Timestamp::from_second(second).unwrap();
    let by_line = |lines: BTreeMap<String, Vec<i64>>| {
        lines.into_iter().map(|(line, slots)| (line, slots.into_iter().map(timestamp).collect())).collect()
    };
    slots.into_iter().map(|(zone, lines)| (zone, by_line(lines))).collect()
}

/// Returns the command of a Python interpreter that can import croniter. The first one in PATH may be too old.
fn python() -> Command {
    let packages = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../.services/python");
    let command = |python: &str| {
        let mut command = Command::new(python);
        command.env("PYTHONPATH", &packages).env("PYTHONDONTWRITEBYTECODE", "1");
        command
    };
    let knows = |python: &&str| {
        let imported = command(python).args(["-c", "import croniter, zoneinfo"]).output();
        imported.is_ok_and(|output| output.status.success())
    };
    let found = ["python3", "/usr/bin/python3"].into_iter().find(knows);
    command(found.unwrap_or_else(|| panic!("no Python with croniter: `scripts/services install --python`")))
}
