//! Connections to a service, with TLS and without, its URL, and the password in it.

use std::{collections::BTreeSet, io, net::SocketAddr, sync::Arc};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::NewEvent;
use rstest::rstest;
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

use super::service::{Peer, Service, refusing, says, worker, worker_with};
use crate::support::{
    broker::{PASSWORD, eventually},
    certificates::Authority,
    declared::{Declared, publish},
    process::Place,
};

#[tokio::test]
async fn requests_reuse_their_connections() {
    const EVENTS: usize = 300;
    const CONCURRENCY: usize = 4;
    let declared = Declared::new("types: { job: { prefetch: 20, concurrency: 4 } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|_| says(200, "noted")).await;
    let events = (0..EVENTS).map(|n| NewEvent::new("job", n.to_string())).collect();
    assert!(hatchery.publisher().publish_batch(events).await.iter().all(Result::is_ok));
    let worker = worker(&place, &service.url());
    let asked = service.reach(EVENTS).await;
    assert_eq!(worker.stop().await["done"], EVENTS);
    let payloads: BTreeSet<_> = asked.iter().map(|asked| &asked.body).collect();
    assert_eq!((asked.len(), payloads.len()), (EVENTS, EVENTS), "not every event was sent exactly once");
    let connections: BTreeSet<_> = asked.iter().map(|asked| asked.peer).collect();
    // A connection that is returned to the pool a moment late is replaced by a new one.
    assert!(connections.len() <= 3 * CONCURRENCY, "{} connections", connections.len());
}

#[tokio::test]
async fn a_password_in_a_url_is_sent_and_never_shown() {
    let declared = Declared::new("types: { job: { retry: { delays: [50ms], max-attempts: 1 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|_| says(204, "")).await;
    let secret = |address| format!("http://ann:{PASSWORD}%40@{address}/job?token={PASSWORD}");

    let reached = worker(&place, &secret(service.address));
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let asked = service.reach(1).await.remove(0);
    let expected = format!("Basic {}", BASE64_STANDARD.encode(format!("ann:{PASSWORD}@")));
    assert_eq!(asked.header("authorization"), expected);
    assert_eq!(asked.uri, format!("/job?token={PASSWORD}"));
    reached.stop().await;

    // An error about an unreachable service shows no password either.
    let (address, _socket) = refusing();
    let refused = worker(&place, &secret(address));
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let why = format!("no answer from http://{address}: ");
    eventually("the worker says why it waits", async || {
        place.lines("log").iter().any(|line| line.contains(&why)).then_some(())
    })
    .await;
    refused.stop().await;
    let log = place.lines("log").join("\n");
    assert!(!log.contains(PASSWORD), "{log}");
}

#[tokio::test]
async fn a_services_url_is_read_from_a_file() {
    let declared = Declared::new("types: { job: {} }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let service = Service::start(|_| says(204, "")).await;
    place.write("url", &format!("{}\n", service.url()));
    let worker = worker(&place, "@url");
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    service.reach(1).await;
    worker.stop().await;
}

#[rstest]
#[case::no_url("not a url")]
#[case::no_host("http://")]
#[case::other_scheme("ftp://u:s3cret-hunter2@host/")]
#[case::no_port("http://u:s3cret-hunter2@host:99999/")]
#[case::no_scheme("localhost:8080/job?token=s3cret-hunter2")]
#[tokio::test]
async fn an_invalid_url_is_a_usage_error_and_shows_no_password(#[case] url: &str) {
    let declared = Declared::new("types: { job: {} }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    publish(&hatchery, NewEvent::new("job", "{}")).await;
    let ended = place.run(&mut place.command(&["work", "--type", "job", "--http", url])).await.expect(2);
    assert!(ended.stderr.starts_with("error: --http: not the URL of a service: "), "{ended:?}");
    assert!(!ended.stderr.contains(PASSWORD), "{ended:?}");
    let message = declared.amqp().await.take(&declared.processing("job")).await;
    assert!(!message.redelivered, "the event was delivered to a worker without a service");
}

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
