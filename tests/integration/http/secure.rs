//! Services behind TLS.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use hatchery::NewEvent;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring::default_provider,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
    server::TlsStream,
};

use super::service::{Peer, Service, says, worker_with};
use crate::support::{
    broker::eventually,
    certificates::Authority,
    declared::{Declared, publish},
    process::Place,
};

/// Accepts TLS connections. A client that does not trust the certificate fails in the handshake and is ignored.
struct Secure(TcpListener, TlsAcceptor);

impl Listener for Secure {
    type Io = TlsStream<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, peer) = self.0.accept().await.unwrap();
            if let Ok(stream) = self.1.accept(stream).await {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, Secure>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Secure>) -> Self {
        Self(*stream.remote_addr())
    }
}

/// Returns a listener with a certificate for 127.0.0.1 that this authority has issued.
async fn secure(authority: &Authority) -> Secure {
    let certificate = authority.issue("service", &["127.0.0.1"]);
    let chain = CertificateDer::pem_file_iter(certificate.chain).unwrap().collect::<Result<_, _>>().unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, PrivateKeyDer::from_pem_file(certificate.key).unwrap())
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    Secure(listener, TlsAcceptor::from(Arc::new(config)))
}

#[tokio::test]
async fn an_event_waits_for_a_service_whose_certificate_is_trusted() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let (authority, another) = (Authority::new(), Authority::new());
    let service = Service::on(secure(&authority).await, |_| says(204, ""));
    let url = format!("https://{}/job", service.address);

    for (trusted, reached) in [(another, false), (authority, true)] {
        let worker = worker_with(&place, &url, &["--http-ca", trusted.file().to_str().unwrap()]);
        publish(&hatchery, NewEvent::new("job", "{}")).await;
        if reached {
            assert!(service.reach(2).await.iter().all(|asked| asked.attempts() == 0));
        } else {
            let why = format!("no answer from https://{}: its certificate is not trusted", service.address);
            eventually("the worker says why it waits", async || {
                place.lines("log").iter().any(|line| line.contains(&why)).then_some(())
            })
            .await;
            assert!(service.asked().is_empty());
        }
        assert_eq!(worker.stop().await["done"], if reached { 2 } else { 0 });
    }
}

#[tokio::test]
async fn a_ca_file_without_certificates_fails_before_the_first_delivery() {
    let declared = Declared::new("types: { job: {} }").await;
    let place = Place::new(&declared);
    place.write("ca.pem", "nothing");
    for (path, why) in [("ca.pem", "there is no certificate in PEM"), ("none.pem", "cannot read none.pem")] {
        let arguments = ["work", "--type", "job", "--http", "https://localhost/", "--http-ca", path];
        let ended = place.run(&mut place.command(&arguments)).await.expect(1);
        assert!(ended.stderr.contains(why), "{ended:?}");
    }
}
