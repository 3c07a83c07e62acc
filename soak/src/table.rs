//! A table of at most 80 columns, in which a number that is off is red.

use std::fmt::Write as _;

use crate::console::{BOLD, GREEN, RED};

/// The first and the last column are texts, the others numbers.
pub(crate) struct Table {
    head: Vec<String>,
    rows: Vec<Row>,
}

struct Row {
    cells: Vec<String>,
    holds: Option<bool>,
}

impl Table {
    pub(crate) fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// A row that is only told.
    pub(crate) fn tell(&mut self, cells: &[&str]) {
        self.push(cells, None);
    }

    /// A row that has to hold.
    pub(crate) fn must(&mut self, holds: bool, cells: &[&str]) {
        self.push(cells, Some(holds));
    }

    fn push(&mut self, cells: &[&str], holds: Option<bool>) {
        self.rows.push(Row { cells: cells.iter().map(ToString::to_string).collect(), holds });
    }

    pub(crate) fn holds(&self) -> bool {
        self.rows.iter().all(|row| row.holds != Some(false))
    }

    pub(crate) fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.head.len())
            .map(|column| {
                let cells = self.rows.iter().map(|row| &row.cells).chain([&self.head]);
                cells.filter_map(|cells| cells.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
            })
            .collect();
        let mut text = format!("\n{BOLD}{}{BOLD:#}\n", line(&self.head, &widths));
        for row in &self.rows {
            let line = line(&row.cells, &widths);
            let _ = match row.holds {
                None => writeln!(text, "{line}"),
                Some(true) => writeln!(text, "{line}  {GREEN}ok{GREEN:#}"),
                Some(false) => writeln!(text, "{RED}{line}  OFF{RED:#}"),
            };
        }
        text
    }
}

fn line(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::from("  ");
    for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let _ = match column {
            0 => write!(line, "{cell:<width$}"),
            _ if column + 1 == widths.len() => write!(line, "   {cell:<width$}"),
            _ => write!(line, "  {cell:>width$}"),
        };
    }
    line
}

/// 1,234,567
pub(crate) fn grouped(number: impl TryInto<u64>) -> String {
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
    fn numbers_are_grouped() {
        assert_eq!([0_u64, 999, 1_000, 50_000, 1_234_567].map(grouped), ["0", "999", "1,000", "50,000", "1,234,567"]);
    }

    #[test]
    fn one_row_that_is_off_is_enough() {
        let mut table = Table::new(&["what", "n", "must be"]);
        table.tell(&["told", "1", ""]);
        table.must(true, &["good", "10", "10"]);
        assert!(table.holds());
        table.must(false, &["bad", "9", "10"]);
        assert!(!table.holds() && table.render().contains("OFF"));
    }
}
