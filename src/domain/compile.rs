//! Compiles the file into the exchanges, queues, bindings and policies that must exist on the broker.
//!
//! ```text
//!                    <type>.now
//!  scheduler ───────────────────────────────────────────────► processor ─► processor.<type> ─► workers
//!      │  *.5m                                                    ▲  ▲              │ rejected, or returned too often
//!      ├──────► hatchery.5m  (TTL) ───────────────────────────────┤  │              ▼
//!      │  *.250ms-27.0.1…                                         │  │         dead-letter ─► dead-letter.<type>
//!      └──────► ladder.250ms-27.<level> (TTL) ─► next set bit … ──┘  │
//!                                                                    │
//!  retry ─► retry.<type>.1m (TTL) ───────────────────────────────────┘
//!
//!  aside ─► aside.<type> ─► workers, one at a time (types with `register: off` alone)
//!
//!  source.<name> ─► workers ─► scheduler (the declared queues of sources; publishers name the queue)
//!
//!  messages that match no binding ─► unrouted
//!
//!  people ─► control (a stream) ─► workers (the switches; no event passes there)
//!
//!  workers, people ─► life-cycle (a stream) ─► people (what happens to events; no event passes there)
//! ```

use std::collections::{BTreeMap, BTreeSet};

pub use super::desired::{
    Argument, Binding, DELIVERY_LIMIT, Desired, Exchange, LIMIT, LOCATOR, NO_DELIVERY_LIMIT, OWNER, Policy, Queue,
    RETENTION, Rename, SINGLE, STREAM, Target,
};
use super::{
    delay::Ladder,
    life_cycle::LifeCycle,
    names::Names,
    safety::{self, Unsafe},
    spec::{QueueType, Topology},
    ttl::Ttl,
};

/// The TTL of the hatchery for copies whose reference is busy, for their first wait.
pub const BUSY: Ttl = Ttl::from_millis(250);

/// The leader locator of all quorum queues: the node that leads the fewest queues leads the next one. Without it the
/// node that `apply` is connected to would lead all queues.
pub const BALANCED: &str = "balanced";

/// Compiles a topology, and proves it safe.
///
/// # Errors
/// When the compiled topology is not safe.
pub fn compile(topology: &Topology) -> Result<Desired, Unsafe> {
    let desired = build(topology);
    safety::prove(&desired)?;
    Ok(desired)
}

fn build(topology: &Topology) -> Desired {
    let names = Names::new(topology.name.clone());
    let mut build = Builder {
        desired: Desired {
            owner: names.owner().to_owned(),
            exchanges: Vec::new(),
            queues: Vec::new(),
            bindings: Vec::new(),
            policies: Vec::new(),
            ladder: topology.ladder,
            ack_timeout: topology.ack_timeout,
            former_owners: topology.renamed_from.iter().map(ToString::to_string).collect(),
            adopted: topology.adopt.clone(),
            renames: renames(topology),
        },
        names,
        queue_type: topology.queue_type,
    };
    build.unrouted();
    build.register(topology);
    build.control();
    build.dead_letters(topology);
    build.processing(topology);
    build.sources(topology);
    build.quarantines(topology);
    build.tunables(topology);
    build.retries(topology);
    let scheduler = build.names.scheduler();
    build.exchange(&scheduler);
    let processor = Target::Exchange(build.names.processor());
    build.bind(&scheduler, &processor, "*.now");
    for ttl in hatcheries(topology) {
        build.hatchery(ttl);
    }
    build.ladder(topology.ladder);
    build.life_cycle(&topology.life_cycle);
    build.desired
}

/// Returns an exchange of this owner. What no binding takes goes to `unrouted`.
#[must_use]
pub fn exchange(owner: &str, name: &str) -> Exchange {
    let arguments = [(OWNER, owner.to_owned()), ("alternate-exchange", super::names::unrouted(owner))];
    let arguments = arguments.into_iter().map(|(name, value)| (name.to_owned(), Argument::Text(value))).collect();
    Exchange { name: name.to_owned(), arguments }
}

/// Returns the TTLs of all hatcheries: the named ones, one for each window, and the one for copies whose reference is
/// busy.
#[must_use]
pub fn hatcheries(topology: &Topology) -> BTreeSet<Ttl> {
    let windows = topology.types.values().filter_map(|spec| spec.coalesce.window);
    topology.hatcheries.iter().copied().chain(windows).chain([BUSY]).collect()
}

