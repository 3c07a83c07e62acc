//! A register that keeps everything in memory.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;

use crate::{
    domain::register::{
        Cancel, Cancelled, Claim, Claimed, Later, Postponed, Record, Release, Renew, Renewed, Reserve, Reserved,
        Settle, Slot, Subject,
        index::{self, Find, Found, Shown},
        state::Shard,
        transitions::At,
    },
    ports::{Clock, Index, Register, RegisterError},
};

/// The register without Redis: the protocol's own transitions, one shard, the time of a given clock.
pub struct MemoryRegister {
    clock: Arc<dyn Clock>,
    backlog_retention: Duration,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    shard: Shard,
    index: index::Index,
}

impl MemoryRegister {
    /// An empty register.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, backlog_retention: Duration) -> Self {
        Self { clock, backlog_retention, held: Mutex::default() }
    }

    /// Looks at what it holds, and may change it: an emptied Redis is a default [`Shard`].
    pub fn with_shard<T>(&self, look: impl FnOnce(&mut Shard) -> T) -> T {
        look(&mut self.lock().shard)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> At {
        At { micros: self.clock.now().as_microsecond(), backlog_retention: self.backlog_retention }
    }

    fn answer<C, A>(&self, batch: &[C], call: fn(&mut Shard, At, &C) -> A) -> Vec<A> {
        let mut held = self.lock();
        batch.iter().map(|item| call(&mut held.shard, self.now(), item)).collect()
    }
}

impl fmt::Debug for MemoryRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryRegister").finish_non_exhaustive()
    }
}

#[async_trait]
impl Register for MemoryRegister {
    async fn ping(&self) -> Result<(), RegisterError> {
        Ok(())
    }

    async fn reserve(&self, batch: &[Reserve]) -> Result<Vec<Reserved>, RegisterError> {
        Ok(self.answer(batch, Shard::reserve))
    }

    async fn record(&self, batch: &[Record]) -> Result<(), RegisterError> {
        let Held { shard, index } = &mut *self.lock();
        for call in batch {
            shard.record(self.now(), call);
            index.record(self.now(), shard, call);
        }
        Ok(())
    }

    async fn claim(&self, batch: &[Claim]) -> Result<Vec<Claimed>, RegisterError> {
        Ok(self.answer(batch, Shard::claim))
    }

    async fn renew(&self, batch: &[Renew]) -> Result<Vec<Renewed>, RegisterError> {
        Ok(self.answer(batch, Shard::renew))
    }

    async fn release(&self, batch: &[Release]) -> Result<(), RegisterError> {
        self.answer(batch, Shard::release);
        Ok(())
    }

    async fn settle(&self, batch: &[Settle]) -> Result<(), RegisterError> {
        let Held { shard, index } = &mut *self.lock();
        for call in batch {
            shard.settle(self.now(), call);
            index.settle(self.now(), shard, call);
        }
        Ok(())
    }

    async fn later(&self, batch: &[Later]) -> Result<Vec<Postponed>, RegisterError> {
        let Held { shard, index } = &mut *self.lock();
        let later = |call| {
            let answer = shard.later(self.now(), call);
            index.later(call, answer);
            answer
        };
        Ok(batch.iter().map(later).collect())
    }

    async fn cancel(&self, batch: &[Cancel]) -> Result<Vec<Vec<Cancelled>>, RegisterError> {
        let Held { shard, index } = &mut *self.lock();
        let cancel = |call| {
            let mut answer = shard.cancel(self.now(), call);
            index.cancel(call, &mut answer);
            answer
        };
        Ok(batch.iter().map(cancel).collect())
    }
}

#[async_trait]
impl Index for MemoryRegister {
    async fn find(&self, find: &Find) -> Result<Found, RegisterError> {
        let held = self.lock();
        Ok(held.index.find(self.now(), &held.shard, find))
    }

    async fn look(&self, batch: &[Subject]) -> Result<Vec<Vec<Shown>>, RegisterError> {
        let held = self.lock();
        Ok(batch.iter().map(|subject| held.index.look(self.now(), &held.shard, subject)).collect())
    }

    async fn kept(&self, batch: &[(Subject, Slot)]) -> Result<Vec<Option<Bytes>>, RegisterError> {
        let held = self.lock();
        Ok(batch.iter().map(|(subject, slot)| held.index.kept(subject, slot)).collect())
    }
}
