//! The register as a publisher uses it: single calls, gathered into batches.

use std::sync::Arc;

use tokio::time::Instant;

use super::{batch::Batched, contact::Contact};
use crate::{
    domain::register::{Record, Reserve, Reserved},
    outage::Side,
    ports::{Register, RegisterError},
};

/// Asks the register in batches, for a publisher.
pub(super) struct Batches {
    reserve: Batched<Reserve, Reserved>,
    record: Batched<Record, ()>,
}

impl Batches {
    pub(super) fn new(register: &Arc<dyn Register>, contact: &Arc<Contact>) -> Self {
        let reserving = (Arc::clone(register), Arc::clone(contact));
        let recording = reserving.clone();
        Self {
            reserve: Batched::start(move |batch: &[Reserve]| {
                let (register, contact) = reserving.clone();
                Box::pin(async move { noted(&*register, &contact, register.reserve(batch)).await })
            }),
            record: Batched::start(move |batch: &[Record]| {
                let (register, contact) = recording.clone();
                Box::pin(async move {
                    let recorded = noted(&*register, &contact, register.record(batch)).await;
                    recorded.map(|()| vec![(); batch.len()])
                })
            }),
        }
    }

    /// Reserves a version. The call takes its place in the order from here on, not from the first poll.
    pub(super) fn reserve(&self, call: Reserve) -> impl Future<Output = Result<Reserved, RegisterError>> + use<> {
        self.reserve.ask(call)
    }

    pub(super) async fn record(&self, call: Record) -> Result<(), RegisterError> {
        self.record.ask(call).await
    }
}

/// Waits for the answer to a call, and notes whether the register is there. Any call may be the first to find it emptied.
async fn noted<T>(
    register: &dyn Register,
    contact: &Contact,
    call: impl Future<Output = Result<T, RegisterError>> + Send,
) -> Result<T, RegisterError> {
    let asked = Instant::now();
    let answer = call.await;
    Side::Publisher.count_emptied(register.times_emptied());
    contact.ended(asked, answer.as_ref().err());
    answer
}
