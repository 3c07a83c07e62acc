//! The golden screens: `tests/status/*.txt`. `UPDATE_GOLDEN=1` writes them anew.

use std::{fs, path::Path};

use anstream::adapter::strip_str;
use hatchery::{EventType, internals::register::index::TypeCounts};
use unicode_width::UnicodeWidthStr as _;

use super::{World, shown::one_of_each};
use crate::{
    figures::{Figures, Rate},
    verbs::status::{
        observation::{Blind, Redis},
        screen::{Room, screen},
        summary::{Found, Summary, Verdict},
    },
};

/// A topology with events everywhere.
fn busy() -> World {
    let mut world = World::new();
    let import: EventType = "hr-import".parse().expect("a word");
    let next_due = Some("2026-06-01T09:04:10Z".parse().expect("a time"));
    world.register().counts.insert(import, TypeCounts { due: 1_500, delayed: 1_250_000, next_due });
    world.fill("billing.dead-letter.hr-import", 9_000);
    world.fill("billing.unrouted", 500);
    world.fill("billing.retry.hr-import.1m", 30);
    world.queue("billing.processor.hr-import", |figures: &mut Figures| {
        figures.counts.messages_ready = Some(1_300);
        figures.counts.messages_unacknowledged = Some(200);
        figures.counts.consumers = Some(4);
        figures.messages_details = Some(Rate { rate: 3.4 });
        figures.message_stats.as_mut().expect("some").ack_details = Some(Rate { rate: 118.2 });
    });
    world
}

fn broken() -> Summary {
    let mut summary = busy().summary();
    summary.findings = one_of_each().into_iter().map(Found::from).collect();
    summary.leftovers = Some(3);
    summary.verdict = Verdict::Stuck;
    summary
}

fn well() -> Summary {
    World::new().summary()
}

/// An observation by AMQP alone, without Redis.
fn by_amqp() -> Summary {
    let mut world = busy();
    world.seen.version = None;
    for figures in world.seen.readings[0].queues.values_mut() {
        let ready = figures.counts.messages_ready;
        *figures = Figures::default();
        (figures.counts.messages_ready, figures.counts.consumers) = (ready, Some(1));
    }
    (world.seen.objects, world.seen.channels, world.seen.alarms) = (None, None, None);
    world.seen.redis = Redis::NotGiven;
    let why = "the management API at http://rabbit:15672 is unreachable: Connection refused (os error 111)".to_owned();
    world.seen.blind = vec![Blind::Management { why }];
    world.summary()
}

/// A terminal with fewer rows than types.
fn many_types() -> Summary {
    let mut summary = busy().summary();
    let line = summary.types[0].clone();
    for n in 0..1_000 {
        let mut line = line.clone();
        line.name = format!("a-type-with-a-rather-long-name-{n:04}");
        line.due = Some(n);
        summary.types.push(line);
    }
    summary
}

#[test]
fn the_screens_are_as_they_were_drawn() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/status");
    let room = |columns, rows| Room { columns, rows };
    let screens = [
        ("broken-80", screen(&broken(), room(80, None), false)),
        ("broken-140", screen(&broken(), room(140, None), false)),
        ("well-80", screen(&well(), room(80, Some(24)), false)),
        ("by-amqp-80", screen(&by_amqp(), room(80, None), false)),
        ("many-types-80", screen(&many_types(), room(80, Some(24)), false)),
    ];
    let mut wrong = Vec::new();
    for (name, painted) in screens {
        let plain = strip_str(&painted).to_string();
        assert_ne!(plain, painted, "{name} has colours on a terminal");
        let width = if name.ends_with("140") { 140 } else { 80 };
        let long: Vec<&str> = plain.lines().filter(|line| line.width() > width).collect();
        assert!(long.is_empty(), "{name} has longer lines: {long:#?}");
        for (file, text) in [(format!("{name}.txt"), plain), (format!("{name}.ansi"), painted)] {
            let golden = folder.join(&file);
            if std::env::var_os("UPDATE_GOLDEN").is_some() {
                fs::write(&golden, &text).expect("written");
            } else if fs::read_to_string(&golden).ok().as_ref() != Some(&text) {
                wrong.push(format!("{file} is\n{text}"));
            }
        }
    }
    assert!(wrong.is_empty(), "not as the golden screens are:\n{}", wrong.join("\n"));
}

#[test]
fn a_screen_fits_the_rows_of_a_terminal() {
    let lines = screen(&many_types(), Room { columns: 80, rows: Some(24) }, false).lines().count();
    assert!(lines < 24, "{lines} lines");
    let all = screen(&many_types(), Room { columns: 80, rows: Some(24) }, true).lines().count();
    assert!(all > 1_000, "{all} lines with -v");
}

#[test]
fn a_pipe_cuts_no_name() {
    let text = screen(&many_types(), Room { columns: usize::MAX, rows: None }, false);
    assert!(text.contains("a-type-with-a-rather-long-name-0999"));
}
