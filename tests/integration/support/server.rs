//! The addresses of a running RabbitMQ, and calls to its management API, from any test, with their time limit.

use std::{process::Child, thread, time::Duration};

use reqwest::Method;
use serde_json::Value;
use url::Url;

pub(super) struct Server {
    pub(super) amqp: Url,
    pub(super) management: Url,
    /// The process that keeps the server running. It ends the server when its standard input ends, which happens when
    /// this process ends, however it ends.
    pub(super) _hold: Option<Child>,
}

/// The time limit for anything that a server does on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// Calls a management API as the user in its URL. Returns the status and the JSON of the answer.
pub(crate) fn call(
    management: &Url,
    method: Method,
    path: &[&str],
    body: Option<&Value>,
) -> reqwest::Result<(u16, Value)> {
    let mut url = management.clone();
    url.path_segments_mut().unwrap().pop_if_empty().push("api").extend(path);
    let (user, password) = (url.username().to_owned(), url.password().unwrap_or_default().to_owned());
    url.set_username("").unwrap();
    url.set_password(None).unwrap();
    let call = async {
        let client = reqwest::Client::builder().tls_certs_only([]).no_proxy().timeout(PATIENCE).build().unwrap();
        let mut request = client.request(method, url).basic_auth(user, Some(password));
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.bytes().await?))
    };
    let (status, body) = block_on(call)?;
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

/// Runs a future to its end in a thread of its own, so that a test that is itself in a runtime may call it.
pub(crate) fn block_on<T: Send>(task: impl Future<Output = T> + Send) -> T {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    thread::scope(|scope| scope.spawn(move || runtime().block_on(task)).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
