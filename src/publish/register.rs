//! The register as a publisher uses it: single calls, gathered into batches.

use std::sync::Arc;

use super::batch::Batched;
use crate::{
    domain::register::{Record, Reserve, Reserved},
    outage::Side,
    ports::{Register, RegisterError},
};

/// Asks the register in batches, for a publisher.
pub(crate) struct Batches {
    reserve: Batched<Reserve, Reserved>,
    record: Batched<Record, ()>,
}

impl Batches {
    pub(super) fn new(register: &Arc<dyn Register>) -> Self {
        let (reserve, record) = (Arc::clone(register), Arc::clone(register));
        Self {
            reserve: Batched::start(move |batch, part| {
                let register = Arc::clone(&reserve);
                Box::pin(async move { counted(&*register, register.reserve(&batch[part])).await })
            }),
            record: Batched::start(move |batch, part| {
                let register = Arc::clone(&record);
                Box::pin(async move {
                    let told = counted(&*register, register.record(&batch[part.clone()])).await;
                    told.map(|()| vec![(); part.len()])
                })
            }),
        }
    }

    /// Reserves a version. The call takes its place in the order from here on, not from the first poll.
    pub(crate) fn reserve(&self, call: Reserve) -> impl Future<Output = Result<Reserved, RegisterError>> + use<> {
        self.reserve.ask(call)
    }

    pub(crate) async fn record(&self, call: Record) -> Result<(), RegisterError> {
        self.record.ask(call).await
    }
}

/// Waits for an answer. Any call may be the first to find the register emptied.
async fn counted<T>(register: &dyn Register, answer: impl Future<Output = T> + Send) -> T {
    let answer = answer.await;
    Side::Publisher.count_emptied(register.times_emptied());
    answer
}
