//! Serves a worker's metrics and health over HTTP. A worker is healthy if its last attempt to connect to the
//! broker succeeded.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

use anyhow::Context as _;
use axum::{Router, http::StatusCode, routing::get};
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
    async fn bind(&self) -> std::io::Result<TcpListener> {
        if let Some(host) = &self.host {
            return TcpListener::bind((host.as_str(), self.port)).await;
        }
        // A socket for IPv6 takes IPv4 as well; a host without IPv6 gets the second one.
        let all = [(Ipv6Addr::UNSPECIFIED, self.port).into(), (Ipv4Addr::UNSPECIFIED, self.port).into()];
        TcpListener::bind(&all[..] as &[SocketAddr]).await
    }
}

/// The open port, and the metrics to serve on it.
pub(super) struct Listener {
    port: TcpListener,
    metrics: PrometheusHandle,
}

/// Opens the port and installs the metrics recorder. Fails if the port is taken or a recorder is installed already.
pub(super) async fn open(address: &Address) -> anyhow::Result<Listener> {
    let port = address.bind().await.with_context(|| format!("--listen: cannot listen at {address}"))?;
    let metrics =
        PrometheusBuilder::new().install_recorder().context("--listen: a metrics recorder is already installed")?;
    Ok(Listener { port, metrics })
}

impl Listener {
    /// Serves `/metrics` and `/healthz` until the handle is dropped.
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
                tracing::warn!(%error, "--listen: the HTTP server has stopped");
            }
        }))
    }
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
