//! A publisher's calls to the register. They are best-effort: after a timeout the event has no version, and Redis rests for a
//! second.
//!
//! Many callers, one call: the questions that are asked while a call is under way go together into the next one.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout, timeout_at},
};

use crate::{
    domain::{
        register::{Record, Reserve, Reserved, Subject},
        trouble::Trouble,
        words::{Reference, plain},
    },
    outage::{RegisterHealth, Side},
    ports::{Register, RegisterError, in_parts},
};

/// How long a publisher waits for a version, unless it is told otherwise. Without one the event competes with nothing.
pub(crate) const VERSION_WAIT: Duration = Duration::from_millis(250);

/// How long a publisher does not ask the register again after a call without an answer.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Between two lines about what cannot be read.
const SAY_UNREAD: Duration = Duration::from_mins(1);

/// The largest batch. A script over it takes a few milliseconds, in which Redis serves nobody else.
const LARGEST: usize = 256;

pub(super) struct Versions {
    reserve: Batched<Reserve, Reserved>,
    record: Batched<Record, ()>,
    pub(super) contact: Arc<Contact>,
}

/// Whether the register answers.
pub(super) struct Contact {
    register: Arc<dyn Register>,
    /// How long an answer is waited for.
    limit: Duration,
    /// Until then the register is not asked.
    away: Mutex<Option<Instant>>,
    pub(super) health: RegisterHealth,
    /// Events whose keys in the register could not be read.
    unread: Mutex<Unread>,
}

#[derive(Default)]
struct Unread {
    events: u64,
    said: Option<Instant>,
}

impl Versions {
    pub(super) fn new(register: &Arc<dyn Register>, limit: Duration) -> Self {
        let contact = Arc::new(Contact::new(Arc::clone(register), limit));
        Self {
            reserve: Batched::start(&contact, |register, batch| register.reserve(batch)),
            record: Batched::start(&contact, |register, batch| {
                Box::pin(async move { register.record(batch).await.map(|()| vec![(); batch.len()]) })
            }),
            contact,
        }
    }

    /// Asks for a version, unless the register did not answer a moment ago. The call takes its place in the order from here
    /// on, not from the first poll. The answer is `None` if the event gets no version.
    pub(super) fn ask(&self, reserve: Reserve) -> Option<impl Future<Output = Option<i64>> + Send + use<>> {
        if self.contact.is_away() {
            return None;
        }
        let (contact, subject, asked) = (Arc::clone(&self.contact), reserve.subject.clone(), Instant::now());
        let answer = self.reserve.ask(reserve);
        Some(async move {
            // From the question on: of many publishes in a row, each would wait for the whole limit after the one before.
            match timeout_at(asked + contact.limit, answer).await {
                Ok(Ok(Reserved::Version(version))) => return Some(version),
                // The key of this reference cannot be read. Other events are answered.
                Ok(Err(error @ RegisterError::Unreadable { .. })) => contact.log_unread(&subject, &error),
                // No event asked, so none is stale.
                Ok(Ok(Reserved::Stale) | Err(_)) => {}
                Err(_) => contact.is_slow(asked),
            }
            None
        })
    }

    /// Records an event that the broker has confirmed. If that fails, older events of the reference may run too, until the
    /// next claim of the reference.
    pub(super) async fn record(&self, record: Record) {
        let (subject, asked) = (record.subject.clone(), Instant::now());
        let reason = match timeout(self.contact.limit, self.record.ask(record)).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => {
                self.contact.is_slow(asked);
                "no answer in time".to_owned()
            }
        };
        tracing::debug!(reason, id = %plain(&subject.id), event_type = %subject.event_type, "not recorded");
    }
}

type Question<Q, A> = (Q, oneshot::Sender<Result<A, RegisterError>>);

/// One kind of call, in batches.
struct Batched<Q, A>(mpsc::UnboundedSender<Question<Q, A>>);

impl<Q: Send + Sync + 'static, A: Send + 'static> Batched<Q, A> {
    /// Starts the task that makes the calls. It ends with the last caller.
    fn start<F>(contact: &Arc<Contact>, call: F) -> Self
    where
        F: for<'a> Fn(&'a dyn Register, &'a [Q]) -> BoxFuture<'a, Result<Vec<A>, RegisterError>>
            + Send
            + Sync
            + 'static,
    {
        let (queue, inbox) = mpsc::unbounded_channel();
        tokio::spawn(serve(inbox, Arc::clone(contact), call));
        Self(queue)
    }

