//! The memory for what requests send. Without a bound for all of them, some hundred large ones would take more than there is.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};

use crate::problem::Problem;

/// How many KiB all requests with one event may hold together.
const ALL: u32 = 512 * 1024;
/// How many batches may be under way. Each holds some megabytes, or the longest line, and may last for minutes: so they take no room
/// from single events.
const BATCHES: usize = 32;
/// How long a request waits for its room.
const PATIENCE: Duration = Duration::from_secs(10);

/// The room that is left.
pub(crate) struct Room {
    kibibytes: Arc<Semaphore>,
    batches: Arc<Semaphore>,
}

/// The room of a request, until it is dropped.
pub(crate) struct Taken {
    _permit: OwnedSemaphorePermit,
}

impl Room {
    pub(crate) fn new() -> Self {
        Self { kibibytes: Arc::new(Semaphore::new(ALL as usize)), batches: Arc::new(Semaphore::new(BATCHES)) }
    }

    /// Waits until there is room for this many bytes.
    pub(crate) async fn take(&self, bytes: usize) -> Result<Taken, Problem> {
        let kibibytes = u32::try_from(bytes.div_ceil(1024)).unwrap_or(ALL).clamp(1, ALL);
        taken(&self.kibibytes, kibibytes, "other requests take all the memory that there is for them").await
    }

    /// Waits until a batch may begin.
    pub(crate) async fn batch(&self) -> Result<Taken, Problem> {
        taken(&self.batches, 1, "as many batches as there may be are under way").await
    }
}

async fn taken(of: &Arc<Semaphore>, permits: u32, full: &str) -> Result<Taken, Problem> {
    match timeout(PATIENCE, Arc::clone(of).acquire_many_owned(permits)).await {
        Ok(Ok(permit)) => Ok(Taken { _permit: permit }),
        _ => Err(Problem::for_now(full)),
    }
}
