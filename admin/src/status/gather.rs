//! Looks at the broker and at Redis, and returns what was seen as one value.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::{
    StreamExt as _,
    future::{Either, join_all, select},
    stream,
};
use hatchery::{
    BrokerError, ConnectError, EventInfo, EventType, RegisterError, State, Topology, Trouble,
    internals::{
        clocks::is_wrong,
        names::Names,
        ports::{Index as _, ScheduleStates as _},
        redis::{RedisRegister, ReportedClock},
        register::{Subject, index::Find},
        schedule::state::ScheduleState,
    },
};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    findings::{fullest_letters, unconsumed},
    observation::{Blind, Observation, ObservedRegister, OverdueEvent, Reading, Redis, Refusal},
    silence::{longest_patience, longest_run, patience, silent_for},
    summary::Status,
    types::{TypeLine, lines},
    wedged::{APART, READINGS, suspects},
};
use crate::{admin::Admin, broker::look::look, error::AdminError, figures::Channel, management::ManagementError};

/// How long the broker may take to answer. With 5,000 queues it takes less than a second.
const LIMIT: Duration = Duration::from_secs(10);

/// How long the management API may take before AMQP is asked too.
const HEAD_START: Duration = Duration::from_secs(3);

/// How long Redis may take to answer. It is longer than for publishers, because a person waits.
const REDIS_LIMIT: Duration = Duration::from_secs(5);

/// The most dead-letter queues whose growth is looked up, the most queues without a consumer whose redeliveries are, and the
/// most types that are searched for an overdue event.
const SOME: usize = 10;

/// How many of the oldest events of a type are looked at for one that is overdue. The others are dead letters mostly.
const OLDEST: usize = 200;

/// The looks at a topology, one after the other, for `topology status --watch`.
pub struct Looks<'a> {
    admin: &'a Admin,
    /// `None` if no type uses the register.
    register: Option<RedisRegister>,
    /// Set once AMQP and the management API were seen to lead to the same broker.
    is_one_broker: AtomicBool,
    /// The readings of the last looks.
    readings: Vec<Reading>,
}

impl Admin {
    /// Prepares the looks at a topology. Opens no connection.
    ///
    /// # Errors
    /// When the URL of Redis is invalid.
    #[doc(hidden)]
    pub fn looks(&self) -> Result<Looks<'_>, AdminError> {
        let register = self.uses_register().then(|| self.builder.register(&self.broker)).transpose();
        let register = register.map_err(ConnectError::from)?.map(|register| register.with_limit(REDIS_LIMIT));
        Ok(Looks { admin: self, register, is_one_broker: AtomicBool::new(false), readings: Vec::new() })
    }
}

