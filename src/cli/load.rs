//! Reads the file that every verb begins with.

use hatchery::{ReadError, Topology};

use super::{
    args::Common,
    exit::{Ended, Exit},
    output::Output,
};

/// Reads the file, or shows what is wrong with it.
pub(crate) fn topology(common: &Common, output: Output) -> anyhow::Result<Topology> {
    hatchery::read_file(&common.file).map_err(|error| match error {
        ReadError::Content(error) => {
            output.note(error.render(output.colors_errors()).trim_end());
            Ended::new(Exit::Error, format!("{} is not valid", common.file.display())).into()
        }
        error => error.into(),
    })
}
