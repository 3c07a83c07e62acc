//! The Lua scripts, and how each call is written for its script and its answer read.

use std::sync::LazyLock;

use jiff::Timestamp;
use redis::{FromRedisValue, Script, ScriptInvocation};

use super::{keys::Keys, packed};
use crate::domain::register::{
    Cancel, Cancelled, Claim, Claimed, CopyVersion, DedupSlot, End, Later, Note, Postponed, Record, Release, Renew,
    Renewed, Reserve, Reserved, Settle, Stage, Subject, Terms,
    transitions::{due_millis, millis},
};

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("scripts/common.lua"), include_str!($file))));
    };
}

/// Defines a script that writes into the index or reads it.
macro_rules! indexed {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(
                include_str!("scripts/common.lua"),
                include_str!("scripts/index.lua"),
                include_str!($file)
            ))
        });
    };
}

script!(PING, "scripts/ping.lua");
script!(NOW, "scripts/now.lua");
script!(OWN, "scripts/own.lua");
script!(RESERVE, "scripts/reserve.lua");
script!(CLAIM, "scripts/claim.lua");
script!(RENEW, "scripts/renew.lua");
script!(RELEASE, "scripts/release.lua");
indexed!(RECORD, "scripts/record.lua");
indexed!(SETTLE, "scripts/settle.lua");
indexed!(LATER, "scripts/later.lua");
indexed!(CANCEL, "scripts/cancel.lua");
script!(FIND, "scripts/find.lua");
script!(LOOK, "scripts/look.lua");
script!(LOOK_AT, "scripts/look_at.lua");
indexed!(KEPT, "scripts/kept.lua");

/// One item of a batch, as its script takes and answers it.
pub(super) trait Call: Sync {
    /// The script's answer for one item.
    type Raw: FromRedisValue + Send;
    /// The meaning of that answer.
    type Answer: Send;
    /// Whether the script may touch keys that the call does not name: kept messages, and homes that the index names.
    /// Then the call names a key that never exists, so that no node runs the script while the hash slot moves and
    /// another node has some of these keys.
    const REACHES_OUT: bool = false;

    fn script() -> &'static Script;
    fn subject(&self) -> &Subject;
    /// Appends the keys and arguments that the first lines of the script list, in that order.
    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>);
    fn read(&self, raw: Self::Raw) -> Self::Answer;
}

/// Appends what all calls about a copy begin with: the keys home, own home and lease, and the arguments field and
/// version.
fn copy(keys: &Keys, shard: u16, subject: &Subject, stamp: &CopyVersion, terms: &Terms, to: &mut ScriptInvocation<'_>) {
    to.key(keys.home(shard, subject, &stamp.slot))
        .key(keys.own_home(shard, subject))
        .key(keys.lease(shard, subject, terms))
        .arg(stamp.slot.field())
        .arg(stamp.counted_version(subject));
}

impl Call for Reserve {
    type Raw = i64;
    type Answer = Reserved;

    fn script() -> &'static Script {
        &RESERVE
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        let subject = &self.subject;
        to.key(keys.home(shard, subject, &self.slot));
        let asker_slot = self.asked_by.as_ref().map_or(&self.slot, |asker| &asker.slot);
        to.key(keys.home(shard, subject, asker_slot)).key(keys.own_home(shard, subject));
        to.arg(self.slot.field()).arg(due_millis(self.due));
        match &self.asked_by {
            Some(asker) => {
                to.arg(asker.slot.field()).arg(asker.counted_version(subject)).arg(asker.counted_generation())
            }
            None => to.arg("").arg(0).arg(0),
        };
    }

    fn read(&self, raw: i64) -> Reserved {
        if raw > 0 { Reserved::Version(raw) } else { Reserved::Stale }
    }
}

impl Call for Record {
    type Raw = i64;
    type Answer = ();
    const REACHES_OUT: bool = true;

    fn script() -> &'static Script {
        &RECORD
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        let Self { subject, slot, .. } = self;
        let note = Note { stage: Stage::Waiting, attempts: 0, reason: self.reason.clone() };
        to.key(keys.home(shard, subject, slot))
            .key(keys.index(shard, &subject.event_type))
            .arg(slot.field())
            .arg(self.version)
            .arg(millis(self.terms.dedup_retention))
            .arg(packed::details(subject, slot, self.due, &note, self.kept.is_some()))
            .arg(self.kept.as_deref().unwrap_or_default());
    }

    fn read(&self, _: i64) {}
}

impl Call for Claim {
    type Raw = (String, i64, u32, u8);
    type Answer = Claimed;

    fn script() -> &'static Script {
        &CLAIM
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        copy(keys, shard, &self.subject, &self.stamp, &self.terms, to);
        to.arg(self.stamp.counted_generation())
            .arg(self.token.as_bytes())
            .arg(u8::from(self.alone))
            .arg(millis(self.terms.lease))
            .arg(millis(self.terms.max_wait));
    }

    fn read(&self, (what, number, crashes, own): Self::Raw) -> Claimed {
        match what.as_str() {
            "run" => Claimed::run(self, number, crashes, own == 1),
            "stale" => Claimed::Stale,
            "replaced" => Claimed::Replaced,
            "later" => Claimed::Later(Timestamp::from_millisecond(number).unwrap_or(Timestamp::MAX)),
            "alone" => Claimed::Alone,
            // After this answer nothing is lost, whatever an unknown answer means.
            _ => Claimed::Busy,
        }
    }
}

