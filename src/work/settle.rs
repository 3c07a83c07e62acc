//! The end of a delivery: settles the event in the register, or answers a delivery that is not settled.

use std::sync::Arc;

use backon::BackoffBuilder as _;
use tokio::time::Instant;

use super::{
    lane::Lane,
    stage::{Claimed, Detour, Disposition, Ended, NotSettled, Ready, Settled},
};
use crate::{
    outage::{Health, backoff},
    ports::{Receipt, RegisterError},
};

impl Lane {
    /// Settles one event, until the register has settled it.
    pub(super) async fn settle_one(&self, ended: Ended) -> Settled {
        let Some(settle) = ended.settle(self.terms) else { return ended.settled(self) };
        let (mut pauses, mut is_logged) = (backoff().build(), false);
        loop {
            let asked = Instant::now();
            match self.common.register.settle(std::slice::from_ref(&settle)).await {
                Ok(()) => {
                    self.common.register_answered(asked);
                    return ended.settled(self);
                }
                Err(error @ (RegisterError::Unreachable { .. } | RegisterError::InUse { .. })) => {
                    self.common.register_failed(asked, &error);
                }
                Err(error) => {
                    let (id, event_type) = (ended.id(), &self.event_type);
                    if is_logged || self.common.health.now() != Health::Up {
                        tracing::debug!(%error, id, %event_type, "event not settled; trying again");
                    } else {
                        tracing::error!(%error, id, %event_type, "event not settled, so its delivery is not acknowledged; trying again");
                    }
                    is_logged = true;
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    /// Gives a run up: releases its claim, and parts with the event.
    pub(super) async fn give_up(self: Arc<Self>, claimed: Claimed, why: NotSettled) -> Detour {
        let ready = self.let_go(claimed).await;
        self.put_off(ready, why).await
    }

    /// Answers a delivery that is not settled, and waits until the answer is written.
    pub(super) async fn answer(&self, ready: Ready, disposition: Disposition) -> Detour {
        self.answer_receipt(ready.into_receipt(), disposition).await;
        Detour::Over
    }

    /// Like [`answer`](Self::answer), for a delivery that holds no due event too.
    pub(super) async fn answer_receipt(&self, receipt: Box<dyn Receipt>, disposition: Disposition) {
        if disposition == Disposition::GiveBack {
            self.counters.given_back();
        }
        disposition.answer(receipt).await;
    }
}
