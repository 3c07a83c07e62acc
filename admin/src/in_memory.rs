//! The administration of a topology without servers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream;
use hatchery::{
    BrokerError, ConnectError, EventInfo, EventType, LifeCycleRecord, Topology,
    internals::{
        in_memory::InMemory,
        names::{self, Names},
        safety::Unsafe,
        switches::{Name, Pause, Paused, Switches},
        wire::{Incoming, Properties},
    },
};

use crate::{
    backend::Backend,
    dead_letters::DeliveryLimits,
    error::AdminError,
    live::Counts,
    location::QueueCounts,
    notation::Until,
    results::{PauseChange, ScheduleChanges},
    schedules::Schedules,
    status::{self, Status, switches_in_memory as switches},
    switches::{Switched, act, change, file, schedules::unfinished},
    trace::{Trace, Traced},
};

/// A topology over a broker and a register in memory, and what people ask of it.
pub struct InMemoryAdmin(pub InMemory);

/// The changes of an apply to a topology in memory.
#[derive(Clone, Debug)]
pub struct AppliedInMemory {
    /// The changes to schedules.
    pub schedules: ScheduleChanges,
    /// The pauses of the file that have begun and ended.
    pub pauses: Vec<PauseChange>,
}

impl InMemoryAdmin {
    /// Declares a topology on a new broker. [`arm`](Self::arm) comes next.
    ///
    /// # Errors
    /// When the topology compiles to objects that are not safe.
    pub fn new(topology: Topology) -> Result<Self, Unsafe> {
        InMemory::now(topology).map(Self)
    }

    /// Declares another topology on the same broker, and keeps what waits there. Events of a renamed type run under its new name, and have
    /// no state in the register there. [`arm`](Self::arm) comes next.
    ///
    /// # Errors
    /// When the topology compiles to objects that are not safe. Nothing is changed then.
    pub fn changed(&self, topology: Topology) -> Result<Self, Unsafe> {
        self.0.changed(topology).map(Self)
    }

    /// Writes the pauses of the file, and arms its schedules, as an apply does after it has declared the objects.
    ///
    /// # Errors
    /// [`AdminError::NotArmed`] if an event of a schedule was not published.
    pub async fn arm(&self) -> Result<AppliedInMemory, AdminError> {
        let (before, now) = (switches(&self.0), self.0.clock.now());
        let mut pauses = Vec::new();
        if let Some(next) = file::of_file(&self.0.topology, Some(&before), None, now) {
            self.write(&before, &next);
            pauses = file::changes(&before, &next, now);
        }
        let schedules = Schedules(self.0.events()).apply().await;
        let schedules = schedules.map_err(|error| AdminError::NotArmed(error.to_string()))?;
        Ok(AppliedInMemory { schedules, pauses })
    }

    /// Returns how many messages of a type are ready in a queue, its dead letters left out.
    #[must_use]
    pub fn waiting(&self, event_type: &EventType) -> usize {
        let dead_letters = Names::new(self.0.topology.name.clone()).dead_letters(event_type);
        let is_of_type = |key: &str| key.split('.').next() == Some(event_type.as_str());
        let waiting = self.0.broker.waiting().into_iter();
        waiting.filter(|it| it.queue != dead_letters && is_of_type(&it.message.routing_key)).count()
    }

    /// Writes a snapshot of the switches after the one before, and tells what has changed.
    fn write(&self, before: &Switches, after: &Switches) {
        let stream = names::control(&self.0.desired.owner);
        let body: Bytes = after.text().into();
        self.0.broker.put(&stream, Incoming { routing_key: stream.clone(), properties: Properties::default(), body });
        change::tell(self.0.records(), &before.pauses, &after.pauses);
    }
}

#[async_trait]
impl Backend for InMemoryAdmin {
    fn topology(&self) -> &Topology {
        &self.0.topology
    }

    async fn require_publishing(&self) -> Result<(), BrokerError> {
        Ok(())
    }

