//! Events that one caller publishes one after the other reach a queue in that order.

use futures_util::{StreamExt as _, future::join_all, stream};
use hatchery::{
    CancellationToken, NewEvent,
    internals::{
        ports::{Broker as _, Order},
        rabbitmq::{RabbitMq, connection::AmqpUrl},
    },
};
use rstest::rstest;

use crate::support::{declared::Declared, process::Place};

const FILE: &str = "\
types: { line: { on-failure: block } }
sources: { own: { declare: on, events: [ { type: line } ] } }
";
/// Lines of a batch, and calls that are under way at a time: more than may be unconfirmed.
const BATCH: usize = 2_000;

#[derive(Clone, Copy)]
enum By {
    /// `topology publish --batch`.
    Batches,
    Stream,
    /// Calls of `publish` that one task makes and polls.
    Calls,
    OrderedSource,
}

#[rstest]
#[case::batches(By::Batches)]
#[case::a_stream(By::Stream)]
#[case::calls(By::Calls)]
#[case::an_ordered_source(By::OrderedSource)]
#[tokio::test(flavor = "multi_thread")]
#[ignore = "publishes thousands of events; scripts/test --all runs it"]
async fn events_reach_their_queue_in_the_order_of_publishing(#[case] by: By) {
    let events: usize = std::env::var("HATCHERY_ORDER").map_or(4_000, |events| events.parse().unwrap());
    let declared = Declared::new(FILE).await;
    let broker = RabbitMq::new(AmqpUrl::new(&declared.host.amqp()).unwrap(), "order");
    let mut deliveries = broker.consume(&declared.processing("line"), 1_000, Order::Kept, None, None).await.unwrap();
    let taking = async {
        let (mut highest, mut overtaken) = (None, Vec::new());
        for _ in 0..events {
            let delivery = deliveries.next().await.unwrap();
            let number: usize = std::str::from_utf8(&delivery.message.body).unwrap().parse().unwrap();
            if highest > Some(number) {
                overtaken.push((number, highest));
            }
            highest = highest.max(Some(number));
            drop(delivery.receipt.acknowledge());
        }
        overtaken
    };
    let ((), overtaken) = tokio::join!(publish(&declared, by, events), taking);
    assert!(overtaken.is_empty(), "{} of {events} were overtaken: {overtaken:?}", overtaken.len());
}

async fn publish(declared: &Declared, by: By, events: usize) {
    let hatchery = declared.connect().await;
    let publisher = hatchery.publisher();
    let event = |number: usize| NewEvent::new("line", number.to_string());
    match by {
        By::Batches => {
            let place = Place::new(declared);
            for first in (0..events).step_by(BATCH) {
                let numbers = first..events.min(first + BATCH);
                let lines = numbers.map(|number| format!("{{\"type\": \"line\", \"payload\": {number}}}\n"));
                place.write("batch.ndjson", &lines.collect::<String>());
                place.run(&mut place.command(&["publish", "--batch", "batch.ndjson"])).await.expect(0);
            }
        }
        By::Stream => {
            let published = publisher.publish_stream(stream::iter((0..events).map(event)));
            assert_eq!(published.filter(|published| std::future::ready(published.is_ok())).count().await, events);
        }
        By::Calls => {
            for first in (0..events).step_by(BATCH) {
                let numbers = first..events.min(first + BATCH);
                let published = join_all(numbers.map(|number| publisher.publish(event(number)))).await;
                assert!(published.iter().all(Result::is_ok));
            }
        }
        By::OrderedSource => {
            let messages = (0..events).map(|number| number.to_string());
            declared.amqp().await.publish_in_order("", "t.source.own", messages).await;
            let worker = hatchery.worker().source("own").stop_when_empty(true);
            let summary = worker.run(CancellationToken::new()).await.unwrap();
            assert_eq!(summary.mapped, events as u64);
        }
    }
}
