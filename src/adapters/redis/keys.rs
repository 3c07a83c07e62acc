//! The names of the keys, and the shard of each subject.

use std::{borrow::Cow, collections::BTreeMap};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use xxhash_rust::xxh3::Xxh3;

use super::client::slot;
use crate::domain::{
    register::{DedupSlot, Subject, Terms},
    words::EventType,
};

/// The characters of a virtual host that are percent-encoded in a key. Otherwise a virtual host could end the hash tag,
/// divide a word of the key, or be a wildcard in an ACL rule of Redis.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Names the keys. The fields are the first parts of every key.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
    /// Percent-encoded. Keys have it because two virtual hosts may each have a topology of this name.
    virtual_host: String,
    topology: String,
    shards: u16,
    /// The first name of each renamed type, by its present name.
    first_names: BTreeMap<EventType, EventType>,
}

impl Keys {
    pub(super) fn new(prefix: &str, virtual_host: &str, topology: &str, shards: u16) -> Self {
        Self {
            prefix: prefix.to_owned(),
            virtual_host: utf8_percent_encode(virtual_host, ENCODED).to_string(),
            topology: topology.to_owned(),
            shards: shards.max(1),
            first_names: BTreeMap::new(),
        }
    }

    /// Lets renamed types keep their keys.
    pub(super) fn with_first_names(self, first_names: BTreeMap<EventType, EventType>) -> Self {
        Self { first_names, ..self }
    }

