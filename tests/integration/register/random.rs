//! Random sequences of calls, on Redis and on the register in memory: the scripts change Redis as the transitions
//! change plain values, answer by answer and field by field.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use hatchery::internals::{
    memory::MemoryRegister,
    ports::{Clock, Index, Register},
    redis::RedisRegister,
    register::{
        Cancel, Claim, CopyVersion, DedupSlot, End, Later, Note, Record, Release, Renew, Reserve, Reserved, Settle,
        Stage, Subject, Terms, index::Find, state::Shard,
    },
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use redis::AsyncCommands as _;

use super::{
    bench::{BACKLOG, DAY, DEDUP, EXCLUSIVE, HORIZON, LEASE, MAX_WAIT, MS, event, register, token},
    stored::Stored,
};
use crate::support::{self, clock::TestClock};

/// How long a key may outlive its last slot, in ms: it expires with a whole second.
const A_SECOND: i64 = 1000;

/// A version in a call. Its value is known only when the sequence runs.
#[derive(Clone, Copy, Debug)]
enum Version {
    /// The version that was given this many versions before the last one.
    Given(usize),
    /// An offset from the present, in µs.
    Near(i64),
    /// The value itself, not an offset.
    Exactly(i64),
}

/// The arguments of all kinds of calls; each call uses some of them.
#[derive(Clone, Debug)]
struct Item {
    subject: Subject,
    /// The slot of a copy.
    slot: DedupSlot,
    /// The slot of an event that is published, cancelled or looked at.
    placed: DedupSlot,
    version: Version,
    generation: i64,
    asked_by: Option<(DedupSlot, Version)>,
    token: u128,
    /// Seconds from now.
    due: i64,
    copied: Option<i64>,
    /// The fence of a settle.
    fence: Version,
    alone: bool,
    /// Whether a cancel is for this slot only, and not for all.
    one: bool,
    note: Note,
    kept: Option<Bytes>,
    terms: Terms,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Reserve,
    Record,
    Claim,
    Renew,
    Release,
    Settle,
    Later,
    Cancel,
}

#[derive(Clone, Debug)]
struct Step {
    pause: Duration,
    call: Call,
    items: Vec<Item>,
}

fn slot() -> impl Strategy<Value = DedupSlot> {
    prop_oneof![
        6 => Just(DedupSlot::Immediate),
        5 => Just(DedupSlot::First),
        3 => Just(DedupSlot::Dated),
        1 => Just(DedupSlot::DatedAt(1)),
        1 => Just(DedupSlot::RequeuedAt(1)),
        2 => prop_oneof![Just("a"), Just("b")].prop_map(|id| DedupSlot::Event(id.to_owned())),
    ]
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![
        12 => (0..3_usize).prop_map(Version::Given),
        1 => (-2_000_000..2_000_000_i64).prop_map(Version::Near),
        1 => prop_oneof![Just(0), Just(-1), Just(1), Just(1 << 53)].prop_map(Version::Exactly),
    ]
}

fn subject() -> impl Strategy<Value = Subject> {
    let reference = prop_oneof![6 => Just("1"), 2 => Just("2 {x}:*"), 1 => Just("")];
    (reference, prop_oneof![Just("a"), Just("b")]).prop_map(|(reference, id)| event(reference, id))
}

fn note() -> impl Strategy<Value = Note> {
    let stage = prop_oneof![Just(Stage::Waiting), Just(Stage::Retry), Just(Stage::DeadLetter)];
    let reason = prop::option::of(prop_oneof![Just(""), Just("retry: attempt=1"), Just("wegen Größe")]);
    (stage, prop_oneof![Just(0), Just(3), Just(u32::MAX)], reason).prop_map(|(stage, attempts, reason)| Note {
        stage,
        attempts,
        reason: reason.map(str::to_owned),
    })
}

