//! A RabbitMQ with TLS, whose settings a test may change: started once a test process, and used by one test at a time.

use std::fs;

use tokio::sync::{Mutex, MutexGuard};
use url::Url;

use super::{
    broker::VirtualHost,
    certificates::{Authority, Certificate},
    held::Held,
    redis::free_port,
};

/// The largest message that RabbitMQ takes since 4.0, where nobody says otherwise.
pub(crate) const USUAL: usize = 16 << 20;

pub(crate) struct Private {
    held: Held,
    amqps: u16,
    https: u16,
    pub(crate) authority: Authority,
    /// The only kind of client that is let in by TLS.
    pub(crate) client: Certificate,
    /// A setting is perhaps not what it was.
    is_changed: bool,
}

/// The server, until the test is over.
pub(crate) async fn broker() -> MutexGuard<'static, Private> {
    static STARTED: Mutex<Option<&'static Mutex<Private>>> = Mutex::const_new(None);
    let mut started = STARTED.lock().await;
    let private = match *started {
        Some(private) => private,
        None => started.insert(Box::leak(Box::new(Mutex::new(Private::start())))),
    };
    drop(started);
    let mut private = private.lock().await;
    // A test that failed has left it as it was.
    if std::mem::take(&mut private.is_changed) {
        private.limit(USUAL);
        private.unblock();
        private.is_changed = false;
    }
    private
}

impl Private {
    fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (authority, amqps, https) = (Authority::new(), free_port(), free_port());
        let (server, client) = (authority.issue("server", &["127.0.0.1"]), authority.issue("client", &[]));
        let files = |prefix: &str| {
            let path = |path: &std::path::Path| path.display().to_string();
            format!(
                "{prefix}.cacertfile = {}\n{prefix}.certfile = {}\n{prefix}.keyfile = {}\n{prefix}.verify = verify_peer\n\
                 {prefix}.fail_if_no_peer_cert = true\n",
                path(&authority.file()),
                path(&server.chain),
                path(&server.key)
            )
        };
        let settings = format!(
            "listeners.ssl.local = 127.0.0.1:{amqps}\nmanagement.ssl.ip = 127.0.0.1\nmanagement.ssl.port = {https}\n{}{}",
            files("ssl_options"),
            files("management.ssl")
        );
        let conf = authority.file().with_file_name("rabbitmq.conf");
        fs::write(&conf, settings).unwrap();

        Self { held: Held::start(Some(&conf)), amqps, https, authority, client, is_changed: false }
    }

    /// The URL of who may do everything, which leads to the default virtual host.
    pub(crate) fn administrator(&self) -> String {
        self.held.administrator()
    }

    /// A virtual host of its own.
    pub(crate) fn host(&self) -> VirtualHost {
        self.held.host()
    }

    /// A virtual host's AMQP over TLS. Its certificate is for the address: a bare system does not know the name `localhost`.
    pub(crate) fn amqps(&self, host: &VirtualHost) -> String {
        let url = Url::parse(&format!("amqps://127.0.0.1:{}", self.amqps)).unwrap();
        host.with_user(&url, &host.name)
    }

    /// Its management API over TLS.
    pub(crate) fn https(&self, host: &VirtualHost) -> String {
        host.with_user(&Url::parse(&format!("https://127.0.0.1:{}", self.https)).unwrap(), "")
    }

    /// Runs `rabbitmqctl`.
    pub(crate) fn ctl(&mut self, arguments: &str) {
        self.held.ctl(arguments);
    }

    /// The largest message that it takes, on channels that are opened from now on.
    pub(crate) fn limit(&mut self, bytes: usize) {
        self.is_changed = true;
        self.ctl(&format!("eval application:set_env(rabbit,max_message_size,{bytes})."));
        self.ctl(&format!("eval persistent_term:put(max_message_size,{bytes})."));
    }

    /// Blocks all who publish, as it does when it runs out of memory.
    pub(crate) fn block(&mut self) {
        self.is_changed = true;
        self.ctl("set_vm_memory_high_watermark 0.0000001");
    }

    pub(crate) fn unblock(&mut self) {
        self.ctl("set_vm_memory_high_watermark 0.4");
    }
}
