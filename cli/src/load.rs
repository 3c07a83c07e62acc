//! Reads the topology file.

use hatchery::Topology;

use crate::{
    args::Common,
    drawing::draw,
    exit::{Ended, Exit},
    output::Output,
};

/// Reads the file. If it is not valid, prints its mistakes and fails.
pub(crate) fn topology(common: &Common, output: Output) -> anyhow::Result<Topology> {
    with_text(common, output).map(|(topology, _)| topology)
}

/// Reads the file like [`topology`], and returns its text too.
pub(crate) fn with_text(common: &Common, output: Output) -> anyhow::Result<(Topology, String)> {
    let name = common.file.display().to_string();
    let text = hatchery::file::read_text(&common.file)?;
    match hatchery::file::read(&text, &name) {
        Ok(topology) => Ok((topology, text)),
        Err(error) => {
            output.note(draw(&error, output.colors_errors(), Output::error_columns()).trim_end());
            Err(Ended::new(Exit::Error, format!("{name} is not valid")).into())
        }
    }
}
