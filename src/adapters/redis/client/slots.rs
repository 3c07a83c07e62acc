//! Hash slots: the slot of a key, and the nodes that serve each slot.

use redis::{FromRedisValue, ParsingError, Value, from_redis_value};

use super::address::Host;

const SLOTS: u16 = 16384;

/// Returns the hash slot of a key: that of the text between its first braces (the hash tag), or else of the whole key.
pub(in crate::adapters::redis) fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes()) % SLOTS
}

/// CRC-16/XMODEM.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(
            crc ^ (u16::from(*byte) << 8),
            |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 },
        )
    })
}

/// The nodes that serve each slot, according to one node.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Slots {
    /// First slot, last slot, the master.
    masters: Vec<(u16, u16, Host)>,
    /// Masters and replicas.
    pub(super) nodes: Vec<Host>,
}

impl Slots {
    /// Parses the answer to `CLUSTER SLOTS`. A node that does not know its own host has the host at which it was asked.
    pub(super) fn read(answer: Vec<Vec<Value>>, asked: &str) -> Result<Self, ParsingError> {
        let mut slots = Self::default();
        for range in answer {
            let mut range = range.into_iter();
            let mut bound = || from_redis_value(range.next().unwrap_or(Value::Nil));
            let (first, last) = (bound()?, bound()?);
            for (n, node) in range.enumerate() {
                let node: Vec<Value> = from_redis_value(node)?;
                let mut node = node.into_iter();
                let mut part = || node.next().unwrap_or(Value::Nil);
                let host: Option<String> = from_redis_value(part())?;
                let host = (
                    host.filter(|host| !host.is_empty()).unwrap_or_else(|| asked.to_owned()),
                    u16::from_redis_value(part())?,
                );
                // The node is set to announce its host name, and has none yet.
                if host.0 == "?" {
                    continue;
                }
                if n == 0 {
                    slots.masters.push((first, last, host.clone()));
                }
                if !slots.nodes.contains(&host) {
                    slots.nodes.push(host);
                }
            }
        }
        Ok(slots)
    }

    /// Whether any slot has a master.
    pub(super) fn are_served(&self) -> bool {
        !self.masters.is_empty()
    }

    pub(super) fn master(&self, slot: u16) -> Option<&Host> {
        self.masters.iter().find(|(first, last, _)| (*first..=*last).contains(&slot)).map(|(_, _, master)| master)
    }
}

/// Parses the host in a redirection. A redirection without a host name means the host of the node that sent it.
pub(super) fn redirected(to: &str, by: &str) -> Option<Host> {
    let (host, port) = to.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((if host.is_empty() { by.to_owned() } else { host.to_owned() }, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("123456789", 0x31c3)]
    // As CLUSTER KEYSLOT says.
    #[case("hatchery:{billing:0}:last", 6_055)]
    #[case("billing:0", 6_055)]
    #[case("a{}b{c}", 7_353)]
    fn a_key_has_the_slot_of_its_hash_tag(#[case] key: &str, #[case] expected: u16) {
        assert_eq!(slot(key), expected);
    }

    #[rstest]
    #[case("10.0.0.1:7000", Some(("10.0.0.1", 7000)))]
    #[case(":7000", Some(("asked", 7000)))]
    #[case("::1:7000", Some(("::1", 7000)))]
    #[case("nonsense", None)]
    fn a_redirection_leads_to_a_host(#[case] to: &str, #[case] expected: Option<(&str, u16)>) {
        assert_eq!(redirected(to, "asked"), expected.map(|(host, port)| (host.to_owned(), port)));
    }

    #[test]
    fn the_masters_are_read_from_the_answer() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(vec![])]);
        let answer = vec![
            vec![Value::Int(0), Value::Int(99), node(text("a"), 1), node(text("b"), 2)],
            vec![Value::Int(100), Value::Int(199), node(Value::Nil, 3), node(text("?"), 4)],
        ];
        let slots = Slots::read(answer, "asked").expect("an answer");
        assert_eq!(slots.master(99), Some(&("a".to_owned(), 1)));
        assert_eq!(slots.master(100), Some(&("asked".to_owned(), 3)));
        assert_eq!(slots.master(200), None);
        assert_eq!(slots.nodes.len(), 3);
        assert!(slots.are_served());
        assert!(!Slots::read(vec![], "asked").expect("an answer").are_served());
        assert!(Slots::read(vec![vec![text("x")]], "asked").is_err());
    }
}
