//! Unpacks slots, whose form `scripts/common.lua` describes, and packs and unpacks the index's details.
//!
//! Details are: the due time in ms (6 bytes), flags (1), then as flagged the id (16 bytes of a UUID, or a text), the
//! reference and the failed attempts (4), and to the end the reason. A text follows its length in two bytes. Numbers
//! have their lowest byte first.

use jiff::Timestamp;
use uuid::Uuid;

use crate::domain::{
    reason::cut_reason,
    register::{
        DedupSlot, Note, Stage, Subject,
        index::Entry,
        state::{Later, Mark, SlotState, due_millis},
    },
    words::EventType,
};

const STAGE: u8 = 3;
const IS_UUID: u8 = 4;
const IS_TEXT: u8 = 8;
const HAS_REFERENCE: u8 = 16;
const HAS_ATTEMPTS: u8 = 32;
const HAS_KEPT: u8 = 64;

/// Packs the details that the index has of a slot. The name of the slot's home is not repeated.
pub(super) fn details(subject: &Subject, slot: &DedupSlot, due: Timestamp, note: &Note, kept: bool) -> Vec<u8> {
    let home = subject.home(slot);
    let in_own_home = matches!(slot, DedupSlot::Event(_)) || subject.reference.is_none();
    let mut flags = match note.stage {
        Stage::Waiting => 0,
        Stage::Retry => 1,
        Stage::DeadLetter => 2,
    };
    let mut packed = due_millis(due).to_le_bytes()[..6].to_vec();
    packed.push(0);
    if !in_own_home || home.name() != subject.id {
        if let Some(id) = canonical(&subject.id) {
            flags |= IS_UUID;
            packed.extend_from_slice(id.as_bytes());
        } else {
            flags |= IS_TEXT;
            put_text(&mut packed, &subject.id);
        }
    }
    if let Some(reference) = subject.reference.as_ref().filter(|_| in_own_home) {
        flags |= HAS_REFERENCE;
        put_text(&mut packed, reference.as_str());
    }
    if note.attempts > 0 {
        flags |= HAS_ATTEMPTS;
        packed.extend_from_slice(&note.attempts.to_le_bytes());
    }
    if kept {
        flags |= HAS_KEPT;
    }
    packed.extend_from_slice(cut_reason(note.reason.as_deref().unwrap_or_default()).as_bytes());
    packed[6] = flags;
    packed
}

/// Parses an id that is a UUID in its usual form, which unpacking writes in the same way.
fn canonical(id: &str) -> Option<Uuid> {
    let uuid = Uuid::try_parse(id).ok()?;
    (uuid.hyphenated().encode_lower(&mut Uuid::encode_buffer()) == id).then_some(uuid)
}

