//! Looks at the broker and at Redis, and returns what was seen as one value.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use futures_util::future::{Either, join_all, select};
use hatchery::{
    BrokerError, ConnectError, EventType, RegisterError, Topology, Trouble,
    internals::{
        names::{self, Names},
        ports::{Index as _, NamedStates as _, StateKind},
        redis::{RedisRegister, ReportedClock, ServerInfo},
        schedule::state::ScheduleState,
        time::is_wrong,
    },
};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    findings::{fullest_letters, unconsumed},
    late,
    observation::{Blind, Observation, ObservedRegister, Reading, Redis, Refusal},
    silence::{longest_patience, patience, silent_for},
    summary::Status,
    wedged::{APART, READINGS, suspects},
};
use crate::{
    admin::Admin,
    breakers,
    broker::look::look,
    error::AdminError,
    figures::{Channel, Sample},
    live::Counts,
    management::ManagementError,
};

/// How long the broker may take to answer. With 5,000 queues it takes less than a second.
const LIMIT: Duration = Duration::from_secs(10);

/// How long the stream of the switches may take. A reader waits ten seconds for a replica that is starting, and then tells why.
const SWITCHES_LIMIT: Duration = Duration::from_secs(15);

/// How long the management API may take before AMQP is asked too.
const HEAD_START: Duration = Duration::from_secs(3);

/// How long Redis may take to answer. It is longer than for publishers, because a person waits.
const REDIS_LIMIT: Duration = Duration::from_secs(5);