    async fn status(&self) -> Result<Status, AdminError> {
        Ok(status::in_memory(&self.0).await.map_err(ConnectError::from)?)
    }

    async fn pauses(&self) -> Result<Vec<Pause>, AdminError> {
        let now = self.0.clock.now();
        Ok(switches(&self.0).pauses.into_iter().filter(|pause| pause.lasts(now)).collect())
    }

    /// Waits for no worker.
    async fn pause(&self, what: Paused, reason: String, until: Option<Until>) -> Result<Switched, AdminError> {
        act::known_name(&self.0.topology, &what)?;
        let (before, since) = (switches(&self.0), self.0.clock.now());
        let until = until.map(|until| until.after(since)).transpose()?;
        let (former, what) = (act::with_former(&self.0.topology, &what), [what]);
        let next = act::with_pauses(before.clone(), &former, &reason, since, until);
        self.write(&before, &next);
        let after = act::of_these(Some(next), &what, since);
        for pause in &after {
            if let Paused::Schedule(Name(name)) = &pause.of {
                let holding = Schedules(self.0.events()).hold(name.as_str(), pause).await;
                holding.map_err(|error| unfinished(&error))?;
            }
        }
        let before = act::of_these(Some(before), &what, since);
        Ok(Switched { before, after, held: Vec::new(), not_following: Vec::new(), next: Vec::new() })
    }

    async fn resume(&self, what: Paused) -> Result<Switched, AdminError> {
        act::known_name(&self.0.topology, &what)?;
        let (before, now) = (switches(&self.0), self.0.clock.now());
        let (former, what) = (act::with_former(&self.0.topology, &what), [what]);
        let after = act::without_pauses(before.clone(), &former, now);
        if let Some(after) = &after {
            self.write(&before, after);
        }
        let (after, mut next) = (after.unwrap_or_else(|| before.clone()), Vec::new());
        if let [Paused::Schedule(Name(name))] = &what {
            let due = Schedules(self.0.events()).resume(name.as_str()).await;
            next.extend(due.map_err(|error| unfinished(&error))?.map(|due| (name.clone(), due)));
        }
        let held = act::held(Some(&after), &what, now);
        let [before, after] = [before, after].map(|switches| act::of_these(Some(switches), &what, now));
        Ok(Switched { before, after, held, not_following: Vec::new(), next })
    }

    async fn delivery_limits(&self) -> Result<DeliveryLimits, AdminError> {
        Ok(DeliveryLimits::default())
    }

    async fn trace(&self, of: Trace) -> Result<Traced, BrokerError> {
        let stream = Names::new(self.0.topology.name.clone()).life_cycle();
        let Some(texts) = self.0.broker.messages_of(&stream) else {
            return Err(BrokerError::Missing { object: format!("the queue {stream}") });
        };
        let all: Vec<_> =
            texts.iter().flat_map(|text| LifeCycleRecord::parse_all(text)).filter_map(Result::ok).collect();
        let oldest = all.first().map(|record| record.at);
        let is_asked = |record: &LifeCycleRecord| {
            of.since.is_none_or(|since| record.at >= since)
                && (!record.is_of_an_event() || of.id.is_none() || record.id == of.id)
                && (!record.is_of_an_event() || of.reference.is_none() || record.reference == of.reference)
        };
        of.first(oldest, stream::iter(all.into_iter().filter(is_asked).map(Ok))).await
    }

    async fn queue_counts(&self, _: Vec<EventInfo>) -> Result<QueueCounts, AdminError> {
        Ok(QueueCounts::in_memory(&self.0))
    }

