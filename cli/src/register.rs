//! The register of the topology that is planned, applied or destroyed: in use by this topology on this broker, by
//! nobody, or by somebody else.

use std::time::Duration;

use hatchery::{
    Topology,
    internals::{
        names::{is_of_a_node, scheduler},
        redis::RedisRegister,
        register::{Applied, Other, Owner},
        words::plain,
    },
};

use crate::{
    args::{Common, UsageError},
    exit::{Ended, Exit},
    management::ManagementApi,
    observed::Observed,
    output::Output,
};

/// People wait longer than publishers.
const LIMIT: Duration = Duration::from_secs(5);

/// The register, and whether somebody else uses it.
pub(crate) struct Looked {
    free: Free,
    /// The text that names its user, and says what to do.
    pub(crate) refusal: Option<String>,
}

/// A register that nobody else uses.
pub(crate) struct Free {
    register: RedisRegister,
    owner: Owner,
}

/// Reads whose the register is. Nothing is written.
///
/// An `apply` needs RabbitMQ alone. Without a Redis URL nothing is looked at, and where Redis does not answer that is a
/// warning.
pub(crate) async fn look(
    common: &Common,
    topology: &Topology,
    management: &ManagementApi,
    observed: &Observed,
    moved_from: &[String],
    output: Output,
) -> anyhow::Result<Option<Looked>> {
    let uses_register = topology.types.values().any(|spec| spec.register);
    let Some(url) = common.given_redis_url()?.filter(|url| uses_register && !url.secret().is_empty()) else {
        return Ok(None);
    };
    let (virtual_host, name) = (common.amqp_url()?.vhost(), topology.first_name());
    let register = RedisRegister::new_with_tls(url.secret(), &common.tls()?, &virtual_host, name, &topology.redis)
        .map_err(|error| UsageError(format!("--redis-url (REDIS_URL): {error}")))?
        .with_first_names(topology.first_names())
        .with_limit(LIMIT);
    let owner = Owner { topology: Some(topology.name.to_string()), cluster_name: observed.cluster_name.clone() };
    let before = match register.owners().await {
        Ok(before) => before,
        Err(error) => {
            output.warn(&format!("whether the register is in use by another broker or topology is not known: {error}"));
            return Ok(None);
        }
    };
    let former: Vec<String> = topology.renamed_from.iter().map(ToString::to_string).collect();
    let mut names = former.iter().map(String::as_str).chain([topology.name.as_str()]);
    let is_here = names.any(|name| observed.exchanges.iter().any(|exchange| exchange.name == scheduler(name)));
    let is_another_node = |before: &Owner| {
        before.cluster_name != owner.cluster_name && before.cluster_name.as_deref().is_some_and(is_of_a_node)
    };
    let nodes = if before.iter().any(is_another_node) { management.nodes().await? } else { None };
    let applied = Applied { owner: &owner, former: &former, is_here, nodes: nodes.as_deref(), moved_from };
    let refusal = before.iter().find_map(|before| before.conflict(applied)).map(|other| refusal(&other, &owner));
    // The list of the nodes leaves no doubt, and who has said that it has moved has none.
    let has_moved = |before: &&Owner| before.cluster_name.as_ref().is_some_and(|name| moved_from.contains(name));
    let mut doubtful = before.iter().filter(|before| refusal.is_none() && nodes.is_none() && !has_moved(before));
    if let Some(doubt) = doubtful.find_map(|before| before.doubt(owner.cluster_name.as_deref())) {
        output.warn(&doubt);
    }
    Ok(Some(Looked { free: Free { register, owner }, refusal }))
}

impl Looked {
    /// Refuses a register that somebody else uses.
    pub(crate) fn free(self) -> Result<Free, Ended> {
        match self.refusal {
            Some(refusal) => Err(Ended::new(Exit::Blocked, format!("{refusal}; nothing was written"))),
            None => Ok(self.free),
        }
    }
}

impl Free {
    /// Makes the register that of this topology on this broker. From then on workers on the former broker are refused.
    pub(crate) async fn take(&self, output: Output) {
        // Always: some shards may name nobody yet.
        if let Err(error) = self.register.set_owner(&self.owner).await {
            output.warn(&format!(
                "not all of the register says yet who uses it: {error}. Run it again with the same flags"
            ));
        }
    }

    /// Leaves the register to whoever applies the topology next.
    pub(crate) async fn leave(&self, output: Output) {
        if let Err(error) = self.register.clear_owner().await {
            output.warn(&format!("the register still says who used it: {error}. Run it again"));
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