/// The most dead-letter queues whose growth is looked up, and the most queues without a consumer whose redeliveries are.
const SOME: usize = 10;

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
        seen.schedules = self.schedules(&mut seen).await;
        self.look_at_switches(&mut seen).await;
        self.look_at_breakers(&mut seen).await;
        self.look_at_waiting(&mut seen).await;
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
            timeout_at(deadline, self.by_management(deadline)).await.unwrap_or_else(|_| Err(late()))
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

    async fn by_management(&self, deadline: Instant) -> Result<Observation, Unseen> {
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
            management.name(channel).await;
        }
        let full = fullest_letters(&self.admin.desired, &queues, SOME);
        let lengths = join_all(full.iter().map(|queue| management.lengths(queue))).await;
        let up_for = if full.is_empty() { None } else { management.up_for().await };
        let letters = full.into_iter().zip(lengths);
        let letters = letters.filter_map(|(queue, samples)| Some((queue, since_start(samples?, up_for))));
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
        self.ask_for_consumers(&mut seen, deadline).await;
        let unconsumed = unconsumed(self.admin.topology(), &self.admin.desired, &seen).into_iter().take(SOME);
        let asked = unconsumed.map(async |queue| management.is_redelivered(&queue).await.then_some(queue));
        seen.redelivered = join_all(asked).await.into_iter().flatten().collect();
        Ok(seen)
    }

    /// Asks AMQP for the consumers of queues that have none by the statistics, which are some seconds old.
    async fn ask_for_consumers(&self, seen: &mut Observation, deadline: Instant) {
        let Admin { builder, desired, broker, .. } = self.admin;
        let unconsumed = unconsumed(self.admin.topology(), desired, seen);
        if unconsumed.is_empty() {
            return;
        }
        let looking = timeout_at(deadline, look(broker, builder.connection_name(), &[], &unconsumed));
        let Ok(Ok(looked)) = looking.await else { return };
        let Some(reading) = seen.readings.last_mut() else { return };
        for (name, Counts { consumers, .. }) in looked.queues {
            if let Some(figures) = reading.queues.get_mut(&name) {
                figures.counts.consumers = figures.counts.consumers.max(consumers);
            }
        }
    }

    /// Looks at what AMQP tells: whether the objects exist, and the ready messages and consumers of queues.
    async fn by_amqp(&self, deadline: Instant) -> Result<Observation, BrokerError> {
        let Admin { builder, desired, broker, .. } = self.admin;
        let exchanges: Vec<String> = desired.exchanges.iter().map(|exchange| exchange.name.clone()).collect();
        let names = Names::new(self.admin.topology().name.clone());
        let foreign: Vec<String> =
            self.admin.topology().sources.iter().map(|(name, spec)| spec.queue(&names, name)).collect();
        let own: Vec<String> = desired.queues.iter().map(|queue| queue.name.clone()).collect();
        let former = desired.renames.iter().map(|rename| rename.from.clone());
        // The queue of somebody else that is missing is no drift, nor is one of a former name.
        let others: Vec<String> = foreign.into_iter().chain(former).filter(|name| !own.contains(name)).collect();
        let queues: Vec<String> = own.iter().chain(&others).cloned().collect();
        let looking = timeout_at(deadline, look(broker, builder.connection_name(), &exchanges, &queues));
        let looked = looking.await.map_err(|_| broker.unreachable("it does not answer".to_owned()))??;
        let at = Timestamp::now();
        let queues = looked.queues.into_iter().map(|(name, counts)| (name, counts.into())).collect();
        Ok(Observation {
            at,
            readings: vec![Reading { at, queues }],
            missing: looked.missing.into_iter().filter(|name| !others.contains(name)).collect(),
            ..Observation::default()
        })
    }

    async fn look_at_redis(&self, seen: &mut Observation) -> Redis {
        let Some(register) = &self.register else { return Redis::Unused };
        let (blind, up_for) = (&mut seen.blind, &mut seen.redis_up_for);
        let cluster_name = seen.objects.as_ref().and_then(|objects| objects.cluster_name.clone());
        let register = register.clone().on_broker(move || cluster_name.clone());
        let types: Vec<EventType> = self.registered().cloned().collect();
        let asked = async {
            let (counts, owners) = tokio::try_join!(register.count(&types), register.owners())?;
            let (info, tried) = tokio::join!(register.server_info(), register.try_write());
            let info = info.unwrap_or_else(|_| {
                blind.push(Blind::Eviction);
                ServerInfo::default()
            });
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
            *up_for = info.up_for;
            let counts = types.iter().cloned().zip(counts).collect();
            Ok(ObservedRegister { counts, evicts: info.evicts, has_owner: !owners.is_empty(), refusal })
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
        let there = register.reported_clock().await;
        let there = seen.told("whether the clocks of workers are right", there).flatten();
        let is_here = |machine: &str| here.as_ref().is_some_and(|here| here.machine == machine);
        let there = there.filter(|there| !is_here(&there.machine));
        seen.wrong_clocks = there.into_iter().chain(here).collect();
        seen.at = clock.shared();
    }

    /// Reads what is paused.
    async fn look_at_switches(&self, seen: &mut Observation) {
        let stream = names::control(&self.admin.desired.owner);
        if !seen.exists(&stream) {
            seen.switches_unread = Some(format!("there is no stream {stream}, which has what is paused"));
            return;
        }
        match timeout(SWITCHES_LIMIT, self.admin.switches()).await {
            Ok(Ok(Some(switches))) => seen.switches = Some(switches),
            Ok(Ok(None)) => seen.switches_unread = Some(AdminError::NoSwitches.to_string()),
            Ok(Err(error @ AdminError::Switches { .. })) => seen.switches_unread = Some(error.to_string()),
            Ok(Err(error)) => seen.blind.push(Blind::Switches { why: error.to_string() }),
            Err(_) => {
                let why = format!("the stream {stream} does not answer; perhaps most of its nodes are down");
                seen.switches_unread = Some(why);
            }
        }
    }

    async fn schedules(&self, seen: &mut Observation) -> Option<BTreeMap<String, ScheduleState>> {
        let (Some(register), Redis::There(_)) = (&self.register, &seen.redis) else { return None };
        if self.admin.topology().schedules.is_empty() {
            return None;
        }
        let texts = register.states(StateKind::Schedule).await;
        let texts = seen.told("whether schedules run", texts)?.into_iter();
        Some(texts.filter_map(|(name, text)| Some((name, ScheduleState::parse(&text)?))).collect())
    }

    async fn look_at_breakers(&self, seen: &mut Observation) {
        let (Some(register), Redis::There(_)) = (&self.register, &seen.redis) else { return };
        match breakers::read(self.admin.topology(), register).await {
            Ok(breakers) => seen.take_breakers(breakers),
            Err(error) => seen.blind.push(Blind::Breakers { why: error.to_string() }),
        }
    }

    /// Looks for the events that have waited longest, and reads what workers have told.
    async fn look_at_waiting(&self, seen: &mut Observation) {
        let (Some(register), Redis::There(there)) = (&self.register, seen.redis.clone()) else { return };
        late::look(register, &there, self.admin.topology(), seen).await;
        late::look_at_letters(register, self.admin.topology(), seen).await;
        let types: Vec<EventType> = self.admin.topology().types.keys().cloned().collect();
        let reported = register.reported(&types).await;
        seen.reported = seen.told("whether runs fail, and what else workers report", reported).unwrap_or_default();
    }

    fn registered(&self) -> impl Iterator<Item = &EventType> {
        self.admin.topology().types.iter().filter(|(_, spec)| spec.register).map(|(name, _)| name)
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

/// Returns the samples that a broker has taken which runs for so long. Those of before its start are 0, and so may those of its first
/// minute be, until the queues report. Where nobody says for how long it runs, each 0 may be of that time.
fn since_start(mut samples: Vec<Sample>, up_for: Option<Duration>) -> Vec<Sample> {
    let Some(up_for) = up_for else {
        return samples.into_iter().take_while(|sample| sample.sample > 0).collect();
    };
    let reliable = up_for.saturating_sub(Duration::from_mins(1)).as_millis();
    let last = samples.first().map_or(0, |newest| newest.timestamp);
    samples.retain(|sample| u128::try_from(last - sample.timestamp).is_ok_and(|age| age <= reliable));
    samples
}

/// Returns the channels that acknowledge nothing for too long.
fn silent_ones<'c>(channels: &'c mut [Channel], topology: &Topology) -> impl Iterator<Item = &'c mut Channel> {
    channels.iter_mut().filter(|channel| silent_for(channel).is_some_and(|silent| silent > patience(topology, channel)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use hatchery::Hatchery;

    use super::*;

    #[test]
    fn letters_of_before_a_restart_are_not_counted_as_new() {
        let sample = |(minutes, sample): (i64, u64)| Sample { sample, timestamp: 10_000_000 - minutes * 60_000 };
        let samples: Vec<Sample> = [(0, 9), (1, 8), (2, 8), (3, 0), (10, 0)].map(sample).to_vec();
        let since = |seconds: Option<u64>| since_start(samples.clone(), seconds.map(Duration::from_secs)).len();
        assert_eq!((since(Some(30)), since(Some(119)), since(Some(190)), since(Some(86_400))), (1, 1, 3, 5));
        // The user may not see for how long the broker runs.
        assert_eq!(since(None), 3);
    }

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
