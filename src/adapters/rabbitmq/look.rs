//! Looks at a queue and keeps its order.
//!
//! A quorum queue treats messages that come back as follows (measured on 3.10.8 and 4.3.6):
//!
//! - Closing the channel returns its messages in their order, also those of several consumers on the channel.
//!   `basic.nack` for several messages returns them in any order on 3.10, and so does closing a channel that used
//!   `basic.get`. So a look consumes, and closes its channel.
//! - Returned messages stand before all that were never delivered, and behind those that were returned earlier. So two
//!   looks at a time would exchange the order of their messages: an exclusive queue is the lock that admits one. (A
//!   quorum queue ignores `exclusive` in `basic.consume`.)
//! - For the same reason a look that ends early reads on until a message that was never delivered before: otherwise its
//!   messages would return behind those that an earlier look has returned.
//!
//! A look reads in rounds. The consumer of a round gets as many messages as its prefetch, is cancelled, and keeps what the caller
//! does not acknowledge. So nothing is on its way to a consumer that is cancelled: RabbitMQ's channel would return such a message
//! at once, before the others (measured on 3.10.8: 464 of 33,000 letters out of order). And a round fits into memory, as
//! RabbitMQ sends all that the prefetch allows, whether or not somebody reads it: a round begins with few messages, and
//! has at most twice as many as the one before, as long as they would be no more than [`ROUND`] bytes if each were as large as the
//! largest of that one.
//!
//! A queue whose leader is away or slow answers a passive declare with 0 messages, or not within ten seconds (both measured on 3.10 with
//! two of three nodes killed). So a 0 counts only after a first round of one message: a quorum queue answers its `basic.consume` through
//! its leader.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::StreamExt as _;
use lapin::{
    Channel, Consumer,
    options::{BasicCancelOptions, BasicConsumeOptions, BasicQosOptions, QueueDeclareOptions},
    types::{FieldTable, ShortString},
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    codec,
    connection::{ANSWER_LIMIT, NodeConnection, answer, answer_within, deliveries},
    own_connection::{OwnConnection, lock, unlock},
    receipts::{Answers, Burst},
    suspects,
};
use crate::{
    adapters::kept::Kept,
    ports::{BrokerError, Delivery, LOOK_IN_FLIGHT, Look},
};

/// The messages of the first round. Nothing is known of their size.
const FIRST_ROUND: u16 = 4;

/// The bytes that the messages of a round have together, as far as those before tell.
const ROUND: usize = 32 << 20;

/// The bytes of the messages that the caller gets at a time, unless one alone has more.
const HANDED: usize = 4 << 20;

/// A round has at least this part of the messages that the look holds. RabbitMQ returns the messages of up to 32 consumers in the order
/// of their tags (an Erlang map that is larger has no order), so a look that leaves very many large letters takes larger rounds.
const LEAST_PART: u64 = 8;

/// How long the look waits for a delivery before it asks whether the queue has more. If twice in a row it has none and has
/// consumers of others, those hold the rest.
const LULL: Duration = Duration::from_millis(500);

/// How long the last messages may be on their way, when the queue has no more and nobody else is seen who could hold them. A busy
/// broker takes seconds to send large messages.
const ON_THEIR_WAY: Duration = Duration::from_secs(10);

/// How long an answer may take that stands behind the bodies of a round: those of the first one alone may have 64 MiB.
const BEHIND_BODIES: Duration = Duration::from_mins(2);

/// How long the queue may take at least to deliver a message after its leader has answered that it has none.
const ALSO: Duration = Duration::from_millis(50);

/// How long the queue may deliver nothing although it has messages.
const SILENCE: Duration = Duration::from_secs(30);

/// How long closed channels may take to return their messages. It takes milliseconds.
const RETURN_LIMIT: Duration = Duration::from_secs(10);

