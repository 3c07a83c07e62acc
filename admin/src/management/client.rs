//! Sends the requests, repeats those that fail for a moment, and translates errors.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use backon::{ExponentialBuilder, Retryable as _};
use hatchery::internals::{reason::cut_reason, secret_url::SecretUrl, tls};
use reqwest::{Method, RequestBuilder, StatusCode};
use rustls::ClientConfig;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use super::{ManagementUrl, url::shown};
use crate::management::ManagementError;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The time limit of a call. The largest answers are all queues, all bindings, or a page of 500 queues with their
/// statistics.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The largest page that the API allows.
const PAGE_SIZE: &str = "500";

/// Delays between repeated calls. RabbitMQ answers 500 if a queue is deleted while it makes the list (measured on
/// 3.10), and may close an idle connection just as the next call is sent (measured on 4.3). Every call here may be
/// repeated.
const AGAIN: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(100)).with_max_times(4);

/// The longest answer in bytes, or the longest list over all its pages. A thousand types are some ten thousand queues
/// with four times as many bindings, which take 20 MB with every statistic that RabbitMQ 3.10 has. A much longer answer
/// does not come from RabbitMQ, or comes from a proxy that never ends it.
const LONGEST: usize = 256 << 20;

/// The most pages of a list: half a million queues. The number of pages is taken from the answer, so it needs a bound.
const MOST_PAGES: u64 = 1_000;

const IS_IT: &str = "is this RabbitMQ's management API?";

/// Why a call failed, to decide whether it is repeated.
enum CallFailure {
    Broker((StatusCode, Vec<u8>)),
    Network(reqwest::Error),
    TooLong,
}

impl CallFailure {
    /// Whether the same call may succeed a moment later. A refused connection, a time limit and a TLS error do not
    /// change that soon.
    fn may_pass(&self) -> bool {
        match self {
            Self::Broker(_) => true,
            Self::Network(error) => !error.is_connect() && !error.is_timeout() && tls::explain(error).is_none(),
            Self::TooLong => false,
        }
    }
}

pub(super) struct Client {
    url: ManagementUrl,
    /// The index of the node that answered last.
    asked: AtomicUsize,
    http: reqwest::Client,
    longest: usize,
}

/// A page of a list. RabbitMQ versions that do not page this list return it whole.
#[derive(Deserialize)]
#[serde(untagged)]
enum Page<T> {
    Part { items: Vec<T>, page_count: u64 },
    Whole(Vec<T>),
}

impl Client {
    pub(super) fn new(url: ManagementUrl) -> Result<Self, ManagementError> {
        // Building a client panics without a crypto provider. If the process has installed another one already, that
        // one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let unreachable = |reason| ManagementError::Unreachable { url: url.to_string(), reason };
        let builder = reqwest::Client::builder().connect_timeout(CONNECT_TIMEOUT).timeout(TIMEOUT);
        let builder = if url.nodes.iter().any(|node| node.scheme() == "https") {
            let tls = url.tls.client().map_err(|error| unreachable(error.to_string()))?;
            builder.tls_backend_preconfigured(ClientConfig::clone(&tls))
        } else {
            // Without TLS the system's certificates are not needed, and a small container has none.
            builder.tls_certs_only([])
        };
        let http = builder.build().map_err(|error| unreachable(cause(&error)))?;
        Ok(Self { url, asked: AtomicUsize::new(0), http, longest: LONGEST })
    }

    pub(super) fn shown(&self) -> String {
        self.url.to_string()
    }

    /// Gets a list or an object.
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, ManagementError> {
        self.get_with(path, &[]).await
    }

    /// Gets a list or an object with query parameters.
    pub(super) async fn get_with<T: DeserializeOwned>(
        &self,
        path: &[&str],
        query: &[(&str, &str)],
    ) -> Result<T, ManagementError> {
        self.decode(path, &self.send(|node| self.request(node, Method::GET, path, query), path).await?)
    }

    /// Gets the answer of a health check, which has the status 503 if the check fails.
    pub(super) async fn check<T: DeserializeOwned>(&self, path: &[&str]) -> Result<T, ManagementError> {
        match self.answer(|node| self.request(node, Method::GET, path, &[]), path).await? {
            (StatusCode::SERVICE_UNAVAILABLE, body) => self.decode(path, &body),
            answer => self.decode(path, &self.good(answer, path)?),
        }
    }

