//! Acknowledges, requeues and rejects a consumer's deliveries. Acknowledgements are joined: fifty
//! deliveries in one `basic.ack` with `multiple` are acknowledged 3.5 times as fast as one by one (measured: 114 to 129
//! k/s, and 31 to 33 k/s).
//!
//! An acknowledgement must never cover a delivery that is not settled, whose event would be lost if the worker died. So
//! one task owns the answers of a channel, and joins only deliveries without an unsettled one before them. A channel
//! has one consumer, and its delivery tags count from 1.
//!
//! RabbitMQ has no answer to an acknowledgement. A channel of its own sends up to [`AHEAD`] of them to a quorum queue before
//! the queue has written the first one to its log, holds the others back meanwhile, and forgets those if it closes
//! (`rabbit_fifo_client`: `slow`, `unsent_commands`; 3.10 to 4.3). Their deliveries come again then. Measured on 3.10.8: workers
//! that stopped in the middle of a backlog repeated up to 500 of 6,000 runs. So [`Burst`] tells how long to wait before a
//! channel may close.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use lapin::{
    Acker, Channel,
    options::{BasicAckOptions, BasicNackOptions},
    types::DeliveryTag,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use super::connection::{NodeConnection, answer};
use crate::ports::{Disposition, Receipt, TakenBack, Written};

/// How long an acknowledgement waits behind an unsettled delivery before it is sent singly.
const COMPANY: Duration = Duration::from_millis(50);

/// The highest number of answers that are handled together.
const LARGEST: usize = 1_024;

/// How many answers RabbitMQ's channel sends ahead (`?SOFT_LIMIT` of `rabbit_fifo_client`).
const AHEAD: usize = 32;

/// The time within which RabbitMQ has sent on an answer that it held back. A queue writes its log in milliseconds.
const SENT_ON: Duration = Duration::from_secs(1);

/// The times of the newest answers, one more than RabbitMQ sends ahead.
#[derive(Clone, Default)]
pub(super) struct Burst(Arc<Mutex<VecDeque<Instant>>>);

impl Burst {
    fn wrote(&self) {
        let mut newest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        newest.push_back(Instant::now());
        if newest.len() > AHEAD + 1 {
            newest.pop_front();
        }
    }

    /// Waits until RabbitMQ holds none of the answers back.
    pub(super) async fn is_over(&self) {
        tokio::time::sleep_until(self.over_at()).await;
    }

    fn over_at(&self) -> Instant {
        let (newest, now) = (self.0.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let is_burst = newest.len() > AHEAD && newest.front().is_some_and(|first| now < *first + SENT_ON);
        newest.back().filter(|_| is_burst).map_or(now, |last| *last + SENT_ON)
    }
}

/// Sends the answers of one channel's receipts to the task that writes them.
#[derive(Clone)]
pub(super) struct Answers {
    answered: mpsc::UnboundedSender<Answered>,
    end: Arc<End>,
}

/// The end of the channel's consumer, if the broker has ended it.
struct End {
    link: Arc<NodeConnection>,
    /// The broker's own words.
    words: OnceLock<String>,
}

struct Answered {
    acker: Acker,
    tag: DeliveryTag,
    disposition: Disposition,
    written: Writing,
}

/// Dropped once the answer is written. Until then the consumer is not replaced: see [`Answers::are_awaited`].
struct Writing {
    _written: oneshot::Sender<()>,
    _end: Arc<End>,
}

impl Answers {
    /// Starts the task that writes the answers. It ends with the last receipt.
    pub(super) fn start(link: Arc<NodeConnection>, channel: Channel, prefetch: u16, burst: Burst) -> Self {
        // The prefetch bounds this queue, because each delivery is answered once.
        let (answered, inbox) = mpsc::unbounded_channel();
        tokio::spawn(write(inbox, channel, Ledger::new(prefetch), burst));
        Self { answered, end: Arc::new(End { link, words: OnceLock::new() }) }
    }

    /// Notes that the broker has ended the consumer, and has its deliveries back.
    pub(super) fn end(&self, words: String) {
        // The first end counts.
        let _ = self.end.words.set(words);
    }

    /// Whether a delivery has no answer yet, or one that is not written.
    pub(super) fn are_awaited(&self) -> bool {
        Arc::strong_count(&self.end) > 1
    }

    pub(super) fn receipt(&self, tag: DeliveryTag, acker: Acker) -> Box<dyn Receipt> {
        Box::new(Joined { answers: self.clone(), tag, acker })
    }
}

struct Joined {
    answers: Answers,
    tag: DeliveryTag,
    acker: Acker,
}

impl Receipt for Joined {
    fn answer(self: Box<Self>, disposition: Disposition) -> Written {
        // The sender is dropped once the answer is written, and never sends a value.
        let (written, wait) = oneshot::channel();
        let Self { answers, tag, acker } = *self;
        let written = Writing { _written: written, _end: answers.end };
        // The task lives as long as the last receipt, so it is there.
        let _ = answers.answered.send(Answered { acker, tag, disposition, written });
        Written::when_dropped(wait)
    }

