//! `topology graph`: draws the topology.

use std::collections::BTreeSet;

use clap::ValueEnum;
use hatchery::{
    Topology,
    internals::words::{EventType, UnknownType},
};

use hatchery_admin::graph::{Drawing, Picture, dot, mermaid, svg, text};

use crate::{
    args::{Common, UsageError},
    exit::Exit,
    load,
    output::Output,
};

/// Draw the topology; needs no broker
#[derive(clap::Args)]
#[command(after_long_help = "\
Examples:
  topology graph
  topology graph --type mail --type hr-import
  topology graph --format svg > topology.svg
  topology graph --format mermaid          inside ```mermaid, for GitHub
  topology graph --format dot | dot -Tpdf > topology.pdf
  topology graph -o json | jq '.nodes'

The topology's name, with which all names begin, is left out. The ladder is
drawn as one object. If there are more than 12 types, types that differ only in
their names are drawn as one; --type draws only the given types, each by itself.")]
pub(crate) struct Args {
    /// The format of the drawing
    #[arg(long, value_enum, default_value_t = Picturing::Text)]
    format: Picturing,

    /// Draw this type; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
}

/// The format of the drawing: a tree for the terminal, source text for other drawing tools, or a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Picturing {
    Text,
    Mermaid,
    Dot,
    Svg,
}

pub(crate) fn run(common: &Common, args: &Args, output: Output) -> anyhow::Result<Exit> {
    let picture = picture(&load::topology(common, output)?, &args.types)?;
    let drawn = match args.format {
        Picturing::Text if output.is_text() => text(&picture, Output::drawing_columns()),
        Picturing::Text => {
            output.json(&Drawing::from(&picture))?;
            return Ok(Exit::Done);
        }
        _ if !output.is_text() => {
            return Err(UsageError("--format goes with -o text; -o json gives nodes and edges".to_owned()).into());
        }
        Picturing::Mermaid => mermaid(&picture),
        Picturing::Dot => dot(&picture),
        Picturing::Svg => svg(&picture),
    };
    output.print(&drawn)?;
    Ok(Exit::Done)
}

fn picture(topology: &Topology, types: &[String]) -> Result<Picture, UnknownType> {
    if types.is_empty() {
        return Ok(Picture::new(topology));
    }
    let known = |name: &String| -> Result<EventType, UnknownType> {
        let found = topology.types.get_key_value(name.as_str()).map(|(name, _)| name.clone());
        found.ok_or_else(|| UnknownType::among(name, topology.types.keys()))
    };
    Ok(Picture::of(topology, &types.iter().map(known).collect::<Result<BTreeSet<_>, _>>()?))
}
