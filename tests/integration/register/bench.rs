//! A register under test with its clock, and short forms of its calls.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use hatchery::{
    RegisterError, Tls,
    internals::{
        memory::MemoryRegister,
        ports::{Clock, Index, Register},
        redis::RedisRegister,
        register::{
            Cancel, Cancelled, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Later, Postponed, Record, Release,
            Renew, Renewed, Reserve, Reserved, Settle, Subject, Terms,
            index::{Find, Shown},
        },
        spec::RedisSpec,
        words::Word,
    },
};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::support::{clock::TestClock, deployments, redis};

/// The virtual host in the keys. No test of the register connects to a broker.
pub(crate) const VIRTUAL_HOST: &str = "/";

pub(crate) const BACKLOG: Duration = Duration::from_hours(7 * 24);
pub(crate) const DEDUP: Duration = Duration::from_hours(1);
pub(crate) const LEASE: Duration = Duration::from_secs(15);
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(30);
pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const DAY: Duration = Duration::from_hours(24);
pub(crate) const HORIZON: Duration = Duration::from_hours(365 * 24);

/// The number of shards of a register on a cluster.
pub(crate) const SHARDS: u16 = 7;

pub(crate) const EXCLUSIVE: Terms = Terms { exclusive: true, lease: LEASE, dedup_retention: DEDUP, max_wait: MAX_WAIT };
pub(crate) const SIDE_BY_SIDE: Terms = Terms { exclusive: false, ..EXCLUSIVE };

pub(crate) fn spec(prefix: &str, shards: u16) -> RedisSpec {
    RedisSpec { prefix: prefix.to_owned(), shards, dedup_retention: DEDUP, backlog_retention: BACKLOG }
}

/// Returns a register with a long time limit, because the machine may be busy.
pub(crate) fn register(url: &str, prefix: &str, shards: u16) -> RedisRegister {
    RedisRegister::new(url, VIRTUAL_HOST, &topology(), &spec(prefix, shards))
        .unwrap()
        .with_limit(Duration::from_secs(20))
}

/// Returns a register that is reached over TLS.
pub(crate) fn register_over_tls(url: &str, tls: &Tls, shards: u16) -> RedisRegister {
    RedisRegister::new_with_tls(url.into(), tls, VIRTUAL_HOST, &topology(), &spec(&redis::prefix(), shards))
        .unwrap()
        .with_limit(Duration::from_secs(10))
}

pub(crate) fn topology() -> Word {
    "billing".parse().unwrap()
}

/// Returns the event `id` with this reference. An empty reference means none.
pub(crate) fn event(reference: &str, id: &str) -> Subject {
    Subject {
        event_type: "import".parse().unwrap(),
        reference: (!reference.is_empty()).then(|| reference.parse().unwrap()),
        id: id.to_owned(),
    }
}

/// Returns the call that gives an event its version in this slot.
pub(crate) fn reserve(subject: &Subject, slot: &DedupSlot) -> Reserve {
    let (subject, slot) = (subject.clone(), slot.clone());
    Reserve { subject, slot, due: Timestamp::UNIX_EPOCH, asked_by: None, terms: EXCLUSIVE }
}

/// Reserves a version.
pub(crate) async fn version(register: &impl Register, call: Reserve) -> Result<i64, RegisterError> {
    register.reserve(&[call]).await.map(|answers| given(answers[0]))
}

/// Returns the version of a reserve.
pub(crate) fn given(answer: Reserved) -> i64 {
    match answer {
        Reserved::Version(version) => version,
        Reserved::Stale => panic!("a reserve without `asked_by` is never stale"),
    }
}

pub(crate) fn stamp(slot: &DedupSlot, version: i64, generation: i64) -> CopyVersion {
    CopyVersion { slot: slot.clone(), version, generation }
}

pub(crate) fn token(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

pub(crate) struct Bench {
    pub(crate) register: Arc<dyn Register>,
    pub(crate) index: Arc<dyn Index>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) terms: Terms,
    /// The fence of every successful claim, by its token.
    fences: Mutex<BTreeMap<Uuid, i64>>,
}

impl Bench {
    pub(crate) fn memory() -> Self {
        let clock = Arc::new(TestClock::default());
        Self::of(Arc::new(MemoryRegister::new(clock.clone(), BACKLOG)), clock)
    }

    pub(crate) fn redis() -> Self {
        let clock = Arc::new(TestClock::default());
        Self::of(Arc::new(register(redis::url(), &redis::prefix(), 1).with_clock(clock.clone())), clock)
    }

