//! The messages that a look leaves in its queue.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use crate::ports::{Disposition, Receipt, Written};

/// Collects the receipts that the caller of a look drops without an answer. They are answered when the look closes.
#[derive(Clone, Default)]
pub(super) struct Kept {
    receipts: Arc<Mutex<Vec<Box<dyn Receipt>>>>,
    answered: Arc<AtomicUsize>,
}

impl Kept {
    /// Returns a receipt that joins these when it is dropped without an answer.
    pub(super) fn receipt(&self, receipt: Box<dyn Receipt>) -> Box<dyn Receipt> {
        Box::new(OrKept { receipt: Some(receipt), kept: self.clone() })
    }

    /// Returns how many of the receipts were answered.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    /// Returns the receipts in the order in which they were dropped.
    pub(super) fn take(&self) -> Vec<Box<dyn Receipt>> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Box<dyn Receipt>>> {
        self.receipts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct OrKept {
    receipt: Option<Box<dyn Receipt>>,
    kept: Kept,
}

impl Receipt for OrKept {
    fn answer(mut self: Box<Self>, disposition: Disposition) -> Written {
        let written = self.receipt.take().map(|receipt| receipt.answer(disposition)).unwrap_or_default();
        self.kept.answered.fetch_add(1, Ordering::Relaxed);
        written
    }
}

impl Drop for OrKept {
    fn drop(&mut self) {
        if let Some(receipt) = self.receipt.take() {
            self.kept.lock().push(receipt);
        }
    }
}
