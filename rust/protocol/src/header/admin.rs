//! Topics, groups and their progress, as tools ask for them.

header! {
    /// Creates or changes a topic (code 17).
    CreateTopicRequestHeader<'a> {
        topic: &'a str = "topic",
        default_topic: &'a str = "defaultTopic",
        read_queue_nums: i32 = "readQueueNums",
        write_queue_nums: i32 = "writeQueueNums",
        perm: i32 = "perm",
        topic_filter_type: &'a str = "topicFilterType",
        topic_sys_flag: Option<i32> = "topicSysFlag",
        order: Option<bool> = "order",
        /// `+name=value` and `-name`, with commas between.
        attributes: Option<&'a str> = "attributes",
        force: Option<bool> = "force",
    }
}

header! {
    /// Deletes a topic on a broker (code 215).
    DeleteTopicRequestHeader<'a> {
        topic: &'a str = "topic",
    }
}

header! {
    /// Asks for a topic's configuration (code 351).
    GetTopicConfigRequestHeader<'a> {
        topic: &'a str = "topic",
        logical: Option<bool> = "lo",
    }
}

header! {
    /// Asks for the bounds of a topic's queues (code 202).
    GetTopicStatsInfoRequestHeader<'a> {
        topic: &'a str = "topic",
    }
}

header! {
    /// Asks which groups read a topic (code 300).
    QueryTopicConsumeByWhoRequestHeader<'a> {
        topic: &'a str = "topic",
    }
}

header! {
    /// Asks whether a group may read a topic, and changes it (code 353).
    UpdateGroupForbiddenRequestHeader<'a> {
        group: &'a str = "group",
        topic: &'a str = "topic",
        /// Absent: nothing changes.
        readable: Option<bool> = "readable",
    }
}

header! {
    /// Removes a quota (code 10922).
    RemoveQuotaRequestHeader<'a> {
        scope: &'a str = "scope",
        name: &'a str = "name",
    }
}

header! {
    /// Deletes a group (code 207).
    DeleteSubscriptionGroupRequestHeader<'a> {
        group_name: &'a str = "groupName",
        clean_offset: Option<bool> = "cleanOffset",
    }
}

header! {
    /// Asks for a group's configuration (code 352).
    GetSubscriptionGroupConfigRequestHeader<'a> {
        group: &'a str = "group",
    }
}

header! {
    /// Asks for the members of a consumer group (code 203).
    GetConsumerConnectionListRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
    }
}

header! {
    /// Asks for the members of a producer group (code 204).
    GetProducerConnectionListRequestHeader<'a> {
        producer_group: &'a str = "producerGroup",
    }
}

header! {
    /// Asks how far a group is (code 208).
    GetConsumeStatsRequestHeader<'a> {
        consumer_group: &'a str = "consumerGroup",
        topic: Option<&'a str> = "topic",
        /// Topics with `;` between; wins over `topic`.
        topic_list: Option<&'a str> = "topicList",
    }
}

header! {
    /// Asks how far all groups of a broker are (code 317).
    GetBrokerConsumeStatsRequestHeader {
        /// Whether only ordered topics count.
        is_order: bool = "isOrder",
    }
}

header! {
    /// Asks for the times of a topic's messages, and how far a group is (code 303).
    QueryConsumeTimeSpanRequestHeader<'a> {
        topic: &'a str = "topic",
        group: &'a str = "group",
    }
}

header! {
    /// Asks which topics a group reads (code 343).
    QueryTopicsByConsumerRequestHeader<'a> {
        group: &'a str = "group",
    }
}

header! {
    /// Asks for a group's subscription to a topic (code 345).
    QuerySubscriptionByConsumerRequestHeader<'a> {
        group: &'a str = "group",
        topic: &'a str = "topic",
    }
}

header! {
    /// Asks for the lowest offset that any group has committed, queue by queue (code 308).
    QueryCorrectionOffsetRequestHeader<'a> {
        /// Groups that do not count, with commas between.
        filter_groups: Option<&'a str> = "filterGroups",
        /// A group that is ahead of them.
        compare_group: Option<&'a str> = "compareGroup",
        topic: &'a str = "topic",
    }
}

header! {
    /// Gives a group the offsets of another one (code 314).
    CloneGroupOffsetRequestHeader<'a> {
        src_group: &'a str = "srcGroup",
        dest_group: &'a str = "destGroup",
        /// Absent: all topics of the first group.
        topic: Option<&'a str> = "topic",
        offline: Option<bool> = "offline",
    }
}

header! {
    /// Asks for entries of a consume queue (code 321).
    QueryConsumeQueueRequestHeader<'a> {
        topic: &'a str = "topic",
        queue_id: i32 = "queueId",
        /// Queue offset of the first entry.
        index: i64 = "index",
        count: i32 = "count",
        /// A group whose subscription is compared with the entries.
        consumer_group: Option<&'a str> = "consumerGroup",
    }
}

header! {
    /// Has a half message that was given up asked for again (code 323).
    ResumeCheckHalfMessageRequestHeader<'a> {
        topic: Option<&'a str> = "topic",
        /// Its offset message id.
        msg_id: &'a str = "msgId",
    }
}

header! {
    /// Asks for all topics of a broker (code 21).
    GetAllTopicConfigRequestHeader<'a> {
        /// Topics before the page.
        topic_seq: Option<i32> = "topicSeq",
        /// As JSON: what the asker knows.
        data_version: Option<&'a str> = "dataVersion",
        /// Most topics of a page; absent: all at once.
        max_topic_num: Option<i32> = "maxTopicNum",
    }
}

header! {
    /// Answers with topics of a broker, in pages.
    GetAllTopicConfigResponseHeader {
        /// Topics of the whole table; absent: the body is complete.
        total_topic_num: Option<i32> = "totalTopicNum",
    }
}

header! {
    /// Asks for all consumer groups of a broker (code 201).
    GetAllSubscriptionGroupRequestHeader<'a> {
        /// Groups before the page.
        group_seq: Option<i32> = "groupSeq",
        /// As JSON: what the asker knows.
        data_version: Option<&'a str> = "dataVersion",
        /// Most groups of a page; absent: all at once.
        max_group_num: Option<i32> = "maxGroupNum",
    }
}

header! {
    /// Answers with consumer groups of a broker, in pages.
    GetAllSubscriptionGroupResponseHeader {
        /// Groups of the whole table; absent: the body is complete.
        total_group_num: Option<i32> = "totalGroupNum",
    }
}
