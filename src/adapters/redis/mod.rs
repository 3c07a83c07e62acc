//! The register in Redis. Each call is one Lua script over a batch, which is called once for each shard.

mod argument;
mod client;
mod clock;
mod counters;
mod damage;
mod index;
mod items;
mod keys;
mod packed;
mod schedules;
mod scripts;
mod settle_and_claim;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc, Once,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use futures_util::{
    future::join_all,
    stream::{self, StreamExt as _},
};
use redis::{FromRedisValue, Script, ScriptInvocation};

pub use self::clock::ReportedClock;
use self::{
    client::{RedisClient, Within},
    clock::{ComparedClock, LastReading},
    counters::{CountAtCall, Counters},
    damage::Damage,
    items::{Call, Now, Timely},
    keys::Keys,
};
use crate::{
    adapters::{secret_url::UrlText, tls::Tls},
    domain::{
        register::{
            Cancel, Cancelled, Claim, ClaimAnswer, DedupSlot, Later, Owner, Postponed, Record, Release, Renew, Renewed,
            Reserve, Reserved, Settle, Subject,
            state::{SlotState, millis},
        },
        spec::RedisSpec,
        words::{EventType, Word},
    },
    ports::{Clock, Index as _, Register, RegisterError, SettledAndClaimed},
};

/// The time limit of a call, unless the caller sets another one.
const DEFAULT_LIMIT: Duration = Duration::from_secs(1);

/// The longest time between two calls about few events. Events that came one by one out of the ladder cost the worker and Redis 237 µs
/// of CPU each without it, and 158 with it (`instant-ladder` of `scripts/bench`).
const PACE: Duration = Duration::from_millis(2);

/// The number of shards that are called at a time. Each of these calls may first have to load the script.
const TOGETHER: usize = 128;

/// The answer of a script to a batch: whether there was a counter, the answers, the key of the index that could not be
/// used, the owner if that may be another broker, why items could not be answered, and Redis's time in us.
type Batch<R> = (u8, Vec<R>, Option<Vec<u8>>, Option<Vec<u8>>, Vec<Vec<u8>>, i64);

/// Returns the name of the cluster that the newest connection to the broker leads to, if the name is known.
type ClusterName = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The register in Redis. Clones share its connections (one, or one for each node of a Cluster), which are opened on first use
/// and again after every loss.
#[derive(Clone)]
pub struct RedisRegister {
    client: Arc<RedisClient>,
    keys: Arc<Keys>,
    backlog_retention: Duration,
    limit: Duration,
    clock: Option<Arc<dyn Clock>>,
    reading: Arc<LastReading>,
    cluster_name: ClusterName,
    counters: Arc<Counters>,
    /// How often Redis was found emptied since [`times_emptied`](Register::times_emptied) was last called.
    emptied: Arc<AtomicU64>,
    damage: Arc<Damage>,
    /// Set once it was logged that the register may be another broker's.
    doubted: Arc<Once>,
}

