//! Reads the register's data from a real Redis, and unpacks it.

use std::collections::BTreeMap;

use hatchery::internals::register::state::{Later, Lease, Mark, Shard, SlotState};
use redis::{AsyncCommands, aio::MultiplexedConnection};
use uuid::Uuid;

use crate::support;

pub(crate) struct Stored {
    connection: MultiplexedConnection,
    base: String,
}

impl Stored {
    /// Connects to the single shard of a register with this prefix.
    pub(crate) async fn connect(prefix: &str) -> Self {
        let connection = support::redis::connect(support::redis::url()).await.unwrap();
        Self { connection, base: format!("{prefix}:{{%2F:billing:0}}:") }
    }

    pub(crate) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}{name}", self.base)
    }

    /// Returns the names of all keys, without their common prefix.
    pub(crate) async fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut cursor = 0_u64;
        loop {
            let (next, keys): (u64, Vec<String>) = redis::cmd("SCAN")
                .arg(cursor)
                .arg("MATCH")
                .arg(format!("{}*", self.base))
                .arg("COUNT")
                .arg(1000)
                .query_async(&mut self.connection())
                .await
                .unwrap();
            names.extend(keys.into_iter().map(|key| key[self.base.len()..].to_owned()));
            if next == 0 {
                names.sort();
                names.dedup();
                return names;
            }
            cursor = next;
        }
    }

    /// Returns all slots and leases, and the expiry of each slot key in ms.
    pub(crate) async fn read(&self) -> (Shard, BTreeMap<String, i64>) {
        let mut shard = Shard::default();
        let mut ends = BTreeMap::new();
        for name in self.names().await {
            let mut connection = self.connection();
            let key = self.key(&name);
            if name.contains(":p:") || name.ends_with(":x") {
                // The index is read through the register.
            } else if name == "last" {
                let value: String = connection.get(&key).await.unwrap();
                // The owner of the register follows the counter.
                shard.last = value.split('|').next().unwrap().parse().unwrap();
            } else if name.contains(":d:") {
                let packed: BTreeMap<String, Vec<u8>> = connection.hgetall(&key).await.unwrap();
                let home = name.replacen(":d:", ":r:", 1);
                let end: i64 = connection.pexpire_time(&key).await.unwrap();
                ends.entry(home.clone()).and_modify(|latest: &mut i64| *latest = end.max(*latest)).or_insert(end);
                for (field, packed) in packed.into_iter().filter(|(field, _)| !field.ends_with('+')) {
                    shard.slots.insert((home.clone(), field), slot(&packed));
                }
            } else if name.contains(":i:") || name.contains(":r:") {
                let value: Vec<u8> = connection.get(&key).await.unwrap();
                let end: i64 = connection.pexpire_time(&key).await.unwrap();
                ends.entry(name.clone()).and_modify(|latest: &mut i64| *latest = end.max(*latest)).or_insert(end);
                let (lease, slots) = parts(&value);
                for (field, slot, _) in slots.into_iter().filter(|(_, slot, _)| slot.until > 0) {
                    shard.slots.insert((name.clone(), field), slot);
                }
                let leaseholder = name.replacen(":i:", ":l:i:", 1).replacen(":r:", ":l:r:", 1);
                shard.leases.extend(lease.map(|lease| (leaseholder, lease)));
            }
        }
        (shard, ends)
    }

    /// Returns the kept messages by slot key and field, and asserts that the index knows each of them: otherwise they
    /// would never be removed.
    pub(crate) async fn kept(&self) -> BTreeMap<(String, String), Vec<u8>> {
        let mut kept = BTreeMap::new();
        let mut connection = self.connection();
        for name in self.names().await.into_iter().filter(|name| name.contains(":p:")) {
            let home = name.replacen(":p:", ":", 1);
            let messages: BTreeMap<String, Vec<u8>> = connection.hgetall(self.key(&name)).await.unwrap();
            for (field, message) in messages {
                let details: Option<Vec<u8>> = if field.len() == 1 {
                    let value: Option<Vec<u8>> = connection.get(self.key(&home)).await.unwrap();
                    let slots = value.map(|value| parts(&value).1).unwrap_or_default();
                    slots.into_iter().find(|(name, ..)| *name == field).map(|(.., details)| details)
                } else {
                    connection.hget(self.key(&home.replacen(":r:", ":d:", 1)), format!("{field}+")).await.unwrap()
                };
                let is_known = details.is_some_and(|details| details.len() > 6 && details[6] & 64 != 0);
                assert!(is_known, "a message is kept in {name} of {field}, and the index does not know of it");
                kept.insert((home.clone(), field), message);
            }
        }
        kept
    }

    /// Changes a slot of a reference without the register.
    pub(crate) async fn change(&self, home: &str, field: &str, change: impl FnOnce(&mut SlotState)) {
        let mut connection = self.connection();
        if field.len() == 1 {
            let (_, mut state, details) = self.only_slot(home, field).await;
            change(&mut state);
            return self.set_only_slot(home, field, &state, &details).await;
        }
        let key = self.key(&home.replacen(":r:", ":d:", 1));
        let packed: Vec<u8> = connection.hget(&key, field).await.unwrap();
        let mut state = slot(&packed);
        change(&mut state);
        let () = connection.hset(&key, field, pack(&state)).await.unwrap();
    }

    /// Changes the details of a slot of a reference without the register.
    pub(crate) async fn set_details(&self, home: &str, field: &str, details: &str) {
        if field.len() == 1 {
            let (_, state, _) = self.only_slot(home, field).await;
            return self.set_only_slot(home, field, &state, details.as_bytes()).await;
        }
        let key = self.key(&home.replacen(":r:", ":d:", 1));
        let () = self.connection().hset(&key, format!("{field}+"), details).await.unwrap();
    }

    async fn only_slot(&self, home: &str, field: &str) -> Part {
        let value: Vec<u8> = self.connection().get(self.key(home)).await.unwrap();
        let (lease, mut slots) = parts(&value);
        assert_eq!((lease, slots.len()), (None, 1), "the key has more than this slot");
        assert_eq!(slots[0].0, field);
        slots.remove(0)
    }

    async fn set_only_slot(&self, home: &str, field: &str, state: &SlotState, details: &[u8]) {
        let length = u16::try_from(details.len()).unwrap().to_le_bytes();
        let value = [&[1, 0], field.as_bytes(), &pack(state), &length, details].concat();
        let key = self.key(home);
        let () =
            redis::cmd("SET").arg(key).arg(value).arg("KEEPTTL").query_async(&mut self.connection()).await.unwrap();
    }

    pub(crate) async fn clear(&self) {
        for name in self.names().await {
            let () = self.connection().del(self.key(&name)).await.unwrap();
        }
    }
}

