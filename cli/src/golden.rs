//! Compares what is printed with golden files. `UPDATE_GOLDEN=1` writes them anew.

use std::{fs, path::Path};

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
