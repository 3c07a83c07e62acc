//! Messages that the broker returns because no queue takes them, though it confirms them too.
//!
//! Every message is published with the flag `mandatory`: before its confirm the broker sends back what it could not route
//! (*Basic.Return*). lapin gives a returned message to whichever confirm comes next, and writes the whole of it to the log.
//! So the returned messages are taken out of the bytes that lapin reads. They are noted before lapin reads the confirm, so a
//! publish that is confirmed finds the note, if there is one. A return does not say which message it was. It counts for all
//! messages with its exchange and routing key that were sent before and are not confirmed yet.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io::Read as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use amq_protocol::{
    frame::{AMQPFrame, parse_frame},
    protocol::{AMQPClass, basic::AMQPMethod},
};

/// The number of exchanges and routing keys that are remembered.
const MOST: usize = 1_000;

/// The types of AMQP's frames: methods, headers, bodies, heartbeats.
const METHOD: u8 = 1;
const CONTENT: [u8; 2] = [2, 3];
const HEARTBEAT: u8 = 8;

/// The class and the method of *Basic.Return*.
const RETURN: [u8; 4] = [0, 60, 0, 50];

/// The bytes of a frame before and behind its payload.
const HEAD: usize = 7;
const END: usize = 1;

/// No frame that RabbitMQ sends is longer. The limit is agreed upon with it, and 128 KiB by default.
const LONGEST: usize = 64 * 1024 * 1024;

/// Notes the messages that were returned on a connection.
#[derive(Default)]
pub(super) struct Returns {
    count: AtomicU64,
    last: Mutex<Last>,
}

/// The numbers of the last returns.
#[derive(Default)]
struct Last {
    /// By exchange and routing key.
    by_route: HashMap<(String, String), u64>,
    /// The last one that is not remembered by its exchange and routing key.
    forgotten: u64,
}

impl Returns {
    /// Returns the number of messages that were returned so far.
    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Whether a message with this exchange and routing key was returned after the first `before` ones.
    pub(super) fn has_since(&self, before: u64, exchange: &str, routing_key: &str) -> bool {
        if self.count() == before {
            return false;
        }
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let number = last.by_route.get(&(exchange.to_owned(), routing_key.to_owned()));
        last.forgotten.max(number.copied().unwrap_or(0)) > before
    }

    fn note(&self, exchange: &str, routing_key: &str) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.count.load(Ordering::Relaxed) + 1;
        if last.by_route.len() >= MOST {
            last.by_route.clear();
            last.forgotten = number;
        }
        last.by_route.insert((exchange.to_owned(), routing_key.to_owned()), number);
        self.count.store(number, Ordering::Release);
    }
}

/// Takes the returned messages out of a stream of AMQP frames.
pub(super) struct Sieve {
    returns: Arc<Returns>,
    /// The beginning of a frame whose end has not arrived.
    coming: Vec<u8>,
    passed: VecDeque<u8>,
    /// The channels on which the content of a returned message follows.
    returning: HashSet<[u8; 2]>,
    is_amqp: bool,
}

impl Sieve {
    pub(super) fn new(returns: Arc<Returns>) -> Self {
        let (coming, passed, returning) = (Vec::new(), VecDeque::new(), HashSet::new());
        Self { returns, coming, passed, returning, is_amqp: true }
    }

    /// Takes bytes that were read.
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.coming.extend_from_slice(bytes);
        let mut taken = 0;
        while self.is_amqp {
            let left = &self.coming[taken..];
            let Some((length, is_amqp)) = length(left) else { break };
            self.is_amqp = is_amqp;
            let Some(frame) = left.get(..length).filter(|_| is_amqp) else { break };
            if passes(&self.returns, &mut self.returning, frame) {
                self.passed.extend(frame);
            }
            taken += length;
        }
        self.coming.drain(..taken);
        if !self.is_amqp {
            // lapin reports what it is.
            self.passed.extend(self.coming.drain(..));
        }
    }

    /// Writes what has passed, as far as it fits. Returns the number of bytes.
    pub(super) fn give(&mut self, buffer: &mut [u8]) -> usize {
        // Reading from memory does not fail.
        self.passed.read(buffer).unwrap_or(0)
    }
}

/// Returns the length of the frame that begins here, and whether it may be one of AMQP. `None` if that is not known yet.
fn length(bytes: &[u8]) -> Option<(usize, bool)> {
    let kind = *bytes.first()?;
    if kind != METHOD && !CONTENT.contains(&kind) && kind != HEARTBEAT {
        return Some((0, false));
    }
    let size = bytes.get(3..HEAD)?.try_into().map(u32::from_be_bytes).ok()?;
    let length = usize::try_from(size).map_or(usize::MAX, |size| size.saturating_add(HEAD + END));
    Some((length, length <= LONGEST))
}

