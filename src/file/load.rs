//! From the disk.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::{error::FileError, read::read, yaml::MOST_BYTES};
use crate::domain::spec::Topology;

/// Why a file gave no topology.
///
/// ```
/// use hatchery::ReadError;
///
/// let missing = hatchery::read_file("/nonexistent/topology.yaml").expect_err("no such file");
/// assert_eq!(missing.to_string(), "cannot read /nonexistent/topology.yaml");
/// // Why is one level below, as `anyhow` shows it with `{:#}`.
/// let ReadError::Io { source, .. } = missing else { panic!("it was not read") };
/// assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// It could not be read at all.
    #[error("cannot read {path}")]
    Io {
        /// Which file.
        path: String,
        /// What is wrong.
        source: io::Error,
    },
    /// It is not UTF-8.
    #[error("{path} is not text: byte {at} is not UTF-8")]
    NotText {
        /// Which file.
        path: String,
        /// The first byte that is none.
        at: usize,
    },
    /// It describes no topology; this says where and why.
    #[error(transparent)]
    Content(#[from] FileError),
}

/// Reads and checks a `topology.yaml`.
///
/// A relative path is one from the process' working directory. Nothing is connected to. Who had rather have the file in
/// the program reads it by [`file::read`](super::read) and `include_str!`.
///
/// # Errors
/// When it cannot be read, or describes no topology.
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

/// Reads the text of a `topology.yaml`; of one that is too large to be one, only its beginning.
///
/// # Errors
/// When it cannot be read, or is no text.
pub fn read_text(path: impl AsRef<Path>) -> Result<String, ReadError> {
    let name = path.as_ref().display().to_string();
    let mut bytes = Vec::new();
    // A byte more than is allowed is enough to refuse it: a device or a pipe may have no end.
    let most = MOST_BYTES as u64 + 1;
    let read_all = File::open(path).and_then(|file| file.take(most).read_to_end(&mut bytes));
    read_all.map_err(|source| ReadError::Io { path: name.clone(), source })?;
    if bytes.len() > MOST_BYTES {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| ReadError::NotText { path: name, at: error.utf8_error().valid_up_to() })
}
