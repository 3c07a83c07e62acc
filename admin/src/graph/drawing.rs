//! The picture as nodes and edges, for formats whose renderer lays them out, and for JSON.

use schemars::JsonSchema;
use serde::Serialize;

use super::picture::{Picture, QUARANTINE, SourceQueue, Swimlane};

/// The group of all timers behind the scheduler.
pub(super) const HATCHERIES: &str = "hatcheries";

/// A picture as nodes and edges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Drawing {
    /// The name of the topology.
    pub name: String,
    /// The numbers of types, hatcheries and ladder levels.
    pub summary: String,
    /// The groups of nodes.
    pub groups: Vec<Group>,
    /// The nodes, in reading order.
    pub nodes: Vec<Node>,
    /// The edges.
    pub edges: Vec<Edge>,
}

/// A group of nodes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Group {
    /// The name that nodes refer to.
    pub id: String,
    /// The title that is drawn.
    pub title: String,
}

/// An exchange, a queue, several queues, or a program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Node {
    /// One word of letters, digits and `_`.
    pub id: String,
    /// Its kind.
    pub kind: Kind,
    /// Its name on the broker without the topology's name; for a program, a label.
    pub name: String,
    /// More lines below the name.
    pub about: Vec<String>,
    /// The group that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Programs: publishers, workers. A schedule counts as one, though workers publish its events.
    Program,
    /// An exchange.
    Exchange,
    /// A queue that people or workers read.
    Queue,
    /// A queue, or several, with a TTL and no consumer.
    Timer,
}

/// An arrow from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Edge {
    /// A node's id.
    pub from: String,
    /// A node's id.
    pub to: String,
    /// The binding's key, or the reason why a message goes this way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Whether the edge is off the usual way; drawn dashed.
    pub aside: bool,
    /// Whether the edge leads back to a node that the event has passed before.
    pub back: bool,
}

impl From<&Picture> for Drawing {
    fn from(picture: &Picture) -> Self {
        let mut drawing = Self {
            name: picture.name.clone(),
            summary: picture.summary(),
            groups: Vec::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
        };
        drawing.timers(picture);
        for (n, lane) in picture.lanes.iter().enumerate() {
            drawing.lane(n, lane);
        }
        for (n, source) in picture.sources.iter().enumerate() {
            drawing.source(n, source);
        }
        for (n, schedule) in picture.schedules.iter().enumerate() {
            let id = format!("schedule_{n}");
            drawing.node(&id, Kind::Program, &format!("schedule {}", schedule.name), &[&schedule.about], None);
            drawing.edge(&id, "scheduler", &format!("events of {}", schedule.event_type));
        }
        drawing.node("retry", Kind::Exchange, "retry", &[], None);
        if picture.lanes.iter().any(|lane| lane.has_quarantine) {
            drawing.node("aside", Kind::Exchange, "aside", &[], None);
        }
        drawing.node("dead_letter", Kind::Exchange, "dead-letter", &[], None);
        drawing.node("unrouted", Kind::Exchange, "unrouted", &[], None);
        drawing.node("unrouted_queue", Kind::Queue, "unrouted", &["messages without a binding"], None);
        let alternate = drawing.edge("scheduler", "unrouted", "no binding, from any exchange");
        alternate.aside = true;
        drawing.edge("unrouted", "unrouted_queue", "#");
        if let Some(about) = &picture.life_cycle {
            drawing.node("life_cycle", Kind::Exchange, "life-cycle", &[], None);
            drawing.node("life_cycle_queue", Kind::Queue, "life-cycle", &[about], None);
            drawing.edge("life_cycle", "life_cycle_queue", "#");
        }
        drawing
    }
}

impl Drawing {
    fn timers(&mut self, picture: &Picture) {
        self.node("publishers", Kind::Program, "publishers", &[], None);
        self.node("scheduler", Kind::Exchange, "scheduler", &[], None);
        self.edge("publishers", "scheduler", "");
        self.group(HATCHERIES, "hatcheries");
        for timer in &picture.timers {
            let id = format!("hatchery_{}", timer.ttl);
            let purposes: Vec<&str> = timer.purposes.iter().map(String::as_str).collect();
            self.node(&id, Kind::Timer, &format!("hatchery.{}", timer.ttl), &purposes, Some(HATCHERIES));
            self.edge("scheduler", &id, &format!("*.{}", timer.ttl));
            self.edge(&id, "processor", "");
        }
        let ladder = picture.ladder;
        let queues = format!("{} queues, {} · 2ⁿ", ladder.levels(), ladder.resolution());
        self.node("ladder", Kind::Timer, &format!("ladder.{ladder}"), &[&queues, "any other delay"], Some(HATCHERIES));
        self.edge("scheduler", "ladder", &format!("*.{ladder}.…"));
        self.edge("ladder", "processor", "");
        self.node("processor", Kind::Exchange, "processor", &[], None);
        self.edge("scheduler", "processor", "*.now");
    }

