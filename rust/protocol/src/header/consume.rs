//! Pulling messages, offsets, membership of groups.

header! {
    /// A pull (codes 11 and 361).
    ///
    /// # Source
    /// docs/reference/protocol.md 2.3.3 and 5.1.
    PullMessageRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
        topic: &'a str = "topic",
        queue_id: i32 = "queueId",
        queue_offset: i64 = "queueOffset",
        max_msg_nums: i32 = "maxMsgNums",
        /// Bits of [`rocketpy_model::sys_flag::pull`].
        sys_flag: i32 = "sysFlag",
        commit_offset: i64 = "commitOffset",
        suspend_timeout_millis: i64 = "suspendTimeoutMillis",
        subscription: Option<&'a str> = "subscription",
        sub_version: i64 = "subVersion",
        expression_type: Option<&'a str> = "expressionType",
        max_msg_bytes: Option<i32> = "maxMsgBytes",
        request_source: Option<i32> = "requestSource",
        /// Spelt as on the wire.
        proxy_froward_client_id: Option<&'a str> = "proxyFrowardClientId",
        broker_name: Option<&'a str> = "bname",
    }
}

header! {
    /// The answer to a pull; answers without messages have the first four fields too.
    PullMessageResponseHeader<'a> {
        suggest_which_broker_id: i64 = "suggestWhichBrokerId",
        next_begin_offset: i64 = "nextBeginOffset",
        min_offset: i64 = "minOffset",
        max_offset: i64 = "maxOffset",
        offset_delta: Option<i64> = "offsetDelta",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
        forbidden_type: Option<i32> = "forbiddenType",
        region: Option<&'a str> = "MSG_REGION",
        trace_on: Option<&'a str> = "TRACE_ON",
    }
}

header! {
    /// Asks for the offset that a group has committed (code 14).
    QueryConsumerOffsetRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
        topic: &'a str = "topic",
        queue_id: i32 = "queueId",
        set_zero_if_not_found: Option<bool> = "setZeroIfNotFound",
        broker_name: Option<&'a str> = "bname",
    }
}

header! {
    /// The offset that a group has committed (answer of code 14).
    QueryConsumerOffsetResponseHeader {
        offset: i64 = "offset",
    }
}

header! {
    /// Commits an offset (code 15).
    UpdateConsumerOffsetRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
        topic: &'a str = "topic",
        queue_id: i32 = "queueId",
        commit_offset: i64 = "commitOffset",
        broker_name: Option<&'a str> = "bname",
    }
}

header! {
    /// Asks for the offset at a time (code 29).
    SearchOffsetRequestHeader<'a> {
        topic: &'a str = "topic",
        queue_id: i32 = "queueId",
        timestamp: i64 = "timestamp",
        /// `LOWER` (default) or `UPPER`, in any case.
        boundary_type: Option<&'a str> = "boundaryType",
        broker_name: Option<&'a str> = "bname",
    }
}

header! {
    /// The offset at a time (answer of code 29).
    SearchOffsetResponseHeader {
        offset: i64 = "offset",
    }
}

header! {
    /// Asks for the next offset to be written (code 30).
    GetMaxOffsetRequestHeader<'a> {
        topic: &'a str = "topic",
        queue_id: i32 = "queueId",
        committed: Option<bool> = "committed",
    }
}

header! {
    /// The end of a queue (answer of code 30).
    GetMaxOffsetResponseHeader {
        offset: i64 = "offset",
    }
}

header! {
    /// Asks for the first offset (code 31).
    GetMinOffsetRequestHeader<'a> {
        topic: &'a str = "topic",
        queue_id: i32 = "queueId",
    }
}

header! {
    /// The start of a queue (answer of code 31).
    GetMinOffsetResponseHeader {
        offset: i64 = "offset",
    }
}

header! {
    /// Asks for the store time of the first message (code 32).
    GetEarliestMsgStoretimeRequestHeader<'a> {
        topic: &'a str = "topic",
        queue_id: i32 = "queueId",
    }
}

header! {
    /// When the first message of a queue was stored (answer of code 32).
    GetEarliestMsgStoretimeResponseHeader {
        /// -1 when there is none.
        timestamp: i64 = "timestamp",
    }
}

header! {
    /// Asks for the record at a physical offset (code 33).
    ViewMessageRequestHeader<'a> {
        topic: Option<&'a str> = "topic",
        offset: i64 = "offset",
    }
}

header! {
    /// Asks for messages by key (code 12).
    QueryMessageRequestHeader<'a> {
        topic: &'a str = "topic",
        key: &'a str = "key",
        max_num: i32 = "maxNum",
        begin_timestamp: i64 = "beginTimestamp",
        end_timestamp: i64 = "endTimestamp",
        /// Apache's 5.4 and later: `K` a key, `U` a unique key, `T` a tag.
        index_type: Option<&'a str> = "indexType",
        /// Where the former answer ended, for brokers that keep their index in RocksDB. Index files have no such place.
        last_key: Option<&'a str> = "lastKey",
        is_unique_key: Option<bool> = "_UNIQUE_KEY_QUERY",
    }
}

header! {
    /// How far the index reaches (answer of code 12).
    QueryMessageResponseHeader {
        index_last_update_timestamp: i64 = "indexLastUpdateTimestamp",
        index_last_update_phyoffset: i64 = "indexLastUpdatePhyoffset",
    }
}

header! {
    /// A client leaves its groups (code 35).
    UnregisterClientRequestHeader<'a> {
        client_id: &'a str = "clientID",
        producer_group: Option<&'a str> = "producerGroup",
        consumer_group: Option<&'a str> = "consumerGroup",
    }
}

header! {
    /// Asks for the live members of a group (code 38).
    GetConsumerListByGroupRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
    }
}

header! {
    /// The broker tells members that their group changed (code 40).
    NotifyConsumerIdsChangedRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
    }
}

header! {
    /// The broker tells members to reset their offsets (code 220).
    ResetOffsetRequestHeader<'a> {
        topic: &'a str = "topic",
        group: &'a str = "group",
        timestamp: i64 = "timestamp",
        is_force: Option<bool> = "isForce",
        queue_id: Option<i32> = "queueId",
        offset: Option<i64> = "offset",
    }
}

header! {
    /// The broker asks a member for its offsets (code 221).
    GetConsumerStatusRequestHeader<'a> {
        topic: &'a str = "topic",
        group: &'a str = "group",
        client_addr: Option<&'a str> = "clientAddr",
    }
}

header! {
    /// Asks what a member is doing (code 307), passed on by the broker.
    GetConsumerRunningInfoRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
        client_id: &'a str = "clientId",
        jstack_enable: Option<bool> = "jstackEnable",
    }
}

header! {
    /// Asks a member to consume one message now (code 309).
    ConsumeMessageDirectlyResultRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
        client_id: Option<&'a str> = "clientId",
        msg_id: Option<&'a str> = "msgId",
        broker_name: Option<&'a str> = "brokerName",
        topic: Option<&'a str> = "topic",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        group_sys_flag: Option<i32> = "groupSysFlag",
    }
}
