//! Discards letters, after they are written to a file.

use std::{io, sync::Arc};

use async_trait::async_trait;
use hatchery::{
    Events, TransitionName,
    internals::register::{End, Settle, Subject},
};

use super::{
    error::DeadLettersError,
    letter::Letter,
    queues::DeadLetters,
    standing::Standing,
    sweep::{Act, Held, Sweep, Swept, acknowledge},
};

/// Writes letters to a file, and returns when they are on the disk.
pub type Keep = Arc<dyn Fn(&[Letter]) -> io::Result<()> + Send + Sync>;

impl DeadLetters {
    /// Discards the selected letters of a queue, after `keep` has written them. The register is told that their events
    /// are over.
    ///
    /// The sweep ends after as many letters as were in the queue when it began. It may be stopped and run again.
    pub async fn discard(&self, sweep: Sweep<'_>, keep: Keep) -> Swept {
        self.sweep(sweep, Discard { events: self.0.clone(), keep }).await
    }
}

struct Discard {
    events: Events,
    keep: Keep,
}

#[async_trait]
impl Act for Discard {
    // The file has the letters in their order.
    const BATCHES: usize = 1;

    fn leaves(&self, _: &Standing) -> bool {
        false
    }

    /// The order of effects: the file, the register, the acknowledgement. After a crash in between, the letters are in
    /// the file and in the queue.
    async fn act(&self, batch: Vec<Held>) -> (u64, Result<(), DeadLettersError>) {
        let settles: Vec<Settle> = batch.iter().filter_map(|held| self.settled(held)).collect();
        let events: Vec<Subject> = batch.iter().filter_map(|held| Some(held.event.as_ref()?.subject())).collect();
        let (letters, receipts): (Vec<_>, Vec<_>) = batch.into_iter().map(|held| (held.letter, held.held)).unzip();
        let keep = Arc::clone(&self.keep);
        let kept = tokio::task::spawn_blocking(move || keep(&letters)).await;
        if let Err(error) = kept.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            return (0, Err(DeadLettersError::File(error)));
        }
        fail_point!("discard.kept");
        if !settles.is_empty()
            && let Err(error) = self.events.shared.register.settle(&settles).await
        {
            return (0, Err(DeadLettersError::Register(error)));
        }
        let acknowledged = acknowledge(receipts).await;
        for event in &events {
            self.events.shared.tell(TransitionName::LetterDiscarded, event, |_| {});
        }
        (acknowledged, Ok(()))
    }
}

impl Discard {
    /// Returns the call that ends an event, if the letter is its last copy.
    fn settled(&self, held: &Held) -> Option<Settle> {
        let event = held.event.as_ref().filter(|_| held.standing == Standing::Open)?;
        let terms = self.events.shared.terms(&event.event_type)?;
        Some(Settle::by_a_person(event.subject(), event.stamp.clone(), held.covered, event.due(), End::Finished, terms))
    }
}
