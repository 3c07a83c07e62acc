//! Accepts connections, and serves the requests of each, one after the other. Ends slow ones, and all at a stop.

use std::{pin::pin, sync::Arc, time::Duration};

use axum::{Router, serve::Listener};
use hatchery::CancellationToken;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;

use crate::{patient::Patient, work::Work};

/// How many connections are served at a time, each with one request; further ones wait to be accepted.
const CONNECTIONS: usize = 1_024;
/// How long a client may take to send the headers of a request, and how long a connection may have no request.
const HEADERS: Duration = Duration::from_secs(30);
/// How many bytes the headers of a request may have.
const BUFFER: usize = 64 * 1024;
/// After this time a connection gets no further request: a client that reads slowly would keep it.
const LIFE: Duration = Duration::from_mins(5);
/// How long the last request of a connection may take. A batch may be read for five minutes.
const LAST: Duration = Duration::from_mins(6);
/// How long a stop waits for requests. Kubernetes kills after 30 s.
const DRAIN: Duration = Duration::from_secs(25);

/// Serves until the stop, and then until the requests under way have their answers, and what they change is changed.
pub(crate) async fn serve(listener: TcpListener, routes: Router, work: Work, stop: CancellationToken) {
    let connections = accept(listener, routes, stop).await;
    connections.close();
    let ended = async {
        connections.wait().await;
        // The clients of some have gone away.
        work.ended().await;
    };
    if timeout(DRAIN, ended).await.is_err() {
        let (requests, changes) = (connections.len(), work.under_way());
        tracing::warn!(requests, changes, "the server stops before it has answered all requests");
    }
}

/// Serves until the stop. Returns the connections that are still open. None waits to be accepted: the socket is closed.
pub async fn accept(mut listener: TcpListener, routes: Router, stop: CancellationToken) -> TaskTracker {
    let (connections, free) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let next = async {
            // Nobody closes the semaphore.
            let place = Arc::clone(&free).acquire_owned().await.ok();
            (place, Listener::accept(&mut listener).await.0)
        };
        let Some((place, stream)) = stop.run_until_cancelled(next).await else { return connections };
        let (routes, stop) = (routes.clone(), stop.clone());
        connections.spawn(async move {
            connection(stream, routes, stop).await;
            drop(place);
        });
    }
}

async fn connection(stream: TcpStream, routes: Router, stop: CancellationToken) {
    // The answers of a batch are small.
    let _ = stream.set_nodelay(true);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEADERS).max_buf_size(BUFFER);
    let mut serving = pin!(http.serve_connection(TokioIo::new(Patient::new(stream)), TowerToHyperService::new(routes)));
    let ended = tokio::select! {
        ended = serving.as_mut() => Some(ended),
        () = stop.cancelled() => None,
        () = sleep(LIFE) => None,
    };
    let ended = if let Some(ended) = ended {
        Ok(ended)
    } else {
        serving.as_mut().graceful_shutdown();
        timeout(LAST, serving).await
    };
    if let Ok(Err(error)) = ended {
        tracing::debug!(%error, "a connection has ended");
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn half_a_request_keeps_no_connection() {
        let port = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = port.local_addr().expect("an address");
        let routes = Router::new().route("/livez", get(async || "alive\n"));
        tokio::spawn(accept(port, routes, CancellationToken::new()));
        let mut client = TcpStream::connect(address).await.expect("it listens");
        client.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET /li").await.expect("sent");
        let mut answer = [0; 256];
        let read = client.read(&mut answer).await.expect("an answer");
        assert!(answer[..read].starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&answer));
        // From here on the time passes as soon as nothing else happens.
        tokio::time::pause();
        assert_eq!(timeout(HEADERS * 2, client.read(&mut answer)).await.expect("it ends").unwrap_or(0), 0);
    }
}
