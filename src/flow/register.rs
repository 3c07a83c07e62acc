//! The register as the flow uses it: single questions, gathered into batches.

use std::sync::Arc;

use super::batch::Batched;
use crate::{
    domain::register::{Claim, Claimed, Record, Release, Renew, Renewed, Reserve, Reserved, Settle},
    ports::{Register, RegisterError},
};

/// Asks the register in batches.
pub(crate) struct Batches {
    register: Arc<dyn Register>,
    reserve: Batched<Reserve, Reserved>,
    record: Batched<Record, ()>,
    claim: Batched<Claim, Claimed>,
    settle: Batched<Settle, ()>,
}

impl Batches {
    pub(crate) fn new(register: &Arc<dyn Register>) -> Self {
        let of = || Arc::clone(register);
        let (reserve, record, claim, settle) = (of(), of(), of(), of());
        Self {
            register: of(),
            reserve: Batched::start(move |batch| {
                let register = Arc::clone(&reserve);
                Box::pin(async move { register.reserve(&batch).await })
            }),
            record: Batched::start(move |batch| {
                let register = Arc::clone(&record);
                Box::pin(async move { register.record(&batch).await.map(|()| vec![(); batch.len()]) })
            }),
            claim: Batched::start(move |batch| {
                let register = Arc::clone(&claim);
                Box::pin(async move { register.claim(&batch).await })
            }),
            settle: Batched::start(move |batch| {
                let register = Arc::clone(&settle);
                Box::pin(async move { register.settle(&batch).await.map(|()| vec![(); batch.len()]) })
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
        self.register.settle(std::slice::from_ref(tell)).await
    }

    pub(crate) async fn ping(&self) -> Result<(), RegisterError> {
        self.register.ping().await
    }

    pub(crate) async fn renew(&self, ask: Renew) -> Result<Option<Renewed>, RegisterError> {
        Ok(self.register.renew(&[ask]).await?.pop())
    }

    pub(crate) async fn release(&self, tell: Release) -> Result<(), RegisterError> {
        self.register.release(&[tell]).await
    }
}
