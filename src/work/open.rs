//! Opens a delivery: decodes its event, and finds out what must happen before the event may run.

use std::{sync::Arc, time::Duration};

use tokio::time::timeout;
use uuid::Uuid;

use super::{
    follow_up::ON_ITS_WAY,
    lane::Lane,
    late,
    stage::{Detour, Disposition, Ready},
};
use crate::{
    domain::{
        event::Event,
        names,
        schedule::forged::forged,
        settlement::{OFTEN, SUSPECT, suspect},
        wire::{self, Incoming, Message, Poison},
        words::plain,
    },
    ports::{Delivery, Receipt},
};

/// How long an event that has not run waits for the confirm of its copy. Then it is handled as it came: a broker that blocks
/// publishers must be emptied, and a prefetch full of events that wait for it would stop that for ever. The copy may be
/// published all the same. With the register both are one event, and the second is dropped; without it both run.
pub(super) const COPY_LIMIT: Duration = Duration::from_secs(5);

/// The delay of a copy that has to wait for its first delivery's acknowledgement.
const PAUSE: Duration = Duration::from_secs(1);

/// A due event, and why a copy of it is published instead of running it, if that is so. The error is a delivery without one.
pub(super) type Opened = Result<(Ready, Option<CopyReason>), NotDue>;

/// A delivery that holds no due event.
pub(super) struct NotDue {
    pub(super) receipt: Box<dyn Receipt>,
    pub(super) instead: Instead,
    pub(super) held: Arc<()>,
}

/// Why a copy of a due event is published instead of running it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CopyReason {
    /// The event had no id, and is a redelivery. The register would take each redelivery for another event, and count no
    /// crash.
    WithId,
    /// The event has come back so often that RabbitMQ would soon dead-letter it, for crashes that other events caused. The
    /// register knows better who is to blame. RabbitMQ counts the returns of the copy from 0.
    CountAnew(u32),
    /// The event has no register, and may have killed its worker.
    Quarantine(u32),
}

/// What becomes of a delivery that holds no due event.
pub(super) enum Instead {
    /// The broker dead-letters the message unchanged.
    Reject,
    /// The message is no event: it is dead-lettered with the reason.
    Bury(Box<(Poison, Incoming)>),
    /// The event is not due yet.
    Wait(Box<Event>),
}

impl Lane {
    /// Opens a delivery. `None` if its event runs here already, or has run: see [`late`].
    pub(super) fn open(&self, delivery: Delivery) -> Option<Opened> {
        fail_point!("work.delivered");
        self.counters.delivered();
        let held = Arc::clone(&self.common.held);
        self.common.warn_of_priority(|| self.common.routes.names.processing(&self.event_type), &delivery);
        let Delivery { message, redelivered, receipt, .. } = delivery;
        let (returns, has_id) = (wire::returns(&message.properties), wire::has_id(&message.properties));
        let is_unnamed = redelivered && !has_id;
        let event = match self.decode(message) {
            // Nobody remembers whether it was started: without the register, or because a type that keeps its order releases its
            // claim after each try.
            Ok(event) if redelivered && (!self.spec.register || self.spec.keeps_order()) => {
                Event { expires: None, ..event }
            }
            Ok(event) => event,
            Err(instead) => return Some(Err(NotDue { receipt, instead, held })),
        };
        let (runs, key) = (&self.common.late, (!self.spec.register && has_id).then(|| late::key(&event)));
        let receipt = match key.filter(|_| redelivered) {
            // What comes behind the oldest event of a type that keeps its order must not overtake others on its way back.
            Some(key) => runs.take(key, receipt, !self.spec.keeps_order())?,
            None => receipt,
        };
        let run = key.and_then(|key| runs.hold(key));
        let ready = Ready::new(event, receipt, run, has_id, self.common.topology.ack_timeout, held);
        // Types that keep their order publish no copies: they would lose their place.
        if self.spec.keeps_order() {
            return Some(Ok((ready, None)));
        }
        let copy = match self.spec.register {
            true if is_unnamed => Some(CopyReason::WithId),
            true if returns >= OFTEN => Some(CopyReason::CountAnew(returns)),
            false if returns >= SUSPECT => Some(CopyReason::Quarantine(returns)),
            _ => None,
        };
        Some(Ok((ready, copy)))
    }

