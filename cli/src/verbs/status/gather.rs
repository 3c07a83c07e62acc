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
    EventInfo, EventType, RegisterError, State, Topology, Trouble,
    internals::{
        clocks::is_wrong,
        compile::Desired,
        names::Names,
        ports::{Index as _, ScheduleStates as _},
        rabbitmq::connection::AmqpUrl,
        redis::{RedisRegister, ReportedClock},
        register::{Subject, index::Find},
        schedule::state::State as ScheduleState,
    },
};
use hatchery_admin::{
    broker::look::look,
    figures::Channel,
    management::{ManagementApi, ManagementError},
    one_broker,
};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::{
    findings::{fullest_letters, unconsumed},
    observation::{Blind, Observation, OverdueEvent, Reading, Redis, Refusal, Register},
    silence::{longest_patience, longest_run, patience, silent_for},
    types::{TypeLine, lines},
    wedged::{READINGS, suspects},
};
use crate::{
    args::{Common, UsageError},
    connect::{self, told},
};

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

/// The name of the connection to the broker.
const NAME: &str = "topology status";

/// The broker, the management API and Redis, which `status` looks at.
pub(super) struct Sources<'a> {
    pub(super) topology: &'a Topology,
    pub(super) desired: &'a Desired,
    broker: AmqpUrl,
    management: ManagementApi,
    /// `None` if no type uses the register.
    register: Option<RedisRegister>,
    /// Whether the user said where Redis is.
    is_given: bool,
    /// Set once AMQP and the management API were seen to lead to the same broker.
    is_one_broker: AtomicBool,
}

impl<'a> Sources<'a> {
    /// Connects to nothing yet.
    pub(super) fn new(common: &Common, topology: &'a Topology, desired: &'a Desired) -> anyhow::Result<Self> {
        let broker = common.amqp_url()?;
        let management = ManagementApi::new(common.management_url(&broker)?, &broker.vhost())?;
        let uses_register = topology.types.values().any(|spec| spec.register);
        let is_given = common.given_redis_url()?.is_some();
        let register = if uses_register {
            let (url, vhost, name) = (common.redis_url()?, broker.vhost(), topology.first_name());
            let register = RedisRegister::new_with_tls(url, &common.tls()?, &vhost, name, &topology.redis)
                .map_err(|error| UsageError(format!("--redis-url (REDIS_URL): {error}")))?;
            Some(register.with_first_names(topology.first_names()).with_limit(REDIS_LIMIT))
        } else {
            None
        };
        Ok(Self { topology, desired, broker, management, register, is_given, is_one_broker: AtomicBool::new(false) })
    }

    /// Looks at everything. `before` has the readings of earlier looks.
    pub(super) async fn look(&self, before: &[Reading]) -> anyhow::Result<Observation> {
        let mut seen = Box::pin(self.look_at_broker()).await?;
        seen.vhost = self.broker.vhost();
        let earlier = before.len().saturating_sub(READINGS - 1);
        seen.readings = before[earlier..].iter().cloned().chain(seen.readings).collect();
        seen.redis = self.look_at_redis(&mut seen).await;
        self.compare_clocks(&mut seen).await;
        seen.schedules = self.schedules(&seen).await;
        seen.overdue = self.overdue(&seen).await;
        Ok(seen)
    }

    /// Returns whether a timer may be wedged and more readings must tell.
    pub(super) fn must_look_again(&self, seen: &Observation) -> bool {
        seen.readings.len() < READINGS && !suspects(self.desired, &seen.readings).is_empty()
    }

    /// Reads the queues' figures once more, for [`must_look_again`](Self::must_look_again), within [`LIMIT`].
    pub(super) async fn read_again(&self) -> Result<Reading, ManagementError> {
        let late = |_| ManagementError::Unreachable {
            url: self.management.shown(),
            reason: format!("no answer within {} s", LIMIT.as_secs()),
        };
        let queues = timeout(LIMIT, self.management.figures()).await.map_err(late)??;
        Ok(Reading { at: Timestamp::now(), queues })
    }

