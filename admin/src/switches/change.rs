//! Reads and changes the switches.
//!
//! A change reads the last snapshot and writes the next one while it holds a lock. It reads on until its own message comes back: a
//! replica of the stream may lag behind, and then there is a snapshot in between that the next one lacks.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use hatchery::{
    BrokerError, ConnectError, TransitionName,
    internals::{
        names,
        ports::Broker,
        rabbitmq::RabbitMq,
        records::Records,
        switches::{Pause, Switches},
        time::of_redis,
    },
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::{
    admin::Admin,
    broker::{control::Reader, declare::Declarer},
    error::AdminError,
    watch::Watch,
};

/// How long to wait for the first message. A replica sends it within milliseconds (measured: 20).
pub(super) const FIRST: Duration = Duration::from_secs(3);

/// How long to wait for the first message before a first snapshot is written. A stream that has lost its majority is silent for 30 s, and
/// then refuses its readers (measured).
pub(super) const EMPTY: Duration = Duration::from_secs(40);

/// How long to wait for the first message of a stream that was just declared, and so is empty.
pub(super) const NEW: Duration = Duration::from_millis(100);

/// How long to wait for more messages after one. The last chunk of a stream, with which a reader begins, may have several.
const MORE: Duration = Duration::from_millis(150);

/// How long to wait for the confirm. The leader of the stream may be away for some time before another one takes over.
const CONFIRM: Duration = Duration::from_secs(20);

/// How long to wait for the own message to come back. A reader on another node than the leader's may be late.
const BACK: Duration = Duration::from_secs(10);

/// The most snapshots that a change writes, each on top of one that it had not read.
const ROUNDS: usize = 5;

/// How long Redis may take to tell its time.
const REDIS_LIMIT: Duration = Duration::from_secs(3);

impl Admin {
    /// Returns the switches: what is paused. `None` if nothing has been written yet, because `apply` has not run.
    ///
    /// # Errors
    /// When the broker is unreachable or refuses, the stream does not exist, or its last message cannot be read.
    pub async fn switches(&self) -> Result<Option<Switches>, AdminError> {
        self.read(&names::control(&self.desired.owner)).await
    }

    /// Returns the last snapshot of a stream.
    pub(super) async fn read(&self, stream: &str) -> Result<Option<Switches>, AdminError> {
        let mut reader = Reader::open(&self.broker, self.builder.connection_name(), stream).await?;
        let last = last(&mut reader, FIRST, stream).await;
        reader.close().await;
        last
    }

    /// Writes the next snapshot, if there is one. Returns the one before and the one that is the last now.
    pub(super) async fn change(
        &self,
        first: Duration,
        patience: Duration,
        watch: &dyn Watch,
        next: impl Fn(Option<&Switches>) -> Result<Option<Switches>, AdminError>,
    ) -> Result<(Option<Switches>, Option<Switches>), AdminError> {
        let (stream, lock) = (names::control(&self.desired.owner), names::control_lock(&self.desired.owner));
        let waiting = |queue: &str| watch.note(&format!("Waiting for another pause or apply, which holds {queue} …"));
        let name = self.builder.connection_name();
        let lock =
            Declarer::lock(self.broker.clone(), name, &[lock], patience, waiting).await.map_err(
                |error| match error {
                    BrokerError::Locked { object } => AdminError::SwitchesHeld(object),
                    error => error.into(),
                },
            )?;
        fail_point!("switches.locked");
        let changed = async {
            let mut reader = Reader::open(&self.broker, name, &stream).await?;
            let changed = write(&lock, &mut reader, &stream, first, next).await;
            reader.close().await;
            changed
        };
        let changed = changed.await;
        lock.release().await;
        if let Ok((before, Some(after))) = &changed {
            self.tell(&before.clone().unwrap_or_default().pauses, &after.pauses).await;
        }
        changed
    }

    /// Tells the stream of the life of events which pauses have begun and which have ended.
    async fn tell(&self, before: &[Pause], after: &[Pause]) {
        let name = self.builder.connection_name();
        let broker = Arc::new(RabbitMq::new(self.broker.clone(), name));
        let records = Records::start(self.topology(), Arc::clone(&broker) as Arc<dyn Broker>, name);
        tell(&records, before, after);
        records.close().await;
        broker.close().await;
    }

    /// Returns the time by Redis's clock, by which pauses end; that of this machine if the topology needs no Redis, or it does not answer.
    #[doc(hidden)]
    pub async fn time(&self) -> Result<Timestamp, AdminError> {
        let now = Timestamp::now();
        if !(self.uses_register() && self.is_redis_given) {
            return Ok(now);
        }
        let register = self.builder.register(&self.broker).map_err(ConnectError::from)?.with_limit(REDIS_LIMIT);
        // Any answer of Redis has its time.
        let _ = register.owners().await;
        Ok(of_redis(Timestamp::now(), register.clock().ahead()))
    }
}

