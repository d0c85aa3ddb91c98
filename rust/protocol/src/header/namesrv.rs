//! Requests to a name server, of clients, tools and brokers.

header! {
    /// Asks for a topic's route (code 105).
    GetRouteInfoRequestHeader<'a> {
        topic: &'a str = "topic",
        accept_standard_json_only: Option<bool> = "acceptStandardJsonOnly",
    }
}

header! {
    /// A broker registers itself and its topics (code 103).
    ///
    /// # Source
    /// docs/reference/protocol.md 2.2.1.
    RegisterBrokerRequestHeader<'a> {
        broker_name: &'a str = "brokerName",
        broker_addr: &'a str = "brokerAddr",
        cluster_name: &'a str = "clusterName",
        ha_server_addr: &'a str = "haServerAddr",
        broker_id: i64 = "brokerId",
        heartbeat_timeout_millis: Option<i64> = "heartbeatTimeoutMillis",
        enable_acting_master: Option<bool> = "enableActingMaster",
        compressed: Option<bool> = "compressed",
        /// CRC-32 of the body, top bit cleared; 0 is not checked.
        body_crc32: Option<i32> = "bodyCrc32",
        zone_name: Option<&'a str> = "__ZONE_NAME",
        zone_mode: Option<&'a str> = "__ZONE_MODE",
        /// Equal for all brokers of a name that know one token. Not Apache's.
        member_proof: Option<&'a str> = "memberProof",
    }
}

header! {
    /// What a slave is told of its master (answer of code 103).
    RegisterBrokerResponseHeader<'a> {
        ha_server_addr: Option<&'a str> = "haServerAddr",
        master_addr: Option<&'a str> = "masterAddr",
    }
}

header! {
    /// A broker unregisters (code 104).
    UnRegisterBrokerRequestHeader<'a> {
        broker_name: &'a str = "brokerName",
        broker_addr: &'a str = "brokerAddr",
        cluster_name: &'a str = "clusterName",
        broker_id: i64 = "brokerId",
    }
}

header! {
    /// A broker asks whether its topics changed (code 322).
    QueryDataVersionRequestHeader<'a> {
        broker_name: &'a str = "brokerName",
        broker_addr: &'a str = "brokerAddr",
        cluster_name: &'a str = "clusterName",
        broker_id: i64 = "brokerId",
    }
}

header! {
    /// Whether a broker has to register again (answer of code 322).
    QueryDataVersionResponseHeader {
        changed: bool = "changed",
    }
}

header! {
    /// A broker says that it is alive (code 904).
    BrokerHeartbeatRequestHeader<'a> {
        cluster_name: &'a str = "clusterName",
        broker_addr: &'a str = "brokerAddr",
        broker_name: &'a str = "brokerName",
        broker_id: Option<i64> = "brokerId",
        epoch: Option<i32> = "epoch",
        max_offset: Option<i64> = "maxOffset",
        confirm_offset: Option<i64> = "confirmOffset",
        /// Spelt as on the wire.
        heartbeat_timeout_mills: Option<i64> = "heartbeatTimeoutMills",
        election_priority: Option<i32> = "electionPriority",
    }
}

header! {
    /// Asks for the brokers of one name (code 901).
    GetBrokerMemberGroupRequestHeader<'a> {
        cluster_name: &'a str = "clusterName",
        broker_name: &'a str = "brokerName",
    }
}

header! {
    /// Asks for the topics of a cluster (code 224).
    GetTopicsByClusterRequestHeader<'a> {
        cluster: &'a str = "cluster",
    }
}

header! {
    /// Takes the write permission of a broker's topics away (code 205).
    WipeWritePermOfBrokerRequestHeader<'a> {
        broker_name: &'a str = "brokerName",
    }
}

header! {
    /// How many topics lost the permission (answer of code 205).
    WipeWritePermOfBrokerResponseHeader {
        wipe_topic_count: i32 = "wipeTopicCount",
    }
}

header! {
    /// Gives the write permission of a broker's topics back (code 327).
    AddWritePermOfBrokerRequestHeader<'a> {
        broker_name: &'a str = "brokerName",
    }
}

header! {
    /// How many topics got the permission (answer of code 327).
    AddWritePermOfBrokerResponseHeader {
        add_topic_count: i32 = "addTopicCount",
    }
}

header! {
    /// Removes a topic from the route table (code 216): of all brokers, of a cluster, or of one broker, which Apache's name server ignores.
    DeleteTopicFromNamesrvRequestHeader<'a> {
        topic: &'a str = "topic",
        cluster_name: Option<&'a str> = "clusterName",
        broker_name: Option<&'a str> = "brokerName",
    }
}

header! {
    /// Adds a topic to the route table (code 217); the body is its route.
    RegisterTopicRequestHeader<'a> {
        topic: &'a str = "topic",
    }
}

header! {
    /// Sets a value of the key-value configuration (code 100).
    PutKVConfigRequestHeader<'a> {
        namespace: &'a str = "namespace",
        key: &'a str = "key",
        value: &'a str = "value",
    }
}

header! {
    /// Reads a value of the key-value configuration (code 101).
    GetKVConfigRequestHeader<'a> {
        namespace: &'a str = "namespace",
        key: &'a str = "key",
    }
}

header! {
    /// A value of the name server (answer of code 101).
    GetKVConfigResponseHeader<'a> {
        value: Option<&'a str> = "value",
    }
}

header! {
    /// Removes a value of the key-value configuration (code 102).
    DeleteKVConfigRequestHeader<'a> {
        namespace: &'a str = "namespace",
        key: &'a str = "key",
    }
}

header! {
    /// Reads a namespace of the key-value configuration (code 219).
    GetKVListByNamespaceRequestHeader<'a> {
        namespace: &'a str = "namespace",
    }
}
