//! A private RabbitMQ in a container, where a Docker engine has its image already: a test never pulls one.
//!
//! Redis always runs as a process of this machine: the tests of its outages stop it and start it again on the same port.

use std::{
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use reqwest::Method;
use url::Url;
use uuid::Uuid;

use super::server::{Server, call};

/// The time limit for an answer of the Docker engine.
const ANSWER: Duration = Duration::from_secs(15);
/// The time limit for the start of RabbitMQ on a busy machine.
const START: Duration = Duration::from_mins(2);

/// An image that the Docker engine has already.
pub(super) struct Image {
    pub(super) name: String,
}

impl Image {
    /// Returns the image of `docker-compose.yml`, or the reason why no container can be started.
    pub(super) fn find() -> Result<Self, String> {
        let name = name();
        docker(ANSWER, &["version", "--format", "{{.Server.Version}}"])
            .map_err(|error| format!("no Docker engine answers ({error})"))?;
        docker(ANSWER, &["image", "inspect", &name]).map_err(|_| format!("the Docker engine has no image {name}"))?;
        Ok(Self { name })
    }

    /// Starts a container and returns its server once that answers. The container is removed when this process ends.
    pub(super) fn start(&self) -> Server {
        let container = format!("hatchery-test-{}", Uuid::now_v7().simple());
        // The remover starts before the container, so that no container is ever left behind.
        let hold = remove_at_end(&container);
        // Not `guest`, which in some images may only connect from inside the container. The ports are open to the
        // network, hence the random password.
        let (user, password) = ("administrator", Uuid::now_v7().to_string());
        let variables = [format!("RABBITMQ_DEFAULT_USER={user}"), format!("RABBITMQ_DEFAULT_PASS={password}")];
        let named = ["run", "--detach", "--pull", "never", "--name", &container];
        let opened = ["--publish", "5672", "--publish", "15672", "--env", &variables[0], "--env", &variables[1]];
        if let Err(error) = docker(START, &[&named[..], &opened, &[&self.name]].concat()) {
            panic!("no container of {}: {error}", self.name);
        }
        let host = host(&container);
        let url = |scheme, port| {
            // A line for each address of this machine. A container that has ended has no ports any more.
            let opened = docker(ANSWER, &["port", &container, port]).ok();
            let port = opened.as_deref().and_then(|text| text.lines().next()?.rsplit(':').next()).map(str::to_owned);
            let port = port.unwrap_or_else(|| self.failed(&container));
            Url::parse(&format!("{scheme}://{user}:{password}@{host}:{port}/")).unwrap()
        };
        let (amqp, management) = (url("amqp", "5672"), url("http", "15672"));
        let limit = Instant::now() + START;
        while !ready(&management) {
            let state = docker(ANSWER, &["inspect", "--format", "{{.State.Running}}", &container]);
            if Instant::now() > limit || state.as_deref() != Ok("true") {
                self.failed(&container);
            }
            thread::sleep(Duration::from_millis(200));
        }
        Server { amqp, management, _hold: Some(hold) }
    }

    fn failed(&self, container: &str) -> ! {
        let log = docker(ANSWER, &["logs", container]);
        panic!("RabbitMQ does not start in a container of {}:\n{}", self.name, log.unwrap_or_else(|error| error));
    }
}

/// Runs the command `docker`, and returns what it prints; if it fails, what it says.
fn docker(limit: Duration, arguments: &[&str]) -> Result<String, String> {
    let output = assert_cmd::Command::new("docker").args(arguments).timeout(limit).output();
    let output = output.map_err(|error| format!("the command `docker` does not start ({error})"))?;
    let said = [&output.stdout[..], &output.stderr].concat();
    let said = String::from_utf8_lossy(&said).trim().to_owned();
    if output.status.success() { Ok(said) } else { Err(format!("{}: {said}", output.status)) }
}

/// Returns the host at which the ports of containers are open.
fn host(container: &str) -> String {
    let engine = docker(ANSWER, &["context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]);
    // `unix:///var/run/docker.sock` has none.
    let remote = engine.ok().and_then(|url| Url::parse(&url).ok()?.host_str().map(str::to_owned));
    let gateway = || {
        docker(ANSWER, &["inspect", "--format", "{{range .NetworkSettings.Networks}}{{.Gateway}}{{end}}", container])
    };
    match remote {
        Some(host) if !host.is_empty() => host,
        // This test is in a container too.
        _ if Path::new("/.dockerenv").exists() => gateway().unwrap_or_else(|error| panic!("no gateway: {error}")),
        // `localhost` may resolve to the IPv6 address, for which Docker may have mapped another port.
        _ => "127.0.0.1".to_owned(),
    }
}

/// Returns the name of the image. Only `docker-compose.yml` says it, in the line
/// `image: ${HATCHERY_RABBITMQ_IMAGE:-…}`.
fn name() -> String {
    let compose = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../docker-compose.yml"));
    let (_, rest) = compose.split_once("${HATCHERY_RABBITMQ_IMAGE:-").unwrap();
    let (default, _) = rest.split_once('}').unwrap();
    std::env::var("HATCHERY_RABBITMQ_IMAGE").unwrap_or_else(|_| default.to_owned())
}

/// Removes the container once this process has ended, however it ends: a shell waits for the end of a pipe that only
/// this process holds. The shell is in a process group of its own, so that Ctrl-C does not reach it. It removes twice,
/// because the container may still be in creation the first time.
fn remove_at_end(container: &str) -> Child {
    let script = "cat >/dev/null; docker rm -fv \"$1\"; sleep 3; docker rm -fv \"$1\"";
    Command::new("sh")
        .args(["-c", script, "sh", container])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("`sh` starts")
}

/// Returns whether RabbitMQ listens for AMQP. The management API answers before that, and lists the listeners.
fn ready(management: &Url) -> bool {
    call(management, Method::GET, &["overview"], None).is_ok_and(|(_, overview)| {
        let listeners = overview["listeners"].as_array();
        listeners.is_some_and(|listeners| listeners.iter().any(|listener| listener["protocol"] == "amqp"))
    })
}
