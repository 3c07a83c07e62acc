//! Finds circles: groups of files, or of folders, of which each reaches every other one by imports.

use std::{fmt::Write as _, path::Path};

use petgraph::{
    algo::{astar, tarjan_scc},
    graphmap::DiGraphMap,
};

use crate::imports::Imports;

/// A group of files or folders that import each other. `shortest` has the imports of the shortest circle among them.
#[derive(Debug, PartialEq)]
pub(crate) struct Circle {
    members: usize,
    shortest: Imports,
}

impl Circle {
    /// Formats the circle for printing, with file paths relative to `root`.
    pub(crate) fn seen_from(&self, root: &Path) -> String {
        let Self { members, shortest } = self;
        let which = if shortest.len() < *members { ", the shortest circle among them is" } else { "" };
        let what = if shortest.keys().all(|(from, _)| from.is_dir()) { "folders" } else { "files" };
        let mut text = format!("{members} {what} import each other{which}:\n");
        for ((from, to), names) in shortest {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let _ = writeln!(text, "  {} -> {}: {}", shown(from, root), shown(to, root), names.join(", "));
        }
        text
    }
}

/// Groups the files of which each reaches every other one.
pub(crate) fn circles(imports: &Imports) -> Vec<Circle> {
    let graph: DiGraphMap<&Path, ()> = imports.keys().map(|(from, to)| (from.as_path(), to.as_path())).collect();
    let groups = tarjan_scc(&graph).into_iter().filter(|files| files.len() > 1);
    groups.map(|files| Circle { members: files.len(), shortest: shortest(&graph, &files, imports) }).collect()
}

fn shortest(graph: &DiGraphMap<&Path, ()>, files: &[&Path], imports: &Imports) -> Imports {
    let back = |(from, to, &()): (_, _, _)| astar(graph, to, |file| file == from, |_| 1_usize, |_| 0);
    let ways = files.iter().flat_map(|file| graph.edges(file)).filter_map(back);
    let (_, way) = ways.min().unwrap_or_default();
    let ties = way.iter().zip(way.iter().cycle().skip(1));
    ties.filter_map(|(from, to)| imports.get_key_value(&(from.to_path_buf(), to.to_path_buf())))
        .map(|(tie, names)| (tie.clone(), names.clone()))
        .collect()
}

/// Formats a file's path relative to the root of the workspace.
fn shown<'a>(file: &'a Path, root: &Path) -> std::path::Display<'a> {
    file.strip_prefix(root).unwrap_or(file).display()
}
