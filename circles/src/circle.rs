//! Circles: files of which each reaches every other one by imports.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
};

use petgraph::{algo::tarjan_scc, graphmap::DiGraphMap};

use crate::imports::Imports;

/// The imports among the files of one circle, with the imported names.
#[derive(Debug, PartialEq)]
pub(crate) struct Circle(BTreeMap<(PathBuf, PathBuf), BTreeSet<String>>);

impl Circle {
    /// The circle as it is printed: each import, with the paths of its two files from `root`.
    pub(crate) fn seen_from(&self, root: &Path) -> String {
        let files: BTreeSet<&PathBuf> = self.0.keys().map(|(from, _)| from).collect();
        let mut text = format!("{} files import each other:\n", files.len());
        for ((from, to), names) in &self.0 {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let _ = writeln!(text, "  {} -> {}: {}", shown(from, root), shown(to, root), names.join(", "));
        }
        text
    }
}

/// Groups the files of which each reaches every other one.
pub(crate) fn circles(imports: &Imports) -> Vec<Circle> {
    let graph: DiGraphMap<&Path, ()> = imports.keys().map(|(from, to)| (from.as_path(), to.as_path())).collect();
    let mut circles: Vec<Circle> = tarjan_scc(&graph)
        .into_iter()
        .filter(|files| files.len() > 1)
        .map(|files| {
            let inside = |file: &PathBuf| files.contains(&file.as_path());
            let ties = imports.iter().filter(|((from, to), _)| inside(from) && inside(to));
            Circle(ties.map(|(tie, names)| (tie.clone(), names.clone())).collect())
        })
        .collect();
    circles.sort_by(|a, b| a.0.keys().cmp(b.0.keys()));
    circles
}

/// `file` as seen from the root of the workspace.
fn shown<'a>(file: &'a Path, root: &Path) -> std::path::Display<'a> {
    file.strip_prefix(root).unwrap_or(file).display()
}
