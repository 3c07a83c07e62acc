//! Prints the account as a table of at most 80 columns.

use std::fmt::Write as _;

use crate::{
    account::{Account, Fate, FoundState, Published},
    console::{BOLD, DIM, GREEN, RED},
};

/// How many faults are listed at most.
const LISTED: usize = 20;

/// Returns the table, with the faults below it.
pub(crate) fn table(published: &[Published], refused: usize, account: &Account) -> String {
    let fated = |fate: Fate| published.iter().filter(|event| event.fate == fate).count();
    let count = |state| account.count(state);
    let states = published.iter().zip(&account.states);
    let replaced = states
        .filter(|(event, state)| event.fate == Fate::DeadLettered && **state == Some(FoundState::Coalesced))
        .count();
    let raw = published.iter().filter(|event| event.raw).count();
    let lost = count(FoundState::Lost);
    let (slots, settled) = account.last;
    let rows = [
        ("published", published.len(), format!("confirmed, {raw} of them raw messages; {refused} bad lines refused")),
        ("handled", count(FoundState::Handled), "finished, each with its own payload".to_owned()),
        ("coalesced", count(FoundState::Coalesced), "replaced by a newer event of the same employee".to_owned()),
        ("retried", account.retried, "failed and were tried again".to_owned()),
        (
            "dead-lettered",
            count(FoundState::DeadLettered),
            format!("{} can never work, of which {replaced} were replaced", fated(Fate::DeadLettered)),
        ),
        (
            "waiting",
            count(FoundState::Waiting),
            format!("{} are due later, in two minutes to a month", fated(Fate::Waiting)),
        ),
        ("handled twice", account.twice.len(), "ran in the worker that was killed, then again".to_owned()),
    ];
    let mut text = String::from("\n");
    for (what, count, remark) in rows {
        let _ = writeln!(text, "  {what:<14}{BOLD}{count:>6}{BOLD:#}   {DIM}{remark}{DIM:#}");
    }
    let color = if lost == 0 { GREEN } else { RED };
    let _ = writeln!(text, "  {color}{:<14}{lost:>6}{color:#}", "lost");
    let _ = writeln!(
        text,
        "\n  {} handled + {} coalesced + {} dead-lettered + {} waiting + {lost} lost = {}",
        count(FoundState::Handled),
        count(FoundState::Coalesced),
        count(FoundState::DeadLettered),
        count(FoundState::Waiting),
        published.len(),
    );
    let _ = writeln!(text, "  {settled} of {slots} last payloads of an employee were handled or are in dead-letter");
    if !account.off.is_empty() {
        let _ = writeln!(text, "\n{RED}Faults:{RED:#}");
        for line in account.off.iter().take(LISTED) {
            let _ = writeln!(text, "  {line}");
        }
        if account.off.len() > LISTED {
            let _ = writeln!(text, "  and {} more", account.off.len() - LISTED);
        }
    }
    text
}
