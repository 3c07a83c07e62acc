//! Events that were published when the broker took larger messages than now. Up to RabbitMQ 3, its limit was eight
//! times as high as in RabbitMQ 4.

use hatchery::{BrokerError, NewEvent, Outcome, PublishError};

use crate::support::{
    amqp::header,
    declared::{Declared, publish},
    private, redis,
    workers::Working,
};

#[tokio::test]
#[ignore = "lowers the message limit of a RabbitMQ of its own; scripts/test --all runs it"]
async fn an_event_too_large_to_be_copied_is_a_dead_letter_that_may_be_sent_again() {
    let mut broker = private::broker().await;
    let types =
        "mail: { coalesce: latest, retry: { delays: [50ms] } }, plain: { register: off, retry: { delays: [50ms] } }";
    let declared = Declared::on(broker.host(), &format!("types: {{ {types} }}"), redis::url()).await;
    let hatchery = declared.connect().await;
    for event_type in ["mail", "plain"] {
        publish(&hatchery, NewEvent::new(event_type, vec![b'x'; 2_000]).reference("1234")).await;
    }
    hatchery.close().await;
    broker.limit(1_000).await;
    let hatchery = declared.connect().await;
    let amqp = declared.amqp().await;
    let mut letters = Vec::new();
    for event_type in ["mail", "plain"] {
        let again = |_: &_| Outcome::Retry { reason: "no luck".into(), after: None };
        let worker = Working::start(&hatchery, event_type, again);
        let letter = amqp.take(&declared.dead_letters(event_type)).await;
        assert_eq!(letter.data.len(), 2_000);
        // The dead letter is the original message, dead-lettered by the broker and not copied by the worker.
        assert!(header(&letter, "x-death").is_some() && letter.routing_key.as_str() == format!("{event_type}.now"));
        let summary = worker.stop().await;
        assert_eq!((summary.delivered, summary.rejected, summary.retried), (1, 1, 0), "{summary:?}");
        letters.push((event_type, letter));
    }
    let refused = hatchery.publisher().publish(NewEvent::new("mail", vec![b'x'; 1_001])).await.unwrap_err();
    assert!(matches!(refused, PublishError::Broker(BrokerError::TooLarge { size: 1_001, .. })), "{refused:?}");
    hatchery.close().await;
    broker.limit(private::USUAL).await;
    let (hatchery, amqp) = (declared.connect().await, declared.amqp().await);
    for (event_type, letter) in letters {
        amqp.publish("t.processor", letter.routing_key.as_str(), letter.properties.clone(), &letter.data).await;
        let worker = Working::start(&hatchery, event_type, |_| Outcome::Done);
        let again = worker.runs.reach(1).await.remove(0);
        assert_eq!(again.event.attempts, 0);
        let summary = worker.stop().await;
        assert_eq!((summary.done, summary.stale), (1, 0), "{summary:?}");
    }
    assert!(amqp.filled(&declared.queues()).await.is_empty());
}
