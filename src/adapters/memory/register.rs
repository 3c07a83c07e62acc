//! A register in memory.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;

use super::{
    reports::Runs,
    script::{Script, unreachable},
};
use crate::{
    domain::{
        register::{
            Cancel, Cancelled, Claim, ClaimAnswer, DedupSlot, Later, Postponed, Record, Release, Renew, Renewed,
            Reserve, Reserved, Settle, Subject, Terms,
            ended_runs::{EndedRuns, Reported, Unrecorded},
            index::{self, Find, Found, Shown, TypeCounts},
            state::{Shard, SlotState},
            transitions::At,
        },
        words::EventType,
    },
    ports::{Clock, Index, NamedStates, Register, RegisterError, Replaced, Reports, StateChange, StateKind},
};

/// Keeps the register without Redis: the pure transitions of the protocol on one shard, with the time of a given clock.
pub struct MemoryRegister {
    clock: Arc<dyn Clock>,
    backlog_retention: Duration,
    held: Mutex<Held>,
    script: Option<Arc<Script>>,
}

#[derive(Default)]
struct Held {
    shard: Shard,
    index: index::shard::Index,
    states: BTreeMap<(StateKind, String), String>,
    /// When the turn to heal is free again, in µs.
    turn: i64,
    ended_runs: Runs,
}

impl Held {
    /// Removes what has expired from the index. Comes before a call about this slot, or about every slot of the
    /// subject.
    fn expire(&mut self, now: At, subject: &Subject, slot: Option<&DedupSlot>) {
        let home = subject.home(slot.unwrap_or(&DedupSlot::Immediate));
        for home in [home, subject.own_home()] {
            self.index.expire(now, &self.shard, &home.to_string());
        }
    }
}

impl MemoryRegister {
    /// Returns an empty register.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, backlog_retention: Duration) -> Self {
        Self { clock, backlog_retention, held: Mutex::default(), script: None }
    }

    /// Returns an empty register with the faults and the diary of `script`.
    #[cfg(any(test, feature = "internals"))]
    pub fn scripted(clock: Arc<dyn Clock>, backlog_retention: Duration, script: Arc<Script>) -> Self {
        Self { script: Some(script), ..Self::new(clock, backlog_retention) }
    }

    /// Calls `look` with the shard, and lets it change the shard: a default [`Shard`] stands for an emptied Redis.
    #[cfg(any(test, feature = "internals"))]
    pub fn with_shard<T>(&self, look: impl FnOnce(&mut Shard) -> T) -> T {
        look(&mut self.lock().shard)
    }

    /// Returns what workers have told `topology status`.
    #[cfg(feature = "internals")]
    pub fn reported(&self) -> Reported {
        Reported { runs: self.lock().ended_runs.read(self.clock.now()), ..Reported::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> At {
        At { micros: self.clock.now().as_microsecond(), backlog_retention: self.backlog_retention }
    }

    /// Answers the calls of a batch in order. `about` returns the slot that a call may write into, or `None` for every
    /// slot.
    fn answer<C, A>(
        &self,
        batch: &[C],
        about: fn(&C) -> (&Subject, Option<&DedupSlot>),
        mut call: impl FnMut(&mut Held, At, &C) -> A,
    ) -> Vec<A> {
        let (held, now) = (&mut *self.lock(), self.now());
        let answer = |item| {
            let (subject, slot) = about(item);
            held.expire(now, subject, slot);
            call(held, now, item)
        };
        batch.iter().map(answer).collect()
    }
}

/// The word for a kind of state in the diary.
const fn word(kind: StateKind) -> &'static str {
    match kind {
        StateKind::Schedule => "schedule",
        StateKind::Breaker => "breaker",
    }
}

impl fmt::Debug for MemoryRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegister").finish_non_exhaustive()
    }
}

#[async_trait]
impl NamedStates for MemoryRegister {
    async fn states(&self, kind: StateKind) -> Result<BTreeMap<String, String>, RegisterError> {
        let held = self.lock();
        let of_kind = held.states.iter().filter(|((other, _), _)| *other == kind);
        Ok(of_kind.map(|((_, name), text)| (name.clone(), text.clone())).collect())
    }

