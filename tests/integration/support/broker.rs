//! The RabbitMQ that the tests of one process share: started once, and gone with the process. Each test has a virtual
//! host of its own.

use std::{
    io::{self, BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use url::Url;

pub(crate) use super::server::{PATIENCE, block_on, call};
use super::{containers::Image, server::Server};

/// The password of every test user. No output of a test may show it; [`super::cli`] checks that.
pub(crate) const PASSWORD: &str = "s3cret-hunter2";

/// The shared server.
fn server() -> &'static Server {
    static STARTED: OnceLock<Server> = OnceLock::new();
    STARTED.get_or_init(|| {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let given = |name: &str| std::env::var(name).ok().map(|url| Url::parse(&url).unwrap());
        let (server, way) = match (given("HATCHERY_TEST_AMQP_URL"), given("HATCHERY_TEST_MANAGEMENT_URL")) {
            (Some(amqp), Some(management)) => {
                (Server { amqp, management, _hold: None }, "as HATCHERY_TEST_AMQP_URL says".to_owned())
            }
            (None, None) => start(),
            _ => panic!("HATCHERY_TEST_AMQP_URL and HATCHERY_TEST_MANAGEMENT_URL go together"),
        };
        let (_, overview) = call(&server.management, Method::GET, &["overview"], None).unwrap();
        // Not by `eprintln!`, which prints nothing when the test passes.
        let _ = writeln!(io::stderr(), "RabbitMQ {}, {way}", text(&overview, "rabbitmq_version"));
        server
    })
}

/// Starts a server whose cluster has a name, as an operator gives it. All servers get the same name; a test may set
/// another one.
fn start() -> (Server, String) {
    let (server, way) = start_unnamed();
    let (status, answer) =
        call(&server.management, Method::PUT, &["cluster-name"], Some(&json!({ "name": "shared" }))).unwrap();
    assert!(status < 300, "{status} {answer}");
    (server, way)
}

/// Starts a server in a container or, where there is none, as native processes. Also returns which of them it is, and
/// why. `HATCHERY_TEST_BROKER` forces one of them.
fn start_unnamed() -> (Server, String) {
    let only = std::env::var("HATCHERY_TEST_BROKER").unwrap_or_default();
    let image = match only.as_str() {
        "" | "docker" => Image::find(),
        "native" => Err("HATCHERY_TEST_BROKER=native".to_owned()),
        version if version.starts_with(|first: char| first.is_ascii_digit()) => {
            let (server, from) = hold("brokers", &["hold", version]);
            return (server, format!("of {}", from.unwrap()));
        }
        _ => panic!("HATCHERY_TEST_BROKER is docker, native or a version of `scripts/brokers`, not {only}"),
    };
    match image {
        Ok(image) => (image.start(), format!("in a container of {}", image.name)),
        Err(why) if only == "docker" => panic!("HATCHERY_TEST_BROKER=docker: {why}"),
        Err(why) => (hold("services", &["hold", "--rabbitmq-only"]).0, format!("as native processes: {why}")),
    }
}

/// Starts the server of a script that keeps it running. Also returns where the script says that its RabbitMQ is from.
fn hold(script: &str, arguments: &[&str]) -> (Server, Option<String>) {
    let mut hold = Command::new(format!("{}/../scripts/{script}", env!("CARGO_MANIFEST_DIR")))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("scripts/{script}: {error}"));
    let (mut amqp, mut management, mut from) = (None, None, None);
    for line in BufReader::new(hold.stdout.take().unwrap()).lines() {
        match line.unwrap().split_once('=') {
            Some(("AMQP_URL", url)) => amqp = Some(Url::parse(url).unwrap()),
            Some(("RABBITMQ_MANAGEMENT_URL", url)) => management = Some(Url::parse(url).unwrap()),
            Some(("RABBITMQ_FROM", place)) => from = Some(place.to_owned()),
            // READY
            None => break,
            Some(_) => {}
        }
    }
    match (amqp, management) {
        (Some(amqp), Some(management)) => (Server { amqp, management, _hold: Some(hold) }, from),
        _ => panic!("`scripts/{script} {}` started no RabbitMQ, see its output above", arguments.join(" ")),
    }
}

/// A virtual host with a user of its own. The user may do what a deployment may: everything in this virtual host, and
/// set policies. Both are deleted when this value is dropped.
pub(crate) struct VirtualHost {
    pub(crate) name: String,
    server: &'static Server,
}

impl VirtualHost {
    pub(crate) fn new() -> Self {
        Self::on(server())
    }

    /// Creates a virtual host on the given server.
    pub(super) fn on(server: &'static Server) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let host = Self { name, server };
        host.set(&["vhosts", &host.name], &json!({}));
        host.set(&["users", &host.name], &json!({ "password": PASSWORD, "tags": "policymaker" }));
        host.permit(".*");
        host
    }

