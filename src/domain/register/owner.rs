//! The owner of a register: a topology on a broker.
//!
//! Two topologies with the same keys in Redis would drop each other's events. So `apply` looks for another owner before
//! it writes.

use crate::domain::{names::is_of_a_node, words::plain};

/// The topology and the broker that use a register. A name is `None` if it is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The topology's name at the last `apply`.
    pub topology: Option<String>,
    /// The cluster name of the broker.
    pub cluster_name: Option<String>,
}

/// The topology that is applied, with the facts that tell whether it owns a register.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    /// The topology and the broker.
    pub owner: &'a Owner,
    /// The names that the topology had before.
    pub former: &'a [String],
    /// Whether the broker already has objects of this topology.
    pub is_here: bool,
    /// The names of the nodes of the broker's cluster, if they are known.
    pub nodes: Option<&'a [String]>,
    /// The names of topologies or brokers that the topology has moved from, given by `--moved-from`.
    pub moved_from: &'a [String],
}

/// Another user of the register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// Another broker, with its cluster name.
    Broker(String),
    /// Another topology, with its name.
    Topology(String),
}

impl Owner {
    /// Returns the other user if this owner of a register is not the topology and broker of `applied`.
    ///
    /// Each node of a named cluster answers with the cluster's name. A node of an unnamed cluster answers with its own
    /// name, so a register that is owned by a node may belong to this broker. The list of the cluster's nodes decides
    /// that. Without the list, a broker that has objects of the topology counts as the same one.
    #[must_use]
    pub fn conflict(&self, applied: Applied<'_>) -> Option<Other> {
        let Applied { owner, former, moved_from, .. } = applied;
        if let (Some(before), Some(now)) = (&self.topology, &owner.topology)
            && before != now
            && !former.contains(before)
            && !moved_from.contains(before)
        {
            return Some(Other::Topology(before.clone()));
        }
        if let (Some(before), Some(now)) = (&self.cluster_name, &owner.cluster_name)
            && before != now
            && !(is_of_a_node(before) && applied.may_have_node(before))
            && !moved_from.contains(before)
        {
            return Some(Other::Broker(before.clone()));
        }
        None
    }

    /// Returns a warning if the register may belong to another broker, because its owner is a node and this broker has
    /// another name. They are two nodes of one cluster, or one cluster before and after it was named, or two brokers.
    #[must_use]
    pub fn doubt(&self, cluster_name: Option<&str>) -> Option<String> {
        let (by, here) = (self.cluster_name.as_deref().filter(|name| is_of_a_node(name))?, cluster_name?);
        let is_one = if is_of_a_node(here) {
            "If they are nodes of one cluster, name the cluster (`rabbitmqctl set_cluster_name`)"
        } else {
            "If this cluster was given its name since, run `topology apply`"
        };
        let (by, here) = (plain(by), plain(here));
        (by != here).then(|| {
            format!(
                "the register in Redis is in use by the broker `{by}`, and this is the broker `{here}`. {is_one}. If they are two \
                 brokers, each drops events of the other: give this topology a prefix of its own (`redis: {{ prefix: … }}`), or run \
                 `topology apply --moved-from {by}` if it has moved here"
            )
        })
    }
}

impl Applied<'_> {
    /// Tells whether the node of this name may belong to this broker's cluster.
    fn may_have_node(&self, name: &str) -> bool {
        self.nodes.map_or(self.is_here, |nodes| nodes.iter().any(|node| node == name))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn owner(topology: &str, cluster_name: &str) -> Owner {
        let known = |name: &str| Some(name.to_owned()).filter(|name| !name.is_empty());
        Owner { topology: known(topology), cluster_name: known(cluster_name) }
    }

    #[rstest]
    #[case::nobody(("", ""), ("billing", "prod"), false, None)]
    #[case::itself(("billing", "prod"), ("billing", "prod"), false, None)]
    #[case::a_former_name(("invoicing", "prod"), ("billing", "prod"), true, None)]
    #[case::another_topology(("accounts", "prod"), ("billing", "prod"), true, Some(Other::Topology("accounts".into())))]
    #[case::another_broker(("billing", "old"), ("billing", "prod"), true, Some(Other::Broker("old".into())))]
    #[case::another_node(("billing", "rabbit@1"), ("billing", "rabbit@2"), true, None)]
    #[case::a_node_where_nothing_is(
        ("billing", "rabbit@1"), ("billing", "rabbit@2"), false, Some(Other::Broker("rabbit@1".into()))
    )]
    #[case::a_named_cluster_and_a_node(("billing", "old"), ("billing", "rabbit@2"), true, Some(Other::Broker("old".into())))]
    #[case::a_cluster_that_was_given_a_name(("billing", "rabbit@1"), ("billing", "prod"), true, None)]
    #[case::a_broker_without_a_name(("billing", "old"), ("billing", ""), false, None)]
    fn a_register_has_one_owner(
        #[case] before: (&str, &str),
        #[case] now: (&str, &str),
        #[case] is_here: bool,
        #[case] expected: Option<Other>,
    ) {
        let (before, now) = (owner(before.0, before.1), owner(now.0, now.1));
        let former = ["invoicing".to_owned()];
        let applied = Applied { owner: &now, former: &former, is_here, nodes: None, moved_from: &[] };
        assert_eq!(before.conflict(applied), expected);
        let all = ["old", "rabbit@1", "accounts"].map(str::to_owned);
        assert_eq!(before.conflict(Applied { moved_from: &all, ..applied }), None);
    }

    #[rstest]
    #[case::a_node_of_this_cluster("rabbit@1", "rabbit@2", false, false)]
    #[case::a_node_of_another("rabbit@9", "rabbit@2", true, true)]
    #[case::a_node_of_another_before_this_cluster_has_a_name("rabbit@9", "prod", true, true)]
    #[case::a_cluster_with_a_name("old", "rabbit@2", true, true)]
    fn a_node_that_the_cluster_does_not_have_is_another_broker(
        #[case] before: &str,
        #[case] now: &str,
        #[case] is_here: bool,
        #[case] is_another: bool,
    ) {
        let now = owner("billing", now);
        let nodes = ["rabbit@1", "rabbit@2"].map(str::to_owned);
        let applied = Applied { owner: &now, former: &[], is_here, nodes: Some(&nodes), moved_from: &[] };
        let conflict = owner("billing", before).conflict(applied);
        assert_eq!(conflict, is_another.then(|| Other::Broker(before.to_owned())));
    }

    #[rstest]
    #[case::two_nodes("rabbit@1", "rabbit@2", true)]
    #[case::a_cluster_that_was_given_a_name("rabbit@1", "prod", true)]
    #[case::one_node("rabbit@1", "rabbit@1", false)]
    #[case::a_named_cluster_which_is_refused("prod", "rabbit@2", false)]
    #[case::nobody_yet("", "rabbit@1", false)]
    #[case::no_name("rabbit@1", "", false)]
    fn a_node_and_another_name_may_be_two_brokers(#[case] before: &str, #[case] now: &str, #[case] is_told: bool) {
        let told = owner("billing", before).doubt(owner("billing", now).cluster_name.as_deref());
        assert_eq!(told.is_some(), is_told);
        if let Some(told) = told {
            for part in [format!("`{before}`"), format!("`{now}`"), format!("--moved-from {before}")] {
                assert!(told.contains(&part), "{told}");
            }
        }
    }
}
