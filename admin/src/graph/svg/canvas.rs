//! SVG elements, and estimates of the width of a text, because no font is at hand.

use std::fmt::Write as _;

use crate::graph::{drawing::Kind, picture::shortened};

/// The width of a character of a name, which is monospaced, at 13 px.
const NAME_WIDTH: f64 = 7.83;
/// The average width of a character of a label that is no name, at 13 px.
const WHO_WIDTH: f64 = 6.8;
/// The average width of a character of a note, at 11.5 px.
const NOTE_WIDTH: f64 = 5.9;
const LINE: f64 = 16.0;
const PADDING: f64 = 12.0;

/// The position and size of a box.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rect {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Rect {
    pub(super) const fn right(self) -> f64 {
        self.x + self.width
    }

    pub(super) const fn bottom(self) -> f64 {
        self.y + self.height
    }

    /// Returns the vertical middle.
    pub(super) const fn middle(self) -> f64 {
        self.y + self.height / 2.0
    }
}

/// The elements drawn so far.
#[derive(Debug, Default)]
pub(super) struct Canvas {
    pub(super) body: String,
}

impl Canvas {
    /// Draws a box with a name, and notes below it. A text that is too long loses its middle. The tooltip shows the
    /// whole name.
    pub(super) fn node(&mut self, rect: Rect, kind: Kind, name: &str, notes: &[String], tip: &str) {
        let Rect { x, y, width, height } = rect;
        let (class, round) = match kind {
            Kind::Program => ("program", 8.0),
            Kind::Exchange => ("exchange", 22.0),
            Kind::Queue => ("queue", 4.0),
            Kind::Timer => ("timer", 4.0),
        };
        let _ = writeln!(self.body, "<g><title>{}</title>", escaped(tip));
        let _ = writeln!(
            self.body,
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{round}"/>"#
        );
        let middle = x + width / 2.0;
        let lines = 1.0 + f64_from(notes.len());
        let mut baseline = rect.middle() - (lines - 1.0) * LINE / 2.0 + 4.5;
        let (class, character) = if kind == Kind::Program { ("who", WHO_WIDTH) } else { ("name", NAME_WIDTH) };
        self.text(middle, baseline, class, "middle", &fitting(name, width, character));
        for note in notes {
            baseline += LINE;
            self.text(middle, baseline, "note", "middle", &fitting(note, width, NOTE_WIDTH));
        }
        self.body += "</g>\n";
    }

    /// Draws two empty boxes behind the place of a node that stands for many queues.
    pub(super) fn stack(&mut self, rect: Rect, class: &str) {
        for offset in [8.0, 4.0] {
            let (x, y) = (rect.x + offset, rect.y + offset);
            let Rect { width, height, .. } = rect;
            let _ = writeln!(
                self.body,
                r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}" rx="4"/>"#
            );
        }
    }

    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        let anchor = if anchor == "start" { String::new() } else { format!(r#" text-anchor="{anchor}""#) };
        let _ = writeln!(self.body, r#"<text class="{class}" x="{x:.1}" y="{y:.1}"{anchor}>{}</text>"#, escaped(text));
    }

    /// Draws a line along these points, with an arrowhead at its end.
    pub(super) fn arrow(&mut self, points: &[(f64, f64)], class: &str) {
        let _ = writeln!(self.body, r#"<path class="{class}" d="{}" marker-end="url(#tip)"/>"#, path(points));
    }

    pub(super) fn line(&mut self, points: &[(f64, f64)], class: &str) {
        let _ = writeln!(self.body, r#"<path class="{class}" d="{}"/>"#, path(points));
    }

    /// Draws a dot where lines join.
    pub(super) fn joint(&mut self, x: f64, y: f64) {
        let _ = writeln!(self.body, r#"<circle class="tip" cx="{x}" cy="{y}" r="2.6"/>"#);
    }
}

/// Returns the height of a box with so many notes.
pub(super) fn height(notes: usize) -> f64 {
    LINE * f64_from(1 + notes) + 16.0
}

/// Returns the width of a box for the widest of these names and notes, within bounds.
pub(super) fn width<'a>(
    names: impl IntoIterator<Item = &'a str>,
    notes: impl IntoIterator<Item = &'a str>,
    (least, most): (f64, f64),
) -> f64 {
    let names = names.into_iter().map(|text| extent(text, NAME_WIDTH));
    let notes = notes.into_iter().map(|text| extent(text, NOTE_WIDTH));
    names.chain(notes).map(|width| width + 2.0 * PADDING).fold(least, f64::max).min(most).ceil()
}

fn extent(text: &str, character: f64) -> f64 {
    f64_from(text.chars().count()) * character
}

/// Shortens a text to the room in a box of this width.
fn fitting(text: &str, width: f64, character: f64) -> String {
    let room = width - PADDING;
    let mut most = text.chars().count();
    while most > 1 && f64_from(most) * character > room {
        most -= 1;
    }
    shortened(text, most)
}

fn path(points: &[(f64, f64)]) -> String {
    let words: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    format!("M{}", words.join("L"))
}

/// The counts are small, so they fit into a `u32`.
fn f64_from(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