    fn first<'a>(&self, subject: &'a Subject) -> Cow<'a, Subject> {
        match self.first_names.get(&subject.event_type) {
            None => Cow::Borrowed(subject),
            Some(first) => Cow::Owned(Subject { event_type: first.clone(), ..subject.clone() }),
        }
    }

    /// Returns the shard of a subject. The reference decides, so that all events that compete are on one shard.
    pub(super) fn shard(&self, subject: &Subject) -> u16 {
        if self.shards == 1 {
            return 0;
        }
        let subject = self.first(subject);
        let mut hash = Xxh3::new();
        hash.update(subject.event_type.as_str().as_bytes());
        hash.update(&[0]);
        hash.update(subject.reference.as_ref().map_or(subject.id.as_str(), |reference| reference.as_str()).as_bytes());
        // The remainder of a division by a u16 fits into a u16.
        u16::try_from(hash.digest() % u64::from(self.shards)).unwrap_or_default()
    }

    /// Returns the hash slot of a shard, which all its keys share.
    pub(super) fn slot(&self, shard: u16) -> u16 {
        slot(&self.last(shard))
    }

    /// Returns the key of the shard's counter.
    pub(super) fn last(&self, shard: u16) -> String {
        self.base(shard) + "last"
    }

    /// Returns the beginning of all keys of a shard.
    pub(super) fn base(&self, shard: u16) -> String {
        let Self { prefix, virtual_host, topology, .. } = self;
        format!("{prefix}:{{{virtual_host}:{topology}:{shard}}}:")
    }

    /// Returns the place of a slot: the key without [`base`](Self::base).
    pub(super) fn place(&self, subject: &Subject, slot: &DedupSlot) -> String {
        self.first(subject).home(slot).to_string()
    }

    /// Returns the place of the slot `e:<id>` of an event, which competes with nothing.
    pub(super) fn own_place(&self, subject: &Subject) -> String {
        self.first(subject).own_home().to_string()
    }

    /// Returns the place with the lease that a handler of this event holds.
    pub(super) fn lease_place(&self, subject: &Subject, terms: &Terms) -> String {
        self.first(subject).leaseholder(terms).to_string()
    }

    /// Returns the name of a type in the keys.
    pub(super) fn event_type<'a>(&'a self, event_type: &'a EventType) -> &'a str {
        self.first_names.get(event_type).unwrap_or(event_type).as_str()
    }

    /// Returns the number of shards.
    pub(super) const fn shards(&self) -> u16 {
        self.shards
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::*;

    fn subject(reference: Option<&str>, id: &str) -> Subject {
        Subject {
            event_type: "mail".parse().expect("a word"),
            reference: reference.map(|text| text.parse().expect("a reference")),
            id: id.to_owned(),
        }
    }

    const fn terms(exclusive: bool) -> Terms {
        Terms { exclusive, lease: Duration::ZERO, dedup_retention: Duration::ZERO, max_wait: Duration::ZERO }
    }

    /// Returns a key as docs/register.md names it, with the words of the tests.
    fn documented(key: &str) -> String {
        const BASE: &str = "<prefix>:{<virtual host>:<topology>:<shard>}";
        let page = include_str!("../../../docs/register.md");
        for text in [key, BASE] {
            assert!(page.contains(&format!("`{text}`")), "docs/register.md has no `{text}`");
        }
        let words = [
            ("<base>", BASE),
            ("<prefix>", "hatchery"),
            ("<virtual host>", "%2F"),
            ("<topology>", "billing"),
            ("<shard>", "0"),
            ("<type>", "mail"),
            ("<reference>", "1234"),
            ("<id>", "a"),
        ];
        words.into_iter().fold(key.to_owned(), |key, (word, of_test)| key.replace(word, of_test))
    }

    #[test]
    fn keys_are_named_as_documented() {
        let keys = Keys::new("hatchery", "/", "billing", 1);
        let subject = subject(Some("1234"), "a");
        let (of_reference, of_id) = (documented("<base>:<type>:r:<reference>"), documented("<base>:<type>:i:<id>"));
        let key = |place: String| keys.base(0) + &place;
        assert_eq!(keys.last(0), documented("<base>:last"));
        for slot in [DedupSlot::Immediate, DedupSlot::DatedAt(5)] {
            assert_eq!(key(keys.place(&subject, &slot)), of_reference);
        }
        assert_eq!(key(keys.own_place(&subject)), of_id);
        assert_eq!(keys.place(&subject, &DedupSlot::Event("b".to_owned())), "mail:i:b", "the id of the slot");
        assert_eq!(key(keys.lease_place(&subject, &terms(true))), of_reference);
        assert_eq!(key(keys.lease_place(&subject, &terms(false))), of_id);
        assert_eq!(keys.event_type(&subject.event_type), "mail");
    }

    #[test]
    fn a_renamed_type_keeps_its_keys() {
        let keys = Keys::new("hatchery", "/", "billing", 7);
        let subject = subject(Some("1234"), "a");
        let word = |text: &str| text.parse().expect("a word");
        let renaming = keys.clone().with_first_names([(word("letter"), word("mail"))].into());
        let renamed = Subject { event_type: word("letter"), ..subject.clone() };
        assert_eq!(renaming.shard(&renamed), keys.shard(&subject));
        for slot in [DedupSlot::DatedAt(5), DedupSlot::Event("b".to_owned())] {
            assert_eq!(renaming.place(&renamed, &slot), keys.place(&subject, &slot));
        }
        assert_eq!(renaming.own_place(&renamed), keys.own_place(&subject));
        assert_eq!(renaming.event_type(&renamed.event_type), "mail");
        assert_eq!(renaming.lease_place(&renamed, &terms(false)), keys.lease_place(&subject, &terms(false)));
    }

    #[test]
    fn a_virtual_host_of_any_name_is_one_word_of_the_hash_tag() {
        let key = |virtual_host| Keys::new("hatchery", virtual_host, "billing", 1).last(0);
        assert_eq!(key("prod-1.eu_x~"), "hatchery:{prod-1.eu_x~:billing:0}:last");
        assert_eq!(key("a}:{b*?[ä"), "hatchery:{a%7D%3A%7Bb%2A%3F%5B%C3%A4:billing:0}:last");
        assert_ne!(key("%2F"), key("/"));
    }

    #[test]
    fn a_subject_stays_on_its_shard_and_subjects_spread_over_all() {
        let keys = Keys::new("hatchery", "/", "billing", 7);
        let shards: BTreeSet<_> = (0..200).map(|n| keys.shard(&subject(Some(&n.to_string()), "a"))).collect();
        assert_eq!(shards, (0..7).collect());
        assert_eq!(keys.shard(&subject(Some("5"), "a")), keys.shard(&subject(Some("5"), "b")));
        // The documented hash function. Changing it would be like emptying everybody's register.
        assert_eq!(u64::from(keys.shard(&subject(None, "x"))), xxhash_rust::xxh3::xxh3_64(b"mail\0x") % 7);
    }
}