    /// Gets a list page by page. RabbitMQ makes the whole list for each page and adds statistics to the items of that
    /// page only, so this is for lists with statistics.
    pub(super) async fn pages<T: DeserializeOwned>(
        &self,
        path: &[&str],
        more: &[(&str, &str)],
    ) -> Result<Vec<T>, ManagementError> {
        let (mut all, mut bytes) = (Vec::new(), 0);
        for page in 1..=MOST_PAGES {
            let page_text = page.to_string();
            let mut query = vec![("page", page_text.as_str()), ("page_size", PAGE_SIZE)];
            query.extend(more);
            let body = self.send(|node| self.request(node, Method::GET, path, &query), path).await?;
            bytes += body.len();
            if bytes > self.longest {
                return Err(self.too_long(self.shown(), path));
            }
            match self.decode(path, &body)? {
                Page::Whole(items) => return Ok(items),
                Page::Part { items, page_count } => {
                    all.extend(items);
                    if page >= page_count {
                        return Ok(all);
                    }
                }
            }
        }
        let reason = format!("the list has more than {MOST_PAGES} pages, which are not read; {IS_IT}");
        Err(ManagementError::Unexpected { url: self.shown(), what: path[0].to_owned(), reason })
    }

    pub(super) async fn put(&self, path: &[&str], body: &Value) -> Result<(), ManagementError> {
        self.send(|node| self.request(node, Method::PUT, path, &[]).json(body), path).await.map(drop)
    }

    /// Deletes an object. One that does not exist is no error.
    pub(super) async fn delete(&self, path: &[&str]) -> Result<(), ManagementError> {
        match self.answer(|node| self.request(node, Method::DELETE, path, &[]), path).await? {
            (StatusCode::NOT_FOUND, _) => Ok(()),
            answer => self.good(answer, path).map(drop),
        }
    }

    fn request(&self, node: &SecretUrl, method: Method, path: &[&str], query: &[(&str, &str)]) -> RequestBuilder {
        let mut url = node.bare().clone();
        // Each segment is percent-encoded: the virtual host `/` is `%2F`.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push("api").extend(path);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.http.request(method, url).basic_auth(node.user(), Some(node.password().unwrap_or_default()))
    }

    /// Sends a request and returns the body of a successful answer.
    async fn send(
        &self,
        request: impl Fn(&SecretUrl) -> RequestBuilder,
        path: &[&str],
    ) -> Result<Vec<u8>, ManagementError> {
        self.good(self.answer(request, path).await?, path)
    }

    /// Returns the answer of the first node that gives one, beginning with the node that answered last.
    async fn answer(
        &self,
        request: impl Fn(&SecretUrl) -> RequestBuilder,
        path: &[&str],
    ) -> Result<(StatusCode, Vec<u8>), ManagementError> {
        let nodes = &self.url.nodes;
        let first = self.asked.load(Ordering::Relaxed);
        let mut reasons = Vec::new();
        for turn in 0..nodes.len() {
            let asked = (first + turn) % nodes.len();
            let node = &nodes[asked];
            match self.ask(|| request(node)).await {
                Ok(answer) | Err(CallFailure::Broker(answer)) => {
                    self.asked.store(asked, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(CallFailure::TooLong) => return Err(self.too_long(shown(node), path)),
                Err(CallFailure::Network(error)) => {
                    let reason = self.reason(node, &error);
                    reasons.push(if nodes.len() == 1 { reason } else { format!("{}: {reason}", shown(node)) });
                }
            }
        }
        Err(ManagementError::Unreachable { url: self.url.to_string(), reason: reasons.join("; ") })
    }

    fn too_long(&self, url: String, path: &[&str]) -> ManagementError {
        let reason = format!("the answer has more than {} MiB, which is not read; {IS_IT}", self.longest >> 20);
        ManagementError::Unexpected { url, what: path[0].to_owned(), reason }
    }

    fn reason(&self, node: &SecretUrl, error: &reqwest::Error) -> String {
        let reason = cause(error);
        let has_connected = !error.is_connect() && !error.is_timeout();
        if has_connected && node.scheme() == "https" && tls::explain(error).is_none() {
            return format!("{reason}; {}", self.url.tls.doubt());
        }
        // A server that expects TLS answers with an alert, or not at all.
        if has_connected && node.scheme() == "http" && error.is_request() {
            return format!("{reason}; if this is a port for TLS, the URL begins with https://");
        }
        reason
    }

    async fn ask(&self, request: impl Fn() -> RequestBuilder) -> Result<(StatusCode, Vec<u8>), CallFailure> {
        let call = async || {
            let mut answer = request().send().await.map_err(CallFailure::Network)?;
            let status = answer.status();
            let mut body = Vec::new();
            while let Some(chunk) = answer.chunk().await.map_err(CallFailure::Network)? {
                if body.len() + chunk.len() > self.longest {
                    return Err(CallFailure::TooLong);
                }
                body.extend_from_slice(&chunk);
            }
            if status.is_server_error() { Err(CallFailure::Broker((status, body))) } else { Ok((status, body)) }
        };
        match call.retry(AGAIN).when(CallFailure::may_pass).await {
            Err(CallFailure::Broker(answer)) => Ok(answer),
            answer => answer,
        }
    }

    fn good(&self, (status, body): (StatusCode, Vec<u8>), path: &[&str]) -> Result<Vec<u8>, ManagementError> {
        let url = self.url.to_string();
        if status.is_success() {
            return Ok(body);
        }
        let what = path[0].to_owned();
        let said = said(&body).map(|said| format!(", {said}")).unwrap_or_default();
        let reason = format!("{}{said}", status.as_u16());
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                // The user name is not repeated: it may be a password in the wrong place.
                let hint = "check the user, the password, and the user's permissions in the virtual host; the user needs the tag \
                            `policymaker` (for `status`, `monitoring` is enough)";
                ManagementError::Refused { url, what, reason: format!("{reason}; {hint}") }
            }
            StatusCode::NOT_FOUND => {
                let vhost = path.get(1).unwrap_or(&"/");
                ManagementError::Refused { url, what, reason: format!("{reason}; is there a virtual host `{vhost}`?") }
            }
            _ => ManagementError::Unexpected { url, what, reason },
        })
    }

    fn decode<T: DeserializeOwned>(&self, path: &[&str], body: &[u8]) -> Result<T, ManagementError> {
        // RabbitMQ 4.0 may give a queue that changes two members `state` (seen once in a migration). A derived
        // `Deserialize` refuses that, and a `Value` takes the last one.
        serde_json::from_slice::<Value>(body).and_then(serde_json::from_value).map_err(|error| {
            ManagementError::Unexpected {
                url: self.url.to_string(),
                what: path[0].to_owned(),
                // The parser's message may repeat a text of the answer, so it is cut.
                reason: format!("{}; {IS_IT}", cut_reason(&error.to_string())),
            }
        })
    }
}

