//! A table of at most 80 columns. Rows with a number outside its limit are red.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, ContentArrangement, presets};

use crate::console::{BOLD, GREEN, RED};

/// The table. The first and the last column are texts, the others numbers.
pub struct Table {
    head: Vec<String>,
    rows: Vec<Row>,
    gap: u16,
}

struct Row {
    cells: Vec<String>,
    holds: Option<bool>,
}

impl Table {
    /// Starts a table with this head.
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(ToString::to_string).collect(), rows: Vec::new(), gap: 2 }
    }

    /// Leaves one space between the columns instead of two, for a table with many of them.
    #[must_use]
    pub fn narrow(self) -> Self {
        Self { gap: 1, ..self }
    }

    /// Adds a row that is only shown.
    pub fn tell(&mut self, cells: &[&str]) {
        self.push(cells, None);
    }

    /// Adds a row with a limit, and whether its numbers are within it.
    pub fn must(&mut self, holds: bool, cells: &[&str]) {
        self.push(cells, Some(holds));
    }

    /// Adds a row with a number that must be 0, to a table of three columns.
    pub fn none(&mut self, what: &str, found: impl TryInto<u64>) {
        let found = grouped(found);
        self.must(found == "0", &[what, &found, "0"]);
    }

    /// Adds a row with a number that must be at least this one, to a table of three columns.
    pub fn at_least(&mut self, what: &str, found: usize, least: usize) {
        self.must(found >= least, &[what, &grouped(found), &format!("at least {}", grouped(least))]);
    }

    fn push(&mut self, cells: &[&str], holds: Option<bool>) {
        self.rows.push(Row { cells: cells.iter().map(ToString::to_string).collect(), holds });
    }

    /// Returns whether all numbers are within their limits.
    pub fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.holds != Some(false))
    }

    /// Returns the table as text.
    pub fn render(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.head.iter().map(String::as_str).chain([""]));
        for Row { cells, holds } in &self.rows {
            let verdict = match holds {
                None => "",
                Some(true) => "ok",
                Some(false) => "OFF",
            };
            table.add_row(cells.iter().map(String::as_str).chain([verdict]));
        }
        let numbers = 1..self.head.len().saturating_sub(1);
        for (n, column) in table.column_iter_mut().enumerate() {
            column.set_padding((self.gap, 0));
            if numbers.contains(&n) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        let text = table.trim_fmt();
        let mut text = text.lines();
        let head = text.next().unwrap_or_default();
        let mut shown = format!("\n{BOLD}{head}{BOLD:#}\n");
        for (line, row) in text.zip(&self.rows) {
            let _ = match (row.holds, line.strip_suffix("ok")) {
                (Some(false), _) => writeln!(shown, "{RED}{line}{RED:#}"),
                (Some(true), Some(line)) => writeln!(shown, "{line}{GREEN}ok{GREEN:#}"),
                _ => writeln!(shown, "{line}"),
            };
        }
        shown
    }
}

/// Formats a number with its digits in groups of three: `1,234,567`.
pub fn grouped(number: impl TryInto<u64>) -> String {
    let digits = number.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_in_groups_of_three() {
        assert_eq!([0_u64, 999, 1_000, 50_000, 1_234_567].map(grouped), ["0", "999", "1,000", "50,000", "1,234,567"]);
    }

    #[test]
    fn a_table_with_one_row_outside_its_limit_does_not_hold() {
        let mut table = Table::new(&["what", "n", "must be"]);
        table.tell(&["told", "1", ""]);
        table.must(true, &["good", "10", "10"]);
        assert!(table.holds());
        table.must(false, &["bad", "9", "10"]);
        assert!(!table.holds() && table.render().contains("OFF"));
        for (found, holds) in [(0, true), (1, false)] {
            let mut table = Table::new(&["what", "n", "must be"]);
            table.none("lost", found);
            table.at_least("killed", 1 - found, 1);
            assert_eq!(table.holds(), holds, "{}", table.render());
        }
    }
}
