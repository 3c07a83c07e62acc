//! The event that a program publishes.

#[cfg(feature = "internals")]
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use super::published::PublishError;
#[cfg(feature = "internals")]
use crate::domain::{
    event,
    register::{DedupSlot, Subject},
    spec::TypeSpec,
    wire::SHORT,
};
use crate::domain::{
    event::Event,
    kind::EventKind,
    register::CopyVersion,
    time,
    wire::{self, Properties},
    words::{EventType, Reference, WordError},
};

/// An event to publish: a type, a payload, and optional properties.
///
/// [`Publisher::publish`](crate::Publisher::publish) checks and sends it. Without a reference and a time, the event runs as
/// soon as a worker is free.
///
/// - A **reference** names the object that the event is about. The key `coalesce` of the file says which events of one
///   reference replace each other.
/// - With a **time** ([`at`](Self::at) or [`delay`](Self::delay), the last call wins) the event runs at this time or up to one
///   step of the ladder later (250 ms by default), and never earlier.
///
/// ```no_run
/// # async fn example(publisher: hatchery::Publisher) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use hatchery::{NewEvent, parse_time};
///
/// #[derive(serde::Serialize)]
/// struct Change { salary: u32 }
///
/// // Now. Ten of these within the type's `window` become one run.
/// let now = NewEvent::json("hr-import", &Change { salary: 5_000 })?.reference("1234");
/// // On the first of June.
/// let june = NewEvent::json("hr-import", &Change { salary: 6_000 })?
///     .reference("1234")
///     .at(parse_time("2026-06-01T00:00:00+02:00")?)
///     .reason("raise of 2026");
/// // In ten minutes. Published again with this id, it still runs once.
/// let mail = NewEvent::new("mail", r#"{"to": "ada@example.com"}"#)
///     .id("welcome-1234")
///     .delay(Duration::from_mins(10));
/// for event in [now, june, mail] {
///     publisher.publish(event).await?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct NewEvent {
    pub(super) event_type: String,
    pub(super) payload: Bytes,
    pub(super) content_type: String,
    pub(super) reference: Option<String>,
    pub(super) when: When,
    expiry: Option<Expiry>,
    pub(super) id: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) traceparent: Option<String>,
    pub(super) reason: Option<String>,
    /// The properties and headers of a message that was saved.
    pub(super) saved: Option<Properties>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Now,
    At(Timestamp),
    After(Duration),
}

#[derive(Clone, Copy, Debug)]
enum Expiry {
    At(Timestamp),
    After(Duration),
}

