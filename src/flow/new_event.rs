//! What a publisher is given.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use uuid::Uuid;

use crate::domain::{
    event::Event,
    kind::EventKind,
    register::CopyVersion,
    time,
    wire::Properties,
    words::{EventType, Reference, WordError},
};

/// An event to publish: a type and a payload, and what more there is to say.
///
/// [`Publisher::publish`](crate::Publisher::publish) checks it and sends it. Without a reference and a time it is an
/// event that runs as soon as a worker is free. A **reference** names the object that it is about, and the file says
/// which events of one reference stand for each other (`coalesce`). With a **time** ([`at`](Self::at),
/// [`delay`](Self::delay); the last of them counts) it runs then, or up to a step of the ladder later, 250 ms unless
/// the file says otherwise; never earlier.
///
/// ```no_run
/// # async fn example(publisher: hatchery::Publisher) -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use hatchery::{NewEvent, parse_time};
///
/// #[derive(serde::Serialize)]
/// struct Change { salary: u32 }
///
/// // Now; ten of these within the type's `window` are one import.
/// let now = NewEvent::json("hr-import", &Change { salary: 5_000 })?.reference("1234");
/// // On the first of June, whatever else happens to employee 1234.
/// let june = NewEvent::json("hr-import", &Change { salary: 6_000 })?
///     .reference("1234")
///     .at(parse_time("2026-06-01T00:00:00+02:00")?)
///     .reason("raise of 2026");
/// // In ten minutes, once, however often this is published.
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
    pub(super) id: Option<String>,
    pub(super) correlation_id: Option<String>,
    pub(super) traceparent: Option<String>,
    pub(super) reason: Option<String>,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum When {
    Now,
    At(Timestamp),
    After(Duration),
}

impl NewEvent {
    /// An event of this type, due now. The payload counts as JSON unless [`Self::content_type`] says otherwise; it is
    /// any bytes, none too, and at most `max-payload` of the file (16 MiB). A `String`, a `Vec<u8>` and `Bytes` are
    /// taken without a copy; a text that is borrowed for less than `'static` is copied first (`text.to_owned()`).
    ///
    /// ```
    /// use hatchery::{NewEvent, bytes::Bytes};
    ///
    /// let document = Bytes::from(vec![0x25, 0x50, 0x44, 0x46]);
    /// let print = NewEvent::new("print", document.clone()).content_type("application/pdf");
    /// assert_eq!(print.payload().as_ptr(), document.as_ptr());
    /// // The reference says it all.
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
            id: None,
            correlation_id: None,
            traceparent: None,
            reason: None,
        }
    }

    /// An event whose payload is this value as JSON.
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
    /// When the value cannot be written as JSON, like a map whose keys are no texts; and when its `Serialize` says so.
    pub fn json<T: serde::Serialize + ?Sized>(event_type: impl Into<String>, payload: &T) -> serde_json::Result<Self> {
        Ok(Self::new(event_type, serde_json::to_vec(payload)?))
    }

    /// An event of this kind, with its payload as JSON. [`EventKind`] has an example.
    ///
    /// # Errors
    /// As [`json`](Self::json).
    pub fn of<K: EventKind>(_kind: K, payload: &K::Payload) -> serde_json::Result<Self> {
        Self::json(K::TYPE, payload)
    }

    /// What it carries.
    ///
    /// ```
    /// let event = hatchery::NewEvent::new("mail", r#"{"to": "ann"}"#);
    /// assert_eq!(event.payload(), br#"{"to": "ann"}"#);
    /// ```
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The object that it is about: 1 to 255 bytes of UTF-8 without control characters. Publishing refuses any other.
    ///
    /// ```
    /// use hatchery::{NewEvent, Reference};
    ///
    /// let employee = 1234;
    /// let event = NewEvent::new("hr-import", "{}").reference(employee.to_string());
    /// // What comes from outside can be checked before.
    /// assert!("1234".parse::<Reference>().is_ok());
    /// assert!("".parse::<Reference>().is_err());
    /// ```
    #[must_use]
    pub fn reference(self, reference: impl Into<String>) -> Self {
        Self { reference: Some(reference.into()), ..self }
    }

    /// Not before this time, in milliseconds, rounded up. A time that is past is due now.
    ///
    /// It is an event with a date all the same: which others it stands for is said by `delayed` of its type's
    /// `coalesce`, and no `window` holds it up.
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

    /// Not before this long from when it is published. A delay of zero is none: the event has no date.
    ///
    /// Its date is that time, to the millisecond. So of two events with one delay each has a date of its own, and with
    /// `delayed: each-time` both run; `delayed: latest`, one [`at`](Self::at) for both, or a `window` for what has no
    /// date make them one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use hatchery::{NewEvent, parse_duration};
    ///
    /// let soon = NewEvent::new("mail", "{}").delay(Duration::from_millis(1_500));
    /// // From a setting that people write.
    /// let later = NewEvent::new("mail", "{}").delay(parse_duration("1d 12h")?);
    /// # Ok::<(), hatchery::TtlError>(())
    /// ```
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { when: When::After(delay), ..self }
    }

    /// The caller's own id instead of a new UUIDv7, 1 to 255 bytes: where coalescing is off, publishing it again for
    /// the same time is publishing nothing, for as long as it waits and an hour beyond (`dedup-retention`). Types with
    /// `register: off` run every copy.
    ///
    /// ```
    /// use hatchery::NewEvent;
    ///
    /// // Made of what it is about: published again after a crash it is the same event.
    /// let (order, step) = (4711, "confirmation");
    /// let mail = NewEvent::new("mail", "{}").id(format!("{order}-{step}"));
    /// ```
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    /// The caller's own, handed through to the handler and to every copy; 1 to 255 bytes.
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

    /// W3C trace context, handed through to the handler and to every copy; 1 to 255 bytes, which are not looked at.
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

    /// The payload's MIME type, 1 to 255 bytes; `application/json` unless said otherwise.
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

    /// Why it is in the queue, for people, who see it in the management UI and in `topology events`; cut at 1,000
    /// bytes.
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

    /// Its date, and how long that is from now.
    pub(super) fn date(&self, now: Timestamp) -> (Option<Timestamp>, Duration) {
        match self.when {
            When::Now | When::After(Duration::ZERO) => (None, Duration::ZERO),
            When::At(time) => (Some(time::ceil_millis(time)), time::until(now, time::ceil_millis(time))),
            When::After(delay) => (Some(time::ceil_millis(time::later(now, delay))), delay),
        }
    }

    /// The event that it becomes when it is accepted now, and that competes with nothing yet.
    pub(super) fn into_event(
        self,
        event_type: EventType,
        nbf: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Event, WordError> {
        let reference = self.reference.as_deref().map(str::parse::<Reference>).transpose()?;
        let id = self.id.unwrap_or_else(|| Uuid::now_v7().to_string());
        Ok(Event {
            event_type,
            reference,
            created_at: now,
            nbf,
            attempts: 0,
            busy: 0,
            crashes: 0,
            by_hand: false,
            reason: self.reason,
            first_failure: None,
            last_failure: None,
            stamp: CopyVersion::alone(&id, 0),
            content_type: Some(self.content_type),
            correlation_id: self.correlation_id,
            traceparent: self.traceparent,
            payload: self.payload,
            properties: Properties::default(),
            id,
        })
    }
}
