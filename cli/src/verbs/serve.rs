//! `topology serve`: serves the API of the topology over HTTP.

use std::{path::PathBuf, str::FromStr as _, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures_util::future::OptionFuture;
use hatchery::{CancellationToken, Hatchery, Topology, internals::bounded_file};
use hatchery_serve::{Entrance, EntranceError, Servers, Tokens};
use tokio::time::{sleep, timeout};

use crate::{
    args::{Common, UsageError},
    connect,
    exit::{Ended, Exit},
    listen, load,
    output::Output,
    stop::Stop,
};

/// How long a probe waits for the broker.
const PROBE: Duration = Duration::from_secs(1);
/// How often the file of tokens is read.
const RENEWED: Duration = Duration::from_secs(2);
/// The largest file of tokens in MiB.
const LARGEST: u32 = 1;

/// Serve an HTTP API, and a page for people: publish events, find and change them, ask for the status
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology serve
  topology serve --listen 0.0.0.0:8080 --tokens tokens --metrics :9464
  curl -d '{\"type\": \"mail\"}' -H 'content-type: application/json' \\
    localhost:8080/v1/events
  curl localhost:8080/v1/openapi.json      its description, OpenAPI 3.1
  xdg-open http://localhost:8080           the page

The page shows what is wrong and what helps, finds events, and changes them with
a token that may operate. It asks for the token, and forgets it with the tab.

201 means that the broker has confirmed the event, and the answer has its id. So
has any other answer once an event has an id: repeat the event with it. If Redis
knew an event by its id before, the answer is 200, with its state then. After
503 nothing was done, or it is not known: repeat the request. With the content
type application/x-ndjson a body has up to 10,000 lines as in `topology publish
--batch`; each is answered as soon as it is confirmed.

A line of the file of tokens has a name, the SHA-256 of the token, and what it
may: read, operate, publish, or publish:TYPE, with commas. Make a token with
  openssl rand -hex 32 | tee token | tr -d '\\n' | sha256sum
and send it as `Authorization: Bearer TOKEN`. A changed file is taken over
within seconds, if it ends with a newline. Without --tokens everybody on this
machine may do everything, and nobody else is answered.

The server speaks HTTP/1.1 without TLS, and holds no state: run as many as you
like behind a proxy that ends TLS. SIGTERM and SIGINT stop it: it answers the
requests under way, for 25 s at most. A second signal stops it at once, with
exit status 1.

Each option may also be an environment variable, for a container:
TOPOLOGY_LISTEN, TOPOLOGY_TOKENS, TOPOLOGY_METRICS.")]
pub(crate) struct Args {
    /// The address of the API; :PORT alone means all interfaces
    #[arg(long, value_name = "HOST:PORT", value_parser = listen::Address::from_str, default_value = "127.0.0.1:8080")]
    #[arg(env = "TOPOLOGY_LISTEN", hide_env_values = true)]
    listen: listen::Address,

    /// The tokens that are answered, and what each may do
    #[arg(long, value_name = "FILE", env = "TOPOLOGY_TOKENS", hide_env_values = true)]
    tokens: Option<PathBuf>,

    /// Serve Prometheus metrics at /metrics, with what `topology status` finds, and probes: /livez answers 200, /readyz 200 while the
    /// broker takes messages
    #[arg(long, value_name = "HOST:PORT", value_parser = listen::Address::from_str)]
    #[arg(env = "TOPOLOGY_METRICS", hide_env_values = true)]
    metrics: Option<listen::Address>,
}

pub(crate) async fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    // Before anything else: the kernel drops a signal to a container's first process if it has no handler yet.
    let Stop { gently: stop, at_once } = Stop::on_signals()?;
    let topology = load::topology(common, output)?;
    let tokens = args.tokens.as_ref().map(|path| tokens(path, &topology)).transpose()?;
    let renewed = args
        .tokens
        .clone()
        .zip(tokens.clone())
        .map(|(path, tokens)| renew(path, topology.clone(), tokens, stop.clone()));
    let address = &args.listen;
    let listener = address.bind().await.with_context(|| format!("--listen: cannot listen at {address}"))?;
    let entrance = Entrance::new(listener, tokens).map_err(|error| match error {
        EntranceError::NotLocal => UsageError(format!("--listen {address}: {error}; or give --tokens")).into(),
        error => anyhow::Error::from(error),
    })?;
    // Before anything is counted, because a count before the recorder is installed is lost.
    let listening = match &args.metrics {
        Some(address) => Some(listen::open(address, "--metrics").await?),
        None => None,
    };
    let admin = connect::admin(common, topology.clone(), NAME)?;
    let connecting = async {
        let builder = connect::builder(common, topology, NAME)?;
        Ok::<_, anyhow::Error>(Arc::new(connect::applied(builder).await.map_err(connect::usage)?))
    };
    // A stop while connecting ends at once: no request was taken.
    let Some(hatchery) = stop.run_until_cancelled(connecting).await else { return Ok(Exit::Done) };
    let hatchery = hatchery?;
    if let Some(listening) = &listening {
        let probed = Arc::downgrade(&hatchery);
        listening.begin(move || Box::pin(takes_messages(probed.upgrade())));
    }
    let (publisher, events) = (hatchery.publisher(), hatchery.events());
    let servers = Arc::new(Servers::new(Arc::clone(&hatchery), admin));
    let entrance = entrance.measured(listening.is_some());
    let serving = hatchery_serve::serve(entrance, publisher, events, Arc::clone(&servers) as _, stop);
    let both = async { tokio::join!(serving, OptionFuture::from(renewed)) };
    let served = at_once.run_until_cancelled(both).await;
    servers.close().await;
    drop(servers);
    // A request that was cut off, or a probe, may still have it.
    if let Some(hatchery) = Arc::into_inner(hatchery) {
        hatchery.close().await;
    }
    match served {
        Some(_) => Ok(Exit::Done),
        None => Err(Ended::new(Exit::Error, "stopped at once; requests under way have no answer").into()),
    }
}