fn item() -> impl Strategy<Value = Item> {
    let due = || prop_oneof![Just(0), -200_000..0_i64, 0..2_000_000_i64, Just(-100_000_000_000), Just(200_000_000_000)];
    let generation = prop_oneof![8 => 0..3_i64, 1 => prop_oneof![Just(-1), Just((1 << 32) - 1), Just(1 << 53)]];
    let exclusive = prop::bool::weighted(0.8);
    (
        (subject(), slot(), version(), generation, prop::option::weighted(0.3, (slot(), version()))),
        (0..3_u128, due(), prop::option::of(due()), version(), prop::bool::ANY, prop::bool::ANY, exclusive),
        (note(), prop::option::of(prop_oneof![Just("one"), Just("another")])),
    )
        .prop_map(
            |(
                (subject, slot, version, generation, asked_by),
                (token, due, copied, fence, alone, one, exclusive),
                (note, kept),
            )| {
                // An event without a reference is published into its own slot only. A copy may name any slot.
                let placed =
                    if subject.reference.is_some() { slot.clone() } else { DedupSlot::Event(subject.id.clone()) };
                Item {
                    subject,
                    slot,
                    placed,
                    version,
                    generation,
                    asked_by,
                    token,
                    due,
                    copied,
                    fence,
                    alone,
                    one,
                    note,
                    kept: kept.map(|text| Bytes::from_static(text.as_bytes())),
                    terms: Terms { exclusive, ..EXCLUSIVE },
                }
            },
        )
}

fn step() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![
        20 => Just(Duration::ZERO),
        4 => Just(Duration::from_micros(1)),
        4 => Just(MS),
        6 => prop_oneof![Just(LEASE.saturating_sub(MS)), Just(LEASE)],
        3 => prop_oneof![Just(MAX_WAIT), Just(MAX_WAIT + MS)],
        1 => prop_oneof![Just(DEDUP), Just(DAY), Just(BACKLOG)],
    ];
    let call = prop_oneof![
        4 => Just(Call::Reserve),
        4 => Just(Call::Record),
        8 => Just(Call::Claim),
        4 => Just(Call::Renew),
        2 => Just(Call::Release),
        4 => Just(Call::Settle),
        1 => Just(Call::Later),
        2 => Just(Call::Cancel),
    ];
    (pause, call, prop::collection::vec(item(), 1..4)).prop_map(|(pause, call, items)| Step { pause, call, items })
}

struct Pair {
    clock: Arc<TestClock>,
    memory: MemoryRegister,
    redis: RedisRegister,
    stored: Stored,
    given: Vec<i64>,
}

impl Pair {
    async fn new() -> Self {
        let clock = Arc::new(TestClock::default());
        let prefix = support::redis::prefix();
        Self {
            memory: MemoryRegister::new(clock.clone(), BACKLOG),
            redis: register(support::redis::url(), &prefix, 1).with_clock(clock.clone()),
            clock,
            stored: Stored::connect(&prefix).await,
            given: Vec::new(),
        }
    }

    fn version(&self, version: Version) -> i64 {
        match version {
            Version::Given(back) => self.given.iter().rev().nth(back).copied().unwrap_or(1),
            Version::Near(off) => self.clock.now().as_microsecond() + off,
            Version::Exactly(version) => version,
        }
    }

    fn time(&self, off: i64) -> Timestamp {
        self.clock.now() + SignedDuration::from_secs(off)
    }

    fn stamp(&self, item: &Item) -> CopyVersion {
        CopyVersion { slot: item.slot.clone(), version: self.version(item.version), generation: item.generation }
    }

