//! Tables of a screen: dim heads, and a gap between the columns.

use std::ops::Range;

use anstyle::Style;
use comfy_table::{CellAlignment, ContentArrangement, Row, Table, presets};
use unicode_width::UnicodeWidthStr as _;

use crate::output::DIM;

/// The spaces between two columns.
pub(crate) const GAP: u16 = 2;

/// Returns a table without a line break at its end. The columns in `numbers` are aligned to the right.
pub(crate) fn table<R: Into<Row>>(heads: &[&str], rows: impl IntoIterator<Item = R>, numbers: Range<usize>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(heads.iter().map(|head| paint(DIM, head)));
    table.add_rows(rows);
    for (place, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, if place + 1 == heads.len() { 0 } else { GAP }));
        if numbers.contains(&place) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt()
}

/// Returns the width of a column.
pub(crate) fn widest<const N: usize>(heads: &[&str], rows: &[[String; N]], place: usize) -> usize {
    rows.iter().map(|row| row[place].width()).chain([heads[place].len()]).max().unwrap_or_default()
}

pub(crate) fn paint(style: Style, text: &str) -> String {
    format!("{style}{text}{style:#}")
}