impl Looks<'_> {
    /// Looks once more. A wedged timer is found after some looks.
    ///
    /// # Errors
    /// As [`Admin::status`].
    pub async fn again(&mut self) -> Result<Status, AdminError> {
        let seen = self.look().await?;
        self.keep(seen.readings.last());
        Ok(self.status(&seen))
    }

    /// Keeps a reading for the next look. RabbitMQ reports a queue's figures anew only after some seconds, so a reading too
    /// soon after the last one tells nothing new.
    fn keep(&mut self, new: Option<&Reading>) {
        let is_new = |new: &&Reading| {
            let since = self.readings.last().map(|last| new.at.duration_since(last.at));
            since.is_none_or(|since| since.unsigned_abs() >= APART)
        };
        self.readings.extend(new.filter(is_new).cloned());
        let spare = self.readings.len().saturating_sub(READINGS);
        self.readings.drain(..spare);
    }

    /// Draws the conclusions from what was seen.
    pub(super) fn status(&self, seen: &Observation) -> Status {
        Status::of(self.admin.topology(), &self.admin.desired, seen)
    }

    /// Looks at the broker and Redis, and adds the readings of the looks before.
    pub(super) async fn look(&self) -> Result<Observation, AdminError> {
        let mut seen = Box::pin(self.look_at_broker()).await?;
        seen.vhost = self.admin.broker.vhost();
        let earlier = self.readings.len().saturating_sub(READINGS - 1);
        seen.readings = self.readings[earlier..].iter().cloned().chain(seen.readings).collect();
        seen.redis = self.look_at_redis(&mut seen).await;
        self.compare_clocks(&mut seen).await;
        seen.schedules = self.schedules(&seen).await;
        seen.overdue = self.overdue(&seen).await;
        Ok(seen)
    }

    /// Returns whether a timer may be wedged and more readings must tell.
    pub(super) fn must_look_again(&self, seen: &Observation) -> bool {
        seen.readings.len() < READINGS && !suspects(&self.admin.desired, &seen.readings).is_empty()
    }

    /// Reads the queues' figures once more, for [`must_look_again`](Self::must_look_again), within [`LIMIT`].
    pub(super) async fn read_again(&self) -> Result<Reading, ManagementError> {
        let late = |_| ManagementError::Unreachable {
            url: self.admin.management.shown(),
            reason: format!("no answer within {} s", LIMIT.as_secs()),
        };
        let queues = timeout(LIMIT, self.admin.management.figures()).await.map_err(late)??;
        Ok(Reading { at: Timestamp::now(), queues })
    }

    /// Looks at the broker, within [`LIMIT`] altogether. AMQP is asked instead of a management API that fails, and beside one
    /// that is slow: a broker that is frozen answers neither.
    async fn look_at_broker(&self) -> Result<Observation, AdminError> {
        let deadline = Instant::now() + LIMIT;
        let management = async {
            let late = || {
                Unseen::Management(format!("the management API at {} does not answer", self.admin.management.shown()))
            };
            timeout_at(deadline, self.by_management()).await.unwrap_or_else(|_| Err(late()))
        };
        let beside = async {
            sleep(HEAD_START).await;
            self.by_amqp(deadline).await
        };
        let (looked, why) = match select(pin!(management), pin!(beside)).await {
            Either::Left((Ok(seen), _)) => return Ok(seen),
            Either::Left((Err(Unseen::Management(why)), _)) => (self.by_amqp(deadline).await, why),
            Either::Right((looked, management)) => match management.await {
                Ok(seen) => return Ok(seen),
                Err(Unseen::Management(why)) => (looked, why),
                Err(Unseen::Other(error)) => return Err(error),
            },
            Either::Left((Err(Unseen::Other(error)), _)) => return Err(error),
        };
        Ok(Observation { blind: vec![Blind::Management { why }], ..looked? })
    }

    async fn by_management(&self) -> Result<Observation, Unseen> {
        let Admin { management, .. } = self.admin;
        // This call goes alone, as the first call of `observe` does: it shows whether this user may use the API at all.
        let sight = management.sight().await?;
        let history = longest_patience(self.admin.topology()) * 2;
        let consuming = async {
            let consumers = if sight.statistics { management.consumers().await? } else { Vec::new() };
            let channels = if sight.rates { management.holders(history, &consumers).await? } else { Vec::new() };
            Ok((consumers, channels))
        };
        let (objects, queues, (consumers, mut channels), alarms) =
            tokio::try_join!(management.objects(false), management.figures(), consuming, management.alarms())?;
        if !self.is_one_broker.load(Ordering::Relaxed) {
            self.admin.one_broker(&objects).await.map_err(Unseen::Other)?;
            self.is_one_broker.store(true, Ordering::Relaxed);
        }
        for channel in silent_ones(&mut channels, self.admin.topology()) {
            channel.program = management.program(&channel.connection).await;
        }
        let full = fullest_letters(self.admin.topology(), &queues, SOME);
        let lengths = join_all(full.iter().map(|queue| management.lengths(queue))).await;
        let letters = full.into_iter().zip(lengths).filter_map(|(queue, samples)| Some((queue, samples?)));
        let blind = [(!sight.rates).then_some(Blind::Rates), (!sight.everybody).then_some(Blind::Channels)];
        let at = Timestamp::now();
        let mut seen = Observation {
            at,
            version: objects.version.clone(),
            readings: vec![Reading { at, queues }],
            objects: Some(objects),
            channels: sight.rates.then_some(channels),
            consumers,
            alarms: Some(alarms),
            letters: letters.collect(),
            blind: blind.into_iter().flatten().collect(),
            ..Observation::default()
        };
        let unconsumed = unconsumed(self.admin.topology(), &self.admin.desired, &seen).into_iter().take(SOME);
        let asked = unconsumed.map(async |queue| management.is_redelivered(&queue).await.then_some(queue));
        seen.redelivered = join_all(asked).await.into_iter().flatten().collect();
        Ok(seen)
    }

    /// Looks at what AMQP tells: whether the objects exist, and the ready messages and consumers of queues.
    async fn by_amqp(&self, deadline: Instant) -> Result<Observation, BrokerError> {
        let Admin { builder, desired, broker, .. } = self.admin;
        let exchanges: Vec<String> = desired.exchanges.iter().map(|exchange| exchange.name.clone()).collect();
        let names = Names::new(self.admin.topology().name.clone());
        let foreign: Vec<String> =
            self.admin.topology().sources.iter().map(|(name, spec)| spec.queue(&names, name)).collect();
        let own: Vec<String> = desired.queues.iter().map(|queue| queue.name.clone()).collect();
        // The queue of somebody else that is missing is no drift.
        let is_foreign = |name: &String| foreign.contains(name) && !own.contains(name);
        let queues: Vec<String> = own.iter().chain(foreign.iter().filter(|name| is_foreign(name))).cloned().collect();
        let looking = timeout_at(deadline, look(broker, builder.connection_name(), &exchanges, &queues));
        let looked = looking.await.map_err(|_| broker.unreachable("it does not answer".to_owned()))??;
        let at = Timestamp::now();
        let queues = looked.queues.into_iter().map(|(name, counts)| (name, counts.into())).collect();
        Ok(Observation {
            at,
            readings: vec![Reading { at, queues }],
            missing: looked.missing.into_iter().filter(|name| !is_foreign(name)).collect(),
            ..Observation::default()
        })
    }

    async fn look_at_redis(&self, seen: &mut Observation) -> Redis {
        let Some(register) = &self.register else { return Redis::Unused };
        let blind = &mut seen.blind;
        let cluster_name = seen.objects.as_ref().and_then(|objects| objects.cluster_name.clone());
        let register = register.clone().on_broker(move || cluster_name.clone());
        let types: Vec<EventType> = self.registered().cloned().collect();
        let asked = async {
            let (counts, owners) = tokio::try_join!(register.count(&types), register.owners())?;
            let (evicts, tried) = tokio::join!(register.eviction_policy(), register.try_write());
            let refusal = match tried {
                Ok(()) => None,
                Err(error) => match error.trouble() {
                    trouble @ (Trouble::ReadOnly | Trouble::OutOfMemory) => {
                        Some(Refusal { trouble, why: error.to_string() })
                    }
                    // Redis may take the writes of workers, whose user may do more.
                    Trouble::Refusing => {
                        blind.push(Blind::Writes);
                        None
                    }
                    _ => return Err(error),
                },
            };
            let counts = types.iter().cloned().zip(counts).collect();
            Ok(ObservedRegister { counts, evicts, has_owner: !owners.is_empty(), refusal })
        };
        match asked.await {
            Ok(register) => Redis::There(register),
            Err(RegisterError::InUse { by, .. }) => Redis::Taken { by },
            // No address was given, and there need not be a Redis at the default one.
            Err(_) if !self.admin.is_redis_given => Redis::NotGiven,
            Err(error) => Redis::Away { why: error.to_string() },
        }
    }

    /// Compares the clock of this machine with Redis's, and reads what workers have found.
    async fn compare_clocks(&self, seen: &mut Observation) {
        let (Some(register), Redis::There(_)) = (&self.register, &seen.redis) else { return };
        let clock = register.clock();
        let here = clock.ahead().filter(|ahead| is_wrong(*ahead)).map(ReportedClock::here);
        let there = register.reported_clock().await.ok().flatten();
        let is_here = |machine: &str| here.as_ref().is_some_and(|here| here.machine == machine);
        let there = there.filter(|there| !is_here(&there.machine));
        seen.wrong_clocks = there.into_iter().chain(here).collect();
        seen.at = clock.shared();
    }

    async fn schedules(&self, seen: &Observation) -> Option<BTreeMap<String, ScheduleState>> {
        let (Some(register), Redis::There(_)) = (&self.register, &seen.redis) else { return None };
        if self.admin.topology().schedules.is_empty() {
            return None;
        }
        let texts = register.schedules().await.ok()?.into_iter();
        Some(texts.filter_map(|(name, text)| Some((name, ScheduleState::parse(&text)?))).collect())
    }

    fn registered(&self) -> impl Iterator<Item = &EventType> {
        self.admin.topology().types.iter().filter(|(_, spec)| spec.register).map(|(name, _)| name)
    }

    /// Returns for each type the event that should have run first of all and has not.
    async fn overdue(&self, seen: &Observation) -> Vec<OverdueEvent> {
        let (Some(register), Redis::There(there)) = (&self.register, &seen.redis) else { return Vec::new() };
        let lines: BTreeMap<String, TypeLine> =
            lines(self.admin.topology(), seen).into_iter().map(|line| (line.name.clone(), line)).collect();
        // The index keeps dead letters, which are due for long.
        let mut suspects: Vec<(u64, &EventType)> = self
            .registered()
            .filter_map(|name| {
                let dead = lines.get(name.as_str()).and_then(|line| line.dead).unwrap_or_default();
                Some((there.counts.get(name)?.due.checked_sub(dead).filter(|left| *left > 0)?, name))
            })
            .collect();
        suspects.sort_by(|one, other| other.cmp(one));
        let looks = suspects.into_iter().take(SOME).map(|(_, name)| {
            let usual = usual_wait(self.admin.topology(), name, lines.get(name.as_str()));
            oldest_waiting(register, name, seen.at - usual)
        });
        stream::iter(looks).buffered(SOME).filter_map(std::future::ready).collect().await
    }
}