/// Reads packed whole numbers, lowest byte first.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self, bytes: usize) -> i64 {
        let (head, rest) = self.0.split_at(bytes);
        self.0 = rest;
        head.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte))
    }
}

/// The name, the state and the details of a slot.
type Part = (String, SlotState, Vec<u8>);

/// Splits a place's value into the lease and the slots.
fn parts(value: &[u8]) -> (Option<Lease>, Vec<Part>) {
    assert_eq!(value[0], 1);
    let mut rest = &value[2..];
    let lease = (value[1] == 1).then(|| {
        let (lease, after) = lease(rest);
        rest = after;
        lease
    });
    let mut slots = Vec::new();
    while !rest.is_empty() {
        let mut numbers = Numbers(&rest[1..]);
        let name = String::from_utf8(rest[..1].to_vec()).unwrap();
        let state = if name == "e" { event(&mut numbers) } else { state(&mut numbers) };
        let length = usize::try_from(numbers.next(2)).unwrap();
        let (details, after) = numbers.0.split_at(length);
        slots.push((name, state, details.to_vec()));
        rest = after;
    }
    (lease, slots)
}

fn slot(packed: &[u8]) -> SlotState {
    let mut numbers = Numbers(packed);
    let state = state(&mut numbers);
    assert!(numbers.0.is_empty());
    state
}

/// Unpacks a slot of a reference.
fn state(numbers: &mut Numbers<'_>) -> SlotState {
    let (until, due, since) = (numbers.next(6), numbers.next(6), numbers.next(6));
    let (version, generation, newest) = (numbers.next(7), numbers.next(4), numbers.next(7));
    let (crashes, flags) = (u32::try_from(numbers.next(1)).unwrap(), numbers.next(1));
    let later =
        (flags & 4 != 0).then(|| Later { at: numbers.next(6), version: numbers.next(7), generation: numbers.next(4) });
    let covered = if flags & 8 == 0 { 0 } else { numbers.next(7) };
    let mark = Mark { version, finished: flags & 1 != 0, generation };
    let (begun, cancelled, overtaken) = (flags & 2 != 0, flags & 16 != 0, flags & 32 != 0);
    SlotState { mark, newest, covered, since, later, begun, crashes, cancelled, overtaken, due, until }
}

fn pack(slot: &SlotState) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut put = |number: i64, bytes: usize| packed.extend_from_slice(&number.to_le_bytes()[..bytes]);
    put(slot.until, 6);
    put(slot.due, 6);
    put(slot.since, 6);
    put(slot.mark.version, 7);
    put(slot.mark.generation, 4);
    put(slot.newest, 7);
    put(i64::from(slot.crashes), 1);
    let flags =
        [slot.mark.finished, slot.begun, slot.later.is_some(), slot.covered > 0, slot.cancelled, slot.overtaken];
    put(flags.iter().rev().fold(0, |flags, flag| flags << 1 | i64::from(*flag)), 1);
    if let Some(later) = slot.later {
        put(later.at, 6);
        put(later.version, 7);
        put(later.generation, 4);
    }
    if slot.covered > 0 {
        put(slot.covered, 7);
    }
    packed
}

/// Unpacks the slot `e` of an event.
fn event(numbers: &mut Numbers<'_>) -> SlotState {
    let (until, due, generation) = (numbers.next(6), numbers.next(6), numbers.next(4));
    let (crashes, flags) = (u32::try_from(numbers.next(1)).unwrap(), numbers.next(1));
    let later = (flags & 4 != 0).then(|| Later { at: numbers.next(6), version: 0, generation: numbers.next(4) });
    let version = if flags & 8 == 0 { 0 } else { numbers.next(7) };
    let mark = Mark { version, finished: flags & 1 != 0, generation };
    let (begun, cancelled) = (flags & 2 != 0, flags & 16 != 0);
    SlotState { mark, later, begun, crashes, cancelled, due, until, ..SlotState::default() }
}

/// Unpacks a lease. Returns what follows it, too.
fn lease(packed: &[u8]) -> (Lease, &[u8]) {
    let (token, rest) = packed.split_at(16);
    let mut numbers = Numbers(rest);
    let until = numbers.next(6);
    let (version, generation, fence) = (numbers.next(7), numbers.next(4), numbers.next(7));
    let crashes = u32::try_from(numbers.next(1)).unwrap();
    let length = usize::try_from(numbers.next(1)).unwrap();
    let (field, rest) = numbers.0.split_at(length);
    let field = String::from_utf8(field.to_vec()).unwrap();
    (Lease { token: Uuid::from_slice(token).unwrap(), until, field, version, generation, fence, crashes }, rest)
}
