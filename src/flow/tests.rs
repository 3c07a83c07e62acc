//! The order of effects, seen from outside: a broker and a register that only write down what they are asked.

mod aside;
mod claiming;
mod cramped;
mod delivered;
mod fake;
mod in_order;
mod large;
mod logged;
mod publishing;
mod reconnecting;
mod returned;
mod runs;
mod settling;
mod shelf;
mod trial;
mod unclaimed;
mod unsettled;

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use jiff::Timestamp;
use rstest::rstest;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::fake::{
    Diary, Fake, Log, Noon, Passing, came_back, fail_and_stop, failure, header, incoming, publish, stamped, topology,
    unreachable, versioned, work, work_at,
};
use super::{publish::Publisher, worker::Worker};
use crate::{
    NewEvent, Outcome, Summary,
    domain::{
        register::{
            Cancel, Cancelled, Claim, Claimed, End, Later, Postponed, Record, Release, Renew, Renewed, Reserve,
            Reserved, Settle, Slot, Stamp, Subject, state::SlotState,
        },
        spec::Topology,
        trouble::Trouble,
        wire::{Incoming, Message, Properties, Value},
    },
    ports::{
        Broker, BrokerError, BrokerIdentity, Clock, Deliveries, Delivery, Order, Receipt, Register, RegisterError,
    },
};