impl fmt::Debug for RedisRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisRegister")
            .field("client", &self.client)
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl RedisRegister {
    /// Returns a register that connects at its first call, for publishers: they go on while Redis is down.
    ///
    /// # Errors
    /// When `url` is not the URL of a Redis.
    pub fn new(url: &str, virtual_host: &str, topology: &Word, spec: &RedisSpec) -> Result<Self, RegisterError> {
        Self::new_with_tls(url.into(), &Tls::default(), virtual_host, topology, spec)
    }

    /// Returns a register like [`new`](Self::new), with these TLS settings for the scheme `rediss`. A URL from a file is read
    /// again when Redis cannot be reached or refuses this client.
    ///
    /// # Errors
    /// When `url` is not the URL of a Redis.
    pub fn new_with_tls(
        url: UrlText,
        tls: &Tls,
        virtual_host: &str,
        topology: &Word,
        spec: &RedisSpec,
    ) -> Result<Self, RegisterError> {
        Ok(Self {
            client: Arc::new(RedisClient::new(url, tls)?),
            keys: Arc::new(Keys::new(&spec.prefix, virtual_host, topology.as_str(), spec.shards)),
            backlog_retention: spec.backlog_retention,
            limit: DEFAULT_LIMIT,
            clock: None,
            reading: Arc::default(),
            cluster_name: Arc::new(|| None),
            counters: Arc::new(Counters::new(spec.shards)),
            emptied: Arc::default(),
            damage: Arc::default(),
            doubted: Arc::new(Once::new()),
        })
    }

    /// Lets renamed types keep their keys. The map has the present name of each, and its first name.
    #[must_use]
    pub fn with_first_names(self, first_names: BTreeMap<EventType, EventType>) -> Self {
        let keys = Keys::clone(&self.keys).with_first_names(first_names);
        Self { keys: Arc::new(keys), ..self }
    }

    /// Returns a register that has answered a ping.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses this client.
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

    /// Starts to connect, so that the first call need not wait for the connection. Must be called within a tokio
    /// runtime.
    pub fn connect_soon(&self) {
        self.client.connect_soon();
    }

    /// Returns the same register, with the same connection and another time limit for every call.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Sets the function that returns the broker's cluster name. Each call sends the name, and a register that another
    /// broker uses refuses the call. The name is read for each call, because a new connection may lead to another
    /// broker.
    #[must_use]
    pub fn on_broker(self, cluster_name: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { cluster_name: Arc::new(cluster_name), ..self }
    }

    /// Returns the eviction policy of Redis if it may evict keys. `None` also if Redis does not say.
    pub async fn eviction_policy(&self) -> Option<String> {
        self.client.eviction_policy(self.limit.into()).await
    }

    /// Returns the clock of this machine, which Redis's answers to this register and its clones compare with Redis's clock.
    #[must_use]
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::new(ComparedClock(Arc::clone(&self.reading)))
    }

    /// Fails if Redis takes no writes, as [`ping`](Register::ping) does. Writes nothing new: to a Redis that was emptied this is
    /// not the first write, which other processes would take for a sign that nothing was lost.
    ///
    /// # Errors
    /// When Redis is unreachable, takes no writes, or refuses the call.
    pub async fn try_write(&self) -> Result<(), RegisterError> {
        self.ask_all_shards(&scripts::TRY_WRITE).await
    }

    /// Returns who uses the register: nobody, one owner, or several if a write reached only some of the shards.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call.
    pub async fn owners(&self) -> Result<BTreeSet<Owner>, RegisterError> {
        let owners = self.own("read", &Owner::default()).await?.into_iter();
        Ok(owners.filter(|owner| *owner != Owner::default()).collect())
    }

    /// Sets the owner of the register, whoever used it before.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call. Some of the shards may have been written: writing again does no
    /// harm.
    pub async fn set_owner(&self, owner: &Owner) -> Result<(), RegisterError> {
        self.own("take", owner).await.map(drop)
    }

    /// Removes the owner of the register, whoever it is. The versions keep rising.
    ///
    /// # Errors
    /// When Redis is unreachable, or refuses the call. Some of the shards may have been written: writing again does no
    /// harm.
    pub async fn clear_owner(&self) -> Result<(), RegisterError> {
        self.own("leave", &Owner::default()).await.map(drop)
    }

    /// Reads, sets or removes the owner of each shard. Returns the owners before this call.
    async fn own(&self, act: &str, owner: &Owner) -> Result<Vec<Owner>, RegisterError> {
        // Without a cluster name, because a register that another broker uses would refuse the call.
        let unnamed = self.clone().on_broker(|| None);
        let shards = (0..self.keys.shards()).map(|shard| {
            let unnamed = &unnamed;
            async move {
                let text = |name: &Option<String>| name.clone().unwrap_or_default();
                let mut script = unnamed.begin(&scripts::OWN, shard);
                script.arg(act).arg(text(&owner.topology)).arg(text(&owner.cluster_name));
                unnamed.call::<(String, String)>(&script, shard, unnamed.limit.into()).await
            }
        });
        let answers: Vec<_> = stream::iter(shards).buffered(TOGETHER).collect().await;
        let answers: Result<Vec<_>, _> = answers.into_iter().collect();
        let named = |name: String| Some(name).filter(|name| !name.is_empty());
        let owner = |(topology, cluster_name)| Owner { topology: named(topology), cluster_name: named(cluster_name) };
        Ok(answers?.into_iter().flatten().map(owner).collect())
    }

    /// For tests: takes the time from this clock instead of Redis.
    #[doc(hidden)]
    #[must_use]
    pub fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Begins a script call with the key and the arguments that every script takes first.
    fn begin<'a>(&self, script: &'a Script, shard: u16) -> ScriptInvocation<'a> {
        let mut call = script.prepare_invoke();
        // The second key never exists. While a hash slot moves between two nodes, Redis serves no call with a key that the
        // node lacks, so no script runs while some of the keys that it touches are on the other node.
        call.key(self.keys.last(shard)).key(self.keys.none(shard)).arg(millis(self.backlog_retention));
        match &self.clock {
            Some(clock) => call.arg(clock.now().as_microsecond()),
            None => call.arg(""),
        };
        call.arg((self.cluster_name)().unwrap_or_default()).arg(self.keys.base(shard));
        call
    }

    async fn ask<C: Call>(&self, batch: &[C]) -> Result<Vec<C::Answer>, RegisterError> {
        let mut shards: BTreeMap<u16, Vec<(usize, &C)>> = BTreeMap::new();
        for (place, call) in batch.iter().enumerate() {
            shards.entry(self.keys.shard(call.subject())).or_default().push((place, call));
        }
        // Waits for all shards even if one has failed, because the other calls are under way.
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
            script.arg(call.argument(&self.keys));
        }
        let (raw, _) = self.call_with_failures::<C::Raw>(&script, shard, self.limit.into()).await?;
        let answered = raw.len();
        let unexpected = || self.client.unexpected(format!("{answered} values answer {} questions", calls.len()));
        if answered != calls.len() * C::VALUES {
            return Err(unexpected());
        }
        let mut raw = raw.into_iter();
        let answers = calls.iter().map(|(place, call)| Some((*place, call.read(&mut raw)?)));
        answers.collect::<Option<_>>().ok_or_else(unexpected)
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
        self.call_with_failures(script, shard, within).await.map(|(answers, _)| answers)
    }

    /// Calls a script that answers a batch. Also returns why items could not be answered, in their order.
    async fn call_with_failures<R: FromRedisValue>(
        &self,
        script: &ScriptInvocation<'_>,
        shard: u16,
        within: Within,
    ) -> Result<(Vec<R>, Vec<Vec<u8>>), RegisterError> {
        let known = self.counters.known(shard);
        let asked = Instant::now();
        let (counter, answers, damage, other, failures, micros): Batch<R> =
            self.client.call(script, self.keys.slot(shard), within).await?;
        // Tests take the time from elsewhere.
        if self.clock.is_none() {
            self.reading.set(asked, micros);
        }
        self.observe(shard, known, counter);
        if let Some(damage) = damage.filter(|_| self.damage.is_due()) {
            self.client.log_damaged(&String::from_utf8_lossy(&damage));
        }
        if let Some(other) = other {
            self.doubted.call_once(|| self.log_doubted(&String::from_utf8_lossy(&other)));
        }
        Ok((answers, failures))
    }

    /// Logs that a broker with another name may use the register.
    fn log_doubted(&self, other: &str) {
        let other = Owner { topology: None, cluster_name: Some(other.to_owned()) };
        if let Some(doubt) = other.doubt((self.cluster_name)().as_deref()) {
            tracing::warn!("{doubt}");
        }
    }

    fn observe(&self, shard: u16, known: CountAtCall, counter: u8) {
        if self.counters.met(shard, known, counter.into()) {
            self.client.log_emptied();
            self.emptied.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds a deadline to a cancel. A cancel is the only call that applies to whatever exists when it arrives: after
    /// its caller has given up, it would also cancel what was published since.
    fn timely<'a>(&self, call: &'a Cancel, now: i64) -> Timely<'a> {
        let limit = i64::try_from(self.limit.as_micros()).unwrap_or(i64::MAX);
        Timely { call, until: now.saturating_add(limit) }
    }

    /// Calls a script that writes, and takes no arguments, for each shard. Fails unless all shards take writes.
    async fn ask_all_shards(&self, script: &Script) -> Result<(), RegisterError> {
        // All shards are asked, because a caller that waits for Redis needs every shard. Only a call about a shard shows
        // that its master is down or its hash slot is moving. Only a script that writes meets every refusal. A server
        // reports a missing password at the first command, a missing permission for scripts at the first script, and that
        // it takes no writes at the first write.
        let within = self.limit.into();
        let calls = (0..self.keys.shards())
            .map(|shard| async move { self.call::<u8>(&self.begin(script, shard), shard, within).await.map(drop) });
        let answers: Vec<_> = stream::iter(calls).buffered(TOGETHER).collect().await;
        answers.into_iter().collect()
    }
}

