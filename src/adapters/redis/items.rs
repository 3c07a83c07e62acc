//! How each call is written for its script, and its answer read: one packed argument for each item of a batch.

use std::vec;

use jiff::Timestamp;
use redis::{FromRedisValue, RedisWrite, ToRedisArgs};
use uuid::Uuid;

use super::{keys::Keys, packed};
use crate::domain::register::{
    Cancel, Cancelled, Claim, ClaimAnswer, CopyVersion, DedupSlot, End, Later, Note, Postponed, Record, Release, Renew,
    Renewed, Reserve, Reserved, Settle, Stage, Subject, Terms,
    state::{due_millis, millis},
};

/// One item of a batch, as a script takes and answers it.
pub(super) trait Item: Sync {
    /// A value of the script's answer.
    type Raw: FromRedisValue + Send;
    /// The meaning of the answer for one item.
    type Answer: Send;
    /// The number of values in the answer for one item.
    const VALUES: usize = 1;

    fn subject(&self) -> &Subject;
    /// Packs what the first lines of the script list, in that order.
    fn argument(&self, keys: &Keys) -> Argument;
    /// Takes the item's values from the answer. `None` if one of them is missing.
    fn read(&self, raw: &mut vec::IntoIter<Self::Raw>) -> Option<Self::Answer>;
}

impl Item for Reserve {
    type Raw = i64;
    type Answer = Reserved;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Self { subject, slot, .. } = self;
        let (version, generation, field, place, own) = match &self.asked_by {
            Some(asker) => (
                asker.counted_version(subject),
                asker.counted_generation(),
                subject.field(&asker.slot),
                keys.place(subject, &asker.slot),
                keys.own_place(subject),
            ),
            None => (0, 0, String::new(), String::new(), String::new()),
        };
        let argument = Argument::new().millis(due_millis(self.due)).version(version).generation(generation);
        argument.text(subject.field(slot)).text(keys.place(subject, slot)).text(field).text(place).text(own)
    }

    fn read(&self, raw: &mut vec::IntoIter<i64>) -> Option<Reserved> {
        raw.next().map(|raw| if raw > 0 { Reserved::Version(raw) } else { Reserved::Stale })
    }
}

impl Item for Record {
    type Raw = i64;
    type Answer = ();

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Self { subject, slot, .. } = self;
        let note = Note { stage: Stage::Waiting, attempts: 0, reason: self.reason.clone() };
        Argument::new()
            .version(self.version)
            .millis(millis(self.terms.dedup_retention))
            .text(subject.field(slot))
            .text(keys.place(subject, slot))
            .text(packed::details(subject, slot, self.due, &note, self.kept.is_some()))
            .message(self.kept.as_deref().unwrap_or_default())
    }

    fn read(&self, raw: &mut vec::IntoIter<i64>) -> Option<()> {
        raw.next().map(drop)
    }
}

impl Item for Claim {
    type Raw = i64;
    type Answer = ClaimAnswer;
    const VALUES: usize = 2;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Self { subject, stamp, terms, .. } = self;
        Argument::new()
            .version(stamp.counted_version(subject))
            .generation(stamp.counted_generation())
            .millis(millis(terms.lease))
            .millis(millis(terms.max_wait))
            .flag(self.alone)
            .token(&self.token)
            .places(keys, subject, stamp, terms)
    }

    fn read(&self, raw: &mut vec::IntoIter<i64>) -> Option<ClaimAnswer> {
        let (what, number) = (raw.next()?, raw.next()?);
        let crashes = u32::try_from(what / 8).unwrap_or_default();
        Some(match what % 8 {
            0 => ClaimAnswer::Stale,
            1 => ClaimAnswer::Replaced,
            2 => ClaimAnswer::Later(Timestamp::from_millisecond(number).unwrap_or(Timestamp::MAX)),
            4 => ClaimAnswer::Alone,
            5 => ClaimAnswer::run(self, number, crashes, false),
            6 => ClaimAnswer::run(self, number, crashes, true),
            // After this answer nothing is lost, whatever an unknown answer means.
            _ => ClaimAnswer::Busy,
        })
    }
}

impl Item for Renew {
    type Raw = i64;
    type Answer = Renewed;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Self { subject, stamp, terms, .. } = self;
        Argument::new()
            .version(stamp.counted_version(subject))
            .millis(self.due.as_millisecond())
            .millis(millis(terms.lease))
            .millis(millis(terms.dedup_retention))
            .token(&self.token)
            .places(keys, subject, stamp, terms)
    }

    fn read(&self, raw: &mut vec::IntoIter<i64>) -> Option<Renewed> {
        raw.next().map(|raw| match raw {
            2 => Renewed::Cancelled,
            1 => Renewed::Held,
            _ => Renewed::Lost,
        })
    }
}

