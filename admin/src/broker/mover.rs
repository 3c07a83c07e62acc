//! Moves messages from a queue to an exchange: publish, wait for the confirm, acknowledge. A crash between the last two
//! steps leaves one event in both places, never in none.

use std::time::Duration;

use futures_util::{StreamExt as _, stream::FuturesOrdered};
use hatchery::{
    BrokerError,
    internals::{
        ports::Broker as _,
        rabbitmq::codec::{self, short},
    },
};
use jiff::Timestamp;
use lapin::{
    message::Delivery,
    options::{BasicAckOptions, BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
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
    /// When the broker is unreachable or refuses, the queue does not exist, or no queue takes a message. Every message that was not
    /// confirmed stays where it was.
    pub(super) async fn move_all(&self, step: &Move) -> Result<u64, BrokerError> {
        let object = format!("queue {}", step.from);
        let fault = |error: lapin::Error| self.url.error(&error, &object);
        let from = self.channel().await?;
        if self.look_at(&from, &step.from).await?.message_count() == 0 {
            return Ok(0);
        }
        let consuming = async {
            if let Err(error) = from.basic_qos(IN_FLIGHT, BasicQosOptions::default()).await {
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
                Some((Delivery { acker, .. }, confirmed)) = confirms.next(), if !confirms.is_empty() => {
                    confirmed?;
                    fail_point!("apply.confirmed");
                    acker.ack(BasicAckOptions::default()).await.map_err(fault)?;
                    moved += 1;
                }
                delivery = deliveries.next() => match delivery {
                    Some(delivery) => {
                        asked = 0;
                        let mut delivery = delivery.map_err(fault)?;
                        let message = step.forward(codec::incoming(&mut delivery), Timestamp::now());
                        // In the order of the queue. A blocked broker takes nothing.
                        let sending = async { Ok(Ok(self.publisher.send(message).await?)) };
                        let confirm = self.answered(&format!("exchange {}", step.through), sending).await?;
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
            from.close(200, ShortString::from("done")).await
        };
        self.answered(&object, async { Ok(closing.await) }).await?;
        Ok(moved)
    }
}
