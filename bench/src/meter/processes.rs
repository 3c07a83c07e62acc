//! Reads from `/proc` which processes run, and how much CPU time they used.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::Context as _;

/// The CPU time of processes in clock ticks.
pub(super) type Ticks = u64;

/// The part of `/proc/PID/stat` that is needed here.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    parent: u32,
    /// The time of the process itself, in user mode and in the kernel.
    own: Ticks,
    /// The time of its children that have ended.
    children: Ticks,
}

/// Returns the CPU time of one process.
pub(super) fn of_process(pid: u32) -> anyhow::Result<Ticks> {
    Ok(stat(pid)?.own)
}

/// Returns the CPU time of a process and all processes that it started, those that have ended included.
pub(super) fn of_tree(root: u32) -> anyhow::Result<Ticks> {
    let all: BTreeMap<u32, Stat> = pids()?.filter_map(|pid| Some((pid, stat(pid).ok()?))).collect();
    all.get(&root).with_context(|| format!("the process {root} has ended"))?;
    let belongs = |pid: u32| {
        let parents = std::iter::successors(Some(pid), |pid| all.get(pid).map(|stat| stat.parent));
        parents.take(all.len()).any(|pid| pid == root)
    };
    Ok(all.iter().filter(|(pid, _)| belongs(**pid)).map(|(_, stat)| stat.own + stat.children).sum())
}

/// Returns the process that listens on this TCP port of this machine.
pub(super) fn listening_on(port: u16) -> anyhow::Result<u32> {
    let tables: String =
        ["/proc/net/tcp", "/proc/net/tcp6"].iter().filter_map(|table| fs::read_to_string(table).ok()).collect();
    let sockets: BTreeSet<String> = tables.lines().filter_map(|line| listener(line, port)).collect();
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        targets.any(|target| target.to_str().is_some_and(|target| sockets.contains(target)))
    };
    pids()?.find(holds).with_context(|| format!("found no process that listens on port {port}"))
}

/// Returns the target of the file descriptor of a socket, if this line of `/proc/net/tcp` is a listener on the port.
fn listener(line: &str, port: u16) -> Option<String> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (_, hex) = fields.get(1)?.rsplit_once(':')?;
    let listens = *fields.get(3)? == LISTEN && u16::from_str_radix(hex, 16) == Ok(port);
    listens.then(|| fields.get(9).map(|inode| format!("socket:[{inode}]")))?
}

fn pids() -> anyhow::Result<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc").context("the CPU times are in /proc, which Linux has")?;
    Ok(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

fn stat(pid: u32) -> anyhow::Result<Stat> {
    let file = Path::new("/proc").join(pid.to_string()).join("stat");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| format!("{} is not as expected: {text}", file.display()))
}

/// Parses `/proc/PID/stat`. The second field is the program's name in parentheses, and may contain spaces and parentheses.
fn parse(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    // The state, field 3 in proc(5), is the first of these.
    let number = |field: usize| fields.get(field - 3)?.parse::<Ticks>().ok();
    let parent = fields.get(1)?.parse().ok()?;
    Some(Stat { parent, own: number(14)? + number(15)?, children: number(16)? + number(17)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_is_read_behind_a_name_with_spaces_and_parentheses() {
        let text = "4242 (beam (smp) x) S 4240 4242 4242 0 -1 4194560 51 1 0 0 700 30 20 5 20 0 40 0 996 1 2";
        assert_eq!(parse(text), Some(Stat { parent: 4240, own: 730, children: 25 }));
        assert_eq!(parse("4242 (short) S 1"), None);
    }

    #[test]
    fn a_listener_is_found_by_its_port_and_state() {
        let line =
            |state| format!("   3: 0100007F:1628 00000000:0000 {state} 00000000:00000000 00:00000000 0 0 0 9876 1 0");
        assert_eq!(listener(&line("0A"), 5672).as_deref(), Some("socket:[9876]"));
        assert_eq!(listener(&line("0A"), 5673), None);
        assert_eq!(listener(&line("01"), 5672), None);
    }

    #[test]
    fn this_process_has_used_cpu_time_and_is_in_the_tree_of_its_parent() {
        let parent = stat(std::process::id()).unwrap().parent;
        assert!(of_tree(parent).unwrap() >= of_process(std::process::id()).unwrap());
    }
}
