//! The picture in DOT, the language of Graphviz.

use std::fmt::Write as _;

use super::{
    Drawing, Picture,
    drawing::{Edge, HATCHERIES, Kind, Node},
};

const HEAD: &str = "\
  rankdir=LR
  fontname=\"Helvetica\"
  fontsize=12
  nodesep=0.18
  ranksep=0.6
  node [fontname=\"Helvetica\", fontsize=11, style=filled, shape=box, height=0.4]
  edge [fontname=\"Helvetica\", fontsize=9, color=\"#555555\", fontcolor=\"#555555\", arrowsize=0.7]
";

/// Draws the picture as a DOT graph.
#[must_use]
pub fn dot(picture: &Picture) -> String {
    let drawing = Drawing::from(picture);
    let mut out = format!("digraph {} {{\n", quoted(&drawing.name));
    let title = [format!("{}: {}", drawing.name, drawing.summary)].into_iter().chain(picture.rest());
    let _ = writeln!(out, "  label={}\n  labelloc=t", quoted(&title.collect::<Vec<_>>().join("\n")));
    out += HEAD;
    for node in drawing.members(None) {
        let _ = writeln!(out, "  {}", shape(node));
    }
    for group in &drawing.groups {
        // Only the hatcheries get a frame. One around a type would pull its nodes out of their columns.
        let framed = group.id == HATCHERIES;
        if framed {
            let _ = writeln!(out, "  subgraph cluster_{} {{", group.id);
            let _ = writeln!(out, "  label={}\n  labeljust=l\n  color=\"#cccccc\"", quoted(&group.title));
        }
        for node in drawing.members(Some(&group.id)) {
            let _ = writeln!(out, "  {}", shape(node));
        }
        if framed {
            out += "  }\n";
        }
    }
    for edge in &drawing.edges {
        let _ = writeln!(out, "  {}", arrow(edge));
    }
    out + "}\n"
}

fn shape(node: &Node) -> String {
    let lines: Vec<&str> = [&node.name].into_iter().chain(&node.about).map(String::as_str).collect();
    let (style, fill, line) = match node.kind {
        Kind::Program => ("", "#eaf6ea", "#2e7d32"),
        Kind::Exchange => (", style=\"filled,rounded\"", "#e8f0fe", "#3367d6"),
        Kind::Queue => ("", "#fff4e0", "#e08600"),
        Kind::Timer => ("", "#fdf0f0", "#c5483c"),
    };
    format!("{} [label={}, fillcolor=\"{fill}\", color=\"{line}\"{style}]", node.id, quoted(&lines.join("\n")))
}

fn arrow(edge: &Edge) -> String {
    let label = edge.label.as_ref().map(|label| format!("label={}", quoted(label)));
    let aside = edge.aside.then(|| "style=dashed".to_owned());
    // Edges that lead back do not affect the order from left to right.
    let back = edge.back.then(|| "constraint=false".to_owned());
    let attributes: Vec<String> = [label, aside, back].into_iter().flatten().collect();
    match attributes.as_slice() {
        [] => format!("{} -> {}", edge.from, edge.to),
        some => format!("{} -> {} [{}]", edge.from, edge.to, some.join(", ")),
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
