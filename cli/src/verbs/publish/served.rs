//! Publishes one event by a server of the API.

use std::{string::FromUtf8Error, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::internals::time::millis_text;
use hatchery_admin::Until;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{
    exit::{Ended, Exit},
    server::{Declined, Server},
};

/// The largest payload that is read. The server knows the limit of its file.
pub(super) const LARGEST: usize = 64 * 1024 * 1024;

/// The event as the server takes it.
#[derive(Default, Serialize)]
pub(super) struct Sent<'a> {
    pub(super) r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) payload_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) nbf: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) correlation_id: Option<&'a str>,
}

/// The answer of the server.
#[derive(Deserialize)]
pub(super) struct Answered {
    pub(super) id: String,
    #[serde(default)]
    pub(super) unversioned: bool,
}

pub(super) async fn publish(server: &Server, event: &Sent<'_>) -> anyhow::Result<Answered> {
    let published = server.post("/v1/events", event).await;
    published.map_err(|error: anyhow::Error| {
        let answered = error.downcast_ref::<Declined>().and_then(|declined| declined.answered.as_ref());
        match answered.and_then(|problem| problem.id.as_deref()) {
            Some(id) => Ended::new(Exit::of(&error).0, format!("{error}; publish it again with --id {id}")).into(),
            None => error,
        }
    })
}

impl Sent<'_> {
    /// Sets the payload: JSON as the text that it is, other bytes in base64, and none if it is empty.
    pub(super) fn with_payload(mut self, payload: Vec<u8>) -> Self {
        let json = String::from_utf8(payload).map_err(FromUtf8Error::into_bytes);
        match json.and_then(|text| RawValue::from_string(text.clone()).map_err(|_| text.into_bytes())) {
            Ok(json) => self.payload = Some(json),
            Err(bytes) if bytes.is_empty() => {}
            Err(bytes) => self.payload_base64 = Some(BASE64_STANDARD.encode(bytes)),
        }
        self
    }
}

/// Returns an expiry as the server reads it.
pub(super) fn expiry(expires: Until) -> String {
    match expires {
        Until::At(time) => millis_text(time),
        Until::After(after) => millis(after),
    }
}

/// Returns a duration as the server reads it.
pub(super) fn millis(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}