impl Item for Release {
    type Raw = i64;
    type Answer = ();

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Self { subject, stamp, terms, .. } = self;
        Argument::new()
            .version(stamp.counted_version(subject))
            .generation(stamp.counted_generation())
            .millis(self.due.as_millisecond())
            .millis(millis(terms.dedup_retention))
            .token(&self.token)
            .places(keys, subject, stamp, terms)
    }

    fn read(&self, raw: &mut vec::IntoIter<i64>) -> Option<()> {
        raw.next().map(drop)
    }
}

impl Item for Settle {
    type Raw = i64;
    type Answer = ();

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Self { subject, stamp, terms, .. } = self;
        let (copy_due, is_copied, details, own_details) = match &self.end {
            End::Finished => (0, false, Vec::new(), Vec::new()),
            End::Copied { due, note } => {
                let details = |slot: &DedupSlot| packed::details(subject, slot, *due, note, false);
                (due_millis(*due), true, details(&stamp.slot), details(&DedupSlot::Event(subject.id.clone())))
            }
        };
        Argument::new()
            .version(stamp.counted_version(subject))
            .generation(stamp.counted_generation())
            .version(self.fence)
            .millis(self.due.as_millisecond())
            .millis(millis(terms.dedup_retention))
            .millis(copy_due)
            .flag(is_copied)
            .token(&self.token)
            .places(keys, subject, stamp, terms)
            .text(details)
            .text(own_details)
    }

    fn read(&self, raw: &mut vec::IntoIter<i64>) -> Option<()> {
        raw.next().map(drop)
    }
}

impl Item for Later {
    type Raw = i64;
    type Answer = Postponed;

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Self { subject, stamp, .. } = self;
        Argument::new()
            .version(stamp.counted_version(subject))
            .generation(stamp.counted_generation())
            .millis(due_millis(self.at))
            .text(subject.field(&stamp.slot))
            .text(keys.place(subject, &stamp.slot))
            .text(keys.own_place(subject))
    }

    fn read(&self, raw: &mut vec::IntoIter<i64>) -> Option<Postponed> {
        raw.next().map(|raw| match raw {
            2 => Postponed::Until,
            1 => Postponed::Running,
            _ => Postponed::Unwanted,
        })
    }
}

/// Reads the time of the Redis server that has this subject, in µs.
pub(super) struct Now<'a>(pub(super) &'a Subject);

impl Item for Now<'_> {
    type Raw = i64;
    type Answer = i64;

    fn subject(&self) -> &Subject {
        self.0
    }

    fn argument(&self, _: &Keys) -> Argument {
        Argument::new()
    }

    fn read(&self, raw: &mut vec::IntoIter<i64>) -> Option<i64> {
        raw.next()
    }
}

/// A cancel, and until when its caller waits, in µs of Redis's time.
pub(super) struct Timely<'a> {
    pub(super) call: &'a Cancel,
    pub(super) until: i64,
}

impl Item for Timely<'_> {
    type Raw = Vec<(String, u8, u8, u8)>;
    type Answer = Vec<Cancelled>;

    fn subject(&self) -> &Subject {
        &self.call.subject
    }

    fn argument(&self, keys: &Keys) -> Argument {
        let Cancel { subject, slot, due, horizon } = self.call;
        let alone = DedupSlot::Event(subject.id.clone());
        let slot = match slot {
            None if subject.reference.is_none() => Some(&alone),
            slot => slot.as_ref(),
        };
        Argument::new()
            .millis(due.map_or(0, due_millis))
            .millis(millis(*horizon))
            .version(self.until)
            .text(keys.place(subject, slot.unwrap_or(&DedupSlot::Immediate)))
            .text(slot.map_or_else(String::new, DedupSlot::field))
    }

    fn read(&self, raw: &mut vec::IntoIter<Self::Raw>) -> Option<Vec<Cancelled>> {
        let mut raw = raw.next()?;
        raw.sort_unstable();
        let slot = |field: &str| match &self.call.slot {
            Some(slot) => Some(slot.clone()),
            None if field == "e" => Some(DedupSlot::Event(self.call.subject.id.clone())),
            None => field.parse().ok(),
        };
        let cancelled = |(field, waiting, running, already): (String, u8, u8, u8)| {
            let (waiting, running, already) = (waiting == 1, running == 1, already == 1);
            Some(Cancelled { slot: slot(&field)?, id: None, waiting, running, already })
        };
        Some(raw.into_iter().filter_map(cancelled).collect())
    }
}

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