/// Why the management API told nothing.
enum Unseen {
    Management(String),
    Other(AdminError),
}

impl From<ManagementError> for Unseen {
    fn from(error: ManagementError) -> Self {
        Self::Management(error.to_string())
    }
}

/// Returns the channels that acknowledge nothing for too long.
fn silent_ones<'c>(channels: &'c mut [Channel], topology: &Topology) -> impl Iterator<Item = &'c mut Channel> {
    channels.iter_mut().filter(|channel| silent_for(channel).is_some_and(|silent| silent > patience(topology, channel)))
}

/// Returns how long an event of this type may usually wait after its due time: as long as the events before it take, at
/// the present rate or if each of them runs as long as it may; a run; and the longest time that a stream of newer events
/// may put it off.
fn usual_wait(topology: &Topology, name: &EventType, line: Option<&TypeLine>) -> Duration {
    const LEAST: Duration = Duration::from_mins(1);
    let Some(spec) = topology.types.get(name) else { return LEAST };
    let window = spec.coalesce.window.map_or(Duration::ZERO, |_| spec.coalesce.max_wait);
    let Some(TypeLine { due: Some(due), out_rate, workers, .. }) = line else {
        return LEAST + longest_run(spec) + window;
    };
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    let due = *due as f64;
    // Twice as long as at the present rate, because the rate is that of a few seconds.
    let by_rate = out_rate.filter(|rate| *rate > 0.0).map(|rate| 2.0 * due / rate);
    let handlers = workers.filter(|workers| *workers > 0).and_then(|workers| u32::try_from(workers).ok());
    let handlers = handlers.map(|workers| f64::from(workers) * f64::from(spec.concurrency));
    let by_handlers = handlers.map(|handlers| due * longest_run(spec).as_secs_f64() / handlers);
    let before = by_rate.into_iter().chain(by_handlers).fold(0.0, f64::max);
    let before = Duration::try_from_secs_f64(before).unwrap_or(Duration::MAX);
    LEAST + longest_run(spec) + window + before.min(Duration::from_hours(24))
}