/// Appends the length of a text in two bytes, then the text. Ids and references have 255 bytes at most.
fn put_text(packed: &mut Vec<u8>, text: &str) {
    let text = &text[..text.floor_char_boundary(usize::from(u16::MAX))];
    packed.extend_from_slice(&u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
    packed.extend_from_slice(text.as_bytes());
}

/// Unpacks the details in a field of the home with this name (`r:1234`). Returns `None` for details that hatchery did
/// not write.
pub(super) fn entry(event_type: &EventType, home: &str, field: &str, details: &[u8]) -> Option<Entry> {
    let (kind, name) = home.split_once(':')?;
    let mut rest = Bytes(details);
    let due = rest.number(6)?;
    let [flags] = rest.take(1)? else { return None };
    let has = |flag| flags & flag != 0;
    let id = match (has(IS_UUID), has(IS_TEXT)) {
        (true, _) => Uuid::from_slice(rest.take(16)?).ok()?.to_string(),
        (_, true) => rest.text()?.to_owned(),
        _ => name.to_owned(),
    };
    let reference = match kind {
        "r" => Some(name),
        _ if has(HAS_REFERENCE) => Some(rest.text()?),
        _ => None,
    };
    let attempts = if has(HAS_ATTEMPTS) { u32::try_from(rest.number(4)?).ok()? } else { 0 };
    let stage = match flags & STAGE {
        0 => Stage::Waiting,
        1 => Stage::Retry,
        _ => Stage::DeadLetter,
    };
    let reason = std::str::from_utf8(rest.0).ok().filter(|reason| !reason.is_empty()).map(str::to_owned);
    Some(Entry {
        subject: Subject { event_type: event_type.clone(), reference: reference.map(str::parse).transpose().ok()?, id },
        slot: slot_of(name, field)?,
        due: Timestamp::from_millisecond(due).ok()?,
        note: Note { stage, attempts, reason },
    })
}

/// Returns the slot with this field in the home of this name.
pub(super) fn slot_of(name: &str, field: &str) -> Option<DedupSlot> {
    if field == "e" { Some(DedupSlot::Event(name.to_owned())) } else { field.parse().ok() }
}

/// Unpacks the state of a slot: an event's own slot has no versions, and a form of its own.
pub(super) fn state(slot: &DedupSlot, packed: &[u8]) -> Option<SlotState> {
    if matches!(slot, DedupSlot::Event(_)) { event(packed) } else { self::slot(packed) }
}

/// Unpacks the state at the beginning of an event's value.
fn event(packed: &[u8]) -> Option<SlotState> {
    let mut rest = Bytes(packed);
    let (until, due, generation) = (rest.number(6)?, rest.number(6)?, rest.number(4)?);
    let (crashes, flags) = (u32::try_from(rest.number(1)?).ok()?, rest.number(1)?);
    let has = |flag| flags & flag != 0;
    let later =
        if has(4) { Some(Later { at: rest.number(6)?, version: 0, generation: rest.number(4)? }) } else { None };
    let version = if has(8) { rest.number(7)? } else { 0 };
    let mark = Mark { version, finished: has(1), generation };
    Some(SlotState { mark, later, begun: has(2), crashes, cancelled: has(16), due, until, ..SlotState::default() })
}

/// Unpacks the state of a slot of a reference.
fn slot(packed: &[u8]) -> Option<SlotState> {
    let mut rest = Bytes(packed);
    let (until, due, since) = (rest.number(6)?, rest.number(6)?, rest.number(6)?);
    let (version, generation, newest) = (rest.number(7)?, rest.number(4)?, rest.number(7)?);
    let (crashes, flags) = (u32::try_from(rest.number(1)?).ok()?, rest.number(1)?);
    let has = |flag| flags & flag != 0;
    let later = if has(4) {
        Some(Later { at: rest.number(6)?, version: rest.number(7)?, generation: rest.number(4)? })
    } else {
        None
    };
    let covered = if has(8) { rest.number(7)? } else { 0 };
    let mark = Mark { version, finished: has(1), generation };
    let (begun, cancelled, overtaken) = (has(2), has(16), has(32));
    Some(SlotState { mark, newest, covered, since, later, begun, crashes, cancelled, overtaken, due, until })
}

/// Reads whole numbers, lowest byte first, and texts.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(head)
    }

    fn number(&mut self, length: usize) -> Option<i64> {
        Some(self.take(length)?.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte)))
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number(2)?).ok()?;
        std::str::from_utf8(self.take(length)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn subject(reference: Option<&str>, id: &str) -> Subject {
        Subject {
            event_type: "mail".parse().expect("a word"),
            reference: reference.map(|text| text.parse().expect("a reference")),
            id: id.to_owned(),
        }
    }

    #[test]
    fn a_uuid_takes_16_bytes_and_an_events_own_home_names_it() {
        let note = Note { stage: Stage::Waiting, attempts: 0, reason: None };
        let length =
            |subject: &Subject, slot: &DedupSlot| details(subject, slot, Timestamp::UNIX_EPOCH, &note, false).len();
        let id = "0197c2a4-8c5e-7d3a-9b1f-2e4d6c8a0b12";
        let referred = subject(Some("1234"), id);
        assert_eq!(length(&referred, &DedupSlot::Immediate), 7 + 16);
        assert_eq!(length(&referred, &DedupSlot::Event(id.to_owned())), 7 + 2 + 4);
        assert_eq!(length(&subject(None, id), &DedupSlot::Event(id.to_owned())), 7);
        assert_eq!(length(&subject(Some("1234"), &id.to_uppercase()), &DedupSlot::Immediate), 7 + 2 + 36);
    }

    #[test]
    fn truncated_details_are_no_entry() {
        let note = Note { stage: Stage::Retry, attempts: 3, reason: None };
        let subject = subject(Some("1234"), "a");
        let slot = DedupSlot::Event("b".to_owned());
        let packed = details(&subject, &slot, Timestamp::UNIX_EPOCH, &note, true);
        for length in 0..packed.len() {
            assert_eq!(entry(&subject.event_type, "i:b", "e", &packed[..length]), None, "{length}");
        }
        assert!(self::slot(&packed).is_none());
    }

    proptest! {
        #[test]
        fn details_are_read_as_they_were_written(
            (reference, id) in (prop::option::of("[a-zäß:{} ]{1,12}"), prop_oneof![".{1,20}", Just(Uuid::nil().to_string())]),
            slot in prop_oneof![
                Just(DedupSlot::Immediate), Just(DedupSlot::First), Just(DedupSlot::DatedAt(7)), ".{1,9}".prop_map(DedupSlot::Event),
            ],
            due in 0..253_402_000_000_000_i64,
            (stage, attempts) in (prop::sample::select(vec![Stage::Waiting, Stage::Retry, Stage::DeadLetter]), any::<u32>()),
            reason in prop::option::of(".{1,80}"),
            kept: bool,
        ) {
            let subject = subject(reference.as_deref(), &id);
            let due = Timestamp::from_millisecond(due).expect("in range");
            let note = Note { stage, attempts, reason };
            let packed = details(&subject, &slot, due, &note, kept);
            let home = subject.home(&slot).place();
            let field = slot.field();
            prop_assert_eq!(entry(&subject.event_type, &home, &field, &packed), Some(Entry { subject, slot, due, note }));
        }
    }
}
