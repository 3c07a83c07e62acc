//! A RabbitMQ with TLS, whose settings a test may change. It is started once per test process, and one test at a time
//! uses it.

use std::fs;

use tokio::sync::{Mutex, MutexGuard};
use url::Url;

use super::{
    broker::VirtualHost,
    certificates::{Authority, Certificate},
    held::Held,
    redis::free_port,
};

/// The largest message that RabbitMQ takes by default since 4.0, in bytes.
pub(crate) const USUAL: usize = 16 << 20;

pub(crate) struct Private {
    held: Held,
    amqps: u16,
    https: u16,
    pub(crate) authority: Authority,
    /// The client certificate, without which TLS lets nobody in.
    pub(crate) client: Certificate,
    /// Whether a test may have changed a setting.
    is_changed: bool,
}

/// Returns the server for the use of one test, until the guard is dropped.
pub(crate) async fn broker() -> MutexGuard<'static, Private> {
    static STARTED: Mutex<Option<&'static Mutex<Private>>> = Mutex::const_new(None);
    let mut started = STARTED.lock().await;
    let private = match *started {
        Some(private) => private,
        None => started.insert(Box::leak(Box::new(Mutex::new(Private::start())))),
    };
    drop(started);
    let mut private = private.lock().await;
    // A test that failed has not reset its settings.
    if std::mem::take(&mut private.is_changed) {
        private.limit(USUAL).await;
        private.unblock().await;
        private.wait_for_acknowledgements("1800000").await;
        private.is_changed = false;
    }
    private
}

/// Returns the `rabbitmq.conf` of `docs/how-to/tls.md`.
fn documented_settings() -> &'static str {
    let (_, block) = include_str!("../../../docs/how-to/tls.md").split_once("```ini\n").unwrap();
    block.split_once("```").unwrap().0
}

impl Private {
    fn start() -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (authority, amqps, https) = (Authority::new(), free_port(), free_port());
        let (server, client) = (authority.issue("server", &["127.0.0.1"]), authority.issue("client", &[]));
        let settings = documented_settings()
            .replace("default = 5671", &format!("default = 127.0.0.1:{amqps}"))
            .replace("port = 15671", &format!("port = {https}\nmanagement.ssl.ip = 127.0.0.1"))
            .replace("/etc/tls/ca.pem", &authority.file().display().to_string())
            .replace("/etc/tls/server.crt", &server.chain.display().to_string())
            .replace("/etc/tls/server.key", &server.key.display().to_string());
        let conf = authority.file().with_file_name("rabbitmq.conf");
        fs::write(&conf, settings).unwrap();

        Self { held: Held::start(Some(&conf)), amqps, https, authority, client, is_changed: false }
    }

    /// Creates a virtual host on this broker.
    pub(crate) fn host(&self) -> VirtualHost {
        self.held.host()
    }

    /// Returns the URL for AMQP over TLS to a virtual host. It has the address of the certificate: a bare system cannot
    /// resolve the name `localhost`.
    pub(crate) fn amqps(&self, host: &VirtualHost) -> String {
        let url = Url::parse(&format!("amqps://127.0.0.1:{}", self.amqps)).unwrap();
        host.with_user(&url, &host.name)
    }

    /// Returns the URL of the management API over TLS.
    pub(crate) fn https(&self, host: &VirtualHost) -> String {
        host.with_user(&Url::parse(&format!("https://127.0.0.1:{}", self.https)).unwrap(), "")
    }

    /// Runs `rabbitmqctl`.
    pub(crate) async fn ctl(&mut self, arguments: &str) {
        self.held.ctl(arguments).await;
    }

    /// Sets the largest message that the broker takes, in bytes, for channels that are opened from now on.
    pub(crate) async fn limit(&mut self, bytes: usize) {
        self.is_changed = true;
        self.ctl(&format!("eval application:set_env(rabbit,max_message_size,{bytes}).")).await;
        self.ctl(&format!("eval persistent_term:put(max_message_size,{bytes}).")).await;
    }

    /// Sets how long the broker waits for an acknowledgement, in milliseconds, for channels that are opened from now on.
    /// Up to RabbitMQ 4.0 it looks after each tick, here three times a second.
    pub(crate) async fn wait_for_acknowledgements(&mut self, millis: &str) {
        self.is_changed = true;
        self.ctl("eval application:set_env(rabbit,channel_tick_interval,300).").await;
        self.ctl(&format!("eval application:set_env(rabbit,consumer_timeout,{millis}).")).await;
    }

    /// Blocks all publishers, as the broker does when it runs out of memory.
    pub(crate) async fn block(&mut self) {
        self.is_changed = true;
        self.ctl("set_vm_memory_high_watermark 0.0000001").await;
    }

    pub(crate) async fn unblock(&mut self) {
        self.ctl("set_vm_memory_high_watermark 0.4").await;
    }
}