pub(super) struct QueueLook {
    link: Arc<NodeConnection>,
    /// Closed if the look is dropped.
    own: Option<OwnConnection>,
    channel: Channel,
    /// The newest consumer, which lives until the channel is closed (see [`send_on`](Self::send_on)) or the next one consumes.
    consumer: Option<Consumer>,
    answers: Answers,
    burst: Burst,
    queue: String,
    /// The messages that fit into the next round.
    round: u16,
    /// The number of consumers until now. RabbitMQ returns the messages of a channel's consumers in the order of their tags.
    rounds: u32,
    /// Whether no round follows: a message or the broker has ended the channel, or nothing more came.
    over: bool,
    /// Messages whose receipt was dropped. They stay in the queue.
    kept: Kept,
    /// Messages that [`next`](Look::next) has not returned yet.
    ahead: VecDeque<Delivery>,
    ready: u64,
    consumers: u32,
    read: u64,
    /// Whether a message was read that was never delivered before. No returned message stands behind it.
    passed_returned: bool,
}

impl QueueLook {
    pub(super) async fn open(own: OwnConnection, channel: Channel, queue: &str) -> Result<Self, BrokerError> {
        let link = own.link();
        // RabbitMQ 4.3 answers no declare while most nodes are down (measured).
        if let Err(error) = lock(&link, queue).await {
            if matches!(error, BrokerError::Locked { .. }) {
                own.give_back();
            }
            return Err(unanswered(&link, queue, error));
        }
        match Self::begin(Arc::clone(&link), channel, queue).await {
            Ok(look) => Ok(Self { own: Some(own), ..look }),
            Err(error) => {
                if unlock(&link, queue).await && matches!(error, BrokerError::Missing { .. }) {
                    own.give_back();
                }
                Err(error)
            }
        }
    }

    async fn begin(link: Arc<NodeConnection>, channel: Channel, queue: &str) -> Result<Self, BrokerError> {
        let since = Instant::now();
        let (ready, consumers) = counts(&link, &channel, queue).await?;
        let burst = Burst::default();
        let mut look = Self {
            answers: Answers::start(Arc::clone(&link), channel.clone(), u16::MAX, burst.clone()),
            burst,
            link,
            own: None,
            channel,
            consumer: None,
            queue: queue.to_owned(),
            round: FIRST_ROUND,
            rounds: 0,
            over: false,
            kept: Kept::default(),
            ahead: VecDeque::new(),
            ready,
            consumers,
            read: 0,
            passed_returned: false,
        };
        if ready == 0 {
            look.prove_empty(since).await?;
        }
        Ok(look)
    }

    /// Lets the queue prove that it is empty, or reads until its count is no 0 any more.
    async fn prove_empty(&mut self, since: Instant) -> Result<(), BrokerError> {
        loop {
            let mut consumer = consume(&self.link, &self.channel, &self.queue, 1, self.rounds).await?;
            self.consumer = Some(consumer.clone());
            self.rounds += 1;
            let (others, consumers) = counts(&self.link, &self.channel, &self.queue).await?;
            self.consumers = consumers.saturating_sub(self.rounds);
            // A follower may deliver the message a moment after the leader's answer.
            let patience = if others == 0 { since.elapsed().max(ALSO) } else { SILENCE };
            match timeout(patience, consumer.next()).await {
                Ok(received) => {
                    self.receive(received)?;
                    let cancelled = answer(self.channel.basic_cancel(consumer.tag(), BasicCancelOptions::default()));
                    self.answered(cancelled.await)?;
                    self.ready = self.read + others;
                    if others > 0 {
                        return Ok(());
                    }
                }
                Err(_) if others == 0 => return Ok(()),
                Err(_) => return Err(self.silent()),
            }
        }
    }

    fn silent(&self) -> BrokerError {
        let (queue, silence) = (&self.queue, SILENCE.as_secs());
        self.link.unreachable(format!("{queue} has messages and delivers none for {silence} s"))
    }