    fn of(register: Arc<impl Register + Index>, clock: Arc<TestClock>) -> Self {
        Self { register: register.clone(), index: register, clock, terms: EXCLUSIVE, fences: Mutex::default() }
    }

    /// Returns a register whose shards are spread over three masters.
    pub(crate) async fn cluster() -> Self {
        let clock = Arc::new(TestClock::default());
        let url = deployments::shared().await.url();
        Self::of(Arc::new(register(&url, &redis::prefix(), SHARDS).with_clock(clock.clone())), clock)
    }

    pub(crate) fn with_terms(self, terms: Terms) -> Self {
        Self { terms, ..self }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn after(&self, duration: Duration) -> Timestamp {
        self.now() + SignedDuration::try_from(duration).unwrap()
    }

    pub(crate) fn before(&self, duration: Duration) -> Timestamp {
        self.now() - SignedDuration::try_from(duration).unwrap()
    }

    pub(crate) fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Advances the clock to one millisecond before this duration has passed.
    pub(crate) fn advance_almost(&self, by: Duration) {
        self.advance(by.saturating_sub(MS));
    }

    /// Publishes the event `a` of the reference 1 in the immediate slot, and starts it with the token 1.
    pub(crate) async fn running(&self) -> (Subject, CopyVersion) {
        let event = event("1", "a");
        let stamp = self.publish(&event, &DedupSlot::Immediate).await;
        self.start(&event, &stamp, token(1)).await;
        (event, stamp)
    }

    pub(crate) async fn reserve_due(&self, subject: &Subject, slot: &DedupSlot, due: Timestamp) -> i64 {
        given(self.reserve_for(subject, slot, due, None).await)
    }

    pub(crate) async fn reserve_for(
        &self,
        subject: &Subject,
        slot: &DedupSlot,
        due: Timestamp,
        asked_by: Option<CopyVersion>,
    ) -> Reserved {
        let call = Reserve { due, asked_by, terms: self.terms, ..reserve(subject, slot) };
        self.register.reserve(&[call]).await.unwrap()[0]
    }

    pub(crate) async fn record(&self, subject: &Subject, slot: &DedupSlot, version: i64) {
        self.register.record(&[self.record_call(subject, slot, version)]).await.unwrap();
    }

    pub(crate) fn record_call(&self, subject: &Subject, slot: &DedupSlot, version: i64) -> Record {
        Record {
            subject: subject.clone(),
            slot: slot.clone(),
            version,
            due: self.now(),
            reason: None,
            kept: None,
            terms: self.terms,
        }
    }

    /// Reserves and records an event that is due now, as a publisher does.
    pub(crate) async fn publish(&self, subject: &Subject, slot: &DedupSlot) -> CopyVersion {
        self.publish_due(subject, slot, self.now()).await
    }

    pub(crate) async fn publish_due(&self, subject: &Subject, slot: &DedupSlot, due: Timestamp) -> CopyVersion {
        let version = self.reserve_due(subject, slot, due).await;
        self.register.record(&[Record { due, ..self.record_call(subject, slot, version) }]).await.unwrap();
        stamp(slot, version, 0)
    }

    /// Returns the claim of a delivery that came when it was due.
    pub(crate) fn claim_call(&self, subject: &Subject, stamp: &CopyVersion, token: Uuid) -> Claim {
        Claim {
            subject: subject.clone(),
            stamp: stamp.clone(),
            token,
            due: self.now(),
            alone: false,
            terms: self.terms,
        }
    }

    pub(crate) async fn claim(&self, subject: &Subject, stamp: &CopyVersion, token: Uuid) -> ClaimAnswer {
        self.claim_as(self.claim_call(subject, stamp, token)).await
    }

    pub(crate) async fn claim_alone(&self, subject: &Subject, stamp: &CopyVersion, token: Uuid) -> ClaimAnswer {
        self.claim_as(Claim { alone: true, ..self.claim_call(subject, stamp, token) }).await
    }

    pub(crate) async fn claim_as(&self, call: Claim) -> ClaimAnswer {
        let token = call.token;
        let answer = self.register.claim(&[call]).await.unwrap().remove(0);
        if let ClaimAnswer::Run { fence, .. } = answer {
            self.fences.lock().unwrap().insert(token, fence);
        }
        answer
    }

    /// Claims an event, and expects that it may run. Returns the fence, the crashes and the effective stamp.
    pub(crate) async fn start(&self, subject: &Subject, stamp: &CopyVersion, token: Uuid) -> (i64, u32, CopyVersion) {
        match self.claim(subject, stamp, token).await {
            ClaimAnswer::Run { fence, crashes, stamp } => (fence, crashes, stamp),
            other => panic!("the claim of {stamp:?} was answered {other:?}"),
        }
    }

    pub(crate) async fn renew(&self, subject: &Subject, stamp: &CopyVersion, token: Uuid) -> Renewed {
        let (subject, stamp, due) = (subject.clone(), stamp.clone(), self.now());
        self.register.renew(&[Renew { subject, stamp, token, due, terms: self.terms }]).await.unwrap()[0]
    }

    /// Tells whether a cancelled run of the slot still holds its lease.
    pub(crate) async fn still_runs(&self, subject: &Subject, slot: &DedupSlot) -> bool {
        self.index.cancelled_runs(&[(subject.clone(), slot.clone(), self.terms)]).await.unwrap()[0]
    }

    pub(crate) async fn release(&self, subject: &Subject, stamp: &CopyVersion, token: Uuid) {
        let (subject, stamp, due) = (subject.clone(), stamp.clone(), self.now());
        self.register.release(&[Release { subject, stamp, token, due, terms: self.terms }]).await.unwrap();
    }

    pub(crate) async fn settle(&self, subject: &Subject, stamp: &CopyVersion, token: Uuid, end: End) {
        self.settle_late(subject, stamp, token, end, self.now()).await;
    }

    pub(crate) async fn settle_late(
        &self,
        subject: &Subject,
        stamp: &CopyVersion,
        token: Uuid,
        end: End,
        due: Timestamp,
    ) {
        let (subject, stamp) = (subject.clone(), stamp.clone());
        let fence = self.fences.lock().unwrap().get(&token).copied().unwrap_or(0);
        let call = Settle { subject, stamp, fence, token, due, end, terms: self.terms };
        self.register.settle(&[call]).await.unwrap();
    }

    /// Claims an event and settles it as finished.
    pub(crate) async fn handle(&self, subject: &Subject, stamp: &CopyVersion) {
        let (_, _, stamp) = self.start(subject, stamp, token(999)).await;
        self.settle(subject, &stamp, token(999), End::Finished).await;
    }

    pub(crate) async fn later(&self, subject: &Subject, stamp: &CopyVersion, at: Timestamp) -> Postponed {
        let (subject, stamp) = (subject.clone(), stamp.clone());
        self.register.later(&[Later { subject, stamp, at }]).await.unwrap()[0]
    }

    /// Reschedules an event with `later`, and expects that it is still wanted.
    pub(crate) async fn postpone(&self, subject: &Subject, stamp: &CopyVersion, at: Timestamp) {
        assert_eq!(self.later(subject, stamp, at).await, Postponed::Until);
    }

    /// Returns all listed events, read in pages of this size.
    pub(crate) async fn list(&self, page: usize) -> Vec<Shown> {
        let mut find = Find::first(event("", "").event_type, page);
        let mut all = Vec::new();
        loop {
            let found = self.index.find(&find).await.unwrap();
            all.extend(found.events);
            find.after = found.next;
            if find.after.is_none() {
                return all;
            }
        }
    }

    /// Returns the ids of all listed events.
    pub(crate) async fn listed(&self) -> Vec<String> {
        self.list(2).await.into_iter().map(|shown| shown.entry.unwrap().subject.id).collect()
    }

    pub(crate) async fn look(&self, subject: &Subject) -> Vec<Shown> {
        self.index.look(std::slice::from_ref(subject)).await.unwrap().remove(0)
    }

    pub(crate) async fn kept(&self, subject: &Subject, slot: &DedupSlot) -> Option<Bytes> {
        self.index.kept(&[(subject.clone(), slot.clone())]).await.unwrap().remove(0)
    }

    /// Publishes an event that is due now, whose message is kept.
    pub(crate) async fn publish_kept(&self, subject: &Subject, slot: &DedupSlot, message: &'static str) -> CopyVersion {
        let version = self.reserve_due(subject, slot, self.now()).await;
        let kept = Some(Bytes::from_static(message.as_bytes()));
        self.register.record(&[Record { kept, ..self.record_call(subject, slot, version) }]).await.unwrap();
        stamp(slot, version, 0)
    }

    pub(crate) async fn cancel(&self, subject: &Subject, slot: Option<&DedupSlot>) -> Vec<Cancelled> {
        self.cancel_due(subject, slot, None).await
    }

    /// Cancels events that are known to be due at this time.
    pub(crate) async fn cancel_due(
        &self,
        subject: &Subject,
        slot: Option<&DedupSlot>,
        due: Option<Timestamp>,
    ) -> Vec<Cancelled> {
        let call = Cancel { subject: subject.clone(), slot: slot.cloned(), due, horizon: HORIZON };
        self.register.cancel(&[call]).await.unwrap().remove(0)
    }
}