/// Returns the queues that have a former name, because the topology, a type or both were renamed.
fn renames(topology: &Topology) -> Vec<Rename> {
    let now = Names::new(topology.name.clone());
    let mut renames = Vec::new();
    for name in topology.renamed_from.iter().chain([&topology.name]) {
        let former = Names::new(name.clone());
        let mut rename = |from: String, to: String, source: String, key: String| {
            if from != to {
                renames.push(Rename { from, to, source, key });
            }
        };
        for (event_type, spec) in &topology.types {
            for was in spec.renamed_from.iter().chain([event_type]) {
                let key = format!("{was}.#");
                rename(former.processing(was), now.processing(event_type), former.processor(), key.clone());
                rename(former.dead_letters(was), now.dead_letters(event_type), former.dead_letter(), key);
                if spec.has_quarantine() {
                    let key = super::names::quarantine_key(was);
                    rename(former.quarantine_queue(was), now.quarantine_queue(event_type), former.quarantine(), key);
                }
            }
        }
        // A declared queue of a source has no binding that could lead the messages of its former name to the new one, and its
        // publishers name the queue. So it stays under its former name until it is pruned.
        for source in topology.sources.keys() {
            let key = format!("{}.#", super::names::source_word(source));
            let (from, to) = (former.source_dead_letters(source), now.source_dead_letters(source));
            rename(from, to, former.dead_letter(), key);
        }
        rename(former.unrouted(), now.unrouted(), former.unrouted(), "#".to_owned());
    }
    renames
}

struct Builder {
    names: Names,
    queue_type: QueueType,
    desired: Desired,
}

impl Builder {
    fn unrouted(&mut self) {
        let unrouted = self.names.unrouted();
        // It needs no alternate exchange: it routes every message to its own queue.
        let arguments = BTreeMap::from([self.owned()]);
        self.desired.exchanges.push(Exchange { name: unrouted.clone(), arguments });
        let queue = self.resting(&unrouted);
        self.bind(&unrouted, &queue, "#");
    }

    /// Records on the broker which keys in Redis are the register. A change to other keys has the effect of an emptied
    /// Redis, and `plan` sees only the broker.
    fn register(&mut self, topology: &Topology) {
        if topology.types.values().any(|spec| spec.register) {
            let unrouted = self.names.unrouted();
            let name = topology.first_name().as_str();
            let mark = super::names::register_mark(&topology.redis.prefix, name, topology.redis.shards);
            self.bind(&unrouted, &Target::Queue(unrouted.clone()), &mark);
        }
    }

    /// Adds the stream with the switches. It has no retention, which could take the last word away. The exchange is there because a user
    /// may have the right to write to objects of this name alone, and not to the default exchange.
    fn control(&mut self) {
        self.stream(&self.names.control());
    }

    /// Adds the stream with the life of events. Its retention is a policy, which wins over arguments on a stream and may change: RabbitMQ
    /// cannot change arguments, and a new stream would forget the old records.
    fn life_cycle(&mut self, spec: &LifeCycle) {
        if !spec.has_stream() {
            return;
        }
        let name = self.names.life_cycle();
        self.stream(&name);
        let number = |bytes: u64| Argument::Number(bytes.cast_signed());
        let values = [Argument::Text(spec.max_age()), number(spec.max_size), number(spec.segment_size())];
        self.desired.policies.push(Policy {
            pattern: format!("^{}$", name.replace('.', "\\.")),
            definition: RETENTION.into_iter().map(str::to_owned).zip(values).collect(),
            name,
        });
    }

    /// Adds a stream, and an exchange of its name that leads to it alone.
    fn stream(&mut self, name: &str) {
        let arguments = BTreeMap::from([self.owned()]);
        self.desired.exchanges.push(Exchange { name: name.to_owned(), arguments: arguments.clone() });
        let kind = ("x-queue-type".to_owned(), Argument::Text(STREAM.to_owned()));
        let arguments = arguments.into_iter().chain([kind]).collect();
        self.desired.queues.push(Queue { name: name.to_owned(), arguments });
        self.bind(name, &Target::Queue(name.to_owned()), "#");
    }

