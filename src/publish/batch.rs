//! Many callers, one call: the questions that are asked while a call is under way go together into the next one.

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::{
    domain::trouble::Trouble,
    ports::{RegisterError, in_parts},
};

/// The largest batch. A script over it takes a few milliseconds, in which Redis serves nobody else.
const LARGEST: usize = 256;

type Question<Q, A> = (Q, oneshot::Sender<Result<A, RegisterError>>);

/// One kind of call, in batches.
pub(super) struct Batched<Q, A> {
    queue: mpsc::UnboundedSender<Question<Q, A>>,
}

impl<Q: Send + Sync + 'static, A: Send + 'static> Batched<Q, A> {
    /// Starts the task that makes the calls. It ends with the last caller.
    pub(super) fn start<F>(call: F) -> Self
    where
        F: for<'a> Fn(&'a [Q]) -> BoxFuture<'a, Result<Vec<A>, RegisterError>> + Send + Sync + 'static,
    {
        let (queue, inbox) = mpsc::unbounded_channel();
        tokio::spawn(serve(inbox, call));
        Self { queue }
    }

    /// Asks. The order of these calls, not of their answers' arrival, is the order within the batches. The queue has
    /// no bound of its own: the limit of unconfirmed publishes bounds it.
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

/// Makes one call after the other, each for all questions that wait. A caller that has given up (a publisher after 250 ms)
/// wants no effect either.
async fn serve<Q, A, F>(mut inbox: mpsc::UnboundedReceiver<Question<Q, A>>, call: F)
where
    F: for<'a> Fn(&'a [Q]) -> BoxFuture<'a, Result<Vec<A>, RegisterError>>,
{
    let mut batch = Vec::new();
    while inbox.recv_many(&mut batch, LARGEST).await > 0 {
        batch.retain(|(_, reply)| !reply.is_closed());
        let (questions, replies): (Vec<Q>, Vec<_>) = batch.drain(..).unzip();
        let mut answers = match in_parts(&questions, &call).await {
            Ok(answers) => answers.into_iter(),
            Err(error) => {
                for reply in replies {
                    let _ = reply.send(Err(error.clone()));
                }
                continue;
            }
        };
        for (reply, answer) in replies.into_iter().zip(answers.by_ref()) {
            // Fails if the caller has given up meanwhile.
            let _ = reply.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    type Seen = Arc<Mutex<Vec<Vec<u32>>>>;

    /// Answers each number with ten times the number. Cannot read a 7, and is away at a 9.
    fn calls(seen: &Seen) -> Batched<u32, u32> {
        let seen = Arc::clone(seen);
        Batched::start(move |batch: &[u32]| {
            seen.lock().expect("no panic").push(batch.to_vec());
            let unreadable = || RegisterError::Unreadable { url: String::new(), reason: "WRONGTYPE".to_owned() };
            let error = batch.iter().find_map(|n| match n {
                7 => Some(unreadable()),
                9 => Some(ended()),
                _ => None,
            });
            let answers = batch.iter().map(|n| n * 10).collect();
            Box::pin(async move { error.map_or(Ok(answers), Err) })
        })
    }

    async fn ask(questions: impl IntoIterator<Item = u32>) -> (Vec<Result<u32, RegisterError>>, Vec<Vec<u32>>) {
        let seen = Seen::default();
        let calls = calls(&seen);
        let asked: Vec<_> = questions.into_iter().map(|n| calls.ask(n)).collect();
        let answers = futures_util::future::join_all(asked).await;
        let seen = seen.lock().expect("no panic").clone();
        (answers, seen)
    }

    #[tokio::test]
    async fn questions_that_wait_go_together_and_in_order() {
        let (answers, batches) = ask(1_000..1_600).await;
        assert!(answers.into_iter().zip(1_000..).all(|(answer, n)| matches!(answer, Ok(a) if a == n * 10)));
        assert_eq!(batches.concat(), (1_000..1_600).collect::<Vec<_>>());
        assert!(batches.len() <= 4, "{} batches", batches.len());
    }

    #[tokio::test]
    async fn a_key_that_cannot_be_read_fails_its_own_question_alone() {
        let (answers, batches) = ask([1, 2, 7, 3]).await;
        assert!(matches!(answers[..], [Ok(10), Ok(20), Err(RegisterError::Unreadable { .. }), Ok(30)]), "{answers:?}");
        assert_eq!(batches, [vec![1, 2, 7, 3], vec![1, 2], vec![7, 3], vec![7], vec![3]]);
    }

    #[tokio::test]
    async fn one_damaged_key_among_many_costs_a_few_calls() {
        let mut questions = [0; LARGEST];
        questions[77] = 7;
        let (answers, batches) = ask(questions).await;
        assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
        // The whole, and two halves of each size.
        assert_eq!(batches.len(), 1 + 2 * 8);
    }

    #[tokio::test]
    async fn a_register_that_is_away_is_not_asked_for_each_part() {
        let (answers, batches) = ask([7, 1, 9, 2, 3, 4]).await;
        assert!(answers.iter().all(|answer| matches!(answer, Err(RegisterError::Unreachable { .. }))), "{answers:?}");
        assert_eq!(batches, [vec![7, 1, 9, 2, 3, 4], vec![7, 1, 9], vec![7], vec![1, 9]]);
    }

    #[tokio::test]
    async fn a_question_that_its_caller_has_dropped_is_not_asked() {
        let seen = Seen::default();
        let calls = calls(&seen);
        drop(calls.ask(1));
        assert!(matches!(calls.ask(2).await, Ok(20)));
        assert_eq!(seen.lock().expect("no panic").concat(), [2]);
    }
}
