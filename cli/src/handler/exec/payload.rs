//! The payload as the standard input of a program.

use std::{
    fs::File,
    io::{self, Seek as _, Write as _},
    process::Stdio,
};

/// Returns the payload as a file that is complete before the program starts. With a pipe, the program would see an
/// early end if this process were killed while it writes: the program outlives it, and would take the part for the
/// whole.
pub(super) fn whole(payload: &[u8]) -> io::Result<Stdio> {
    let mut file = nameless()?;
    file.write_all(payload)?;
    file.rewind()?;
    Ok(file.into())
}

/// Creates a file in memory.
#[cfg(target_os = "linux")]
fn nameless() -> io::Result<File> {
    let file = rustix::fs::memfd_create("payload", rustix::fs::MemfdFlags::CLOEXEC)?;
    Ok(File::from(file))
}

/// Creates a temporary file, which is removed before anything is written to it.
#[cfg(not(target_os = "linux"))]
fn nameless() -> io::Result<File> {
    let path = std::env::temp_dir().join(uuid::Uuid::now_v7().to_string());
    let file = File::options().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}
