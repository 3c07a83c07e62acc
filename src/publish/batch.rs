//! Many callers, one call: what is asked while a call is under way goes together in the next one.

use std::{iter, ops::Range, sync::Arc};

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

impl<Q: Send + Sync + 'static, A: Send + 'static> Batched<Q, A> {
    /// Starts the task that makes the calls, each about a part of a batch. It ends with the last caller.
    pub(super) fn start<F>(call: F) -> Self
    where
        F: Fn(Arc<[Q]>, Range<usize>) -> BoxFuture<'static, Result<Vec<A>, RegisterError>> + Send + Sync + 'static,
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
            sent.map_err(|_| ended())?;
            answer.await.map_err(|_| ended())?
        }
    }
}

fn ended() -> RegisterError {
    let reason = "the task that asks it has ended".to_owned();
    RegisterError::Unreachable { url: "-".to_owned(), trouble: Trouble::Away, reason }
}

async fn serve<Q, A, F>(mut inbox: mpsc::UnboundedReceiver<Asked<Q, A>>, call: F)
where
    F: Fn(Arc<[Q]>, Range<usize>) -> BoxFuture<'static, Result<Vec<A>, RegisterError>>,
{
    let mut batch = Vec::new();
    while inbox.recv_many(&mut batch, LARGEST).await > 0 {
        // Who has stopped waiting (a publisher after 250 ms) does not want the effect either.
        batch.retain(|(_, reply)| !reply.is_closed());
        if batch.is_empty() {
            continue;
        }
        let (questions, replies): (Vec<Q>, Vec<_>) = batch.drain(..).unzip();
        answer(&questions.into(), replies, &call).await;
    }
}

/// Asks for all of a batch, and answers each. Where that meets a key which cannot be read, for one half and then for the other, in
/// their order, and so on: nobody else is to go without an answer for it, or to wait for as many calls as there are questions.
async fn answer<Q, A>(
    batch: &Arc<[Q]>,
    replies: Vec<oneshot::Sender<Result<A, RegisterError>>>,
    call: impl Fn(Arc<[Q]>, Range<usize>) -> BoxFuture<'static, Result<Vec<A>, RegisterError>>,
) {
    let mut replies = replies.into_iter();
    let mut parts: Vec<Range<usize>> = iter::once(0..batch.len()).collect();
    while let Some(part) = parts.pop() {
        match call(Arc::clone(batch), part.clone()).await {
            Ok(answers) => {
                for (reply, answer) in replies.by_ref().take(part.len()).zip(answers) {
                    let _ = reply.send(Ok(answer));
                }
            }
            Err(RegisterError::Unreadable { .. }) if part.len() > 1 => {
                let middle = part.start + part.len() / 2;
                parts.extend([middle..part.end, part.start..middle]);
            }
            Err(error) => {
                // Away from there on: nobody waits for that once more.
                let all = matches!(error, RegisterError::Unreachable { .. });
                let told = if all { batch.len() } else { part.len() };
                for reply in replies.by_ref().take(told) {
                    let _ = reply.send(Err(error.clone()));
                }
                if all {
                    return;
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
        let calls = Batched::start(move |batch: Arc<[u32]>, part| {
            let questions = batch[part].to_vec();
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

    type Seen = Arc<Mutex<Vec<Vec<u32>>>>;

    /// Cannot read a 7, and is away at a 9.
    async fn ask(batch: &[u32], seen: &Seen) -> Vec<Result<u32, RegisterError>> {
        let (replies, answers): (Vec<_>, Vec<_>) = batch.iter().map(|_| oneshot::channel()).unzip();
        let call = |batch: Arc<[u32]>, part: Range<usize>| -> BoxFuture<'static, _> {
            let part = batch[part].to_vec();
            seen.lock().expect("no panic").push(part.clone());
            let unreadable = || RegisterError::Unreadable { url: String::new(), reason: "WRONGTYPE".to_owned() };
            let error = part.iter().find_map(|n| match n {
                7 => Some(unreadable()),
                9 => Some(ended()),
                _ => None,
            });
            Box::pin(async move { error.map_or(Ok(part), Err) })
        };
        answer(&batch.to_vec().into(), replies, call).await;
        let answers = futures_util::future::join_all(answers).await;
        answers.into_iter().map(|answer| answer.expect("each is answered")).collect()
    }

    #[tokio::test]
    async fn beside_a_key_that_cannot_be_read_all_the_others_are_answered_in_their_order() {
        let seen = Seen::default();
        let all = ask(&[1, 2, 7, 3], &seen).await;
        assert!(matches!(all[..], [Ok(1), Ok(2), Err(RegisterError::Unreadable { .. }), Ok(3)]), "{all:?}");
        assert_eq!(*seen.lock().expect("no panic"), [vec![1, 2, 7, 3], vec![1, 2], vec![7, 3], vec![7], vec![3]]);
    }

    #[tokio::test]
    async fn one_key_among_many_costs_a_few_calls() {
        let seen = Seen::default();
        let mut batch = [0; LARGEST];
        batch[77] = 7;
        let all = ask(&batch, &seen).await;
        assert_eq!(all.iter().filter(|answer| answer.is_err()).count(), 1);
        // The whole, and two halves of each size.
        assert_eq!(seen.lock().expect("no panic").len(), 1 + 2 * 8);
    }

    #[tokio::test]
    async fn nobody_waits_for_who_is_away_as_often_as_there_are_parts() {
        let seen = Seen::default();
        let all = ask(&[7, 1, 9, 2, 3, 4], &seen).await;
        let away = |answer: &Result<u32, _>| matches!(answer, Err(RegisterError::Unreachable { .. }));
        assert!(matches!(all[0], Err(RegisterError::Unreadable { .. })) && all[1..].iter().all(away), "{all:?}");
        let calls = [vec![7, 1, 9, 2, 3, 4], vec![7, 1, 9], vec![7], vec![1, 9]];
        assert_eq!(*seen.lock().expect("no panic"), calls);
    }

    #[tokio::test]
    async fn who_stops_waiting_is_not_served() {
        let calls = Batched::start(|batch: Arc<[u32]>, part| Box::pin(async move { Ok(batch[part].to_vec()) }));
        drop(calls.ask(1));
        assert!(matches!(calls.ask(2).await, Ok(2)));
    }
}
