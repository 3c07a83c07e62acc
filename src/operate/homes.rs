//! The keys under which the register's index has the events of a reference or an id.

use crate::domain::{
    register::{Subject, filter::Filter, index::Find},
    spec::TypeSpec,
};

/// Events of a page.
pub(super) const PAGE: usize = 500;

/// Returns the key of a reference, or of an event by its id.
pub(super) fn homes(subject: &Subject) -> Vec<Subject> {
    let of_reference = subject.reference.is_some().then(|| subject.clone());
    let own = (!subject.id.is_empty()).then(|| Subject { reference: None, ..subject.clone() });
    of_reference.into_iter().chain(own).collect()
}

/// Returns the filter for the events of a reference that do not compete: their type does not coalesce, or they were published
/// without a version. The register keeps such an event under its id, and every other event under its reference.
pub(super) fn uncontested_of(subject: &Subject, filter: &Filter) -> Option<Find> {
    let reference = subject.reference.clone().filter(|_| subject.id.is_empty())?;
    Some(Find { uncontested_of: Some(reference), ..filter.find(subject.event_type.clone(), PAGE) })
}

/// Whether an event that is selected by its id may be under other keys. Only events that do not compete are kept
/// under their id. All others are kept under their reference, which also decides the shard, and an id does not tell
/// the reference.
pub(super) fn is_scattered(spec: &TypeSpec, subject: &Subject, shards: u16) -> bool {
    subject.id.is_empty() || shards > 1 || subject.reference.is_none() && spec.coalesce.any()
}
