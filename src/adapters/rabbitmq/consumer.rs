//! Consuming with manual acknowledgements.
//!
//! A node that is cut off from the majority of its cluster keeps its consumers, and delivers nothing to them (measured on 3.10
//! and 4.3). Neither a passive declaration nor the connection shows that. So a consumer to which nothing has come for a while, and
//! which holds nothing, consumes anew: a quorum queue answers that from its majority alone. Where no answer comes, the
//! next try goes to another node.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt;
use lapin::{
    Channel, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::{FieldTable, ShortString},
};
use tokio::{runtime::Handle, task::JoinHandle, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use super::{
    closing::CLOSE_LIMIT,
    codec,
    connection::{Link, answer, deliveries},
    receipts::Answers,
    suspects::Suspects,
};
use crate::ports::{BrokerError, Deliveries, Delivery, Order};

/// How long nothing comes until a consumer consumes anew. For each queue and worker that costs a quorum queue two entries
/// of its log.
pub(super) const QUIET: Duration = Duration::from_secs(30);

/// How a queue is consumed.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) prefetch: u16,
    pub(super) order: Order,
    /// [`QUIET`], but for tests.
    pub(super) quiet: Duration,
}

pub(super) async fn consume(
    link: Arc<Link>,
    channel: Channel,
    queue: &str,
    how: How,
    suspects: &Suspects,
) -> Result<Box<dyn Deliveries>, BrokerError> {
    let begun = begin(&channel, queue, how.prefetch).await;
    let consumer = begun.map_err(|error| failed(&link, queue, suspects, &error))?;
    let answers = Answers::start(channel.clone(), how.prefetch);
    Ok(Box::new(Queue {
        link,
        channel,
        consumer,
        answers,
        name: queue.to_owned(),
        how,
        suspects: suspects.clone(),
        quiet_since: Instant::now(),
        reconsume: None,
        cancelled: false,
        ended: false,
    }))
}

pub(super) async fn begin(channel: &Channel, queue: &str, prefetch: u16) -> lapin::Result<Consumer> {
    deliveries(channel, async {
        // Before consuming: lapin's buffer of deliveries has no bound of its own.
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        // The connection's name says who it is, and may be longer than a tag.
        let tag = uuid::Uuid::now_v7().simple().to_string();
        let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        channel.basic_consume(queue.into(), tag.into(), options, arguments).await
    })
    .await
}

/// What an error means for the consumer of this queue, and for its node.
fn failed(link: &Link, queue: &str, suspects: &Suspects, error: &lapin::Error) -> BrokerError {
    suspects.note(queue, error);
    link.error(error, &format!("the queue {queue}"))
}

struct Queue {
    link: Arc<Link>,
    channel: Channel,
    consumer: Consumer,
    answers: Answers,
    name: String,
    how: How,
    suspects: Suspects,
    quiet_since: Instant,
    /// Consuming anew, which is under way, or has ended and was not looked at yet.
    reconsume: Option<Reconsume>,
    /// By us.
    cancelled: bool,
    ended: bool,
}

impl Queue {
    /// The channel is closed first, for the order of a queue with a single active consumer: what is delivered at this moment
    /// goes back to the head, and nothing that comes after it is given to the next consumer before.
    fn begin_reconsume(&mut self) {
        let (link, channel) = (Arc::clone(&self.link), self.channel.clone());
        let (queue, prefetch) = (self.name.clone(), self.how.prefetch);
        self.reconsume = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            answer(channel.close(200, ShortString::from("done"))).await?;
            let channel = answer(link.connection.create_channel()).await?;
            let consumer = begin(&channel, &queue, prefetch).await?;
            Ok((channel, consumer))
        })));
    }

    fn go_on(&mut self, channel: Channel, consumer: Consumer) {
        self.answers = Answers::start(channel.clone(), self.how.prefetch);
        (self.channel, self.consumer) = (channel, consumer);
        self.quiet_since = Instant::now();
    }

    /// Ends what is consumed anew and was not looked at yet, its channel first. A call that is under way is waited for: lapin
    /// would keep a consumer that nobody reads, and its channel open.
    fn give_up_reconsume(&mut self) -> Option<JoinHandle<()>> {
        let reconsume = self.reconsume.take()?;
        // Without a runtime there is no connection either.
        let runtime = Handle::try_current().ok()?;
        Some(runtime.spawn(async move {
            if let Ok(Ok((channel, consumer))) = reconsume.await {
                end(channel, consumer).await;
            }
        }))
    }
}

