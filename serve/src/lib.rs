//! The HTTP API of a topology, as `topology serve` runs it: publishes events, finds and changes those that wait, and tells the status.
//! And a page for people, at `/`.
//!
//! ```no_run
//! # async fn example(topology: hatchery::Topology) -> Result<(), Box<dyn std::error::Error>> {
//! use std::sync::Arc;
//! use hatchery::{CancellationToken, Hatchery};
//! use hatchery_admin::Admin;
//! use hatchery_serve::{Entrance, Servers, Tokens, serve};
//! use tokio::net::TcpListener;
//!
//! let builder = Hatchery::builder(topology.clone()).name("api");
//! let tokens = Tokens::read(&std::fs::read_to_string("tokens")?, &topology)?;
//! let entrance = Entrance::new(TcpListener::bind("0.0.0.0:8080").await?, Some(tokens))?;
//! let hatchery = Arc::new(builder.clone().connect().await?);
//! let servers = Servers::new(Arc::clone(&hatchery), Admin::new(builder)?);
//! serve(entrance, hatchery.publisher(), hatchery.events(), Arc::new(servers), CancellationToken::new()).await;
//! # Ok(())
//! # }
//! ```
//!
//! The server holds no state: run as many as you like. It speaks HTTP/1.1 without TLS; put a proxy in front that ends TLS.
//!
//! # Layout
//!
//! - `operations`: every operation with its right and its answers, as one table. The routes and the `description`
//!   (`/v1/openapi.json`) are made of it.
//! - `publish`, `batch`, `known`, `change`, `status`, `pauses`, `breakers`, `letters`, `search`, `trace`, `topology`,
//!   `schedules`: the operations. `lookup`: which events Redis knows before they are published. `page`: the page for people, which
//!   calls them.
//! - `figures`: what the status says, as metrics.
//! - `backend`: what they ask of the servers beside the publisher and the events.
//! - `tokens`, `local`, `guard`: who may call them. `problem`: what they answer if something is wrong.
//! - `work`: changes that are carried out although their request is dropped.
//! - `connections`, `patient`, `body`, `room`: the limits of connections, of time and of memory.

mod answer;
mod api;
mod backend;
mod batch;
mod body;
mod breakers;
mod change;
mod connections;
mod description;
mod figures;
mod guard;
mod letters;
mod local;
mod lookup;
mod operations;
mod page;
mod patient;
mod pauses;
mod problem;
mod publish;
mod query;
mod room;
mod schedules;
mod search;
mod server;
mod status;
mod tokens;
mod topology;
mod trace;
mod work;

pub use hatchery_admin::Backend;

pub use self::{
    backend::Servers,
    server::{Entrance, EntranceError, serve},
    tokens::{Tokens, TokensError},
};
#[doc(hidden)]
pub use self::{connections::accept, figures::METRICS, operations::description};
