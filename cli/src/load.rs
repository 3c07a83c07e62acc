//! Reads the file that every verb begins with.

use hatchery::Topology;

use crate::{
    args::Common,
    drawing::draw,
    exit::{Ended, Exit},
    output::Output,
};

/// Reads the file, or shows what is wrong with it.
pub(crate) fn topology(common: &Common, output: Output) -> anyhow::Result<Topology> {
    with_text(common, output).map(|(topology, _)| topology)
}

/// The same, with the file's text.
pub(crate) fn with_text(common: &Common, output: Output) -> anyhow::Result<(Topology, String)> {
    let name = common.file.display().to_string();
    let text = hatchery::file::read_text(&common.file)?;
    match hatchery::file::read(&text, &name) {
        Ok(topology) => Ok((topology, text)),
        Err(error) => {
            output.note(draw(&error, output.colors_errors()).trim_end());
            Err(Ended::new(Exit::Error, format!("{name} is not valid")).into())
        }
    }
}
