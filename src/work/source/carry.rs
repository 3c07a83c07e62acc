//! A source, and the way of one of its messages: it is mapped, its events or its dead letter are published, and it is acknowledged.

use std::sync::Arc;

use futures_util::future::{BoxFuture, try_join_all};
use uuid::Uuid;

use crate::{
    domain::{
        names,
        source::{self, Mapped, SourceSpec, Unmappable},
        wire::{self, Incoming, Message},
        words::{Word, plain},
    },
    ports::{BrokerError, Delivery},
    publish::{
        new_event::NewEvent,
        published::{PUBLISH_LIMIT, PublishError, Published},
        publisher::Publisher,
        send,
    },
    work::{counters::SourceCounters, lane::Common, readiness::TypeReadiness, switches::Switch},
};

/// One source in a worker.
pub(in crate::work) struct Source {
    pub(in crate::work) common: Arc<Common>,
    pub(in crate::work) name: Word,
    pub(in crate::work) spec: SourceSpec,
    pub(in crate::work) publisher: Publisher,
    pub(in crate::work) counters: SourceCounters,
    pub(in crate::work) readiness: TypeReadiness,
    pub(in crate::work) switch: Switch,
}

/// A message is not acknowledged, because what it becomes was not confirmed.
pub(super) struct Unconfirmed(pub(super) PublishError);

/// What becomes of a message whose events were not all published.
enum Unpublished {
    /// The message comes again.
    Later(PublishError),
    /// An event of it would be refused each time.
    Refused(PublishError),
}

impl Source {
    /// Carries a message to its end. The versions of its events are reserved in this call and not at the first poll, so that
    /// the order of the calls is the order of the versions.
    pub(super) fn carry(self: &Arc<Self>, delivery: Delivery) -> BoxFuture<'static, Result<(), Unconfirmed>> {
        fail_point!("source.delivered");
        self.counters.messages();
        // The priorities of somebody else's queue are its owner's.
        if self.spec.is_declared() {
            self.common.warn_of_priority(|| self.queue(), &delivery);
        }
        let (source, held) = (Arc::clone(self), Arc::clone(&self.common.held));
        let Delivery { message, receipt, .. } = delivery;
        let (names, limit) = (&self.common.routes.names, self.common.topology.max_payload);
        let mapped = source::map(names, (&self.name, &self.spec), limit, &message);
        let publishing = mapped.map(|events| {
            let publish = |event| self.publisher.publish(new_event(event));
            events.into_iter().map(publish).collect::<Vec<_>>()
        });
        Box::pin(async move {
            match publishing {
                Ok(events) if events.is_empty() => source.counters.unmatched(),
                Ok(events) => match source.publish(events).await {
                    Ok(()) => source.counters.mapped(),
                    Err(Unpublished::Refused(error)) => source.bury(&message, &error.to_string()).await?,
                    Err(Unpublished::Later(error)) => return Err(Unconfirmed(error)),
                },
                Err(unmappable) => source.bury(&message, &reason(&unmappable)).await?,
            }
            fail_point!("source.confirmed");
            receipt.acknowledge().await;
            fail_point!("source.acknowledged");
            drop(held);
            Ok(())
        })
    }

    /// Publishes the events of a message, one after the other if the source keeps its order.
    async fn publish<F>(&self, events: Vec<F>) -> Result<(), Unpublished>
    where
        F: Future<Output = Result<Published, PublishError>>,
    {
        let published = if self.spec.keeps_order() {
            let mut published = Ok(());
            for event in events {
                published = published.and(event.await.map(drop));
                if published.is_err() {
                    break;
                }
                fail_point!("source.published");
            }
            published
        } else {
            try_join_all(events).await.map(drop)
        };
        published.map_err(|error| match error {
            PublishError::Broker(_) | PublishError::Timeout => Unpublished::Later(error),
            _ => Unpublished::Refused(error),
        })
    }

    /// Publishes a message to the dead-letter queue of the source, unchanged but for the reason.
    async fn bury(&self, message: &Incoming, reason: &str) -> Result<(), Unconfirmed> {
        let id = message.properties.message_id.as_deref().map(plain);
        tracing::warn!(id = id.as_deref(), source = %self.name, "message dead-lettered: {reason}");
        let mut properties = message.properties.clone();
        let mut why = format!("unmappable: {reason}");
        if wire::is_too_large_to_copy(&properties) {
            // All properties of a message must fit into one frame.
            properties = properties.without_headers();
            why += "; its headers were too large to keep";
        }
        let properties = wire::encode_buried(properties, &why, self.common.clock.now(), || Uuid::now_v7().to_string());
        let letter = Message {
            exchange: self.common.routes.names.dead_letter(),
            routing_key: names::source_dead_letter_key(&self.name),
            properties,
            body: message.body.clone(),
        };
        let (broker, outage) = (&*self.common.broker, &self.common.broker_outage);
        match send::send(broker, outage, PUBLISH_LIMIT, || Some(letter.clone())).await {
            Ok(()) => {
                self.counters.unmappable();
                Ok(())
            }
            Err(error) => {
                if let PublishError::Broker(BrokerError::TooLarge { .. }) = error {
                    tracing::error!(%error, source = %self.name, "the broker takes no message of this size any more: raise its max_message_size");
                }
                Err(Unconfirmed(error))
            }
        }
    }
}

fn reason(unmappable: &Unmappable) -> String {
    plain(&unmappable.to_string()).into_owned()
}

fn new_event(mapped: Mapped) -> NewEvent {
    let Mapped { event_type, payload, .. } = mapped;
    let mut event = NewEvent::new(event_type.as_str(), payload).reason(mapped.reason);
    if let Some(id) = mapped.id {
        event = event.id(id);
    }
    if let Some(reference) = mapped.reference {
        event = event.reference(reference.as_str());
    }
    if let Some(nbf) = mapped.nbf {
        event = event.at(nbf);
    }
    if let Some(content_type) = mapped.content_type {
        event = event.content_type(content_type);
    }
    if let Some(id) = mapped.correlation_id {
        event = event.correlation_id(id);
    }
    if let Some(traceparent) = mapped.traceparent {
        event = event.traceparent(traceparent);
    }
    event
}
