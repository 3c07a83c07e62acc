//! The golden screens: `tests/status`. `UPDATE_GOLDEN=1` writes them anew.

use hatchery::{EventType, internals::register::index::TypeCounts};
use hatchery_admin::figures::{Figures, Rate};

use super::{World, shown::one_of_each};
use crate::{
    golden,
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
    let cases: [(&str, Summary, &[usize], _); 4] = [
        ("broken", broken(), &[80, 140], None),
        ("well", well(), &[80], Some(24)),
        ("by-amqp", by_amqp(), &[80], None),
        ("many-types", many_types(), &[80], Some(24)),
    ];
    for (name, summary, widths, rows) in cases {
        golden::screens_of(&format!("status/{name}"), widths, |columns| {
            screen(&summary, Room { columns, rows }, false)
        });
    }
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

#[test]
fn the_verdict_is_no_further_than_what_is_known() {
    let shown = |world: &World| screen(&world.summary(), Room { columns: usize::MAX, rows: None }, false);
    let mut world = World::new();
    assert!(!shown(&world).contains("as far as is known"));
    world.seen.redis = Redis::NotGiven;
    assert!(shown(&world).contains("nothing is wrong as far as is known"));

    // Seconds after an apply RabbitMQ has no figures.
    let mut world = World::new();
    for figures in world.seen.readings[0].queues.values_mut() {
        *figures = Figures::default();
    }
    let screen = shown(&world);
    assert!(screen.contains("nothing is wrong as far as is known"), "{screen}");
    assert!(
        screen.contains("Not known: figures of the queues of hr-import, log, mail: RabbitMQ has told none so far."),
        "{screen}"
    );
    // A queue that does not exist has no figures either, which is another finding.
    world.objects().queues.clear();
    assert_eq!(world.summary().unknown, Vec::<String>::new());
}
