//! What a publisher is given.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;

/// An event to publish.
///
/// ```
/// use std::time::Duration;
/// use hatchery::NewEvent;
/// let event = NewEvent::new("hr-import", r#"{"name": "Ada"}"#).reference("1234").delay(Duration::from_secs(5));
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
    /// An event of this type, due now. The payload counts as JSON unless [`Self::content_type`] says otherwise.
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
    /// When the value cannot be written as JSON, like a map whose keys are no texts.
    pub fn json<T: serde::Serialize + ?Sized>(event_type: impl Into<String>, payload: &T) -> serde_json::Result<Self> {
        Ok(Self::new(event_type, serde_json::to_vec(payload)?))
    }

    /// What it carries.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The object that it is about: 1 to 255 bytes without control characters.
    #[must_use]
    pub fn reference(self, reference: impl Into<String>) -> Self {
        Self { reference: Some(reference.into()), ..self }
    }

    /// Not before this time. A time that is past is due now.
    #[must_use]
    pub fn at(self, time: Timestamp) -> Self {
        Self { when: When::At(time), ..self }
    }

    /// Not before this long from now.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        Self { when: When::After(delay), ..self }
    }

    /// The caller's own id instead of a new UUIDv7: where coalescing is off, publishing it again for the same time is
    /// publishing nothing.
    #[must_use]
    pub fn id(self, id: impl Into<String>) -> Self {
        Self { id: Some(id.into()), ..self }
    }

    /// The caller's own, handed through.
    #[must_use]
    pub fn correlation_id(self, id: impl Into<String>) -> Self {
        Self { correlation_id: Some(id.into()), ..self }
    }

    /// W3C trace context, handed through.
    #[must_use]
    pub fn traceparent(self, traceparent: impl Into<String>) -> Self {
        Self { traceparent: Some(traceparent.into()), ..self }
    }

    /// The payload's MIME type.
    #[must_use]
    pub fn content_type(self, content_type: impl Into<String>) -> Self {
        Self { content_type: content_type.into(), ..self }
    }

    /// Why it is in the queue, for people; cut at 1,000 bytes.
    #[must_use]
    pub fn reason(self, reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..self }
    }
}
