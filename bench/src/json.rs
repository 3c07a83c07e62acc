//! Writes every round to a file.

use std::{fs, path::Path};

use anyhow::Context as _;
use serde::Serialize;

use crate::{args::Args, peers, rounds::Results, surroundings::About};

#[derive(Serialize)]
struct File<'a> {
    about: &'a About,
    bytes: usize,
    prefetch: u16,
    concurrency: u16,
    cases: &'a [Results],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    peers: &'a [peers::Results],
}

pub(crate) fn write(
    file: &Path,
    args: &Args,
    about: &About,
    cases: &[Results],
    peers: &[peers::Results],
) -> anyhow::Result<()> {
    let Args { bytes, prefetch, concurrency, .. } = *args;
    let content = File { about, bytes, prefetch, concurrency, cases, peers };
    let text = serde_json::to_string_pretty(&content)?;
    fs::write(file, text + "\n").with_context(|| format!("cannot write {}", file.display()))
}