    /// Changes the password of the virtual host's user.
    pub(crate) fn set_password(&self, password: &str) {
        self.set(&["users", &self.name], &json!({ "password": password, "tags": "policymaker" }));
    }

    fn api(&self, method: Method, path: &[&str], body: Option<&Value>) -> (u16, Value) {
        call(&self.server.management, method, path, body).unwrap()
    }

    fn set(&self, path: &[&str], body: &Value) {
        let (status, answer) = self.api(Method::PUT, path, Some(body));
        assert!(status < 300, "{path:?}: {status} {answer}");
    }

    /// Returns the names of the open connections, as the management UI shows them.
    pub(crate) fn connections(&self) -> Vec<String> {
        let (status, list) = self.api(Method::GET, &["vhosts", &self.name, "connections"], None);
        assert_eq!(status, 200, "{list}");
        let name = |open: &Value| open["client_properties"]["connection_name"].as_str().unwrap_or_default().to_owned();
        list.as_array().unwrap().iter().map(name).collect()
    }

    /// Returns everything that the management API says about the connections of the whole broker.
    pub(crate) fn connections_as_text(&self) -> String {
        let (status, list) = self.api(Method::GET, &["connections"], None);
        assert_eq!(status, 200, "{list}");
        list.to_string()
    }

    /// Returns the broker's overview from the management API.
    pub(crate) fn overview(&self) -> Value {
        let (status, overview) = self.api(Method::GET, &["overview"], None);
        assert_eq!(status, 200, "{overview}");
        overview
    }

    /// Sets the pattern of names that the user may create. It may write to and read from everything.
    pub(crate) fn permit(&self, configure: &str) {
        let permission = json!({ "configure": configure, "write": ".*", "read": ".*" });
        self.set(&["permissions", &self.name, &self.name], &permission);
    }

    /// Creates one more user with these rights in this virtual host. The user is deleted when the returned value is
    /// dropped.
    pub(crate) fn user(&self, role: &str, rights: &Rights) -> User<'_> {
        let user = User { host: self, name: format!("{}-{role}", self.name) };
        self.set(&["users", &user.name], &json!({ "password": PASSWORD, "tags": rights.tag }));
        let Rights { configure, write, read, .. } = rights;
        let permission = json!({ "configure": configure, "write": write, "read": read });
        self.set(&["permissions", &self.name, &user.name], &permission);
        user
    }

    pub(crate) fn amqp(&self) -> String {
        self.with_user(&self.server.amqp, &self.name)
    }

    pub(crate) fn management(&self) -> String {
        self.with_user(&self.server.management, "")
    }

    /// Returns the URL with the credentials of this virtual host's user, and this path.
    pub(super) fn with_user(&self, url: &Url, path: &str) -> String {
        with_user(url, &self.name, path)
    }

    /// Prints the queues that have messages, for a test that failed. A failure that happens once in a thousand runs leaves
    /// nothing else of the broker. RabbitMQ's counts are some seconds old.
    fn tell_where_messages_are(&self) {
        let Ok((200, Value::Array(queues))) = call(&self.server.management, Method::GET, &["queues", &self.name], None)
        else {
            return;
        };
        let counts = ["name", "state", "messages_ready", "messages_unacknowledged", "messages_dlx", "consumers"];
        let has_some =
            |queue: &&Value| ["messages", "messages_dlx"].iter().any(|count| queue[count].as_u64() > Some(0));
        for queue in queues.iter().filter(has_some) {
            let _ = writeln!(io::stderr(), "{} has {:?}", self.name, counts.map(|count| &queue[count]));
        }
    }

    /// Returns what the management API lists of a kind, without the objects that every virtual host has.
    pub(crate) fn list(&self, kind: &str) -> Vec<Value> {
        let read = || self.api(Method::GET, &[kind, &self.name], None);
        // RabbitMQ answers 500 if a queue is deleted while it makes the list.
        let (status, list) = (0..10).map(|_| read()).find(|(status, _)| *status < 500).unwrap_or_else(read);
        assert_eq!(status, 200, "{list}");
        let Value::Array(mut list) = list else { panic!("{list}") };
        list.retain(|object| match kind {
            "exchanges" => !object["name"].as_str().unwrap().is_empty() && !text(object, "name").starts_with("amq."),
            "bindings" => !text(object, "source").is_empty(),
            _ => true,
        });
        // What was published to an exchange changes no exchange.
        for object in list.iter_mut().filter(|_| kind == "exchanges").filter_map(Value::as_object_mut) {
            object.remove("message_stats");
        }
        list
    }

    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        self.list(kind).iter().map(|object| text(object, "name").to_owned()).collect()
    }

    pub(crate) fn put(&self, kind: &str, name: &str, body: &Value) {
        self.set(&[kind, &self.name, name], body);
    }

    /// Binds a queue to an exchange.
    pub(crate) fn bind(&self, exchange: &str, queue: &str, key: &str) {
        let path = ["bindings", &self.name, "e", exchange, "q", queue];
        let (status, answer) = self.api(Method::POST, &path, Some(&json!({ "routing_key": key })));
        assert!(status < 300, "{path:?}: {status} {answer}");
    }

    /// Imports definitions into this virtual host. Returns the HTTP status.
    pub(crate) fn import(&self, definitions: &Value) -> u16 {
        self.api(Method::POST, &["definitions", &self.name], Some(definitions)).0
    }

    pub(crate) fn delete(&self, kind: &str, path: &[&str]) {
        let path: Vec<&str> = [kind, &self.name].into_iter().chain(path.iter().copied()).collect();
        let (status, answer) = self.api(Method::DELETE, &path, None);
        assert!(status < 300, "{path:?}: {status} {answer}");
    }
}

