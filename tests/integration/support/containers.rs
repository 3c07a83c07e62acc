//! A private RabbitMQ in a container, where a Docker engine has its image already: a test never pulls one.
//!
//! Redis always runs as a process of this machine: the tests of its outages stop it and start it again on the same port.

use std::{
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use reqwest::Method;
use testcontainers::{
    ContainerAsync, GenericImage, ImageExt as _,
    core::{IntoContainerPort as _, client::docker_client_instance},
    runners::AsyncRunner as _,
};
use url::Url;
use uuid::Uuid;

use super::{
    calls::{block_on, call},
    server::Server,
};

/// The time limit for an answer of the Docker engine.
const ANSWER: Duration = Duration::from_secs(15);
/// The time limit for the start of RabbitMQ on a busy machine.
const START: Duration = Duration::from_mins(2);

/// An image that the Docker engine has already.
pub(super) struct Image {
    pub(super) name: String,
    id: String,
}

impl Image {
    /// Returns the image of `docker-compose.yml`, or the reason why no container can be started.
    pub(super) fn find() -> Result<Self, String> {
        let name = name();
        let (engine, id) = block_on(async {
            let ask = async {
                let docker = docker_client_instance().await.map_err(|error| error.to_string())?;
                let info = docker.info().await.map_err(|error| error.to_string())?;
                Ok::<_, String>((info.id, docker.inspect_image(&name).await.ok().and_then(|image| image.id)))
            };
            let answer =
                tokio::time::timeout(ANSWER, ask).await.unwrap_or_else(|_| Err(format!("no answer within {ANSWER:?}")));
            answer.map_err(|error| format!("no Docker engine answers ({error})"))
        })?;
        let id = id.ok_or_else(|| format!("the Docker engine has no image {name}"))?;
        // The command `docker` removes the container, and it may talk to another engine than testcontainers does.
        let command = Command::new("docker").args(["info", "--format", "{{.ID}}"]).stderr(Stdio::null()).output();
        let command = command.map_err(|error| format!("the command `docker` does not start ({error})"))?;
        if engine.is_none_or(|engine| engine != String::from_utf8_lossy(&command.stdout).trim()) {
            return Err("the command `docker` does not reach the same Docker engine; set DOCKER_HOST".into());
        }
        Ok(Self { name, id })
    }

    /// Starts a container and returns its server once that answers. The container is removed when this process ends.
    pub(super) fn start(&self) -> Server {
        let name = format!("hatchery-test-{}", Uuid::now_v7().simple());
        // The remover starts before the container, so that no container is ever left behind.
        let hold = remove_at_end(&name);
        let (amqp, management) = block_on(self.run(&name));
        Server { amqp, management, _hold: Some(hold) }
    }

    async fn run(&self, name: &str) -> (Url, Url) {
        // By its id, because testcontainers pulls an image whose name it does not find.
        let (algorithm, digest) = self.id.split_once(':').unwrap();
        // Not `guest`, which in some images may only connect from inside the container. The ports are open to the
        // network, hence the random password.
        let (user, password) = ("administrator", Uuid::now_v7().to_string());
        let container = GenericImage::new(algorithm, digest)
            .with_container_name(name)
            .with_mapped_port(0, 5672.tcp())
            .with_mapped_port(0, 15672.tcp())
            .with_env_var("RABBITMQ_DEFAULT_USER", user)
            .with_env_var("RABBITMQ_DEFAULT_PASS", &password)
            .start()
            .await
            .unwrap_or_else(|error| panic!("no container of {}: {error}", self.name));
        let host = match container.get_host().await.unwrap().to_string() {
            // `localhost` may resolve to the IPv6 address, for which Docker may have mapped another port.
            name if name == "localhost" => "127.0.0.1".to_owned(),
            host => host,
        };
        let ports = (container.get_host_port_ipv4(5672).await, container.get_host_port_ipv4(15672).await);
        // A container that has ended has no ports any more.
        let (Ok(amqp), Ok(management)) = ports else { self.failed(&container).await };
        let url = |scheme, port| Url::parse(&format!("{scheme}://{user}:{password}@{host}:{port}/")).unwrap();
        let (amqp, management) = (url("amqp", amqp), url("http", management));
        let limit = Instant::now() + START;
        while !ready(&management) {
            if Instant::now() > limit || !container.is_running().await.unwrap() {
                self.failed(&container).await;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // Dropping the container would remove it.
        std::mem::forget(container);
        (amqp, management)
    }

    async fn failed(&self, container: &ContainerAsync<GenericImage>) -> ! {
        let log = [container.stdout_to_vec().await.unwrap(), container.stderr_to_vec().await.unwrap()].concat();
        panic!("RabbitMQ does not start in a container of {}:\n{}", self.name, String::from_utf8_lossy(&log));
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
