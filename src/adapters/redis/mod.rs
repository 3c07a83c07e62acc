//! The register in Redis: each call is one Lua script over a batch, a script call per shard.

mod counters;
mod damage;
mod index;
mod keys;
mod link;
mod packed;
mod scripts;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    future::join_all,
    stream::{self, StreamExt as _},
};
use redis::{FromRedisValue, Script, ScriptInvocation};

use self::{
    counters::{Counters, Known},
    damage::Damage,
    keys::Keys,
    link::{Link, Within},
    scripts::{Call, Now, Timely},
};
use crate::{
    adapters::tls::Tls,
    domain::{
        register::{
            Cancel, Cancelled, Claim, Claimed, Later, Owner, Postponed, Record, Release, Renew, Renewed, Reserve,
            Reserved, Settle, Slot, Subject, state::SlotState, transitions::millis,
        },
        spec::RedisSpec,
        words::{EventType, Word},
    },
    ports::{Clock, Index as _, Register, RegisterError},
};

/// How long a call takes at most, unless it is said otherwise.
const DEFAULT_LIMIT: Duration = Duration::from_secs(1);

/// So many shards are pinged at a time: each may find that its server has to be sent the script.
const TOGETHER: usize = 128;

/// The answer of a script to a batch: whether there was a counter, the answers, the key of the index that could not be used, and the owner
/// where that may be another broker.
type Batch<R> = (u8, Vec<R>, Option<Vec<u8>>, Option<Vec<u8>>);

/// The name of the cluster that the broker's newest connection leads to, where that is known.
type ClusterName = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The register in Redis. Clones share one connection, which is made on first use and again after every loss.
#[derive(Clone)]
pub struct RedisRegister {
    link: Arc<Link>,
    keys: Arc<Keys>,
    backlog_retention: Duration,
    limit: Duration,
    clock: Option<Arc<dyn Clock>>,
    cluster_name: ClusterName,
    counters: Arc<Counters>,
    /// How often it was found emptied, as far as nobody was told of it.
    emptied: Arc<AtomicU64>,
    damage: Arc<Damage>,
    /// Set once it was logged that the register may be another broker's.
    doubted: Arc<Once>,
}

