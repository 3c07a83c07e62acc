//! Checks by passive declarations whether exchanges and queues exist, and compares exchanges.
//!
//! RabbitMQ compares an exchange when it is declared again: its type, durability, `auto-delete`, `internal` and
//! `alternate-exchange`. That creates a missing one, which only `apply` may do. So a passive declaration goes before, and
//! both are sent at once: after a refusal RabbitMQ ignores all further calls of the channel. Somebody who deletes the exchange
//! between the two makes us declare it, without bindings and with the alternate exchange: events for it go to `unrouted`.
//! Comparing needs the permission to configure. Without it the exchange counts as the right one, and `topology status` finds
//! it by the management API.
//!
//! Queues are not compared: while a file is rolled out, old and new workers ask for different ones (`on-failure: block`).
//!
//! RabbitMQ 4.3 requires a permission for a passive declaration, and checks it before it looks for the object. So an
//! object that the user has no permission for counts as present. A refusal closes the channel, and the broker logs it
//! as an error. Permissions are patterns of names. So after a refusal no other object is declared whose name begins
//! with the same two words (`billing.ladder.`).

use std::collections::BTreeSet;

use futures_util::future::join;
use lapin::{
    Channel, ErrorKind, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueDeclareOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::{FieldTable, ShortString},
};

use super::{
    RabbitMq, codec,
    connection::{Link, answer, says_down},
};
use crate::{domain::compile::Exchange, ports::BrokerError};

impl RabbitMq {
    /// Returns the number of messages of a queue that are ready for delivery.
    pub(super) async fn ready_of(&self, queue: &str) -> Result<u64, BrokerError> {
        let (link, channel) = self.channel().await?;
        let ready = declare_queue(&channel, queue).await;
        ready.map_err(|failed| failed.about(&link, &format!("the queue {queue}")))
    }

    /// Fails if any of these objects is missing, or an exchange differs. An object that permissions hide, or whose node is
    /// down, counts as present and right.
    pub(super) async fn look_for(&self, exchanges: &[Exchange], queues: &[String]) -> Result<(), BrokerError> {
        let (mut link, mut channel) = self.channel().await?;
        let (mut refused, mut compares) = (BTreeSet::new(), true);
        let exchanges = exchanges.iter().map(|exchange| (Kind::Exchange, &exchange.name, Some(exchange)));
        for (kind, name, exchange) in exchanges.chain(queues.iter().map(|name| (Kind::Queue, name, None))) {
            if refused.contains(&(kind, family(name))) {
                continue;
            }
            let answer = match exchange {
                Some(exchange) if compares => compare_one(&channel, exchange).await,
                Some(_) => declare_exchange(&channel, name).await,
                None => declare_queue(&channel, name).await.map(drop),
            };
            match answer {
                Ok(()) => {}
                Err(Failed::NotCompared) => {
                    compares = false;
                    (link, channel) = self.channel().await?;
                }
                Err(Failed::Broker(error)) if is_refused(&error) => {
                    tracing::debug!("this user has no permission to see whether {} {name} exists", kind.word());
                    refused.insert((kind, family(name)));
                    (link, channel) = self.channel().await?;
                }
                Err(Failed::Broker(error)) if is_down(&error) => {
                    tracing::debug!(%error, "{} {name} exists, and its node is down", kind.word());
                    (link, channel) = self.channel().await?;
                }
                Err(failed) => return Err(failed.about(&link, &format!("{} {name}", kind.word()))),
            }
        }
        Ok(())
    }
}

/// Fails if one of these exchanges is there and differs. Takes a round trip for each, and one for the channel.
pub(super) async fn compare(link: &Link, exchanges: &[Exchange]) -> Result<(), BrokerError> {
    let mut open = None;
    for exchange in exchanges {
        let channel = match open.take() {
            Some(channel) => channel,
            None => link.channel().await?,
        };
        match compare_one(&channel, exchange).await {
            Ok(()) => open = Some(channel),
            // Permissions are patterns of names: it is refused for the others too, or they are no exchanges of this user.
            Err(Failed::NotCompared) => return Ok(()),
            Err(Failed::Broker(error)) if is_refused(&error) => return Ok(()),
            // Whoever publishes to a missing one is told. The refusal has closed the channel.
            Err(Failed::Broker(error)) if is_missing(&error) => {}
            Err(failed) => return Err(failed.about(link, &format!("the exchange {}", exchange.name))),
        }
    }
    if let Some(channel) = open {
        let _ = answer(channel.close(200, ShortString::from("done"))).await;
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Exchange,
    Queue,
}

impl Kind {
    const fn word(self) -> &'static str {
        match self {
            Self::Exchange => "the exchange",
            Self::Queue => "the queue",
        }
    }
}

