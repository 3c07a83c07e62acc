//! Takes the steps of a migration or of pruning.

use std::{collections::BTreeMap, time::Duration};

use fail::fail_point;
use futures_util::{StreamExt as _, stream};
use hatchery::{
    BrokerError,
    internals::{
        compile::{Binding, Target},
        rabbitmq::codec::short,
    },
};
use lapin::{
    Channel,
    options::{ExchangeDeleteOptions, ExchangeUnbindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::FieldTable,
};
use tokio::time::{Instant, sleep};

use super::declare::{DeclareCause, Declarer, create};
use crate::{
    management::Management,
    observed::Counts,
    plan::{Move, Step, Then},
};

/// How long a count of 0 has to last. The broker tells counts every five seconds (`collect_statistics_interval`), a quorum
/// queue counts every five seconds for that (`quorum_tick_interval`), and 7.7 s were measured from a publish to its count.
/// Two readings that are further apart than both tell two states.
pub const APART: Duration = Duration::from_secs(12);

/// Between two readings.
pub(super) const LOOK: Duration = Duration::from_millis(500);

/// Between the end of a queue and the next of the same name. Whoever consumed the old one is told within milliseconds; if
/// the new one were there by then, the broker would silently attach him to it, and he may get nothing from it (measured
/// on 3.10). Quorum queues refuse the consumer argument that would rule it out, `x-cancel-on-ha-failover`.
const GAP: Duration = Duration::from_secs(1);

/// Queues that are emptied side by side.
const AT_ONCE: usize = 8;

impl Declarer {
    /// Takes the steps that wait for nobody, in their order. Each may have been taken before.
    ///
    /// # Errors
    /// When the broker is away or refuses. The plan that is made next says where it stands.
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
                    // Somebody was quicker, and the channel is gone.
                    Err(BrokerError::Missing { .. }) => channel = self.channel().await?,
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
                Step::DeletePolicy(_) | Step::Move(_) | Step::DeleteQueue { .. } => Ok(()),
            })
        };
        self.answered(&step.address().to_string(), call).await
    }

    /// Empties queues, and deletes those that nothing leads to once they are provably empty: no message ready, none
    /// unacknowledged, none on its way to its dead-letter exchange, known at two readings a statistics interval apart.
    /// The longest it waits is the patience; what is not empty by then stays, and is in the next plan again. How many
    /// messages were moved.
    ///
    /// # Errors
    /// When the broker is away or refuses.
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

    /// Moves what is in these queues now: how many messages, and which of the queues are not there any more.
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

    /// Whether it is gone. A broker may be told to collect its statistics once a minute, and then two readings are one:
    /// what it says about the queue itself is of now.
    async fn delete_drained(&self, step: &Step, queue: &str) -> Result<bool, BrokerError> {
        let channel = self.channel().await?;
        let live = match self.look_at(&channel, queue).await {
            Err(BrokerError::Missing { .. }) => return Ok(true),
            live => live?,
        };
        // One whose messages are moved goes with its consumers.
        let is_consumed = live.consumer_count() > 0 && !matches!(step, Step::Move(_));
        if live.message_count() > 0 || is_consumed {
            return Ok(false);
        }
        self.delete_queue(&channel, queue).await?;
        Ok(true)
    }

    /// Deletes a queue, whatever is in it.
    pub(super) async fn delete_queue(&self, channel: &Channel, queue: &str) -> Result<(), BrokerError> {
        let call = async { Ok(channel.queue_delete(short(queue)?, QueueDeleteOptions::default()).await) };
        self.answered(&format!("queue {queue}"), call).await.map(drop)
    }

    /// What a queue holds ready, and how many consume it, as of now.
    pub(super) async fn look_at(&self, channel: &Channel, queue: &str) -> Result<lapin::Queue, BrokerError> {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let call = async { Ok(channel.queue_declare(short(queue)?, passive, FieldTable::default()).await) };
        self.answered(&format!("queue {queue}"), call).await
    }
}

/// A queue on its way to being empty.
struct Emptying<'a> {
    step: &'a Step,
    /// Since it was looked at first.
    began: Instant,
    /// Since when every reading said that it is empty.
    since: Option<Instant>,
    /// What the last reading said, if it was known.
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

    /// Whether this reading completes the proof.
    fn is_done(&mut self, counts: Option<&Counts>, now: Instant) -> bool {
        let (held, unused) = match self.step {
            // Those who still consume it may keep what they hold.
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

    /// Whether waiting may help: somebody moves or takes what is in it, or it is a timer and its time is up soon enough.
    fn may_still(&self, now: Instant, until: Instant) -> bool {
        let Step::DeleteQueue { ttl_millis, .. } = self.step else { return true };
        let left = until.saturating_duration_since(now);
        match (self.last, ttl_millis) {
            (Some(0) | None, _) => true,
            // The first readings may be from before it was empty.
            (Some(_), None) => now.duration_since(self.began) < APART,
            (Some(_), Some(millis)) => Duration::from_millis(*millis) <= left,
        }
    }
}
