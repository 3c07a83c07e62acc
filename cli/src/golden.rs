//! Compares what is printed with golden files. `UPDATE_GOLDEN=1` writes them anew.

use std::{fs, path::Path};

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

/// Fails unless a screen is as in `tests/<name>-<columns>.txt`, with colours as in `….ansi`, and fits its columns.
#[track_caller]
pub(crate) fn screen(name: &str, columns: usize, painted: &str) {
    let plain = strip_str(painted).to_string();
    let long: Vec<&str> = plain.lines().filter(|line| line.width() > columns).collect();
    assert!(long.is_empty(), "{name} has lines of more than {columns} columns: {long:#?}");
    golden(&format!("tests/{name}-{columns}.txt"), &plain);
    golden(&format!("tests/{name}-{columns}.ansi"), painted);
}

/// Fails unless a screen is as in its golden files, on a terminal of 80 columns and on a wide one.
#[track_caller]
pub(crate) fn screens(name: &str, draw: impl Fn(usize) -> String) {
    screen(name, 80, &draw(80));
    screen(name, 160, &draw(160));
}
