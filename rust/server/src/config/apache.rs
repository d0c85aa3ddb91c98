//! Apache's keys that are known and not used: those with one value, paths that cannot change, and those without a meaning here.

/// A key of Apache's of which only one value can be served yet.
#[derive(Clone, Copy, Debug)]
pub struct Fixed {
    /// Apache's name of it.
    pub name: &'static str,
    /// The value that can be served.
    pub only: &'static str,
    /// What another value needs.
    pub feature: &'static str,
}

/// Keys that would change what a user relies on: another value is an error, never ignored.
///
/// # Source
/// docs/reference/apache-5.5.0.md 4, docs/reference/store-format.md 14.
pub const FIXED: &[Fixed] = &[
    Fixed {
        name: "aclEnable",
        only: "false",
        feature: "ACL 1.0 (set authenticationEnabled, authorizationEnabled and migrateAuthFromV1Enabled)",
    },
    Fixed { name: "metricsInDelta", only: "false", feature: "delta temporality of metrics" },
    Fixed { name: "minInSyncReplicas", only: "1", feature: "replication" },
    Fixed { name: "totalReplicas", only: "1", feature: "replication" },
    Fixed { name: "enableControllerMode", only: "false", feature: "controller mode" },
    Fixed { name: "enableControllerInNamesrv", only: "false", feature: "controller mode" },
    Fixed { name: "enableDLegerCommitLog", only: "false", feature: "DLedger" },
    Fixed { name: "enableSlaveActingMaster", only: "false", feature: "acting masters" },
    Fixed { name: "supportActingMaster", only: "false", feature: "acting masters" },
    Fixed { name: "enableRemoteEscape", only: "false", feature: "acting masters" },
    Fixed { name: "duplicationEnable", only: "false", feature: "duplication" },
    Fixed { name: "storeType", only: "default", feature: "stores other than the file store" },
    Fixed { name: "autoMessageVersionOnTopicLen", only: "true", feature: "refusing long topic names" },
    Fixed {
        name: "replicasPerDiskPartition",
        only: "1",
        feature: "several brokers that share a disk's quota",
    },
    Fixed {
        name: "logicalDiskSpaceCleanForciblyThreshold",
        only: "0.8",
        feature: "several brokers that share a disk's quota",
    },
    Fixed { name: "transientStorePoolEnable", only: "false", feature: "the transient store pool" },
    Fixed { name: "enableLmq", only: "false", feature: "light message queues" },
    Fixed { name: "enableMultiDispatch", only: "false", feature: "light message queues" },
    Fixed { name: "transRocksDBEnable", only: "false", feature: "RocksDB" },
    Fixed { name: "timerRocksDBEnable", only: "false", feature: "RocksDB" },
    Fixed { name: "indexRocksDBEnable", only: "false", feature: "RocksDB" },
    Fixed { name: "indexFileWriteEnable", only: "true", feature: "an index other than the index files" },
    Fixed { name: "indexFileReadEnable", only: "true", feature: "an index other than the index files" },
    Fixed { name: "rocksdbCQDoubleWriteEnable", only: "false", feature: "RocksDB" },
    Fixed { name: "configManagerVersion", only: "v1", feature: "RocksDB" },
    Fixed { name: "fetchNameSrvAddrByDnsLookup", only: "false", feature: "name server look-up by DNS" },
    Fixed {
        name: "fetchNamesrvAddrByAddressServer",
        only: "false",
        feature: "name server look-up by an address server",
    },
    Fixed { name: "rejectPullConsumerEnable", only: "false", feature: "refusing pull consumers" },
    Fixed { name: "disableConsumeIfConsumerReadSlowly", only: "false", feature: "stopping slow consumers" },
    Fixed { name: "startAcceptSendRequestTimeStamp", only: "0", feature: "a start time for sends" },
    Fixed { name: "useStaticSubscription", only: "false", feature: "static subscriptions" },
    Fixed { name: "timerWheelEnable", only: "true", feature: "refusing timer messages" },
    // Slots of one second stand in the wheel's file, also in that of Apache's.
    Fixed { name: "timerPrecisionMs", only: "1000", feature: "a wheel of other slots" },
    Fixed { name: "messageStorePlugIn", only: "", feature: "store plug-ins" },
    Fixed { name: "filterServerNums", only: "0", feature: "filter servers" },
    Fixed { name: "defaultMessageRequestMode", only: "PULL", feature: "POP consumption" },
    Fixed {
        name: "coldDataFlowControlEnable",
        only: "false",
        feature: "limits of cold reads for groups without one of their own",
    },
    Fixed { name: "clusterTest", only: "false", feature: "routes of a different environment" },
    Fixed { name: "enableTopicList", only: "true", feature: "hiding the list of topics" },
    Fixed { name: "enableAllTopicList", only: "true", feature: "hiding the list of topics" },
    Fixed { name: "socksProxyConfig", only: "{}", feature: "SOCKS proxies" },
];

