//! A register that keeps everything in memory.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;

use crate::{
    domain::register::{
        Claim, Claimed, Record, Release, Renew, Renewed, Reserve, Reserved, Settle, state::Shard, transitions::At,
    },
    ports::{Clock, Register, RegisterError},
};

/// The register without Redis: the protocol's own transitions, one shard, the time of a given clock.
pub struct MemoryRegister {
    clock: Arc<dyn Clock>,
    backlog_retention: Duration,
    shard: Mutex<Shard>,
}

impl MemoryRegister {
    /// An empty register.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, backlog_retention: Duration) -> Self {
        Self { clock, backlog_retention, shard: Mutex::default() }
    }

    /// Looks at what it holds, and may change it: an emptied Redis is a default [`Shard`].
    pub fn with_shard<T>(&self, look: impl FnOnce(&mut Shard) -> T) -> T {
        look(&mut self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Shard> {
        self.shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer<C, A>(&self, batch: &[C], call: fn(&mut Shard, At, &C) -> A) -> Vec<A> {
        let mut shard = self.lock();
        let at = At { micros: self.clock.now().as_microsecond(), backlog_retention: self.backlog_retention };
        batch.iter().map(|item| call(&mut shard, at, item)).collect()
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
        self.answer(batch, Shard::record);
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
        self.answer(batch, Shard::settle);
        Ok(())
    }
}
