//! The tables of the peers, which fit 80 columns.

use hatchery_soak::{console::Console, table::Table};

use super::results::{Phase, Results};
use crate::{
    report::{cpu, whole},
    rounds::median,
};

pub(crate) fn print(all: &[Results], console: &Console) {
    let mut rates = Table::new(&["peer", "version", "worked/s", "ratio", "from..to", "added/s", "ratio", "at least"]);
    let mut costs = Table::new(&["CPU", "work ours", "work peer", "publish ours", "publish peer", ""]);
    let ours = |phase: fn(&Results) -> &Phase| whole(median(all.iter().map(|peer| phase(peer).ours.events_per_second)));
    rates.tell(&["hatchery", "", &ours(|peer| &peer.work), "", "", &ours(|peer| &peer.publish), "", ""]);
    for Results { peer, version, work, publish, at_least, .. } in all {
        rates.must(
            work.ratio.median >= *at_least,
            &[
                peer,
                version,
                &whole(work.peer.events_per_second),
                &format!("{:.1}", work.ratio.median),
                &format!("{:.1}..{:.1}", work.ratio.from, work.ratio.to),
                &whole(publish.peer.events_per_second),
                &format!("{:.1}", publish.ratio.median),
                &format!("{at_least:.1}"),
            ],
        );
        let [work, publish] =
            [work, publish].map(|Phase { ours, peer, .. }| [ours, peer].map(|side| cpu(side.cpu_micros_per_event)));
        costs.tell(&[peer, &work[0], &work[1], &publish[0], &publish[1], ""]);
    }
    console.say(&rates.render());
    console.note("/s: events a second, the median");
    console.note("ratio: hatchery to the peer, the median; from..to: all rounds of working");
    console.note("at least: the ratio of working that hatchery is to reach");
    console.say(&costs.render());
    console.note("CPU: microseconds an event of client+broker+redis, the median");
    console.note("Dramatiq and Celery publish without confirms, their default and fastest");
}
