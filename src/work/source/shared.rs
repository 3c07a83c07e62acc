//! One source in a worker.

use std::sync::Arc;

use crate::{
    domain::{source::SourceSpec, words::Word},
    publish::{published::PublishError, publisher::Publisher},
    work::{counters::SourceCounters, lane::Common, readiness::TypeReadiness, switches::Switch},
};

/// One source in a worker.
pub(in crate::work) struct Source {
    pub(in crate::work) common: Arc<Common>,
    pub(in crate::work) name: Word,
    pub(in crate::work) spec: SourceSpec,
    pub(in crate::work) publisher: Publisher,
    pub(in crate::work) counters: SourceCounters,
    pub(in crate::work) readiness: TypeReadiness,
    pub(in crate::work) switch: Switch,
}

/// A message is not acknowledged, because what it becomes was not confirmed.
pub(super) struct Unconfirmed(pub(super) PublishError);