/// A key for the path of a part of the store that always has one place in the folder of the store.
///
/// No version of Apache's since 3.2.6 reads these keys, but old guides have them.
#[derive(Clone, Copy, Debug)]
pub struct StorePath {
    /// Name of the key.
    pub name: &'static str,
    /// Name of the file or folder in the folder of the store.
    pub place: &'static str,
}

/// Keys for paths that must name the one place of their file or folder.
pub const STORE_PATHS: &[StorePath] = &[
    StorePath { name: "storePathConsumeQueue", place: "consumequeue" },
    StorePath { name: "storePathConsumerQueue", place: "consumequeue" },
    StorePath { name: "storePathIndex", place: "index" },
    StorePath { name: "storeCheckpoint", place: "checkpoint" },
    StorePath { name: "storePathCheckpoint", place: "checkpoint" },
    StorePath { name: "abortFile", place: "abort" },
    StorePath { name: "storePathAbort", place: "abort" },
];

/// Other spellings of keys, each with the current one.
pub(super) const OLD_SPELLINGS: &[(&str, &str)] = &[
    ("mapedFileSizeCommitLog", "mappedFileSizeCommitLog"),
    ("mapedFileSizeConsumeQueue", "mappedFileSizeConsumeQueue"),
    ("tls.enable", "useTLS"),
];

/// Keys that are no fields of Apache's configuration and mean nothing here: one of guides that no version since 3.2.6 has, and properties
/// of TLS. Client certificates are always verified, and a server without a certificate has no TLS.
pub(super) const KEYS_OF_GUIDES: &[&str] = &[
    "checkTransactionMessageEnable",
    "tls.test.mode.enable",
    "tls.server.authClient",
    "tls.ciphers",
    "tls.protocols",
];

/// Keys of Apache's name server (`NamesrvConfig`).
pub(super) const NAME_SERVER_KEYS: &[&str] = &[
    "clientRequestThreadPoolNums",
    "clientRequestThreadPoolQueueCapacity",
    "clusterTest",
    "configBlackList",
    "configStorePath",
    "defaultThreadPoolNums",
    "defaultThreadPoolQueueCapacity",
    "deleteTopicWithBrokerRegistration",
    "enableAllTopicList",
    "enableControllerInNamesrv",
    "enableTopicList",
    "kvConfigPath",
    "needWaitForService",
    "notifyMinBrokerIdChanged",
    "orderMessageEnable",
    "productEnvName",
    "returnOrderTopicConfigToBroker",
    "rocketmqHome",
    "scanNotActiveBrokerInterval",
    "supportActingMaster",
    "unRegisterBrokerQueueCapacity",
    "waitSecondsForService",
];

/// Keys of the ports of Apache's servers (`NettyServerConfig`).
pub(super) const REMOTING_KEYS: &[&str] = &[
    "bindAddress",
    "enableShutdownGracefully",
    "listenPort",
    "serverAsyncSemaphoreValue",
    "serverCallbackExecutorThreads",
    "serverChannelMaxIdleTimeSeconds",
    "serverNettyWorkerGroupEnable",
    "serverOnewaySemaphoreValue",
    "serverPooledByteBufAllocatorEnable",
    "serverSelectorThreads",
    "serverSocketBacklog",
    "serverSocketRcvBufSize",
    "serverSocketSndBufSize",
    "serverWorkerThreads",
    "shutdownWaitTimeSeconds",
    "useEpollNativeSelector",
    "writeBufferHighWaterMark",
    "writeBufferLowWaterMark",
];

/// Apache's keys with type, default and versions: a header, then a line for each key, with tabs between the columns.
///
/// `tools/apache-keys/collect.py` makes it.
pub(super) const TABLE: &str = include_str!("apache-keys.tsv");
