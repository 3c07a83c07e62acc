//! Reads the file from the disk.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::{error::FileError, read::read, yaml::MOST_BYTES};
use crate::domain::spec::Topology;

/// Why `topology.yaml` could not be read.
///
/// ```
/// use hatchery::ReadError;
///
/// let missing = hatchery::read_file("/nonexistent/topology.yaml").expect_err("no such file");
/// assert_eq!(missing.to_string(), "cannot read /nonexistent/topology.yaml");
/// // The cause is the error's source, which `anyhow` shows with `{:#}`.
/// let ReadError::Io { source, .. } = missing else { panic!("the file cannot be read") };
/// assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file could not be read.
    #[error("cannot read {path}")]
    Io {
        /// The path of the file.
        path: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The file is not UTF-8.
    #[error("{path} is not text: byte {at} is not UTF-8")]
    NotText {
        /// The path of the file.
        path: String,
        /// The position of the first byte that is not UTF-8.
        at: usize,
    },
    /// The file is not a valid topology.
    #[error(transparent)]
    Content(#[from] FileError),
}

/// Reads and checks a `topology.yaml`.
///
/// A relative path starts at the working directory of the process. Nothing is connected. To compile the file into the
/// program, use `include_str!` with [`file::read`](super::read).
///
/// # Errors
/// If the file cannot be read, or is not a valid topology.
///
/// ```
/// let topology = hatchery::read_file("topology.yaml")?;
/// assert_eq!(topology.name.as_str(), "billing");
/// assert!(topology.types.contains_key("hr-import"));
/// # Ok::<(), hatchery::ReadError>(())
/// ```
pub fn read_file(path: impl AsRef<Path>) -> Result<Topology, ReadError> {
    let name = path.as_ref().display().to_string();
    Ok(read(&read_text(path)?, &name)?)
}

/// Reads the text of a `topology.yaml`. Of a file above the size limit, only the beginning is read.
///
/// # Errors
/// If the file cannot be read, or is not UTF-8.
pub fn read_text(path: impl AsRef<Path>) -> Result<String, ReadError> {
    let name = path.as_ref().display().to_string();
    let mut bytes = Vec::new();
    // One byte above the limit is enough to refuse the file. A device or a pipe may have no end.
    let most = MOST_BYTES as u64 + 1;
    let read_all = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read_all.map_err(|source| ReadError::Io { path: name.clone(), source })?;
    if bytes.len() > MOST_BYTES {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| ReadError::NotText { path: name, at: error.utf8_error().valid_up_to() })
}