/// Tells which pauses have begun and which have ended.
pub(crate) fn tell(records: &Records, before: &[Pause], after: &[Pause]) {
    for pause in after.iter().filter(|pause| !before.contains(pause)) {
        records.tell_switch(TransitionName::Paused, &pause.of, &pause.reason, pause.until);
    }
    // A pause that has ended by itself is not told: its record says until when it lasts. Nor is one told twice that a person and the file
    // have set.
    let over = before.iter().filter(|was| was.lasts(Timestamp::now()) && after.iter().all(|pause| pause.of != was.of));
    for of in over.map(|pause| &pause.of).collect::<BTreeSet<_>>() {
        records.tell_switch(TransitionName::Resumed, of, "", None);
    }
}

/// Reads until no more message comes, and returns the last snapshot.
async fn last(reader: &mut Reader, first: Duration, stream: &str) -> Result<Option<Switches>, AdminError> {
    let (mut last, mut within) = (None, first);
    while let Some(word) = reader.next(within).await? {
        (last, within) = (Some(word), MORE);
    }
    last.map(|word| parse(&word.text, stream)).transpose()
}

fn parse(text: &[u8], stream: &str) -> Result<Switches, AdminError> {
    Switches::read(text).map_err(|source| AdminError::Switches { stream: stream.to_owned(), source })
}

/// Returns the snapshot to write, if any. `written` is the number of the one that this change has written before. That one is the last on
/// the stream, and lacks what is known now. So there is another one in any case, with a number that workers take.
fn to_write(wanted: Option<Switches>, known: Option<&Switches>, written: Option<i64>) -> Option<Switches> {
    match written {
        None => wanted,
        Some(number) => Some(wanted.or_else(|| known.cloned()).unwrap_or_default().after(number)),
    }
}

async fn write(
    lock: &Declarer,
    reader: &mut Reader,
    stream: &str,
    first: Duration,
    next: impl Fn(Option<&Switches>) -> Result<Option<Switches>, AdminError>,
) -> Result<(Option<Switches>, Option<Switches>), AdminError> {
    let mut known = last(reader, first, stream).await?;
    // The number of the last snapshot that this call has written.
    let mut written = None;
    for _ in 0..ROUNDS {
        fail_point!("switches.read");
        let Some(new) = to_write(next(known.as_ref())?, known.as_ref(), written) else {
            return Ok((known.clone(), known));
        };
        written = Some(new.number);
        let id = Uuid::now_v7().to_string();
        let said = lock.publish_confirmed(stream, &id, new.text(), CONFIRM).await;
        fail_point!("switches.written");
        let mut unread = None;
        let is_back = loop {
            match reader.next(BACK).await {
                Ok(Some(word)) if word.id.as_deref() == Some(&*id) => break true,
                Ok(Some(word)) => unread = Some(word),
                Ok(None) | Err(_) => break false,
            }
        };
        match (is_back, unread, said) {
            (true, Some(word), _) => known = Some(parse(&word.text, stream)?),
            (true, None, _) => return Ok((known, Some(new))),
            // These say for certain that nothing was written.
            (
                false,
                _,
                Err(
                    error @ (BrokerError::Missing { .. }
                    | BrokerError::Unroutable { .. }
                    | BrokerError::Rejected { .. }
                    | BrokerError::Refused { .. }),
                ),
            ) => {
                return Err(error.into());
            }
            (false, _, Ok(())) => {
                let why = format!(
                    "the change is written, and {stream} did not show it within {} s, so whether every other pause is kept is not known: see `topology status`",
                    BACK.as_secs()
                );
                return Err(AdminError::Partly { why, left: None });
            }
            (false, _, Err(error)) => {
                let why = format!("{error}; whether {stream} has the change is not known. Run it again");
                return Err(AdminError::Partly { why, left: None });
            }
        }
    }
    let why = format!(
        "{stream} has shown {ROUNDS} changes of others in a row, so whether it has this one is not known. Run it again"
    );
    Err(AdminError::Partly { why, left: None })
}

#[cfg(test)]
mod tests {
    use hatchery::internals::switches::{Name, Paused};

    use super::*;

    #[test]
    fn a_change_that_hid_another_one_is_followed_by_a_snapshot_with_both() {
        let now = Timestamp::constant(1_780_000_000, 0);
        let other = Switches::default().with(Pause::of_person(Paused::All, "R", now, None), now);
        assert_eq!(to_write(None, Some(&other), None), None);
        assert_eq!(to_write(Some(other.clone()), None, None), Some(other.clone()));
        // Written in the same second, on top of the snapshot before, and nothing is left to change.
        let number = other.number + 1;
        let next = to_write(None, Some(&other), Some(number)).expect("a snapshot");
        assert_eq!((next.number, &next.pauses), (number + 1, &other.pauses));
        let wanted = other.clone().without(&Paused::Type(Name("mail".parse().expect("a word"))), now);
        let next = to_write(Some(wanted), Some(&other), Some(number)).expect("a snapshot");
        assert!(next.number > number && next.pauses == other.pauses, "{next:?}");
    }
}