    /// Reads the messages of a round. Those that came before an error are kept for the caller.
    async fn read_round(&mut self) -> Result<(), BrokerError> {
        // A round that fails, or is not full, is the last one.
        self.over = true;
        let held = self.read.saturating_sub(u64::try_from(self.kept.answered()).unwrap_or(u64::MAX));
        let wanted = u64::from(self.round).max(held / LEAST_PART).min(self.ready - self.read);
        let prefetch = u16::try_from(wanted).unwrap_or(u16::MAX);
        let mut consumer = consume(&self.link, &self.channel, &self.queue, prefetch, self.rounds).await?;
        self.consumer = Some(consumer.clone());
        self.rounds += 1;
        let (mut lulls, mut largest, mut left) = (Lulls::default(), 1, prefetch);
        while left > 0 {
            match timeout(LULL, consumer.next()).await {
                Ok(received) => {
                    largest = largest.max(self.receive(received)?);
                    left -= 1;
                    lulls = Lulls::default();
                }
                Err(_) if self.nothing_comes(&mut lulls).await? => return Ok(()),
                Err(_) => {}
            }
        }
        self.answered(answer(self.channel.basic_cancel(consumer.tag(), BasicCancelOptions::default())).await)?;
        let fit = u16::try_from(ROUND / largest).unwrap_or(u16::MAX).max(1);
        self.round = prefetch.max(self.round).saturating_mul(2).min(fit);
        self.over = false;
        Ok(())
    }

    /// Whether no more messages come, after a lull.
    ///
    /// # Errors
    /// When the queue has messages and delivers none for long.
    async fn nothing_comes(&self, lulls: &mut Lulls) -> Result<bool, BrokerError> {
        // Before the call: what came before its answer has ended the lull, and waits to be received.
        let waited = lulls.since.elapsed();
        let (ready, consumers) = counts_within(BEHIND_BODIES, &self.link, &self.channel, &self.queue).await?;
        if ready == 0 {
            lulls.empty += 1;
            let others = self.consumers > 0 || consumers > self.rounds;
            return Ok(if others { lulls.empty >= 2 } else { waited > ON_THEIR_WAY });
        }
        lulls.empty = 0;
        if waited > SILENCE {
            return Err(self.silent());
        }
        Ok(false)
    }

    /// Takes a delivery, and returns the size of its message.
    fn receive(&mut self, received: Option<lapin::Result<lapin::message::Delivery>>) -> Result<usize, BrokerError> {
        // The broker has ended the consumer, because the queue was deleted.
        let missing = || BrokerError::Missing { object: format!("the queue {}", self.queue) };
        let received = self.answered(received.ok_or_else(missing)?)?;
        self.read += 1;
        self.passed_returned |= !received.redelivered;
        let receipt = |tag, acker| self.kept.receipt(self.answers.receipt(tag, acker));
        let delivery = codec::delivery(received, receipt);
        let size = delivery.message.body.len();
        self.ahead.push_back(delivery);
        Ok(size)
    }

    fn answered<T>(&self, result: lapin::Result<T>) -> Result<T, BrokerError> {
        result.map_err(|error| {
            let object = format!("the queue {}", self.queue);
            match suspects::unreadable(&error) {
                Some(why) => BrokerError::Unreadable { object, why },
                None => self.link.error(&error, &object),
            }
        })
    }

    /// Reads on until no message that an earlier look has returned stands behind those of this one.
    async fn pass_returned(&mut self) -> Result<(), BrokerError> {
        while !self.passed_returned && !self.next(LOOK_IN_FLIGHT).await?.is_empty() {}
        Ok(())
    }

    /// Waits until no acknowledgement is lost when the channel closes (see [`super::receipts`]). If the queue has no other
    /// message, another consumer takes the place of a pause: the queue answers `basic.consume` after what was sent ahead,
    /// and what was held back is sent on before the broker reads the next call to the channel. Close the channel before you drop
    /// that consumer: lapin cancels a consumer that is dropped, and the cancel may follow the close. RabbitMQ then closes the
    /// whole connection (`expected 'channel.open'`; seen once on a busy machine).
    async fn send_on(&mut self) -> Result<Option<Consumer>, BrokerError> {
        if counts(&self.link, &self.channel, &self.queue).await?.0 > 0 {
            self.burst.is_over().await;
            return Ok(None);
        }
        let consumer = consume(&self.link, &self.channel, &self.queue, 1, self.rounds).await?;
        counts(&self.link, &self.channel, &self.queue).await?;
        Ok(Some(consumer))
    }

