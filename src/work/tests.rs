//! The order of effects, seen from outside: a broker and a register in memory that write down what they are asked.

mod breaker;
mod cancelled;
mod clocks;
mod consuming;
mod delivered;
mod expiring;
mod given_back;
mod in_order;
mod large;
mod logged;
mod observed;
mod paused;
mod pausing;
mod publishing;
mod quarantine;
mod returned;
mod runs;
mod scheduled;
mod settling;
mod sources;
mod unavailable;
mod unclaimed;
mod unsettled;
mod world;

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use jiff::Timestamp;
use rstest::rstest;
use tokio_util::sync::CancellationToken;

use self::world::{
    Log, Noon, Passing, World, came_back, fail_and_stop, failure, header, incoming, publish, stamped, topology,
    versioned, work, work_at,
};
use super::Worker;
use crate::{
    NewEvent, Outcome, Summary,
    adapters::memory::{
        MemoryBroker, MemoryRegister,
        script::{Diary, Script, unreachable},
    },
    domain::{
        compile::{Queue, compile},
        register::{Cancel, ClaimAnswer, CopyVersion},
        spec::Topology,
        wire::{Incoming, Message, Properties, Value},
    },
    ports::{BrokerError, Clock, Register, RegisterError},
    publish::publisher::Publisher,
};
