//! Passwords: no output shows one, whatever the verb and the log level, and a running worker takes over a new one.

use std::fs;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::{Hatchery, NewEvent};

use crate::support::{
    broker::{PASSWORD, eventually},
    declared::{Declared, publish},
    process::{Ended, Place, Process},
    redis::{Server, free_port},
    relay::Relay,
};

/// Returns the forms in which a trace may show the password: plain, as basic authentication, as bytes and as hex.
fn forms(user: &str) -> Vec<String> {
    let bytes = format!("{:?}", PASSWORD.as_bytes());
    let hex = format!("{:02x?}", PASSWORD.as_bytes()).replace(", ", "");
    vec![
        PASSWORD.to_owned(),
        BASE64_STANDARD.encode(format!("{user}:{PASSWORD}")),
        bytes.trim_matches(['[', ']']).to_owned(),
        hex.trim_matches(['[', ']']).to_owned(),
    ]
}

const VERBS: &[&[&str]] = &[
    &["validate"],
    &["plan", "--out", "plan.json"],
    &["apply", "plan.json"],
    &["apply", "--auto-approve"],
    &["publish", "mail", "--payload", "{}", "--reference", "1"],
    &["work", "--type", "mail", "--stop-when-empty", "--exec", "true"],
    &["export"],
    &["graph"],
    &["completions", "bash"],
    &["man"],
    &["--help"],
    &["work", "--help"],
    &["destroy", "--auto-approve", "--force"],
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs every verb with its trace; scripts/test --all runs it"]
async fn no_verb_shows_a_password_even_in_its_trace() {
    let port = free_port();
    let redis = Server::start(port, &["--requirepass", PASSWORD]);
    let url = redis.url.replace("redis://", &format!("redis://:{PASSWORD}@"));
    let declared = Declared::with_redis("types: { mail: { coalesce: latest } }", &url).await;
    let place = Place::new(&declared);
    let forms = forms(&declared.host.name);
    let clean = |what: &str, text: &str| {
        for form in &forms {
            assert!(!text.contains(form.as_str()), "{what} shows {form}");
        }
    };
    let run = async |arguments: &[&str], log: &str, changed: &[(&str, &str)]| {
        let mut command = place.command(&["-vvv"]);
        command.args(arguments).env("RABBITMQ_MANAGEMENT_URL", declared.host.management()).env("RUST_LOG", log);
        command.envs(changed.iter().copied());
        let ended: Ended = place.run(&mut command).await;
        clean(&format!("{arguments:?} {log}"), &format!("{}{}", ended.stdout, ended.stderr));
        ended
    };
    for verb in VERBS {
        for log in ["trace", "lapin::channel=trace,lapin::generated=trace,amq_protocol=trace,redis=trace,hyper=trace"] {
            run(verb, log, &[]).await.expect(0);
        }
    }
    clean("the plan", &fs::read_to_string(place.path("plan.json")).unwrap());

    // Errors show no password either.
    let amqp = declared.host.amqp();
    for (variable, url) in [
        ("AMQP_URL", amqp.replace("127.0.0.1", "127.0.0.1,x")),
        ("AMQP_URL", amqp.replacen("amqp:", "http:", 1)),
        ("AMQP_URL", amqp.replace(&declared.host.name, "nobody")),
        ("REDIS_URL", format!("redis://:{PASSWORD}@127.0.0.1:{}", free_port())),
        ("REDIS_URL", format!("redis://nobody:{PASSWORD}@127.0.0.1:{port}")),
        ("REDIS_URL", format!("http://:{PASSWORD}@127.0.0.1")),
        ("RABBITMQ_MANAGEMENT_URL", declared.host.management().replace(&declared.host.name, "nobody")),
        ("RABBITMQ_MANAGEMENT_URL", format!("ftp://u:{PASSWORD}@127.0.0.1")),
    ] {
        let verb: &[&str] = if variable.starts_with("RABBIT") { &["plan"] } else { VERBS[5] };
        let ended = run(verb, "trace", &[(variable, &url)]).await;
        assert!(!ended.status.success(), "{variable}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn urls_are_read_from_files() {
    let declared = Declared::new("types: { mail: { coalesce: latest } }").await;
    let hatchery = declared.connect().await;
    publish(&hatchery, NewEvent::new("mail", "{}").reference("1")).await;
    let place = Place::new(&declared);
    let file = |name: &str, url: &str| place.write(name, &format!("{url}\n"));
    let (amqp, redis) = (file("amqp", &declared.host.amqp()), file("redis", &declared.redis_url));
    let management = file("management", &declared.host.management());
    let command = |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env_remove("AMQP_URL").env_remove("REDIS_URL");
        command.env("AMQP_URL_FILE", &amqp).env("REDIS_URL_FILE", &redis);
        command.env("RABBITMQ_MANAGEMENT_URL_FILE", &management);
        command
    };
    place.run(&mut command(&["plan", "--detailed-exitcode"])).await.expect(0);
    let mut work = command(&["-o", "json", "work", "--type", "mail", "--stop-when-empty", "--exec", "true"]);
    assert_eq!(place.run(&mut work).await.expect(0).summary()["done"], 1);
    let both = place.run(command(&["publish", "mail", "--payload", "{}"]).env("AMQP_URL", declared.host.amqp())).await;
    assert!(both.expect(2).stderr.contains("AMQP_URL and AMQP_URL_FILE are both set"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs the binary for each variable; scripts/test --all runs it"]
async fn an_empty_variable_counts_as_not_set() {
    let declared = Declared::new("types: { job: {} }").await;
    let place = Place::new(&declared);
    for variable in [
        "AMQP_URL_FILE",
        "REDIS_URL_FILE",
        "RABBITMQ_MANAGEMENT_URL",
        "RABBITMQ_MANAGEMENT_URL_FILE",
        "TOPOLOGY_FILE",
        "TOPOLOGY_CA_FILE",
        "TOPOLOGY_CERT_FILE",
        "TOPOLOGY_KEY_FILE",
        "TOPOLOGY_LOG_FORMAT",
        "RUST_LOG",
    ] {
        let mut command = place.command(&["plan", "--management-url", &declared.host.management()]);
        place.run(command.env(variable, "")).await.expect(0);
    }
    for (variable, flag, url) in
        [("AMQP_URL", "--amqp-url", declared.host.amqp()), ("REDIS_URL", "--redis-url", declared.redis_url.clone())]
    {
        let file = place.write("url", &url);
        let mut command = place.command(&["plan", "--management-url", &declared.host.management()]);
        place.run(command.env(variable, "").env(format!("{variable}_FILE"), file)).await.expect(0);
        let mut command = place.command(&["plan", "--management-url", &declared.host.management(), flag, &url]);
        place.run(command.env(variable, "")).await.expect(0);
        // No URL is given at all, so the default applies: a server on this machine.
        let mut command = place.command(&["events", "list"]);
        let ended = place.run(command.env(variable, "").env("HOME", place.path("."))).await;
        assert_ne!(ended.status.code(), Some(2), "{variable}: {ended:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_the_metrics_nor_the_connections_of_a_worker_show_a_password() {
    let port = free_port();
    let redis = Server::start(port, &["--requirepass", PASSWORD]);
    let url = redis.url.replace("redis://", &format!("redis://:{PASSWORD}@"));
    let declared = Declared::with_redis("types: { job: { coalesce: latest } }", &url).await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let address = format!("127.0.0.1:{}", free_port());
    let service = format!("http://u:{PASSWORD}@127.0.0.1:1");
    let mut command = place.command(&["-o", "json", "work", "--type", "job", "--http", &service]);
    command.args(["--listen", &address]);
    let worker = Process::spawn(command);
    publish(&hatchery, NewEvent::new("job", "{}").reference("1")).await;
    let get = async || {
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().build().unwrap();
        client.get(format!("http://{address}/metrics")).send().await.ok()?.text().await.ok()
    };
    let counted = async || get().await.filter(|text| text.contains("hatchery_register_state"));
    // Only the password: the number 73219 may turn up as a count or a port.
    let metrics = eventually("the metrics show the register's state", counted).await;
    assert!(!metrics.contains(PASSWORD), "{metrics}");
    let connections = async || {
        let text = declared.host.connections_as_text();
        text.contains("topology work job").then_some(text)
    };
    let connections = eventually("the worker is connected", connections).await;
    assert!(!connections.contains(PASSWORD), "{connections}");
    worker.stop().await;
}

const NEW: &str = "rotated-hunter3";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_reads_its_urls_again_and_goes_on_when_the_passwords_are_rotated() {
    let redis = Server::start(free_port(), &["--requirepass", PASSWORD]);
    let with = |password: &str| redis.url.replace("redis://", &format!("redis://:{password}@"));
    let declared = Declared::with_redis("types: { mail: {} }", &with(PASSWORD)).await;
    let (to_broker, to_redis) = (Relay::to(&declared.host.amqp()).await, Relay::to(&with(PASSWORD)).await);
    let place = Place::new(&declared);
    let file = |name: &str, url: &str| place.write(name, &format!("{url}\n"));
    let script = place.write("script", "cat >> ran; echo >> ran\n");
    let mut command = place.worker("mail", &script);
    command.env_remove("AMQP_URL").env_remove("REDIS_URL");
    command.env("AMQP_URL_FILE", file("amqp", &to_broker.url)).env("REDIS_URL_FILE", file("redis", &to_redis.url));
    let worker = Process::spawn(command);
    let ran = async |events: &[&str]| {
        eventually(&format!("{events:?} have run"), async || (place.lines("ran") == events).then_some(())).await;
    };
    let logged = async |text: &str| {
        let is_there = async || place.lines("log").iter().any(|line| line.contains(text)).then_some(());
        eventually(&format!("the log has {text}"), is_there).await;
    };
    publish(&declared.connect().await, NewEvent::new("mail", "first")).await;
    ran(&["first"]).await;

    declared.host.set_password(NEW);
    to_broker.cut();
    logged("refuses the connection").await;
    file("amqp", &to_broker.url.replace(PASSWORD, NEW));
    let connect = async |redis: &str| {
        let amqp = declared.host.amqp().replace(PASSWORD, NEW);
        Hatchery::builder(declared.topology.clone()).amqp_url(amqp).redis_url(redis).connect().await.unwrap()
    };
    publish(&connect(&with(PASSWORD)).await, NewEvent::new("mail", "second")).await;
    ran(&["first", "second"]).await;

    let mut admin = crate::support::redis::connect(&with(PASSWORD)).await.unwrap();
    let set = ::redis::cmd("CONFIG").arg("SET").arg("requirepass").arg(NEW).to_owned();
    let () = set.query_async(&mut admin).await.unwrap();
    to_redis.cut();
    publish(&connect(&with(NEW)).await, NewEvent::new("mail", "third")).await;
    logged("refuses: ").await;
    file("redis", &to_redis.url.replace(PASSWORD, NEW));
    ran(&["first", "second", "third"]).await;
    assert_eq!(worker.stop().await["done"], 3);
    let log = place.lines("log").join("\n");
    assert!(log.contains("is read again at each try") && !log.contains(NEW) && !log.contains(PASSWORD), "{log}");
}
