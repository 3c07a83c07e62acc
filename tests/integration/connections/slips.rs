//! URLs with a typing error, which puts the password where a host, a port or a path belongs. No output shows it even
//! then.

use std::{fmt::Debug, fs};

use hatchery::{Hatchery, NewEvent, internals::rabbitmq::connection::AmqpUrl};
use hatchery_admin::management::ManagementUrl;
use hatchery_cli::handler::http::{Http, ServiceUrl};
use rustix::process::Signal;
use tokio::process::Command;

use crate::support::{
    broker::{PASSWORD, eventually},
    declared::{Declared, publish},
    process::{Place, Process},
};

/// `PW` is the password, `7321907321` a number that the password begins with, `S` the scheme, `C` the scheme in capitals,
/// and `H` a host where no server listens.
const SLIPS: [&str; 34] = [
    // Lists.
    "S://u:PW@H/v,u:PW@H/v",
    "S://u:PW@H/v;S://u:PW@H/v",
    "S://u:PW@H;S://u:PW@H",
    "S://u:PW@H/v S://u:PW@H/v",
    "S://u:PW@H/v\nS://u:PW@H/v",
    "S://u:PW@H/v|S://u:PW@H/v",
    "S://u:PW@H,u:PW@H/v",
    "S://u:PW@H/v,h2:5672/v",
    "S://u:PW@H/v,u:PWh2/v",
    "S://u:PW@H/v,//u:PW@H/v",
    "S://u:PW@H/v,S//u:PW@H/v",
    "C://u:PW@H/v",
    "C://u:PW@H/v,C://u:PW@H/v",
    "S://u:PW@H/v,C://u:PW@H/w",
    // A password that is not encoded.
    "S://u:PW@PW@H/v",
    "S://u:PW/PW@H/v",
    "S://u:PW,PW@H/v",
    "S://u:PW#PW@H/v",
    "S://u:PW?PW@H/v",
    "S://u:7321907321/PW@H/v",
    "S://u:7321907321?PW@H/v",
    "S://u:7321907321#PW@H/v",
    "S://u:7321907321\\PW@H/v",
    // Too much of it encoded.
    "S://u%3APW%40H/v",
    "S://u%3APW@H/v",
    "S://h1/v%2Cu%3APW%40h2",
    // The scheme and the slashes.
    "u:PW@H/v",
    "PW://H/v",
    "S:/u:PW@H/v",
    "S:///u:PW@H/v",
    "\"S://u:PW@H/v\"",
    // Other places.
    "S://PW@H/v",
    "S://u:PW@H:PW/v",
    "S://u:PW@H/v?password=PW#PW",
];

fn slips(scheme: &str) -> impl Iterator<Item = String> {
    SLIPS.iter().map(move |slip| {
        let slip = slip.replace("S:", &format!("{scheme}:")).replace("S//", &format!("{scheme}//"));
        let slip = slip.replace("C:", &format!("{}:", scheme.to_uppercase()));
        slip.replace("PW", PASSWORD).replace('H', "127.0.0.1:1")
    })
}

#[track_caller]
fn assert_no_password(what: &str, text: &str) {
    // No quotes around the password: a log may add its own.
    assert!(!text.contains(PASSWORD) && !text.contains("7321907321"), "{what} shows a password: {text}");
}