    fn dead_letters(&mut self, topology: &Topology) {
        let exchange = self.names.dead_letter();
        self.exchange(&exchange);
        for event_type in topology.types.keys() {
            let name = self.names.dead_letters(event_type);
            let queue = self.resting(&name);
            self.bind(&exchange, &queue, &format!("{event_type}.#"));
        }
        for source in topology.sources.keys() {
            let name = self.names.source_dead_letters(source);
            let queue = self.resting(&name);
            self.bind(&exchange, &queue, &format!("{}.#", super::names::source_word(source)));
        }
    }

    /// Adds the declared queues of sources. They have no binding: publishers reach them by the default exchange. And they
    /// have no dead-letter exchange, because only the worker knows the reason.
    fn sources(&mut self, topology: &Topology) {
        for (source, _) in topology.sources.iter().filter(|(_, spec)| spec.is_declared()) {
            let name = self.names.source(source);
            let arguments = self.in_order();
            self.queue(&name, arguments);
        }
    }

    fn processing(&mut self, topology: &Topology) {
        let exchange = self.names.processor();
        self.exchange(&exchange);
        for (event_type, spec) in &topology.types {
            let name = self.names.processing(event_type);
            let mut arguments = self.dead_lettering(&self.names.dead_letter());
            if spec.keeps_order() {
                arguments.extend(self.in_order());
            }
            let queue = self.queue(&name, arguments);
            self.bind(&exchange, &queue, &format!("{event_type}.#"));
        }
    }

    /// Adds the quarantine queues, where events that may have killed their worker run alone. Only types without the register
    /// need them.
    fn quarantines(&mut self, topology: &Topology) {
        if topology.with_quarantine().next().is_none() {
            return;
        }
        let exchange = self.names.quarantine();
        self.exchange(&exchange);
        for (event_type, _) in topology.with_quarantine() {
            let name = self.names.quarantine_queue(event_type);
            let arguments = self.dead_lettering(&self.names.dead_letter());
            let queue = self.queue(&name, arguments);
            self.bind(&exchange, &queue, &super::names::quarantine_key(event_type));
        }
    }

    /// Adds the policy with the delivery limit, the last safeguard of every queue that workers consume.
    fn tunables(&mut self, topology: &Topology) {
        // Classic queues do not count returns.
        if self.queue_type == QueueType::Classic {
            return;
        }
        let kinds = if topology.with_quarantine().next().is_some() { "(processor|aside)" } else { "processor" };
        // The pattern excludes the queues that keep order, because the lower limit of policy and argument would win.
        let ordered: Vec<&str> =
            topology.types.iter().filter(|(_, spec)| spec.keeps_order()).map(|(name, _)| name.as_str()).collect();
        let but = if ordered.is_empty() { String::new() } else { format!("(?!(?:{})$)", ordered.join("|")) };
        self.desired.policies.push(Policy {
            name: self.names.tunables(),
            pattern: format!("^{}\\.{kinds}\\.{but}[A-Za-z0-9_-]+$", self.names.owner().replace('.', "\\.")),
            definition: BTreeMap::from([("delivery-limit".to_owned(), Argument::Number(DELIVERY_LIMIT))]),
        });
    }

    fn retries(&mut self, topology: &Topology) {
        let exchange = self.names.retry();
        self.exchange(&exchange);
        for (event_type, spec) in &topology.types {
            for ttl in spec.retry_queues() {
                let name = self.names.retrying(event_type, ttl);
                let queue = self.timer(&name, ttl.as_millis(), &self.names.processor());
                self.bind(&exchange, &queue, &super::names::retry_key(event_type, ttl));
            }
        }
    }

    fn hatchery(&mut self, ttl: Ttl) {
        let name = self.names.hatchery(ttl);
        let queue = self.timer(&name, ttl.as_millis(), &self.names.processor());
        self.bind(&self.names.scheduler(), &queue, &format!("*.{ttl}"));
    }

    /// Adds a ladder with one lookup for each hop: the scheduler and each level are bound to every higher level by
    /// "zeros up to it, then 1". The alternative, a chain of exchanges that passes zeros on, was measured at 4 to 11
    /// times fewer publishes a second.
    fn ladder(&mut self, ladder: Ladder) {
        let names: Vec<String> = (0..ladder.levels()).map(|level| self.names.level(ladder, level)).collect();
        for (level, name) in (0..).zip(&names) {
            self.exchange(name);
            self.timer(name, ladder.hold_millis(level), name);
        }
        self.ladder_step(&self.names.scheduler(), ladder, 0, &names);
        for (level, name) in (1..).zip(&names) {
            self.ladder_step(name, ladder, level, &names);
        }
    }

