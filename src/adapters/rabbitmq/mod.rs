//! The broker port: RabbitMQ over AMQP 0.9.1, with lapin.
//!
//! This module opens lost connections again by itself. lapin's own recovery can acknowledge deliveries that nobody
//! processed (measured: `basic_ack(old_tag, multiple)` after a recovery).

pub mod codec;
mod confirms;
pub mod connection;
mod consumer;
mod errors;
mod greeting;
#[cfg(feature = "internals")]
mod look;
mod objects;
#[cfg(feature = "internals")]
mod own_connection;
pub mod publisher;
mod receipts;
mod reconnects;
mod returns;
pub mod stream;
mod suspects;
mod unreadable;
pub mod url;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use lapin::{Channel, options::BasicGetOptions};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use self::{
    connection::{AmqpUrl, CLOSE_LIMIT, NodeConnection, deliveries},
    consumer::How,
    publisher::ConfirmChannel,
    receipts::{Answers, Burst},
    reconnects::Reconnects,
    suspects::Suspects,
    unreadable::{InOrder, OneByOne},
};
use crate::{
    domain::wire::Message,
    ports::{Broker, BrokerError, BrokerIdentity, Confirming, Deliveries, Delivery, Order, Ready},
};

/// A RabbitMQ broker with six connections: one publishes, one consumes, one takes single messages with
/// `basic.get`, one reads streams to their end, one follows streams, and one publishes records. (Queues with unreadable messages have more, and
/// each look at a queue has its own.) Publishing has a connection of its own because a blocked publisher would block the acknowledgements on
/// the same connection. Each connection is opened when it is first needed, and again after it is lost.
pub struct RabbitMq {
    url: AmqpUrl,
    name: String,
    publisher: Arc<ConfirmChannel>,
    recorder: Arc<ConfirmChannel>,
    consuming: LazyConnection,
    taking: LazyConnection,
    looking: LazyConnection,
    /// Of the looks at queues.
    #[cfg(feature = "internals")]
    idle: own_connection::Idle,
    following: LazyConnection,
    /// Queues whose consumer failed because of an unreadable message.
    suspects: Suspects,
    /// The newest answers of the consumers.
    burst: Burst,
    /// How long a consumer waits for a delivery before it consumes anew.
    quiet: Duration,
    /// Cancelled once this program closes its connections: no connection is opened after that.
    closed: CancellationToken,
}

/// A connection that is opened when it is first needed, and again after it is lost.
struct LazyConnection {
    open: Mutex<Option<Arc<NodeConnection>>>,
    reconnects: Reconnects,
}

impl LazyConnection {
    fn new(purpose: &'static str) -> Self {
        Self { open: Mutex::new(None), reconnects: Reconnects::new(purpose) }
    }
}

impl RabbitMq {
    /// Returns a broker that connects when it is first used. The management UI shows `name` with each connection.
    ///
    /// Must be called within a tokio runtime.
    #[must_use]
    pub fn new(url: AmqpUrl, name: &str) -> Self {
        let publisher = Arc::new(ConfirmChannel::new(url.clone(), format!("{name} (publishing)")));
        let recorder = Arc::new(ConfirmChannel::recording(url.clone(), format!("{name} (recording)")));
        let closed = CancellationToken::new();
        Self {
            url,
            name: name.to_owned(),
            #[cfg(feature = "internals")]
            idle: own_connection::Idle::new(closed.clone()),
            publisher,
            recorder,
            consuming: LazyConnection::new("consuming"),
            taking: LazyConnection::new("aside"),
            looking: LazyConnection::new("looking"),
            following: LazyConnection::new("control"),
            suspects: Suspects::default(),
            burst: Burst::default(),
            quiet: consumer::QUIET,
            closed,
        }
    }

    /// A consumer consumes anew after `quiet` without a delivery, instead of 30 s.
    #[doc(hidden)]
    #[must_use]
    pub fn with_quiet(self, quiet: Duration) -> Self {
        Self { quiet, ..self }
    }

    /// Opens the publishing connection now, to learn at once whether the broker is reachable and accepts this client.
    ///
    /// # Errors
    /// When the broker is unreachable, or refuses the connection.
    pub async fn connect(&self) -> Result<(), BrokerError> {
        self.publisher.connect().await
    }

    /// Opens the publishing connection if it is not open, and tells whether the broker blocks it.
    ///
    /// # Errors
    /// When the broker is unreachable, refuses the connection, or blocks publishers.
    pub async fn takes_messages(&self) -> Result<(), BrokerError> {
        self.publisher.takes_messages().await
    }

    /// Returns a function that reads the name of the cluster that the newest connection leads to; `None` before the
    /// first connection.
    pub fn cluster_name(&self) -> impl Fn() -> Option<String> + Send + Sync + use<> {
        let url = self.url.clone();
        move || url.identity()?.cluster_name
    }

    /// Closes the connections properly, so that the broker logs no lost client, and takes at most two seconds. Every
    /// later call fails with [`BrokerError::Closed`].
    pub async fn close(&self) {
        self.closed.cancel();
        let close = async |shared: &LazyConnection| {
            let link = shared.open.lock().await.take();
            if let Some(link) = link {
                connection::close(&link.connection).await;
            }
        };
        let closing = async {
            let (consuming, taking) = (close(&self.consuming), close(&self.taking));
            let publishing = async { tokio::join!(self.publisher.close(), self.recorder.close()) };
            let looking = async {
                close(&self.looking).await;
                #[cfg(feature = "internals")]
                if let Some(link) = self.idle.take() {
                    connection::close(&link.connection).await;
                }
            };
            tokio::join!(publishing, consuming, taking, looking, close(&self.following))
        };
        // One limit for all connections: a worker that has used up its drain timeout has no more time than this.
        if tokio::time::timeout(CLOSE_LIMIT, closing).await.is_err() {
            tracing::debug!("a connection was not closed in time");
        }
    }

