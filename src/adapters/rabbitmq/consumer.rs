//! Consumes a queue with manual acknowledgements.
//!
//! A node that is cut off from the majority of its cluster keeps its consumers, and delivers nothing to them (measured
//! on 3.10 and 4.3). Neither a passive declaration nor the connection's state shows that. So a consumer that has had no
//! delivery for a while, and has none unacknowledged, consumes anew: a quorum queue answers `basic.consume` only with
//! its majority. If no answer comes, the next attempt goes to another node.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{FutureExt as _, StreamExt as _};
use lapin::{
    Channel, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions},
    types::{AMQPValue, FieldTable, ShortString},
};
use tokio::{runtime::Handle, task::JoinHandle, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use super::{
    codec,
    connection::{CLOSE_LIMIT, NodeConnection, answer, deliveries},
    receipts::{Answers, Burst},
    suspects::Suspects,
};
use crate::{
    domain::names,
    ports::{BrokerError, Deliveries, Delivery, Order},
};

/// How long a consumer waits for a delivery before it consumes anew. That costs a quorum queue two entries of its log
/// for each worker.
pub(super) const QUIET: Duration = Duration::from_secs(30);

/// The largest number of deliveries that are read at once.
const LARGEST: usize = 256;

/// The argument with which a consumer says how long RabbitMQ is to wait for an acknowledgement. RabbitMQ before 4.3 ignores it.
pub(super) const TIMEOUT: &str = "x-consumer-timeout";

/// How RabbitMQ's refusal ends if the node has no replica of a stream, or it does not run yet. Another node may have one.
pub(super) const NO_REPLICA: &str = "replica on the local node";

/// How many messages of a stream are delivered before the first is acknowledged.
const OF_STREAM: u16 = 16;

/// How a queue is consumed.
#[derive(Clone)]
pub(super) struct How {
    pub(super) prefetch: u16,
    pub(super) order: Order,
    /// Why the handler is unavailable, which people can read among the consumer's arguments.
    pub(super) unavailable: Option<String>,
    /// How long the broker is to wait for an acknowledgement. `None` for as long as it waits by itself.
    pub(super) hold: Option<Duration>,
    /// [`QUIET`], except in tests.
    pub(super) quiet: Duration,
    pub(super) burst: Burst,
    /// Whether the queue is a stream, which is read from its last message on.
    pub(super) is_stream: bool,
}

impl How {
    /// One message at a time. The broker waits for its acknowledgement for as long as it waits by itself.
    pub(super) fn one_by_one() -> Self {
        let (unavailable, hold, burst) = (None, None, Burst::default());
        Self { prefetch: 1, order: Order::Kept, unavailable, hold, quiet: QUIET, burst, is_stream: false }
    }

    /// From the last message on. Nobody waits for the acknowledgements before a channel closes: they remove nothing.
    pub(super) fn of_stream(quiet: Duration) -> Self {
        let (unavailable, hold, burst) = (None, None, Burst::default());
        Self { prefetch: OF_STREAM, order: Order::Any, unavailable, hold, quiet, burst, is_stream: true }
    }
}

pub(super) async fn consume(
    link: Arc<NodeConnection>,
    channel: Channel,
    queue: &str,
    how: How,
    suspects: &Suspects,
) -> Result<Box<dyn Deliveries>, BrokerError> {
    let begun = begin(&channel, queue, &how).await;
    let consumer = begun.map_err(|error| failed(&link, queue, suspects, &error))?;
    let answers = Answers::start(Arc::clone(&link), channel.clone(), how.prefetch, how.burst.clone());
    Ok(Box::new(Queue {
        link,
        channel,
        consumer,
        end: None,
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

pub(super) async fn begin(channel: &Channel, queue: &str, how: &How) -> lapin::Result<Consumer> {
    deliveries(channel, async {
        // The prefetch is set before consuming, because lapin's buffer of deliveries has no bound of its own.
        channel.basic_qos(how.prefetch, BasicQosOptions::default()).await?;
        // A random tag: the connection's name, which tells whose consumer this is, may be too long for a consumer tag.
        let tag = uuid::Uuid::now_v7().simple().to_string();
        let (options, mut arguments) = (BasicConsumeOptions::default(), FieldTable::default());
        if how.is_stream {
            arguments.insert("x-stream-offset".into(), AMQPValue::LongString("last".into()));
        } else {
            // The default priority. Streams refuse the argument, and nothing else tells a stream from a queue.
            arguments.insert("x-priority".into(), AMQPValue::LongInt(0));
        }
        if let Some(reason) = &how.unavailable {
            arguments.insert(names::UNAVAILABLE.into(), AMQPValue::LongString(reason.as_str().into()));
        }
        if let Some(hold) = how.hold {
            let millis = i64::try_from(hold.as_millis()).unwrap_or(i64::MAX);
            arguments.insert(TIMEOUT.into(), AMQPValue::LongLongInt(millis));
        }
        channel.basic_consume(queue.into(), tag.into(), options, arguments).await
    })
    .await
}

/// Translates an error of this queue's consumer. Notes the queue as a suspect and leaves the node, where the error
/// calls for it.
fn failed(link: &NodeConnection, queue: &str, suspects: &Suspects, error: &lapin::Error) -> BrokerError {
    suspects.note(queue, error);
    link.error(error, &format!("the queue {queue}"))
}

struct Queue {
    link: Arc<NodeConnection>,
    channel: Channel,
    consumer: Consumer,
    /// The end of the consumer, read with the deliveries before it.
    end: Option<End>,
    answers: Answers,
    name: String,
    how: How,
    suspects: Suspects,
    quiet_since: Instant,
    /// The task that consumes anew, until its result is read.
    reconsume: Option<Reconsume>,
    /// Whether this program has cancelled the consumer.
    cancelled: bool,
    ended: bool,
}

impl Queue {
    /// Starts to consume anew on another channel. The old channel is closed first, which keeps the order of a queue
    /// with a single active consumer: a message that is delivered at this moment goes back to the head of the queue
    /// before the next consumer is given a later one.
    fn begin_reconsume(&mut self) {
        let (link, channel) = (Arc::clone(&self.link), self.channel.clone());
        let (queue, how) = (self.name.clone(), self.how.clone());
        self.reconsume = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            how.burst.is_over().await;
            answer(channel.close(200, ShortString::from("done"))).await?;
            let channel = answer(link.connection.create_channel()).await?;
            let consumer = begin(&channel, &queue, &how).await?;
            Ok((channel, consumer))
        })));
    }

    fn go_on(&mut self, channel: Channel, consumer: Consumer) {
        let link = Arc::clone(&self.link);
        self.answers = Answers::start(link, channel.clone(), self.how.prefetch, self.how.burst.clone());
        (self.channel, self.consumer) = (channel, consumer);
        self.quiet_since = Instant::now();
    }

    /// Logs that the consumer has failed. Whoever follows a stream says what that means.
    fn log_failed(&self, error: &BrokerError) {
        if self.how.is_stream {
            tracing::debug!(%error, "the consumer of {} failed", self.name);
        } else {
            self.link.log_consumer_failed(&self.name, error);
        }
    }

    /// Ends the new consumer of a task whose result was not read yet, its channel first. Waits for a call that is under
    /// way, in the background: otherwise lapin would keep the channel open, with a consumer that nobody reads.
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

/// A delivery, or the error that ends the consumer.
type Received = lapin::Result<lapin::message::Delivery>;

/// The end of a consumer, perhaps with an error.
struct End(Option<Received>);

/// Reads the next delivery, unless the end was read before.
async fn read(end: &mut Option<End>, consumer: &mut Consumer) -> Option<Received> {
    match end.take() {
        Some(End(end)) => end,
        None => consumer.next().await,
    }
}

/// A task that opens a new consumer in place of one that had no deliveries.
type Reconsume = AbortOnDropHandle<lapin::Result<(Channel, Consumer)>>;

/// Waits for the result of consuming anew; for ever if that is not under way.
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
                            self.log_failed(&error);
                            self.ended = true;
                        }
                    }
                    continue;
                }
                received = read(&mut self.end, &mut self.consumer), if !reconsumes => received,
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
                Some(Ok(received)) => {
                    self.quiet_since = Instant::now();
                    return Some(codec::delivery(received, |tag, acker| self.answers.receipt(tag, acker)));
                }
                Some(Err(error)) => {
                    self.suspects.note(&self.name, &error);
                    self.answers.end(error.to_string());
                    let error = self.link.translate(&error, &format!("the queue {}", self.name));
                    self.log_failed(&error);
                }
                None if self.cancelled => tracing::debug!("the consumer of {} has ended", self.name),
                None => {
                    tracing::warn!(
                        "the broker has cancelled the consumer of {}: the queue was deleted, or a delivery was not \
                         acknowledged in time",
                        self.name
                    );
                    self.answers.end("it has cancelled the consumer".to_owned());
                    // The channel goes too, and with it all deliveries. RabbitMQ 4.3 would keep those that are not late yet,
                    // and after a late acknowledgement it sends the cancelled consumer more.
                    let channel = self.channel.clone();
                    tokio::spawn(async move { answer(channel.close(200, ShortString::from("done"))).await });
                }
            }
            self.ended = true;
        }
        None
    }

    async fn next_batch(&mut self, batch: &mut Vec<Delivery>) -> bool {
        let Some(first) = self.next().await else { return false };
        batch.push(first);
        while batch.len() < LARGEST {
            match self.consumer.next().now_or_never() {
                Some(Some(Ok(received))) => {
                    batch.push(codec::delivery(received, |tag, acker| self.answers.receipt(tag, acker)));
                }
                Some(end) => {
                    self.end = Some(End(end));
                    break;
                }
                None => break,
            }
        }
        true
    }

    async fn cancel(&mut self) {
        self.cancelled = true;
        // A new consumer was not read yet, so it has nothing to cancel.
        if self.give_up_reconsume().is_some() {
            self.ended = true;
        }
        if self.ended {
            return;
        }
        let cancelling = self.channel.basic_cancel(self.consumer.tag(), BasicCancelOptions::default());
        if let Err(error) = answer(cancelling).await {
            tracing::debug!(%error, "cancelling the consumer of {}", self.name);
            // The channel is closed, and every delivery that was not read yet is back in the queue.
            self.ended = true;
        }
    }

    async fn close(mut self: Box<Self>) {
        // Consuming anew closes the old channel first, so only the new one is left to close.
        if let Some(giving_up) = self.give_up_reconsume() {
            self.ended = true;
            if tokio::time::timeout(CLOSE_LIMIT, giving_up).await.is_err() {
                tracing::debug!("the new consumer of {} was not closed in time", self.name);
            }
            return;
        }
        // A channel that closes loses the answers that RabbitMQ holds back: see `receipts`. Dropped meanwhile, the consumer has not ended,
        // so that its channel closes before it is cancelled.
        self.how.burst.is_over().await;
        self.ended = true;
        let closing = self.channel.close(200, ShortString::from("done"));
        match tokio::time::timeout(CLOSE_LIMIT, closing).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!(%error, "closing the channel of {}", self.name),
            Err(_) => tracing::debug!("the channel of {} was not closed in time", self.name),
        }
    }
}

/// Closes the channel of a consumer whose queue keeps its order. lapin cancels a consumer that is dropped, and then the
/// broker would give the next active consumer what comes after the deliveries that this one still holds. Closing the
/// channel first gives them back.
impl Drop for Queue {
    fn drop(&mut self) {
        // The task goes on in the background.
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
