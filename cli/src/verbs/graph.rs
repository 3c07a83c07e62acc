//! `topology graph`: the topology as a picture.

use std::collections::BTreeSet;

use clap::ValueEnum;
use hatchery::{
    Topology,
    internals::words::{EventType, UnknownType},
};

use crate::{
    args::{Common, UsageError},
    exit::Exit,
    graph::{Drawing, Picture, dot, mermaid, svg, text},
    load,
    output::Output,
};

/// Draw the topology, with no broker
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  topology graph
  topology graph --type mail --type hr-import
  topology graph --format svg > topology.svg
  topology graph --format mermaid          inside ```mermaid, for GitHub
  topology graph --format dot | dot -Tpdf > topology.pdf
  topology graph -o json | jq '.nodes'

Names are shown without the topology's own, which they all begin with. The
ladder is one thing. Of more than 12 types those that differ in their names
alone are drawn as one; --type draws these and no other, each for itself.")]
pub(crate) struct Args {
    /// How to draw it
    #[arg(long, value_enum, default_value_t = Picturing::Text)]
    format: Picturing,

    /// Draw this type; may be given more than once
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
}

/// What to draw with: a tree for the terminal, text for other tools that draw, or a drawing.
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
        Picturing::Text if output.is_text() => text(&picture),
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
