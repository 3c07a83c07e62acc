//! A TCP relay in front of a server, which a test may cut, close or silence.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};
use tokio_util::task::AbortOnDropHandle;
use url::Url;

/// Relays bytes in both directions until a test cuts the connections.
pub(crate) struct Relay {
    /// The server's URL with the relay's port.
    pub(crate) url: String,
    open: Arc<Mutex<Vec<JoinHandle<()>>>>,
    accepted: Arc<AtomicU32>,
    closed: Arc<AtomicBool>,
    silenced: watch::Sender<()>,
    _accepting: AbortOnDropHandle<()>,
}

impl Relay {
    pub(crate) async fn to(url: &str) -> Self {
        let mut url = Url::parse(url).unwrap();
        let target = (url.host_str().unwrap().to_owned(), url.port().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        url.set_host(Some("127.0.0.1")).unwrap();
        url.set_port(Some(listener.local_addr().unwrap().port())).unwrap();
        let open = Arc::new(Mutex::new(Vec::new()));
        let accepted = Arc::new(AtomicU32::new(0));
        let closed = Arc::new(AtomicBool::new(false));
        let silenced = watch::Sender::new(());
        let by = silenced.clone();
        let accepting = accept(listener, target, Arc::clone(&open), Arc::clone(&accepted), Arc::clone(&closed), by);
        let accepting = AbortOnDropHandle::new(tokio::spawn(accepting));
        Self { url: url.into(), open, accepted, closed, silenced, _accepting: accepting }
    }

    /// Aborts every connection. New ones are accepted.
    pub(crate) fn cut(&self) {
        for connection in self.open.lock().unwrap().drain(..) {
            connection.abort();
        }
    }

    /// Aborts every connection, and every new one at once.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.cut();
    }

    /// Stops relaying on the open connections without closing them. New connections are relayed.
    pub(crate) fn silence(&self) {
        self.silenced.send_replace(());
    }

    /// Accepts new connections again.
    pub(crate) fn open(&self) {
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Returns how many connections have been relayed so far.
    pub(crate) fn accepted(&self) -> u32 {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn accept(
    listener: TcpListener,
    target: (String, u16),
    open: Arc<Mutex<Vec<JoinHandle<()>>>>,
    accepted: Arc<AtomicU32>,
    closed: Arc<AtomicBool>,
    silenced: watch::Sender<()>,
) {
    loop {
        let (mut client, _) = listener.accept().await.unwrap();
        if closed.load(Ordering::SeqCst) {
            continue;
        }
        let target = target.clone();
        let mut silenced = silenced.subscribe();
        let connection = tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(target).await {
                let relayed = tokio::io::copy_bidirectional(&mut client, &mut server);
                if tokio::select! { _ = relayed => false, _ = silenced.changed() => true } {
                    // Keep both sockets open.
                    std::future::pending::<()>().await;
                }
            }
        });
        open.lock().unwrap().push(connection);
        accepted.fetch_add(1, Ordering::SeqCst);
    }
}
