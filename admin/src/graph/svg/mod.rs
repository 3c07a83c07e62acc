//! The picture in SVG, made without any tool. An event goes from left to right, and each type has a row.
//!
//! ```text
//!  publishers ─► scheduler ─► hatcheries, ladder ─► processor ─► processor.<type> ─► workers ─┐
//!                                                      ▲───────── retry.<type> ◄─ retry ◄─────┤ failed
//!                    └┄► unrouted                          dead-letter.<type> ◄─ dead-letter ◄┘ given up
//! ```

mod canvas;

use std::fmt::Write as _;

use self::canvas::{Canvas, Rect, escaped, height, width};
use super::{
    drawing::Kind,
    picture::{Picture, Swimlane},
};

const MARGIN: f64 = 20.0;
const TOP: f64 = 84.0;
const GAP: f64 = 12.0;
const EXCHANGE: f64 = 100.0;
const ARROW: f64 = 24.0;

/// The style sheet for light and dark pages, so that one file serves both.
const STYLE: &str = "\
.page { fill: #ffffff }
.exchange { fill: #e8f0fe; stroke: #3367d6; stroke-width: 1.5 }
.queue { fill: #fff4e0; stroke: #e08600; stroke-width: 1.5 }
.timer { fill: #fdf0f0; stroke: #c5483c; stroke-width: 1.5 }
.program { fill: #eaf6ea; stroke: #2e7d32; stroke-width: 1.5 }
.way { fill: none; stroke: #555555; stroke-width: 1.5 }
.aside { fill: none; stroke: #555555; stroke-width: 1.5; stroke-dasharray: 4 4 }
.tip { fill: #555555 }
.title { font-size: 17px; font-weight: 600; fill: #1c1c1c }
.who { fill: #1c1c1c }
.name { font-family: ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace; fill: #1c1c1c }
.note { font-size: 11.5px; fill: #555555 }
.key { font-size: 11.5px; font-family: ui-monospace, SFMono-Regular, Menlo, 'DejaVu Sans Mono', monospace; fill: #333333 }
@media (prefers-color-scheme: dark) {
  .page { fill: #15181d }
  .exchange { fill: #1b2a4a; stroke: #6f9bff }
  .queue { fill: #3a2a0c; stroke: #e6a23c }
  .timer { fill: #3d1d1a; stroke: #e57368 }
  .program { fill: #17301a; stroke: #66b26b }
  .way, .aside { stroke: #a6adb8 }
  .tip { fill: #a6adb8 }
  .title, .who, .name { fill: #e8eaed }
  .note { fill: #a6adb8 }
  .key { fill: #c5cad3 }
}
";

/// Draws the picture as an SVG document.
#[must_use]
pub fn svg(picture: &Picture) -> String {
    let mut sheet = Sheet { picture, canvas: Canvas::default(), processor: 0.0 };
    let left = sheet.timers();
    let (right, bottom) = sheet.types(left.timers_bottom);
    sheet.unrouted(&left);
    let bottom = bottom.max(sheet.life_cycle(&left));
    sheet.legend(bottom + 34.0);
    sheet.document(right + MARGIN, bottom + 58.0)
}

struct Sheet<'p> {
    picture: &'p Picture,
    canvas: Canvas,
    /// The left edge of the exchange `processor`, to which all ways lead.
    processor: f64,
}

/// Positions in the left half that the rest is placed by.
struct Left {
    scheduler: Rect,
    timers_bottom: f64,
}

impl Sheet<'_> {
    /// Returns the name on the broker.
    fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.picture.name)
    }

    fn exchange(&mut self, rect: Rect, name: &str) {
        let tip = format!("exchange {}", self.full(name));
        self.canvas.node(rect, Kind::Exchange, name, &[], &tip);
    }

    fn queue(&mut self, rect: Rect, kind: Kind, name: &str, notes: &[String]) {
        let tip = format!("queue {}", self.full(name));
        self.canvas.node(rect, kind, name, notes, &tip);
    }

    /// Draws the publishers, the scheduler, and every timer that it leads to.
    fn timers(&mut self) -> Left {
        let ladder = self.picture.ladder;
        let ladder_key = format!("*.{ladder}.…");
        let rungs = format!("{} queues, {} · 2ⁿ", ladder.levels(), ladder.resolution());
        let mut timers: Vec<(String, String, Vec<String>)> = self
            .picture
            .timers
            .iter()
            .map(|timer| (format!("*.{}", timer.ttl), format!("hatchery.{}", timer.ttl), timer.purposes.clone()))
            .collect();
        timers.push((ladder_key.clone(), format!("ladder.{ladder}"), vec![rungs, "any other delay".to_owned()]));

        let names = timers.iter().map(|(_, name, _)| name.as_str());
        let notes = timers.iter().flat_map(|(_, _, notes)| notes).map(String::as_str);
        let wide = width(names, notes, (140.0, 200.0));
        let keys = width([ladder_key.as_str()], [], (60.0, 100.0));
        let is_alone = self.picture.sources.is_empty() && self.picture.schedules.is_empty();
        let publishers = if is_alone { 86.0 } else { 130.0 };
        let x = MARGIN + publishers + ARROW;
        let timer_x = x + EXCHANGE + keys;
        self.processor = timer_x + wide + ARROW + 8.0;

        let now = TOP + 10.0;
        let mut y = TOP + 34.0;
        let mut arrows = vec![(now, "*.now".to_owned(), None)];
        for (at, (key, name, notes)) in timers.iter().enumerate() {
            let rect = Rect { x: timer_x, y, width: wide, height: height(notes.len()) };
            let is_ladder = at + 1 == timers.len();
            if is_ladder {
                self.canvas.stack(rect, "timer");
            }
            self.queue(rect, Kind::Timer, name, notes);
            arrows.push((rect.middle(), key.clone(), Some(rect.right() + if is_ladder { 8.0 } else { 0.0 })));
            y = rect.bottom() + GAP;
        }
        let bottom = y - GAP + 8.0;
        let scheduler = Rect { x, y: TOP - 10.0, width: EXCHANGE, height: bottom - TOP + 10.0 };
        self.exchange(scheduler, "scheduler");
        let who = Rect { x: MARGIN, y: scheduler.middle() - 22.0, width: publishers, height: 44.0 };
        self.canvas.node(who, Kind::Program, "publishers", &[], "publishers");
        self.canvas.arrow(&[(who.right(), who.middle()), (x - 2.0, who.middle())], "way");
        self.sources(who, scheduler);
        for (y, key, timer) in arrows {
            self.canvas.text(scheduler.right() + 8.0, y - 5.0, "key", "start", &key);
            let end = if timer.is_some() { timer_x } else { self.processor };
            self.canvas.arrow(&[(scheduler.right(), y), (end - 2.0, y)], "way");
            if let Some(from) = timer {
                self.canvas.arrow(&[(from, y), (self.processor - 2.0, y)], "way");
            }
        }
        Left { scheduler, timers_bottom: bottom }
    }

    /// Draws the queues of sources and the schedules below the publishers, as many as there is room for beside the scheduler.
    fn sources(&mut self, publishers: Rect, scheduler: Rect) {
        let sources = self.picture.sources.iter().map(|source| {
            let name = if source.is_declared { self.full(&source.queue) } else { source.queue.clone() };
            let tip = format!("queue {name}: {}; dead-letter.{} has the others", source.about, source.word);
            (Kind::Queue, source.queue.clone(), tip)
        });
        let schedules = self.picture.schedules.iter().map(|schedule| {
            let tip = format!("schedule {}: {}, events of {}", schedule.name, schedule.about, schedule.event_type);
            (Kind::Program, schedule.name.clone(), tip)
        });
        let mut y = publishers.bottom() + GAP;
        for (kind, name, tip) in sources.chain(schedules).collect::<Vec<_>>() {
            let node = Rect { y, height: 30.0, ..publishers };
            if node.bottom() > scheduler.bottom() {
                break;
            }
            self.canvas.node(node, kind, &name, &[], &tip);
            self.canvas.arrow(&[(node.right(), node.middle()), (scheduler.x - 2.0, node.middle())], "way");
            y = node.bottom() + GAP;
        }
    }

    /// Draws a row for each type, and below them the zones for retries, quarantine queues and dead letters. Returns the
    /// right and bottom edges.
    fn types(&mut self, timers_bottom: f64) -> (f64, f64) {
        let rows: Vec<Row> = self.picture.lanes.iter().map(Row::new).collect();
        let names = rows
            .iter()
            .flat_map(|row| [Some(&row.processing), Some(&row.retry), row.quarantine.as_ref(), Some(&row.dead)]);
        let names = names.flatten().map(String::as_str);
        let notes = rows.iter().flat_map(|row| row.about.iter().chain(&row.delays)).map(String::as_str);
        let wide = width(names, notes, (160.0, 252.0));
        let workers = width(["workers"], rows.iter().map(|row| row.workers[0].as_str()), (140.0, 200.0));
        let queue_x = self.processor + EXCHANGE + ARROW;
        let workers_x = queue_x + wide + ARROW;
        let trunk = workers_x + workers + 20.0;

        let mut y = TOP - 10.0;
        let mut joints = Vec::new();
        for row in &rows {
            let queue = Rect { x: queue_x, y, width: wide, height: height(row.about.len().max(1)) };
            self.queue(queue, Kind::Queue, &row.processing, &row.about);
            let who = Rect { x: workers_x, width: workers, ..queue };
            self.canvas.node(who, Kind::Program, "workers", &row.workers, "workers");
            let middle = queue.middle();
            self.canvas.arrow(&[(self.processor + EXCHANGE, middle), (queue_x - 2.0, middle)], "way");
            self.canvas.arrow(&[(queue.right(), middle), (workers_x - 2.0, middle)], "way");
            self.canvas.line(&[(who.right(), middle), (trunk, middle)], "way");
            joints.push(middle);
            y = queue.bottom() + GAP;
        }
        if let Some(rest) = self.picture.rest() {
            self.canvas.text(queue_x, y + 8.0, "note", "start", &rest);
            y += 20.0;
        }
        let x = Places { queue: queue_x, wide, exchange: workers_x, trunk };
        let timers = rows.iter().filter(|row| !row.delays.is_empty()).map(|row| (&row.retry, &row.delays));
        let (retry, after) = self.zone(y + GAP, x, "retry", "failed", timers);
        self.exchange(
            Rect {
                x: self.processor,
                y: TOP - 10.0,
                width: EXCHANGE,
                height: (after - GAP).max(timers_bottom) - TOP + 10.0,
            },
            "processor",
        );
        for middle in &retry.rows {
            self.canvas.arrow(&[(queue_x, *middle), (self.processor + EXCHANGE + 2.0, *middle)], "way");
        }
        let none = Vec::new();
        let mut quarantine = rows.iter().filter_map(|row| Some((row.quarantine.as_ref()?, &none))).peekable();
        let (quarantine, after) = if quarantine.peek().is_some() {
            let (zone, after) = self.zone(after + GAP, x, "aside", "redelivered twice", quarantine);
            (Some(zone), after)
        } else {
            (None, after)
        };
        let dead = rows.iter().map(|row| (&row.dead, &none));
        let (dead, after) = self.zone(after + GAP, x, "dead-letter", "given up", dead);
        if let Some((first, others)) = joints.split_first() {
            self.canvas.line(&[(trunk, *first), (trunk, dead.entry)], "way");
            for middle in others.iter().chain([&retry.entry]).chain(quarantine.as_ref().map(|zone| &zone.entry)) {
                self.canvas.joint(trunk, *middle);
            }
        }
        (trunk, after)
    }

    /// Draws one queue for each type, and the exchange that leads to them, below everything drawn so far.
    fn zone<'r>(
        &mut self,
        top: f64,
        at: Places,
        name: &str,
        when: &str,
        rows: impl Iterator<Item = (&'r String, &'r Vec<String>)>,
    ) -> (Zone, f64) {
        let mut y = top;
        let mut middles = Vec::new();
        for (name, notes) in rows {
            let kind = if notes.is_empty() { Kind::Queue } else { Kind::Timer };
            let rect = Rect { x: at.queue, y, width: at.wide, height: height(notes.len()) };
            if !notes.is_empty() {
                self.canvas.stack(rect, "timer");
            }
            self.queue(rect, kind, name, notes);
            let edge = rect.right() + if notes.is_empty() { 0.0 } else { 8.0 };
            self.canvas.arrow(&[(at.exchange, rect.middle()), (edge + 2.0, rect.middle())], "way");
            middles.push(rect.middle());
            y = rect.bottom() + GAP + if notes.is_empty() { 0.0 } else { 4.0 };
        }
        let rect = Rect { x: at.exchange, y: top, width: EXCHANGE, height: (y - GAP - top).max(32.0) };
        self.exchange(rect, name);
        let y = y.max(rect.bottom() + GAP);
        let entry = rect.middle();
        self.canvas.arrow(&[(at.trunk, entry), (rect.right() + 2.0, entry)], "way");
        self.canvas.text(at.trunk - 8.0, entry - 6.0, "note", "end", when);
        (Zone { rows: middles, entry }, y)
    }

    fn unrouted(&mut self, left: &Left) {
        let Rect { x, .. } = left.scheduler;
        let top = left.timers_bottom + 36.0;
        let middle = x + EXCHANGE / 2.0;
        self.canvas.arrow(&[(middle, left.scheduler.bottom()), (middle, top - 2.0)], "aside");
        let notes = ["alternate exchange of all the others:", "messages without a binding wait here"];
        self.beside(x, top, "unrouted", &notes);
    }

    /// Draws the stream of the life of events, which no event passes. Returns where the left half ends.
    fn life_cycle(&mut self, left: &Left) -> f64 {
        let Rect { x, .. } = left.scheduler;
        let bottom = left.timers_bottom + 110.0;
        if self.picture.life_cycle.is_none() {
            return bottom;
        }
        self.beside(
            x,
            bottom + 14.0,
            "life-cycle",
            &["a stream that records what happens to", "events; none comes here"],
        );
        bottom + 96.0
    }

    /// Draws an exchange with its one queue, which is called the same.
    fn beside(&mut self, x: f64, y: f64, name: &str, notes: &[&str]) {
        let rect = Rect { x, y, width: EXCHANGE, height: 34.0 };
        self.exchange(rect, name);
        let queue = Rect { x: rect.right() + ARROW, width: 110.0, ..rect };
        self.queue(queue, Kind::Queue, name, &[]);
        self.canvas.arrow(&[(rect.right(), rect.middle()), (queue.x - 2.0, rect.middle())], "way");
        for (note, below) in notes.iter().zip([18.0, 33.0]) {
            self.canvas.text(x, rect.bottom() + below, "note", "start", note);
        }
    }

    fn legend(&mut self, y: f64) {
        let mut x = MARGIN;
        let entries = [
            ("exchange", 11, "topic exchange", 130.0),
            ("queue", 3, "queue", 90.0),
            ("timer", 3, "queue with a TTL that dead-letters: the timer", 300.0),
            ("program", 4, "your programs", 120.0),
        ];
        for (class, round, text, wide) in entries {
            let top = y - 11.0;
            let _ = writeln!(
                self.canvas.body,
                r#"<rect class="{class}" x="{x}" y="{top}" width="26" height="15" rx="{round}"/>"#
            );
            self.canvas.text(x + 34.0, y + 1.0, "note", "start", text);
            x += wide + 10.0;
        }
    }

    fn document(self, width: f64, height: f64) -> String {
        let Picture { name, .. } = self.picture;
        let summary = self.picture.summary();
        let (plain, width, height) = (escaped(name), width.ceil(), height.ceil());
        let body = &self.canvas.body;
        format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" aria-label="The topology {plain}" font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif" font-size="13">
<title>The topology {plain}: {summary}</title>
<style>
{STYLE}</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>
<rect class="page" width="{width}" height="{height}" rx="6"/>
<text class="title" x="{MARGIN}" y="36">{plain}</text>
<text class="note" x="{MARGIN}" y="55">{summary}</text>
{body}</svg>
"#
        )
    }
}

/// Horizontal positions of the parts of a type, the same in every row.
#[derive(Clone, Copy)]
struct Places {
    queue: f64,
    wide: f64,
    exchange: f64,
    trunk: f64,
}

/// An exchange with its queues, as drawn.
struct Zone {
    /// The middle of each queue.
    rows: Vec<f64>,
    /// The height at which the line from the workers enters the exchange.
    entry: f64,
}

/// The texts of a type.
struct Row {
    processing: String,
    about: Vec<String>,
    workers: Vec<String>,
    retry: String,
    delays: Vec<String>,
    quarantine: Option<String>,
    dead: String,
}

impl Row {
    fn new(lane: &Swimlane) -> Self {
        let label = lane.label();
        Self {
            processing: format!("processor.{label}"),
            about: lane.members().into_iter().chain(lane.coalescing()).chain(lane.failing()).collect(),
            workers: vec![lane.at_a_time()],
            retry: format!("retry.{label}.…"),
            delays: if lane.retries.is_empty() {
                Vec::new()
            } else {
                vec![format!("{}; {}", lane.delays(), lane.attempts())]
            },
            quarantine: lane.quarantine(),
            dead: format!("dead-letter.{label}"),
        }
    }
}
