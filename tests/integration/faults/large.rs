//! A worker is killed while it rejects an event whose copy would be larger than the broker takes.

use std::ops::RangeInclusive;

use futures_util::future::join_all;
use hatchery::NewEvent;

use super::{event_type, worker::spawn_consuming};
use crate::support::{
    broker::eventually,
    declared::{Declared, publish},
    private,
    process::{Place, Process},
    redis,
};

/// The fail points, and how often the program may run if the worker is killed there.
const POINTS: [(&str, RangeInclusive<usize>); 4] = [
    ("work.handled", 2..=2),
    ("broker.sent", 2..=2),
    ("work.released", 2..=2),
    // The kill may come before the rejection has left the worker's socket, or after.
    ("work.acknowledged", 1..=2),
];

#[tokio::test]
#[ignore = "kills seven workers on a RabbitMQ with a small message limit; scripts/test --all runs it"]
async fn an_event_too_large_to_copy_is_one_dead_letter_wherever_its_worker_is_killed() {
    let mut broker = private::broker().await;
    let types = POINTS.iter().flat_map(|(point, _)| {
        let name = event_type(point);
        [format!("  {name}: {{ coalesce: latest }}\n"), format!("  {name}-plain: {{ register: off }}\n")]
    });
    let text = format!("defaults: {{ lease: 1s }}\ntypes:\n{}", types.collect::<String>());
    let declared = Declared::on(broker.host(), &text, redis::url()).await;
    let hatchery = declared.connect().await;
    let cases = POINTS.iter().flat_map(|(point, runs)| {
        let name = event_type(point);
        [(*point, name.clone(), runs), (*point, format!("{name}-plain"), runs)]
    });
    let cases: Vec<_> =
        cases.filter(|(point, name, _)| *point != "work.released" || !name.ends_with("-plain")).collect();
    for (_, name, _) in &cases {
        publish(&hatchery, NewEvent::new(name.clone(), vec![b'x'; 2_000]).reference("1234")).await;
    }
    broker.limit(1_000).await;
    let amqp = declared.amqp().await;
    join_all(cases.iter().map(async |(point, name, allowed)| {
        let place = Place::new(&declared);
        let script = place.write("handler.sh", "echo $EVENT_ATTEMPTS >> runs; exit 65");
        let mut doomed = place.worker(name, &script);
        doomed.env("HATCHERY_KILL_AT", point);
        let ended = Process::spawn(doomed).ended().await;
        assert!(ended.killed(), "{name}: {ended:?} {:?}", place.lines("log"));
        let second = spawn_consuming(&place, place.worker(name, &script)).await;
        let letters = declared.dead_letters(name);
        eventually(&format!("{name}: the event is a dead letter"), async || {
            (amqp.ready(&letters).await > 0).then_some(())
        })
        .await;
        amqp.expect_empty(&[declared.processing(name)]).await;
        second.stop().await;
        assert_eq!(amqp.ready(&letters).await, 1, "{name}");
        assert!(allowed.contains(&place.lines("runs").len()), "{name}: {:?}", place.lines("runs"));
    }))
    .await;
    broker.limit(private::USUAL).await;
    assert!(amqp.filled(&declared.passages()).await.is_empty() && amqp.ready("t.unrouted").await == 0);
}