    fn taken_back(&self) -> Option<TakenBack> {
        let End { link, words } = &*self.answers.end;
        taken_back(&self.acker, link, words.get())
    }
}

/// Returns why the broker has a delivery back, if it has. `words`: what the broker said as it ended the consumer.
pub(super) fn taken_back(acker: &Acker, link: &NodeConnection, words: Option<&String>) -> Option<TakenBack> {
    (acker.poisoned() || words.is_some()).then(|| {
        if !link.connection.status().connected() {
            return TakenBack::Lost;
        }
        TakenBack::Ended(words.map_or_else(|| "it has closed the channel".to_owned(), Clone::clone))
    })
}

/// Writes the answers to the broker. The task holds the channel, which closes with its last owner, until every delivery
/// is answered.
async fn write(
    mut inbox: mpsc::UnboundedReceiver<Answered>,
    channel: Channel,
    mut ledger: Ledger<(Acker, Writing)>,
    burst: Burst,
) {
    let mut answered = Vec::new();
    loop {
        let overdue = ledger.deadline();
        tokio::select! {
            some = inbox.recv_many(&mut answered, LARGEST) => if some == 0 { break },
            () = tokio::time::sleep_until(overdue.unwrap_or_else(Instant::now)), if overdue.is_some() => {}
        }
        let now = Instant::now();
        for Answered { acker, tag, disposition, written } in answered.drain(..) {
            if disposition == Disposition::Acknowledge {
                ledger.settled(tag, now, (acker, written));
                continue;
            }
            write_one(&acker, disposition).await;
            burst.wrote();
            ledger.answered(tag);
        }
        let joined = ledger.joined();
        if let Some((acker, _)) = joined.last() {
            acknowledge(acker, joined.len()).await;
            burst.wrote();
        }
        for (acker, _) in ledger.overdue(now) {
            acknowledge(&acker, 1).await;
            burst.wrote();
        }
    }
    burst.is_over().await;
    drop(channel);
}

/// Writes the answer to one delivery.
pub(super) async fn write_one(acker: &Acker, disposition: Disposition) {
    match disposition {
        Disposition::Acknowledge | Disposition::AcknowledgeAtOnce => acknowledge(acker, 1).await,
        Disposition::GiveBack => give_back(acker, true).await,
        Disposition::Reject => give_back(acker, false).await,
    }
}

/// Acknowledges a delivery, and if these are several, also all earlier ones. An error means that the channel is closed, so that the
/// broker has requeued the delivery by itself; or that lapin has not answered in time. It may never report that a
/// connection has ended while it wrote (measured: a type that keeps its order waited for ever in one of ten such moments on
/// a busy machine).
async fn acknowledge(acker: &Acker, deliveries: usize) {
    match answer(acker.ack(BasicAckOptions { multiple: deliveries > 1 })).await {
        Ok(_) => tracing::trace!(deliveries, "acknowledged"),
        Err(error) => {
            tracing::debug!(%error, "an acknowledgement was not written; unless it still arrives, the broker delivers the event again");
        }
    }
}

async fn give_back(acker: &Acker, requeue: bool) {
    if let Err(error) = answer(acker.nack(BasicNackOptions { requeue, multiple: false })).await {
        tracing::debug!(%error, requeue, "a delivery was not given back; the broker requeues it when the channel closes");
    }
}

/// Tracks which deliveries of a channel are settled. A value `S` is kept for each settled delivery until it is
/// acknowledged.
struct Ledger<S> {
    /// The lowest tag that has no answer.
    lowest: DeliveryTag,
    /// The deliveries above `lowest` that are settled and still to be acknowledged; `None` for those that the broker
    /// has been told of.
    above: BTreeMap<DeliveryTag, Option<S>>,
    /// The settled deliveries that wait behind `lowest`, and since when.
    waiting: VecDeque<(Instant, DeliveryTag)>,
    /// Once so many deliveries wait, all of them are acknowledged: an unacknowledged delivery takes the place of a new
    /// one.
    most: usize,
}

impl<S> Ledger<S> {
    fn new(prefetch: u16) -> Self {
        let most = usize::from(prefetch).div_ceil(2);
        Self { lowest: 1, above: BTreeMap::new(), waiting: VecDeque::new(), most }
    }

    /// Notes a delivery that is settled and still to be acknowledged.
    fn settled(&mut self, tag: DeliveryTag, now: Instant, kept: S) {
        self.above.insert(tag, Some(kept));
        self.waiting.push_back((now, tag));
    }

    /// Notes a delivery that has an answer of its own: it was given back, rejected, or acknowledged at once.
    fn answered(&mut self, tag: DeliveryTag) {
        self.above.insert(tag, None);
    }

