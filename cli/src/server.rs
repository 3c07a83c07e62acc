//! A server of the API, `topology dev` or `topology serve`, that a verb asks instead of the broker.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use futures_util::{Stream, TryStreamExt as _, stream};
use hatchery::internals::{
    bounded_file,
    secret_url::{SecretUrl, UrlText},
    tls::cause,
};
use hatchery_admin::batch::{AnsweredLine, ChangedEvents};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{
    Client, RequestBuilder, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER},
    redirect::Policy,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use crate::args::{Common, UsageError, shown};

/// How long a connection may take to be set up.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long an answer may take: a request for the status waits for others for a minute, and then takes twelve seconds.
const ANSWER: Duration = Duration::from_secs(90);
/// How long the answers to a batch or a replay may take: the server works on it for up to five minutes.
const LONG: Duration = Duration::from_mins(6);

/// A server, and the right to ask it.
pub(crate) struct Server {
    client: Client,
    url: SecretUrl,
    token: Option<String>,
}

/// Why a server did not carry out a request.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(crate) struct Declined {
    why: String,
    /// The server's answer. None if no answer has come.
    pub(crate) answered: Option<Problem>,
    /// Whether nothing of the request has reached it, or it was not carried out for now, and may be repeated after this time.
    again: Option<Duration>,
}

/// Why a request was not carried out, as the server says it.
#[derive(Debug, Deserialize)]
pub(crate) struct Problem {
    #[serde(rename = "status")]
    code: u16,
    detail: String,
    /// The id of the event.
    pub(crate) id: Option<String>,
    /// How many events were published before the failure.
    #[serde(default)]
    done: u64,
    /// Whether somebody else holds what the request needs.
    #[serde(default)]
    locked: bool,
    /// The events that were found and could not be changed.
    changed: Option<ChangedEvents>,
}

impl Declined {
    /// Returns the events that were found and could not be changed.
    pub(crate) fn changed(&mut self) -> Option<ChangedEvents> {
        self.answered.as_mut()?.changed.take()
    }

    /// Whether the server knows nothing of this name.
    pub(crate) fn is_unknown(&self) -> bool {
        self.answered.as_ref().is_some_and(|problem| problem.code == StatusCode::NOT_FOUND)
    }

    /// Whether the request conflicts with what there is.
    pub(crate) fn is_conflict(&self) -> bool {
        self.answered.as_ref().is_some_and(|problem| problem.code == StatusCode::CONFLICT)
    }

    /// Whether a part of the request was carried out.
    pub(crate) fn is_partly_done(&self) -> bool {
        self.answered.as_ref().is_some_and(|problem| problem.done > 0)
    }

    /// Whether somebody else holds what the request needs.
    pub(crate) fn is_locked(&self) -> bool {
        self.answered.as_ref().is_some_and(|problem| problem.locked)
    }

    /// Whether the server, or what it needs, did not answer, or refused access.
    pub(crate) fn is_unreachable(&self) -> bool {
        let refused = [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
        ];
        self.answered.as_ref().is_none_or(|problem| {
            problem.code >= StatusCode::INTERNAL_SERVER_ERROR.as_u16()
                || refused.iter().any(|code| problem.code == *code)
        })
    }
}

impl Server {
    /// Returns the server that the arguments name, if any.
    pub(crate) fn named(common: &Common) -> anyhow::Result<Option<Self>> {
        let url = common.server.as_ref().map(UrlText::secret).filter(|url| !url.is_empty());
        url.map(|url| Self::new(url, common.token_file.as_deref())).transpose()
    }