impl Call for Renew {
    type Raw = u8;
    type Answer = Renewed;

    fn script() -> &'static Script {
        &RENEW
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        copy(keys, shard, &self.subject, &self.stamp, &self.terms, to);
        to.arg(self.token.as_bytes())
            .arg(self.due.as_millisecond())
            .arg(millis(self.terms.lease))
            .arg(millis(self.terms.dedup_retention));
    }

    fn read(&self, raw: u8) -> Renewed {
        if raw == 1 { Renewed::Held } else { Renewed::Lost }
    }
}

impl Call for Release {
    type Raw = u8;
    type Answer = ();

    fn script() -> &'static Script {
        &RELEASE
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        copy(keys, shard, &self.subject, &self.stamp, &self.terms, to);
        to.arg(self.stamp.counted_generation())
            .arg(self.token.as_bytes())
            .arg(self.due.as_millisecond())
            .arg(millis(self.terms.dedup_retention));
    }

    fn read(&self, _: u8) {}
}

impl Call for Settle {
    type Raw = u8;
    type Answer = ();
    const REACHES_OUT: bool = true;

    fn script() -> &'static Script {
        &SETTLE
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        let Self { subject, stamp, .. } = self;
        copy(keys, shard, subject, stamp, &self.terms, to);
        to.key(keys.index(shard, &subject.event_type))
            .arg(stamp.counted_generation())
            .arg(self.fence)
            .arg(self.token.as_bytes())
            .arg(self.due.as_millisecond())
            .arg(millis(self.terms.dedup_retention));
        match &self.end {
            End::Finished => to.arg("").arg("").arg(""),
            End::Copied { due, note } => {
                let details = |slot: &DedupSlot| packed::details(subject, slot, *due, note, false);
                let alone = DedupSlot::Event(subject.id.clone());
                to.arg(due_millis(*due)).arg(details(&stamp.slot)).arg(details(&alone))
            }
        };
    }

    fn read(&self, _: u8) {}
}

impl Call for Later {
    type Raw = u8;
    type Answer = Postponed;
    const REACHES_OUT: bool = true;

    fn script() -> &'static Script {
        &LATER
    }

    fn subject(&self) -> &Subject {
        &self.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        to.key(keys.home(shard, &self.subject, &self.stamp.slot))
            .key(keys.own_home(shard, &self.subject))
            .key(keys.index(shard, &self.subject.event_type))
            .arg(self.stamp.slot.field())
            .arg(self.stamp.counted_version(&self.subject))
            .arg(self.stamp.counted_generation())
            .arg(due_millis(self.at));
    }

    fn read(&self, raw: u8) -> Postponed {
        match raw {
            2 => Postponed::Until,
            1 => Postponed::Running,
            _ => Postponed::Unwanted,
        }
    }
}

/// Reads the time of the Redis server that has this subject, in µs.
pub(super) struct Now<'a>(pub(super) &'a Subject);

impl Call for Now<'_> {
    type Raw = i64;
    type Answer = i64;

    fn script() -> &'static Script {
        &NOW
    }

    fn subject(&self) -> &Subject {
        self.0
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        to.key(keys.none(shard));
    }

    fn read(&self, raw: i64) -> i64 {
        raw
    }
}

/// A cancel, and until when its caller waits, in µs of Redis's time.
pub(super) struct Timely<'a> {
    pub(super) call: &'a Cancel,
    pub(super) until: i64,
}

impl Call for Timely<'_> {
    type Raw = Vec<(String, u8, u8, u8)>;
    type Answer = Vec<Cancelled>;
    const REACHES_OUT: bool = true;

    fn script() -> &'static Script {
        &CANCEL
    }

    fn subject(&self) -> &Subject {
        &self.call.subject
    }

    fn write(&self, keys: &Keys, shard: u16, to: &mut ScriptInvocation<'_>) {
        let Cancel { subject, slot, due, horizon } = self.call;
        let alone = DedupSlot::Event(subject.id.clone());
        let slot = match slot {
            None if subject.reference.is_none() => Some(&alone),
            slot => slot.as_ref(),
        };
        to.key(keys.home(shard, subject, slot.unwrap_or(&DedupSlot::Immediate)))
            .key(keys.index(shard, &subject.event_type))
            .arg(slot.map_or_else(String::new, DedupSlot::field))
            .arg(due.map_or(0, due_millis))
            .arg(millis(*horizon))
            .arg(self.until);
    }

    fn read(&self, mut raw: Self::Raw) -> Vec<Cancelled> {
        raw.sort_unstable();
        let slot = |field: &str| match &self.call.slot {
            Some(slot) => Some(slot.clone()),
            None if field == "e" => Some(DedupSlot::Event(self.call.subject.id.clone())),
            None => field.parse().ok(),
        };
        let cancelled = |(field, waiting, running, already): (String, u8, u8, u8)| {
            Some(Cancelled { slot: slot(&field)?, waiting: waiting == 1, running: running == 1, already: already == 1 })
        };
        raw.into_iter().filter_map(cancelled).collect()
    }
}
