//! The task that reads the switches of the topology, and sets those of this worker.

use std::{sync::Arc, time::Duration};

use backon::BackoffBuilder as _;
use jiff::Timestamp;
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{error::WorkError, lane::Common, switches::Known};
use crate::{
    domain::time::until,
    outage::{SwitchesOutage, backoff},
    ports::{BrokerError, Deliveries},
};

/// How long the first message may take to come. Then the stream has none.
const FIRST: Duration = Duration::from_secs(5);

/// After this long the switches are set anew: Redis may have told another time meanwhile, by which a pause has ended or has not.
const LOOK: Duration = Duration::from_secs(30);

/// After this long, as long as Redis has not told its time. No pause ends until then: the clock of this machine may be hours ahead.
const FIRST_LOOK: Duration = Duration::from_secs(1);

/// Follows the switches until the worker ends.
pub(super) async fn follow(common: Arc<Common>) {
    let known = watch::Sender::new(Known::default());
    let reader = Reader { common: &common, known: &known, outage: SwitchesOutage::default() };
    tokio::join!(reader.read(), set(&common, known.subscribe()));
}

/// Sets the switches when a word comes, and when a pause ends by itself.
async fn set(common: &Common, mut known: watch::Receiver<Known>) {
    loop {
        let is_compared = common.clock.is_compared();
        let (now, look) = if is_compared { (common.clock.of_redis(), LOOK) } else { (Timestamp::MIN, FIRST_LOOK) };
        let end = {
            let known = known.borrow_and_update();
            common.switches.set(&known, now);
            known.next_end(now).map_or(look, |end| until(now, end).min(look))
        };
        tokio::select! {
            changed = known.changed() => if changed.is_err() { return },
            () = sleep(end) => {}
        }
    }
}

struct Reader<'a> {
    common: &'a Common,
    known: &'a watch::Sender<Known>,
    outage: SwitchesOutage,
}

impl Reader<'_> {
    async fn read(mut self) {
        let (stream, mut pauses) = (self.common.routes.names.control(), backoff().build());
        loop {
            match self.common.broker.follow(&stream).await {
                Ok(deliveries) => {
                    if self.read_on(deliveries, &stream).await {
                        pauses = backoff().build();
                    }
                    self.note_unreadable(&format!("the reader of {stream} has ended"));
                }
                // Waiting does not help. A worker that has read the switches goes on without the right to read them.
                Err(error @ BrokerError::Closed) => return self.common.fail(WorkError::Broker(error)),
                Err(error) if error.is_no_right() && self.known.borrow().unread.is_some() => {
                    return self.common.fail(WorkError::Broker(error));
                }
                Err(error) => self.note_unreadable(&error.to_string()),
            }
            sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    /// Reads until the reader ends. Returns whether a message came.
    async fn read_on(&mut self, mut deliveries: Box<dyn Deliveries>, stream: &str) -> bool {
        let (mut batch, mut any) = (Vec::new(), false);
        loop {
            let coming = deliveries.next_batch(&mut batch);
            let comes = if any { Ok(coming.await) } else { timeout(FIRST, coming).await };
            match comes {
                Ok(true) => any = true,
                Ok(false) => return any,
                Err(_) => self.note_unreadable(&format!("{stream} has no snapshot; run `topology apply`")),
            }
            for delivery in batch.drain(..) {
                self.known.send_if_modified(|known| known.take(&delivery.message.body));
                drop(delivery.receipt.acknowledge());
            }
            let unread = self.known.borrow().unread.clone();
            match unread {
                Some(why) if any => self.outage.begins(&why, false),
                None if any => self.outage.ends(),
                // An empty stream.
                _ => {}
            }
        }
    }

    /// Notes that the stream cannot be read. What was read before still counts.
    fn note_unreadable(&mut self, why: &str) {
        let is_known = self.known.borrow().unread.is_none();
        if !is_known {
            self.known.send_if_modified(|known| known.note_unreadable(why));
        }
        self.outage.begins(why, is_known);
    }
}
