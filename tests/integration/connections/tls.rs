//! TLS to a real RabbitMQ, its management API and a real Redis.

use std::path::Path;

use hatchery::{Hatchery, NewEvent, Tls};
use tokio::process::Command;

use crate::support::{
    broker::{PASSWORD, eventually},
    certificates::{Authority, Certificate},
    declared::{Declared, publish},
    private::{self, Private},
    process::{Ended, Place},
    redis::{Server, free_port},
};

/// A Redis that the tests reach over TLS only.
struct Secured {
    _server: Server,
    port: u16,
}

impl Secured {
    fn start(authority: &Authority, own: &Certificate, asks: &str) -> Self {
        let port = free_port();
        let path = |path: &Path| path.display().to_string();
        let options = [
            ["--tls-port", &port.to_string()],
            ["--tls-ca-cert-file", &path(&authority.file())],
            ["--tls-cert-file", &path(&own.chain)],
            ["--tls-key-file", &path(&own.key)],
            ["--tls-auth-clients", asks],
        ];
        Self { _server: Server::start(free_port(), &options.concat()), port }
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}", self.port)
    }
}

/// Sets the authority that a process trusts, and its client certificate.
fn with<'a>(command: &'a mut Command, authority: &Path, client: Option<&Certificate>) -> &'a mut Command {
    command.env("TOPOLOGY_CA_FILE", authority);
    if let Some(client) = client {
        command.env("TOPOLOGY_CERT_FILE", &client.chain).env("TOPOLOGY_KEY_FILE", &client.key);
    }
    command
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a RabbitMQ and a Redis with TLS; scripts/test --all runs it"]
async fn every_connection_works_with_certificates_on_both_sides() {
    let broker = private::broker().await;
    let redis = Secured::start(&broker.authority, &broker.authority.issue("redis", &["127.0.0.1"]), "yes");
    let declared = Declared::on(broker.host(), "types: { mail: {} }", &redis.url()).await;
    let place = Place::new(&declared);
    let run = async |arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env("AMQP_URL", broker.amqps(&declared.host));
        command.env("RABBITMQ_MANAGEMENT_URL", broker.https(&declared.host));
        let command = with(&mut command, &broker.authority.file(), Some(&broker.client));
        place.run(command).await.expect(0)
    };
    run(&["plan", "--detailed-exitcode"]).await;
    run(&["apply", "--auto-approve"]).await;
    run(&["publish", "mail", "--reference", "1", "--payload", "{}"]).await;

    let tls = Tls::default().trust_file(broker.authority.file()).unwrap();
    let hatchery = Hatchery::builder(declared.topology.clone())
        .amqp_url(broker.amqps(&declared.host))
        .redis_url(redis.url())
        .tls(tls.identify_files(&broker.client.chain, &broker.client.key).unwrap())
        .connect()
        .await
        .unwrap();
    hatchery.require_register().await.unwrap();
    publish(&hatchery, NewEvent::new("mail", "{}").reference("1")).await;
    hatchery.close().await;

    let worked = run(&["-o", "json", "work", "--type", "mail", "--stop-when-empty", "--exec", "true"]).await.summary();
    assert_eq!(worked["done"], 2, "{worked}");
}

/// `SSL_CERT_FILE` names the trusted authorities of the system, in place of the usual file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "starts a RabbitMQ and a Redis with TLS; scripts/test --all runs it"]
async fn the_systems_authorities_are_trusted_without_a_flag() {
    let broker = private::broker().await;
    let redis = Secured::start(&broker.authority, &broker.authority.issue("system", &["127.0.0.1"]), "no");
    let declared = Declared::on(broker.host(), "types: { mail: {} }", &redis.url()).await;
    let place = Place::new(&declared);
    let (amqps, https) = (broker.amqps(&declared.host), broker.https(&declared.host));
    let run = async |system: &Path, changed: Option<(&str, String)>, arguments: &[&str]| {
        let mut command = place.command(arguments);
        command.env("AMQP_URL", &amqps).env("RABBITMQ_MANAGEMENT_URL", &https).env("SSL_CERT_FILE", system);
        // The broker requires a client certificate.
        command.env("TOPOLOGY_CERT_FILE", &broker.client.chain).env("TOPOLOGY_KEY_FILE", &broker.client.key);
        command.envs(changed);
        place.run(&mut command).await
    };
    let system = broker.authority.file();
    run(&system, None, &["plan", "--detailed-exitcode"]).await.expect(0);
    run(&system, None, &["publish", "mail", "--reference", "1", "--payload", "{}"]).await.expect(0);
    let work = ["-o", "json", "work", "--type", "mail", "--stop-when-empty", "--exec", "true"];
    assert_eq!(run(&system, None, &work).await.expect(0).summary()["done"], 1);

    // AMQP, the management API and Redis each check the system's authorities.
    let stranger = Authority::called("stranger");
    let plain = ("AMQP_URL", declared.host.amqp());
    for (changed, arguments) in [(None, PUBLISH), (None, PLAN), (Some(plain), WORK)] {
        let ended = run(&stranger.file(), changed, arguments).await.expect(6);
        assert!(ended.stderr.contains("no authority that is trusted here has issued it"), "{arguments:?}: {ended:?}");
    }
}

/// A verb that connects to AMQP, the management API or Redis, and a text that its error must contain.
struct Case<'a> {
    verb: &'a [&'a str],
    variable: &'a str,
    url: String,
    authority: &'a Path,
    client: Option<&'a Certificate>,
    says: &'a str,
}