    async fn state(&self, kind: StateKind, name: &str) -> Result<Option<String>, RegisterError> {
        if let Some(script) = &self.script {
            script.answer(format!("{} {name}", word(kind)))?;
        }
        Ok(self.lock().states.get(&(kind, name.to_owned())).cloned())
    }

    async fn replace_states(
        &self,
        kind: StateKind,
        changes: &[StateChange<'_>],
    ) -> Result<Vec<Replaced>, RegisterError> {
        let script = self.script.as_ref();
        let names: Vec<&str> = changes.iter().map(|change| change.name).collect();
        let call = || format!("replace {} {}", word(kind), names.join(" "));
        let are_contested = script.map_or(Ok(false), |script| script.states(call()))?;
        let states = &mut self.lock().states;
        let replace = |change: &StateChange<'_>| {
            let key = (kind, change.name.to_owned());
            let now = states.get(&key).cloned();
            if are_contested || now.as_deref() != change.before {
                return Err(now);
            }
            match change.after {
                Some(after) => drop(states.insert(key, after.to_owned())),
                None => drop(states.remove(&key)),
            }
            Ok(())
        };
        let replaced = changes.iter().map(replace).collect();
        if script.is_some_and(|script| script.loses_states()) { Err(unreachable()) } else { Ok(replaced) }
    }

    async fn take_turn(&self, length: Duration) -> Result<bool, RegisterError> {
        let (held, now) = (&mut *self.lock(), self.now().micros);
        let is_free = held.turn <= now;
        if is_free {
            held.turn = now.saturating_add(i64::try_from(length.as_micros()).unwrap_or(i64::MAX));
        }
        Ok(is_free)
    }
}

#[async_trait]
impl Reports for MemoryRegister {
    /// Adds the runs. The broker in memory takes every record.
    async fn report_runs(&self, runs: &BTreeMap<EventType, EndedRuns>, _: &Unrecorded) -> Result<(), RegisterError> {
        self.lock().ended_runs.add(self.clock.now(), runs);
        Ok(())
    }
}

#[async_trait]
impl Register for MemoryRegister {
    async fn ping(&self) -> Result<(), RegisterError> {
        if let Some(script) = &self.script {
            script.answer("ping")?;
        }
        Ok(())
    }

    fn url(&self) -> String {
        "memory".to_owned()
    }

    async fn slot(&self, subject: &Subject, slot: &DedupSlot) -> Result<Option<SlotState>, RegisterError> {
        if let Some(script) = &self.script {
            script.answer("slot")?;
        }
        let shown = self.look_at(&[(subject.clone(), slot.clone())]).await?.pop().flatten();
        Ok(shown.map(|shown| shown.state))
    }

    async fn reserve(&self, batch: &[Reserve]) -> Result<Vec<Reserved>, RegisterError> {
        if let Some(script) = &self.script {
            script.reserve(batch)?;
            if script.stale {
                return Ok(vec![Reserved::Stale; batch.len()]);
            }
        }
        Ok(self.answer(
            batch,
            |call| (&call.subject, Some(&call.slot)),
            |held, now, call| held.shard.reserve(now, call),
        ))
    }

    async fn record(&self, batch: &[Record]) -> Result<(), RegisterError> {
        if let Some(script) = &self.script {
            script.answer(format!("record {}", batch[0].version))?;
        }
        let record = |Held { shard, index, .. }: &mut Held, now, call: &Record| {
            shard.record(now, call);
            index.record(now, shard, call);
        };
        self.answer(batch, |call| (&call.subject, Some(&call.slot)), record);
        Ok(())
    }

    async fn claim(&self, batch: &[Claim]) -> Result<Vec<ClaimAnswer>, RegisterError> {
        let scripted = self.script.as_ref().map(|script| script.claim(batch)).transpose()?;
        let mut scripted = scripted.into_iter().flatten();
        let answers = self.answer(
            batch,
            |call| (&call.subject, Some(&call.stamp.slot)),
            |held, now, call| {
                if let Some(answer) = scripted.next().flatten() {
                    return answer;
                }
                held.shard.claim(now, call)
            },
        );
        if let Some(script) = &self.script {
            script.claim_answers().await?;
        }
        Ok(answers)
    }