    /// Waits until the messages of the closed channel are back, so that the next look sees them. The broker answers the close
    /// a moment earlier. A consumer that holds messages counts as one of the queue's, also after its cancel (`rabbit_fifo`:
    /// `query_stat`).
    async fn wait_for_return(&self) -> Result<(), BrokerError> {
        let (channel, since) = (self.link.channel().await?, Instant::now());
        while counts(&self.link, &channel, &self.queue).await?.1 > self.consumers && since.elapsed() < RETURN_LIMIT {
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }
}

#[async_trait]
impl Look for QueueLook {
    fn ready(&self) -> u64 {
        self.ready
    }

    fn consumers(&self) -> u32 {
        self.consumers
    }

    async fn next(&mut self, most: usize) -> Result<Vec<Delivery>, BrokerError> {
        while self.ahead.is_empty() && self.read < self.ready && most > 0 && !self.over {
            self.read_round().await?;
        }
        let mut bytes = 0;
        let fits = |delivery: &&Delivery| {
            bytes += delivery.message.body.len();
            bytes <= HANDED
        };
        let fitting = self.ahead.iter().take(most).take_while(fits).count().max(1);
        let handed = fitting.min(most).min(self.ahead.len());
        Ok(self.ahead.drain(..handed).collect())
    }

    async fn close(mut self: Box<Self>) -> Result<(), BrokerError> {
        if !self.link.connection.status().connected() {
            return Err(self.link.unreachable("the connection is lost".to_owned()));
        }
        let passed = self.pass_returned().await;
        let sent_on = self.send_on().await;
        let closed = self.answered(answer(self.channel.close(200, ShortString::from("done"))).await);
        let returned = if closed.is_ok() { self.wait_for_return().await } else { Ok(()) };
        let unlocked = unlock(&self.link, &self.queue).await;
        if unlocked
            && closed.is_ok()
            && let Some(own) = self.own.take()
        {
            own.give_back();
        }
        passed.and(sent_on.map(drop)).and(closed).and(returned)
    }
}

/// The lulls since a delivery.
struct Lulls {
    since: Instant,
    /// How often in a row the queue had nothing more.
    empty: u8,
}

impl Default for Lulls {
    fn default() -> Self {
        Self { since: Instant::now(), empty: 0 }
    }
}

/// Returns the number of messages that are ready in a queue, and of its consumers.
async fn counts(link: &NodeConnection, channel: &Channel, queue: &str) -> Result<(u64, u32), BrokerError> {
    counts_within(ANSWER_LIMIT, link, channel, queue).await
}

async fn counts_within(
    limit: Duration,
    link: &NodeConnection,
    channel: &Channel,
    queue: &str,
) -> Result<(u64, u32), BrokerError> {
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let declaring = channel.queue_declare(codec::short(queue)?, options, FieldTable::default());
    let declared = answer_within(limit, declaring).await;
    let declared = declared.map_err(|error| failed(link, queue, &error))?;
    Ok((declared.message_count().into(), declared.consumer_count()))
}

async fn consume(
    link: &NodeConnection,
    channel: &Channel,
    queue: &str,
    prefetch: u16,
    number: u32,
) -> Result<Consumer, BrokerError> {
    let (name, tag) = (codec::short(queue)?, codec::short(&format!("look-{number:06}"))?);
    let consuming = deliveries(channel, async {
        channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
        channel.basic_consume(name, tag, BasicConsumeOptions::default(), FieldTable::default()).await
    });
    consuming.await.map_err(|error| failed(link, queue, &error))
}

fn failed(link: &NodeConnection, queue: &str, error: &lapin::Error) -> BrokerError {
    unanswered(link, queue, link.error(error, &format!("the queue {queue}")))
}

/// Says which queue has given no answer. A node that has lost the majority of its cluster still accepts connections.
fn unanswered(link: &NodeConnection, queue: &str, error: BrokerError) -> BrokerError {
    match error {
        BrokerError::Unreachable { reason, .. } if link.connection.status().connected() => {
            link.unreachable(format!("{queue} does not answer ({reason}); are enough nodes up?"))
        }
        error => error,
    }
}
