//! Goes through a queue once, and acts on the letters that are selected.
//!
//! The letters are held while they are read, and RabbitMQ takes them away from whoever holds them for half an hour. And
//! while they are held, nobody else can look. So a sweep takes turns: a turn ends after a while, returns what it leaves,
//! and the next turn begins at the head again, with the letters that were left.

use std::{num::NonZeroU32, sync::Arc, time::Duration};

use async_trait::async_trait;
use hatchery::{
    CancellationToken,
    internals::ports::{LOOK_IN_FLIGHT, Look, Receipt},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, sleep_until},
};

use super::{
    check::{Checked, RegisterUse, check},
    error::DeadLettersError,
    look::{BATCH, Patience},
    queues::{DeadLetters, LetterQueue},
    selection::Selection,
    standing::Standing,
};

/// The shortest time of a turn.
const TURN: Duration = Duration::from_secs(5);
/// A turn lasts at least so many times as long as it takes to read the letters that it leaves. To keep their order it may have to
/// read them, and the next turn reads them again: large letters on a busy broker take a second each.
const WORTH: u32 = 4;
/// The longest turn, well below RabbitMQ's limit for an acknowledgement.
const LONGEST_TURN: Duration = Duration::from_mins(5);
/// The pause between two turns, in which others may look.
const GAP: Duration = Duration::from_millis(250);

/// A letter with its receipt.
pub(super) type Held = Checked<Box<dyn Receipt>>;

/// The action on the letters of a sweep.
#[async_trait]
pub(super) trait Act: Send + Sync + 'static {
    /// The number of batches at a time.
    const BATCHES: usize;

    /// Whether letters of this standing are left.
    fn leaves(&self, standing: &Standing) -> bool;

    /// Acts on a batch, and acknowledges its letters. Returns the number of letters.
    async fn act(&self, batch: Vec<Held>) -> (u64, Result<(), DeadLettersError>);
}

/// How far a sweep goes, and how fast.
#[derive(Clone, Copy, Debug, Default)]
pub struct Bounds {
    /// The most letters to act on.
    pub limit: Option<u64>,
    /// The most letters in a second.
    pub rate: Option<NonZeroU32>,
}

/// The numbers of letters of a sweep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The letters that were in the queue at the beginning. Later ones are not touched.
    pub ready: u64,
    /// The letters that were acted on and acknowledged.
    pub done: u64,
    /// The obsolete letters that were left.
    pub obsolete: u64,
    /// The letters that were left because they are no events.
    pub unreadable: u64,
    /// The letters that were not selected.
    pub others: u64,
    /// The letters that were in the queue and did not come: others hold them, or the broker is slow.
    pub unread: u64,
}

impl Tally {
    /// Counts a letter that is left because of its standing.
    pub const fn leave(&mut self, standing: &Standing) {
        if standing.is_obsolete() {
            self.obsolete += 1;
        } else {
            self.unreadable += 1;
        }
    }

    /// Adds the letters of another queue.
    pub const fn add(&mut self, other: Self) {
        self.ready += other.ready;
        self.done += other.done;
        self.obsolete += other.obsolete;
        self.unreadable += other.unreadable;
        self.others += other.others;
        self.unread += other.unread;
    }
}

/// The result of a sweep. The letters that it did not act on are in their queue.
#[derive(Debug)]
pub struct Swept {
    /// The numbers of letters.
    pub tally: Tally,
    /// The number of consumers that read the queue at the same time. The letters that they hold were not seen.
    pub consumers: u32,
    /// Whether the sweep was stopped before its end.
    pub interrupted: bool,
    /// The error that ended the sweep.
    pub error: Option<DeadLettersError>,
}

/// The letters to act on, and the wishes of the person who asks for the sweep.
#[derive(Clone, Copy)]
pub struct Sweep<'a> {
    /// The queue.
    pub queue: &'a LetterQueue,
    /// The letters.
    pub selection: &'a Selection,
    /// How far the sweep goes, and how fast.
    pub bounds: Bounds,
    /// How long to wait while others look.
    pub patience: Patience<'a>,
    /// Ends the sweep after the batches that are under way.
    pub stop: &'a CancellationToken,
    /// Called after each batch.
    pub progress: &'a (dyn Fn(Tally) + Sync),
}

