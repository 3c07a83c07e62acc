//! Saves a plan to a file, so that somebody can review it and `apply` carries it out later, or refuses it as stale.

use std::{fs, path::Path};

use hatchery::{
    FileError, Topology,
    internals::{bounded_file, words::unless_url},
};
use hatchery_admin::{Asked, LeftoverTypes, live::Observed, plan::Plan};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    besides::Besides,
    plan_document::{FORMAT_VERSION, Source, digest, document, hex},
};

/// A limit that no plan reaches, in MiB: a hundred bytes for each object of a topology of a thousand types are 2 MB.
const MOST_MEBIBYTES: u32 = 64;

/// A plan, with the file that it was made from.
#[derive(Serialize, Deserialize)]
pub(crate) struct PlanFile {
    format_version: u32,
    /// The path that the topology was read from, for messages.
    pub(crate) file: String,
    /// The topology's own text.
    pub(crate) topology: String,
    pub(crate) asked: Asked,
    pub(crate) digests: Digests,
    /// The plan as a JSON document, for people and programs that review it; `apply` does not read it.
    plan: Value,
}

/// The digests by which a stale plan is recognised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digests {
    /// Digest of the topology's text.
    pub(crate) topology: String,
    /// Digest of all changes.
    pub(crate) changes: String,
}

/// The reason why a file cannot be used as a plan.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlanFileError {
    #[error("cannot read the plan {path}: {reason}")]
    Unreadable { path: String, reason: String },
    #[error("{path} is no plan: {reason}; `topology plan --out {path}` writes one")]
    NoPlan { path: String, reason: String },
    #[error("{path} has format version {found}, and this topology reads {FORMAT_VERSION}; plan again")]
    Version { path: String, found: u32 },
    #[error("the topology in the plan was changed by hand; plan again")]
    Tampered,
    #[error("the topology in the plan is not valid: {}", crate::drawing::draw(.0, false, usize::MAX))]
    Topology(FileError),
}

impl PlanFile {
    pub(crate) fn new(
        plan: &Plan,
        observed: &Observed,
        source: &Source,
        text: &str,
        left: &LeftoverTypes,
        besides: &Besides,
        asked: Asked,
    ) -> serde_json::Result<Self> {
        Ok(Self {
            format_version: FORMAT_VERSION,
            file: source.file.clone(),
            topology: text.to_owned(),
            asked,
            digests: Digests { topology: hex(text.as_bytes()), changes: digest(plan) },
            plan: serde_json::to_value(document(plan, observed, source, left, besides, asked))?,
        })
    }

    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        let written = fs::write(path, text);
        written.map_err(|error| anyhow::anyhow!("cannot write the plan to {}: {error}", path.display()))
    }

    pub(crate) fn read(path: &Path) -> Result<Self, PlanFileError> {
        let shown = || path.display().to_string();
        let unreadable = |reason: String| PlanFileError::Unreadable { path: shown(), reason };
        let text = bounded_file::read_text(path, MOST_MEBIBYTES).map_err(|error| unreadable(error.to_string()))?;
        let no_plan = |error: serde_json::Error| {
            let reason = unless_url(&error.to_string()).to_owned();
            PlanFileError::NoPlan { path: shown(), reason }
        };
        let document: Value = serde_json::from_str(&text).map_err(no_plan)?;
        // Checked before the other fields are read, because another version may have different ones.
        let found = document.get("format_version").and_then(Value::as_u64).and_then(|found| u32::try_from(found).ok());
        match found {
            Some(found) if found != FORMAT_VERSION => return Err(PlanFileError::Version { path: shown(), found }),
            _ => {}
        }
        let plan: Self = serde_json::from_value(document).map_err(no_plan)?;
        if plan.digests.topology != hex(plan.topology.as_bytes()) {
            return Err(PlanFileError::Tampered);
        }
        Ok(plan)
    }

    /// Parses the topology that was planned.
    pub(crate) fn read_topology(&self) -> Result<Topology, PlanFileError> {
        hatchery::file::read(&self.topology, &self.file).map_err(PlanFileError::Topology)
    }
}
