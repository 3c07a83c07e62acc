//! Reads and writes the stream with the switches.

use std::time::Duration;

use hatchery::{
    BrokerError,
    internals::{
        ports::{Broker as _, Deliveries},
        rabbitmq::{RabbitMq, codec::short, connection::AmqpUrl, publisher, stream::is_starting},
    },
};
use lapin::{
    BasicProperties, Confirmation,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::ShortString,
};
use tokio::time::{Instant, sleep, timeout};

use super::declare::Declarer;

/// How long a node may refuse the reader because its replica of the stream is just starting: with 406, or on RabbitMQ 4.0 by closing the
/// connection with `INTERNAL_ERROR` (measured).
const STARTING: Duration = Duration::from_secs(10);

/// The delay between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// The reader does not begin anew meanwhile: how long the stream is silent tells whether it is empty.
const QUIET: Duration = Duration::from_hours(1);

/// The routing key of every message.
const KEY: &str = "switches";

/// A message of the stream.
pub(crate) struct Word {
    /// The property `message_id`.
    pub(crate) id: Option<String>,
    pub(crate) text: Vec<u8>,
}

/// A reader of the stream, from its last messages on. It has a connection of its own: some refusals close the connection, and one that
/// holds a lock must stay.
pub(crate) struct Reader {
    broker: RabbitMq,
    words: Box<dyn Deliveries>,
    url: AmqpUrl,
    stream: String,
}

impl Reader {
    /// Begins to read over a connection of this name. A node that refuses is asked last from then on.
    ///
    /// # Errors
    /// When the broker is unreachable or refuses, or the stream does not exist.
    pub(crate) async fn open(url: &AmqpUrl, name: &str, stream: &str) -> Result<Self, BrokerError> {
        let broker = RabbitMq::new(url.clone(), name).with_quiet(QUIET);
        let (began, mut is_other_asked) = (Instant::now(), false);
        loop {
            let error = match broker.follow(stream).await {
                Ok(words) => return Ok(Self { broker, words, url: url.clone(), stream: stream.to_owned() }),
                Err(error) => error,
            };
            let again = match &error {
                _ if is_starting(&error) => began.elapsed() < STARTING,
                // A node that has just joined the cluster closes the connection, and others need not.
                BrokerError::Unreachable { .. } => !std::mem::replace(&mut is_other_asked, true),
                _ => false,
            };
            if !again {
                broker.close().await;
                return Err(match error {
                    BrokerError::Unreachable { url, reason } => BrokerError::Unreachable {
                        url,
                        reason: format!("{reason}, when asked for the stream {stream}"),
                    },
                    error => error,
                });
            }
            sleep(AGAIN).await;
        }
    }

    /// Waits for the next message. `None` if none comes within this time.
    ///
    /// # Errors
    /// When the broker ends the reading.
    pub(crate) async fn next(&mut self, within: Duration) -> Result<Option<Word>, BrokerError> {
        let Ok(delivery) = timeout(within, self.words.next()).await else { return Ok(None) };
        let ended = || self.url.unreachable(format!("it ended the reading of the stream {}", self.stream));
        let delivery = delivery.ok_or_else(ended)?;
        drop(delivery.receipt.acknowledge());
        let message = delivery.message;
        Ok(Some(Word { id: message.properties.message_id, text: message.body.into() }))
    }

    /// Ends the reading.
    pub(crate) async fn close(self) {
        self.broker.close().await;
    }
}

impl Declarer {
    /// Publishes a message to the exchange of the stream, and waits for the confirm.
    ///
    /// # Errors
    /// When the broker is unreachable or refuses, or does not confirm it within this time. The message may be there all the same.
    pub(crate) async fn publish_confirmed(
        &self,
        exchange: &str,
        id: &str,
        text: String,
        within: Duration,
    ) -> Result<(), BrokerError> {
        let channel = self.channel().await?;
        let object = format!("exchange {exchange}");
        let properties = BasicProperties::default()
            .with_message_id(short(id)?)
            .with_content_type(ShortString::from("application/json"))
            .with_delivery_mode(2);
        let (to, key) = (short(exchange)?, short(KEY)?);
        let publishing = async {
            channel.confirm_select(ConfirmSelectOptions::default()).await?;
            let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
            channel.basic_publish(to, key, options, text.as_bytes(), properties).await?.await
        };
        match timeout(within, publishing).await {
            Ok(Ok(Confirmation::Ack(Some(_)))) => {
                Err(BrokerError::Unroutable { exchange: exchange.to_owned(), routing_key: KEY.to_owned() })
            }
            Ok(Ok(confirmed)) => publisher::confirmed(&confirmed, exchange),
            Ok(Err(error)) => Err(self.url.error(&error, &object)),
            Err(_) => Err(self.url.unreachable(format!("no confirm within {} s from {object}", within.as_secs()))),
        }
    }
}
