//! Reads the file that every verb begins with.

use std::path::Path;

use hatchery::{
    domain::spec::Topology,
    file::{self, FileError},
};

use super::{
    args::Common,
    exit::{Ended, Exit},
    output::Output,
};

/// Why there is no topology.
pub(crate) enum Unread {
    /// The file cannot be read.
    Io(String),
    /// It can, and is wrong.
    Invalid(Box<FileError>),
}

/// Reads the file.
pub(crate) fn read(path: &Path) -> Result<Topology, Unread> {
    let shown = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| Unread::Io(format!("cannot read {shown}: {error}")))?;
    file::read(&text, &shown).map_err(|error| Unread::Invalid(Box::new(error)))
}

/// Reads the file, or shows what is wrong with it.
pub(crate) fn topology(common: &Common, output: Output) -> anyhow::Result<Topology> {
    read(&common.file).map_err(|unread| {
        let message = match unread {
            Unread::Io(message) => message,
            Unread::Invalid(error) => {
                output.note(error.render(output.colors_errors()).trim_end());
                format!("{} is not valid", common.file.display())
            }
        };
        Ended::new(Exit::Error, message).into()
    })
}