/// Returns the first event of a type that was due before this time and waits for a worker, and how many there are.
async fn oldest_waiting(register: &RedisRegister, name: &EventType, before: Timestamp) -> Option<OverdueEvent> {
    let due_before = Some(before);
    let find =
        Find { event_type: name.clone(), due_from: None, due_before, uncontested_of: None, after: None, limit: OLDEST };
    let found = register.find(&find).await.ok()?;
    let subject = Subject { event_type: name.clone(), reference: None, id: String::new() };
    let may_be_more = found.events.len() >= OLDEST;
    let events = found.events.into_iter().map(|shown| EventInfo::of(&subject, shown));
    let mut waiting = events.filter(|event| matches!(event.state, State::Waiting | State::Retry));
    let event = waiting.next()?;
    Some(OverdueEvent {
        events: 1 + waiting.count(),
        may_be_more,
        event_type: event.event_type,
        reference: event.reference.as_ref().map(ToString::to_string),
        id: event.id,
        due: event.due?,
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use hatchery::Hatchery;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_frozen_broker_is_given_up_after_the_limit_of_one_look() {
        let topology =
            hatchery::file::read("version: 1\nname: t\ntypes: { log: { register: off } }\n", "topology.yaml");
        // This peer takes connections, as the kernel does for a stopped process, and answers none.
        let frozen = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = frozen.local_addr().expect("an address");
        let builder = Hatchery::builder(topology.expect("a valid file")).amqp_url(format!("amqp://u:s3cret@{at}"));
        let admin = Admin::new(builder).and_then(|admin| admin.management_url(&format!("http://u:s3cret@{at}")));
        let admin = admin.expect("valid URLs");
        let looks = admin.looks().expect("a valid URL");
        let began = Instant::now();
        let error = looks.look().await.expect_err("no answer").to_string();
        // The clock is paused: it shows how long the look has waited.
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs(), "{error}");
        assert!(error.contains("is unreachable: it does not answer") && !error.contains("s3cret"), "{error}");
        let began = Instant::now();
        let error = looks.read_again().await.expect_err("no answer").to_string();
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs(), "{error}");
        assert!(error.contains("no answer within 10 s") && !error.contains("s3cret"), "{error}");
    }
}