impl fmt::Debug for RedisRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRegister").field("link", &self.link).field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl RedisRegister {
    /// A register that connects when it is first asked: for publishers, who go on while Redis is away.
    ///
    /// # Errors
    /// When `url` is no address of a Redis.
    pub fn new(url: &str, virtual_host: &str, topology: &Word, spec: &RedisSpec) -> Result<Self, RegisterError> {
        Self::new_with_tls(url, &Tls::default(), virtual_host, topology, spec)
    }

    /// The same with a say in which certificates are trusted and shown, where the scheme is `rediss`.
    ///
    /// # Errors
    /// When `url` is no address of a Redis.
    pub fn new_with_tls(
        url: &str,
        tls: &Tls,
        virtual_host: &str,
        topology: &Word,
        spec: &RedisSpec,
    ) -> Result<Self, RegisterError> {
        Ok(Self {
            link: Arc::new(Link::new(url, tls)?),
            keys: Arc::new(Keys::new(&spec.prefix, virtual_host, topology.as_str(), spec.shards)),
            backlog_retention: spec.backlog_retention,
            limit: DEFAULT_LIMIT,
            clock: None,
            cluster_name: Arc::new(|| None),
            counters: Arc::new(Counters::new(spec.shards)),
            emptied: Arc::default(),
            damage: Arc::default(),
            doubted: Arc::new(Once::new()),
        })
    }

    /// Types that have another name than at first keep their keys: each of these names, and its first one.
    #[must_use]
    pub fn with_first_names(self, first_names: BTreeMap<EventType, EventType>) -> Self {
        let keys = Keys::clone(&self.keys).with_first_names(first_names);
        Self { keys: Arc::new(keys), ..self }
    }

    /// A register that has been reached once, and lets this client in.
    ///
    /// # Errors
    /// When it is away, or refuses.
    pub async fn connect(
        url: &str,
        virtual_host: &str,
        topology: &Word,
        spec: &RedisSpec,
    ) -> Result<Self, RegisterError> {
        let register = Self::new(url, virtual_host, topology, spec)?;
        register.ping().await?;
        Ok(register)
    }

    /// Begins to connect, so that the first question need not wait for it. Must be called within a tokio runtime.
    pub fn connect_soon(&self) {
        self.link.connect_soon();
    }

    /// The same register by the same connection, with another limit for every call.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// The register of a topology on this broker. Each call says the name, so that a register which is in use by another broker
    /// answers none: a connection may lead to another broker than the one before it.
    #[must_use]
    pub fn on_broker(self, cluster_name: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { cluster_name: Arc::new(cluster_name), ..self }
    }

    /// Reads who uses the register: nobody, or one owner, or several where a write reached only some of the shards.
    ///
    /// # Errors
    /// When Redis is away, or refuses.
    pub async fn owners(&self) -> Result<BTreeSet<Owner>, RegisterError> {
        let owners = self.own("read", &Owner::default()).await?.into_iter();
        Ok(owners.filter(|owner| *owner != Owner::default()).collect())
    }

    /// Writes who uses the register, whoever did before.
    ///
    /// # Errors
    /// When Redis is away, or refuses. Some of the shards may have been written: writing again does no harm.
    pub async fn set_owner(&self, owner: &Owner) -> Result<(), RegisterError> {
        self.own("take", owner).await.map(drop)
    }

    /// Leaves the register to whoever comes next, whoever used it before. Its versions go on.
    ///
    /// # Errors
    /// When Redis is away, or refuses. Some of the shards may have been written: writing again does no harm.
    pub async fn clear_owner(&self) -> Result<(), RegisterError> {
        self.own("leave", &Owner::default()).await.map(drop)
    }

    /// The owner of each shard before this call.
    async fn own(&self, act: &str, owner: &Owner) -> Result<Vec<Owner>, RegisterError> {
        // Under no name of its own, or it could not take over.
        let unnamed = self.clone().on_broker(|| None);
        let shards = (0..self.keys.shards()).map(|shard| {
            let unnamed = &unnamed;
            async move {
                let text = |name: &Option<String>| name.clone().unwrap_or_default();
                let mut script = unnamed.begin(&scripts::OWN, shard);
                script.key(unnamed.keys.none(shard)).arg(act).arg(text(&owner.topology)).arg(text(&owner.cluster_name));
                unnamed.call::<(String, String)>(&script, shard, unnamed.limit.into()).await
            }
        });
        let answers: Vec<_> = stream::iter(shards).buffered(TOGETHER).collect().await;
        let answers: Result<Vec<_>, _> = answers.into_iter().collect();
        let named = |name: String| Some(name).filter(|name| !name.is_empty());
        let owner = |(topology, cluster_name)| Owner { topology: named(topology), cluster_name: named(cluster_name) };
        Ok(answers?.into_iter().flatten().map(owner).collect())
    }

    /// For tests: the time is this clock's instead of Redis's own.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// What every script takes first.
    fn begin<'a>(&self, script: &'a Script, shard: u16) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        call.key(self.keys.last(shard)).arg(millis(self.backlog_retention));
        match &self.clock {
            Some(clock) => call.arg(clock.now().as_microsecond()),
            None => call.arg(""),
        };
        call.arg((self.cluster_name)().unwrap_or_default());
        call
    }

    async fn ask<C: Call>(&self, batch: &[C]) -> Result<Vec<C::Answer>, RegisterError> {
        let mut shards: BTreeMap<u16, Vec<(usize, &C)>> = BTreeMap::new();
        for (place, call) in batch.iter().enumerate() {
            shards.entry(self.keys.shard(call.subject())).or_default().push((place, call));
        }
        // All are waited for, also where one has failed: the others' calls are under way.
        let answers = join_all(shards.into_iter().map(|(shard, calls)| self.ask_shard(shard, calls))).await;
        let answers: Result<Vec<_>, _> = answers.into_iter().collect();
        let mut answers: Vec<_> = answers?.into_iter().flatten().collect();
        answers.sort_unstable_by_key(|(place, _)| *place);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    async fn ask_shard<C: Call>(
        &self,
        shard: u16,
        calls: Vec<(usize, &C)>,
    ) -> Result<Vec<(usize, C::Answer)>, RegisterError> {
        let mut script = self.begin(C::script(), shard);
        for (_, call) in &calls {
            call.write(&self.keys, shard, &mut script);
        }
        if C::REACHES_OUT {
            script.key(self.keys.none(shard));
        }
        let raw: Vec<C::Raw> = self.call(&script, shard, self.limit.into()).await?;
        if raw.len() != calls.len() {
            return Err(self.link.unexpected(format!("{} answers to {} questions", raw.len(), calls.len())));
        }
        Ok(calls.into_iter().zip(raw).map(|((place, call), raw)| (place, call.read(raw))).collect())
    }
}

