//! The server.

use std::{io, sync::Arc};

use futures_util::future::OptionFuture;
use hatchery::{CancellationToken, Events, Publisher};
use hatchery_admin::Backend;
use tokio::net::TcpListener;

use crate::{api::Api, connections, figures, operations::router, status, tokens::Tokens};

/// Where a server listens, and whom it answers.
pub struct Entrance {
    listener: TcpListener,
    tokens: Option<Tokens>,
    is_measured: bool,
}

/// Why a server cannot listen.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EntranceError {
    /// The address is not one of the loopback interface, and there are no tokens: anybody in the network could do everything.
    #[error(
        "without tokens the server listens on the loopback interface alone, such as 127.0.0.1:8080 or localhost:8080"
    )]
    NotLocal,
    /// The listener has no address.
    #[error(transparent)]
    Listener(#[from] io::Error),
}

impl Entrance {
    /// Takes a listener. Without tokens the server answers this machine alone, which may do everything.
    ///
    /// # Errors
    /// [`EntranceError::NotLocal`] if the listener can be reached from elsewhere and there are no tokens.
    pub fn new(listener: TcpListener, tokens: Option<Tokens>) -> Result<Self, EntranceError> {
        if tokens.is_none() && !listener.local_addr()?.ip().is_loopback() {
            return Err(EntranceError::NotLocal);
        }
        Ok(Self { listener, tokens, is_measured: false })
    }

    /// Has the status told in metrics too, twice a minute.
    #[must_use]
    pub fn measured(self, is_measured: bool) -> Self {
        Self { is_measured, ..self }
    }
}

/// Serves the API of a topology until `stop` is cancelled, and then until the requests under way have their answers, for 25 seconds
/// at most.
pub async fn serve(
    entrance: Entrance,
    publisher: Publisher,
    events: Events,
    backend: Arc<dyn Backend>,
    stop: CancellationToken,
) {
    let Entrance { listener, tokens, is_measured } = entrance;
    let address = listener.local_addr().map(|address| address.to_string()).unwrap_or_default();
    tracing::info!(address, tokens = tokens.is_some(), "the server listens");
    let api = Arc::new(Api::new(publisher, events, backend, tokens, stop.clone()));
    let work = api.work.clone();
    let measuring = OptionFuture::from(is_measured.then(|| figures::measure(Arc::clone(&api))));
    tokio::join!(connections::serve(listener, router(&api), work, stop), status::look(Arc::clone(&api)), measuring);
}