    async fn counts(&self) -> Result<BTreeMap<String, Counts>, AdminError> {
        Ok(status::counts_in_memory(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hatchery::{NewEvent, internals::ports::Broker as _};

    use super::*;

    fn topology(types: &str) -> Topology {
        let text = format!("{{ version: 1, name: t, types: {types} }}");
        hatchery::file::read(&text, "topology.yaml").expect("a valid file")
    }

    #[tokio::test]
    async fn what_waits_stays_when_the_file_changes() -> Result<(), Box<dyn std::error::Error>> {
        let before = InMemoryAdmin::new(topology("{ mail: {}, post: {} }"))?;
        before.arm().await?;
        let publisher = before.0.publisher();
        for name in ["mail", "post"] {
            publisher.publish(NewEvent::new(name, "{}")).await?;
            publisher.publish(NewEvent::new(name, "{}").delay(Duration::from_hours(1))).await?;
        }
        let after = before.changed(topology("{ letter: { renamed-from: post } }"))?;
        after.arm().await?;
        let [mail, post, letter]: [EventType; 3] = ["mail", "post", "letter"].map(|name| name.parse().expect("a word"));
        assert_eq!((after.waiting(&mail), after.waiting(&post), after.waiting(&letter)), (2, 2, 0), "by their keys");
        let due = after.status().await?.types[0].due;
        assert_eq!(due, Some(1), "the new name has the events of the former one");
        let back = after.changed(topology("{ mail: {}, letter: {} }"))?;
        back.arm().await?;
        let status = back.status().await?;
        let due: Vec<_> = status.types.iter().map(|line| (line.name.as_str(), line.due, line.delayed)).collect();
        assert_eq!(due[1], ("mail", Some(1), Some(1)));
        Ok(())
    }

    #[tokio::test]
    async fn a_letter_that_somebody_looks_at_stays_when_its_type_is_renamed() -> Result<(), Box<dyn std::error::Error>>
    {
        let before = InMemoryAdmin::new(topology("{ post: {} }"))?;
        let body = Bytes::from_static(b"{}");
        let letter = Incoming { routing_key: "post.dead-letter".to_owned(), properties: Properties::default(), body };
        before.0.broker.put("t.dead-letter.post", letter);
        let mut look = before.0.broker.look("t.dead-letter.post").await?;
        assert_eq!(look.next(1).await?.len(), 1);
        let after = before.changed(topology("{ letter: { renamed-from: post } }"))?;
        look.close().await?;
        assert_eq!(after.0.broker.counts("t.dead-letter.letter"), Some([1, 0, 0]));
        Ok(())
    }

    #[tokio::test]
    async fn the_pauses_and_schedules_of_the_file_are_taken_over() -> Result<(), Box<dyn std::error::Error>> {
        let file =
            "version: 1\nname: t\ntypes: { mail: { paused: on } }\nschedules: { report: { type: mail, every: 1h } }";
        let admin = InMemoryAdmin::new(hatchery::file::read(file, "topology.yaml")?)?;
        let first = admin.arm().await?;
        assert_eq!((first.schedules.len(), first.pauses.len(), admin.0.published()), (1, 1, 1));
        assert_eq!(admin.arm().await?.pauses.len(), 0);
        let mail = Paused::Type(Name("mail".parse()?));
        assert_eq!(admin.resume(mail.clone()).await?.before.len(), 1);
        assert_eq!(admin.pauses().await?, []);
        admin.pause(mail, "lunch".to_owned(), Some(Until::After(Duration::from_mins(1)))).await?;
        assert_eq!(admin.status().await?.pauses[0].reason, "lunch");
        let unknown = Paused::Type(Name("mial".parse()?));
        assert!(matches!(admin.pause(unknown, String::new(), None).await, Err(AdminError::UnknownName { .. })));
        admin.0.records().flush().await;
        let told = admin.trace(Trace { event_type: Some("mail".to_owned()), ..Trace::default() }).await?.records;
        let told: Vec<_> = told.iter().map(|record| (record.transition.as_str(), record.reason.as_deref())).collect();
        assert_eq!(told, [("paused", None), ("resumed", None), ("paused", Some("lunch"))]);
        Ok(())
    }
}