    async fn renew(&self, batch: &[Renew]) -> Result<Vec<Renewed>, RegisterError> {
        if let Some(script) = &self.script {
            script.renew(batch)?;
            if script.lost {
                return Ok(vec![Renewed::Lost; batch.len()]);
            }
        }
        Ok(self.answer(
            batch,
            |call| (&call.subject, Some(&call.stamp.slot)),
            |held, now, call| held.shard.renew(now, call),
        ))
    }

    async fn release(&self, batch: &[Release]) -> Result<(), RegisterError> {
        if let Some(script) = &self.script {
            script.release(batch)?;
        }
        self.answer(
            batch,
            |call| (&call.subject, Some(&call.stamp.slot)),
            |held, now, call| held.shard.release(now, call),
        );
        Ok(())
    }

    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError> {
        if let Some(script) = &self.script {
            script.settle(batch)?;
        }
        let settle = |Held { shard, index, .. }: &mut Held, now, call: &Settle| {
            shard.settle(now, call);
            index.settle(now, shard, call);
        };
        self.answer(batch, |call| (&call.subject, Some(&call.stamp.slot)), settle);
        Ok(())
    }

    async fn later(&self, batch: &[Later]) -> Result<Vec<Postponed>, RegisterError> {
        if let Some(script) = &self.script {
            script.answer("later")?;
        }
        let later = |Held { shard, index, .. }: &mut Held, now, call: &Later| {
            let answer = shard.later(now, call);
            index.later(now, shard, call, answer);
            answer
        };
        Ok(self.answer(batch, |call| (&call.subject, Some(&call.stamp.slot)), later))
    }

    async fn cancel(&self, batch: &[Cancel]) -> Result<Vec<Vec<Cancelled>>, RegisterError> {
        if let Some(script) = &self.script {
            script.cancel(self, batch)?;
        }
        let cancel = |Held { shard, index, .. }: &mut Held, now, call: &Cancel| {
            let mut answer = shard.cancel(now, call);
            index.cancel(call, &mut answer);
            answer
        };
        Ok(self.answer(batch, |call| (&call.subject, call.slot.as_ref()), cancel))
    }
}

#[async_trait]
impl Index for MemoryRegister {
    async fn find(&self, find: &Find) -> Result<Found, RegisterError> {
        let held = self.lock();
        Ok(held.index.find(self.now(), &held.shard, find))
    }

    async fn count(&self, types: &[EventType]) -> Result<Vec<TypeCounts>, RegisterError> {
        let held = self.lock();
        Ok(types.iter().map(|event_type| held.index.count(self.now(), &held.shard, event_type)).collect())
    }

    async fn look(&self, batch: &[Subject]) -> Result<Vec<Vec<Shown>>, RegisterError> {
        let held = self.lock();
        Ok(batch.iter().map(|subject| held.index.look(self.now(), &held.shard, subject)).collect())
    }

    async fn look_at(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Shown>>, RegisterError> {
        let held = self.lock();
        let now = self.now();
        Ok(batch.iter().map(|(subject, slot)| held.index.look_at(now, &held.shard, subject, slot)).collect())
    }

    async fn cancelled_runs(&self, batch: &[(Subject, DedupSlot, Terms)]) -> Result<Vec<bool>, RegisterError> {
        let (held, now) = (self.lock(), self.now());
        let holds = |(subject, slot, terms): &(_, _, _)| held.shard.has_cancelled_run(now, subject, slot, terms);
        Ok(batch.iter().map(holds).collect())
    }

    async fn kept(&self, batch: &[(Subject, DedupSlot)]) -> Result<Vec<Option<Bytes>>, RegisterError> {
        let held = self.lock();
        Ok(batch.iter().map(|(subject, slot)| held.index.kept(self.now(), &held.shard, subject, slot)).collect())
    }
}
