//! Properties that only a real Redis has: its keys, its clock, its scripts.

use std::{collections::BTreeSet, sync::Arc};

use hatchery::internals::{
    ports::{Clock as _, Index, Register},
    redis::RedisRegister,
    register::{
        Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Record, Settle, Subject,
        index::{Find, TypeCounts},
    },
    words::EventType,
};
use redis::AsyncCommands;

use super::{
    bench::{BACKLOG, DEDUP, EXCLUSIVE, event, given, register, reserve, stamp, token, version},
    stored::Stored,
};
use crate::support::{clock::TestClock, redis as server};

async fn fresh(shards: u16) -> (RedisRegister, Stored) {
    let prefix = server::prefix();
    (register(server::url(), &prefix, shards), Stored::connect(&prefix).await)
}

/// Returns the time of the Redis server, in µs.
async fn time(stored: &Stored) -> i64 {
    let (seconds, micros): (i64, i64) = redis::cmd("TIME").query_async(&mut stored.connection()).await.unwrap();
    seconds * 1_000_000 + micros
}

fn record(subject: &Subject, slot: &DedupSlot, version: i64) -> Record {
    Record {
        subject: subject.clone(),
        slot: slot.clone(),
        version,
        due: jiff::Timestamp::UNIX_EPOCH,
        reason: None,
        kept: None,
        terms: EXCLUSIVE,
    }
}

fn claim(subject: &Subject, stamp: CopyVersion, n: u128, due: jiff::Timestamp) -> Claim {
    Claim { subject: subject.clone(), stamp, token: token(n), due, alone: false, terms: EXCLUSIVE }
}

fn settle(claim: &Claim) -> Settle {
    let Claim { subject, stamp, token, due, terms, .. } = claim.clone();
    Settle { subject, stamp, fence: 0, token, due, end: End::Finished, terms }
}

async fn publish(register: &RedisRegister, subject: &Subject, slot: &DedupSlot) -> CopyVersion {
    let version = version(register, reserve(subject, slot)).await.unwrap();
    register.record(&[record(subject, slot, version)]).await.unwrap();
    stamp(slot, version, 0)
}

#[tokio::test]
async fn versions_and_expiries_use_the_clock_of_redis() {
    let (register, stored) = fresh(1).await;
    let a = event("1", "a");
    let before = time(&stored).await;
    let first = publish(&register, &a, &DedupSlot::Immediate).await;
    let after = time(&stored).await;
    assert!((before..=after).contains(&first.version));

    let due = jiff::Timestamp::from_microsecond(before).unwrap();
    let call = claim(&a, first, 1, due);
    assert!(matches!(register.claim(std::slice::from_ref(&call)).await.unwrap()[0], ClaimAnswer::Run { .. }));
    let (shard, ends) = stored.read().await;
    let slot = shard.slots.values().next().unwrap();
    let backlog = i64::try_from(BACKLOG.as_millis()).unwrap();
    assert!((before / 1000 + backlog..=time(&stored).await / 1000 + backlog).contains(&slot.until));
    // A key expires with a whole second.
    assert!((slot.until..=slot.until + 1000).contains(&ends["import:r:1"]));

    register.settle(&[settle(&call)]).await.unwrap();
    let (shard, ends) = stored.read().await;
    let dedup = i64::try_from(DEDUP.as_millis()).unwrap();
    assert!((before / 1000 + dedup..=time(&stored).await / 1000 + dedup + 1000).contains(&ends["import:r:1"]));
    assert!(shard.leases.is_empty());
}

#[tokio::test]
async fn all_keys_but_the_counter_expire() {
    let (register, stored) = fresh(1).await;
    let a = event("1", "a");
    let first = publish(&register, &a, &DedupSlot::Immediate).await;
    let kept = Some(bytes::Bytes::from_static(b"kept"));
    register.record(&[Record { kept, ..record(&a, &DedupSlot::Immediate, first.version) }]).await.unwrap();
    register.claim(&[claim(&a, first, 1, jiff::Timestamp::UNIX_EPOCH)]).await.unwrap();
    register
        .claim(&[claim(&event("", "b"), CopyVersion::uncontested("b", 0), 2, jiff::Timestamp::UNIX_EPOCH)])
        .await
        .unwrap();
    let names = stored.names().await;
    assert_eq!(names, ["import:i:b", "import:p:r:1", "import:r:1", "import:x", "last"]);
    for name in names {
        let left: i64 = stored.connection().pttl(stored.key(&name)).await.unwrap();
        assert_eq!(left > 0, name != "last", "{name}: {left}");
    }
}

