//! One event by itself, from its claim to its settlement: a suspect of a crash, the head of a type that keeps its order, or an
//! event in quarantine. The event loop does the same for many events at a time.

use std::sync::Arc;

use super::{
    isolation::{Permit, for_a_while},
    lane::Lane,
    stage::{Claimed, Detour, Disposition, Granted, NotSettled, Ready, Settled},
};
use crate::domain::{settlement::Decision, words::plain};

/// The event as settled, or the event without its claim and why it is not settled.
type RunEnd = Result<Settled, (Ready, NotSettled)>;

impl Lane {
    /// Runs a suspect while nothing else runs. Its worker has probably died twice while it ran.
    pub(super) async fn run_alone(self: Arc<Self>, mut ready: Ready) -> Detour {
        tracing::warn!(id = %plain(&ready.work.event.id), event_type = %self.event_type, "event waits to run alone; it was started twice and never settled");
        let stop = &self.common.stop;
        let (answer, asked, permit) = loop {
            let alone = self.unless_over(stop, ready.work.deadline, self.common.isolation.alone()).await;
            let Some(permit) = alone else { return self.answer(ready, Disposition::GiveBack).await };
            let (claimed, permit) = for_a_while(Some(permit), self.claim_one(&mut ready, true, stop)).await;
            let Some((answer, asked)) = claimed else { return self.answer(ready, Disposition::GiveBack).await };
            if permit.is_some() {
                break (answer, asked, permit);
            }
            // Redis was down for longer than this event may keep others from starting. A claim must not wait for others to
            // end, or its lease ends first.
            self.unclaim(&mut ready).await;
        };
        let (end, permit) = match self.grant(ready, answer, asked) {
            Ok(granted) => self.run_to_settlement(granted, permit).await,
            Err(not_settled) => (Err(not_settled), permit),
        };
        match end {
            Ok(settled) => {
                settled.acknowledge().await;
                Detour::Over
            }
            Err((ready, why)) => {
                // An event that may not run now keeps no other event from starting while its copy is published.
                drop(permit);
                self.put_off(ready, why).await
            }
        }
    }

    /// Runs a claimed event, unless it has crashed its worker too often, and carries out what follows.
    ///
    /// An event that runs alone keeps its permit until it is settled, unless that takes long: an event that kills its worker
    /// between the confirm of a dead letter and its settlement would become two of them.
    pub(super) async fn run_to_settlement(
        &self,
        (mut claimed, decided): Granted,
        permit: Option<Permit>,
    ) -> (RunEnd, Option<Permit>) {
        let mut ran = match decided {
            Some(decision) => Ok(decision),
            None => self.run(&mut claimed, self.health.starts()).await,
        };
        // A type that keeps its order claims anew for each try: meanwhile the event may be cancelled or replaced.
        while let Err(NotSettled::Again(after)) = ran
            && !self.spec.keeps_order()
        {
            ran = self.run_after(after, &mut claimed).await;
        }
        let decision = match ran {
            Ok(decision) => decision,
            Err(why) => return (Err((self.let_go(claimed).await, why)), permit),
        };
        fail_point!("work.handled");
        for_a_while(permit, Box::pin(self.carry_out(claimed, decision))).await
    }

    /// Publishes what follows from a decision, and settles the event.
    async fn carry_out(&self, claimed: Claimed, decision: Decision) -> RunEnd {
        let ended = if decision.is_finish() {
            self.finish(claimed, &decision)
        } else {
            match self.follow_up(&claimed, decision).await {
                Ok(end) => claimed.ended(end, None),
                Err(disposition) => return Err((self.let_go(claimed).await, NotSettled::Answer(disposition))),
            }
        };
        Ok(self.settle_one(ended).await)
    }
}
