//! One suite for the broker port: the broker in memory and RabbitMQ behave in the same way.

use std::sync::Arc;

use hatchery::{
    BrokerError,
    internals::{
        compile::compile,
        memory::MemoryBroker,
        ports::{Broker, Clock, Deliveries, Delivery, Disposition, Order},
        rabbitmq::{RabbitMq, connection::AmqpUrl},
        wire::{Headers, Message, Properties, Value},
    },
};
use jiff::Timestamp;
use rstest::rstest;

use crate::support::{broker::eventually, declared::Declared};

const FILE: &str = "\
hatcheries: [50ms]
types:
  mail: {}
  strict: { on-failure: block }
";

struct System;

impl Clock for System {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

#[derive(Clone, Copy)]
enum Which {
    Memory,
    RabbitMq,
}

/// Returns a broker on which the file was applied, and the declared topology that keeps its virtual host.
async fn broker(which: Which) -> (Arc<dyn Broker>, Option<Declared>) {
    match which {
        Which::Memory => {
            let topology = hatchery::file::read(&format!("version: 1\nname: t\n{FILE}"), "topology.yaml").unwrap();
            (Arc::new(MemoryBroker::new(&compile(&topology).unwrap(), Arc::new(System))), None)
        }
        Which::RabbitMq => {
            let declared = Declared::new(FILE).await;
            (Arc::new(RabbitMq::new(AmqpUrl::new(&declared.host.amqp()).unwrap(), "port")), Some(declared))
        }
    }
}

async fn publish(broker: &dyn Broker, key: &str, id: &str) {
    let properties = Properties { message_id: Some(id.to_owned()), ..Properties::default() };
    let (exchange, routing_key) = ("t.scheduler".to_owned(), key.to_owned());
    broker.publish(Message { exchange, routing_key, properties, body: "{}".into() }).await.unwrap();
}

fn id(delivery: &Delivery) -> String {
    delivery.message.properties.message_id.clone().unwrap()
}

/// Takes and acknowledges this many deliveries. Returns their ids, and whether they were redelivered.
async fn take(deliveries: &mut dyn Deliveries, count: usize) -> Vec<(String, bool)> {
    let mut taken = Vec::new();
    for _ in 0..count {
        let delivery = deliveries.next().await.unwrap();
        taken.push((id(&delivery), delivery.redelivered));
        delivery.receipt.acknowledge().await;
    }
    taken
}

async fn expect_ready(broker: &dyn Broker, queue: &str, count: u64) {
    eventually(&format!("{queue} has {count} ready messages"), async || {
        (broker.ready(queue).await.unwrap().messages == count).then_some(())
    })
    .await;
}

fn expected(taken: &[(&str, bool)]) -> Vec<(String, bool)> {
    taken.iter().map(|(id, redelivered)| ((*id).to_owned(), *redelivered)).collect()
}

/// Returns the reasons of the `x-death` header, newest first.
fn deaths(headers: &Headers) -> Vec<String> {
    let Some(Value::Array(deaths)) = headers.get("x-death") else { return Vec::new() };
    let reason = |death: &Value| match death {
        Value::Table(death) => match &death["reason"] {
            Value::Text(text) => String::from_utf8(text.clone()).unwrap(),
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    deaths.iter().map(reason).collect()
}

#[rstest]
#[case::memory(Which::Memory)]
#[case::rabbitmq(Which::RabbitMq)]
#[tokio::test]
async fn a_requeued_delivery_comes_before_undelivered_messages(#[case] which: Which) {
    let (broker, _kept) = broker(which).await;
    for id in ["a", "b"] {
        publish(&*broker, "mail.now", id).await;
    }
    let mut deliveries = broker.consume("t.processor.mail", 1, Order::Any, None, None).await.unwrap();
    let first = deliveries.next().await.unwrap();
    assert_eq!((id(&first), first.redelivered), ("a".to_owned(), false));
    first.receipt.answer(Disposition::GiveBack).await;
    assert_eq!(take(&mut *deliveries, 2).await, expected(&[("a", true), ("b", false)]));
}

#[rstest]
#[case::memory(Which::Memory)]
#[case::rabbitmq(Which::RabbitMq)]
#[tokio::test]
async fn a_consumer_holds_no_more_than_its_prefetch(#[case] which: Which) {
    let (broker, _kept) = broker(which).await;
    for id in ["a", "b", "c"] {
        publish(&*broker, "mail.now", id).await;
    }
    let mut deliveries = broker.consume("t.processor.mail", 2, Order::Any, None, None).await.unwrap();
    let held = [deliveries.next().await.unwrap(), deliveries.next().await.unwrap()];
    expect_ready(&*broker, "t.processor.mail", 1).await;
    for delivery in held {
        delivery.receipt.acknowledge().await;
    }
    assert_eq!(take(&mut *deliveries, 1).await, expected(&[("c", false)]));
}

#[rstest]
#[case::memory(Which::Memory)]
#[case::rabbitmq(Which::RabbitMq)]
#[tokio::test]
async fn a_closed_consumer_gives_back_in_order_and_the_next_active_one_goes_on(#[case] which: Which) {
    let (broker, _kept) = broker(which).await;
    for id in ["a", "b", "c"] {
        publish(&*broker, "strict.now", id).await;
    }
    let mut active = broker.consume("t.processor.strict", 2, Order::Kept, None, None).await.unwrap();
    let mut next = broker.consume("t.processor.strict", 10, Order::Kept, None, None).await.unwrap();
    let held = [active.next().await.unwrap(), active.next().await.unwrap()];
    assert_eq!([id(&held[0]), id(&held[1])], ["a", "b"]);
    active.close().await;
    assert_eq!(take(&mut *next, 3).await, expected(&[("a", true), ("b", true), ("c", false)]));
    // The deliveries belong to the other consumer by now, so this has no effect.
    for late in held {
        late.receipt.answer(Disposition::GiveBack).await;
    }
    expect_ready(&*broker, "t.processor.strict", 0).await;
}

#[rstest]
#[case::memory(Which::Memory)]
#[case::rabbitmq(Which::RabbitMq)]
#[tokio::test]
async fn a_cancelled_consumer_ends_and_its_deliveries_can_still_be_settled(#[case] which: Which) {
    let (broker, _kept) = broker(which).await;
    publish(&*broker, "mail.now", "a").await;
    let mut deliveries = broker.consume("t.processor.mail", 1, Order::Any, None, None).await.unwrap();
    let held = deliveries.next().await.unwrap();
    publish(&*broker, "mail.now", "b").await;
    deliveries.cancel().await;
    assert!(deliveries.next().await.is_none());
    held.receipt.acknowledge().await;
    expect_ready(&*broker, "t.processor.mail", 1).await;
    let left = eventually("message b is in the queue", async || broker.take("t.processor.mail").await.unwrap()).await;
    assert_eq!(id(&left), "b");
    left.receipt.acknowledge().await;
}

#[rstest]
#[case::memory(Which::Memory)]
#[case::rabbitmq(Which::RabbitMq)]
#[tokio::test]
async fn the_x_death_header_names_each_death_of_a_message(#[case] which: Which) {
    let (broker, _kept) = broker(which).await;
    publish(&*broker, "mail.50ms", "a").await;
    let mut deliveries = broker.consume("t.processor.mail", 1, Order::Any, None, None).await.unwrap();
    let delivery = deliveries.next().await.unwrap();
    assert_eq!(delivery.message.routing_key, "mail.50ms");
    assert_eq!(deaths(&delivery.message.properties.headers), ["expired"]);
    delivery.receipt.answer(Disposition::Reject).await;
    let letter =
        eventually("the message is a dead letter", async || broker.take("t.dead-letter.mail").await.unwrap()).await;
    assert_eq!(letter.message.routing_key, "mail.50ms");
    assert_eq!(deaths(&letter.message.properties.headers), ["rejected", "expired"]);
    letter.receipt.acknowledge().await;
    assert!(broker.take("t.dead-letter.mail").await.unwrap().is_none());
}

#[rstest]
#[case::memory(Which::Memory)]
#[case::rabbitmq(Which::RabbitMq)]
#[tokio::test]
async fn an_error_names_the_missing_exchange_or_queue(#[case] which: Which) {
    let (broker, _kept) = broker(which).await;
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let message = Message {
        exchange: "t.nowhere".to_owned(),
        routing_key: "mail.now".to_owned(),
        properties: Properties::default(),
        body: "{}".into(),
    };
    let told = [
        broker.publish(message).await,
        broker.consume("t.processor.none", 1, Order::Any, None, None).await.map(drop),
        broker.take("t.processor.none").await.map(drop),
        broker.ready("t.processor.none").await.map(drop),
        broker.require(&names(&["t.scheduler", "t.nowhere"]), &[]).await,
        broker.require(&[], &names(&["t.processor.mail", "t.processor.none"])).await,
    ];
    let (exchange, queue) = ("the exchange t.nowhere", "the queue t.processor.none");
    for (told, name) in told.into_iter().zip([exchange, queue, queue, queue, exchange, queue]) {
        assert!(matches!(&told, Err(BrokerError::Missing { object }) if object == name), "{told:?} is not {name}");
    }
    broker.require(&names(&["t.scheduler"]), &names(&["t.processor.mail"])).await.unwrap();
}

/// RabbitMQ confirms such a message, and returns it before.
#[rstest]
#[case::memory(Which::Memory)]
#[case::rabbitmq(Which::RabbitMq)]
#[tokio::test]
async fn a_message_that_no_queue_takes_is_an_error(#[case] which: Which) {
    let (broker, _kept) = broker(which).await;
    let publish = |exchange: &str, routing_key: &str| {
        let (exchange, routing_key) = (exchange.to_owned(), routing_key.to_owned());
        broker.publish(Message { exchange, routing_key, properties: Properties::default(), body: "{}".into() })
    };
    let missing = publish("", "t.processor.none").await;
    assert!(matches!(&missing, Err(BrokerError::Missing { object }) if object == "the queue t.processor.none"));
    publish("t.scheduler", "none.now").await.unwrap();
    expect_ready(&*broker, "t.unrouted", 1).await;
}
