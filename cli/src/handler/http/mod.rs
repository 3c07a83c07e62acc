//! A handler that calls an HTTP service: it posts the payload with the fields as headers, and reads the outcome from
//! the status and the body.

mod headers;
mod outcome;
mod url;

use std::time::Duration;

use async_trait::async_trait;
use hatchery::{Handler, Outcome, Run, internals::tls};
use reqwest::{
    Certificate, Client, Response,
    header::{LOCATION, RETRY_AFTER},
    redirect::Policy,
};

use self::outcome::{Answer, End};
pub use self::url::ServiceUrl;

/// The most bytes of a body that are read. If there are more, the connection is closed.
const BODY: usize = 64 * 1024;

/// How long an idle connection is kept: less than the 5 s after which many servers close one. A request that meets this
/// close fails, and costs an attempt.
const IDLE: Duration = Duration::from_secs(4);

/// How long a connection to the service may take to be set up: its name, TCP and TLS. A service that does not answer by then
/// is away. A shorter `handler-timeout` makes a failure of that, because it does not tell how far a run has come.
const CONNECTING: Duration = Duration::from_secs(5);

/// A service that is called for each event. Connections are kept; there are never more of them than running handlers.
#[derive(Clone, Debug)]
pub struct Http {
    client: Client,
    url: ServiceUrl,
}

/// The error for a client that cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("no client for {url}: {reason}")]
pub struct HttpError {
    url: String,
    reason: String,
}

impl Http {
    /// Creates a client, which connects at its first request. It trusts the certificate authorities of the system.
    ///
    /// # Errors
    /// When the URL is an `https` one and this machine trusts no certificate authority.
    pub fn new(url: ServiceUrl) -> Result<Self, HttpError> {
        Self::build(url, Vec::new())
    }

    /// Creates a client that trusts these certificate authorities too: certificates in PEM, one after the other.
    ///
    /// # Errors
    /// When there is no certificate, or one cannot be read.
    pub fn trusting(url: ServiceUrl, authorities: &[u8]) -> Result<Self, HttpError> {
        match Certificate::from_pem_bundle(authorities) {
            Ok(certificates) if !certificates.is_empty() => Self::build(url, certificates),
            Ok(_) => Err(HttpError { url: url.to_string(), reason: "there is no certificate in PEM".to_owned() }),
            Err(error) => Err(HttpError { url: url.to_string(), reason: tls::cause(&error) }),
        }
    }

    fn build(url: ServiceUrl, authorities: Vec<Certificate>) -> Result<Self, HttpError> {
        // Building a client panics without a crypto provider. If the process has installed another one already, that
        // one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A request has no time limit, because the worker has one for every handler.
        let builder = Client::builder()
            .connect_timeout(CONNECTING)
            .redirect(Policy::none())
            .pool_idle_timeout(IDLE)
            .user_agent(concat!("hatchery/", env!("CARGO_PKG_VERSION")));
        let builder = if url.0.scheme() == "http" {
            // Without TLS the system's certificates are not needed, and a small container has none.
            builder.tls_certs_only(authorities)
        } else {
            builder.tls_certs_merge(authorities)
        };
        match builder.build() {
            Ok(client) => Ok(Self { client, url }),
            Err(error) => Err(HttpError { url: url.to_string(), reason: tls::cause(&error) }),
        }
    }

    async fn ask(&self, run: &Run) -> Result<Answer, reqwest::Error> {
        let headers = headers::headers(&run.event, run.fence);
        let mut request = self.client.post(self.url.0.bare().clone()).headers(headers).body(run.event.payload.clone());
        if self.url.0.has_credentials() {
            request = request.basic_auth(self.url.0.user(), self.url.0.password());
        }
        Ok(read(request.send().await?).await)
    }
}

#[async_trait]
impl Handler for Http {
    async fn handle(&self, run: Run) -> Outcome {
        let answer = tokio::select! {
            biased;
            answer = self.ask(&run) => answer,
            // The request is dropped, which closes its connection.
            () = run.cancelled() => return Outcome::retry("cancelled"),
        };
        match answer {
            Ok(answer) => outcome::outcome(&answer, run.now()),
            Err(error) => {
                // Without a connection the service knows nothing of the event. Once it is sent, it may have been handled.
                let is_away = error.is_connect();
                let reason = format!("no answer from {}: {}", self.url, tls::cause(&error.without_url()));
                if is_away { Outcome::unavailable(reason) } else { Outcome::retry(reason) }
            }
        }
    }
}

/// Reads an answer, in bounded memory.
async fn read(mut response: Response) -> Answer {
    let header =
        |name| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let (retry_after, location) = (header(RETRY_AFTER), header(LOCATION));
    let (status, mut body) = (response.status(), Vec::new());
    let end = loop {
        match response.chunk().await {
            Ok(None) => break End::Whole,
            Ok(Some(chunk)) if body.len() + chunk.len() > BODY => {
                body.extend_from_slice(&chunk[..BODY - body.len()]);
                break End::Cut;
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Err(error) => break End::Broken(tls::cause(&error)),
        }
    };
    Answer { status, retry_after, location, body, end }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handler::tests::run;

    #[test]
    fn neither_a_client_nor_its_error_shows_a_password() {
        let url = || ServiceUrl::new("http://u:s3cret@host/s3cret?token=s3cret").expect("valid");
        let client = Http::new(url()).expect("a client");
        let error = HttpError { url: url().to_string(), reason: "x".into() };
        assert!(!format!("{client:?} {error:?} {error}").contains("s3cret"));
    }

    #[tokio::test]
    async fn a_service_that_refuses_connections_is_away() {
        // The port is bound, so that no other process gets it, and nothing listens on it.
        let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
        socket.bind("127.0.0.1:0".parse().expect("an address")).expect("a port");
        let port = socket.local_addr().expect("an address").port();
        let url = ServiceUrl::new(&format!("http://localhost:{port}/")).expect("valid");
        let ended = Http::new(url).expect("a client").handle(run("")).await;
        let Outcome::Unavailable { reason: why } = ended else { panic!("{ended:?}") };
        assert!(why.starts_with("no answer from http://localhost:"), "{why}");
    }

    #[test]
    fn an_invalid_certificate_is_reported() {
        let url = || ServiceUrl::new("https://host/").expect("valid");
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for text in ["", "nothing", broken] {
            let error = Http::trusting(url(), text.as_bytes()).expect_err("no certificate").to_string();
            assert!(error.starts_with("no client for https://host: "), "{error}");
        }
    }
}