    async fn channel(&self) -> Result<(Arc<NodeConnection>, Channel), BrokerError> {
        self.channel_of(&self.consuming, &self.name).await
    }

    async fn channel_of(
        &self,
        shared: &LazyConnection,
        name: &str,
    ) -> Result<(Arc<NodeConnection>, Channel), BrokerError> {
        let mut open = shared.open.lock().await;
        if let Some(link) = open.take_if(|link| link.is_good()) {
            let channel = link.channel().await?;
            return Ok((Arc::clone(open.insert(link)), channel));
        }
        match self.closed.run_until_cancelled(self.url.link(name, None)).await {
            Some(linked) => {
                let (link, channel) = linked?;
                shared.reconnects.opened();
                Ok((Arc::clone(open.insert(Arc::new(link))), channel))
            }
            None => Err(BrokerError::Closed),
        }
    }
}

#[async_trait]
impl Broker for RabbitMq {
    async fn send(&self, message: Message) -> Result<Confirming, BrokerError> {
        self.publisher.send(message).await
    }

    async fn record(&self, record: Message) -> Result<Confirming, BrokerError> {
        self.recorder.send(record).await
    }

    async fn consume(
        &self,
        queue: &str,
        prefetch: u16,
        order: Order,
        unavailable: Option<&str>,
        hold: Option<Duration>,
    ) -> Result<Box<dyn Deliveries>, BrokerError> {
        if let Some(why) = self.suspects.why(queue).filter(|_| !self.closed.is_cancelled()) {
            let (url, name, suspects, closed) = (&self.url, &self.name, &self.suspects, self.closed.clone());
            return Ok(match order {
                Order::Any => Box::new(OneByOne::new(url, name, queue, prefetch, suspects, closed)),
                Order::Kept => Box::new(InOrder::begin(url, name, (queue, why), prefetch, suspects, closed).await?),
            });
        }
        let (link, channel) = self.channel().await?;
        let unavailable = unavailable.map(str::to_owned);
        let (quiet, burst) = (self.quiet, self.burst.clone());
        let how = How { prefetch, order, unavailable, hold, quiet, burst, is_stream: false };
        match consumer::consume(link, channel, queue, how.clone(), &self.suspects).await {
            // RabbitMQ 4.3 refuses the argument if the queue is no quorum queue. Such a queue has no such timeout there.
            Err(BrokerError::Rejected { reason, .. }) if reason.contains(consumer::TIMEOUT) => {
                let (link, channel) = self.channel().await?;
                consumer::consume(link, channel, queue, How { hold: None, ..how }, &self.suspects).await
            }
            consumed => consumed,
        }
    }

    async fn follow(&self, stream: &str) -> Result<Box<dyn Deliveries>, BrokerError> {
        let (link, channel) = self.channel_of(&self.following, &format!("{} (control)", self.name)).await?;
        // A stream without a majority closes the connection as an unreadable message does. It is no suspect.
        let suspects = Suspects::default();
        let followed =
            consumer::consume(Arc::clone(&link), channel, stream, How::of_stream(self.quiet), &suspects).await;
        if let Err(BrokerError::Rejected { reason, .. }) = &followed
            && reason.contains(consumer::NO_REPLICA)
        {
            link.leave();
        }
        followed
    }

    async fn take(&self, queue: &str) -> Result<Option<Delivery>, BrokerError> {
        let (link, channel) = self.channel_of(&self.taking, &format!("{} (aside)", self.name)).await?;
        let taking = channel.basic_get(codec::short(queue)?, BasicGetOptions::default());
        let taken =
            deliveries(&channel, taking).await.map_err(|error| link.error(&error, &format!("the queue {queue}")))?;
        Ok(taken.map(|taken| {
            let answers = Answers::start(link, channel, 1, self.burst.clone());
            codec::delivery(taken.delivery, |tag, acker| answers.receipt(tag, acker))
        }))
    }

    async fn until_sent_on(&self) {
        self.burst.is_over().await;
    }

    #[cfg(feature = "internals")]
    async fn look(&self, queue: &str) -> Result<Box<dyn crate::ports::Look>, BrokerError> {
        let own = |link| self.idle.own(link);
        if let Some(own) = self.idle.take().filter(|link| link.is_good()).map(own)
            && let Ok(channel) = own.link().channel().await
        {
            return Ok(Box::new(look::QueueLook::open(own, channel, queue).await?));
        }
        let name = format!("{} (looking)", self.name);
        let linked = self.closed.run_until_cancelled(self.url.link(&name, None)).await;
        let (link, channel) = linked.unwrap_or(Err(BrokerError::Closed))?;
        Ok(Box::new(look::QueueLook::open(own(Arc::new(link)), channel, queue).await?))
    }

    async fn ready(&self, queue: &str) -> Result<Ready, BrokerError> {
        self.ready_of(queue).await
    }

    async fn identity(&self) -> Result<BrokerIdentity, BrokerError> {
        if let Some(identity) = self.url.identity() {
            return Ok(identity);
        }
        self.publisher.connect().await?;
        Ok(self.url.identity().unwrap_or_default())
    }

    async fn require(&self, exchanges: &[String], queues: &[String]) -> Result<(), BrokerError> {
        self.look_for(exchanges, queues).await
    }
}
