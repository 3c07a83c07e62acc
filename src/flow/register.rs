//! The register as the flow uses it: single questions, gathered into batches.

use std::sync::Arc;

use super::{batch::Batched, outage::Side};
use crate::{
    domain::register::{
        Claim, Claimed, DedupSlot, Record, Release, Renew, Renewed, Reserve, Reserved, Settle, Subject,
        state::SlotState,
    },
    ports::{Register, RegisterError},
};

/// Asks the register in batches.
pub(crate) struct Batches {
    asker: Asker,
    reserve: Batched<Reserve, Reserved>,
    record: Batched<Record, ()>,
    claim: Batched<Claim, Claimed>,
    settle: Batched<Settle, ()>,
}

/// The register, and whose questions these are.
#[derive(Clone)]
struct Asker {
    register: Arc<dyn Register>,
    side: Side,
}

impl Asker {
    /// Waits for an answer. Any question may be the first to find the register emptied.
    async fn call<T>(&self, answer: impl Future<Output = T> + Send) -> T {
        let answer = answer.await;
        self.side.count_emptied(self.register.times_emptied());
        answer
    }
}

impl Batches {
    pub(super) fn new(register: &Arc<dyn Register>, side: Side) -> Self {
        let of = || Asker { register: Arc::clone(register), side };
        let (reserve, record, claim, settle) = (of(), of(), of(), of());
        Self {
            asker: of(),
            reserve: Batched::start(move |batch, part| {
                let asker = reserve.clone();
                Box::pin(async move { asker.call(asker.register.reserve(&batch[part])).await })
            }),
            record: Batched::start(move |batch, part| {
                let asker = record.clone();
                Box::pin(async move {
                    let told = asker.call(asker.register.record(&batch[part.clone()])).await;
                    told.map(|()| vec![(); part.len()])
                })
            }),
            claim: Batched::start(move |batch, part| {
                let asker = claim.clone();
                Box::pin(async move { asker.call(asker.register.claim(&batch[part])).await })
            }),
            settle: Batched::start(move |batch, part| {
                let asker = settle.clone();
                Box::pin(async move {
                    let told = asker.call(asker.register.settle(&batch[part.clone()])).await;
                    told.map(|()| vec![(); part.len()])
                })
            }),
        }
    }

    /// The question stands in its place from this call on, not from the first poll.
    pub(crate) fn reserve(&self, ask: Reserve) -> impl Future<Output = Result<Reserved, RegisterError>> + use<> {
        self.reserve.ask(ask)
    }

    pub(crate) async fn record(&self, tell: Record) -> Result<(), RegisterError> {
        self.record.ask(tell).await
    }

    pub(crate) async fn claim(&self, ask: Claim) -> Result<Claimed, RegisterError> {
        self.claim.ask(ask).await
    }

    pub(crate) async fn settle(&self, tell: Settle) -> Result<(), RegisterError> {
        self.settle.ask(tell).await
    }

    /// In no batch: what is refused takes the others of its batch with it.
    pub(crate) async fn settle_alone(&self, tell: &Settle) -> Result<(), RegisterError> {
        self.asker.call(self.asker.register.settle(std::slice::from_ref(tell))).await
    }

    pub(crate) async fn slot(&self, subject: &Subject, slot: &DedupSlot) -> Result<Option<SlotState>, RegisterError> {
        self.asker.call(self.asker.register.slot(subject, slot)).await
    }

    pub(crate) async fn ping(&self) -> Result<(), RegisterError> {
        self.asker.call(self.asker.register.ping()).await
    }

    pub(crate) async fn renew(&self, ask: Renew) -> Result<Option<Renewed>, RegisterError> {
        Ok(self.asker.call(self.asker.register.renew(&[ask])).await?.pop())
    }

    pub(crate) async fn release(&self, tell: Release) -> Result<(), RegisterError> {
        self.asker.call(self.asker.register.release(&[tell])).await
    }
}
