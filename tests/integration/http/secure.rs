//! Services that are reached by TLS.

use std::{io, net::SocketAddr, sync::Arc};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use hatchery::NewEvent;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring::default_provider,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
    server::TlsStream,
};

use super::service::{Peer, Service, says, worker_with};
use crate::support::{
    amqp::shown,
    declared::{Declared, publish},
    process::Place,
};

/// Takes connections by TLS. Who does not trust it is not let in, and does no harm.
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

/// A listener with a certificate for 127.0.0.1, and its authority in PEM.
async fn secure() -> (Secure, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (Secure(listener, TlsAcceptor::from(Arc::new(config))), authority.pem())
}

#[tokio::test]
async fn only_a_service_that_is_trusted_is_told_anything() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let (listener, authority) = secure().await;
    let service = Service::on(listener, |_| says(204, ""));
    let url = format!("https://{}/job", service.address);
    let (_, another) = secure().await;

    for (other, reached) in [(another, false), (authority, true)] {
        let path = place.write("ca.pem", &other);
        let worker = worker_with(&place, &url, &["--http-ca", path.to_str().unwrap()]);
        publish(&hatchery, NewEvent::new("job", "{}")).await;
        if reached {
            service.reach(1).await;
        } else {
            let letter = declared.amqp().await.take(&declared.dead_letters("job")).await;
            let reason = shown(&letter, "reason").unwrap();
            assert!(reason.contains("invalid peer certificate: "), "{reason}");
            assert!(service.asked().is_empty());
        }
        assert_eq!(worker.stop().await["done"], u64::from(reached));
    }
}

#[tokio::test]
async fn a_file_without_certificates_is_found_out_before_the_first_delivery() {
    let declared = Declared::new("types: { job: {} }").await;
    let place = Place::new(&declared);
    place.write("ca.pem", "nothing");
    for (path, why) in [("ca.pem", "there is no certificate in PEM"), ("none.pem", "cannot read none.pem")] {
        let arguments = ["work", "--type", "job", "--http", "https://localhost/", "--http-ca", path];
        let ended = place.run(&mut place.command(&arguments)).await.expect(1);
        assert!(ended.stderr.contains(why), "{ended:?}");
    }
}
