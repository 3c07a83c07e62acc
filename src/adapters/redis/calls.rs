//! The calls of the register: a script over a batch, once for each shard.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::{Duration, Instant},
    vec,
};

use async_trait::async_trait;
use futures_util::{
    future::join_all,
    stream::{self, StreamExt as _},
};
use redis::{FromRedisValue, Script, ScriptInvocation};

use super::{
    RedisRegister, TOGETHER,
    client::Within,
    items::{Item, Now, Timely},
    loss::Marks,
    scripts,
};
use crate::{
    domain::register::{
        Cancel, Cancelled, Claim, ClaimAnswer, DedupSlot, Later, Owner, Postponed, Record, Release, Renew, Renewed,
        Reserve, Reserved, Settle, Subject,
        state::{SlotState, millis},
    },
    ports::{Index as _, Register, RegisterError, SettledAndClaimed},
};

/// The longest time between two calls about few events. Events that came one by one out of the ladder cost the worker and Redis 237 µs
/// of CPU each without it, and 158 with it (`instant-ladder` of `scripts/bench`).
const PACE: Duration = Duration::from_millis(2);

/// The answer of the script `settle_and_claim` to an item whose key cannot be read.
const UNREADABLE: i64 = -1;

/// The answer of a script to a batch: whether there was a counter, the answers, the key of the index that could not be
/// used, the owner if that may be another broker, why items could not be answered, and Redis's time in us.
type Batch<R> = (u8, Vec<R>, Option<Vec<u8>>, Option<Vec<u8>>, Vec<Vec<u8>>, i64);

/// Items of one shard, or their answers, and their places in the batch.
type Placed<T> = Vec<(usize, T)>;