    fn lane(&mut self, n: usize, lane: &Swimlane) {
        let label = lane.label();
        let group = format!("type_{n}");
        let id = |of: &str| format!("{of}_{n}");
        let members = lane.members();
        self.group(&group, label);
        let node = |drawing: &mut Self, of: &str, kind, name: &str, about: &[&str]| {
            drawing.node(&id(of), kind, name, about, Some(&group));
        };
        node(self, "queue", Kind::Queue, &format!("processor.{label}"), members.as_deref().as_slice());
        let coalescing = lane.coalescing();
        let at_a_time = lane.at_a_time();
        let failing = lane.failing();
        let about: Vec<&str> =
            [&at_a_time].into_iter().chain(&coalescing).chain(&failing).map(String::as_str).collect();
        node(self, "workers", Kind::Program, "workers", &about);
        if !lane.retries.is_empty() {
            node(self, "retry", Kind::Timer, &format!("retry.{label}"), &[&lane.delays(), &lane.attempts()]);
        }
        node(self, "dead", Kind::Queue, &format!("dead-letter.{label}"), &[]);
        self.edge("processor", &id("queue"), &format!("{label}.#"));
        self.edge(&id("queue"), &id("workers"), "");
        if !lane.retries.is_empty() {
            self.edge(&id("workers"), "retry", "failed");
            self.edge("retry", &id("retry"), &format!("{label}.…"));
            self.edge(&id("retry"), "processor", "").back = true;
        }
        if let Some(name) = lane.quarantine() {
            self.nodes.push(Node {
                id: id("aside"),
                kind: Kind::Queue,
                name,
                about: vec![QUARANTINE.to_owned()],
                group: Some(group),
            });
            self.edge(&id("workers"), "aside", "redelivered twice");
            self.edge("aside", &id("aside"), &format!("{label}.aside"));
            self.edge(&id("aside"), &id("workers"), "").back = true;
        }
        self.edge(&id("workers"), "dead_letter", "given up");
        self.edge("dead_letter", &id("dead"), &format!("{label}.#"));
    }

    fn source(&mut self, n: usize, source: &SourceQueue) {
        let group = format!("source_{n}");
        let id = |of: &str| format!("{of}_{group}");
        self.group(&group, &source.word);
        let mut node = |of: &str, kind, name: &str, about: &[&str]| self.node(&id(of), kind, name, about, Some(&group));
        node("queue", Kind::Queue, &source.queue, &[&source.about]);
        node("workers", Kind::Program, "workers", &[]);
        node("dead", Kind::Queue, &format!("dead-letter.{}", source.word), &[]);
        self.edge(&id("queue"), &id("workers"), "");
        self.edge(&id("workers"), "scheduler", "events");
        self.edge(&id("workers"), "dead_letter", "no event");
        self.edge("dead_letter", &id("dead"), &format!("{}.#", source.word));
    }

    fn group(&mut self, id: &str, title: &str) {
        self.groups.push(Group { id: id.to_owned(), title: title.to_owned() });
    }

    fn node(&mut self, id: &str, kind: Kind, name: &str, about: &[&str], group: Option<&str>) {
        self.nodes.push(Node {
            id: id.to_owned(),
            kind,
            name: name.to_owned(),
            about: about.iter().map(|line| (*line).to_owned()).collect(),
            group: group.map(str::to_owned),
        });
    }

    fn edge(&mut self, from: &str, to: &str, label: &str) -> &mut Edge {
        let label = (!label.is_empty()).then(|| label.to_owned());
        let edge = Edge { from: from.to_owned(), to: to.to_owned(), label, aside: false, back: false };
        self.edges.push(edge);
        let last = self.edges.len() - 1;
        &mut self.edges[last]
    }

    /// Returns the nodes of a group, or those without a group.
    pub(super) fn members<'a>(&'a self, group: Option<&'a str>) -> impl Iterator<Item = &'a Node> {
        self.nodes.iter().filter(move |node| node.group.as_deref() == group)
    }
}
