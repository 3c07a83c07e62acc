//! Reads the sample file, and derives from each line the state in which its event must end.

use std::{collections::BTreeMap, path::Path, time::Duration};

use anyhow::{Context as _, bail, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use hatchery::parse_duration;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account::{Fate, Published};

/// An event with a longer delay still waits when the demo ends.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// One line of the sample.
pub(crate) struct Line {
    pub(crate) text: String,
    /// The event that the account expects; `None` for a line that must be refused. Its id is set when the publisher has
    /// answered.
    pub(crate) event: Option<Published>,
}

/// The lines by number, from 1.
pub(crate) struct Sample(pub(crate) BTreeMap<u64, Line>);

impl Sample {
    pub(crate) fn read(path: &Path, now: Timestamp) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut lines = BTreeMap::new();
        for (number, text) in (1..).zip(text.lines()) {
            let line = Line { text: text.to_owned(), event: event(number, text, now)? };
            lines.insert(number, line);
        }
        Ok(Self(lines))
    }

    /// Returns the confirmed events in the order of the lines, with the ids that the publisher answered. Fails unless
    /// the lines without an id are exactly the bad ones.
    pub(crate) fn confirmed(&self, mut ids: BTreeMap<u64, String>) -> anyhow::Result<Vec<Published>> {
        let mut confirmed = Vec::new();
        for (number, line) in &self.0 {
            match (&line.event, ids.remove(number)) {
                (Some(event), Some(id)) => confirmed.push(Published { id, ..event.clone() }),
                (None, None) => {}
                (Some(_), None) => bail!("line {number} was not published: {}", line.text),
                (None, Some(_)) => bail!("line {number} was published, although it is bad: {}", line.text),
            }
        }
        ensure!(ids.is_empty(), "answers to lines that the sample does not have: {ids:?}");
        Ok(confirmed)
    }

    /// Returns the texts of the bad lines.
    pub(crate) fn bad(&self) -> Vec<&str> {
        self.0.values().filter(|line| line.event.is_none()).map(|line| line.text.as_str()).collect()
    }
}

/// The fields of a line that the account needs.
#[derive(Deserialize)]
struct Fields {
    r#type: String,
    reference: Option<String>,
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
    delay: Option<String>,
    nbf: Option<Timestamp>,
}

/// Returns the expected event of a line, or `None` for a bad line, which has `bad` somewhere in its text.
fn event(number: u64, text: &str, now: Timestamp) -> anyhow::Result<Option<Published>> {
    if text.contains("bad") {
        return Ok(None);
    }
    let fields: Fields = serde_json::from_str(text).with_context(|| format!("line {number} of the sample"))?;
    let payload = match (fields.payload, fields.payload_base64) {
        (Some(json), _) => json.get().as_bytes().to_vec(),
        (None, Some(base64)) => BASE64_STANDARD.decode(base64)?,
        (None, None) => Vec::new(),
    };
    let delay = fields.delay.as_deref().map(parse_duration).transpose()?;
    let wait = delay.or_else(|| fields.nbf.map(|nbf| hatchery::internals::time::until(now, nbf))).unwrap_or_default();
    let employee = fields.reference.unwrap_or_else(|| "-".to_owned());
    let label = format!("line {number}, {} {employee}", fields.r#type);
    // As topology.yaml sets it: of an employee's events only the newest runs, among those for now and among those for
    // one date. A delay counts from the moment when its line is published, so no two delays give the same date. Mails
    // and events without a reference all run.
    let slot = match (fields.r#type.as_str(), employee.as_str(), delay, fields.nbf) {
        ("hr-import", "-", _, _) => None,
        ("hr-import", employee, None, None) => Some(employee.to_owned()),
        ("hr-import", employee, Some(_), _) => Some(format!("{employee} from line {number}")),
        ("hr-import", employee, None, Some(nbf)) => Some(format!("{employee} on {nbf}")),
        _ => None,
    };
    let fate = if wait > SOON { Fate::Waiting } else { fate(&payload) };
    let checksum = cksum(&payload);
    Ok(Some(Published { id: String::new(), label, slot, fate, checksum, raw: false, poison: false }))
}

/// Returns the fate that the payload asks for. `handler.sh` reads the same words.
fn fate(payload: &[u8]) -> Fate {
    let text = String::from_utf8_lossy(payload);
    let never = [r#""fail":"always""#, r#""fail":"invalid""#].iter().any(|word| text.contains(word));
    if never { Fate::DeadLettered } else { Fate::Handled }
}

/// Returns the checksum that POSIX's `cksum` prints.
pub(crate) fn cksum(bytes: &[u8]) -> u32 {
    let length = bytes.len().to_le_bytes();
    let significant = length.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let byte = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ (u32::from(*byte) << 24), |crc, _| {
            (crc << 1) ^ if crc & 0x8000_0000 == 0 { 0 } else { 0x04C1_1DB7 }
        })
    };
    !bytes.iter().chain(&length[..significant]).fold(0, byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_equals_that_of_the_program_cksum() {
        assert_eq!([b"".as_slice(), b"abc", b"abc\n"].map(cksum), [4_294_967_295, 1_219_131_554, 1_112_837_078]);
    }

    #[test]
    fn the_sample_has_enough_events_of_each_fate() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("events.ndjson");
        let sample = Sample::read(&path, Timestamp::now()).expect("readable");
        let events: Vec<&Published> = sample.0.values().filter_map(|line| line.event.as_ref()).collect();
        assert!(events.len() > 300 && sample.bad().len() > 4);
        for fate in [Fate::Handled, Fate::DeadLettered, Fate::Waiting] {
            assert!(events.iter().filter(|event| event.fate == fate).count() >= 10, "{fate:?}");
        }
        let mut slots: BTreeMap<&str, usize> = BTreeMap::new();
        for event in &events {
            *slots.entry(event.slot.as_deref().unwrap_or_default()).or_default() += 1;
        }
        assert!(slots.iter().filter(|(slot, count)| !slot.is_empty() && **count > 1).count() > 10);
    }
}