/// A second broker with a virtual host and a user of the same names as on the first one.
pub(crate) struct Another(Server);

impl Another {
    pub(crate) fn like(host: &VirtualHost) -> Self {
        let another = Self(start().0);
        let put = |path: &[&str], body: Value| {
            let (status, answer) = call(&another.0.management, Method::PUT, path, Some(&body)).unwrap();
            assert!(status < 300, "{path:?}: {status} {answer}");
        };
        let all = json!({ "configure": ".*", "write": ".*", "read": ".*" });
        put(&["vhosts", &host.name], json!({}));
        put(&["users", &host.name], json!({ "password": PASSWORD, "tags": "policymaker,monitoring" }));
        put(&["permissions", &host.name, &host.name], all);
        another
    }

    /// Returns its virtual host. The broker then runs until this process ends.
    pub(crate) fn into_host(self, host: &VirtualHost) -> VirtualHost {
        VirtualHost { name: host.name.clone(), server: Box::leak(Box::new(self.0)) }
    }

    pub(crate) fn management(&self, host: &VirtualHost) -> String {
        with_user(&self.0.management, &host.name, "")
    }

    pub(crate) fn amqp(&self, host: &VirtualHost) -> String {
        with_user(&self.0.amqp, &host.name, &host.name)
    }

    /// Gives its cluster another name than the one that all test brokers share.
    pub(crate) fn set_name(&self, name: &str) {
        let (status, answer) =
            call(&self.0.management, Method::PUT, &["cluster-name"], Some(&json!({ "name": name }))).unwrap();
        assert!(status < 300, "{status} {answer}");
    }

    /// Returns its overview from the management API.
    pub(crate) fn overview(&self) -> Value {
        call(&self.0.management, Method::GET, &["overview"], None).unwrap().1
    }
}

impl Drop for VirtualHost {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.tell_where_messages_are();
        }
        for kind in ["vhosts", "users"] {
            let _ = call(&self.server.management, Method::DELETE, &[kind, &self.name], None);
        }
    }
}

/// Imports definitions into the virtual hosts that they name. Returns the HTTP status.
pub(crate) fn import(definitions: &Value) -> u16 {
    call(&server().management, Method::POST, &["definitions"], Some(definitions)).unwrap().0
}

/// The rights of a user in a virtual host: patterns of names, and a tag of the management API.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    pub(crate) tag: String,
    pub(crate) configure: String,
    pub(crate) write: String,
    pub(crate) read: String,
}

/// A further user of a virtual host.
pub(crate) struct User<'a> {
    host: &'a VirtualHost,
    name: String,
}

impl User<'_> {
    pub(crate) fn amqp(&self) -> String {
        with_user(&self.host.server.amqp, &self.name, &self.host.name)
    }

    pub(crate) fn management(&self) -> String {
        with_user(&self.host.server.management, &self.name, "")
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        let _ = call(&self.host.server.management, Method::DELETE, &["users", &self.name], None);
    }
}

fn with_user(url: &Url, user: &str, path: &str) -> String {
    let mut url = url.clone();
    url.set_username(user).unwrap();
    url.set_password(Some(PASSWORD)).unwrap();
    url.set_path(path);
    url.into()
}

/// Returns a property of a JSON object. Panics unless it is text.
pub(crate) fn text<'a>(object: &'a Value, property: &str) -> &'a str {
    object[property].as_str().unwrap_or_else(|| panic!("no {property} in {object}"))
}

/// The time limit for what may have to wait for a timer of RabbitMQ: if a queue refuses a due message, as one on a busy
/// machine may, the timer offers it again after three minutes (`settle_timeout` in `rabbit_fifo_dlx_worker.erl`).
pub(crate) const FORWARDED: Duration = Duration::from_mins(4);

/// Calls `look` every 10 ms until it returns a value. Panics with `what` after [`FORWARDED`]: `what` is the sentence that
/// should have come true. Says on standard error that it took longer than [`PATIENCE`].
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look().await {
            if begun.elapsed() > PATIENCE {
                let _ = writeln!(io::stderr(), "only after {:?}: {what}", begun.elapsed());
            }
            return seen;
        }
        assert!(begun.elapsed() < FORWARDED, "not within {FORWARDED:?}: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
