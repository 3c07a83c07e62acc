//! Reads the stream of the life of events.

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use futures_util::{Stream, stream::try_unfold};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use crate::{
    adapters::rabbitmq::{
        RabbitMq,
        stream::{Begin, Read, StreamReader},
    },
    domain::life_cycle::LifeCycleRecord,
    ports::{Broker as _, BrokerError},
};

/// How long to wait for the first record. A replica sends it within milliseconds; a stream that is silent for longer is empty.
const FIRST: Duration = Duration::from_secs(3);

/// How long to wait for the first record of a stream of which the broker counts no message. It counts them each five seconds
/// (`rabbit_osiris_metrics`; measured), so there may be one.
const EMPTY: Duration = Duration::from_millis(500);

/// How long to wait for more records after one, in the last chunk of the stream.
const MORE: Duration = Duration::from_millis(150);

/// How long messages are read to find the last one. Under constant load there is always a later one, and then the last one that was read
/// counts as the last.
const LAST: Duration = Duration::from_secs(1);

/// How long the reader waits before it asks whether there is anything left to wait for.
const QUIET: Duration = Duration::from_secs(10);

/// How long the broker may look for the next record that the filter takes.
const SILENCE: Duration = Duration::from_mins(5);

/// By how much the broker's clock may differ from those of the programs that tell.
const CLOCKS: SignedDuration = SignedDuration::from_mins(10);

/// Called with the number of messages read, and the number to read.
type OnProgress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// A question to the stream of the life of events. Created by [`Hatchery::life_cycle`](crate::Hatchery::life_cycle).
///
/// | call | records |
/// | --- | --- |
/// | [`read`](Self::read) | all that the stream has |
/// | [`since`](Self::since) | none from before a time |
/// | [`event_type`](Self::event_type), [`reference`](Self::reference), [`id`](Self::id) | of some events, and those of no event: pauses and breakers |
/// | [`follow`](Self::follow) | also those that come |
///
/// RabbitMQ 3.13 and later filters by the reference, or by the id of an event without one. Before, every record is read, and so it is for
/// an event that has a reference and was asked for by its id alone. Messages that have records of several events always pass the filter.
#[derive(Clone)]
pub struct LifeCycleReader {
    pub(super) broker: Arc<RabbitMq>,
    pub(super) stream: String,
    since: Option<Timestamp>,
    event_type: Option<String>,
    reference: Option<String>,
    id: Option<String>,
    follows: bool,
    on_progress: Option<OnProgress>,
}

