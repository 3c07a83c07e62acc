//! Fails if files or folders of one crate import each other in a circle, and prints these and the imported names.
//!
//! - [`tree`] reads the files of a crate into a tree of modules, with the paths that each module uses.
//! - [`mod@imports`] finds the file that defines each of these paths.
//! - [`circle`] finds the circles.

mod circle;
mod imports;
mod tree;

use std::{
    collections::BTreeSet,
    path::PathBuf,
    process::{Command, ExitCode},
};

use anyhow::{Context, ensure};
use serde::Deserialize;

use crate::{
    circle::circles,
    imports::{between_folders, imports},
    tree::Tree,
};

fn main() -> anyhow::Result<ExitCode> {
    let circles = of_workspace()?;
    for circle in &circles {
        anstream::println!("{circle}");
    }
    anstream::println!("circles of files and folders: {}", circles.len());
    Ok(if circles.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns the circles of all crates of the workspace, formatted for printing.
fn of_workspace() -> anyhow::Result<BTreeSet<String>> {
    let workspace = workspace()?;
    let mut found = BTreeSet::new();
    for target in workspace.packages.iter().flat_map(|package| &package.targets) {
        let imports = imports(&Tree::read(&target.src_path)?);
        for imports in [between_folders(&imports), imports] {
            found.extend(circles(&imports).iter().map(|circle| circle.seen_from(&workspace.workspace_root)));
        }
    }
    Ok(found)
}

/// The part of the output of `cargo metadata` that is needed here.
#[derive(Deserialize)]
struct Workspace {
    packages: Vec<Package>,
    workspace_root: PathBuf,
}

#[derive(Deserialize)]
struct Package {
    targets: Vec<Target>,
}

/// A crate: a library, a command, an example, a test or a benchmark.
#[derive(Deserialize)]
struct Target {
    src_path: PathBuf,
}

fn workspace() -> anyhow::Result<Workspace> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .output()
        .context("cargo metadata does not run")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).context("cargo metadata printed unexpected JSON")
}

#[cfg(test)]
mod tests;