impl NewEvent {
    /// Returns an event of this type, due now.
    ///
    /// The payload is any bytes, also none, up to the file's `max-payload` (16 MiB by default). Its content type is JSON unless
    /// [`Self::content_type`] sets another. A `String`, a `Vec<u8>` and `Bytes` are not copied. A text that is borrowed for less
    /// than `'static` has to be copied by the caller (`text.to_owned()`).
    ///
    /// ```
    /// use hatchery::{NewEvent, bytes::Bytes};
    ///
    /// let document = Bytes::from(vec![0x25, 0x50, 0x44, 0x46]);
    /// let print = NewEvent::new("print", document.clone()).content_type("application/pdf");
    /// assert_eq!(print.payload().as_ptr(), document.as_ptr());
    /// // The reference alone tells the handler enough.
    /// let changed = NewEvent::new("hr-import", "").reference("1234");
    /// assert!(changed.payload().is_empty());
    /// ```
    #[must_use]
    pub fn new(event_type: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            event_type: event_type.into(),
            payload: payload.into(),
            content_type: "application/json".to_owned(),
            reference: None,
            when: When::Now,
            expiry: None,
            id: None,
            correlation_id: None,
            traceparent: None,
            reason: None,
            saved: None,
        }
    }

    /// Returns an event whose payload is this value as JSON.
    ///
    /// ```
    /// use hatchery::NewEvent;
    ///
    /// #[derive(serde::Serialize)]
    /// struct Mail { to: String, subject: &'static str }
    ///
    /// let mail = Mail { to: "ada@example.com".to_owned(), subject: "Welcome" };
    /// let event = NewEvent::json("mail", &mail)?;
    /// assert_eq!(event.payload(), br#"{"to":"ada@example.com","subject":"Welcome"}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the value cannot be serialized as JSON, for example a map whose keys are not strings.
    pub fn json<T: serde::Serialize + ?Sized>(event_type: impl Into<String>, payload: &T) -> serde_json::Result<Self> {
        Ok(Self::new(event_type, serde_json::to_vec(payload)?))
    }

    /// Returns an event of this kind, with its payload as JSON. [`EventKind`] has an example.
    ///
    /// # Errors
    /// See [`json`](Self::json).
    pub fn of<K: EventKind>(_kind: K, payload: &K::Payload) -> serde_json::Result<Self> {
        Self::json(K::TYPE, payload)
    }

    /// Returns the payload.
    ///
    /// ```
    /// let event = hatchery::NewEvent::new("mail", r#"{"to": "ann"}"#);
    /// assert_eq!(event.payload(), br#"{"to": "ann"}"#);
    /// ```
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Sets the object that the event is about: 1 to 255 bytes of UTF-8 without control characters. Publishing refuses any
    /// other text.
    ///
    /// ```
    /// use hatchery::{NewEvent, Reference};
    ///
    /// let employee = 1234;
    /// let event = NewEvent::new("hr-import", "{}").reference(employee.to_string());
    /// // Input from outside can be checked first.
    /// assert!("1234".parse::<Reference>().is_ok());
    /// assert!("".parse::<Reference>().is_err());
    /// ```
    #[must_use]
    pub fn reference(self, reference: impl Into<String>) -> Self {
        Self { reference: Some(reference.into()), ..self }
    }

    /// Sets the earliest time of the run, rounded up to milliseconds. An event with a time in the past is due now.
    ///
    /// Such an event counts as delayed also if its time is past: it coalesces by the key `delayed`, and no `window` delays it.
    ///
    /// ```
    /// use hatchery::{NewEvent, jiff::{Timestamp, ToSpan as _}, parse_time};
    ///
    /// let reminder = NewEvent::new("mail", "{}").at(parse_time("2026-06-01T09:00:00+02:00")?);
    /// let tomorrow = NewEvent::new("mail", "{}").at(Timestamp::now() + 24.hours());
    /// # Ok::<(), hatchery::TimeError>(())
    /// ```
    #[must_use]
    pub fn at(self, time: Timestamp) -> Self {
        Self { when: When::At(time), ..self }
    }

    /// Sets the shortest time from the publish to the run. A delay of zero means no date.
    ///
    /// The event's date is the time of the publish plus the delay, in milliseconds. Two events with the same delay therefore
    /// have different dates, and with `delayed: each-time` both run. To merge them, use `delayed: latest`, the same
    /// [`at`](Self::at) for both, or events without a date and a `window`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hatchery::{NewEvent, parse_duration};
    ///
    /// let soon = NewEvent::new("mail", "{}").delay(Duration::from_millis(1_500));
    /// // From a setting, in the format of the file.
    /// let later = NewEvent::new("mail", "{}").delay(parse_duration("1d 12h")?);
    /// # Ok::<(), hatchery::TtlError>(())
    /// ```
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { when: When::After(delay), ..self }
    }

    /// Sets how long after the publish the event expires. If it has not started by then, it does not run: it goes to dead-letter, or is
    /// gone where the type says `on-expiry: discard`. An event that was started is tried again also after that time.
    ///
    /// Publishing refuses an event that would expire before it is due, and one that coalesces.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hatchery::NewEvent;
    ///
    /// // After ten minutes nobody waits for the code any more.
    /// let code = NewEvent::new("mail", r#"{"code": "4711"}"#).expires(Duration::from_mins(10));
    /// ```
    #[must_use]
    pub fn expires(self, after: Duration) -> Self {
        Self { expiry: Some(Expiry::After(after)), ..self }
    }

    /// Sets the time at which the event expires, rounded up to milliseconds. Otherwise like [`expires`](Self::expires); the last call
    /// wins.
    ///
    /// ```
    /// use hatchery::{NewEvent, parse_time};
    ///
    /// let invitation = NewEvent::new("mail", "{}").expires_at(parse_time("2026-06-01T09:00:00+02:00")?);
    /// # Ok::<(), hatchery::TimeError>(())
    /// ```
    #[must_use]
    pub fn expires_at(self, time: Timestamp) -> Self {
        Self { expiry: Some(Expiry::At(time)), ..self }
    }

    /// Sets the event's id, 1 to 255 bytes. Default: a new UUIDv7.
    ///
    /// Where coalescing is off, publishing the same id for the same time again has no effect while the event waits, and for
    /// the `dedup-retention` after it (one hour by default). Types with `register: off` run every copy.
    ///
    /// ```
    /// use hatchery::NewEvent;
    ///
    /// // An id made of the invoice: published again after a crash, it is the same event.
    /// let (order, step) = (4711, "confirmation");
    /// let mail = NewEvent::new("mail", "{}").id(format!("{order}-{step}"));
    /// ```
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    /// Sets a correlation id of 1 to 255 bytes, which every copy and the handler receive unchanged.
    ///
    /// ```
    /// use hatchery::{NewEvent, Run};
    ///
    /// fn follow_up(run: &Run) -> NewEvent {
    ///     let cause = run.event.correlation_id.clone().unwrap_or_else(|| run.event.id.clone());
    ///     NewEvent::new("mail", "{}").correlation_id(cause)
    /// }
    /// ```
    #[must_use]
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// Sets the W3C trace context, 1 to 255 bytes, which every copy and the handler receive unchanged. It is not parsed.
    ///
    /// ```
    /// use hatchery::NewEvent;
    ///
    /// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let event = NewEvent::new("mail", "{}").traceparent(parent);
    /// ```
    #[must_use]
    pub fn traceparent(self, traceparent: impl Into<String>) -> Self {
        Self { traceparent: Some(traceparent.into()), ..self }
    }

    /// Sets the payload's MIME type, 1 to 255 bytes. Default: `application/json`.
    ///
    /// ```
    /// use hatchery::NewEvent;
    ///
    /// let page = NewEvent::new("print", "<h1>Payslip</h1>").content_type("text/html; charset=utf-8");
    /// ```
    #[must_use]
    pub fn content_type(self, content_type: impl Into<String>) -> Self {
        Self { content_type: content_type.into(), ..self }
    }

    /// Sets why the event was published, for people. The management UI and `topology events` show it. Cut after 1,000 bytes.
    ///
    /// ```
    /// use hatchery::NewEvent;
    ///
    /// let import = NewEvent::new("hr-import", "{}").reference("1234");
    /// let import = import.reason("next-change: end_date=2026-06-01");
    /// ```
    #[must_use]
    pub fn reason(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }

    /// For the server of the API: returns the type.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    #[must_use]
    pub fn event_type(&self) -> &str {
        &self.event_type
    }

    /// For batches and the server of the API: gives the event a new id unless it has one, and returns its id. A publish that fails
    /// can then be repeated under that id.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    #[must_use]
    pub fn identified(self) -> (Self, String) {
        let id = self.id.unwrap_or_else(new_id);
        (Self { id: Some(id.clone()), ..self }, id)
    }

    /// Returns where the register keeps the event, if its publisher has chosen its id and it competes with no other event.
    #[cfg(feature = "internals")]
    pub(crate) fn own_place(&self, types: &BTreeMap<EventType, TypeSpec>) -> Option<(Subject, DedupSlot)> {
        let (event_type, spec) = types.get_key_value(self.event_type.as_str()).filter(|(_, spec)| spec.register)?;
        let id = self.id.clone().filter(|id| (1..=SHORT).contains(&id.len()))?;
        let reference = self.reference.as_deref().map(str::parse::<Reference>).transpose().ok()?;
        // Whether there is a date decides, and not which one.
        let (date, _) = self.date(Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
        let slot = event::slot(spec, reference.as_ref(), date, &id);
        matches!(slot, DedupSlot::Event(_)).then(|| (Subject { event_type: event_type.clone(), reference, id }, slot))
    }

    /// Gives the event the properties and foreign headers of a message that was saved, and its time of creation, content type,
    /// correlation id and trace context.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    #[must_use]
    pub fn saved(self, properties: Properties) -> Self {
        Self { saved: Some(properties), ..self }
    }

    /// Returns the date, and the delay until then. A date that the program gives is one of this machine's clock. A delay is measured by the
    /// broker, and the date that follows from it is one of the shared clock: the worker's clock tells whether it has come.
    pub(super) fn date(&self, now: Timestamp, shared: Timestamp) -> (Option<Timestamp>, Duration) {
        match self.when {
            When::Now | When::After(Duration::ZERO) => (None, Duration::ZERO),
            When::At(time) => (Some(time::ceil_millis(time)), time::until(now, time::ceil_millis(time))),
            When::After(delay) => (Some(time::ceil_millis(time::later(shared, delay))), delay),
        }
    }

    /// Returns when the event expires, if it does. It is published at `now`.
    ///
    /// # Errors
    /// If it would expire before it is due.
    pub(super) fn expiry(&self, now: Timestamp) -> Result<Option<Timestamp>, PublishError> {
        let Some(expiry) = self.expiry else { return Ok(None) };
        let expires = match expiry {
            Expiry::At(time) => time,
            Expiry::After(after) => time::due(now, after).ok_or(PublishError::TooLate)?,
        };
        let due = match self.when {
            When::Now => now,
            When::At(time) => time.max(now),
            When::After(delay) => time::later(now, delay),
        };
        if expires <= due {
            return Err(PublishError::ExpiresBeforeDue { expires, due });
        }
        Ok(Some(time::ceil_millis(expires)))
    }

    /// Returns the event as published now, without a version: it does not compete with other events yet.
    pub(super) fn into_event(
        self,
        event_type: EventType,
        nbf: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Event, WordError> {
        let reference = self.reference.as_deref().map(str::parse::<Reference>).transpose()?;
        let id = self.id.unwrap_or_else(new_id);
        let event = Event {
            event_type,
            reference,
            created_at: now,
            nbf,
            expires: None,
            attempts: 0,
            busy: 0,
            crashes: 0,
            by_hand: false,
            reason: self.reason,
            first_failure: None,
            last_failure: None,
            stamp: CopyVersion::uncontested(&id, 0),
            content_type: Some(self.content_type),
            correlation_id: self.correlation_id,
            traceparent: self.traceparent,
            payload: self.payload,
            properties: Properties::default(),
            schedule: None,
            id,
        };
        Ok(match self.saved {
            Some(properties) => wire::restored(event, properties),
            None => event,
        })
    }
}

fn new_id() -> String {
    Uuid::now_v7().to_string()
}
