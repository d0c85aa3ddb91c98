//! Which cluster a broker name belongs to, also while no broker of the name is registered.

use std::collections::{HashMap, VecDeque};

/// Maximum number of names of a cluster that are remembered without a broker; the oldest one is forgotten. Names of one cluster do not push
/// those of another one out.
const MAX_OF_CLUSTER: usize = 256;
/// Maximum number of remembered names without a broker; further ones are not remembered.
const MAX_NAMES: usize = 4096;

/// Clusters of broker names.
#[derive(Debug, Default)]
pub(super) struct Owners {
    clusters: HashMap<String, String>,
    /// Names without a broker by cluster, the oldest first.
    retired: HashMap<String, VecDeque<String>>,
}

impl Owners {
    /// The cluster of a name.
    pub(super) fn of(&self, name: &str) -> Option<&String> {
        self.clusters.get(name)
    }

    /// Notes the cluster of a name that registers.
    pub(super) fn note(&mut self, name: &str, cluster: &str) {
        self.wake(name);
        self.clusters.insert(name.to_owned(), cluster.to_owned());
    }

    /// Keeps the cluster of a name whose last broker is gone.
    pub(super) fn retire(&mut self, name: &str) {
        let Some(cluster) = self.clusters.get(name).cloned() else { return };
        if self.retired.values().map(VecDeque::len).sum::<usize>() >= MAX_NAMES {
            self.clusters.remove(name);
            return;
        }
        let names = self.retired.entry(cluster).or_default();
        names.push_back(name.to_owned());
        if names.len() > MAX_OF_CLUSTER
            && let Some(oldest) = names.pop_front()
        {
            self.clusters.remove(&oldest);
        }
    }

    fn wake(&mut self, name: &str) {
        let Some(cluster) = self.clusters.get(name) else { return };
        let Some(names) = self.retired.get_mut(cluster) else { return };
        names.retain(|retired| retired != name);
        if names.is_empty() {
            let cluster = cluster.clone();
            self.retired.remove(&cluster);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_cluster_do_not_push_those_of_another_one_out() {
        let mut owners = Owners::default();
        owners.note("b-a", "c1");
        owners.retire("b-a");
        for number in 0..MAX_OF_CLUSTER + 10 {
            owners.note(&format!("evil-{number}"), "evil");
            owners.retire(&format!("evil-{number}"));
        }
        assert_eq!(owners.of("b-a").map(String::as_str), Some("c1"));
        assert_eq!(owners.of("evil-0"), None);
        for number in 0..2 * MAX_NAMES {
            owners.note(&format!("more-{number}"), &format!("evil-{number}"));
            owners.retire(&format!("more-{number}"));
        }
        assert_eq!(owners.of("b-a").map(String::as_str), Some("c1"));
        assert!(owners.clusters.len() <= MAX_NAMES, "{}", owners.clusters.len());
        owners.note("b-a", "c2");
        assert_eq!(owners.of("b-a").map(String::as_str), Some("c2"));
        assert!(!owners.retired.contains_key("c1"));
    }
}
