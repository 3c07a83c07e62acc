//! A topology over a broker and a register in memory, with a clock of the caller's: `hatchery::testing` and `topology dev` have one.

use std::sync::Arc;

use crate::{
    adapters::memory::{MemoryBroker, MemoryRegister},
    domain::{
        compile::{Desired, Queue, compile},
        names::Names,
        safety::Unsafe,
        spec::Topology,
    },
    operate::Events,
    ports::{Clock, Register},
    publish::publisher::Publisher,
    work::Worker,
};

/// A topology without servers. It creates what [`Hatchery`](crate::Hatchery) creates.
pub struct InMemory {
    /// The topology.
    pub topology: Arc<Topology>,
    /// The objects that the topology compiles to.
    pub desired: Desired,
    /// These objects, and the queues of other programs that the sources of the file read.
    pub declared: Desired,
    /// The broker, which has at least these objects.
    pub broker: MemoryBroker,
    /// The register.
    pub register: Arc<MemoryRegister>,
    /// The clock of both.
    pub clock: Arc<dyn Clock>,
    publisher: Publisher,
}

impl InMemory {
    /// Applies a topology to a new broker with an empty register. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// When the topology compiles to objects that are not safe.
    pub fn new(topology: Topology, clock: Arc<dyn Clock>) -> Result<Self, Unsafe> {
        let desired = compile(&topology)?;
        let broker = MemoryBroker::new(&with_foreign(&topology, &desired), clock.clone());
        let register = Arc::new(MemoryRegister::new(clock.clone(), topology.redis.backlog_retention));
        Ok(Self::over(topology, desired, broker, register, clock))
    }

    /// Applies a topology by the clock of this machine, as [`new`](Self::new) does.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    #[cfg(feature = "internals")]
    pub fn now(topology: Topology) -> Result<Self, Unsafe> {
        Self::new(topology, Arc::new(crate::adapters::clock::SystemClock))
    }

    /// Applies another topology to the same broker, and keeps what waits there: an object that the file no longer asks for stays, as
    /// after a `topology apply` without `--prune`.
    ///
    /// # Errors
    /// As [`new`](Self::new). Nothing is changed then.
    #[cfg(feature = "internals")]
    pub fn changed(&self, topology: Topology) -> Result<Self, Unsafe> {
        let desired = compile(&topology)?;
        self.broker.declare(&with_foreign(&topology, &desired));
        Ok(Self::over(topology, desired, self.broker.clone(), Arc::clone(&self.register), Arc::clone(&self.clock)))
    }

    fn over(
        topology: Topology,
        desired: Desired,
        broker: MemoryBroker,
        register: Arc<MemoryRegister>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let declared = with_foreign(&topology, &desired);
        let (topology, port): (_, Arc<dyn Register>) = (Arc::new(topology), register.clone());
        let publisher = Publisher::new(Arc::clone(&topology), Arc::new(broker.clone()), &port, clock.clone());
        Self { topology, desired, declared, broker, register, clock, publisher }
    }

    /// Returns a publisher.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        self.publisher.clone()
    }

    /// Returns a worker without handlers.
    #[must_use]
    pub fn worker(&self) -> Worker {
        let Self { topology, broker, register, clock, .. } = self;
        let worker = Worker::new(Arc::clone(topology), Arc::new(broker.clone()), register.clone(), clock.clone());
        worker.publishing(self.publisher())
    }

    /// Returns an [`Events`].
    #[must_use]
    pub fn events(&self) -> Events {
        let Self { topology, broker, register, clock, publisher, .. } = self;
        let (broker, records) = (Arc::new(broker.clone()), Arc::clone(publisher.records()));
        Events::telling(Arc::clone(topology), broker, register.clone(), register.clone(), clock.clone(), records)
    }

    /// Returns what tells the stream of the life of events.
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn records(&self) -> &crate::records::Records {
        self.publisher.records()
    }

    /// Returns how many events were published since this topology was applied, those of schedules included.
    #[must_use]
    #[cfg(feature = "internals")]
    pub fn published(&self) -> u64 {
        self.records().published()
    }
}

/// Adds the queues of other programs that the sources of the file read.
fn with_foreign(topology: &Topology, desired: &Desired) -> Desired {
    let names = Names::new(topology.name.clone());
    let foreign = topology.sources.iter().filter(|(_, source)| !source.is_declared());
    let foreign = foreign.map(|(name, source)| Queue { name: source.queue(&names, name), arguments: [].into() });
    let mut desired = desired.clone();
    desired.queues.extend(foreign);
    desired
}
