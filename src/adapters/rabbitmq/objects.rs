//! Checks by passive declarations whether exchanges and queues exist.
//!
//! RabbitMQ 4.3 requires a permission for a passive declaration, and checks it before it looks for the object. So an
//! object that the user has no permission for counts as present. A refusal closes the channel, and the broker logs it
//! as an error. Permissions are patterns of names. So after a refusal no other object is declared whose name begins
//! with the same two words (`billing.ladder.`).

use std::collections::BTreeSet;

use lapin::{
    Channel, ErrorKind, ExchangeKind,
    options::{ExchangeDeclareOptions, QueueDeclareOptions},
    protocol::{AMQPErrorKind, AMQPSoftError},
    types::FieldTable,
};

use super::{
    RabbitMq, codec,
    connection::{NodeConnection, answer},
    errors::says_down,
};
use crate::ports::{BrokerError, Ready};

impl RabbitMq {
    /// Returns how many messages of a queue are ready for delivery, and its consumers.
    pub(super) async fn ready_of(&self, queue: &str) -> Result<Ready, BrokerError> {
        let (link, channel) = self.channel().await?;
        let ready = declare_queue(&channel, queue).await;
        ready.map_err(|failed| failed.about(&link, &format!("the queue {queue}")))
    }

    /// Fails if any of these objects is missing. An object that permissions hide, or whose node is down, counts as
    /// present.
    pub(super) async fn look_for(&self, exchanges: &[String], queues: &[String]) -> Result<(), BrokerError> {
        let (mut link, mut channel) = self.channel().await?;
        let mut refused = BTreeSet::new();
        let all =
            exchanges.iter().map(|name| (Kind::Exchange, name)).chain(queues.iter().map(|name| (Kind::Queue, name)));
        for (kind, name) in all {
            if refused.contains(&(kind, family(name))) {
                continue;
            }
            let answer = match kind {
                Kind::Exchange => declare_exchange(&channel, name).await,
                Kind::Queue => declare_queue(&channel, name).await.map(drop),
            };
            match answer {
                Ok(()) => {}
                Err(DeclareFailure::Broker(error)) if is_refused(&error) => {
                    tracing::debug!("this user has no permission to see whether {} {name} exists", kind.word());
                    refused.insert((kind, family(name)));
                    (link, channel) = self.channel().await?;
                }
                Err(DeclareFailure::Broker(error)) if is_down(&error) => {
                    tracing::debug!(%error, "{} {name} exists, and its node is down", kind.word());
                    (link, channel) = self.channel().await?;
                }
                Err(failed) => return Err(failed.about(&link, &format!("{} {name}", kind.word()))),
            }
        }
        Ok(())
    }
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
enum DeclareFailure {
    Name(BrokerError),
    Broker(lapin::Error),
}

impl DeclareFailure {
    fn about(self, link: &NodeConnection, object: &str) -> BrokerError {
        match self {
            Self::Name(error) => error,
            Self::Broker(error) => link.error(&error, object),
        }
    }
}

async fn declare_queue(channel: &Channel, queue: &str) -> Result<Ready, DeclareFailure> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let name = codec::short(queue).map_err(DeclareFailure::Name)?;
    let declared =
        answer(channel.queue_declare(name, options, FieldTable::default())).await.map_err(DeclareFailure::Broker)?;
    Ok(Ready { messages: declared.message_count().into(), consumers: declared.consumer_count().into() })
}

async fn declare_exchange(channel: &Channel, exchange: &str) -> Result<(), DeclareFailure> {
    let options = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let name = codec::short(exchange).map_err(DeclareFailure::Name)?;
    let declaring = channel.exchange_declare(name, ExchangeKind::Topic, options, FieldTable::default());
    answer(declaring).await.map_err(DeclareFailure::Broker)
}

fn is_refused(error: &lapin::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ProtocolError(amqp) if matches!(amqp.kind(), AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED))
    )
}

fn is_down(error: &lapin::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ProtocolError(amqp)
            if matches!(amqp.kind(), AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND))
                && says_down(amqp.get_message().as_str())
    )
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
