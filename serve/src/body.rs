//! Reads the body of a request, within limits of its length and of its time.

use std::{fmt, time::Duration};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::Request,
    http::{
        HeaderMap, StatusCode,
        header::{CONTENT_LENGTH, CONTENT_TYPE},
    },
};
use futures_util::StreamExt as _;
use hatchery::internals::words::unless_url;
use serde::{
    Deserialize as _, Deserializer,
    de::{DeserializeOwned, Error as _},
};
use tokio::time::timeout;

use crate::{answer::JSON, problem::Problem, room::Taken};

/// How long a body may take.
const LONGEST: Duration = Duration::from_secs(30);

/// How many bytes of a body that is too long are read and dropped.
const REST: usize = 1024 * 1024;
/// How long they are read.
const MOMENT: Duration = Duration::from_secs(1);

/// Returns the media type of the body, in lower case and without its parameters.
pub(crate) fn media_type(headers: &HeaderMap) -> Option<String> {
    let text = headers.get(CONTENT_TYPE)?.to_str().ok()?;
    Some(text.split(';').next()?.trim().to_ascii_lowercase())
}

/// Fails unless the body is JSON. A page of another site cannot send that type without being asked by its browser first.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    match media_type(headers).as_deref() {
        Some(JSON) => Ok(()),
        _ => Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "send `content-type: application/json`")),
    }
}

/// Returns the length that the headers give, if they give one. Fails if it is above the limit.
pub(crate) fn length(headers: &HeaderMap, most: usize) -> Result<Option<usize>, Problem> {
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > most) { Err(too_large(most)) } else { Ok(length) }
}

/// Reads a request whose body is JSON.
pub(crate) async fn json<T: DeserializeOwned>(request: Request, most: usize) -> Result<T, Problem> {
    let (head, body) = request.into_parts();
    require_json(&head.headers)?;
    length(&head.headers, most)?;
    let body = read(body, most).await?;
    // serde takes the values of an array for the fields, in the order of the code.
    if !body.trim_ascii_start().starts_with(b"{") {
        return Err(Problem::bad("not a JSON object"));
    }
    serde_json::from_slice(&body).map_err(|error| Problem::bad(unless_url(&error.to_string())))
}

/// Reads a request whose body is JSON, or is empty.
pub(crate) async fn json_or_nothing<T: DeserializeOwned + Default>(
    request: Request,
    most: usize,
) -> Result<T, Problem> {
    if request.body().is_end_stream() { Ok(T::default()) } else { json(request, most).await }
}

/// Reads a whole number. JSON does not tell 2.0 from 2.
pub(crate) fn whole<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: TryFrom<u32, Error: fmt::Display>,
{
    let Some(number) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    let whole: u32 = number.to_string().parse().map_err(|error| D::Error::custom(format!("{error}: `{number}`")))?;
    T::try_from(whole).map(Some).map_err(D::Error::custom)
}

/// Reads a body to its end.
pub(crate) async fn read(body: Body, most: usize) -> Result<Vec<u8>, Problem> {
    in_time(body, most, None).await
}

/// Reads a body to its end, which takes room as it comes: a client that sends slowly keeps none from others.
pub(crate) async fn read_into(room: &mut Taken, body: Body, most: usize) -> Result<Vec<u8>, Problem> {
    let body = in_time(body, most, Some(room)).await?;
    room.hold(body.len()).await?;
    Ok(body)
}

async fn parts(body: Body, most: usize, mut room: Option<&mut Taken>) -> Result<Vec<u8>, Problem> {
    let (mut parts, mut read) = (body.into_data_stream(), Vec::new());
    while let Some(part) = parts.next().await {
        let part: Bytes =
            part.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("the body cannot be read: {error}")))?;
        if part.len() > most - read.len() {
            return Err(too_large(most));
        }
        if let Some(room) = &mut room {
            room.hold_part(read.len() + part.len()).await?;
        }
        read.extend_from_slice(&part);
    }
    Ok(read)
}

async fn in_time(body: Body, most: usize, room: Option<&mut Taken>) -> Result<Vec<u8>, Problem> {
    let late = || {
        let detail = format!("the body takes longer than {} s", LONGEST.as_secs());
        Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
    };
    timeout(LONGEST, parts(body, most, room)).await.map_err(|_| late())?
}

/// Reads on for a moment, and drops what it reads. A client that still sends when the connection is closed does not read the answer.
pub(crate) async fn drop_rest(body: Body) {
    let (mut parts, mut left) = (body.into_data_stream(), REST);
    let dropping = async {
        while let Some(Ok(part)) = parts.next().await {
            left = left.saturating_sub(part.len());
            if left == 0 {
                return;
            }
        }
    };
    let _ = timeout(MOMENT, dropping).await;
}

fn too_large(most: usize) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body has more than {most} bytes"))
}