/// Whether lapin is to read this frame.
fn passes(returns: &Returns, returning: &mut HashSet<[u8; 2]>, frame: &[u8]) -> bool {
    let channel = [frame[1], frame[2]];
    match frame[0] {
        METHOD if frame[HEAD..].starts_with(&RETURN) => {
            if let Ok((_, AMQPFrame::Method(_, AMQPClass::Basic(AMQPMethod::Return(returned))))) = parse_frame(frame) {
                returns.note(returned.exchange.as_str(), returned.routing_key.as_str());
                returning.insert(channel);
                return false;
            }
            true
        }
        METHOD => {
            if !returning.is_empty() {
                returning.remove(&channel);
            }
            true
        }
        kind => !(CONTENT.contains(&kind) && returning.contains(&channel)),
    }
}

#[cfg(test)]
mod tests {
    use amq_protocol::{
        frame::{AMQPContentHeader, WriteContext, gen_frame},
        protocol::basic::{AMQPProperties, Ack, Return},
    };
    use rstest::rstest;

    use super::*;

    fn bytes(frames: &[AMQPFrame]) -> Vec<u8> {
        let written = |frame| gen_frame(frame)(WriteContext::from(Vec::new())).expect("a frame").into_inner().0;
        frames.iter().flat_map(written).collect()
    }

    fn ack(channel: u16, delivery_tag: u64) -> AMQPFrame {
        AMQPFrame::Method(channel, AMQPClass::Basic(AMQPMethod::Ack(Ack { delivery_tag, multiple: false })))
    }

    fn returned(routing_key: &str) -> [AMQPFrame; 3] {
        let (reply_text, exchange) = ("NO_ROUTE".into(), "t.scheduler".into());
        let returned = Return { reply_code: 312, reply_text, exchange, routing_key: routing_key.into() };
        let header = AMQPContentHeader { class_id: 60, body_size: 4, properties: AMQPProperties::default() };
        [
            AMQPFrame::Method(1, AMQPClass::Basic(AMQPMethod::Return(returned))),
            AMQPFrame::Header(1, header),
            AMQPFrame::Body(1, b"body".to_vec()),
        ]
    }

    /// Returns what is left of these bytes when they come in pieces of this size.
    fn sieved(returns: &Arc<Returns>, bytes: &[u8], piece: usize) -> Vec<u8> {
        let (mut sieve, mut read, mut buffer) = (Sieve::new(Arc::clone(returns)), Vec::new(), [0; 5]);
        for piece in bytes.chunks(piece) {
            sieve.take(piece);
            while let count @ 1.. = sieve.give(&mut buffer) {
                read.extend_from_slice(&buffer[..count]);
            }
        }
        read
    }

    #[rstest]
    #[case(1)]
    #[case(9)]
    #[case(100_000)]
    fn a_returned_message_is_noted_and_taken_out(#[case] piece: usize) {
        let [method, header, body] = returned("mail.now");
        // Frames of other channels may come between those of a message.
        let coming = [ack(1, 1), method, ack(2, 1), header, AMQPFrame::Heartbeat, body, ack(1, 2)];
        let left = [ack(1, 1), ack(2, 1), AMQPFrame::Heartbeat, ack(1, 2)];
        let returns = Arc::<Returns>::default();
        assert_eq!(sieved(&returns, &bytes(&coming), piece), bytes(&left));
        assert!(returns.has_since(0, "t.scheduler", "mail.now"));
        assert!(!returns.has_since(0, "t.scheduler", "mail.5s") && !returns.has_since(0, "t.retry", "mail.now"));
        assert!(!returns.has_since(returns.count(), "t.scheduler", "mail.now"));
    }

    #[rstest]
    #[case(b"HTTP/1.1 400 Bad Request\r\n\r\n")]
    #[case(b"AMQP\0\0\x09\x01")]
    #[case(&[1, 0, 0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3])]
    fn bytes_that_are_no_frames_pass(#[case] coming: &[u8]) {
        assert_eq!(sieved(&Arc::default(), coming, 3), coming);
    }

    #[test]
    fn a_return_that_is_no_longer_remembered_counts_for_every_message_before() {
        let returns = Returns::default();
        for number in 0..=MOST {
            returns.note("t.scheduler", &number.to_string());
        }
        let before = returns.count();
        assert!(returns.has_since(0, "t.scheduler", "another") && !returns.has_since(before, "t.scheduler", "another"));
        returns.note("t.scheduler", "0");
        assert!(returns.has_since(before, "t.scheduler", "0") && !returns.has_since(before, "t.scheduler", "another"));
    }
}
