//! Who is answered: tokens, and without tokens this machine.

use std::process::{Command, Stdio};

use reqwest::{
    Method, RequestBuilder,
    header::{HOST, ORIGIN},
};
use rustix::process::Signal;
use serde_json::json;
use tokio::net::TcpStream;

use super::client::{Serving, mail};
use crate::support::{
    broker::eventually,
    declared::Declared,
    process::{Place, Process},
    redis::free_port,
};

/// Returns the SHA-256 of a token, by the command that the documentation names.
pub(super) fn hash(token: &str) -> String {
    let output = Command::new("sh").args(["-c", "printf %s \"$0\" | sha256sum", token]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()[..64].to_owned()
}

/// Returns a file of tokens.
pub(super) fn tokens() -> String {
    let rights = [
        ("reads", "read"),
        ("publishes", "publish"),
        ("mails", "publish:mail"),
        ("operates", "operate"),
        ("all", "read,publish,operate"),
    ];
    let lines = rights.iter().map(|(token, right)| format!("{token} {} {right}", hash(token)));
    lines.collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn each_operation_takes_its_right_and_no_other() {
    const WRONG: [u16; 2] = [401, 403];
    let declared = Declared::new("types: { mail: {}, import: { breaker: {} } }").await;
    let place = Place::new(&declared);
    let file = place.write("tokens", &tokens());
    let serving = Serving::with(&place, &declared.host.amqp(), &["--tokens", file.to_str().unwrap()]).await;
    // The status that each token gets, in the order of the rights: none, an unknown one, reads, publishes, mails, operates, all.
    let named = json!({ "id": "a" });
    let import = json!({ "type": "import", "id": "a" });
    let operations = [
        (Method::POST, "/v1/events", Some(mail("a")), [401, 401, 403, 201, 200, 403, 200]),
        (Method::POST, "/v1/events", Some(import), [401, 401, 403, 201, 403, 403, 200]),
        (Method::GET, "/v1/events/mail?id=a", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::POST, "/v1/events/mail/cancel", Some(named.clone()), [401, 401, 403, 403, 403, 200, 200]),
        (Method::POST, "/v1/events/mail/run-now", Some(named.clone()), [401, 401, 403, 403, 403, 404, 404]),
        (Method::POST, "/v1/events/mail/reschedule", Some(named), [401, 401, 403, 403, 403, 422, 422]),
        (Method::GET, "/v1/events", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::GET, "/v1/trace?id=a", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::GET, "/v1/status", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::GET, "/v1/pauses", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::POST, "/v1/pauses", Some(json!({ "type": "import" })), [401, 401, 403, 403, 403, 200, 200]),
        (Method::POST, "/v1/pauses/end", Some(json!({ "type": "import" })), [401, 401, 403, 403, 403, 200, 200]),
        (Method::GET, "/v1/breakers", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::POST, "/v1/breakers/import/close", None, [401, 401, 403, 403, 403, 200, 200]),
        (Method::GET, "/v1/topology", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::GET, "/v1/topology.svg", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::GET, "/v1/schedules", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::GET, "/v1/schedules/nightly", None, [401, 401, 404, 403, 403, 403, 404]),
        (Method::POST, "/v1/schedules/nightly/run-now", None, [401, 401, 403, 403, 403, 404, 404]),
        (
            Method::POST,
            "/v1/schedules/nightly/backfill",
            Some(json!({ "from": "1h ago" })),
            [401, 401, 403, 403, 403, 404, 404],
        ),
        (Method::GET, "/v1/dead-letters", None, [401, 401, 200, 403, 403, 403, 200]),
        (Method::GET, "/v1/dead-letters/mail/a", None, [401, 401, 404, 403, 403, 403, 404]),
        (Method::POST, "/v1/dead-letters/replay", Some(json!({})), [401, 401, 403, 403, 403, 200, 200]),
        (Method::POST, "/v1/dead-letters/discard", Some(json!({})), [401, 401, 403, 403, 403, 200, 200]),
        (Method::GET, "/v1/token", None, [401, 401, 200, 200, 200, 200, 200]),
        (Method::GET, "/v1/openapi.json", None, [200; 7]),
    ];
    let holders =
        [None, Some("unknown"), Some("reads"), Some("publishes"), Some("mails"), Some("operates"), Some("all")];
    for (method, path, body, expected) in operations {
        for (token, expected) in holders.iter().zip(expected) {
            let request = |request: RequestBuilder| {
                let request = if let Some(token) = token { request.bearer_auth(token) } else { request };
                if let Some(body) = &body { request.json(body) } else { request }
            };
            let answer = serving.send(method.clone(), path, request).await;
            assert_eq!(answer.status, expected, "{method} {path} with {token:?}: {answer:?}");
            assert!(!WRONG.contains(&expected) || !answer.text.contains(&hash("all")), "{answer:?}");
        }
    }
    // A line of a batch takes the right of what it does.
    let batch = "{\"type\":\"mail\",\"id\":\"b\"}\n{\"type\":\"import\",\"id\":\"b\"}\n{\"cancel\":{\"type\":\"mail\",\"id\":\"b\"}}\n";
    let request = |request: RequestBuilder| {
        request.bearer_auth("mails").header("content-type", "application/x-ndjson").body(batch)
    };
    let mut lines = serving.send(Method::POST, "/v1/events", request).await.expect(200).lines();
    lines.sort_by_key(|line| line["line"].as_u64());
    let errors: Vec<_> = lines.iter().map(|line| line["error"].as_str()).collect();
    let refused = |what| {
        Some(["the token `mails` may not publish events of this type", "the token `mails` may not operate"][what])
    };
    assert_eq!(errors, [None, refused(0), refused(1)], "{lines:?}");
}

#[tokio::test]
async fn a_foreign_host_or_page_is_not_answered_without_tokens() {
    let declared = Declared::new("types: { mail: {} }").await;
    let serving = Serving::start(&declared).await;
    let by = async |name, value: &'static str| {
        let request = |request: RequestBuilder| request.header(name, value).json(&mail("a"));
        serving.send(Method::POST, "/v1/events", request).await.status
    };
    assert_eq!(by(HOST, "rebound.example").await, 403);
    assert_eq!(by(ORIGIN, "http://evil.example").await, 403);
    assert_eq!(declared.amqp().await.ready(&declared.processing("mail")).await, 0);
    assert_eq!(by(HOST, "localhost:8080").await, 201);
}

#[tokio::test]
async fn a_server_without_tokens_listens_on_the_loopback_interface_alone() {
    let declared = Declared::new("types: { mail: {} }").await;
    let place = Place::new(&declared);
    let ended =
        place.run(&mut place.command(&["serve", "--listen", &format!("0.0.0.0:{}", free_port())])).await.expect(2);
    assert!(ended.stderr.contains("without tokens the server listens on the loopback interface alone"), "{ended:?}");
    place.write("tokens", "till s3cret read");
    let ended = place.run(&mut place.command(&["serve", "--tokens", "tokens"])).await.expect(1);
    assert!(
        ended.stderr.contains("line 1: the second word is not a SHA-256") && !ended.stderr.contains("s3cret"),
        "{ended:?}"
    );
    place.write("tokens", "# nobody yet\n");
    let ended = place.run(&mut place.command(&["serve", "--tokens", "tokens"])).await.expect(1);
    assert!(ended.stderr.contains("the file has no token"), "{ended:?}");
    // With tokens it does.
    place.write("tokens", &tokens());
    let port = free_port();
    let mut command = place.command(&["serve", "--listen", &format!("0.0.0.0:{port}"), "--tokens", "tokens"]);
    command.stderr(Stdio::null());
    let process = Process::spawn(command);
    let listens = async || TcpStream::connect(("127.0.0.1", port)).await.ok();
    eventually("it listens", listens).await;
    process.signal(Signal::TERM);
    process.ended().await.expect(0);
}
