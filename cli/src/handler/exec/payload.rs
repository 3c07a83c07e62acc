//! The payload as a program's standard input.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    process::Stdio,
};

/// The payload as a file that is all there before the program starts. A pipe would end early if this process were
/// killed while it feeds it, and the program, which outlives it, would take what it got for the whole.
pub(super) fn whole(payload: &[u8]) -> io::Result<Stdio> {
    let mut file = nameless()?;
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file.into())
}

/// A file in memory.
#[cfg(target_os = "linux")]
fn nameless() -> io::Result<File> {
    let file = rustix::fs::memfd_create("payload", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(File::from(file))
}

/// A file that is removed before anything is in it.
#[cfg(not(target_os = "linux"))]
fn nameless() -> io::Result<File> {
    let path = std::env::temp_dir().join(uuid::Uuid::now_v7().to_string());
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}
