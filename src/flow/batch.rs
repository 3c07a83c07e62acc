//! Many callers, one call: what is asked while a call is under way goes together in the next one.

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::{domain::trouble::Trouble, ports::RegisterError};

/// The largest batch. A script over it takes a few milliseconds, in which Redis serves nobody else.
const LARGEST: usize = 256;

type Asked<Q, A> = (Q, oneshot::Sender<Result<A, RegisterError>>);

/// One kind of call, in batches.
pub(super) struct Batched<Q, A> {
    queue: mpsc::UnboundedSender<Asked<Q, A>>,
}

impl<Q: Send + 'static, A: Send + 'static> Batched<Q, A> {
    /// Starts the task that makes the calls. It ends with the last caller.
    pub(super) fn start<F>(call: F) -> Self
    where
        F: Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, RegisterError>> + Send + 'static,
    {
        let (queue, inbox) = mpsc::unbounded_channel();
        tokio::spawn(serve(inbox, call));
        Self { queue }
    }

    /// Asks. The order of these calls, not of their answers' arrival, is the order within the batches. The queue has
    /// no bound of its own: callers are bounded by the prefetch and by the publishes in flight.
    pub(super) fn ask(&self, question: Q) -> impl Future<Output = Result<A, RegisterError>> + use<Q, A> {
        let (reply, answer) = oneshot::channel();
        let sent = self.queue.send((question, reply));
        async move {
            let ended = || RegisterError::Unreachable {
                url: "-".to_owned(),
                trouble: Trouble::Away,
                reason: "the task that asks it has ended".to_owned(),
            };
            sent.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())?
        }
    }
}

async fn serve<Q, A, F>(mut inbox: mpsc::UnboundedReceiver<Asked<Q, A>>, call: F)
where
    F: Fn(Vec<Q>) -> BoxFuture<'static, Result<Vec<A>, RegisterError>>,
{
    let mut batch = Vec::new();
    while inbox.recv_many(&mut batch, LARGEST).await > 0 {
        // Who has stopped waiting (a publisher after 250 ms) does not want the effect either.
        batch.retain(|(_, reply)| !reply.is_closed());
        if batch.is_empty() {
            continue;
        }
        let (questions, replies): (Vec<Q>, Vec<_>) = batch.drain(..).unzip();
        match call(questions).await {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    let _ = reply.send(Ok(answer));
                }
            }
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[tokio::test]
    async fn what_is_asked_meanwhile_goes_together_and_in_order() {
        let batches = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&batches);
        let calls = Batched::start(move |questions: Vec<u32>| {
            seen.lock().expect("no panic").push(questions.clone());
            Box::pin(async move { Ok(questions.into_iter().map(|n| n * 10).collect()) })
        });
        let asked: Vec<_> = (0..600).map(|n| calls.ask(n)).collect();
        let answers = futures_util::future::join_all(asked).await;
        assert!(answers.into_iter().zip(0..).all(|(answer, n)| matches!(answer, Ok(a) if a == n * 10)));
        let batches = batches.lock().expect("no panic").clone();
        assert_eq!(batches.concat(), (0..600).collect::<Vec<_>>());
        assert!(batches.len() <= 4, "{} batches", batches.len());
    }

    #[tokio::test]
    async fn who_stops_waiting_is_not_served() {
        let calls = Batched::start(|questions: Vec<u32>| Box::pin(async move { Ok(questions) }));
        drop(calls.ask(1));
        assert!(matches!(calls.ask(2).await, Ok(2)));
    }
}
