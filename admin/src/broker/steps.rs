//! Takes the steps of a migration or of pruning.

use std::{collections::BTreeMap, time::Duration};

use futures_util::{StreamExt as _, TryStreamExt as _, future::try_join3, stream};
use hatchery::{
    BrokerError,
    internals::{
        compile::{Binding, Exchange, Target},
        rabbitmq::codec::short,
    },
};
use lapin::{
    Channel,
    options::{ExchangeDeleteOptions, ExchangeUnbindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use tokio::time::{Instant, sleep};

use super::declare::{DeclareCause, Declarer, IN_FLIGHT, create};
use crate::{
    live::Counts,
    management::Management,
    plan::{Move, Object, Step, Then},
};

/// How long a count of 0 has to last. The broker publishes counts every five seconds (`collect_statistics_interval`), a
/// quorum queue updates its own every five seconds (`quorum_tick_interval`), and 7.7 s were measured from a publish to
/// its count. Two readings that are further apart than both intervals show two different states.
pub const APART: Duration = Duration::from_secs(12);

/// The delay between two readings.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// The delay between the deletion of a queue and the next declaration of its name. Consumers of the deleted queue are
/// told within milliseconds. If the new queue existed before that, the broker would silently attach the old consumers
/// to it, and they may get no messages from it (measured on 3.10). The consumer argument that would prevent this,
/// `x-cancel-on-ha-failover`, is refused by quorum queues.
const GAP: Duration = Duration::from_secs(1);

/// The number of queues that are emptied at the same time.
const AT_ONCE: usize = 8;

impl Declarer {
    /// Takes the steps that need no waiting, in their order. Each may have been taken before.
    ///
    /// # Errors
    /// When the broker is unreachable or refuses. The next plan shows which steps are left.
    pub async fn take(
        &self,
        steps: &[Step],
        management: &dyn Management,
        mut taken: impl FnMut(&Step),
    ) -> Result<(), DeclareCause> {
        let mut channel = self.channel().await?;
        for step in steps.iter().filter(|step| !step.is_long()) {
            if let Step::DeletePolicy(name) = step {
                management.delete_policy(name).await?;
            } else {
                match self.call(&channel, step).await {
                    // The object is gone already, and the refusal has closed the channel.
                    Err(BrokerError::Missing { .. }) if !matches!(step, Step::Replace { .. }) => {
                        channel = self.channel().await?;
                    }
                    answer => answer?,
                }
            }
            taken(step);
            fail_point!("apply.step");
        }
        Ok(())
    }

    pub(super) async fn call(&self, channel: &Channel, step: &Step) -> Result<(), BrokerError> {
        let call = async {
            let none = FieldTable::default();
            Ok(match step {
                Step::Create(object) => create(channel, object).await?,
                Step::Replace { exchange, bindings } => replace(channel, exchange, bindings).await?,
                Step::Unbind(Binding { source, target, key }) => {
                    let (from, to, key) = (short(source)?, short(target.name())?, short(key)?);
                    match target {
                        Target::Exchange(_) => {
                            channel.exchange_unbind(to, from, key, ExchangeUnbindOptions::default(), none).await
                        }
                        Target::Queue(_) => channel.queue_unbind(to, from, key, none).await,
                    }
                }
                Step::DeleteExchange(name) => {
                    channel.exchange_delete(short(name)?, ExchangeDeleteOptions::default()).await
                }
                Step::DeleteStream(name) => {
                    channel.queue_delete(short(name)?, QueueDeleteOptions::default()).await.map(drop)
                }
                Step::DeletePolicy(_) | Step::Move(_) | Step::DeleteQueue { .. } => Ok(()),
            })
        };
        self.answered(&step.address().to_string(), call).await
    }

    /// Empties queues, and deletes those without bindings once they are provably empty: no message ready, none
    /// unacknowledged, none on its way to its dead-letter exchange, in every reading of at least 12 s.
    /// It waits for at most `patience`; a queue that is not empty by then stays, and is in the next plan again. Returns
    /// the number of messages moved.
    ///
    /// # Errors
    /// When the broker is unreachable or refuses.
    pub async fn empty(
        &self,
        steps: &[Step],
        management: &dyn Management,
        patience: Duration,
        mut taken: impl FnMut(&Step),
    ) -> Result<u64, DeclareCause> {
        let until = Instant::now() + patience;
        let mut open: BTreeMap<&str, Emptying<'_>> =
            steps.iter().filter_map(Emptying::new).map(|emptying| (emptying.queue(), emptying)).collect();
        let mut all = 0;
        while !open.is_empty() {
            let moves = open.values().filter_map(Emptying::step_move).collect();
            let (moved, gone) = self.move_each(moves).await?;
            all += moved;
            open.retain(|queue, _| !gone.iter().any(|gone| gone == queue));
            fail_point!("apply.moved");

            let counts = management.counts().await?;
            let now = Instant::now();
            let mut done = Vec::new();
            let mut deleted = false;
            for (queue, emptying) in &mut open {
                if emptying.is_done(counts.get(*queue), now) {
                    done.push((*queue).to_owned());
                }
            }
            for queue in done {
                let Some(emptying) = open.get_mut(queue.as_str()) else { continue };
                if let Step::Move(Move { through, then: Then::DeleteExchange, .. }) = emptying.step {
                    let step = Step::DeleteExchange(through.clone());
                    self.call(&self.channel().await?, &step).await?;
                } else if self.delete_drained(emptying.step, &queue).await? {
                    deleted = true;
                } else {
                    emptying.since = None;
                    continue;
                }
                fail_point!("apply.deleted");
                taken(emptying.step);
                open.remove(queue.as_str());
            }
            if deleted {
                sleep(GAP).await;
            }
            open.retain(|_, emptying| now < until && emptying.may_still(now, until));
            if !open.is_empty() {
                sleep(LOOK).await;
            }
        }
        Ok(all)
    }

    /// Moves the messages that are in these queues now. Returns the number of messages moved, and the queues that do
    /// not exist any more.
    async fn move_each(&self, moves: Vec<&Move>) -> Result<(u64, Vec<String>), BrokerError> {
        let moves = moves.into_iter().map(|step| async move { (step, self.move_all(step).await) });
        let mut moves = stream::iter(moves).buffer_unordered(AT_ONCE);
        let (mut all, mut gone) = (0, Vec::new());
        while let Some((step, moved)) = moves.next().await {
            match moved {
                Ok(moved) => all += moved,
                Err(BrokerError::Missing { .. }) => gone.push(step.from.clone()),
                Err(error) => return Err(error),
            }
        }
        Ok((all, gone))
    }

    /// Deletes a queue whose statistics say that it is empty, and returns whether it is gone. The count of the queue
    /// itself is checked too: a broker may collect its statistics only once a minute, and then two readings may be the
    /// same.
    async fn delete_drained(&self, step: &Step, queue: &str) -> Result<bool, BrokerError> {
        let channel = self.channel().await?;
        let live = match self.look_at(&channel, queue).await {
            Err(BrokerError::Missing { .. }) => return Ok(true),
            live => live?,
        };
        // A queue whose messages are moved is deleted even if it has consumers.
        let is_consumed = live.consumer_count() > 0 && !matches!(step, Step::Move(_));
        if live.message_count() > 0 || is_consumed {
            return Ok(false);
        }
        self.delete_queue(&channel, queue).await?;
        Ok(true)
    }

    /// Deletes a queue and all its messages.
    pub(super) async fn delete_queue(&self, channel: &Channel, queue: &str) -> Result<(), BrokerError> {
        let call = async { Ok(channel.queue_delete(short(queue)?, QueueDeleteOptions::default()).await) };
        self.answered(&format!("queue {queue}"), call).await.map(drop)
    }

    /// Returns the current number of ready messages and consumers of a queue.
    pub(super) async fn look_at(&self, channel: &Channel, queue: &str) -> Result<lapin::Queue, BrokerError> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let call = async { Ok(channel.queue_declare(short(queue)?, passive, FieldTable::default()).await) };
        self.answered(&format!("queue {queue}"), call).await
    }
}

/// Deletes an exchange, declares it anew and binds it again. The calls are sent without a pause between them, so that the broker
/// is without the exchange for as short as possible.
async fn replace(
    channel: &Channel,
    exchange: &Exchange,
    bindings: &[Binding],
) -> Result<lapin::Result<()>, BrokerError> {
    let delete = ExchangeDeleteOptions::default();
    let deleting = async { Ok(channel.exchange_delete(short(&exchange.name)?, delete).await) };
    let declared = Object::Exchange(exchange.clone());
    let bindings: Vec<Object> = bindings.iter().cloned().map(Object::Binding).collect();
    let binding = stream::iter(&bindings).map(|binding| create(channel, binding)).buffered(IN_FLIGHT);
    // They are polled in this order, and a call is sent when it is first polled.
    let (deleted, declared, bound) = try_join3(deleting, create(channel, &declared), binding.try_collect()).await?;
    let bound: Vec<lapin::Result<()>> = bound;
    Ok(deleted.and(declared).and(bound.into_iter().collect()))
}

/// A queue that is being emptied.
struct Emptying<'a> {
    step: &'a Step,
    /// The time of the first look.
    began: Instant,
    /// The time since which every reading said that it is empty.
    since: Option<Instant>,
    /// The number of messages at the last reading, if it was known.
    last: Option<u64>,
}