    /// Makes a call on both registers, and asserts that the answers are equal.
    async fn step(&mut self, Step { pause, call, items }: &Step) -> Result<(), TestCaseError> {
        self.clock.advance(*pause);
        macro_rules! both {
            ($method:ident, $item:ident => $call:expr) => {{
                let calls: Vec<_> = items.iter().map(|$item| $call).collect();
                let expected = self.memory.$method(&calls).await.unwrap();
                let answer = self.redis.$method(&calls).await.unwrap();
                prop_assert_eq!(&answer, &expected, "{:?}", calls);
                answer
            }};
        }
        match call {
            Call::Reserve => {
                let answers = both!(reserve, item => Reserve {
                    subject: item.subject.clone(),
                    slot: item.placed.clone(),
                    due: self.time(item.due),
                    asked_by: item.asked_by.as_ref().map(|(slot, version)| CopyVersion {
                        slot: slot.clone(),
                        version: self.version(*version),
                        generation: item.generation,
                    }),
                    terms: item.terms,
                });
                self.given.extend(answers.iter().filter_map(|answer| match answer {
                    Reserved::Version(version) => Some(version),
                    Reserved::Stale => None,
                }));
            }
            Call::Record => both!(record, item => Record {
                subject: item.subject.clone(),
                slot: item.placed.clone(),
                version: self.version(item.version),
                due: self.time(item.due),
                reason: item.note.reason.clone(),
                kept: item.kept.clone(),
                terms: item.terms,
            }),
            Call::Claim => drop(both!(claim, item => Claim {
                subject: item.subject.clone(),
                stamp: self.stamp(item),
                token: token(item.token),
                due: self.time(item.due),
                alone: item.alone,
                terms: item.terms,
            })),
            Call::Renew => drop(both!(renew, item => Renew {
                subject: item.subject.clone(),
                stamp: self.stamp(item),
                token: token(item.token),
                due: self.time(item.due),
                terms: item.terms,
            })),
            Call::Release => both!(release, item => Release {
                subject: item.subject.clone(),
                stamp: self.stamp(item),
                token: token(item.token),
                due: self.time(item.due),
                terms: item.terms,
            }),
            Call::Settle => both!(settle, item => Settle {
                subject: item.subject.clone(),
                stamp: self.stamp(item),
                // A claim gives no negative fence.
                fence: self.version(item.fence).max(0),
                token: token(item.token),
                due: self.time(item.due),
                end: item.copied.map_or(End::Finished, |off| End::Copied {
                    due: self.time(off),
                    note: item.note.clone(),
                }),
                terms: item.terms,
            }),
            Call::Later => drop(both!(later, item => Later {
                subject: item.subject.clone(),
                stamp: self.stamp(item),
                at: self.time(item.due),
            })),
            Call::Cancel => drop(both!(cancel, item => Cancel {
                subject: item.subject.clone(),
                slot: item.one.then(|| item.placed.clone()),
                due: item.copied.map(|off| self.time(off)),
                horizon: HORIZON,
            })),
        }
        Ok(())
    }

    /// Asserts that the index and the kept messages read the same in both registers.
    async fn compare_index(&self, items: &[Item]) -> Result<(), TestCaseError> {
        for item in items {
            let mut find = Find {
                event_type: item.subject.event_type.clone(),
                due_from: item.one.then(|| self.time(item.due)),
                due_before: item.copied.map(|off| self.time(off)),
                uncontested_of: item.subject.reference.clone().filter(|_| item.alone),
                after: None,
                limit: usize::try_from(item.token).unwrap() + 1,
            };
            loop {
                let (found, expected) = (self.redis.find(&find).await.unwrap(), self.memory.find(&find).await.unwrap());
                prop_assert_eq!(&found, &expected, "{:?}", find);
                if found.next.is_none() {
                    break;
                }
                find.after = found.next;
            }
            let types = [item.subject.event_type.clone()];
            let (counts, expected) = (self.redis.count(&types).await, self.memory.count(&types).await);
            // Redis counts entries that have expired until a search removes them.
            let (counts, expected) = (counts.unwrap().remove(0), expected.unwrap().remove(0));
            prop_assert!(counts.due >= expected.due && counts.delayed >= expected.delayed, "{counts:?} {expected:?}");
            let subjects = [item.subject.clone()];
            let (shown, expected) = (self.redis.look(&subjects).await, self.memory.look(&subjects).await);
            prop_assert_eq!(shown.unwrap(), expected.unwrap());
            let slots = [(item.subject.clone(), item.placed.clone())];
            let (shown, expected) = (self.redis.look_at(&slots).await, self.memory.look_at(&slots).await);
            prop_assert_eq!(shown.unwrap(), expected.unwrap());
            let runs = [(item.subject.clone(), item.placed.clone(), item.terms)];
            let (runs, expected) = (self.redis.cancelled_runs(&runs).await, self.memory.cancelled_runs(&runs).await);
            prop_assert_eq!(runs.unwrap(), expected.unwrap());
            let slots = [(item.subject.clone(), item.placed.clone())];
            let (kept, expected) = (self.redis.kept(&slots).await, self.memory.kept(&slots).await);
            prop_assert_eq!(kept.unwrap(), expected.unwrap());
        }
        Ok(())
    }

