//! The rules of the register's calls: the library's own transitions. A mutant changes the input or the result of one.

use hatchery::internals::register::{
    Cancel, Cancelled, Claim, ClaimAnswer, Later as PutOff, Postponed, Record, Release, Renew, Renewed, Reserve,
    Reserved, Settle, state::Shard, transitions::At,
};

/// The calls, by default the library's own. A mutant overrides one of them.
pub(crate) trait Rules: Sync {
    fn reserve(&self, shard: &mut Shard, at: At, call: &Reserve) -> Reserved {
        shard.reserve(at, call)
    }
    fn record(&self, shard: &mut Shard, at: At, call: &Record) {
        shard.record(at, call);
    }
    fn claim(&self, shard: &mut Shard, at: At, call: &Claim) -> ClaimAnswer {
        shard.claim(at, call)
    }
    fn renew(&self, shard: &mut Shard, at: At, call: &Renew) -> Renewed {
        shard.renew(at, call)
    }
    fn release(&self, shard: &mut Shard, at: At, call: &Release) {
        shard.release(at, call);
    }
    fn settle(&self, shard: &mut Shard, at: At, call: &Settle) {
        shard.settle(at, call);
    }
    fn later(&self, shard: &mut Shard, at: At, call: &PutOff) -> Postponed {
        shard.later(at, call)
    }
    fn cancel(&self, shard: &mut Shard, at: At, call: &Cancel) -> Vec<Cancelled> {
        shard.cancel(at, call)
    }
}

/// The rules without a change.
pub(crate) struct Ours;

impl Rules for Ours {}
