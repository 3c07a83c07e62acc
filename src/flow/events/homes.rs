//! The places in which the index has the events of a subject.

use crate::domain::{
    register::{Subject, index::Find, search::Filter},
    spec::TypeSpec,
};

/// Events of a page.
pub(super) const PAGE: usize = 500;

/// Where the register has what is known of a reference, or of an event by its id.
pub(super) fn homes(subject: &Subject) -> Vec<Subject> {
    let of_reference = subject.reference.is_some().then(|| subject.clone());
    let own = (!subject.id.is_empty()).then(|| Subject { reference: None, ..subject.clone() });
    of_reference.into_iter().chain(own).collect()
}

/// The search for the events of a reference that compete with nothing, because their type says so or because they were published without
/// a version. Such an event is kept with its id, and every other event with its reference.
pub(super) fn alone_of(subject: &Subject, filter: &Filter) -> Option<Find> {
    let reference = subject.reference.clone().filter(|_| subject.id.is_empty())?;
    Some(Find { alone_of: Some(reference), ..filter.find(subject.event_type.clone(), PAGE) })
}

/// Whether an event by its id may be in other places than its own: what competes with nothing is kept with its id, all else with
/// its reference. Which shard an event is in is told by its reference, which an id does not tell.
pub(super) fn is_scattered(spec: &TypeSpec, subject: &Subject, shards: u16) -> bool {
    subject.id.is_empty() || shards > 1 || subject.reference.is_none() && spec.coalesce.any()
}