    /// Asserts that both keep the same messages, apart from those of expired slots.
    async fn compare_kept(&self) -> Result<(), TestCaseError> {
        let now = self.clock.now().as_millisecond();
        let mut stored = self.stored.kept().await;
        let subjects = ["1", "2 {x}:*", ""].into_iter().flat_map(|reference| ["a", "b"].map(|id| event(reference, id)));
        let slots = || {
            let alone = ["a", "b"].map(|id| DedupSlot::Event(id.to_owned()));
            [DedupSlot::Immediate, DedupSlot::First, DedupSlot::Dated, DedupSlot::DatedAt(1), DedupSlot::RequeuedAt(1)]
                .into_iter()
                .chain(alone)
        };
        let all: Vec<_> = subjects
            .flat_map(|subject| slots().map(move |slot| (subject.clone(), slot)))
            .filter(|(subject, slot)| subject.reference.is_some() || matches!(slot, DedupSlot::Event(_)))
            .collect();
        let expected = all.iter().zip(self.memory.kept(&all).await.unwrap());
        let expected: BTreeMap<_, _> = expected
            .filter_map(|((subject, slot), message)| {
                Some(((subject.home(slot).to_string(), slot.field()), message?.to_vec()))
            })
            .collect();
        let is_live = |key: &(String, String)| {
            self.memory.with_shard(|shard| shard.slots.get(key).is_some_and(|slot| slot.until > now))
        };
        stored.retain(|key, _| expected.contains_key(key) || is_live(key));
        prop_assert_eq!(stored, expected);
        Ok(())
    }

    /// Asserts that both hold the same slots and leases, apart from expired ones: when those are removed does not
    /// matter.
    async fn compare(&self) -> Result<(), TestCaseError> {
        let now = self.clock.now().as_millisecond();
        let live = |mut shard: Shard| {
            shard.slots.retain(|_, slot| slot.until > now);
            shard.leases.retain(|_, lease| lease.until > now);
            shard
        };
        let (stored, ends) = self.stored.read().await;
        let (stored, expected) = (live(stored), live(self.memory.with_shard(|shard| shard.clone())));
        prop_assert_eq!(&stored, &expected);
        for (home, end) in ends {
            match expected.until(&home) {
                // The index entry of the slot may last longer.
                Some(until) if home.contains(":i:") => {
                    prop_assert!(end >= until, "{} does not expire with its last slot", home);
                }
                // So may the lease of the reference.
                Some(until) => {
                    let lease = stored.leases.get(&home.replacen(":r:", ":l:r:", 1));
                    let until = until.max(lease.map_or(0, |lease| lease.until));
                    prop_assert!(
                        (until..=until + A_SECOND).contains(&end),
                        "{} expires at {}, and its last slot at {}",
                        home,
                        end,
                        until
                    );
                }
                None => {}
            }
        }
        Ok(())
    }
}

#[test]
fn redis_answers_and_stores_what_the_transitions_say() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    proptest!(ProptestConfig { cases: cases(), ..ProptestConfig::default() }, |(
        steps in prop::collection::vec(step(), 1..50),
    )| {
        runtime.block_on(async {
            let mut pair = Pair::new().await;
            for step in &steps {
                pair.step(step).await?;
                pair.compare().await?;
                pair.compare_kept().await?;
                pair.compare_index(&step.items).await?;
            }
            pair.stored.clear().await;
            Ok::<_, TestCaseError>(())
        })?;
    });
}

/// The keys of the index and of kept messages, for every reference and id of the sequences.
const FOR_PEOPLE: [&str; 5] = ["import:x", "import:p:r:1", "import:p:r:2 {x}:*", "import:p:i:a", "import:p:i:b"];

#[test]
fn redis_does_what_the_transitions_say_with_damaged_index_and_message_keys() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    proptest!(ProptestConfig { cases: cases() / 2, ..ProptestConfig::default() }, |(
        steps in prop::collection::vec((step(), prop::option::weighted(0.5, 0..FOR_PEOPLE.len())), 1..50),
    )| {
        runtime.block_on(async {
            let mut pair = Pair::new().await;
            let mut connection = pair.stored.connection();
            for (step, changed) in &steps {
                if let Some(name) = changed.map(|name| pair.stored.key(FOR_PEOPLE[name])) {
                    let kind: String = connection.key_type(&name).await.unwrap();
                    let () = match kind.as_str() {
                        "string" => connection.del(&name).await.unwrap(),
                        _ => connection.set(&name, "garbage").await.unwrap(),
                    };
                }
                pair.step(step).await?;
                pair.compare().await?;
            }
            pair.stored.clear().await;
            Ok::<_, TestCaseError>(())
        })?;
    });
}

/// Returns the number of random cases, which is enough for every run. `scripts/test --all` sets a larger one with
/// `PROPTEST_CASES`.
fn cases() -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}