impl DeadLetters {
    pub(super) async fn sweep<A: Act>(&self, sweep: Sweep<'_>, act: A) -> Swept {
        let (tally, running, next_at) = (Tally::default(), JoinSet::new(), Instant::now());
        let mut turns = Turns { letters: self, sweep, act: Arc::new(act), tally, consumers: 0, running, next_at };
        let mut turn = turns.turn(true).await;
        while matches!(turn, Ok(TurnEnd::Later)) && !sweep.stop.is_cancelled() {
            sleep(GAP).await;
            turn = turns.turn(false).await;
        }
        let interrupted = matches!(turn, Ok(TurnEnd::Later));
        Swept { tally: turns.tally, consumers: turns.consumers, interrupted, error: turn.err() }
    }
}

/// The turns of a sweep.
struct Turns<'a, A> {
    letters: &'a DeadLetters,
    sweep: Sweep<'a>,
    act: Arc<A>,
    tally: Tally,
    consumers: u32,
    running: JoinSet<(u64, Result<(), DeadLettersError>)>,
    /// When the rate allows the next batch.
    next_at: Instant,
}

/// The result of a turn.
enum TurnEnd {
    /// No letter is left to act on.
    Over,
    /// Letters to act on may be left.
    Later,
}

impl<A: Act> Turns<'_, A> {
    async fn turn(&mut self, first: bool) -> Result<TurnEnd, DeadLettersError> {
        // Somebody who stops while another one looks need not wait.
        let Sweep { queue, patience, stop, .. } = self.sweep;
        let Some(look) = stop.run_until_cancelled(self.letters.open(queue, patience)).await else {
            return Ok(TurnEnd::Later);
        };
        let mut look = look?;
        if first {
            self.tally.ready = look.ready();
        }
        self.consumers = look.consumers();
        self.tally = Tally { ready: self.tally.ready, done: self.tally.done, ..Tally::default() };
        let before = self.tally.done;
        let acted = self.act_on(&mut *look).await;
        let finished = self.finish().await;
        let closed = look.close().await;
        if closed.is_err() {
            // The broker may not have read the acknowledgements before the connection ended.
            self.tally.done = before;
        }
        let end = acted?;
        finished?;
        closed?;
        Ok(end)
    }

    /// Reads the queue, and acts on the selected letters. All other letters stay in the queue.
    async fn act_on(&mut self, look: &mut dyn Look) -> Result<TurnEnd, DeadLettersError> {
        let began = Instant::now();
        let (mut unread, mut pace) = (self.tally.ready.saturating_sub(self.tally.done), Pace::default());
        let mut left = self.sweep.bounds.limit.map(|limit| limit.saturating_sub(self.tally.done));
        while unread > 0 && left != Some(0) {
            if self.sweep.stop.is_cancelled() || began.elapsed() >= pace.turn(unread) {
                return Ok(TurnEnd::Later);
            }
            let reads = Instant::now();
            let batch = look.next(self.batch().min(usize::try_from(unread).unwrap_or(usize::MAX))).await?;
            pace.read(batch.len(), reads.elapsed());
            if batch.is_empty() {
                self.tally.unread = unread;
                break;
            }
            unread -= u64::try_from(batch.len()).unwrap_or(unread);
            let letters =
                batch.into_iter().map(|got| (self.letters.letter(self.sweep.queue, got.message), got.receipt));
            let (selected, others): (Vec<_>, Vec<_>) =
                letters.partition(|(letter, _)| self.sweep.selection.matches(letter));
            self.tally.others += count(&others);
            let checked = check(&self.letters.0, selected, RegisterUse::Required).await?;
            let mut chosen: Vec<Held> = checked.into_iter().filter_map(|held| self.choose(held)).collect();
            if let Some(left) = &mut left {
                chosen.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= count(&chosen);
            }
            self.start(chosen).await?;
        }
        Ok(TurnEnd::Over)
    }

    /// Returns the letter if it is to be acted on.
    fn choose(&mut self, held: Held) -> Option<Held> {
        let tally = &mut self.tally;
        match &held.standing {
            standing if self.sweep.selection.obsolete && !standing.is_obsolete() => tally.others += 1,
            standing if self.act.leaves(standing) => tally.leave(standing),
            _ => return Some(held),
        }
        None
    }

    /// Starts to act on a batch, as soon as the rate and the number of batches under way allow it.
    async fn start(&mut self, batch: Vec<Held>) -> Result<(), DeadLettersError> {
        if batch.is_empty() {
            return Ok(());
        }
        while self.running.len() >= A::BATCHES {
            self.finish_one().await?;
        }
        if let Some(rate) = self.sweep.bounds.rate {
            let seconds = f64::from(u32::try_from(batch.len()).unwrap_or(u32::MAX)) / f64::from(rate.get());
            self.sweep.stop.run_until_cancelled(sleep_until(self.next_at)).await;
            self.next_at = self.next_at.max(Instant::now()) + Duration::from_secs_f64(seconds);
        }
        let act = Arc::clone(&self.act);
        self.running.spawn(async move { act.act(batch).await });
        Ok(())
    }

    /// Waits for all batches under way. Each of them counts, also if another one has failed.
    async fn finish(&mut self) -> Result<(), DeadLettersError> {
        let mut result = Ok(());
        while !self.running.is_empty() {
            result = result.and(self.finish_one().await);
        }
        result
    }

    async fn finish_one(&mut self) -> Result<(), DeadLettersError> {
        let Some(Ok((done, result))) = self.running.join_next().await else { return Ok(()) };
        self.tally.done += done;
        (self.sweep.progress)(self.tally);
        result
    }

    /// Returns the size of a batch. With a rate it is a tenth of a second's letters.
    fn batch(&self) -> usize {
        const { assert!(BATCH * 4 <= LOOK_IN_FLIGHT) };
        let rated = self.sweep.bounds.rate.map(|rate| usize::try_from(rate.get() / 10).unwrap_or(BATCH));
        rated.map_or(BATCH, |rated| rated.clamp(1, BATCH))
    }
}