    /// Binds an exchange whose events have spent the bits below `level`.
    fn ladder_step(&mut self, source: &str, ladder: Ladder, level: usize, names: &[String]) {
        let spent = ".*".repeat(level);
        for (zeros, name) in names.iter().skip(level).enumerate() {
            let zeros = ".0".repeat(zeros);
            self.bind(source, &Target::Queue(name.clone()), &format!("*.{ladder}{spent}{zeros}.1.#"));
        }
        let zeros = ".0".repeat(names.len() - level);
        let processor = Target::Exchange(self.names.processor());
        self.bind(source, &processor, &format!("*.{ladder}{spent}{zeros}"));
    }

    fn exchange(&mut self, name: &str) {
        self.desired.exchanges.push(exchange(self.names.owner(), name));
    }

    /// Adds a queue without a consumer, which dead-letters each event when its TTL ends. It has no delivery limit, because
    /// RabbitMQ 4.0 to 4.2 counts each look of *Get messages* as a return, and the event would leave early (measured).
    fn timer(&mut self, name: &str, ttl: u64, dead_letter_exchange: &str) -> Target {
        let mut arguments = self.dead_lettering(dead_letter_exchange);
        arguments.extend(self.no_limit());
        arguments.insert("x-message-ttl".to_owned(), Argument::Number(ttl.cast_signed()));
        self.queue(name, arguments)
    }

    /// Adds a queue that people read. With a delivery limit a quorum queue would drop the event, because it has no
    /// dead-letter exchange.
    fn resting(&mut self, name: &str) -> Target {
        let arguments = self.no_limit();
        self.queue(name, arguments)
    }

    /// Returns the arguments of a queue that keeps order: one consumer at a time, and no delivery limit that would
    /// dead-letter the event at the head.
    fn in_order(&self) -> BTreeMap<String, Argument> {
        let mut arguments = self.no_limit();
        arguments.insert(SINGLE.to_owned(), Argument::Flag(true));
        arguments
    }

    /// Returns the argument that keeps RabbitMQ's default limit of 20 returns away. A classic queue has no limit, and refuses
    /// the argument.
    fn no_limit(&self) -> BTreeMap<String, Argument> {
        match self.queue_type {
            QueueType::Quorum => BTreeMap::from([(LIMIT.to_owned(), Argument::Number(NO_DELIVERY_LIMIT))]),
            QueueType::Classic => BTreeMap::new(),
        }
    }

    /// Returns the arguments of a queue that dead-letters. There is no dead-letter routing key, so an event keeps its
    /// own. Without `reject-publish` RabbitMQ silently treats `at-least-once` as at-most-once (measured). A classic
    /// queue refuses a strategy (measured), and with `reject-publish` a full one would lose the messages that are
    /// dead-lettered into it.
    fn dead_lettering(&self, exchange: &str) -> BTreeMap<String, Argument> {
        let at_least_once: &[_] = match self.queue_type {
            QueueType::Quorum => &[("x-dead-letter-strategy", "at-least-once"), ("x-overflow", "reject-publish")],
            QueueType::Classic => &[],
        };
        [("x-dead-letter-exchange", exchange)]
            .iter()
            .chain(at_least_once)
            .map(|(name, value)| ((*name).to_owned(), Argument::Text((*value).to_owned())))
            .collect()
    }

    fn queue(&mut self, name: &str, mut arguments: BTreeMap<String, Argument>) -> Target {
        arguments
            .extend([self.owned(), ("x-queue-type".to_owned(), Argument::Text(self.queue_type.as_str().to_owned()))]);
        // RabbitMQ 3.10 refuses the leader locator for a classic queue (measured).
        if self.queue_type == QueueType::Quorum {
            arguments.insert(LOCATOR.to_owned(), Argument::Text(BALANCED.to_owned()));
        }
        self.desired.queues.push(Queue { name: name.to_owned(), arguments });
        Target::Queue(name.to_owned())
    }

    fn bind(&mut self, source: &str, target: &Target, key: &str) {
        self.desired.bindings.push(Binding { source: source.to_owned(), target: target.clone(), key: key.to_owned() });
    }

    fn owned(&self) -> (String, Argument) {
        (OWNER.to_owned(), Argument::Text(self.names.owner().to_owned()))
    }
}

#[cfg(test)]
#[path = "compile_tests.rs"]
pub(in crate::domain) mod tests;
