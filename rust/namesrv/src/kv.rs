//! The key-value configuration: namespaces of keys, in memory.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use rocketpy_remoting::{NoMemory, Reservation, TableMemory};

/// Namespace of the order configuration of topics.
pub(crate) const ORDER_TOPIC_CONFIG: &str = "ORDER_TOPIC_CONFIG";
/// Memory of an entry beside its texts.
const ENTRY_BYTES: usize = 256;

/// The key-value configuration.
#[doc(alias = "KVConfigManager")]
#[derive(Debug)]
pub(crate) struct KvConfig {
    memory: TableMemory,
    namespaces: RwLock<BTreeMap<String, BTreeMap<String, Entry>>>,
}

#[derive(Debug)]
struct Entry {
    value: String,
    _memory: Reservation,
}

impl KvConfig {
    pub(crate) fn new(memory: TableMemory) -> Self {
        Self { memory, namespaces: RwLock::default() }
    }

    /// Sets the value of a key.
    ///
    /// # Errors
    /// All entries together take as much memory as they may; nothing has changed then.
    pub(crate) fn put(&self, namespace: String, key: String, value: String) -> Result<(), NoMemory> {
        let bytes = ENTRY_BYTES + namespace.len() + key.len() + value.len();
        let entry = Entry { value, _memory: self.memory.reserve(bytes)? };
        self.namespaces.write().entry(namespace).or_default().insert(key, entry);
        Ok(())
    }

    pub(crate) fn get(&self, namespace: &str, key: &str) -> Option<String> {
        self.namespaces.read().get(namespace)?.get(key).map(|entry| entry.value.clone())
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
        let namespaces = self.namespaces.read();
        let table = namespaces.get(namespace)?;
        Some(table.iter().map(|(key, entry)| (key.clone(), entry.value.clone())).collect())
    }
}

#[cfg(test)]
mod tests {
    use rocketpy_remoting::MemoryBudget;

    use super::*;

    #[test]
    fn a_namespace_ends_with_its_last_key() {
        let kv = KvConfig::new(MemoryBudget::new(1 << 20).of_table());
        kv.put("n".into(), "a".into(), "1".into()).unwrap();
        kv.put("n".into(), "a".into(), "2".into()).unwrap();
        assert_eq!(kv.get("n", "a").as_deref(), Some("2"));
        assert_eq!(kv.get("m", "a"), None);
        kv.delete("n", "b");
        assert_eq!(kv.namespace("n").map(|table| table.len()), Some(1));
        kv.delete("n", "a");
        assert_eq!(kv.namespace("n"), None);
    }

    #[test]
    fn entries_beyond_the_budget_are_refused_and_give_back_what_they_took() {
        let memory = MemoryBudget::new(1 << 16);
        let kv = KvConfig::new(memory.of_table());
        let put = |key: usize| kv.put("n".into(), key.to_string(), "v".repeat(1000));
        let taken = (0..1000).take_while(|key| put(*key).is_ok()).count();
        assert!((4..20).contains(&taken), "{taken}");
        assert!(memory.used_bytes() <= 1 << 14, "a quarter of the budget");
        for key in 0..taken {
            kv.delete("n", &key.to_string());
        }
        assert_eq!(memory.used_bytes(), 0);
        put(0).unwrap();
    }
}