impl RedisRegister {
    /// Begins a script call with the key and the arguments that every script takes first.
    pub(super) fn begin<'a>(&self, script: &'a Script, shard: u16) -> ScriptInvocation<'a> {
        let (mut call, base) = (script.prepare_invoke(), self.keys.base(shard));
        // The second key never exists. While a hash slot moves between two nodes, Redis serves no call with a key that the
        // node lacks, so no script runs while some of the keys that it touches are on the other node.
        call.key(self.keys.last(shard)).key(format!("{base}none")).arg(millis(self.backlog_retention));
        match &self.clock {
            Some(clock) => call.arg(clock.now().as_microsecond()),
            None => call.arg(""),
        };
        call.arg((self.cluster_name)().unwrap_or_default()).arg(base);
        call
    }

    /// Calls a script that answers a batch. Also returns why items could not be answered, in their order.
    pub(super) async fn call<R: FromRedisValue>(
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
        if self.counters.met(shard, known, counter) {
            self.loss.counted();
            self.count_emptied();
        }
        if let Some(damage) = damage {
            self.client.log_damaged(&String::from_utf8_lossy(&damage));
        }
        // A broker with another name may use the register.
        if let Some(other) = other {
            self.doubted.call_once(|| {
                let other = Some(String::from_utf8_lossy(&other).into_owned());
                let other = Owner { topology: None, cluster_name: other };
                if let Some(doubt) = other.doubt((self.cluster_name)().as_deref()) {
                    tracing::warn!("{doubt}");
                }
            });
        }
        Ok((answers, failures))
    }

    /// Calls a script about a batch, once for each shard.
    pub(super) async fn ask<I: Item>(&self, script: &Script, batch: &[I]) -> Result<Vec<I::Answer>, RegisterError> {
        let shards = self.by_shard(batch).into_iter();
        Ok(in_order(all(shards.map(|(shard, items)| self.ask_shard(script, shard, items))).await?))
    }

    async fn ask_shard<I: Item>(
        &self,
        script: &Script,
        shard: u16,
        items: Placed<&I>,
    ) -> Result<Placed<I::Answer>, RegisterError> {
        let mut script = self.begin(script, shard);
        for (_, item) in &items {
            script.arg(item.argument(&self.keys));
        }
        let (raw, _) = self.call::<I::Raw>(&script, shard, self.limit.into()).await?;
        let answered = raw.len();
        let unexpected = || self.client.unexpected(format!("{answered} values answer {} questions", items.len()));
        if answered != items.len() * I::VALUES {
            return Err(unexpected());
        }
        let mut raw = raw.into_iter();
        let answers = items.iter().map(|(place, item)| Some((*place, item.read(&mut raw)?)));
        answers.collect::<Option<_>>().ok_or_else(unexpected)
    }

    /// Reads the answers to items each of which may have a key that cannot be read.
    fn read_each<I: Item<Raw = i64>>(
        &self,
        items: &[(usize, &I)],
        raw: &mut vec::IntoIter<i64>,
        failures: &mut vec::IntoIter<Vec<u8>>,
    ) -> Result<Placed<Result<I::Answer, RegisterError>>, RegisterError> {
        let answer = |(place, item): &(usize, &I)| {
            if raw.as_slice().first() == Some(&UNREADABLE) {
                raw.by_ref().take(I::VALUES).for_each(drop);
                let reason = String::from_utf8_lossy(&failures.next().unwrap_or_default()).into_owned();
                return Ok((*place, Err(RegisterError::Unreadable { url: self.client.url(), reason })));
            }
            let answer = item.read(raw).ok_or_else(|| self.client.unexpected("a value is missing".to_owned()))?;
            Ok((*place, Ok(answer)))
        };
        items.iter().map(answer).collect()
    }

    fn by_shard<'a, I: Item>(&self, batch: &'a [I]) -> BTreeMap<u16, Placed<&'a I>> {
        let mut shards: BTreeMap<_, Placed<_>> = BTreeMap::new();
        for (place, item) in batch.iter().enumerate() {
            shards.entry(self.keys.shard(item.subject())).or_default().push((place, item));
        }
        shards
    }

    /// Adds a deadline to a cancel. A cancel is the only call that applies to whatever exists when it arrives: after
    /// its caller has given up, it would also cancel what was published since.
    fn timely<'a>(&self, call: &'a Cancel, now: i64) -> Timely<'a> {
        let limit = i64::try_from(self.limit.as_micros()).unwrap_or(i64::MAX);
        Timely { call, until: now.saturating_add(limit) }
    }

    /// Calls a script that writes, and takes no arguments, for each shard. Fails unless all shards take writes.
    pub(super) async fn ask_all_shards(&self, script: &Script) -> Result<(), RegisterError> {
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

/// Waits for all shards even if one has failed, because the other calls are under way.
async fn all<A>(
    shards: impl Iterator<Item = impl Future<Output = Result<A, RegisterError>>>,
) -> Result<Vec<A>, RegisterError> {
    join_all(shards).await.into_iter().collect()
}

/// Puts the answers of the shards in the order of the batch.
fn in_order<A>(shards: Vec<Placed<A>>) -> Vec<A> {
    let mut answers: Vec<_> = shards.into_iter().flatten().collect();
    answers.sort_unstable_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
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

    fn look_for_loss(&self) {
        let Some((born, is_counted)) = self.loss.begin() else { return };
        let register = self.clone();
        tokio::spawn(async move {
            let mut texts = match register.ask_reports(&["loss", &born, if is_counted { "1" } else { "" }]).await {
                Ok(texts) => texts.into_iter(),
                Err(error) => {
                    if is_counted {
                        register.loss.counted();
                    }
                    return tracing::debug!(%error, "whether Redis was emptied is not known");
                }
            };
            let marks = Marks { born: texts.next().unwrap_or_default(), lost: texts.next().unwrap_or_default() };
            if register.loss.met(marks, is_counted) {
                // A counter that is missing by now was lost with what is counted here.
                register.counters.forget();
                register.count_emptied();
            }
        });
    }

    fn times_emptied(&self) -> u64 {
        self.emptied.swap(0, Ordering::Relaxed)
    }

    async fn reserve(&self, batch: &[Reserve]) -> Result<Vec<Reserved>, RegisterError> {
        self.ask(&scripts::RESERVE, batch).await
    }

    async fn record(&self, batch: &[Record]) -> Result<(), RegisterError> {
        self.ask(&scripts::RECORD, batch).await.map(drop)
    }

    async fn claim(&self, batch: &[Claim]) -> Result<Vec<ClaimAnswer>, RegisterError> {
        self.settle_and_claim(&[], batch).await?.claimed.into_iter().collect()
    }

    async fn renew(&self, batch: &[Renew]) -> Result<Vec<Renewed>, RegisterError> {
        self.ask(&scripts::RENEW, batch).await
    }

    async fn release(&self, batch: &[Release]) -> Result<(), RegisterError> {
        self.ask(&scripts::RELEASE, batch).await.map(drop)
    }

    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError> {
        self.settle_and_claim(batch, &[]).await?.settled.into_iter().collect()
    }

    fn pace(&self) -> Duration {
        PACE
    }

    async fn settle_and_claim(&self, settles: &[Settle], claims: &[Claim]) -> Result<SettledAndClaimed, RegisterError> {
        let (mut settles, mut claims) = (self.by_shard(settles), self.by_shard(claims));
        let shards: BTreeSet<u16> = settles.keys().chain(claims.keys()).copied().collect();
        let calls = shards.into_iter().map(|shard| {
            let settles = settles.remove(&shard).unwrap_or_default();
            let claims = claims.remove(&shard).unwrap_or_default();
            async move {
                let mut script = self.begin(&scripts::SETTLE_AND_CLAIM, shard);
                script.arg(settles.len());
                for (_, settle) in &settles {
                    script.arg(settle.argument(&self.keys));
                }
                for (_, claim) in &claims {
                    script.arg(claim.argument(&self.keys));
                }
                let (raw, failures) = self.call::<i64>(&script, shard, self.limit.into()).await?;
                let (answered, asked) = (raw.len(), settles.len() * Settle::VALUES + claims.len() * Claim::VALUES);
                if answered != asked {
                    return Err(self.client.unexpected(format!("{answered} values answer a call for {asked}")));
                }
                let (mut raw, mut failures) = (raw.into_iter(), failures.into_iter());
                let settled = self.read_each(&settles, &mut raw, &mut failures)?;
                Ok((settled, self.read_each(&claims, &mut raw, &mut failures)?))
            }
        });
        let (settled, claimed) = all(calls).await?.into_iter().unzip();
        Ok(SettledAndClaimed { settled: in_order(settled), claimed: in_order(claimed) })
    }

    async fn later(&self, batch: &[Later]) -> Result<Vec<Postponed>, RegisterError> {
        self.ask(&scripts::LATER, batch).await
    }

    async fn cancel(&self, batch: &[Cancel]) -> Result<Vec<Vec<Cancelled>>, RegisterError> {
        let times = self.ask(&scripts::NOW, &batch.iter().map(|call| Now(&call.subject)).collect::<Vec<_>>()).await?;
        let timely = batch.iter().zip(times).map(|(call, now)| self.timely(call, now));
        self.ask(&scripts::CANCEL, &timely.collect::<Vec<_>>()).await
    }

    async fn cancel_anywhere(&self, call: &Cancel) -> Result<Vec<Cancelled>, RegisterError> {
        let shards = (0..self.keys.shards()).map(|shard| async move {
            let (_, now) = self.ask_shard(&scripts::NOW, shard, vec![(0, &Now(&call.subject))]).await?.remove(0);
            self.ask_shard(&scripts::CANCEL, shard, vec![(0, &self.timely(call, now))]).await
        });
        let mut cancelled: Vec<Cancelled> = Vec::new();
        for found in all(shards).await?.into_iter().flatten().flat_map(|(_, found)| found) {
            // Every shard answers for the same slot, and one of them has the event.
            match cancelled.iter_mut().find(|known| known.slot == found.slot) {
                Some(known) => {
                    known.waiting |= found.waiting;
                    known.running |= found.running;
                    known.already |= found.already;
                }
                None => cancelled.push(found),
            }
        }
        Ok(cancelled)
    }
}
