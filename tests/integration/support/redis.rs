//! A private Redis for the tests: started once a test process, gone with it.

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

/// The shared server. Tests keep apart by [`prefix`].
pub(crate) fn url() -> &'static str {
    static GIVEN: OnceLock<String> = OnceLock::new();
    GIVEN.get_or_init(|| {
        static STARTED: OnceLock<Server> = OnceLock::new();
        std::env::var("HATCHERY_TEST_REDIS_URL")
            .unwrap_or_else(|_| STARTED.get_or_init(|| Server::start(free_port(), &[])).url.clone())
    })
}

/// A connection that waits as long as it takes: the crate's own limit of half a second is one that a busy machine misses.
pub(crate) async fn connect(url: &str) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new().set_connection_timeout(None).set_response_timeout(None);
    Client::open(url)?.get_multiplexed_async_connection_with_config(&config).await
}

/// The keys of a server that no other test uses.
pub(crate) async fn keys(url: &str) -> BTreeSet<String> {
    let mut connection = connect(url).await.unwrap();
    ::redis::cmd("KEYS").arg("*").query_async(&mut connection).await.unwrap()
}

/// A prefix for keys that no other test has.
pub(crate) fn prefix() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A port that nothing listens on: below those that the system gives to outgoing connections, and no two alike in
/// one process.
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

/// A `redis-server` that dies with this value, and with this process however that ends: a shell between the two
/// waits for the end of a pipe that only this process holds.
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

    /// With these options alone, which make it listen at this port.
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
    /// Gives it a command.
    pub(crate) async fn say(&self, command: &[&str]) {
        let mut connection = connect(&self.url).await.unwrap();
        let mut said = ::redis::cmd(command[0]);
        let () = said.arg(&command[1..]).query_async(&mut connection).await.unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.wrapper.stdin.take());
        let _ = self.wrapper.wait();
    }
}

/// Looks again and again, for ten seconds at most.
pub(crate) fn wait_until(what: &str, mut reached: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(10);
    while !reached() {
        assert!(Instant::now() < limit, "not within ten seconds: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