const PUBLISH: &[&str] = &["publish", "mail", "--payload", "{}"];
const WORK: &[&str] = &["work", "--type", "mail", "--exec", "true"];
const PLAN: &[&str] = &["plan"];

async fn refused(place: &Place<'_>, case: &Case<'_>) -> Ended {
    let mut command = place.command(case.verb);
    command.env("RABBITMQ_MANAGEMENT_URL", place.declared.host.management()).env(case.variable, &case.url);
    place.run(with(&mut command, case.authority, case.client)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "tries 23 wrong certificates and URLs on a RabbitMQ with TLS; scripts/test --all runs it"]
async fn every_tls_error_says_its_cause_and_shows_no_secret() {
    let broker = private::broker().await;
    let declared = Declared::on(broker.host(), "types: { mail: {} }", "redis://127.0.0.1:1").await;
    let place = Place::new(&declared);
    let Private { authority, client, .. } = &*broker;
    let (known, host) = (authority.file(), &declared.host);
    // `stranger` has another name than the broker's authority; `namesake` has the same name and another key.
    let (stranger, namesake) = (Authority::called("stranger"), Authority::new());
    let (unknown, unknown_client) = (stranger.file(), stranger.issue("client", &[]));
    let (false_name, false_client) = (namesake.file(), namesake.issue("client", &[]));
    let expired = Secured::start(authority, &authority.issue_expired("expired", &["127.0.0.1"]), "no");
    let another = Secured::start(authority, &authority.issue("another", &["rabbit.internal"]), "no");
    let asking = Secured::start(authority, &authority.issue("asking", &["127.0.0.1"]), "yes");
    let (amqps, https) = (broker.amqps(host), broker.https(host));
    // The TLS handshake fails before either side speaks AMQP or HTTP, so a Redis can stand in for any server.
    let instead = |url: &str, port: u16| {
        let mut url = url::Url::parse(url).unwrap();
        url.set_port(Some(port)).unwrap();
        String::from(url)
    };
    let mut cases = Vec::new();
    for (verb, variable, good, expired, asking) in [
        (PUBLISH, "AMQP_URL", amqps.clone(), instead(&amqps, expired.port), amqps.clone()),
        (PLAN, "RABBITMQ_MANAGEMENT_URL", https.clone(), instead(&https, expired.port), https.clone()),
        (WORK, "REDIS_URL", asking.url(), expired.url(), asking.url()),
    ] {
        let case =
            |url: &str, authority, client, says| Case { verb, variable, url: url.to_owned(), authority, client, says };
        cases.extend([
            case(&good, &*unknown, Some(client), "no authority that is trusted here has issued it"),
            case(&good, &*false_name, Some(client), "no authority that is trusted here has issued it"),
            case(&instead(&good, another.port), &known, Some(client), "not for the host name 127.0.0.1 but for"),
            case(&expired, &known, Some(client), "its certificate has expired"),
            case(&asking, &known, None, "client certificate"),
            case(&asking, &known, Some(&unknown_client), "accept the client certificate"),
            case(&asking, &known, Some(&false_client), "accept the client certificate"),
        ]);
    }
    let plain = instead(&amqps, url::Url::parse(&host.amqp()).unwrap().port().unwrap());
    let without = |url: &str| url.replacen("amqps:", "amqp:", 1);
    for (url, says) in [(plain, "does not speak TLS"), (without(&amqps), "amqps")] {
        cases.push(Case { verb: PUBLISH, variable: "AMQP_URL", url, authority: &known, client: Some(client), says });
    }
    let mut wrong = Vec::new();
    for case in &cases {
        // On a busy machine a handshake may exceed its time limit, and then nobody knows the cause.
        let ended = eventually("the handshake ends within its time limit", async || {
            let late = ["not connected within", "no answer within"];
            Some(refused(&place, case).await).filter(|ended| late.iter().all(|text| !ended.stderr.contains(text)))
        })
        .await;
        let said = format!("{}{}", ended.stdout, ended.stderr);
        let key = std::fs::read_to_string(&client.key).unwrap();
        let secret = said.contains(PASSWORD) || said.contains(key.lines().nth(1).unwrap());
        if ended.status.code() != Some(6) || secret || !said.contains(case.says) {
            wrong.push(format!(
                "{} should exit with 6, show no secret and say `{}`: {ended:?}",
                case.url.replace(PASSWORD, "***"),
                case.says
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_without_certificates_are_a_usage_error() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let authority = Authority::new();
    let (one, other) = (authority.issue("one", &[]), authority.issue("other", &[]));
    let mixed = Certificate { chain: one.chain.clone(), key: other.key.clone() };
    let nothing = place.write("nothing.pem", "");
    let usage = async |authority: &Path, client: Option<&Certificate>, says: &str| {
        let ended = place.run(with(&mut place.command(PUBLISH), authority, client)).await.expect(2);
        assert!(ended.stderr.contains(says), "{ended:?}");
    };
    usage(Path::new("/nonexistent/ca.pem"), None, "--ca-file (TOPOLOGY_CA_FILE): cannot read /nonexistent/ca.pem")
        .await;
    usage(&nothing, None, "no CA certificate in").await;
    usage(&authority.file(), Some(&mixed), "--key-file").await;
    let mut half = place.command(PUBLISH);
    let ended = place.run(half.env("TOPOLOGY_CERT_FILE", &one.chain)).await.expect(2);
    assert!(ended.stderr.contains("go together"), "{ended:?}");
}