const NAME: &str = "topology serve";

async fn takes_messages(hatchery: Option<Arc<Hatchery>>) -> bool {
    match hatchery {
        Some(hatchery) => timeout(PROBE, hatchery.require_publishing()).await.is_ok_and(|taken| taken.is_ok()),
        None => false,
    }
}

fn tokens(path: &PathBuf, topology: &Topology) -> anyhow::Result<Tokens> {
    let text =
        bounded_file::read_text(path, LARGEST).with_context(|| format!("--tokens: cannot read {}", path.display()))?;
    let tokens = Tokens::read(&text, topology).with_context(|| format!("--tokens: {}", path.display()))?;
    anyhow::ensure!(!tokens.is_empty(), "--tokens: {}: the file has no token", path.display());
    Ok(tokens)
}

/// Takes over the tokens of the file when it changes, until the stop. The time of a change tells nothing: a mounted secret is replaced by
/// links. A file that is being written is not read: a right that is cut off, such as `publish:mail`, may be another one. Nor is one that is
/// emptied first, unless it is still empty at the next read.
async fn renew(path: PathBuf, topology: Topology, known: Tokens, stop: CancellationToken) {
    let (mut last, mut before) = (None, None);
    let renewing = async {
        loop {
            let text = bounded_file::read_text(&path, LARGEST).map_err(|error| error.to_string());
            let is_written = text.as_ref().is_ok_and(|text| before.replace(text.clone()).as_ref() == Some(text));
            if text.is_ok() && !is_written {
                sleep(RENEWED).await;
                continue;
            }
            let read = text.and_then(|text| match Tokens::read(&text, &topology) {
                Ok(_) if !text.is_empty() && !text.ends_with('\n') => {
                    Err("the last line is cut off: end it with a newline".to_owned())
                }
                read => read.map_err(|error| error.to_string()),
            });
            match read {
                Ok(tokens) if !known.are(&tokens) => {
                    known.replace(&tokens);
                    tracing::info!("the file of tokens has changed and is taken over");
                    if known.is_empty() {
                        tracing::warn!("the file of tokens has no token, so nobody is answered");
                    }
                    last = None;
                }
                Ok(_) => last = None,
                Err(error) if last.as_ref() != Some(&error) => {
                    tracing::error!(%error, "the file of tokens cannot be read; the tokens before it still count");
                    last = Some(error);
                }
                Err(_) => {}
            }
            sleep(RENEWED).await;
        }
    };
    stop.run_until_cancelled(renewing).await;
}
