//! Moves messages from a queue to an exchange: publish, wait for the confirms, acknowledge. A crash between the last two
//! steps leaves events in both places, never in none.
//!
//! Messages are acknowledged together, once none is without its confirm: lapin gives a message that the broker returns to
//! whichever confirm comes next (measured), so a single confirm does not say that a queue has its own message. For the same reason a
//! message that no queue takes ends the move with nothing of those in flight acknowledged: until it is routable, each repetition
//! publishes up to [`IN_FLIGHT`] copies again. The register drops them; with `register: off` they run.

use std::time::Duration;

use futures_util::{StreamExt as _, stream::FuturesOrdered};
use hatchery::{
    BrokerError,
    internals::rabbitmq::{
        codec::{self, short},
        publisher,
    },
};
use jiff::Timestamp;
use lapin::{
    Channel, Confirmation, PublisherConfirm,
    message::Delivery,
    options::{
        BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
        ConfirmSelectOptions,
    },
    types::{FieldTable, ShortString},
};

use super::declare::{CALL_TIMEOUT, Declarer};
use crate::plan::Move;

/// The number of messages that are moved at once. It is the prefetch: RabbitMQ delivers as many before it waits for
/// acknowledgements.
const IN_FLIGHT: u16 = 500;

/// After this long without a message, the queue is checked for being empty.
const QUIET: Duration = Duration::from_millis(100);

/// The number of checks in a row after which the ready messages count as those of another consumer: a queue with a
/// single active consumer gives all messages to the worker that holds it, for as long as that worker blocks.
const ASKED: usize = 20;

impl Declarer {
    /// Moves messages until none is ready in the queue, or none is delivered any more. Others may consume the queue
    /// meanwhile. Returns the number of messages moved.
    ///
    /// # Errors
    /// When the broker is unreachable or refuses, the queue does not exist, or no queue takes a message. Every message
    /// that was not confirmed stays where it was.
    pub(super) async fn move_all(&self, step: &Move) -> Result<u64, BrokerError> {
        let object = format!("queue {}", step.from);
        let fault = |error: lapin::Error| self.url.error(&error, &object);
        let (from, to) = (self.channel().await?, self.channel().await?);
        if self.look_at(&from, &step.from).await?.message_count() == 0 {
            return Ok(0);
        }
        let consuming = async {
            let ready = async {
                to.confirm_select(ConfirmSelectOptions::default()).await?;
                from.basic_qos(IN_FLIGHT, BasicQosOptions::default()).await
            };
            if let Err(error) = ready.await {
                return Ok(Err(error));
            }
            let (queue, tag) = (short(&step.from)?, ShortString::from(""));
            Ok(from.basic_consume(queue, tag, BasicConsumeOptions::default(), FieldTable::default()).await)
        };
        let mut deliveries = self.answered(&object, consuming).await?;
        let mut confirms = FuturesOrdered::new();
        let (mut moved, mut asked) = (0, 0);
        loop {
            tokio::select! {
                biased;
                Some((delivery, confirmed)) = confirms.next(), if !confirms.is_empty() => {
                    self.confirmed(confirmed, step)?;
                    fail_point!("apply.confirmed");
                    moved += 1;
                    if confirms.is_empty() {
                        let Delivery { acker, .. } = delivery;
                        acker.ack(BasicAckOptions { multiple: true }).await.map_err(fault)?;
                    }
                }
                delivery = deliveries.next() => match delivery {
                    Some(delivery) => {
                        asked = 0;
                        let mut delivery = delivery.map_err(fault)?;
                        let confirm = self.forward(&to, &mut delivery, step).await?;
                        confirms.push_back(async move { (delivery, confirm.await) });
                    }
                    // The broker has cancelled the consumer: the queue is gone.
                    None => return Err(BrokerError::Missing { object }),
                },
                // A cluster without a majority of its nodes confirms nothing. The unconfirmed messages return to the
                // queue when the connection ends.
                () = tokio::time::sleep(CALL_TIMEOUT), if !confirms.is_empty() => {
                    return Err(self.url.unreachable(format!("no confirm for a minute from exchange {}", step.through)));
                }
                () = tokio::time::sleep(QUIET), if confirms.is_empty() => {
                    asked += 1;
                    if asked == ASKED || self.look_at(&from, &step.from).await?.message_count() == 0 {
                        break;
                    }
                }
            }
        }
        // Messages that were delivered meanwhile return to the queue when the channel is closed.
        let closing = async {
            from.basic_cancel(deliveries.tag(), BasicCancelOptions::default()).await?;
            for channel in [from, to] {
                channel.close(200, ShortString::from("done")).await?;
            }
            Ok(())
        };
        self.answered(&object, async { Ok(closing.await) }).await?;
        Ok(moved)
    }

    async fn forward(
        &self,
        to: &Channel,
        delivery: &mut Delivery,
        step: &Move,
    ) -> Result<PublisherConfirm, BrokerError> {
        let message = step.forward(codec::incoming(delivery), Timestamp::now());
        let properties = codec::write(&message.properties)?;
        let (exchange, key) = (short(&message.exchange)?, short(&message.routing_key)?);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = to.basic_publish(exchange, key, options, &message.body, properties).await;
        sent.map_err(|error| self.url.error(&error, &format!("exchange {}", step.through)))
    }

    fn confirmed(&self, confirmed: lapin::Result<Confirmation>, step: &Move) -> Result<(), BrokerError> {
        match confirmed.map_err(|error| self.url.error(&error, &format!("exchange {}", step.through)))? {
            Confirmation::Ack(Some(returned)) => {
                let Delivery { exchange, routing_key, .. } = returned.delivery;
                Err(BrokerError::Unroutable { exchange: exchange.to_string(), routing_key: routing_key.to_string() })
            }
            confirmed => publisher::confirmed(&confirmed, &step.through),
        }
    }
}
