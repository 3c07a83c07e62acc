//! Compares what is printed with golden files. `UPDATE_GOLDEN=1` writes them anew.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use anstream::adapter::strip_str;
use unicode_width::UnicodeWidthStr as _;

/// Fails unless a file of the repository has this text.
#[track_caller]
pub(crate) fn golden(file: &str, printed: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).expect("a folder");
        }
        fs::write(&path, printed).expect("written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == printed, "{file} is not what is printed (UPDATE_GOLDEN=1 writes it anew):\n{printed}");
}

/// Fails unless a screen is as in its golden files, on a terminal of 80 columns and on a wide one.
#[track_caller]
pub(crate) fn screens(name: &str, draw: impl Fn(usize) -> String) {
    screens_of(name, &[80, 160], draw);
}

/// Fails unless a screen fits these widths, and is as in its [`part`], which has each width that changes it, and then the first width
/// with its colours, if it has any.
#[track_caller]
pub(crate) fn screens_of(name: &str, widths: &[usize], draw: impl Fn(usize) -> String) {
    let (mut text, mut last) = (String::new(), None);
    for columns in widths {
        let plain = strip_str(&draw(*columns)).to_string();
        let long: Vec<&str> = plain.lines().filter(|line| line.width() > *columns).collect();
        assert!(long.is_empty(), "{name} has lines of more than {columns} columns: {long:#?}");
        match last {
            None => text.clone_from(&plain),
            Some(last) if last == plain => {}
            Some(_) => _ = write!(text, "\n── {columns} columns ──\n{plain}"),
        }
        last = Some(plain);
    }
    let painted = draw(widths[0]);
    if painted.contains('\u{1b}') {
        _ = write!(text, "\n── in colour ──\n{painted}");
    }
    part(name, &text);
}

/// Fails unless a part of a file of `tests/screens` has this text. `plan/drift` is the part of `plan.txt` that begins with a line of the
/// name `drift`.
#[track_caller]
pub(crate) fn part(name: &str, printed: &str) {
    static TURN: Mutex<()> = Mutex::new(());
    let (file, name) = name.split_once('/').expect("a file and its part");
    let path = tests().join("screens").join(file).with_extension("txt");
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let text = fs::read_to_string(&path).unwrap_or_default();
    let mut parts = parts(&text);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        parts.insert(name, printed);
        let parts: Vec<String> = parts.iter().map(|(name, text)| format!("══ {name} ══\n{text}")).collect();
        return fs::write(&path, parts.concat()).expect("written");
    }
    let is_same = parts.get(name) == Some(&printed);
    assert!(is_same, "{file}/{name} is not what is printed (UPDATE_GOLDEN=1 writes it anew):\n{printed}");
}

/// Returns the parts of a file of screens by name.
fn parts(text: &str) -> BTreeMap<&str, &str> {
    text.split("══ ").filter_map(|part| part.split_once(" ══\n")).collect()
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests")
}

/// A golden file that no test compares with would stay for ever.
#[test]
fn every_golden_file_is_named_in_a_test() {
    let mut sources = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    while let Some(folder) = folders.pop() {
        for path in entries(&folder) {
            if path.is_dir() {
                folders.push(path);
            } else {
                sources.push(fs::read_to_string(&path).expect("a source"));
            }
        }
    }
    let (mut stale, mut names) = (Vec::new(), Vec::new());
    for folder in entries(&tests()) {
        let name = stem(&folder);
        match name.as_str() {
            "api" | "integration" | "invalid" | "page" | "released" | "support" => {}
            "screens" => {
                for path in entries(&folder) {
                    let text = fs::read_to_string(&path).expect("screens");
                    names.extend(parts(&text).keys().map(|part| (stem(&path), (*part).to_owned())));
                }
            }
            _ => names.extend(entries(&folder).iter().map(|path| (name.clone(), stem(path)))),
        }
    }
    for (folder, name) in names {
        let whole = [format!("{folder}/{name}\""), format!("{folder}/{name}.")];
        // The name of a case, which a test puts behind the folder.
        let parts = [format!("{folder}/{{"), format!("\"{name}\"")];
        let is_named = |source: &String| {
            whole.iter().any(|text| source.contains(text)) || parts.iter().all(|text| source.contains(text))
        };
        if !sources.iter().any(is_named) {
            stale.push(format!("{folder}/{name}"));
        }
    }
    assert!(stale.is_empty(), "golden files of no test: {stale:#?}");
}

fn stem(path: &Path) -> String {
    path.file_stem().and_then(OsStr::to_str).expect("a name").to_owned()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
}
