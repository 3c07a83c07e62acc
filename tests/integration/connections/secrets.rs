//! No output shows a password, whatever the verb and the log level.

use std::fs;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::NewEvent;

use crate::support::{
    broker::PASSWORD,
    declared::{Declared, publish},
    process::{Ended, Place},
    redis::{Server, free_port},
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