/// The way in which a process gets a URL.
#[derive(Clone, Copy, Debug)]
enum Given {
    Flag,
    Variable,
    File,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs the binary with three broken URLs for each of 12 flags; scripts/test --all runs it"]
async fn no_output_shows_the_password_of_a_mistyped_url() {
    let declared = Declared::new("types: { job: { retry: { delays: [1h], max-attempts: 2 } } }").await;
    let hatchery = declared.connect().await;
    let place = Place::new(&declared);
    let work = ["work", "--type", "job", "--stop-when-empty"];
    let program = [&work[..], &["--exec", "true"]].concat();
    let publishing = ["publish", "job", "--payload", "{}"];
    let mut unavailable = 0;
    let kinds: [(&str, &str, &str, &[&str]); 12] = [
        ("amqp", "--amqp-url", "AMQP_URL", &publishing),
        ("amqps", "--amqp-url", "AMQP_URL", &program),
        ("amqp", "--amqp-url", "AMQP_URL", &["apply", "--auto-approve"]),
        ("redis", "--redis-url", "REDIS_URL", &["events", "list"]),
        ("rediss", "--redis-url", "REDIS_URL", &program),
        ("redis-cluster", "--redis-url", "REDIS_URL", &["apply", "--auto-approve"]),
        ("redis-sentinel", "--redis-url", "REDIS_URL", &["events", "list"]),
        ("unix", "--redis-url", "REDIS_URL", &program),
        ("http", "--management-url", "RABBITMQ_MANAGEMENT_URL", &["plan"]),
        ("https", "--management-url", "RABBITMQ_MANAGEMENT_URL", &["apply", "--auto-approve"]),
        ("http", "--http", "", &work),
        ("https", "--http", "", &work),
    ];
    for (kind, (scheme, flag, variable, verb)) in kinds.into_iter().enumerate() {
        // Each slip is given to one kind at least. No kind gets all of them: how a URL is read has its tests in `secret_url`.
        for (turn, slip) in slips(scheme).skip(kind).step_by(11).enumerate() {
            let given = match (turn + kind) % 3 {
                0 => Given::Flag,
                1 if !variable.is_empty() => Given::Variable,
                _ => Given::File,
            };
            let format = ["text", "json", "ndjson"][(2 * turn + kind) % 3];
            let mut command = place.command(&["-vvv", "-o", format]);
            command.args(verb).env("RUST_LOG", "trace");
            let file = place.write("url", &slip).display().to_string();
            match given {
                Given::Flag => command.args([flag, &slip]),
                Given::Variable => command.env(variable, &slip),
                Given::File if variable.is_empty() => command.args([flag, &format!("@{file}")]),
                Given::File => command.env_remove(variable).env(format!("{variable}_FILE"), file),
            };
            let said = if flag == "--http" {
                publish(&hatchery, NewEvent::new("job", "{}")).await;
                until_unavailable(&place, command).await
            } else {
                let ended = place.run(&mut command).await;
                format!("{}{}", ended.stdout, ended.stderr)
            };
            unavailable += usize::from(said.contains(UNAVAILABLE));
            assert_no_password(&format!("{slip} ({given:?})"), &said);
        }
    }
    assert!(unavailable > 0, "no worker has asked a service that does not answer");
    // The headers of the events, and of the copies that wait for the service.
    let amqp = declared.amqp().await;
    for queue in declared.queues() {
        while let Some(message) = amqp.get(&queue).await {
            assert_no_password(&queue, &format!("{:?}", message.delivery.properties));
        }
    }
}

/// The log line of a worker that waits for its service.
const UNAVAILABLE: &str = "the handler is unavailable";

/// Runs a worker until it ends, or waits for a service that is away. Returns what it has printed.
async fn until_unavailable(place: &Place<'_>, mut command: Command) -> String {
    let printed = fs::File::create(place.path("printed")).unwrap();
    command.stdout(printed.try_clone().unwrap()).stderr(printed);
    let mut worker = Process::spawn(command);
    let read = || fs::read_to_string(place.path("printed")).unwrap();
    let waits = async || (worker.try_ended().is_some() || read().contains(UNAVAILABLE)).then_some(());
    eventually("the worker refuses the URL, or waits for its service", waits).await;
    if worker.try_ended().is_none() {
        worker.ended_by(Signal::TERM).await;
    }
    read()
}

/// A URL in an argument that expects none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_misplaced_url_is_refused_before_anything_is_read_or_written_and_no_output_shows_its_password() {
    let declared = Declared::new("types: { job: {} }").await;
    let place = Place::new(&declared);
    let url = format!("amqp://u:{PASSWORD}@127.0.0.1:1/v");
    let at = format!("@{url}");
    let long = format!("--ampq-url={url}");
    let short = format!("-o{url}");
    let cut = format!("{PASSWORD}@127.0.0.1");
    let lines: [&[&str]; 15] = [
        &["plan", &url],
        &[&url],
        &["plan", &long],
        &["plan", &short],
        &["plan", "-o", &url],
        &["plan", "-f", &url],
        &["plan", "--out", &url],
        &["man", "--out", &url],
        &["plan", "--ca-file", &url],
        &["plan", "--amqp-url", "amqp://u:a", &cut],
        &["publish", "job", "--payload", "{}", "--delay", &url],
        &["work", "--type", "job", "--exec", "true", "--concurrency", &url],
        &["work", "--type", "job", "--exec", "true", "--listen", &url],
        &["work", "--type", "job", "--http", &at],
        &["work", "--type", "job", "--http", "http://127.0.0.1:1", "--http-ca", &url],
    ];
    for line in lines {
        let ended = place.run(&mut place.command(line)).await;
        assert!(!ended.status.success() && !ended.stderr.is_empty(), "{line:?}: {ended:?}");
        assert_no_password(&format!("{line:?}"), &format!("{}{}", ended.stdout, ended.stderr));
    }
    assert!(!place.path("amqp:").exists(), "the binary created a folder named after the URL");
    for variable in ["AMQP_URL_FILE", "REDIS_URL_FILE", "RABBITMQ_MANAGEMENT_URL_FILE"] {
        let mut command = place.command(&["plan"]);
        command.env_remove("AMQP_URL").env_remove("REDIS_URL").env(variable, &url);
        if variable.starts_with("REDIS") {
            command.args(["--management-url", "http://127.0.0.1:1"]);
        }
        let ended = place.run(&mut command).await;
        assert!(!ended.status.success(), "{variable}: {ended:?}");
        assert_no_password(variable, &format!("{}{}", ended.stdout, ended.stderr));
    }
    // `--help` shows the values of variables, unless they are hidden.
    for variable in ["TOPOLOGY_FILE", "TOPOLOGY_CA_FILE", "TOPOLOGY_CERT_FILE", "TOPOLOGY_KEY_FILE"] {
        for (code, line) in [(2, &["plan"][..]), (0, &["plan", "--help"])] {
            let ended = place.run(place.command(line).env(variable, &url)).await.expect(code);
            assert_no_password(variable, &format!("{}{}", ended.stdout, ended.stderr));
        }
    }
}

