//! Serves metrics and probes over HTTP: those of a worker, and of the server of the API.
//!
//! - `/livez`: 200 while the process answers, also while the broker or Redis is away: a restart would not help.
//! - `/readyz`: 200 while the worker consumes the queues of all its types, or the broker takes the server's messages; else 503.
//! - `/metrics`: the metrics of the library, in Prometheus's text format.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use anyhow::Context as _;
use axum::{Router, http::StatusCode, routing::get};
use futures_util::future::BoxFuture;
use hatchery::CancellationToken;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// The address to listen at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// `None` means all interfaces.
    host: Option<String>,
    port: u16,
}

/// The text is not an address.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("write it as HOST:PORT, such as localhost:9464, or :PORT for all interfaces")]
pub(super) struct AddressError;

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (host, port) = text.rsplit_once(':').ok_or(AddressError)?;
        let port = port.parse().map_err(|_| AddressError)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Ok(Self { host: Some(host.to_owned()).filter(|host| !host.is_empty()), port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Some(host) if host.contains(':') => write!(f, "[{host}]:{}", self.port),
            host => write!(f, "{}:{}", host.as_deref().unwrap_or_default(), self.port),
        }
    }
}

impl Address {
    pub(super) async fn bind(&self) -> std::io::Result<TcpListener> {
        if let Some(host) = &self.host {
            return TcpListener::bind((host.as_str(), self.port)).await;
        }
        // A socket for IPv6 takes IPv4 as well; a host without IPv6 gets the second one.
        let all = [(Ipv6Addr::UNSPECIFIED, self.port).into(), (Ipv4Addr::UNSPECIFIED, self.port).into()];
        TcpListener::bind(&all[..] as &[SocketAddr]).await
    }
}

/// The upper bounds of the histograms' buckets, in seconds: from the confirm of a message to the lateness of an event that
/// has waited for an hour.
pub(super) const BUCKETS: [f64; 18] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];

/// How often the recorder sorts the values of histograms into their buckets. Until then it keeps each of them.
const UPKEEP: Duration = Duration::from_secs(5);

/// Tells whether the process is ready.
type IsReady = Box<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// The HTTP server. It ends when this is dropped.
pub(super) struct Listening {
    readiness: Arc<OnceLock<IsReady>>,
    _server: AbortOnDropHandle<()>,
    _upkeep: AbortOnDropHandle<()>,
}

/// Installs the metrics recorder and begins to serve at the address of this option. Fails if the port is taken or a recorder is
/// installed already.
pub(super) async fn open(address: &Address, option: &str) -> anyhow::Result<Listening> {
    let port = address.bind().await.with_context(|| format!("{option}: cannot listen at {address}"))?;
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?;
    let metrics =
        recorder.install_recorder().with_context(|| format!("{option}: a metrics recorder is already installed"))?;
    let readiness = Arc::<OnceLock<IsReady>>::default();
    let routes = routes(metrics.clone(), Arc::clone(&readiness));
    let server = AbortOnDropHandle::new(tokio::spawn(async {
        hatchery_serve::accept(port, routes, CancellationToken::new()).await;
    }));
    let upkeep = AbortOnDropHandle::new(tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP).await;
            metrics.run_upkeep();
        }
    }));
    Ok(Listening { readiness, _server: server, _upkeep: upkeep })
}

impl Listening {
    /// Answers `/readyz` as this function tells from now on. Before that the answer is no.
    pub(super) fn begin(&self, is_ready: impl Fn() -> BoxFuture<'static, bool> + Send + Sync + 'static) {
        // The first one counts, and there is one.
        let _ = self.readiness.set(Box::new(is_ready));
    }
}

fn routes(metrics: PrometheusHandle, readiness: Arc<OnceLock<IsReady>>) -> Router {
    let ready = move || {
        let asked = readiness.get().map(|is_ready| is_ready());
        async move {
            let is_ready = match asked {
                Some(asked) => asked.await,
                None => false,
            };
            if is_ready { (StatusCode::OK, "ready\n") } else { (StatusCode::SERVICE_UNAVAILABLE, "not ready\n") }
        }
    };
    let metrics = async move || ([("content-type", "text/plain; version=0.0.4")], metrics.render());
    let live = async || "alive\n";
    Router::new().route("/metrics", get(metrics)).route("/livez", get(live)).route("/readyz", get(ready))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("127.0.0.1:0")]
    #[case("[::1]:0")]
    #[case(":0")]
    #[tokio::test]
    async fn an_address_may_be_an_ip_with_a_port_or_a_port_alone(#[case] text: &str) {
        let address: Address = text.parse().expect("an address");
        assert_eq!(address.to_string(), text);
        // The machine may have no IPv6.
        let bound = address.bind().await;
        assert!(bound.is_ok() || text.starts_with('['), "{bound:?}");
    }

    #[rstest]
    #[case("9464")]
    #[case("localhost")]
    #[case("localhost:http")]
    #[case("localhost:70000")]
    fn a_text_without_a_valid_port_is_no_address(#[case] text: &str) {
        assert_eq!(text.parse::<Address>(), Err(AddressError));
    }
}