/// Ends a consumer that nobody reads any more, its channel first: see [`Queue::drop`].
async fn end(channel: Channel, consumer: Consumer) {
    if let Err(error) = channel.close(200, ShortString::from("done")).await {
        tracing::debug!(%error, "closing a channel");
    }
    drop(consumer);
}

/// A consumer that is to take the place of one to which nothing came.
type Reconsume = AbortOnDropHandle<lapin::Result<(Channel, Consumer)>>;

/// How consuming anew ended; never where that is not under way.
async fn ended(reconsume: &mut Option<Reconsume>) -> lapin::Result<(Channel, Consumer)> {
    let Some(handle) = reconsume else { return std::future::pending().await };
    let ended = handle.await;
    *reconsume = None;
    ended.unwrap_or_else(|panic| Err(std::io::Error::other(panic).into()))
}

#[async_trait]
impl Deliveries for Queue {
    async fn next(&mut self) -> Option<Delivery> {
        while !self.ended {
            let (reconsumes, quiet_until) = (self.reconsume.is_some(), self.quiet_since + self.how.quiet);
            let received = tokio::select! {
                biased;
                reconsumed = ended(&mut self.reconsume) => {
                    match reconsumed {
                        Ok((channel, consumer)) => self.go_on(channel, consumer),
                        Err(error) => {
                            let error = failed(&self.link, &self.name, &self.suspects, &error);
                            tracing::warn!(%error, "consuming {} broke off", self.name);
                            self.ended = true;
                        }
                    }
                    continue;
                }
                received = self.consumer.next(), if !reconsumes => received,
                () = tokio::time::sleep_until(quiet_until), if !self.cancelled && !reconsumes => {
                    if self.answers.are_awaited() {
                        self.quiet_since = Instant::now();
                    } else {
                        self.begin_reconsume();
                    }
                    continue;
                }
            };
            match received {
                Some(Ok(mut received)) => {
                    self.quiet_since = Instant::now();
                    let message = codec::incoming(&mut received);
                    let redelivered = received.redelivered;
                    let receipt = self.answers.receipt(received.delivery_tag, received.acker);
                    return Some(Delivery { message, redelivered, receipt });
                }
                Some(Err(error)) => {
                    self.suspects.note(&self.name, &error);
                    tracing::warn!(%error, "consuming {} broke off", self.name);
                }
                None if self.cancelled => tracing::debug!("consuming {} has ended", self.name),
                None => tracing::warn!(
                    "the broker has cancelled the consumer of {}: the queue was deleted, or a delivery was not acknowledged in \
                     time",
                    self.name
                ),
            }
            self.ended = true;
        }
        None
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        // It has read nothing then, and has nothing to cancel.
        if self.give_up_reconsume().is_some() {
            self.ended = true;
        }
        if self.ended {
            return;
        }
        let cancelling = self.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
        if let Err(error) = answer(cancelling).await {
            tracing::debug!(%error, "cancelling the consumer of {}", self.name);
            // The channel is gone, and with it every delivery that was not read yet.
            self.ended = true;
        }
    }

    async fn close(mut self: Box<Self>) {
        self.ended = true;
        // The old channel is closed then, or is closed first.
        if let Some(giving_up) = self.give_up_reconsume() {
            if tokio::time::timeout(CLOSE_LIMIT, giving_up).await.is_err() {
                tracing::debug!("consuming {} anew does not end", self.name);
            }
            return;
        }
        let closing = self.channel.close(200, ShortString::from("done"));
        match tokio::time::timeout(CLOSE_LIMIT, closing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "closing the channel of {}", self.name),
            Err(_) => tracing::debug!("the channel of {} does not close", self.name),
        }
    }
}

/// lapin cancels a consumer that is dropped, and then the next active consumer would be given what comes after the
/// deliveries that this one holds. With its channel they go back first.
impl Drop for Queue {
    fn drop(&mut self) {
        // Detached.
        drop(self.give_up_reconsume());
        if self.how.order == Order::Any || self.ended {
            return;
        }
        let (channel, consumer) = (self.channel.clone(), self.consumer.clone());
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(end(channel, consumer));
        }
    }
}
