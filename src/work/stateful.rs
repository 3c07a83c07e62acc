//! A worker whose handler functions share a state.

use std::{future::Future, sync::Arc};

use serde::de::DeserializeOwned;

use super::builder::Worker;
use crate::{
    domain::kind::EventKind,
    handler::{Closure, IntoOutcome, Json, Run},
};

/// Handler functions with a state as their first argument ([`Worker::state`]).
impl<S: Send + Sync + 'static> Worker<Arc<S>> {
    /// Handles a type with an async function or closure that takes the state and the run.
    #[must_use]
    pub fn handle<F, R>(self, event_type: &str, handler: F) -> Self
    where
        F: Fn(Arc<S>, Run) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        self.handler(event_type, Arc::new(Closure(move |run| handler(Arc::clone(&state), run))))
    }

    /// Handles a type whose payloads are JSON, with an async function or closure that takes the state, the payload and the run.
    #[must_use]
    pub fn handle_json<T, F, R>(self, event_type: &str, handler: F) -> Self
    where
        T: DeserializeOwned + Send + 'static,
        F: Fn(Arc<S>, T, Run) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        let state = Arc::clone(&self.state);
        self.handler(event_type, Arc::new(Json::new(move |payload, run| handler(Arc::clone(&state), payload, run))))
    }

    /// Handles events of this kind, with an async function or closure that takes the state, the payload and the run.
    #[must_use]
    pub fn on<K, F, R>(self, _kind: K, handler: F) -> Self
    where
        K: EventKind,
        F: Fn(Arc<S>, K::Payload, Run) -> R + Send + Sync + 'static,
        R: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handle_json(K::TYPE, handler)
    }
}