#[async_trait]
impl Register for RedisRegister {
    async fn ping(&self) -> Result<(), RegisterError> {
        self.ask_all_shards(&scripts::PING).await
    }

    fn url(&self) -> String {
        self.client.url()
    }

    async fn slot(&self, subject: &Subject, slot: &DedupSlot) -> Result<Option<SlotState>, RegisterError> {
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

    async fn claim(&self, batch: &[Claim]) -> Result<Vec<ClaimAnswer>, RegisterError> {
        self.settle_and_claim(&[], batch).await?.claimed.into_iter().collect()
    }

    async fn renew(&self, batch: &[Renew]) -> Result<Vec<Renewed>, RegisterError> {
        self.ask(batch).await
    }

    async fn release(&self, batch: &[Release]) -> Result<(), RegisterError> {
        self.ask(batch).await.map(drop)
    }

    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError> {
        self.settle_and_claim(batch, &[]).await?.settled.into_iter().collect()
    }

    fn pace(&self) -> Duration {
        PACE
    }

    async fn settle_and_claim(&self, settles: &[Settle], claims: &[Claim]) -> Result<SettledAndClaimed, RegisterError> {
        self.settle_and_claim_by_shard(settles, claims).await
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
            // Every shard answers for the same slot, and one of them has the event.
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
