//! The selection of events by reference or id.

use jiff::Timestamp;

use super::{
    backend::Backend,
    error::EventsError,
    homes::{self, PAGE},
};
use crate::domain::{
    event,
    register::{DedupSlot, Subject, event_info::EventInfo, filter::Filter, index::Find},
    spec::{Delayed, Immediate, TypeSpec},
    time::ceil_millis,
    words::Reference,
};

/// Selects the events of a reference, or one event by its id.
///
/// ```
/// use hatchery::{EventSelector, parse_time};
///
/// let all = EventSelector::reference("hr-import", "1234");
/// let of_june = all.clone().at(parse_time("2026-06-01T00:00:00Z")?);
/// // `at` and `immediate` replace each other: the last call wins.
/// assert_eq!(of_june.clone().immediate(), all.immediate());
/// let one = EventSelector::id("mail", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11");
/// # Ok::<(), hatchery::TimeError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct EventSelector {
    event_type: String,
    reference: Option<String>,
    part: Part,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    All,
    Immediate,
    At(Timestamp),
    Id(String),
}

impl EventSelector {
    /// Selects all events of a reference, of this type.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// // Employee 1234 has left.
    /// events.cancel(&hatchery::EventSelector::reference("hr-import", "1234")).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn reference(event_type: impl Into<String>, reference: impl Into<String>) -> Self {
        Self { event_type: event_type.into(), reference: Some(reference.into()), part: Part::All }
    }

    /// Selects the event with this id, in the spelling of [`Published::id`](crate::Published::id).
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use hatchery::{NewEvent, EventSelector};
    ///
    /// let mail = NewEvent::new("mail", r#"{"to": "ann"}"#).delay(Duration::from_mins(10));
    /// let id = hatchery.publisher().publish(mail).await?.id;
    /// // The user clicked "Undo".
    /// hatchery.events().cancel(&EventSelector::id("mail", id)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn id(event_type: impl Into<String>, id: impl Into<String>) -> Self {
        Self { event_type: event_type.into(), reference: None, part: Part::Id(id.into()) }
    }

    /// Adds the reference to an id. The event of a type that coalesces is then found by its key.
    ///
    /// ```
    /// use hatchery::EventSelector;
    ///
    /// let one = EventSelector::id("hr-import", "0197c5e2-8a55-7c1f-9a3e-6f2f6d8f1b11").of("1234");
    /// assert_ne!(one, EventSelector::reference("hr-import", "1234"));
    /// ```
    pub fn of(self, reference: impl Into<String>) -> Self {
        Self { reference: Some(reference.into()), ..self }
    }

    /// Restricts the selection to the event of the reference that is due at this time, rounded up to milliseconds.
    ///
    /// ```
    /// use hatchery::{EventSelector, parse_time};
    ///
    /// let of_1234 = EventSelector::reference("hr-import", "1234");
    /// let june = of_1234.clone().at(parse_time("2026-06-01T00:00:00.0001Z")?);
    /// assert_eq!(june, of_1234.at(parse_time("2026-06-01T00:00:00.001Z")?));
    /// # Ok::<(), hatchery::TimeError>(())
    /// ```
    pub fn at(self, time: Timestamp) -> Self {
        Self { part: Part::At(ceil_millis(time)), ..self }
    }

    /// Restricts the selection to the event of the reference without a date, in a type with `immediate: latest` or `first`.
    ///
    /// ```no_run
    /// # async fn example(events: hatchery::Events) -> Result<(), hatchery::EventsError> {
    /// // Cancel the immediate change. The changes of later dates stay.
    /// events.cancel(&hatchery::EventSelector::reference("hr-import", "1234").immediate()).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn immediate(self) -> Self {
        Self { part: Part::Immediate, ..self }
    }
}

/// A selection after it was checked against the file.
pub(super) struct EventQuery<'a> {
    pub(super) subject: Subject,
    pub(super) spec: &'a TypeSpec,
    shards: u16,
    part: Part,
}

impl Backend {
    pub(super) fn asked(&self, which: &EventSelector) -> Result<EventQuery<'_>, EventsError> {
        let EventSelector { event_type, reference, part } = which.clone();
        let (event_type, spec) = self.registered(&event_type)?;
        let reference = reference.as_deref().map(str::parse::<Reference>).transpose()?;
        let id = match &part {
            Part::Id(id) if !(1..=255).contains(&id.len()) => return Err(EventsError::Id(id.len())),
            Part::Id(id) => id.clone(),
            Part::All | Part::Immediate | Part::At(_) => String::new(),
        };
        let subject = Subject { event_type: event_type.clone(), reference, id };
        Ok(EventQuery { subject, spec, shards: self.topology.redis.shards, part })
    }
}

