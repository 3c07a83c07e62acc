//! Asks several servers: the next one as soon as one fails, or as well after a moment of silence.

use std::time::Duration;

use futures_util::{StreamExt as _, stream::FuturesUnordered};

/// How long a server may be silent before the next one is asked as well.
const MOMENT: Duration = Duration::from_millis(250);

/// Returns the first answer. The next question is asked as soon as one has failed, or nothing has come for [`MOMENT`].
/// If every question fails, returns all failures.
pub(super) async fn first_answer<T, E, F>(questions: impl Iterator<Item = F>) -> Result<T, Vec<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let (mut questions, mut failures) = (questions.peekable(), Vec::new());
    let mut asked: FuturesUnordered<F> = questions.next().into_iter().collect();
    loop {
        tokio::select! {
            answer = asked.next() => match answer {
                Some(Ok(answer)) => return Ok(answer),
                Some(Err(failure)) => failures.push(failure),
                None => return Err(failures),
            },
            () = tokio::time::sleep(MOMENT), if questions.peek().is_some() => {}
        }
        asked.extend(questions.next());
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::{BoxFuture, FutureExt as _, pending, ready};

    use super::*;

    type Question = BoxFuture<'static, Result<u32, &'static str>>;

    #[tokio::test(start_paused = true)]
    async fn neither_a_failure_nor_silence_holds_up_the_other_questions() {
        let questions: [Question; 4] =
            [ready(Err("a")).boxed(), pending().boxed(), ready(Ok(3)).boxed(), ready(Ok(4)).boxed()];
        assert_eq!(first_answer(questions.into_iter()).await, Ok(3));
    }

    #[tokio::test]
    async fn if_every_question_fails_all_failures_are_returned() {
        let questions: [Question; 2] = [ready(Err("a")).boxed(), ready(Err("b")).boxed()];
        assert_eq!(first_answer(questions.into_iter()).await, Err(vec!["a", "b"]));
        assert_eq!(first_answer(std::iter::empty::<Question>()).await, Err(vec![]));
    }
}
