//! What a worker shows of itself over HTTP: its metrics, and whether it has a broker.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::{Router, http::StatusCode, routing::get};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

/// An open port.
pub(super) struct Listener {
    port: TcpListener,
    metrics: PrometheusHandle,
}

/// Opens the port, and begins to count.
pub(super) async fn open(address: SocketAddr) -> anyhow::Result<Listener> {
    let port = TcpListener::bind(address).await.with_context(|| format!("--listen: cannot listen at {address}"))?;
    let metrics = PrometheusBuilder::new().install_recorder().context("--listen: somebody else counts already")?;
    Ok(Listener { port, metrics })
}

impl Listener {
    /// Answers until the handle is dropped.
    pub(super) fn serve(self, has_broker: impl Fn() -> bool + Clone + Send + Sync + 'static) -> AbortOnDropHandle<()> {
        let Self { port, metrics } = self;
        let health = async move || {
            if has_broker() {
                (StatusCode::OK, "connected\n")
            } else {
                (StatusCode::SERVICE_UNAVAILABLE, "not connected to the broker\n")
            }
        };
        let metrics = async move || ([("content-type", "text/plain; version=0.0.4")], metrics.render());
        let routes = Router::new().route("/metrics", get(metrics)).route("/healthz", get(health));
        AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(error) = axum::serve(port, routes).await {
                tracing::warn!(%error, "--listen: nothing is answered any more");
            }
        }))
    }
}