impl EventQuery<'_> {
    /// The key under which the register has most of the events.
    pub(super) fn homes(&self) -> Vec<Subject> {
        homes::homes(&self.subject)
    }

    /// The only slots of the reference that can hold the selected events, if these are few. A reference may have very many dates.
    pub(super) fn places(&self) -> Option<Vec<(Subject, DedupSlot)>> {
        self.subject.reference.as_ref()?;
        let slots = match self.part {
            Part::All | Part::Id(_) => return None,
            Part::Immediate => vec![DedupSlot::Immediate, DedupSlot::First],
            Part::At(time) => {
                let at = time.as_millisecond();
                // For the last three slots, the due time decides whether the event is selected.
                vec![
                    DedupSlot::DatedAt(at),
                    DedupSlot::RequeuedAt(at),
                    DedupSlot::Dated,
                    DedupSlot::Immediate,
                    DedupSlot::First,
                ]
            }
        };
        Some(slots.into_iter().map(|slot| (self.subject.clone(), slot)).collect())
    }

    /// Returns the id, if the selection has one.
    pub(super) fn id(&self) -> Option<&str> {
        match &self.part {
            Part::Id(id) => Some(id),
            Part::All | Part::Immediate | Part::At(_) => None,
        }
    }

    /// Whether every event of the selection competes, unless it was published without a version. A broken index then
    /// does not hide the others.
    pub(super) fn coalesces_all(&self) -> bool {
        let coalesce = self.spec.coalesce;
        self.id().is_none() && coalesce.immediate != Immediate::Off && coalesce.delayed != Delayed::Off
    }

    /// Returns the second query, which finds the remaining events. An event that does not compete does not record
    /// whether it had a date.
    pub(super) fn elsewhere(&self, filter: &Filter) -> Option<Find> {
        match self.part {
            Part::All | Part::At(_) => homes::uncontested_of(&self.subject, filter),
            Part::Id(_) if homes::is_scattered(self.spec, &self.subject, self.shards) => {
                Some(filter.find(self.subject.event_type.clone(), PAGE))
            }
            Part::Id(_) | Part::Immediate => None,
        }
    }

    /// Returns the keys under which the register may have the selected events.
    pub(super) fn filter(&self) -> Filter {
        let mut filter = Filter::default().event_type(self.subject.event_type.as_str());
        if let Some(reference) = &self.subject.reference {
            filter = filter.reference(reference.as_str());
        }
        match &self.part {
            Part::All | Part::Immediate => filter,
            Part::Id(id) => filter.id(id.as_str()),
            Part::At(time) => {
                let next = Timestamp::from_millisecond(time.as_millisecond() + 1).unwrap_or(Timestamp::MAX);
                filter.due_from(*time).due_before(next)
            }
        }
    }

    /// Whether this event is selected.
    pub(super) fn means(&self, event: &EventInfo) -> bool {
        match &self.part {
            Part::All => true,
            Part::Immediate => matches!(event.slot, DedupSlot::Immediate | DedupSlot::First),
            Part::At(time) => match event.slot {
                DedupSlot::DatedAt(ms) | DedupSlot::RequeuedAt(ms) => ms == time.as_millisecond(),
                _ => event.due == Some(*time),
            },
            Part::Id(id) => event.id.as_ref() == Some(id),
        }
    }

    /// Returns the slots that are selected even if the register does not know them; none if the whole reference is selected.
    pub(super) fn slots(&self, is_known: bool) -> Result<Option<Vec<DedupSlot>>, EventsError> {
        let immediate = event::slot(self.spec, self.subject.reference.as_ref(), None, &self.subject.id);
        match &self.part {
            Part::All => Ok(None),
            Part::Id(_) if is_known => Ok(Some(Vec::new())),
            Part::Id(id) => Ok(Some(vec![DedupSlot::Event(id.clone())])),
            Part::At(time) if self.spec.coalesce.delayed == Delayed::EachTime => {
                Ok(Some(vec![DedupSlot::DatedAt(time.as_millisecond())]))
            }
            Part::At(_) => Ok(Some(Vec::new())),
            Part::Immediate if matches!(immediate, DedupSlot::Event(_)) => {
                Err(EventsError::Alone { event_type: self.subject.event_type.to_string() })
            }
            Part::Immediate => Ok(Some(vec![immediate])),
        }
    }
}