impl fmt::Debug for LifeCycleReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LifeCycleReader").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl LifeCycleReader {
    pub(super) fn new(broker: Arc<RabbitMq>, stream: String) -> Self {
        let (since, event_type, reference, id) = (None, None, None, None);
        Self { broker, stream, since, event_type, reference, id, follows: false, on_progress: None }
    }

    /// Leaves out what was told before this time.
    #[must_use]
    pub fn since(self, since: Timestamp) -> Self {
        Self { since: Some(since), ..self }
    }

    /// Leaves out the events of other types.
    #[must_use]
    pub fn event_type(self, event_type: &str) -> Self {
        Self { event_type: Some(event_type.to_owned()), ..self }
    }

    /// Leaves out the events of other references.
    #[must_use]
    pub fn reference(self, reference: &str) -> Self {
        Self { reference: Some(reference.to_owned()), ..self }
    }

    /// Leaves out the events of other ids. An event that has a reference is found faster by both. Where events of several types have the
    /// id, name the type.
    #[must_use]
    pub fn id(self, id: &str) -> Self {
        Self { id: Some(id.to_owned()), ..self }
    }

    /// Goes on with the records that come, until the stream of this call is dropped.
    #[must_use]
    pub fn follow(self) -> Self {
        Self { follows: true, ..self }
    }

    /// For the command line: calls this with the number of messages that were passed, and with the number of all.
    #[doc(hidden)]
    #[must_use]
    pub fn on_progress(self, tell: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        Self { on_progress: Some(Arc::new(tell)), ..self }
    }

    /// Returns the oldest record of the stream, or `None` if it has none.
    ///
    /// # Errors
    /// When the broker is away, has no such stream, or refuses to read it.
    pub async fn oldest(&self) -> Result<Option<LifeCycleRecord>, BrokerError> {
        Ok(self.at(Begin::First, Duration::ZERO).await?.and_then(|read| parse(&read).next()))
    }

    /// Returns the records in the order of the stream. Those of one event are in the order in which a program told them. A record that is
    /// no JSON of this kind is left out. A lost connection is an error, also of one that follows: ask again, [`since`](Self::since) the last record.
    ///
    /// ```no_run
    /// # async fn example(hatchery: hatchery::Hatchery) -> Result<(), hatchery::BrokerError> {
    /// use futures_util::TryStreamExt as _;
    ///
    /// let mut records = std::pin::pin!(hatchery.life_cycle().reference("1234").read());
    /// while let Some(record) = records.try_next().await? {
    ///     println!("{} {}", record.at, record.transition);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn read(self) -> impl Stream<Item = Result<LifeCycleRecord, BrokerError>> + Send + 'static + use<> {
        try_unfold((self, None), |(question, reading)| async move {
            let mut reading = match reading {
                Some(reading) => reading,
                None => question.begin(question.filter().await?.as_deref()).await?,
            };
            Ok(reading.next(&question).await?.map(|record| (record, (question, Some(reading)))))
        })
    }

    /// Returns whether this is a record that was asked for.
    fn takes(&self, record: &LifeCycleRecord) -> bool {
        let is = |asked: &Option<String>, has: &Option<String>| asked.is_none() || asked == has;
        let is_asked = is(&self.event_type, &record.event_type)
            && is(&self.reference, &record.reference)
            && is(&self.id, &record.id);
        (is_asked || !record.is_of_an_event()) && self.since.is_none_or(|since| record.at >= since)
    }

    /// Returns the value that the broker filters by: that of one record of the event, if one is found.
    async fn filter(&self) -> Result<Option<String>, BrokerError> {
        let (Some(id), None) = (&self.id, &self.reference) else { return Ok(self.reference.clone()) };
        let probe = Self { follows: false, ..self.clone() };
        let mut reading = probe.begin(Some(id)).await?;
        while let Some(record) = reading.next(&probe).await? {
            if record.is_of_an_event() {
                return Ok(Some(record.filter_value().to_owned()));
            }
        }
        // An event with a reference that nobody knows: everything is read.
        Ok(None)
    }

    /// Returns the time of the broker from which on the records are that were told since the time of the question.
    fn since_of_broker(&self) -> Option<Timestamp> {
        self.since.and_then(|since| since.checked_sub(CLOCKS).ok())
    }

    /// Finds the end of the stream, and begins to read what passes the filter.
    async fn begin(&self, filter: Option<&str>) -> Result<Reading, BrokerError> {
        let reading = |reader, last| Reading { reader, first: None, last, quiet: 0, found: VecDeque::new() };
        let Some(last) = self.at(Begin::Last, LAST).await? else {
            let reader =
                if self.follows { Some(self.broker.read(&self.stream, Begin::First, &[]).await?) } else { None };
            return Ok(reading(reader, -1));
        };
        let since = self.since_of_broker();
        // After the last record there is nothing to wait for: the broker would begin with the next one.
        if !self.follows && since.is_some_and(|since| parse(&last).last().is_some_and(|last| last.at < since)) {
            return Ok(reading(None, last.offset));
        }
        // The broker never says that nothing more passes the filter, so the last record has to pass it.
        let filter: Vec<String> = match filter {
            Some(value) => [Some(value.to_owned()), last.filter_value].into_iter().flatten().collect(),
            None => Vec::new(),
        };
        let begin =
            since.map_or(Begin::First, |since| Begin::Second(u64::try_from(since.as_second()).unwrap_or_default()));
        Ok(reading(Some(self.broker.read(&self.stream, begin, &filter).await?), last.offset))
    }

    /// Returns the last message that comes within so long after the first one from a point on. `None` if the stream is empty.
    async fn at(&self, begin: Begin, longest: Duration) -> Result<Option<Read>, BrokerError> {
        let is_empty = self.broker.ready(&self.stream).await?.messages == 0;
        let mut reader = self.broker.read(&self.stream, begin, &[]).await?;
        let mut last = reader.next(if is_empty { EMPTY } else { FIRST }).await?;
        if last.is_none() && !is_empty {
            return Err(reader.stuck(&format!("has delivered nothing for {} s", FIRST.as_secs())));
        }
        let until = Instant::now() + longest;
        while Instant::now() < until
            && let Some(read) = reader.next(MORE).await?
        {
            last = Some(read);
        }
        Ok(last)
    }
}

/// A reading that has begun.
struct Reading {
    /// `None` if the stream has nothing more.
    reader: Option<StreamReader>,
    /// The offset of the first message that came.
    first: Option<i64>,
    /// The offset of the last message that the stream had when the reading began.
    last: i64,
    /// How often nothing has come.
    quiet: u32,
    /// The records of the last message that were asked for and are not returned yet.
    found: VecDeque<LifeCycleRecord>,
}

impl Reading {
    async fn next(&mut self, question: &LifeCycleReader) -> Result<Option<LifeCycleRecord>, BrokerError> {
        while self.found.is_empty()
            && let Some(reader) = &mut self.reader
        {
            let Some(read) = reader.next(QUIET).await? else {
                self.quiet += 1;
                if !question.follows {
                    self.look(question).await?;
                }
                continue;
            };
            self.quiet = 0;
            let first = *self.first.get_or_insert(read.offset);
            if let Some(tell) = question.on_progress.as_ref().filter(|_| read.offset <= self.last) {
                tell(read.offset.abs_diff(first) + 1, self.last.abs_diff(first) + 1);
            }
            if read.offset >= self.last && !question.follows {
                self.reader = None;
            }
            self.found.extend(parse(&read).filter(|record| question.takes(record)));
        }
        Ok(self.found.pop_front())
    }

    /// Nothing has come for a while: looks whether something still can.
    async fn look(&mut self, question: &LifeCycleReader) -> Result<(), BrokerError> {
        let oldest = question.at(Begin::First, Duration::ZERO).await?;
        if oldest.is_none_or(|oldest| oldest.offset > self.last) {
            // Retention has removed all that was to be read.
            self.reader = None;
        } else if let Some(reader) = &self.reader
            && QUIET * self.quiet >= SILENCE
        {
            return Err(reader.stuck(&format!("has delivered nothing for {} s", SILENCE.as_secs())));
        }
        Ok(())
    }
}

fn parse(read: &Read) -> impl Iterator<Item = LifeCycleRecord> {
    LifeCycleRecord::parse_all(&read.body).filter_map(|record| {
        record
            .inspect_err(|error| tracing::debug!(offset = read.offset, %error, "no record of the life of events"))
            .ok()
    })
}
