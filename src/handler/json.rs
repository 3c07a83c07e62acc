//! A handler whose payloads are JSON of one type.

use std::marker::PhantomData;

use async_trait::async_trait;
use serde::de::DeserializeOwned;

use super::{
    into_outcome::IntoOutcome,
    run::{Handler, Run},
};
use crate::domain::settlement::Outcome;

/// A handler that parses the payload as JSON first. An event whose payload is not a `T` is dead-lettered, because a retry
/// would not change it.
pub(crate) struct Json<T, F> {
    handler: F,
    payload: PhantomData<fn() -> T>,
}

impl<T, F> Json<T, F> {
    pub(crate) fn new(handler: F) -> Self {
        Self { handler, payload: PhantomData }
    }
}

#[async_trait]
impl<T, F, R> Handler for Json<T, F>
where
    T: DeserializeOwned + Send + 'static,
    F: Fn(T, Run) -> R + Send + Sync + 'static,
    R: Future<Output: IntoOutcome> + Send,
{
    async fn handle(&self, run: Run) -> Outcome {
        let payload = match run.event.json() {
            Ok(payload) => payload,
            Err(error) => return Outcome::dead_letter(format_args!("the payload cannot be read: {error}")),
        };
        (self.handler)(payload, run).await.into_outcome()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::handler::tests::run;

    #[tokio::test]
    async fn a_payload_of_another_shape_will_never_work() {
        let handler = Json::new(|payload: BTreeMap<String, u32>, run: Run| async move {
            assert_eq!(run.event.payload.as_ref(), br#"{"pages": 3}"#);
            if payload["pages"] == 3 { Ok(Outcome::Done) } else { Err("too long") }
        });
        assert_eq!(handler.handle(run(r#"{"pages": 3}"#)).await, Outcome::Done);
        let expected = "the payload cannot be read: invalid type: string \"three\", expected u32 at line 1 column 17";
        let answer = handler.handle(run(r#"{"pages": "three"}"#)).await;
        assert_eq!(answer, Outcome::DeadLetter { reason: expected.to_owned() });
    }
}
