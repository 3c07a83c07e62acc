//! A message with a given routing key arrives once, in the queue that the key means.

use std::{collections::BTreeMap, time::Duration};

use hatchery::internals::{
    delay::{Ladder, Route},
    ttl::Ttl,
};
use lapin::{
    BasicProperties, Channel,
    options::{BasicGetOptions, BasicPublishOptions, BasicRejectOptions, ConfirmSelectOptions, QueueDeclareOptions},
    types::FieldTable,
};

use super::TOPOLOGY;
use crate::support::{broker::eventually, cli::Bench};

struct Wire {
    bench: Bench,
    channel: Channel,
    /// Kept open until the test ends.
    _connection: lapin::Connection,
}

impl Wire {
    async fn new() -> Self {
        let bench = Bench::new(TOPOLOGY);
        bench.apply();
        let url = hatchery::internals::rabbitmq::connection::AmqpUrl::new(&bench.host.amqp()).unwrap();
        let connection = url.connect("test").await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        Self { bench, channel, _connection: connection }
    }

    async fn publish(&self, exchange: &str, key: &str) {
        let properties = BasicProperties::default().with_delivery_mode(2);
        let options = BasicPublishOptions::default();
        let publish =
            self.channel.basic_publish(exchange.into(), key.into(), options, key.as_bytes(), properties).await.unwrap();
        assert!(publish.await.unwrap().is_ack());
    }

    /// Waits for the next message of a queue, and takes it.
    async fn next(&self, queue: &str) -> lapin::message::BasicGetMessage {
        let no_ack = BasicGetOptions { no_ack: false };
        eventually(&format!("{queue} has a message"), async || {
            self.channel.basic_get(queue.into(), no_ack).await.unwrap()
        })
        .await
    }

    /// Expects messages with these keys in a queue, once each and in any order, with the key as the body.
    async fn expect(&self, queue: &str, keys: &[impl AsRef<str>]) {
        let mut seen: BTreeMap<String, usize> = BTreeMap::new();
        for _ in keys {
            let message = self.next(queue).await;
            assert_eq!(message.data, message.routing_key.as_str().as_bytes());
            *seen.entry(message.routing_key.to_string()).or_default() += 1;
        }
        let expected: BTreeMap<String, usize> = keys.iter().map(|key| (key.as_ref().to_owned(), 1)).collect();
        assert_eq!(seen, expected, "in {queue}");
    }

    /// Expects that all queues are empty, apart from messages that this test has taken.
    async fn expect_nothing_else(&self) {
        // The stream of the switches has the first snapshot.
        for queue in self.bench.host.names("queues").into_iter().filter(|queue| !queue.ends_with(".control")) {
            let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
            let declared =
                self.channel.queue_declare(queue.as_str().into(), passive, FieldTable::default()).await.unwrap();
            assert_eq!(declared.message_count(), 0, "in {queue}");
        }
    }
}

fn ladder_key(event_type: &str, millis: u64) -> String {
    let ttl = |text: &str| text.parse::<Ttl>().unwrap();
    let ladder = Ladder::new(ttl("10ms"), ttl("1s")).unwrap();
    Route::after(Duration::from_millis(millis), &[], ladder).key(&event_type.parse().unwrap())
}

/// Each message has its key as its body.
#[tokio::test]
async fn each_key_leads_a_message_to_the_queue_that_it_means() {
    let wire = Wire::new().await;
    // At once, through a named hatchery, and on the ladder: single bits, neighbouring bits, distant bits, and all bits. The
    // highest level is 640 ms.
    let ladder = [10, 20, 30, 40, 80, 90, 160, 320, 330, 640, 650, 1270].map(|millis| ladder_key("mail", millis));
    let mails: Vec<String> = ["mail.now", "mail.50ms"].map(str::to_owned).into_iter().chain(ladder).collect();
    for key in mails.iter().map(String::as_str).chain(["hr-import.now", "mail.1h"]) {
        wire.publish("billing.scheduler", key).await;
    }
    wire.expect("billing.processor.mail", &mails).await;
    wire.expect("billing.processor.hr-import", &["hr-import.now"]).await;
    wire.expect("billing.hatchery.1h", &["mail.1h"]).await;

    // A retry returns to the queue of its type, or waits for it.
    for key in ["mail.20ms", "hr-import.20ms", "hr-import.1h"] {
        wire.publish("billing.retry", key).await;
    }
    wire.expect("billing.processor.mail", &["mail.20ms"]).await;
    wire.expect("billing.processor.hr-import", &["hr-import.20ms"]).await;
    wire.expect("billing.retry.hr-import.1h", &["hr-import.1h"]).await;

    // The broker dead-letters a rejected message, and a worker publishes a letter.
    wire.publish("billing.scheduler", "mail.now").await;
    let message = wire.next("billing.processor.mail").await;
    message.acker.reject(BasicRejectOptions { requeue: false }).await.unwrap();
    wire.publish("billing.dead-letter", "mail.dead-letter").await;
    wire.expect("billing.dead-letter.mail", &["mail.now", "mail.dead-letter"]).await;

    // A message without a binding is not lost.
    let unknown_type = ladder_key("nobody", 30);
    let lost = ["nobody.now", "nobody.50ms", &unknown_type, "mail.99s", "mail", "mail.10ms-9.1"];
    for key in lost {
        wire.publish("billing.scheduler", key).await;
    }
    wire.publish("billing.retry", "mail.7s").await;
    wire.publish("billing.dead-letter", "nobody.dead-letter").await;
    wire.expect("billing.unrouted", &[&lost[..], &["mail.7s", "nobody.dead-letter"]].concat()).await;
    wire.expect_nothing_else().await;
}
