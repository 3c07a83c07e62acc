//! The argument of a script about one item of a batch.

use redis::{RedisWrite, ToRedisArgs};
use uuid::Uuid;

use super::keys::Keys;
use crate::domain::register::{CopyVersion, Subject, Terms};

/// The argument of an item: numbers and texts, packed, which the script unpacks with one command.
pub(super) struct Argument(Vec<u8>);

impl Argument {
    pub(super) fn new() -> Self {
        Self(Vec::with_capacity(192))
    }

    /// Appends a number in this many bytes, lowest byte first. A negative number counts as 0, and one that does not fit
    /// as the largest that does.
    pub(super) fn number(mut self, number: i64, bytes: usize) -> Self {
        let largest = (1_i64 << (8 * bytes)) - 1;
        self.0.extend_from_slice(&number.clamp(0, largest).to_le_bytes()[..bytes]);
        self
    }

    /// Appends a time or duration in ms.
    pub(super) fn millis(self, millis: i64) -> Self {
        self.number(millis, 6)
    }

    pub(super) fn version(self, version: i64) -> Self {
        self.number(version, 7)
    }

    pub(super) fn generation(self, generation: i64) -> Self {
        self.number(generation, 4)
    }

    pub(super) fn flag(self, flag: bool) -> Self {
        self.number(flag.into(), 1)
    }

    pub(super) fn token(mut self, token: &Uuid) -> Self {
        self.0.extend_from_slice(token.as_bytes());
        self
    }

    /// Appends a text after its length in two bytes. Names, references and reasons are much shorter than that.
    pub(super) fn text(self, text: impl AsRef<[u8]>) -> Self {
        let text = &text.as_ref()[..text.as_ref().len().min(usize::from(u16::MAX))];
        self.after_its_length(text, 2)
    }

    /// Appends a message after its length in four bytes.
    pub(super) fn message(self, message: &[u8]) -> Self {
        self.after_its_length(message, 4)
    }

    fn after_its_length(self, text: &[u8], bytes: usize) -> Self {
        let mut argument = self.number(i64::try_from(text.len()).unwrap_or_default(), bytes);
        argument.0.extend_from_slice(text);
        argument
    }

    /// Appends the field of a copy's slot, and its places: that of its slot, the event's own, and that of the lease. One
    /// that repeats the first is empty.
    pub(super) fn places(self, keys: &Keys, subject: &Subject, stamp: &CopyVersion, terms: &Terms) -> Self {
        let slot = subject.home(&stamp.slot);
        let own = if subject.own_home() == slot { String::new() } else { keys.own_place(subject) };
        let lease = if subject.leaseholder(terms) == slot { String::new() } else { keys.lease_place(subject, terms) };
        self.text(subject.field(&stamp.slot)).text(keys.place(subject, &stamp.slot)).text(own).text(lease)
    }
}

impl ToRedisArgs for Argument {
    fn write_redis_args<W: RedisWrite + ?Sized>(&self, out: &mut W) {
        out.write_arg(&self.0);
    }
}
