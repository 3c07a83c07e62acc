//! Finds out who uses the register of a topology that is planned, applied or destroyed: this topology on this broker,
//! nobody, or another topology or broker.

use std::time::Duration;

use hatchery::{
    ConnectError, EventType,
    internals::{
        names::{is_of_a_node, scheduler},
        redis::RedisRegister,
        register::{Applied, Other, Owner},
        words::plain,
    },
};

use crate::{admin::Admin, error::AdminError, live::Observed, watch::Watch};

/// How long Redis may take to answer. It is longer than for publishers, because a person waits.
const LIMIT: Duration = Duration::from_secs(5);

/// The register, and whether another topology or broker uses it.
pub struct Looked {
    free: Free,
    /// The message that names the other user of the register and advises what to do; `None` if there is none.
    pub refusal: Option<String>,
}

/// A register that no other topology or broker uses.
pub(crate) struct Free {
    register: RedisRegister,
    owner: Owner,
    types: Vec<EventType>,
}

impl Admin {
    /// Reads who uses the register, and writes nothing.
    ///
    /// An `apply` works without Redis. Returns `None` if no type uses the register or no Redis URL is given. Warns and
    /// returns `None` if Redis does not answer.
    ///
    /// # Errors
    /// When the URL of Redis is invalid, or the management API does not answer.
    #[doc(hidden)]
    pub async fn look_at_register(
        &self,
        observed: &Observed,
        moved_from: &[String],
        watch: &dyn Watch,
    ) -> Result<Option<Looked>, AdminError> {
        if !(self.uses_register() && self.is_redis_given) {
            return Ok(None);
        }
        let topology = self.topology();
        let register = self.builder.register(&self.broker).map_err(ConnectError::from)?.with_limit(LIMIT);
        let owner = Owner { topology: Some(topology.name.to_string()), cluster_name: observed.cluster_name.clone() };
        let before = match register.owners().await {
            Ok(before) => before,
            Err(error) => {
                watch.warn(&format!(
                    "whether the register is in use by another broker or topology is not known: {error}"
                ));
                return Ok(None);
            }
        };
        let former: Vec<String> = topology.renamed_from.iter().map(ToString::to_string).collect();
        let mut names = former.iter().map(String::as_str).chain([topology.name.as_str()]);
        let is_here = names.any(|name| observed.exchanges.iter().any(|exchange| exchange.name == scheduler(name)));
        let is_another_node = |before: &Owner| {
            before.cluster_name != owner.cluster_name && before.cluster_name.as_deref().is_some_and(is_of_a_node)
        };
        let nodes = if before.iter().any(is_another_node) { self.management.nodes().await? } else { None };
        let applied = Applied { owner: &owner, former: &former, is_here, nodes: nodes.as_deref(), moved_from };
        let refusal = before.iter().find_map(|before| before.conflict(applied)).map(|other| refusal(&other, &owner));
        // There is no doubt if the list of nodes is known, or if the user confirmed the move with `--moved-from`.
        let has_moved = |before: &&Owner| before.cluster_name.as_ref().is_some_and(|name| moved_from.contains(name));
        let mut doubtful = before.iter().filter(|before| refusal.is_none() && nodes.is_none() && !has_moved(before));
        if let Some(doubt) = doubtful.find_map(|before| before.doubt(owner.cluster_name.as_deref())) {
            watch.warn(&doubt);
        }
        let types = topology.types.keys().cloned().collect();
        Ok(Some(Looked { free: Free { register, owner, types }, refusal }))
    }
}

impl Looked {
    /// Fails if another topology or broker uses the register.
    pub(crate) fn free(self) -> Result<Free, AdminError> {
        self.refusal.map_or(Ok(self.free), |refusal| Err(AdminError::InUse(refusal)))
    }
}

impl Free {
    /// Records this topology on this broker as the register's user. From then on the register refuses workers on the
    /// former broker.
    pub(crate) async fn take(&self, watch: &dyn Watch) {
        // Also if this topology is recorded already, because some shards may have no record yet.
        if let Err(error) = self.register.set_owner(&self.owner).await {
            watch.warn(&format!(
                "not all shards of the register have recorded yet who uses it: {error}. Run it again with the same flags"
            ));
        }
    }

    /// Removes the record of who uses the register, so that any topology may take it next, and what would not expire by itself.
    pub(crate) async fn leave(&self, watch: &dyn Watch) {
        if let Err(error) = self.register.leave(&self.types).await {
            watch.warn(&format!("the register still records who used it: {error}. Run it again"));
        }
    }
}
fn refusal(other: &Other, owner: &Owner) -> String {
    let name = |name: &Option<String>| plain(name.as_deref().unwrap_or_default()).into_owned();
    let (used, now, by) = match other {
        Other::Broker(by) => ("broker", name(&owner.cluster_name), plain(by)),
        Other::Topology(by) => ("topology", name(&owner.topology), plain(by)),
    };
    let nodes = match other {
        Other::Broker(by) if is_of_a_node(by) => {
            ", or name the cluster (`rabbitmqctl set_cluster_name`) if these are two of its nodes"
        }
        _ => "",
    };
    format!(
        "the register in Redis is in use by the {used} `{by}`, and this is the {used} `{now}`: each would drop events of the other. \
         If the topology has moved here, run `topology apply --moved-from {by}`{nodes}; else give it a prefix of its own \
         (`redis: {{ prefix: … }}`)"
    )
}
