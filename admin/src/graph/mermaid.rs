//! The picture in Mermaid, which GitHub and GitLab draw inside Markdown.

use std::fmt::Write as _;

use super::{
    Drawing, Picture,
    drawing::{Kind, Node},
};

/// Each class sets the text colour too, so that it can be read on a light and on a dark page.
const CLASSES: [&str; 5] = [
    "program fill:#eaf6ea,stroke:#2e7d32,color:#1c1c1c",
    "exchange fill:#e8f0fe,stroke:#3367d6,color:#1c1c1c",
    "queue fill:#fff4e0,stroke:#e08600,color:#1c1c1c",
    "timer fill:#fdf0f0,stroke:#c5483c,color:#1c1c1c",
    "group fill:none,stroke:#999999",
];

/// Draws the picture as a Mermaid flowchart.
#[must_use]
pub fn mermaid(picture: &Picture) -> String {
    let drawing = Drawing::from(picture);
    let mut out = format!("%% {}: {}\n", drawing.name, drawing.summary);
    if let Some(rest) = picture.rest() {
        let _ = writeln!(out, "%% {rest}");
    }
    out += "flowchart LR\n";
    for node in drawing.members(None) {
        let _ = writeln!(out, "  {}", shape(node));
    }
    for group in &drawing.groups {
        let _ = writeln!(out, "  subgraph {}[\"{}\"]", group.id, escaped(&group.title));
        for node in drawing.members(Some(&group.id)) {
            let _ = writeln!(out, "    {}", shape(node));
        }
        out += "  end\n";
    }
    for edge in &drawing.edges {
        let arrow = if edge.aside { "-.->" } else { "-->" };
        let label = edge.label.as_ref().map(|label| format!("|\"{}\"|", escaped(label))).unwrap_or_default();
        let _ = writeln!(out, "  {} {arrow}{label} {}", edge.from, edge.to);
    }
    let groups: Vec<&str> = drawing.groups.iter().map(|group| group.id.as_str()).collect();
    let _ = writeln!(out, "  class {} group", groups.join(","));
    for class in CLASSES {
        let _ = writeln!(out, "  classDef {class}");
    }
    out
}

fn shape(node: &Node) -> String {
    let lines: Vec<String> = [&node.name].into_iter().chain(&node.about).map(|line| escaped(line)).collect();
    let label = lines.join("<br/>");
    let id = &node.id;
    match node.kind {
        Kind::Program => format!("{id}[\"{label}\"]:::program"),
        Kind::Exchange => format!("{id}([\"{label}\"]):::exchange"),
        Kind::Queue => format!("{id}[\"{label}\"]:::queue"),
        Kind::Timer => format!("{id}[\"{label}\"]:::timer"),
    }
}

/// Escapes characters that have a meaning in Mermaid.
fn escaped(text: &str) -> String {
    text.replace('#', "#35;").replace('"', "#quot;").replace('<', "#lt;").replace('>', "#gt;")
}