    /// Looks at the broker, within [`LIMIT`] altogether. AMQP is asked instead of a management API that fails, and beside one
    /// that is slow: a broker that is frozen answers neither.
    async fn look_at_broker(&self) -> anyhow::Result<Observation> {
        let deadline = Instant::now() + LIMIT;
        let management = async {
            let late =
                || Unseen::Management(format!("the management API at {} does not answer", self.management.shown()));
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
        let management = &self.management;
        // This call goes alone, as the first call of `observe` does: it shows whether this user may use the API at all.
        let sight = management.sight().await?;
        let history = longest_patience(self.topology) * 2;
        let consuming = async {
            let consumers = if sight.statistics { management.consumers().await? } else { Vec::new() };
            let channels = if sight.rates { management.holders(history, &consumers).await? } else { Vec::new() };
            Ok((consumers, channels))
        };
        let (objects, queues, (consumers, mut channels), alarms) =
            tokio::try_join!(management.objects(false), management.figures(), consuming, management.alarms())?;
        if !self.is_one_broker.load(Ordering::Relaxed) {
            one_broker(&self.broker, management, &objects, &connect::here("topology status"))
                .await
                .map_err(told)
                .map_err(Unseen::Other)?;
            self.is_one_broker.store(true, Ordering::Relaxed);
        }
        for channel in silent_ones(&mut channels, self.topology) {
            channel.program = management.program(&channel.connection).await;
        }
        let full = fullest_letters(self.topology, &queues, SOME);
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
        let unconsumed = unconsumed(self.topology, self.desired, &seen).into_iter().take(SOME);
        let asked = unconsumed.map(async |queue| management.is_redelivered(&queue).await.then_some(queue));
        seen.redelivered = join_all(asked).await.into_iter().flatten().collect();
        Ok(seen)
    }

    /// Looks at what AMQP tells: whether the objects exist, and the ready messages and consumers of queues.
    async fn by_amqp(&self, deadline: Instant) -> anyhow::Result<Observation> {
        let exchanges: Vec<String> = self.desired.exchanges.iter().map(|exchange| exchange.name.clone()).collect();
        let names = Names::new(self.topology.name.clone());
        let foreign: Vec<String> = self.topology.sources.iter().map(|(name, spec)| spec.queue(&names, name)).collect();
        let own: Vec<String> = self.desired.queues.iter().map(|queue| queue.name.clone()).collect();
        // The queue of somebody else that is missing is no drift.
        let is_foreign = |name: &String| foreign.contains(name) && !own.contains(name);
        let queues: Vec<String> = own.iter().chain(foreign.iter().filter(|name| is_foreign(name))).cloned().collect();
        let name = connect::here(NAME);
        let looking = timeout_at(deadline, look(&self.broker, &name, &exchanges, &queues));
        let looked = looking.await.map_err(|_| self.broker.unreachable("it does not answer".to_owned()))??;
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
                    // It takes the writes of workers perhaps, whose user may do more.
                    Trouble::Refusing => {
                        blind.push(Blind::Writes);
                        None
                    }
                    _ => return Err(error),
                },
            };
            let counts = types.iter().cloned().zip(counts).collect();
            Ok(Register { counts, evicts, has_owner: !owners.is_empty(), refusal })
        };
        match asked.await {
            Ok(register) => Redis::There(register),
            Err(RegisterError::InUse { by, .. }) => Redis::Taken { by },
            // Nobody said that there is a Redis where it would be by default.
            Err(_) if !self.is_given => Redis::NotGiven,
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
        if self.topology.schedules.is_empty() {
            return None;
        }
        let texts = register.schedules().await.ok()?.into_iter();
        Some(texts.filter_map(|(name, text)| Some((name, ScheduleState::parse(&text)?))).collect())
    }

    fn registered(&self) -> impl Iterator<Item = &EventType> {
        self.topology.types.iter().filter(|(_, spec)| spec.register).map(|(name, _)| name)
    }

    /// Returns for each type the event that should have run first of all and has not.
    async fn overdue(&self, seen: &Observation) -> Vec<OverdueEvent> {
        let (Some(register), Redis::There(there)) = (&self.register, &seen.redis) else { return Vec::new() };
        let lines: BTreeMap<String, TypeLine> =
            lines(self.topology, seen).into_iter().map(|line| (line.name.clone(), line)).collect();
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
            let usual = usual_wait(self.topology, name, lines.get(name.as_str()));
            oldest_waiting(register, name, seen.at - usual)
        });
        stream::iter(looks).buffered(SOME).filter_map(std::future::ready).collect().await
    }
}

/// Why the management API told nothing.
enum Unseen {
    Management(String),
    Other(anyhow::Error),
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

    use hatchery::internals::compile::compile;

    use super::*;
    use hatchery_admin::management::ManagementUrl;

    #[tokio::test(start_paused = true)]
    async fn a_frozen_broker_is_given_up_after_the_limit_of_one_look() {
        let topology =
            hatchery::file::read("version: 1\nname: t\ntypes: { log: { register: off } }\n", "topology.yaml");
        let topology = topology.expect("a valid file");
        let desired = compile(&topology).expect("safe");
        // It takes connections, as the kernel does for a stopped process, and answers none.
        let frozen = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = frozen.local_addr().expect("an address");
        let broker = AmqpUrl::new(&format!("amqp://u:s3cret@{at}")).expect("a URL");
        let url = ManagementUrl::new(&format!("http://u:s3cret@{at}"), &broker).expect("a URL");
        let sources = Sources {
            topology: &topology,
            desired: &desired,
            management: ManagementApi::new(url, "/").expect("a client"),
            broker,
            register: None,
            is_given: false,
            is_one_broker: AtomicBool::new(false),
        };
        let began = Instant::now();
        let error = sources.look(&[]).await.expect_err("no answer").to_string();
        // The clock is paused: it shows how long the look has waited.
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs(), "{error}");
        assert!(error.contains("is unreachable: it does not answer") && !error.contains("s3cret"), "{error}");
        let began = Instant::now();
        let error = sources.read_again().await.expect_err("no answer").to_string();
        assert_eq!(began.elapsed().as_secs(), LIMIT.as_secs(), "{error}");
        assert!(error.contains("no answer within 10 s") && !error.contains("s3cret"), "{error}");
    }
}