/// How fast the letters of a queue are read.
#[derive(Default)]
struct Pace {
    letters: u32,
    took: Duration,
}

impl Pace {
    fn read(&mut self, letters: usize, took: Duration) {
        self.letters = self.letters.saturating_add(u32::try_from(letters).unwrap_or(u32::MAX));
        self.took += took;
    }

    /// Returns how long a turn lasts that leaves so many letters.
    fn turn(&self, left: u64) -> Duration {
        let left = u32::try_from(left).unwrap_or(u32::MAX);
        let rest = (self.took / self.letters.max(1)).saturating_mul(left);
        rest.saturating_mul(WORTH).clamp(TURN, LONGEST_TURN)
    }
}

/// Acknowledges letters, and returns how many. The acknowledgements are written before the look closes its channel, which
/// would return the letters.
pub(super) async fn acknowledge(receipts: Vec<Box<dyn Receipt>>) -> u64 {
    let done = count(&receipts);
    let written: Vec<_> = receipts.into_iter().map(Receipt::acknowledge).collect();
    for written in written {
        written.await;
    }
    done
}

fn count<T>(letters: &[T]) -> u64 {
    u64::try_from(letters.len()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_worth_the_letters_that_it_leaves() {
        let mut pace = Pace::default();
        assert_eq!(pace.turn(40), TURN, "nothing is read");
        // Small letters.
        pace.read(5_000, Duration::from_millis(100));
        assert_eq!(pace.turn(10_000), TURN);
        // Large letters on a busy broker.
        let mut pace = Pace::default();
        pace.read(4, Duration::from_secs(4));
        assert_eq!([30, 2, 0, 10_000].map(|left| pace.turn(left).as_secs()), [120, 8, 5, 300]);
    }
}
