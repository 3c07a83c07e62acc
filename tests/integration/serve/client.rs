//! A server, and a client that compares each answer with the description of the API.

use std::fs::File;

use jsonschema::Validator;
use reqwest::{Client, Method, RequestBuilder, header::CONTENT_TYPE};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};

use crate::support::{
    broker::{PATIENCE, eventually},
    closed::close,
    declared::Declared,
    process::{Place, Process},
    redis::free_port,
};

/// A server as a process, and a client of it.
pub(super) struct Serving {
    pub(super) port: u16,
    pub(super) process: Process,
    client: Client,
    description: Value,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: bool,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Returns the answers to the lines of a batch.
    pub(super) fn lines(&self) -> Vec<Value> {
        self.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{self:?}");
        self
    }
}

impl Serving {
    pub(super) async fn start(declared: &Declared) -> Self {
        Self::with(&Place::new(declared), &declared.host.amqp(), &[]).await
    }

    /// Starts a server with further arguments, and waits until it answers. Its log goes to the file `log`.
    pub(super) async fn with(place: &Place<'_>, amqp: &str, arguments: &[&str]) -> Self {
        Self::managed(place, amqp, &place.declared.host.management(), arguments).await
    }

    /// Starts a server that asks this management API.
    pub(super) async fn managed(place: &Place<'_>, amqp: &str, management: &str, arguments: &[&str]) -> Self {
        let port = free_port();
        let mut command = place.command(&["serve", "--listen", &format!("127.0.0.1:{port}")]);
        command.args(arguments).env("AMQP_URL", amqp).env("RABBITMQ_MANAGEMENT_URL", management);
        command.stderr(File::options().create(true).append(true).open(place.path("log")).unwrap());
        let mut process = Process::spawn(command);
        let client = Client::builder().tls_certs_only([]).no_proxy().timeout(PATIENCE).build().unwrap();
        let url = format!("http://127.0.0.1:{port}/v1/openapi.json");
        let described = async || {
            assert!(process.try_ended().is_none(), "{:?}", place.lines("log"));
            let answer = client.get(&url).send().await.ok()?;
            Some(serde_json::from_slice(&answer.bytes().await.ok()?).unwrap())
        };
        let description = eventually("the server answers", described).await;
        Self { port, process, client, description }
    }

    /// Publishes one event.
    pub(super) async fn publish(&self, event: &Value) -> Answer {
        self.post("/v1/events", event).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(Method::POST, path, |request| request.json(body)).await
    }

    pub(super) async fn batch(&self, lines: String) -> Answer {
        let batch = |request: RequestBuilder| request.header(CONTENT_TYPE, "application/x-ndjson").body(lines);
        self.send(Method::POST, "/v1/events", batch).await
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, |request| request).await
    }

    /// Sends a request. Fails if the description has no such answer.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        fill: impl FnOnce(RequestBuilder) -> RequestBuilder,
    ) -> Answer {
        let url = format!("http://127.0.0.1:{}{path}", self.port);
        let answer = fill(self.client.request(method.clone(), url)).send().await.unwrap();
        let header = |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        let (status, media_type, retry_after) =
            (answer.status().as_u16(), header("content-type").unwrap_or_default(), header("retry-after").is_some());
        assert_eq!(header("x-content-type-options").as_deref(), Some("nosniff"), "{method} {path}");
        let answer = Answer { status, retry_after, text: answer.text().await.unwrap() };
        self.check(method.as_str(), path, &media_type, &answer);
        answer
    }

    #[track_caller]
    fn check(&self, method: &str, path: &str, media_type: &str, answer: &Answer) {
        let path = path.split('?').next().unwrap();
        let is_it = |template: &str| {
            let parts = || template.split('/').zip(path.split('/'));
            template.split('/').count() == path.split('/').count()
                && parts().all(|(part, here)| part.starts_with('{') || part == here)
        };
        let paths = self.description["paths"].as_object().unwrap();
        let (_, operations) = paths.iter().find(|(template, _)| is_it(template)).expect("the path is described");
        let status = answer.status.to_string();
        let content = &operations[method.to_lowercase()]["responses"][&status]["content"][media_type];
        assert!(
            content.is_object(),
            "{method} {path} answers {status} {media_type}, which is not described: {answer:?}"
        );
        let mut schema = content["schema"].clone();
        schema["$defs"] = self.description["components"]["schemas"].clone();
        let text = schema.to_string().replace("#/components/schemas/", "#/$defs/");
        let mut schema: Value = serde_json::from_str(&text).unwrap();
        if path != "/v1/openapi.json" {
            close(&mut schema);
        }
        let validator = Validator::new(&schema).unwrap();
        if media_type == "image/svg+xml" {
            return;
        }
        let documents = if media_type.ends_with("ndjson") { answer.lines() } else { vec![answer.json()] };
        for document in documents {
            let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "the description forbids the answer: {errors:#?}\n{document:#}");
        }
    }

    /// Opens a connection, and sends the head of a request to publish.
    pub(super) async fn open(&self, media_type: &str, length: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let head =
            format!("POST /v1/events HTTP/1.1\r\nhost: localhost\r\ncontent-type: {media_type}\r\n{length}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        BufReader::new(stream)
    }
}

/// Reads from a connection up to a line with this text, and returns what it has read.
pub(super) async fn read_to(stream: &mut BufReader<TcpStream>, text: &str) -> String {
    let mut read = String::new();
    let reading = async {
        while !read.lines().any(|line| line.contains(text)) {
            assert!(stream.read_line(&mut read).await.unwrap() > 0, "the connection ends without `{text}`: {read}");
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| panic!("no `{text}`"));
    read
}

/// Returns an event of the type `mail`.
pub(super) fn mail(id: &str) -> Value {
    json!({ "type": "mail", "id": id })
}