impl RedisRegister {
    /// Calls a script that answers a batch.
    async fn call<R: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
        shard: u16,
        within: Within,
    ) -> Result<Vec<R>, RegisterError> {
        let known = self.counters.known(shard);
        let (counter, answers, damage, other): Batch<R> = self.link.call(script, self.keys.slot(shard), within).await?;
        self.heed(shard, known, counter);
        if let Some(damage) = damage.filter(|_| self.damage.is_due()) {
            self.link.say_damaged(&String::from_utf8_lossy(&damage));
        }
        if let Some(other) = other {
            self.doubted.call_once(|| self.say_doubted(&String::from_utf8_lossy(&other)));
        }
        Ok(answers)
    }

    /// For the log: a broker with another name than this one's has the register.
    fn say_doubted(&self, other: &str) {
        let other = Owner { topology: None, cluster_name: Some(other.to_owned()) };
        if let Some(doubt) = other.doubt((self.cluster_name)().as_deref()) {
            tracing::warn!("{doubt}");
        }
    }

    fn heed(&self, shard: u16, known: Known, counter: u8) {
        if self.counters.met(shard, known, counter.into()) {
            self.link.say_emptied();
            self.emptied.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A cancel that comes when it is not waited for any more would reach what was published since. Of all calls it alone is
    /// about whatever is there when it comes.
    fn timely<'a>(&self, call: &'a Cancel, now: i64) -> Timely<'a> {
        let limit = i64::try_from(self.limit.as_micros()).unwrap_or(i64::MAX);
        Timely { call, until: now.saturating_add(limit) }
    }

    /// Makes sure that a shard takes writes.
    async fn ping_shard(&self, shard: u16, within: Within) -> Result<(), RegisterError> {
        // A server that wants a password says so at the first command, not when it is connected to, one that forbids
        // scripts, not before it is asked to run one, and one that takes no writes, not before something is written.
        let mut script = self.begin(&scripts::PING, shard);
        // And a slot that is on its way between two nodes serves no call some of whose keys are not there yet, as those of a
        // claim are.
        script.key(self.keys.none(shard));
        self.call::<u8>(&script, shard, within).await.map(drop)
    }
}

#[async_trait]
impl Register for RedisRegister {
    async fn ping(&self) -> Result<(), RegisterError> {
        // A master that is away, or a slot that is on its way, is noticed by whoever asks for something there, and who waits
        // for Redis waits for all of it.
        let within = self.limit.into();
        let pings = (0..self.keys.shards()).map(|shard| self.ping_shard(shard, within));
        let answers: Vec<_> = stream::iter(pings).buffered(TOGETHER).collect().await;
        answers.into_iter().collect()
    }

    fn url(&self) -> String {
        self.link.url().to_owned()
    }

    async fn slot(&self, subject: &Subject, slot: &Slot) -> Result<Option<SlotState>, RegisterError> {
        let shown = self.look_at(&[(subject.clone(), slot.clone())]).await?.pop().flatten();
        Ok(shown.map(|shown| shown.state))
    }

    fn times_emptied(&self) -> u64 {
        self.emptied.swap(0, Ordering::Relaxed)
    }

    async fn reserve(&self, batch: &[Reserve]) -> Result<Vec<Reserved>, RegisterError> {
        self.ask(batch).await
    }

    async fn record(&self, batch: &[Record]) -> Result<(), RegisterError> {
        self.ask(batch).await.map(drop)
    }

    async fn claim(&self, batch: &[Claim]) -> Result<Vec<Claimed>, RegisterError> {
        self.ask(batch).await
    }

    async fn renew(&self, batch: &[Renew]) -> Result<Vec<Renewed>, RegisterError> {
        self.ask(batch).await
    }

    async fn release(&self, batch: &[Release]) -> Result<(), RegisterError> {
        self.ask(batch).await.map(drop)
    }

    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError> {
        self.ask(batch).await.map(drop)
    }

    async fn later(&self, batch: &[Later]) -> Result<Vec<Postponed>, RegisterError> {
        self.ask(batch).await
    }

    async fn cancel(&self, batch: &[Cancel]) -> Result<Vec<Vec<Cancelled>>, RegisterError> {
        let times = self.ask(&batch.iter().map(|call| Now(&call.subject)).collect::<Vec<_>>()).await?;
        let timely = batch.iter().zip(times).map(|(call, now)| self.timely(call, now));
        self.ask(&timely.collect::<Vec<_>>()).await
    }

    async fn cancel_anywhere(&self, call: &Cancel) -> Result<Vec<Cancelled>, RegisterError> {
        let shards = (0..self.keys.shards()).map(|shard| async move {
            let (_, now) = self.ask_shard(shard, vec![(0, &Now(&call.subject))]).await?.remove(0);
            self.ask_shard(shard, vec![(0, &self.timely(call, now))]).await
        });
        let answers: Result<Vec<_>, _> = join_all(shards).await.into_iter().collect();
        let mut all: Vec<Cancelled> = Vec::new();
        for found in answers?.into_iter().flatten().flat_map(|(_, found)| found) {
            // The same slot in every shard, and the event in one of them.
            match all.iter_mut().find(|known| known.slot == found.slot) {
                Some(known) => {
                    known.waiting |= found.waiting;
                    known.running |= found.running;
                    known.already |= found.already;
                }
                None => all.push(found),
            }
        }
        Ok(all)
    }
}