impl<'a> Emptying<'a> {
    fn new(step: &'a Step) -> Option<Self> {
        step.is_long().then(|| Self { step, began: Instant::now(), since: None, last: None })
    }

    fn queue(&self) -> &'a str {
        match self.step {
            Step::Move(Move { from, .. }) => from,
            Step::DeleteQueue { name, .. } => name,
            _ => "",
        }
    }

    fn step_move(&self) -> Option<&'a Move> {
        match self.step {
            Step::Move(step) => Some(step),
            _ => None,
        }
    }

    /// Whether this reading completes the proof that the queue is empty.
    fn is_done(&mut self, counts: Option<&Counts>, now: Instant) -> bool {
        let (held, unused) = match self.step {
            // Consumers of a renamed queue may keep the deliveries that they hold.
            Step::Move(Move { then: Then::DeleteExchange, .. }) => (counts.and_then(|c| c.messages_ready), true),
            Step::Move(_) => (counts.and_then(Counts::held), true),
            _ => (counts.and_then(Counts::held), counts.is_some_and(|counts| counts.consumers == Some(0))),
        };
        self.last = held;
        if held != Some(0) || !unused {
            self.since = None;
            return false;
        }
        now.duration_since(*self.since.get_or_insert(now)) >= APART
    }

    /// Whether waiting may help: the messages are moved, the count may be outdated, or the queue is a timer whose TTL
    /// ends in time.
    fn may_still(&self, now: Instant, until: Instant) -> bool {
        let Step::DeleteQueue { ttl_millis, .. } = self.step else { return true };
        let left = until.saturating_duration_since(now);
        match (self.last, ttl_millis) {
            (Some(0) | None, _) => true,
            // The first readings may be older than the moment when the queue became empty.
            (Some(_), None) => now.duration_since(self.began) < APART,
            (Some(_), Some(millis)) => Duration::from_millis(*millis) <= left,
        }
    }
}