#[tokio::test]
async fn scripts_are_loaded_again_after_they_were_flushed() {
    let (register, stored) = fresh(1).await;
    let a = event("1", "a");
    let slot = DedupSlot::Immediate;
    for _ in 0..2 {
        let first = publish(&register, &a, &slot).await;
        let call = claim(&a, first, 1, jiff::Timestamp::UNIX_EPOCH);
        assert!(matches!(register.claim(std::slice::from_ref(&call)).await.unwrap()[0], ClaimAnswer::Run { .. }));
        register.settle(&[settle(&call)]).await.unwrap();
        let () = redis::cmd("SCRIPT").arg("FLUSH").query_async(&mut stored.connection()).await.unwrap();
    }
}

#[tokio::test]
async fn scripts_that_are_flushed_again_and_again_fail_no_call() {
    let redis = server::Server::start(server::free_port(), &[]);
    let register = register(&redis.url, "t", 1);
    let flushing = async {
        loop {
            redis.say(&["SCRIPT", "FLUSH"]).await;
        }
    };
    let calling = async {
        for n in 0..300 {
            register.reserve(&[reserve(&event("1", &n.to_string()), &DedupSlot::Immediate)]).await.unwrap();
        }
    };
    tokio::select! {
        () = flushing => {}
        () = calling => {}
    }
}

