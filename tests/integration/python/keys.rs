//! The Python example computes the same keys, names and times as hatchery.

use std::{
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use hatchery::{
    Ttl,
    internals::{
        delay::{Ladder, Route},
        time::millis_text,
    },
};
use jiff::{Timestamp, tz::TimeZone};

use super::folder;
use crate::support::process::python;

/// Evaluates a Python expression of `line` for each line, and returns the results.
fn ask(expression: &str, lines: &[String]) -> Vec<String> {
    let program = format!("import sys, wire\nfor line in sys.stdin:\n  line = line.rstrip()\n  print({expression})");
    let mut python = Command::new(python())
        .args(["-c", &program])
        .env("PYTHONPATH", folder())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = python.stdin.take().unwrap();
    let lines = lines.join("\n");
    let writing = std::thread::spawn(move || stdin.write_all(lines.as_bytes()).unwrap());
    let output = python.wait_with_output().unwrap();
    writing.join().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Returns numbers that are spread over all magnitudes up to this many bits.
fn numbers(count: u64, bits: u32) -> impl Iterator<Item = u64> {
    let spread = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    (1..=count).map(move |n| spread(n) >> (u64::BITS - 1 - u32::try_from(n).unwrap() % bits))
}

fn ttl(text: &str) -> Ttl {
    text.parse().unwrap()
}

#[test]
fn python_computes_the_same_routing_key_for_every_delay() {
    let hatcheries = [ttl("5s"), ttl("1m"), ttl("90m")];
    let mut asked = Vec::new();
    let mut expected = Vec::new();
    for (resolution, horizon) in [("250ms", "365d"), ("50ms", "1500ms"), ("1s", "1s"), ("7ms", "3650d"), ("1m", "30d")]
    {
        let ladder = Ladder::new(ttl(resolution), ttl(horizon)).unwrap();
        let steps = [0, 1, 2, 3].map(|n| n * ladder.resolution().as_millis());
        let around = steps.into_iter().flat_map(|ms| [ms.saturating_sub(1), ms, ms + 1]);
        for ms in around.chain([4_999, 5_000, 60_000, 5_400_000]).chain(numbers(1_000, 40)) {
            asked.push(format!("{ms} {ladder}"));
            let route = Route::after(Duration::from_millis(ms), &hatcheries, ladder);
            expected.push(route.key(&"mail".parse().unwrap()));
        }
    }
    let route = "wire.route('mail', int(line.split()[0]), ['5s', '60s', '90m'], line.split()[1])";
    assert_eq!(ask(route, &asked), expected);
}

#[test]
fn python_gives_a_ttl_the_same_name() {
    let millis: Vec<u64> =
        numbers(500, 38).chain([1, 1_000, 60_000, 90_000, 86_400_000]).filter(|ms| *ms > 0).collect();
    let names: Vec<String> =
        millis.iter().map(|ms| Ttl::new(Duration::from_millis(*ms)).unwrap().to_string()).collect();
    let asked: Vec<String> = millis.iter().map(ToString::to_string).collect();
    assert_eq!(ask("wire.ttl_name(int(line))", &asked), names);
    assert_eq!(ask("wire.millis(line)", &names), asked);
}

#[test]
fn python_reads_and_writes_times_in_the_same_way() {
    let times = numbers(300, 41).map(|ms| Timestamp::from_millisecond(i64::try_from(ms).unwrap()).unwrap());
    let times: Vec<String> = times.map(millis_text).collect();
    let here = TimeZone::fixed(jiff::tz::offset(-7));
    let asked: Vec<String> = times
        .iter()
        .map(|text| {
            text.parse::<Timestamp>().unwrap().to_zoned(here.clone()).strftime("%Y-%m-%dT%H:%M:%S%.3f%:z").to_string()
        })
        .collect();
    assert_eq!(ask("wire.time_text(wire.parse_time(line))", &asked), times);
    // Finer times are rounded up, so that no event is early.
    let finer = ["2026-06-01T09:00:00.0001Z", "2026-06-01T09:00:00.123000001Z", "2026-06-01T08:59:59.9999999Z"];
    let rounded = ["2026-06-01T09:00:00.001Z", "2026-06-01T09:00:00.124Z", "2026-06-01T09:00:00.000Z"];
    assert_eq!(ask("wire.time_text(wire.parse_time(line))", &finer.map(str::to_owned)), rounded);
}
