//! Finds the imports between the files of a crate. Each path is followed to the file that defines its last name.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use crate::tree::{Definition, Id, ROOT, Tree};

/// For each pair of files, the names that the first file imports from the second.
pub(crate) type Imports = BTreeMap<(PathBuf, PathBuf), BTreeSet<String>>;

/// The most imports that are followed for one name. Without a limit, re-exports that lead to each other would never
/// end.
const MOST_STEPS: usize = 32;

/// Collects the imports. A re-export is followed to the definition, so a file that only re-exports a name is not part
/// of the import. The import of a module alone does not count; the names that are used from it do.
pub(crate) fn imports(tree: &Tree) -> Imports {
    let mut imports = Imports::new();
    for (id, module) in tree.modules.iter().enumerate() {
        for path in &module.paths {
            for (file, name) in definitions(tree, id, path) {
                if file != module.file {
                    imports.entry((module.file.clone(), file)).or_default().insert(name);
                }
            }
        }
    }
    imports
}

/// Returns the imports between folders: of two files, those folders whose parent is the same. A file `a.rs` belongs to its folder
/// `a`, and files without a folder are left out.
pub(crate) fn between_folders(imports: &Imports) -> Imports {
    let mut folders = Imports::new();
    for ((from, to), names) in imports {
        let mut common = PathBuf::new();
        let parted = from.components().zip(to.components()).find(|(from, to)| {
            let is_common = from == to;
            if is_common {
                common.push(from);
            }
            !is_common
        });
        let Some((from, to)) = parted else { continue };
        let [from, to] = [from, to].map(|part| common.join(part).with_extension(""));
        if from != to && from.is_dir() && to.is_dir() {
            folders.entry((from, to)).or_default().extend(names.iter().cloned());
        }
    }
    folders
}

/// Returns the files that define `path` as the module `from` sees it, with the name there. Returns nothing for a name
/// of another crate.
fn definitions(tree: &Tree, from: Id, path: &[String]) -> Vec<(PathBuf, String)> {
    let mut found = follow(tree, from, path, MOST_STEPS);
    if found.is_empty() {
        // No item has the name, so a macro has generated it in the module that the path leads to.
        found = generated(tree, from, path);
    }
    let items = found.into_iter().filter_map(|place| match place {
        Place::Item(module, name) => Some((tree.modules[module].file.clone(), name)),
        Place::Module(_) | Place::OtherCrate => None,
    });
    items.collect()
}

enum Place {
    Module(Id),
    Item(Id, String),
    OtherCrate,
}

fn follow(tree: &Tree, from: Id, path: &[String], steps: usize) -> Vec<Place> {
    let Some((first, rest)) = path.split_first() else { return vec![Place::Module(from)] };
    let Some(steps) = steps.checked_sub(1) else { return Vec::new() };
    let module = &tree.modules[from];
    match first.as_str() {
        "crate" => return follow(tree, ROOT, rest, steps),
        "self" => return follow(tree, from, rest, steps),
        "super" => return module.parent.map_or_else(Vec::new, |parent| follow(tree, parent, rest, steps)),
        _ => {}
    }
    let behind = |import: &[String]| follow(tree, from, &[import, rest].concat(), steps);
    let Some(definitions) = module.defines.get(first) else {
        let through = |glob: &Vec<String>| behind(&[glob.as_slice(), std::slice::from_ref(first)].concat());
        return module.globs.iter().flat_map(through).collect();
    };
    let mut found = Vec::new();
    for definition in definitions {
        match definition {
            Definition::Module(child) => found.extend(follow(tree, *child, rest, steps)),
            Definition::Item => found.push(Place::Item(from, first.clone())),
            Definition::Import(import) => {
                let imported = behind(import);
                if imported.is_empty() {
                    found.push(Place::OtherCrate);
                }
                found.extend(imported);
            }
        }
    }
    found
}

/// Returns the longest prefix of `path` that is a module, with the name after it.
fn generated(tree: &Tree, from: Id, path: &[String]) -> Vec<Place> {
    for end in (1..path.len()).rev() {
        let modules = follow(tree, from, &path[..end], MOST_STEPS).into_iter().filter_map(|place| match place {
            Place::Module(module) => Some(Place::Item(module, path[end].clone())),
            Place::Item(..) | Place::OtherCrate => None,
        });
        let modules: Vec<Place> = modules.collect();
        if !modules.is_empty() {
            return modules;
        }
    }
    Vec::new()
}
