//! Who uses a register. Two topologies with the same keys would drop each other's events, so `apply` looks before it writes.

use crate::domain::names::is_of_a_node;

/// Who uses a register; a name that is not known is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The topology's name, as the last `apply` had it.
    pub topology: Option<String>,
    /// The cluster name of the broker.
    pub cluster_name: Option<String>,
}

/// The register of a topology that is applied, and what is known of the topology.
#[derive(Clone, Copy, Debug)]
pub struct Applied<'a> {
    /// The topology and the broker.
    pub owner: &'a Owner,
    /// The names that the topology had before.
    pub former: &'a [String],
    /// The broker has objects of this topology already.
    pub is_here: bool,
    /// Names of topologies or brokers that it has moved from, as a person says.
    pub moved_from: &'a [String],
}

/// Somebody else who uses the register.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Other {
    /// Another broker, with its cluster name.
    Broker(String),
    /// Another topology, with its name.
    Topology(String),
}

impl Owner {
    /// Whether this owner of a register is somebody else than who applies.
    ///
    /// An unnamed cluster says the name of the node that was asked, so that two names may be of one broker. Objects of the topology
    /// on the broker say that it is the same one.
    #[must_use]
    pub fn conflict(&self, applied: Applied<'_>) -> Option<Other> {
        let Applied { owner, former, is_here, moved_from } = applied;
        if let (Some(before), Some(now)) = (&self.topology, &owner.topology)
            && before != now
            && !former.contains(before)
            && !moved_from.contains(before)
        {
            return Some(Other::Topology(before.clone()));
        }
        if let (Some(before), Some(now)) = (&self.cluster_name, &owner.cluster_name)
            && before != now
            && !(is_here && (is_of_a_node(before) || is_of_a_node(now)))
            && !moved_from.contains(before)
        {
            return Some(Other::Broker(before.clone()));
        }
        None
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
        let applied = Applied { owner: &now, former: &former, is_here, moved_from: &[] };
        assert_eq!(before.conflict(applied), expected);
        let all = ["old", "rabbit@1", "accounts"].map(str::to_owned);
        assert_eq!(before.conflict(Applied { moved_from: &all, ..applied }), None);
    }
}