/// Returns the reason in RabbitMQ's answer, cut to the length of a reason.
fn said(body: &[u8]) -> Option<String> {
    let value: Value = serde_json::from_slice(body).ok()?;
    let text = value.get("reason").or_else(|| value.get("error"))?;
    let text = text.as_str().map_or_else(|| text.to_string(), str::to_owned);
    Some(cut_reason(&text).to_owned())
}

/// Describes the cause of a network error, time limits included.
fn cause(error: &reqwest::Error) -> String {
    if error.is_timeout() && tls::explain(error).is_none() {
        return format!("no answer within {} s", if error.is_connect() { CONNECT_TIMEOUT } else { TIMEOUT }.as_secs());
    }
    tls::cause(error)
}

#[derive(Deserialize)]
pub(super) struct Name {
    pub(super) name: String,
}

#[derive(Deserialize)]
pub(super) struct Named<T> {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) rest: T,
}

#[cfg(test)]
mod tests {
    use hatchery::internals::rabbitmq::connection::AmqpUrl;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// Answers one call after another with these, and closes the connection instead if an answer is empty. The client
    /// may make one more call than there are answers.
    async fn ask(answers: &[&str]) -> Result<Vec<Value>, ManagementError> {
        ask_for(answers).await
    }

    async fn ask_for<T: DeserializeOwned>(answers: &[&str]) -> Result<T, ManagementError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://u:p@{}", listener.local_addr().expect("an address"));
        let serve = async {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a call");
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    request.push(stream.read_u8().await.expect("a request"));
                }
                if answer.is_empty() {
                    continue;
                }
                // The client may have closed the connection after the part that it read.
                let _ = stream.write_all(format!("HTTP/1.1 {answer}").as_bytes()).await;
            }
            std::future::pending::<()>().await;
        };
        let url = ManagementUrl::new(&url, &AmqpUrl::new("amqp://h").expect("a URL")).expect("a URL");
        let client = Client { longest: 1 << 20, ..Client::new(url).expect("a client") };
        tokio::select! {
            () = serve => unreachable!("it waits for ever"),
            list = client.get(&["queues", "/"]) => list,
        }
    }

    const BAD: &str = "500 Internal Server Error\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
    const GOOD: &str = "200 OK\r\ncontent-length: 3\r\nconnection: close\r\n\r\n[1]";

    #[tokio::test]
    async fn a_call_is_repeated_after_an_internal_error() {
        assert_eq!(ask(&[BAD, BAD, GOOD]).await.expect("the list"), [1]);
    }

    #[tokio::test]
    async fn a_member_that_is_there_twice_has_its_last_value() {
        #[derive(serde::Deserialize)]
        struct Queue {
            state: String,
        }

        let body = r#"[{"state": "running", "name": "a", "state": "stopped"}]"#;
        let answer = format!("200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
        let queues: Vec<Queue> = ask_for(&[&answer]).await.expect("the list");
        assert_eq!(queues[0].state, "stopped");
    }

    #[tokio::test]
    async fn a_lasting_internal_error_is_reported() {
        let error = ask(&[BAD; 5]).await.expect_err("it stays");
        assert!(matches!(&error, ManagementError::Unexpected { reason, .. } if reason == "500"), "{error:?}");
    }

    const CUT_SHORT: &str = "200 OK\r\ncontent-length: 9\r\nconnection: close\r\n\r\n[1";

    #[tokio::test]
    async fn a_call_whose_connection_is_closed_is_repeated() {
        assert_eq!(ask(&["", GOOD]).await.expect("the list"), [1]);
        assert_eq!(ask(&[CUT_SHORT, "", GOOD]).await.expect("the list"), [1]);
        let error = ask(&[""; 5]).await.expect_err("it stays");
        assert!(matches!(&error, ManagementError::Unreachable { .. }), "{error:?}");
        // A port for TLS closes the connection too.
        assert!(error.to_string().contains("if this is a port for TLS, the URL begins with https://"), "{error}");
    }

    #[tokio::test]
    async fn a_long_answer_is_not_repeated_whole_in_an_error() {
        let body = |status: &str, body: String| {
            format!("{status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
        };
        let long = "x".repeat(100_000);
        let refused = body("400 Bad Request", format!("{{\"reason\": \"{long}\"}}"));
        let no_list = body("200 OK", format!("\"{long}\""));
        for answer in [refused, no_list] {
            let error = ask(&[&answer]).await.expect_err("no list").to_string();
            assert!(error.contains("xxx") && error.len() < 1_500, "{} bytes", error.len());
        }
    }

    /// Requests pages from a peer that gives each call this answer. Returns the result and the number of calls.
    async fn pages(page: &str) -> (Result<Vec<Value>, ManagementError>, usize) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://u:p@{}", listener.local_addr().expect("an address"));
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{page}", page.len());
        let calls = AtomicUsize::new(0);
        let serve = async {
            let (mut stream, _) = listener.accept().await.expect("a call");
            let mut request = Vec::new();
            loop {
                request.push(stream.read_u8().await.expect("a request"));
                if request.ends_with(b"\r\n\r\n") {
                    request.clear();
                    assert!(calls.fetch_add(1, Ordering::Relaxed) < 2_000, "the client asks on and on");
                    stream.write_all(answer.as_bytes()).await.expect("a reader");
                }
            }
        };
        let url = ManagementUrl::new(&url, &AmqpUrl::new("amqp://h").expect("a URL")).expect("a URL");
        let client = Client { longest: 1 << 20, ..Client::new(url).expect("a client") };
        let list = tokio::select! {
            () = serve => unreachable!("it serves for ever"),
            list = client.pages(&["queues", "/"], &[]) => list,
        };
        (list, calls.load(Ordering::Relaxed))
    }

    #[tokio::test]
    async fn the_pages_of_a_list_have_a_limit_together() {
        let (list, calls) = pages(&format!("{{\"items\": [\"{}\"], \"page_count\": 9}}", "x".repeat(300 << 10))).await;
        let error = list.expect_err("too long").to_string();
        assert!(error.contains("queues: the answer has more than 1 MiB") && calls == 4, "{calls} calls: {error}");
        let (list, calls) = pages(&format!("{{\"items\": [1], \"page_count\": {}}}", u64::MAX)).await;
        let error = list.expect_err("too many").to_string();
        assert!(
            error.contains("queues: the list has more than 1000 pages") && calls == 1_000,
            "{calls} calls: {error}"
        );
        assert_eq!(pages("{\"items\": [1], \"page_count\": 3}").await.0.expect("the list"), [1, 1, 1]);
    }

    #[tokio::test]
    async fn an_answer_that_does_not_end_is_not_read_to_the_end() {
        let long = |bytes: usize| format!("200 OK\r\nconnection: close\r\n\r\n[{}1]", " ".repeat(bytes - 3));
        assert_eq!(ask(&[&long(1 << 20)]).await.expect("the list"), [1]);
        let error = ask(&[&long((1 << 20) + 1)]).await.expect_err("too long").to_string();
        assert!(error.contains("queues: the answer has more than 1 MiB"), "{error}");
    }
}
