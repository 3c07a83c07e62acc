//! A TCP relay in front of a server, which a test may cut, close, silence or slow down.

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
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
    /// The most bytes that the server sends in a second; 0 means any number.
    pace: Arc<AtomicU32>,
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
        let (by, pace) = (silenced.clone(), Arc::<AtomicU32>::default());
        let to = (target, Arc::clone(&pace));
        let accepting = accept(listener, to, Arc::clone(&open), Arc::clone(&accepted), Arc::clone(&closed), by);
        let accepting = AbortOnDropHandle::new(tokio::spawn(accepting));
        Self { url: url.into(), open, accepted, closed, silenced, pace, _accepting: accepting }
    }

    /// Lets new connections receive at most this many bytes in a second.
    pub(crate) fn slow(&self, bytes: u32) {
        self.pace.store(bytes, Ordering::SeqCst);
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
    (target, pace): ((String, u16), Arc<AtomicU32>),
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
        let (target, pace) = (target.clone(), pace.load(Ordering::SeqCst));
        let mut silenced = silenced.subscribe();
        let connection = tokio::spawn(async move {
            if let Ok(mut server) = TcpStream::connect(target).await {
                let relayed = async {
                    if pace > 0 {
                        slowly(&mut client, &mut server, pace).await;
                    } else {
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                };
                if tokio::select! { () = relayed => false, _ = silenced.changed() => true } {
                    // Keep both sockets open.
                    std::future::pending::<()>().await;
                }
            }
        });
        open.lock().unwrap().push(connection);
        accepted.fetch_add(1, Ordering::SeqCst);
    }
}

/// Relays until one of both closes, and passes on at most so many of the server's bytes in a second.
async fn slowly(client: &mut TcpStream, server: &mut TcpStream, pace: u32) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
    let down = async {
        let mut bytes = vec![0; 16 << 10];
        loop {
            let read = from_server.read(&mut bytes).await?;
            if read == 0 {
                return io::Result::Ok(());
            }
            sleep(Duration::from_secs(1) * u32::try_from(read).unwrap() / pace).await;
            to_client.write_all(&bytes[..read]).await?;
        }
    };
    tokio::select! { _ = down => (), _ = tokio::io::copy(&mut from_client, &mut to_server) => () }
}