    /// Returns the event in a message, or what becomes of the delivery if the message holds no due event.
    fn decode(&self, message: Incoming) -> Result<Event, Instead> {
        if wire::is_too_large_to_copy(&message.properties) {
            let id = message.properties.message_id.as_deref();
            tracing::warn!(id, event_type = %self.event_type, routing_key = %plain(&message.routing_key), "message rejected: its headers leave no room for those of a copy");
            self.counters.poisoned();
            return Err(Instead::Reject);
        }
        if let Some(other) = wire::misrouted(&self.event_type, &message, &self.common.topology.types) {
            return Err(Instead::Bury(Box::new((Poison::Misrouted(other.clone()), message))));
        }
        let now = self.common.clock.latest();
        let schedules = &self.common.topology.schedules;
        let routing_key = if schedules.is_empty() { String::new() } else { message.routing_key.clone() };
        let event = wire::decode(&self.event_type, message, now, fresh_id).map_err(Instead::Bury)?;
        if let Some(schedule) = forged(&event, schedules) {
            let poison = Poison::Forged(schedule.to_string());
            let incoming = Incoming { routing_key, properties: wire::encode(&event), body: event.payload };
            return Err(Instead::Bury(Box::new((poison, incoming))));
        }
        if event.early_by(now).is_zero() { Ok(event) } else { Err(Instead::Wait(Box::new(event))) }
    }

    /// Publishes what takes the place of a delivery that holds no due event. Returns what becomes of the delivery.
    pub(super) async fn instead(&self, instead: Instead) -> Disposition {
        match instead {
            Instead::Reject => Disposition::Reject,
            Instead::Bury(poisoned) => Disposition::after(self.bury(&poisoned.0, &poisoned.1).await),
            Instead::Wait(event) => {
                Disposition::after(self.send_on(&event, event.early_by(self.common.clock.latest())).await)
            }
        }
    }

    /// Dead-letters a message that is no event of this type, unchanged but for the reason. An event of another type becomes a letter of
    /// that one: a replay runs it there, and the register tells whether it has run.
    async fn bury(&self, poison: &Poison, incoming: &Incoming) -> Result<(), Disposition> {
        let id = incoming.properties.message_id.as_deref();
        tracing::warn!(id, event_type = %self.event_type, routing_key = %plain(&incoming.routing_key), "{poison}");
        self.counters.poisoned();
        let message = Message {
            exchange: self.common.routes.names.dead_letter(),
            routing_key: names::dead_letter_key(match poison {
                Poison::Misrouted(other) => other,
                _ => &self.event_type,
            }),
            properties: wire::encode_buried(
                incoming.properties.clone(),
                &poison.to_string(),
                self.common.clock.now(),
                fresh_id,
            ),
            body: incoming.body.clone(),
        };
        self.publish(|| message.clone()).await
    }

    /// Publishes a copy of an event and acknowledges the delivery. If the broker does not confirm the copy in time, the event
    /// is handled as it came.
    pub(super) async fn copy(self: Arc<Self>, mut ready: Ready, why: CopyReason) -> Detour {
        if !ready.stays_here() {
            return self.answer(ready, Disposition::GiveBack).await;
        }
        let event = &ready.work.event;
        let (id, event_type) = (plain(&event.id), &self.event_type);
        let publishing = async {
            match why {
                CopyReason::WithId => {
                    // The redelivery counts as a crash, for the worker may have died while the event ran. The copy waits: a
                    // copy that kills the process before the acknowledgement has left would be made again at each start,
                    // with another id.
                    let copy = Event { crashes: 1, ..Event::clone(event) };
                    self.send_on(&copy, PAUSE).await?;
                    self.common.expect_back(PAUSE + ON_ITS_WAY);
                    tracing::info!(%id, %event_type, "redelivered event had no id; republished with one");
                }
                CopyReason::CountAnew(returns) => {
                    tracing::warn!(%id, %event_type, returns, "event redelivered {returns} times; republished so that RabbitMQ counts its returns from 0");
                    self.send_on(event, Duration::ZERO).await?;
                }
                CopyReason::Quarantine(returns) => {
                    tracing::warn!(%id, %event_type, returns, "event put aside to run alone, because its worker may have died while it ran");
                    let copy = Event { crashes: 0, reason: Some(suspect(returns)), ..Event::clone(event) };
                    self.publish(|| self.common.routes.to_quarantine(&copy)).await?;
                    self.counters.put_aside();
                    self.common.quarantined.notify_one();
                }
            }
            Ok(())
        };
        let Ok(published) = timeout(COPY_LIMIT, publishing).await else { return Detour::Ready(ready) };
        fail_point!("work.put-aside");
        let detour = self.answer(ready, Disposition::after(published)).await;
        if matches!(why, CopyReason::Quarantine(_)) {
            self.common.broker.until_sent_on().await;
        }
        detour
    }
}

fn fresh_id() -> String {
    Uuid::now_v7().to_string()
}