    /// Refuses the flags of a verb that no server has a counterpart of, each with whether it is given.
    pub(crate) fn refuse(flags: &[(&str, bool)]) -> Result<(), UsageError> {
        match flags.iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => {
                Err(UsageError(format!("no server takes {flag}: leave it out, or leave --server (TOPOLOGY_URL) out")))
            }
            None => Ok(()),
        }
    }

    /// Reads the URL and the token. Connects at the first request.
    fn new(url: &str, token_file: Option<&Path>) -> anyhow::Result<Self> {
        let wrong = |fault| UsageError(format!("--server (TOPOLOGY_URL): not the URL of a server: {fault}"));
        let url = SecretUrl::parse(url.trim(), &["http", "https"]).map_err(|fault| wrong(fault.to_string()))?;
        let token = token_file.map(|path| {
            let token = bounded_file::read_text(path, bounded_file::SMALL);
            let name = || format!("--token-file (TOPOLOGY_TOKEN_FILE): cannot read {}", shown(&path.to_string_lossy()));
            token.map(|text| text.trim().to_owned()).with_context(name)
        });
        let builder = Client::builder().connect_timeout(CONNECTING).timeout(ANSWER).redirect(Policy::none());
        // Without TLS the system's certificates are not needed, and a small container has none.
        let builder = if url.scheme() == "http" { builder.tls_certs_only([]) } else { builder };
        let client =
            builder.build().map_err(|error| anyhow::anyhow!("no client for {}: {}", url.origin(), cause(&error)))?;
        Ok(Self { client, url, token: token.transpose()? })
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.ask(self.client.get(self.at(path))).await
    }

    /// Asks with a query, of which fields that are `None` are left out.
    pub(crate) async fn find<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, Option<String>)],
    ) -> anyhow::Result<T> {
        let mut fields = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in query {
            if let Some(value) = value {
                fields.append_pair(name, value);
            }
        }
        self.get(&format!("{path}?{}", fields.finish())).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        let body = serde_json::to_string(body)?;
        self.ask(self.client.post(self.at(path)).header(CONTENT_TYPE, "application/json").body(body)).await
    }

    /// Sends a request that may take minutes.
    pub(crate) async fn post_long<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> anyhow::Result<T> {
        let body = serde_json::to_string(body)?;
        let request = self.client.post(self.at(path)).header(CONTENT_TYPE, "application/json").body(body);
        self.ask(request.timeout(LONG)).await
    }

    /// Returns the types of the file that use the register.
    pub(crate) async fn registered(&self) -> anyhow::Result<Vec<String>> {
        #[derive(Deserialize)]
        struct Topology {
            types: Vec<Type>,
        }
        #[derive(Deserialize)]
        struct Type {
            r#type: String,
            register: bool,
        }
        let Topology { types } = self.get("/v1/topology").await?;
        Ok(types.into_iter().filter(|of| of.register).map(|of| of.r#type).collect())
    }

    /// Sends lines of a batch, and returns the answers to them as they come. What the server does not take for now is sent again
    /// until `patience` is over.
    pub(crate) fn batch(
        &self,
        lines: Vec<u8>,
        patience: Duration,
    ) -> impl Stream<Item = anyhow::Result<AnsweredLine>> + Send + '_ {
        let begun = async move {
            let until = Instant::now() + patience;
            let answer = loop {
                let request = self.client.post(self.at("/v1/events")).header(CONTENT_TYPE, "application/x-ndjson");
                match self.answer(request.body(lines.clone()).timeout(LONG)).await {
                    Ok(answer) => break answer,
                    Err(declined) => match declined.again {
                        Some(after) if Instant::now() + after < until => sleep(after).await,
                        _ => return Err(declined.into()),
                    },
                }
            };
            Ok::<_, anyhow::Error>(stream::try_unfold(
                (answer, Vec::new()),
                async move |(mut answer, mut text): (Response, Vec<u8>)| {
                    loop {
                        if let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                            let line = self.read(&text[..end])?;
                            text.drain(..=end);
                            return Ok(Some((line, (answer, text))));
                        }
                        match answer.chunk().await.map_err(|error| self.away(error, None))? {
                            Some(part) => text.extend_from_slice(&part),
                            None => return Ok(None),
                        }
                    }
                },
            ))
        };
        stream::once(begun).try_flatten()
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.bare().as_str().trim_end_matches('/'))
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        let body = self.answer(request).await?.bytes().await.map_err(|error| self.away(error, None))?;
        self.read(&body)
    }

    fn read<T: DeserializeOwned>(&self, json: &[u8]) -> anyhow::Result<T> {
        let other = || format!("the answer of {} is of another version", self.url.origin());
        serde_json::from_slice(json).with_context(other)
    }

    /// Sends a request, and returns the answer of a request that was carried out.
    async fn answer(&self, request: RequestBuilder) -> Result<Response, Declined> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let answer = request.send().await.map_err(|error| {
            let again = error.is_connect().then_some(SOON);
            self.away(error, again)
        })?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let is_for_now = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE].contains(&status);
        let again = is_for_now.then(|| after(answer.headers()));
        let body = answer.bytes().await.map_err(|error| self.away(error, again))?;
        let problem = serde_json::from_slice(&body).unwrap_or_else(|_| Problem {
            code: status.as_u16(),
            detail: format!("{} answers {status}, and is no server of this API", self.url.origin()),
            id: None,
            done: 0,
            locked: false,
            changed: None,
        });
        Err(Declined { why: problem.detail.clone(), answered: Some(problem), again })
    }

    fn away(&self, error: reqwest::Error, again: Option<Duration>) -> Declined {
        let why = format!("no answer from {}: {}", self.url.origin(), cause(&error.without_url()));
        Declined { why, answered: None, again }
    }
}

/// Returns a text as a segment of a path.
pub(crate) fn segment(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

/// Turns the answer that a name is unknown into wrong usage, as verbs that ask the broker itself have it for names of the file.
pub(crate) fn unknown_is_usage(error: anyhow::Error) -> anyhow::Error {
    if error.downcast_ref().is_some_and(Declined::is_unknown) { UsageError(error.to_string()).into() } else { error }
}

/// How long to wait before a request is repeated, if the server does not say.
const SOON: Duration = Duration::from_secs(1);

/// Returns after which time a request may be repeated.
fn after(headers: &HeaderMap) -> Duration {
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    seconds.map_or(SOON, Duration::from_secs)
}
