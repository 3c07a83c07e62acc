//! An HTTP service that records the requests of a worker.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{ConnectInfo, Request, connect_info::Connected},
    http::{HeaderMap, Method},
    response::Response,
    serve::{IncomingStream, Listener},
};
use jiff::Timestamp;
use tokio::net::{TcpListener, TcpSocket};
use tokio_util::task::AbortOnDropHandle;

use crate::support::{
    broker::eventually,
    process::{Place, Process},
};

/// One recorded request.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) uri: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// The client's end of the connection.
    pub(super) peer: SocketAddr,
    pub(super) at: Timestamp,
}

impl Asked {
    /// Returns a header as it was sent, or an empty text without one.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("visible ASCII"))
    }

    /// Returns how often the event had failed before.
    pub(super) fn attempts(&self) -> u32 {
        self.header("event-attempts").parse().unwrap()
    }
}

/// The address of the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, TcpListener>> for Peer {
    fn connect_info(stream: IncomingStream<'_, TcpListener>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// A running service. It ends when this value is dropped, and so do its connections.
pub(super) struct Service {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    _serving: AbortOnDropHandle<()>,
}

impl Service {
    pub(super) async fn start(answer: impl Fn(&Asked) -> Response + Clone + Send + Sync + 'static) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), answer)
    }

    pub(super) fn on<L: Listener<Addr = SocketAddr>>(
        listener: L,
        answer: impl Fn(&Asked) -> Response + Clone + Send + Sync + 'static,
    ) -> Self
    where
        for<'a> Peer: Connected<IncomingStream<'a, L>>,
    {
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<Asked>>>::default();
        let notes = Arc::clone(&asked);
        let handle = async move |ConnectInfo(Peer(peer)): ConnectInfo<Peer>, request: Request| {
            let (parts, body) = request.into_parts();
            let asked = Asked {
                method: parts.method,
                uri: parts.uri.to_string(),
                headers: parts.headers,
                body: to_bytes(body, usize::MAX).await.unwrap(),
                peer,
                at: Timestamp::now(),
            };
            let answer = answer(&asked);
            notes.lock().unwrap().push(asked);
            answer
        };
        let app = Router::new().fallback(handle).into_make_service_with_connect_info::<Peer>();
        let serving = async move { axum::serve(listener, app).await.unwrap() };
        Self { address, asked, _serving: AbortOnDropHandle::new(tokio::spawn(serving)) }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/job", self.address)
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until this many requests have come, and returns all.
    pub(super) async fn reach(&self, count: usize) -> Vec<Asked> {
        eventually(&format!("{count} requests have come"), async || {
            Some(self.asked()).filter(|asked| asked.len() >= count)
        })
        .await
    }
}

/// Returns an address that refuses connections until its socket listens.
pub(super) fn refusing() -> (SocketAddr, TcpSocket) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    (socket.local_addr().unwrap(), socket)
}

/// Returns an answer.
pub(super) fn says(status: u16, body: impl Into<Body>) -> Response {
    Response::builder().status(status).body(body.into()).unwrap()
}

/// Returns an answer with one header and no body.
pub(super) fn says_with(status: u16, name: &str, value: &str) -> Response {
    Response::builder().status(status).header(name, value).body(Body::empty()).unwrap()
}

/// Starts a worker on `job` that sends its events to this URL. Its log goes to the file `log`.
pub(super) fn worker(place: &Place<'_>, url: &str) -> Process {
    worker_with(place, url, &[])
}

/// Starts the same worker with more arguments.
pub(super) fn worker_with(place: &Place<'_>, url: &str, arguments: &[&str]) -> Process {
    let arguments = [&["-o", "json", "-vv", "work", "--type", "job", "--http", url], arguments].concat();
    let mut command = place.command(&arguments);
    let log = std::fs::File::options().create(true).append(true).open(place.path("log")).unwrap();
    command.stderr(log);
    Process::spawn(command)
}