#[tokio::test]
async fn a_batch_over_many_shards_is_answered_in_its_order() {
    let (register, _) = fresh(5).await;
    let slot = DedupSlot::Immediate;
    let subjects: Vec<_> = (0..40).map(|n| event(&n.to_string(), &format!("id-{n}"))).collect();
    let calls: Vec<_> = subjects.iter().map(|subject| reserve(subject, &slot)).collect();
    let versions: Vec<_> = register.reserve(&calls).await.unwrap().into_iter().map(given).collect();
    // Every other event was confirmed and has a newer event behind it.
    for (subject, version) in subjects.iter().zip(&versions).step_by(2) {
        register.record(&[record(subject, &slot, *version)]).await.unwrap();
        publish(&register, subject, &slot).await;
    }
    let calls: Vec<_> = (subjects.iter().zip(&versions).zip(0..))
        .map(|((subject, version), n)| claim(subject, stamp(&slot, *version, 0), n, jiff::Timestamp::UNIX_EPOCH))
        .collect();
    for (n, answer) in register.claim(&calls).await.unwrap().into_iter().enumerate() {
        match answer {
            ClaimAnswer::Replaced => assert_eq!(n % 2, 0),
            ClaimAnswer::Run { stamp, .. } => assert_eq!((n % 2, stamp.version), (1, versions[n])),
            other => panic!("{n}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn twenty_dates_with_full_fields_stay_in_redis_compact_encoding() {
    let (register, stored) = fresh(1).await;
    let a = event("1", "a");
    let first = publish(&register, &a, &DedupSlot::DatedAt(20)).await;
    stored
        .change("import:r:1", "d:20", |slot| {
            slot.later = Some(hatchery::internals::register::state::Later {
                at: 1 << 47,
                version: first.version,
                generation: 3,
            });
            slot.covered = 1 << 52;
        })
        .await;
    for date in 0..20 {
        publish(&register, &a, &DedupSlot::DatedAt(date)).await;
    }
    let encoding: String = redis::cmd("OBJECT")
        .arg("ENCODING")
        .arg(stored.key("import:d:1"))
        .query_async(&mut stored.connection())
        .await
        .unwrap();
    assert_eq!(encoding, "listpack");
}

#[tokio::test]
async fn calls_remove_a_few_expired_slots_of_a_reference_with_many() {
    let (register, stored) = fresh(1).await;
    let a = event("1", "a");
    for date in 0..60 {
        publish(&register, &a, &DedupSlot::DatedAt(date)).await;
    }
    let latest = 9_000_000_000_000;
    stored.change("import:r:1", "d:55", |slot| slot.until = latest).await;
    let () = stored.connection().pexpire_at(stored.key("import:d:1"), latest).await.unwrap();
    for date in 0..50 {
        stored.change("import:r:1", &format!("d:{date}"), |slot| slot.until = 1).await;
    }
    publish(&register, &a, &DedupSlot::DatedAt(60)).await;
    assert!(stored.read().await.0.slots.len() >= 61 - 2 * 8, "one call removed more than a few slots");
    // Expired slots are searched at random, so the number of calls that it takes varies.
    for _ in 0..10_000 {
        let (shard, ends) = stored.read().await;
        assert_eq!(ends["import:r:1"], latest, "the key does not expire with its longest-lived slot");
        if shard.slots.len() == 11 {
            break;
        }
        publish(&register, &a, &DedupSlot::DatedAt(60)).await;
    }
    let shard = stored.read().await.0;
    let fields: BTreeSet<_> = shard.slots.keys().map(|(_, field)| field.clone()).collect();
    assert_eq!(fields, (50..61).map(|date| format!("d:{date}")).collect());
}

#[tokio::test]
async fn a_slot_key_of_another_type_is_an_error() {
    let (register, stored) = fresh(1).await;
    let () = stored.connection().set(stored.key("import:r:1"), "mine").await.unwrap();
    let error = register.reserve(&[reserve(&event("1", "a"), &DedupSlot::Immediate)]).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    // The connection still works.
    publish(&register, &event("2", "b"), &DedupSlot::Immediate).await;
}

fn find(limit: usize) -> Find {
    Find::first(event("", "").event_type, limit)
}

/// Returns the ids of all listed events, read in pages of this size.
async fn list(register: &RedisRegister, page: usize) -> Vec<String> {
    let (mut find, mut ids) = (find(page), Vec::new());
    loop {
        let found = register.find(&find).await.unwrap();
        assert!(found.events.len() <= page);
        ids.extend(found.events.into_iter().map(|shown| shown.entry.unwrap().subject.id));
        find.after = found.next;
        if find.after.is_none() {
            return ids;
        }
    }
}

#[tokio::test]
async fn the_counts_of_all_shards_are_added_up() {
    let (register, _) = fresh(3).await;
    let now = jiff::Timestamp::from_millisecond(jiff::Timestamp::now().as_millisecond()).unwrap();
    let due = |n: i64| now + jiff::SignedDuration::from_hours(n - 9);
    let calls: Vec<_> = (0..30)
        .map(|n| {
            let subject = event(&n.to_string(), &n.to_string());
            Record { due: due(n), ..record(&subject, &DedupSlot::Event(subject.id.clone()), 0) }
        })
        .collect();
    register.record(&calls).await.unwrap();
    // More types than one script counts.
    let mut types: Vec<EventType> = (0..250).map(|n| format!("other-{n}").parse().unwrap()).collect();
    types.push(event("", "").event_type);
    let mut counts = register.count(&types).await.unwrap();
    assert_eq!(counts.pop(), Some(TypeCounts { due: 10, delayed: 20, next_due: Some(due(10)) }));
    assert!(counts.len() == 250 && counts.iter().all(|counts| *counts == TypeCounts::default()));
}

#[tokio::test]
async fn the_pages_of_many_shards_are_merged_by_due_time() {
    let (register, _) = fresh(5).await;
    let start = jiff::Timestamp::now();
    let calls: Vec<_> = (0..1_300_i64)
        .map(|n| {
            let subject = event(&n.to_string(), &format!("{n:04}"));
            let due = start + std::time::Duration::from_millis(u64::try_from(n / 3).unwrap());
            Record { due, ..record(&subject, &DedupSlot::Event(subject.id.clone()), 0) }
        })
        .collect();
    register.record(&calls).await.unwrap();
    let all = list(&register, 2_000).await;
    assert_eq!(all.len(), 1_300);
    let millis: Vec<i64> = all.iter().map(|id| id.parse::<i64>().unwrap() / 3).collect();
    assert!(millis.is_sorted(), "{millis:?}");
    for page in [7, 100, 650] {
        assert_eq!(list(&register, page).await, all);
    }
}

#[tokio::test]
async fn a_page_skips_and_removes_index_entries_of_expired_events() {
    let (register, stored) = fresh(1).await;
    for n in 0..1_200 {
        let subject = event(&n.to_string(), &n.to_string());
        let due = jiff::Timestamp::from_millisecond(jiff::Timestamp::now().as_millisecond() + n).unwrap();
        register.record(&[Record { due, ..record(&subject, &DedupSlot::Event(subject.id.clone()), 0) }]).await.unwrap();
    }
    for n in 0..1_199 {
        let () = stored.connection().del(stored.key(&format!("import:i:{n}"))).await.unwrap();
    }
    let found = register.find(&find(1)).await.unwrap();
    assert_eq!(found.events[0].entry.as_ref().unwrap().subject.id, "1199");
    let left: u64 = stored.connection().zcard(stored.key("import:x")).await.unwrap();
    assert_eq!(left, 1);
}

#[tokio::test]
async fn a_record_removes_index_entries_that_are_past_backlog_retention() {
    let (register, stored) = fresh(1).await;
    let old = ["r:1\0i", "i:a\0e"];
    for member in old {
        let () = stored.connection().zadd(stored.key("import:x"), member, 5).await.unwrap();
    }
    let subject = event("", "b");
    let due = jiff::Timestamp::now();
    register.record(&[Record { due, ..record(&subject, &DedupSlot::Event("b".to_owned()), 0) }]).await.unwrap();
    let left: Vec<String> = stored.connection().zrange(stored.key("import:x"), 0, -1).await.unwrap();
    assert_eq!(left, ["i:b\0e"]);
}

#[tokio::test]
async fn a_kept_message_is_removed_with_its_expired_slot() {
    let (clock, prefix) = (Arc::new(TestClock::default()), server::prefix());
    let register = register(server::url(), &prefix, 1).with_clock(clock.clone());
    let stored = Stored::connect(&prefix).await;
    let (a, alone) = (event("1", "a"), event("", "b"));
    let slots = [DedupSlot::Immediate, DedupSlot::DatedAt(5), DedupSlot::Event("b".to_owned())];
    let keep = async || {
        for (subject, slot) in [&a, &a, &alone].into_iter().zip(&slots) {
            let stamp = publish(&register, subject, slot).await;
            let kept = Some(bytes::Bytes::from_static(b"kept"));
            register.record(&[Record { kept, ..record(subject, slot, stamp.version) }]).await.unwrap();
        }
        assert_eq!(stored.kept().await.len(), 3);
        clock.advance(BACKLOG);
    };
    let kept =
        async || stored.kept().await.into_keys().map(|(home, field)| format!("{home} {field}")).collect::<Vec<_>>();

    // A publish into another slot of the reference removes it; so does one into its own slot without a message.
    for slot in [DedupSlot::Dated, DedupSlot::Immediate] {
        keep().await;
        publish(&register, &a, &slot).await;
        assert_eq!(kept().await, ["import:i:b e", "import:r:1 d:5"]);
        publish(&register, &a, &DedupSlot::DatedAt(6)).await;
        assert_eq!(kept().await, ["import:i:b e"]);
        register.record(&[record(&alone, &slots[2], 0)]).await.unwrap();
        assert!(kept().await.is_empty());
        clock.advance(BACKLOG);
    }
    // A claim removes it, and so does a page of the list.
    keep().await;
    register.claim(&[claim(&alone, CopyVersion::uncontested("b", 0), 1, clock.now())]).await.unwrap();
    assert_eq!(kept().await, ["import:r:1 d:5", "import:r:1 i"]);
    register.find(&find(9)).await.unwrap();
    assert!(kept().await.is_empty());
}

#[tokio::test]
async fn kept_messages_of_a_reference_with_many_slots_are_removed_with_the_expired_ones() {
    let (clock, prefix) = (Arc::new(TestClock::default()), server::prefix());
    let register = register(server::url(), &prefix, 1).with_clock(clock.clone());
    let stored = Stored::connect(&prefix).await;
    let a = event("1", "a");
    for date in 0..60 {
        let stamp = publish(&register, &a, &DedupSlot::DatedAt(date)).await;
        let kept = Some(bytes::Bytes::from_static(b"kept"));
        register.record(&[Record { kept, ..record(&a, &DedupSlot::DatedAt(date), stamp.version) }]).await.unwrap();
    }
    clock.advance(BACKLOG);
    for n in 0..10_000 {
        if stored.kept().await.is_empty() {
            break;
        }
        assert!(n < 9_999, "{:?}", stored.kept().await);
        publish(&register, &a, &DedupSlot::DatedAt(60)).await;
    }
    assert_eq!(stored.read().await.0.slots.len(), 1);
}

#[tokio::test]
async fn a_renamed_type_lists_its_events_under_its_present_name() {
    let (register, _) = fresh(3).await;
    let a = event("1", "a");
    publish(&register, &a, &DedupSlot::Immediate).await;
    let letter = Subject { event_type: "letter".parse().unwrap(), ..a };
    let renamed = register.with_first_names([("letter".parse().unwrap(), "import".parse().unwrap())].into());
    let find = Find { event_type: letter.event_type.clone(), ..find(9) };
    let found = renamed.find(&find).await.unwrap().events;
    assert_eq!(found[0].entry.as_ref().unwrap().subject, letter);
    let mut looked = renamed.look(&[letter]).await.unwrap();
    // A list reads no leases.
    looked[0][0].leased = None;
    assert_eq!(looked, [found]);
}