/// A reference may be a URL without a password. In a batch that is a matter of each line.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_publishes_no_reference_with_a_password() {
    let declared = Declared::new("types: { job: {} }").await;
    let place = Place::new(&declared);
    let url = format!("amqp://u:{PASSWORD}@127.0.0.1:1/v");
    let slash = format!("amqp://u:7321907321/{PASSWORD}@127.0.0.1:1/v");
    let batch = [&url, &slash, "ssh://git@github.com/x", "https://ada@example.org/x"]
        .map(|text| format!("{}\n", serde_json::json!({ "type": "job", "reference": text })))
        .concat();
    let batch = place.write("batch", &batch).display().to_string();
    let ended = place.run(&mut place.command(&["publish", "--batch", &batch])).await.expect(5);
    assert_no_password("the batch", &ended.stderr);
    assert!(ended.stdout.contains("2 published, 2 refused"), "{ended:?}");
}

/// Each mistyped URL is the content of a file that the binary reads as something else than a URL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "runs eight verbs with each form of a broken file; scripts/test --all runs it"]
async fn no_output_repeats_a_password_from_a_file() {
    let declared = Declared::new("types: { job: {} }").await;
    let place = Place::new(&declared);
    let verbs: [&[&str]; 8] = [
        &["validate", "-f", "secret"],
        &["plan", "-f", "secret"],
        &["apply", "secret"],
        &["publish", "--batch", "secret"],
        &["plan", "--ca-file", "secret"],
        &["plan", "--cert-file", "secret", "--key-file", "secret"],
        &["work", "--type", "job", "--http", "http://127.0.0.1:1", "--http-ca", "secret"],
        &["work", "--type", "job", "--http", "@secret", "--stop-when-empty"],
    ];
    let forms = [
        "URL",
        "\"URL\"",
        "name: URL",
        "URL: name",
        "version: 1\nname: t\ntypes: { URL: {} }",
        "{\"type\": \"URL\"}",
        "{\"URL\": 1}",
    ];
    for (form, slip) in forms.into_iter().zip(slips("amqp").step_by(5)) {
        place.write("secret", &form.replace("URL", &slip));
        for verb in verbs {
            let ended = place.run(&mut place.command(verb)).await;
            assert_no_password(&format!("{verb:?} {form} {slip}"), &format!("{}{}", ended.stdout, ended.stderr));
        }
    }
}

fn assert_no_password_in<T: Debug, E: Debug + ToString>(what: &str, result: Result<T, E>) {
    let text = match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{error:?} {}", error.to_string()),
    };
    assert_no_password(what, &text);
}

/// Neither the results of the library's calls nor the `Debug` output of its values show a password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_value_of_the_library_shows_the_password_of_a_mistyped_url() {
    let topology = hatchery::file::read("version: 1\nname: t\ntypes: { job: {} }\n", "topology.yaml").unwrap();
    let broker = AmqpUrl::new("amqp://127.0.0.1:1").unwrap();
    for slip in slips("amqp") {
        let builder = Hatchery::builder(topology.clone()).amqp_url(&slip);
        assert_no_password(&slip, &format!("{builder:?}"));
        assert_no_password_in(&slip, builder.connect().await);
        assert_no_password_in(
            &slip,
            Hatchery::builder(topology.clone()).amqp_urls([slip.as_str(), "amqp://h/v"]).connect().await,
        );
        assert_no_password_in(&slip, AmqpUrl::new(&slip));
    }
    for scheme in ["redis", "rediss", "redis-cluster", "redis-sentinel", "unix"] {
        for slip in slips(scheme) {
            let builder = Hatchery::builder(topology.clone()).redis_url(&slip);
            assert_no_password(&slip, &format!("{builder:?}"));
            let events = builder.events().map(|_| "events");
            assert_no_password_in(&slip, events);
        }
    }
    for slip in slips("http") {
        assert_no_password_in(&slip, ManagementUrl::new(&slip, &broker));
        assert_no_password_in(&slip, ServiceUrl::new(&slip));
        if let Ok(url) = ServiceUrl::new(&slip) {
            assert_no_password_in(&slip, Http::new(url));
        }
    }
}