    /// Takes the settled deliveries without a gap before them. One acknowledgement of the last one covers them all.
    fn joined(&mut self) -> Vec<S> {
        let mut joined = Vec::with_capacity(self.waiting.len());
        while let Some(kept) = self.above.remove(&self.lowest) {
            joined.extend(kept);
            self.lowest += 1;
        }
        let lowest = self.lowest;
        while self.waiting.front().is_some_and(|(_, tag)| *tag < lowest) {
            self.waiting.pop_front();
        }
        joined
    }

    /// Takes the deliveries that have waited for [`COMPANY`] behind a gap, or all of them if too many wait.
    fn overdue(&mut self, now: Instant) -> Vec<S> {
        let mut overdue = Vec::new();
        let crowded = self.waiting.len() >= self.most;
        while let Some((since, tag)) = self.waiting.front().copied() {
            if !crowded && now < since + COMPANY {
                break;
            }
            self.waiting.pop_front();
            // `None` if it was joined meanwhile.
            overdue.extend(self.above.get_mut(&tag).and_then(Option::take));
        }
        overdue
    }

    /// Returns when the next delivery is overdue.
    fn deadline(&self) -> Option<Instant> {
        self.waiting.front().map(|(since, _)| *since + COMPANY)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn settle(ledger: &mut Ledger<DeliveryTag>, tags: &[DeliveryTag], now: Instant) {
        for tag in tags {
            ledger.settled(*tag, now, *tag);
        }
    }

    #[test]
    fn deliveries_without_a_gap_before_them_are_joined() {
        let (mut ledger, now) = (Ledger::new(100), Instant::now());
        settle(&mut ledger, &[2, 1, 3, 5], now);
        assert_eq!(ledger.joined(), [1, 2, 3]);
        ledger.answered(4);
        assert_eq!(ledger.joined(), [5]);
        assert_eq!((ledger.deadline(), ledger.overdue(now)), (None, vec![]));
    }

    #[test]
    fn a_delivery_behind_a_gap_waits_a_moment_and_is_acknowledged_once() {
        let (mut ledger, now) = (Ledger::new(100), Instant::now());
        settle(&mut ledger, &[2, 3], now);
        assert!(ledger.joined().is_empty());
        assert!(ledger.overdue(now).is_empty());
        let then = ledger.deadline().expect("something waits");
        assert_eq!(then, now + COMPANY);
        assert_eq!(ledger.overdue(then), [2, 3]);
        settle(&mut ledger, &[4, 1], then);
        assert_eq!(ledger.joined(), [1, 4]);
    }

    #[test]
    fn deliveries_that_fill_half_of_the_prefetch_do_not_wait() {
        let (mut ledger, now) = (Ledger::new(7), Instant::now());
        settle(&mut ledger, &[3, 2, 5], now);
        assert!(ledger.overdue(now).is_empty());
        settle(&mut ledger, &[4], now);
        assert_eq!(ledger.overdue(now), [3, 2, 5, 4]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_over_a_second_after_its_last_answer() {
        let (burst, begun) = (Burst::default(), Instant::now());
        for _ in 0..AHEAD {
            burst.wrote();
        }
        burst.is_over().await;
        assert_eq!(Instant::now(), begun, "RabbitMQ has sent all of them on");
        tokio::time::advance(SENT_ON / 2).await;
        burst.wrote();
        burst.is_over().await;
        assert_eq!(Instant::now(), begun + SENT_ON * 3 / 2);
        burst.wrote();
        burst.is_over().await;
        assert_eq!(Instant::now(), begun + SENT_ON * 3 / 2, "one answer is no burst");
    }

    proptest! {
        /// Takes the broker's view: a joined acknowledgement covers all tags up to its own.
        #[test]
        fn exactly_the_settled_deliveries_are_acknowledged(
            order in Just((1..=60_u64).collect::<Vec<_>>()).prop_shuffle(),
            given_back in proptest::collection::btree_set(1..=60_u64, 0..10),
            pauses in proptest::collection::vec(0..80_u64, 60),
        ) {
            let (mut ledger, mut now) = (Ledger::new(40), Instant::now());
            let (mut settled, mut heard) = (Vec::new(), Vec::new());
            for (tag, pause) in order.into_iter().zip(pauses) {
                now += Duration::from_millis(pause);
                if given_back.contains(&tag) {
                    heard.push(tag);
                    ledger.answered(tag);
                } else {
                    settled.push(tag);
                    ledger.settled(tag, now, tag);
                }
                if let Some(last) = ledger.joined().last().copied() {
                    let covered: Vec<_> = (1..=last).filter(|tag| !heard.contains(tag)).collect();
                    prop_assert!(covered.iter().all(|tag| settled.contains(tag)), "{covered:?} of {settled:?}");
                    heard.extend(covered);
                }
                for tag in ledger.overdue(now) {
                    prop_assert!(settled.contains(&tag) && !heard.contains(&tag));
                    heard.push(tag);
                }
            }
            heard.sort_unstable();
            prop_assert_eq!(heard, (1..=60).collect::<Vec<_>>());
            prop_assert!(ledger.above.is_empty() && ledger.deadline().is_none());
        }
    }
}
