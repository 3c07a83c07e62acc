//! The protocol of the register, rule by rule: on the register in memory, on Redis, and on a Redis Cluster with several
//! shards.

use hatchery::internals::register::{DedupSlot, End, Note, Stage};
use jiff::Timestamp;

use super::bench::Bench;

const I: DedupSlot = DedupSlot::Immediate;

/// Each rule is an async function of a bench. It becomes three tests: on the register in memory, on Redis, and on a
/// cluster.
macro_rules! rules {
    ($(async fn $rule:ident($bench:ident) $body:block)*) => {
        $(async fn $rule($bench: Bench) $body)*

        mod fake {
            $(#[tokio::test]
            async fn $rule() {
                super::$rule(super::Bench::memory()).await;
            })*
        }

        mod redis {
            $(#[tokio::test]
            async fn $rule() {
                super::$rule(super::Bench::redis()).await;
            })*
        }

        mod cluster {
            $(#[tokio::test]
            async fn $rule() {
                super::$rule(super::Bench::cluster().await).await;
            })*
        }
    };
}

/// Returns the end of a run whose copy, of the next generation, is in the broker and due now.
fn copied(bench: &Bench) -> End {
    copied_to(bench.now())
}

fn copied_to(due: Timestamp) -> End {
    End::Copied { due, note: Note { stage: Stage::Retry, attempts: 1, reason: None } }
}

mod cancel;
mod first;
mod index;
mod leases;
mod life;
mod marks;
mod versions;
