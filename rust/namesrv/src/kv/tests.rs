//! The table and its file.

use rocketpy_env::{Disk, RealDisk};
use rocketpy_remoting::MemoryBudget;

use super::*;

fn in_memory(budget_bytes: usize) -> (Arc<KvConfig>, Arc<MemoryBudget>) {
    let memory = MemoryBudget::new(budget_bytes);
    (Arc::new(KvConfig::new(memory.of_table())), memory)
}

fn open(path: &std::path::Path) -> Result<Arc<KvConfig>, NameServerError> {
    KvConfig::open(MemoryBudget::new(1 << 28).of_table(), Some(path.to_owned()))
}

/// Puts, and waits for the end of it.
async fn put(kv: &Arc<KvConfig>, key: &str, value: String) -> Result<(), Refusal> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    kv.put("n".into(), key.into(), value, Box::new(|result| drop(sender.send(result))));
    receiver.await.unwrap()
}

async fn delete(kv: &Arc<KvConfig>, key: &str) {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    kv.delete("n".into(), key.into(), Box::new(|result| drop(sender.send(result))));
    receiver.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_namespace_ends_with_its_last_key() {
    let (kv, _) = in_memory(1 << 20);
    put(&kv, "a", "1".into()).await.unwrap();
    put(&kv, "a", "2".into()).await.unwrap();
    assert_eq!(kv.get("n", "a").as_deref(), Some("2"));
    assert_eq!(kv.get("m", "a"), None);
    delete(&kv, "b").await;
    assert_eq!(kv.namespace("n").map(|table| table.len()), Some(1));
    delete(&kv, "a").await;
    assert_eq!(kv.namespace("n"), None);
}

#[tokio::test]
async fn entries_beyond_the_budget_are_refused_and_give_back_what_they_took() {
    let (kv, memory) = in_memory(1 << 16);
    let mut taken = 0;
    while put(&kv, &taken.to_string(), "v".repeat(1000)).await.is_ok() {
        taken += 1;
    }
    assert!((4..20).contains(&taken), "{taken}");
    assert!(memory.used_bytes() <= 1 << 14, "a quarter of the budget");
    for key in 0..taken {
        delete(&kv, &key.to_string()).await;
    }
    assert_eq!(memory.used_bytes(), 0);
    put(&kv, "0", "v".repeat(1000)).await.unwrap();
}

#[tokio::test]
async fn what_was_put_is_in_the_file_and_what_was_deleted_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not/there/kvConfig.json");
    let kv = open(&path).unwrap();
    assert!(RealDisk.list(&folder.path().join("not")).is_err(), "a start makes no folder");
    for key in ["a", "b", "c"] {
        put(&kv, key, format!("\"{key}\" \u{6807}\n")).await.unwrap();
    }
    delete(&kv, "b").await;
    let text = String::from_utf8(RealDisk.read(&path, 1000).unwrap()).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let values = serde_json::json!({"a": "\"a\" \u{6807}\n", "c": "\"c\" \u{6807}\n"});
    assert_eq!(json, serde_json::json!({"configTable": {"n": values}}));
    let again = open(&path).unwrap();
    assert_eq!(again.namespace("n"), kv.namespace("n"));
    RealDisk.remove_file(&path).unwrap();
    let backup = open(&path).unwrap();
    assert_eq!(backup.namespace("n").unwrap().len(), 3, "the version before the last change");
}

#[tokio::test]
async fn all_changes_of_many_callers_are_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kvConfig.json");
    let kv = open(&path).unwrap();
    let puts: Vec<_> = (0..300)
        .map(|number| {
            let kv = kv.clone();
            tokio::spawn(async move { put(&kv, &number.to_string(), "v".into()).await })
        })
        .collect();
    for one in puts {
        one.await.unwrap().unwrap();
    }
    assert_eq!(open(&path).unwrap().namespace("n").unwrap().len(), 300);
}

#[tokio::test]
async fn a_file_of_apache_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kvConfig.json");
    let text = r#"{"configTable":{"ORDER_TOPIC_CONFIG":{"orders":"broker-a:4;broker-b:8"},n:{a:"1"}}}"#;
    RealDisk.replace(&path, text.as_bytes()).unwrap();
    let kv = open(&path).unwrap();
    assert_eq!(kv.get(ORDER_TOPIC_CONFIG, "orders").as_deref(), Some("broker-a:4;broker-b:8"));
    assert_eq!(kv.get("n", "a").as_deref(), Some("1"));
}

#[tokio::test]
async fn a_damaged_file_is_refused_with_the_way_out_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kvConfig.json");
    for damaged in ["", "{\"configTable\":{\"n\":{\"a\":\"1", "\0\0\0\0", "[]"] {
        RealDisk.replace(&path, damaged.as_bytes()).unwrap();
        let error = open(&path).unwrap_err();
        assert!(error.to_string().contains("kvConfig.json"), "{error}");
        assert!(error.hint().unwrap().contains("kvConfig.json.bak"));
        assert!(!error.retryable());
        assert_eq!(RealDisk.read(&path, 1000).unwrap(), damaged.as_bytes());
    }
}

#[tokio::test]
async fn a_change_that_is_not_written_is_refused_and_not_seen() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config/kvConfig.json");
    let kv = open(&path).unwrap();
    RealDisk.replace(&folder.path().join("config"), b"a file where the folder should be").unwrap();
    assert!(matches!(put(&kv, "a", "1".into()).await, Err(Refusal::KvWrite(_))));
    assert_eq!(kv.get("n", "a"), None);
    RealDisk.remove_file(&folder.path().join("config")).unwrap();
    put(&kv, "b", "2".into()).await.unwrap();
    assert_eq!(open(&path).unwrap().namespace("n"), kv.namespace("n"));
}

#[tokio::test]
async fn the_file_has_a_bound_and_a_deleted_key_makes_room() {
    let (kv, _) = in_memory(1 << 30);
    let value = "\u{1}".repeat(1 << 16);
    let mut keys = 0;
    let refusal = loop {
        match put(&kv, &keys.to_string(), value.clone()).await {
            Ok(()) => keys += 1,
            Err(refusal) => break refusal,
        }
    };
    assert!(matches!(refusal, Refusal::KvFull { .. }), "{refusal}");
    let written = json::to_vec(&kv.seen.read().namespaces).len();
    assert!((MAX_ENTRY_BYTES / 10 * 9..=MAX_ENTRY_BYTES).contains(&written), "{written}");
    delete(&kv, "0").await;
    put(&kv, "again", value).await.unwrap();
}
