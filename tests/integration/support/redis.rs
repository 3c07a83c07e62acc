//! The Redis that the tests of one process share: started once, and gone with the process.

use std::{
    collections::BTreeSet,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ::redis::{AsyncConnectionConfig, Client, RedisResult, aio::MultiplexedConnection};

/// Returns the URL of the shared server. Each test has a key [`prefix`] of its own.
pub(crate) fn url() -> &'static str {
    static GIVEN: OnceLock<String> = OnceLock::new();
    GIVEN.get_or_init(|| {
        static STARTED: OnceLock<Server> = OnceLock::new();
        std::env::var("HATCHERY_TEST_REDIS_URL")
            .unwrap_or_else(|_| STARTED.get_or_init(|| Server::start(free_port(), &[])).url.clone())
    })
}

/// Connects without time limits: a busy machine misses the redis crate's default of half a second.
pub(crate) async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// Returns all keys of a server that no other test uses.
pub(crate) async fn keys(url: &str) -> BTreeSet<String> {
    let mut connection = connect(url).await.unwrap();
    ::redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap()
}

/// Returns a key prefix that no other test has.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Returns a port that nothing listens on. It is below those that the system gives to outgoing connections, and this
/// process gets no port twice.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = std::process::id().wrapping_mul(61).wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(10_000 + n % 20_000).unwrap();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// A `redis-server` that ends when this value is dropped, and when this process ends, however it ends: a shell between
/// the two waits for the end of a pipe that only this process holds.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    wrapper: Child,
}

impl Server {
    pub(crate) fn start(port: u16, options: &[&str]) -> Self {
        let text = port.to_string();
        let plain = ["--bind", "127.0.0.1", "--port", &text, "--save", "", "--appendonly", "no", "--daemonize", "no"];
        Self::run(port, &[&plain, options].concat())
    }

    /// Starts a server with these options and no others. They must make it listen at this port.
    pub(crate) fn run(port: u16, options: &[&str]) -> Self {
        let script = "redis-server \"$@\" & pid=$!; cat >/dev/null; kill -9 $pid; wait $pid";
        let wrapper = Command::new("sh")
            .args(["-c", script, "sh"])
            .args(options)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("`sh` starts");
        let server = Self { url: format!("redis://127.0.0.1:{port}"), wrapper };
        wait_until("`redis-server` listens; it has to be installed (Debian: apt-get install redis-server)", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        server
    }
}

impl Server {
    /// Sends a command, and expects that it succeeds.
    pub(crate) async fn say(&self, command: &[&str]) {
        self.ask::<()>(command).await;
    }

    pub(crate) async fn ask<T: ::redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let mut connection = connect(&self.url).await.unwrap();
        ::redis::cmd(command[0]).arg(&command[1..]).query_async(&mut connection).await.unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.wrapper.stdin.take());
        let _ = self.wrapper.wait();
    }
}

/// Polls until `reached` returns true. Panics with `what` after ten seconds.
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !reached() {
        assert!(Instant::now() < limit, "not within ten seconds: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
