//! A server of the API, `topology dev` or `topology serve`, that a verb asks instead of the broker.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use hatchery::internals::{
    bounded_file,
    secret_url::{SecretUrl, UrlText},
    tls::cause,
};
use reqwest::{Client, RequestBuilder, StatusCode, redirect::Policy};
use serde::{Deserialize, de::DeserializeOwned};

use crate::{
    args::{Common, UsageError, shown},
    exit::{Ended, Exit},
};

/// How long a connection may take to be set up.
const CONNECTING: Duration = Duration::from_secs(5);
/// How long an answer may take: a request for the status waits for others for a minute, and then takes twelve seconds.
const ANSWER: Duration = Duration::from_secs(90);
/// The longest token in bytes.
const TOKEN: u32 = 1;

/// A server, and the right to ask it.
pub(crate) struct Server {
    client: Client,
    url: SecretUrl,
    token: Option<String>,
}

/// Why a request was not carried out, as the server says it.
#[derive(Deserialize)]
struct Problem {
    detail: String,
    id: Option<String>,
}

impl Server {
    /// Returns the server that the arguments name, if any.
    pub(crate) fn named(common: &Common) -> anyhow::Result<Option<Self>> {
        let url = common.server.as_ref().map(UrlText::secret).filter(|url| !url.is_empty());
        url.map(|url| Self::new(url, common.token_file.as_deref())).transpose()
    }

    /// Reads the URL and the token. Connects at the first request.
    fn new(url: &str, token_file: Option<&Path>) -> anyhow::Result<Self> {
        let wrong = |fault| UsageError(format!("--server (TOPOLOGY_URL): not the URL of a server: {fault}"));
        let url = SecretUrl::parse(url.trim(), &["http", "https"]).map_err(|fault| wrong(fault.to_string()))?;
        let token = token_file.map(|path| {
            let token = bounded_file::read_text(path, TOKEN);
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

    pub(crate) async fn post<T: DeserializeOwned>(&self, path: &str, body: String) -> anyhow::Result<T> {
        self.ask(self.client.post(self.at(path)).header("content-type", "application/json").body(body)).await
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url.bare().as_str().trim_end_matches('/'))
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> anyhow::Result<T> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let at = self.url.origin();
        let away = |error: reqwest::Error| {
            Ended::new(Exit::Unreachable, format!("no answer from {at}: {}", cause(&error.without_url())))
        };
        let answer = request.send().await.map_err(away)?;
        let status = answer.status();
        let body = answer.bytes().await.map_err(away)?;
        if status.is_success() {
            return serde_json::from_slice(&body).with_context(|| format!("the answer of {at} is of another version"));
        }
        let is_refused = [
            StatusCode::UNAUTHORIZED,
            StatusCode::FORBIDDEN,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::TOO_MANY_REQUESTS,
        ]
        .contains(&status);
        let exit = if is_refused || status.is_server_error() { Exit::Unreachable } else { Exit::Error };
        let message = match serde_json::from_slice::<Problem>(&body) {
            Ok(Problem { detail, id: Some(id) }) => format!("{detail}; publish it again with --id {id}"),
            Ok(Problem { detail, id: None }) => detail,
            Err(_) => format!("{at} answers {status}, and is no server of this API"),
        };
        Err(Ended::new(exit, message).into())
    }
}