    /// Asks. The order of these calls, not of their answers' arrival, is the order within the batches. The queue has
    /// no bound of its own: the limit of unconfirmed publishes bounds it.
    fn ask(&self, question: Q) -> impl Future<Output = Result<A, RegisterError>> + use<Q, A> {
        let (reply, answer) = oneshot::channel();
        let sent = self.0.send((question, reply));
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
async fn serve<Q, A, F>(mut inbox: mpsc::UnboundedReceiver<Question<Q, A>>, contact: Arc<Contact>, call: F)
where
    Q: Sync,
    A: Send,
    F: for<'a> Fn(&'a dyn Register, &'a [Q]) -> BoxFuture<'a, Result<Vec<A>, RegisterError>> + Sync,
{
    let mut batch = Vec::new();
    while inbox.recv_many(&mut batch, LARGEST).await > 0 {
        batch.retain(|(_, reply)| !reply.is_closed());
        let (questions, replies): (Vec<Q>, Vec<_>) = batch.drain(..).unzip();
        let noted = |part| -> BoxFuture<'_, _> { Box::pin(contact.noted(call(&*contact.register, part))) };
        match in_parts(&questions, noted).await {
            Ok(answers) => {
                for (reply, answer) in replies.into_iter().zip(answers) {
                    // Fails if the caller has given up meanwhile.
                    let _ = reply.send(answer);
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

impl Contact {
    fn new(register: Arc<dyn Register>, limit: Duration) -> Self {
        let health = RegisterHealth::new(Side::Publisher, Arc::clone(&register));
        Self { register, limit, away: Mutex::default(), health, unread: Mutex::default() }
    }

    /// Whether the register did not answer a moment ago.
    pub(super) fn is_away(&self) -> bool {
        let away = self.away.lock().unwrap_or_else(PoisonError::into_inner);
        away.is_some_and(|until| Instant::now() < until)
    }

    /// Waits for the answer to a call, and notes whether the register is there.
    async fn noted<T>(&self, call: impl Future<Output = Result<T, RegisterError>> + Send) -> Result<T, RegisterError> {
        let asked = Instant::now();
        let answer = call.await;
        match &answer {
            Ok(_) => {
                self.register.look_for_loss();
                self.health.answered(asked);
            }
            // An unreadable key is about its reference alone.
            Err(RegisterError::Unreadable { .. }) => self.health.answered(asked),
            Err(error) => self.failed(asked, error),
        }
        answer
    }

    /// Notes that a call that was made at `asked` had no answer within the limit.
    fn is_slow(&self, asked: Instant) {
        self.failed(asked, &self.late());
    }

    fn late(&self) -> RegisterError {
        let reason = format!("no answer within {:?}", self.limit);
        RegisterError::Unreachable { url: self.register.url(), trouble: Trouble::Slow, reason }
    }

    fn failed(&self, asked: Instant, error: &RegisterError) {
        if self.health.failed(asked, error) {
            *self.away.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + ASK_AGAIN);
        }
    }

    /// Once a minute while it lasts: each publish meets it.
    fn log_unread(&self, subject: &Subject, error: &RegisterError) {
        let so_far = {
            let mut unread = self.unread.lock().unwrap_or_else(PoisonError::into_inner);
            unread.events += 1;
            if unread.said.is_some_and(|said| said.elapsed() < SAY_UNREAD) {
                return;
            }
            unread.said = Some(Instant::now());
            unread.events
        };
        let Subject { id, event_type, reference } = subject;
        let reference = reference.as_ref().map(Reference::as_str);
        tracing::error!(
            %error, id, %event_type, reference, so_far,
            "published without a version; so are others of its reference until that key is deleted or mended"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::{clock::SystemClock, memory::MemoryRegister};

    type Seen = Arc<Mutex<Vec<Vec<u32>>>>;

    fn contact(limit: Duration) -> Contact {
        Contact::new(Arc::new(MemoryRegister::new(Arc::new(SystemClock), Duration::ZERO)), limit)
    }

    #[test]
    fn a_register_that_does_not_answer_in_time_is_named() {
        let error = contact(Duration::from_millis(250)).late();
        assert_eq!(error.to_string(), "Redis at memory is slow: no answer within 250ms");
    }

    /// Answers each number with ten times the number. Cannot read a 7, and is away at a 9.
    fn calls(seen: &Seen) -> Batched<u32, u32> {
        let seen = Arc::clone(seen);
        Batched::start(&Arc::new(contact(VERSION_WAIT)), move |_, batch: &[u32]| {
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