/// Why a declaration failed.
enum Failed {
    Name(BrokerError),
    Broker(lapin::Error),
    /// The exchange exists, and is another one, as the broker says.
    Differs(String),
    /// The exchange exists, and this user may not compare it.
    NotCompared,
}

impl Failed {
    fn about(self, link: &Link, object: &str) -> BrokerError {
        match self {
            Self::Name(error) => error,
            Self::Broker(error) => link.error(&error, object),
            Self::Differs(reason) => BrokerError::Differs { object: object.to_owned(), reason },
            Self::NotCompared => BrokerError::Rejected { what: object.to_owned(), reason: "not compared".to_owned() },
        }
    }
}

async fn declare_queue(channel: &Channel, queue: &str) -> Result<u64, Failed> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let name = codec::short(queue).map_err(Failed::Name)?;
    let declared = answer(channel.queue_declare(name, options, FieldTable::default())).await.map_err(Failed::Broker)?;
    Ok(declared.message_count().into())
}

async fn declare_exchange(channel: &Channel, exchange: &str) -> Result<(), Failed> {
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let name = codec::short(exchange).map_err(Failed::Name)?;
    let declaring = channel.exchange_declare(name, ExchangeKind::Topic, options, FieldTable::default());
    answer(declaring).await.map_err(Failed::Broker)
}

/// Compares an exchange if it exists.
async fn compare_one(channel: &Channel, exchange: &Exchange) -> Result<(), Failed> {
    let options = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let (name, arguments) = (codec::short(&exchange.name), codec::table(&exchange.arguments));
    let (name, arguments) = (name.map_err(Failed::Name)?, arguments.map_err(Failed::Name)?);
    let declaring = channel.exchange_declare(name, ExchangeKind::Topic, options, arguments);
    // The first one is polled first, and lapin queues its frame then.
    let (found, declared) = join(declare_exchange(channel, &exchange.name), answer(declaring)).await;
    found?;
    declared.map_err(|error| match soft(&error) {
        Some((AMQPSoftError::PRECONDITIONFAILED, reason)) => Failed::Differs(reason.to_owned()),
        Some((AMQPSoftError::ACCESSREFUSED, _)) => Failed::NotCompared,
        _ => Failed::Broker(error),
    })
}

/// Returns the error and its text, if it has closed no more than a channel.
fn soft(error: &lapin::Error) -> Option<(&AMQPSoftError, &str)> {
    match error.kind() {
        ErrorKind::ProtocolError(amqp) => match amqp.kind() {
            AMQPErrorKind::Soft(soft) => Some((soft, amqp.get_message().as_str())),
            AMQPErrorKind::Hard(_) => None,
        },
        _ => None,
    }
}

fn is_refused(error: &lapin::Error) -> bool {
    matches!(soft(error), Some((AMQPSoftError::ACCESSREFUSED, _)))
}

fn is_missing(error: &lapin::Error) -> bool {
    matches!(soft(error), Some((AMQPSoftError::NOTFOUND, _)))
}

fn is_down(error: &lapin::Error) -> bool {
    matches!(soft(error), Some((AMQPSoftError::NOTFOUND, reason)) if says_down(reason))
}

/// Returns the first two words of a name, which tell the object's purpose.
fn family(name: &str) -> &str {
    match name.match_indices('.').nth(1) {
        Some((end, _)) => &name[..end],
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_words_of_a_name_are_its_family() {
        assert_eq!(family("billing.ladder.250ms-27.03-2s"), "billing.ladder");
        assert_eq!(family("billing.retry.mail.1m"), "billing.retry");
        assert_eq!(family("billing.unrouted"), "billing.unrouted");
        assert_eq!(family("lone"), "lone");
    }
}
