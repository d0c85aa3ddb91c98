//! The key-value configuration: namespaces of keys, in memory.

use std::collections::BTreeMap;

use parking_lot::RwLock;

/// Namespace of the order configuration of topics.
pub(crate) const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";

/// The key-value configuration.
#[doc(alias = "KVConfigManager")]
#[derive(Debug, Default)]
pub(crate) struct KvConfig {
    namespaces: RwLock<BTreeMap<String, BTreeMap<String, String>>>,
}

impl KvConfig {
    pub(crate) fn put(&self, namespace: String, key: String, value: String) {
        self.namespaces.write().entry(namespace).or_default().insert(key, value);
    }

    pub(crate) fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.namespaces.read().get(namespace)?.get(key).cloned()
    }

    /// Removes a key, and a namespace with its last key.
    pub(crate) fn delete(&self, namespace: &str, key: &str) {
        let mut namespaces = self.namespaces.write();
        if let Some(table) = namespaces.get_mut(namespace) {
            table.remove(key);
            if table.is_empty() {
                namespaces.remove(namespace);
            }
        }
    }

    /// All keys of a namespace. `None` when it has none.
    pub(crate) fn namespace(&self, namespace: &str) -> Option<BTreeMap<String, String>> {
        self.namespaces.read().get(namespace).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_ends_with_its_last_key() {
        let kv = KvConfig::default();
        kv.put("n".into(), "a".into(), "1".into());
        kv.put("n".into(), "a".into(), "2".into());
        assert_eq!(kv.get("n", "a").as_deref(), Some("2"));
        assert_eq!(kv.get("m", "a"), None);
        kv.delete("n", "b");
        assert_eq!(kv.namespace("n").map(|table| table.len()), Some(1));
        kv.delete("n", "a");
        assert_eq!(kv.namespace("n"), None);
    }
}
