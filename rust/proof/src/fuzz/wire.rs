//! Frames, headers and bodies.

use bytes::BytesMut;
use rocketpy_filter::TagFilter;
use rocketpy_protocol::body::*;
use rocketpy_protocol::compression::{CompressionType, DecompressLimits, decompress};
use rocketpy_protocol::header::*;
use rocketpy_protocol::message_id::{OffsetMessageId, UniqueKey};
use rocketpy_protocol::{Command, ExtFields, Header, decode_frame, json as text};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of a frame.
const MAX_FRAME_BYTES: usize = 1 << 20;

/// Frames that follow each other, as a connection delivers them.
pub(super) fn frame(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(frame)) = decode_frame(&mut buffer, MAX_FRAME_BYTES) {
        let Ok(command) = Command::decode(frame) else { return };
        headers(&command.ext);
        let mut again = BytesMut::new();
        command.encode(&mut again).expect("what was decoded can be encoded");
        let frame = decode_frame(&mut again, usize::MAX).expect("a sound frame").expect("a whole frame");
        assert_eq!(Command::decode(frame).as_ref(), Ok(&command), "what was decoded encodes to itself");
    }
}

/// Fields of a command, one a line, a name before the first `=`.
pub(super) fn header(bytes: &[u8]) {
    let Ok(lines) = str::from_utf8(bytes) else { return };
    headers(&lines.lines().filter_map(|line| line.split_once('=')).collect());
}

/// Reads headers out of the fields. What is read must write to itself.
macro_rules! read_headers {
    ($fields:expr; $($name:ident),* $(,)?) => {$(
        if let Ok(header) = $name::read($fields) {
            let mut written = ExtFields::new();
            header.write(&mut written);
            assert_eq!($name::read(&written), Ok(header), "a header that was read writes to itself");
        }
    )*};
}

/// Reads every header there is out of the fields.
fn headers(fields: &ExtFields) {
    headers_of_topics_and_groups(fields);
    headers_of_offsets_and_clients(fields);
    headers_of_routes_and_sends(fields);
}

fn headers_of_topics_and_groups(fields: &ExtFields) {
    read_headers!(
        fields;
        SendMessageRequestHeader,
        SendMessageRequestHeaderV2,
        CreateTopicRequestHeader,
        DeleteTopicRequestHeader,
        GetTopicConfigRequestHeader,
        GetTopicStatsInfoRequestHeader,
        GetAllTopicConfigRequestHeader,
        GetAllTopicConfigResponseHeader,
        GetAllSubscriptionGroupRequestHeader,
        GetAllSubscriptionGroupResponseHeader,
        QueryTopicConsumeByWhoRequestHeader,
        DeleteSubscriptionGroupRequestHeader,
        GetSubscriptionGroupConfigRequestHeader,
        GetConsumerConnectionListRequestHeader,
        GetProducerConnectionListRequestHeader,
        GetConsumeStatsRequestHeader,
        GetBrokerConsumeStatsRequestHeader,
        QueryConsumeTimeSpanRequestHeader,
        QueryTopicsByConsumerRequestHeader,
        QuerySubscriptionByConsumerRequestHeader,
        GetBrokerConfigResponseHeader,
        ViewBrokerStatsDataRequestHeader,
    );
}

fn headers_of_offsets_and_clients(fields: &ExtFields) {
    read_headers!(
        fields;
        PullMessageRequestHeader,
        PullMessageResponseHeader,
        QueryConsumerOffsetRequestHeader,
        QueryConsumerOffsetResponseHeader,
        UpdateConsumerOffsetRequestHeader,
        SearchOffsetRequestHeader,
        SearchOffsetResponseHeader,
        GetMaxOffsetRequestHeader,
        GetMaxOffsetResponseHeader,
        GetMinOffsetRequestHeader,
        GetMinOffsetResponseHeader,
        GetEarliestMsgStoretimeRequestHeader,
        GetEarliestMsgStoretimeResponseHeader,
        ViewMessageRequestHeader,
        QueryMessageRequestHeader,
        QueryMessageResponseHeader,
        UnregisterClientRequestHeader,
        GetConsumerListByGroupRequestHeader,
        NotifyConsumerIdsChangedRequestHeader,
        ResetOffsetRequestHeader,
        GetConsumerStatusRequestHeader,
        GetConsumerRunningInfoRequestHeader,
        ConsumeMessageDirectlyResultRequestHeader,
    );
}

fn headers_of_routes_and_sends(fields: &ExtFields) {
    read_headers!(
        fields;
        GetRouteInfoRequestHeader,
        RegisterBrokerRequestHeader,
        RegisterBrokerResponseHeader,
        UnRegisterBrokerRequestHeader,
        QueryDataVersionRequestHeader,
        QueryDataVersionResponseHeader,
        BrokerHeartbeatRequestHeader,
        GetBrokerMemberGroupRequestHeader,
        GetTopicsByClusterRequestHeader,
        WipeWritePermOfBrokerRequestHeader,
        WipeWritePermOfBrokerResponseHeader,
        AddWritePermOfBrokerRequestHeader,
        AddWritePermOfBrokerResponseHeader,
        DeleteTopicFromNamesrvRequestHeader,
        RegisterTopicRequestHeader,
        PutKVConfigRequestHeader,
        GetKVConfigRequestHeader,
        GetKVConfigResponseHeader,
        DeleteKVConfigRequestHeader,
        GetKVListByNamespaceRequestHeader,
        SendMessageResponseHeader,
        ConsumerSendMsgBackRequestHeader,
        EndTransactionRequestHeader,
        CheckTransactionStateRequestHeader,
        ReplyMessageRequestHeader,
    );
}

/// A body or a configuration file.
pub(super) fn json(bytes: &[u8]) {
    macro_rules! all {
        ($($name:ident),* $(,)?) => { $(body::<$name>(bytes);)* };
    }
    all!(
        GetConsumerListByGroupResponseBody,
        LockBatchRequestBody,
        LockBatchResponseBody,
        ConsumeStats,
        Statistics,
        BrokerConsumeStats,
        ConsumeTimeSpans,
        ResetOffsetBody,
        GetConsumerStatusBody,
        ConsumerConnection,
        ProducerConnection,
        SubscriptionGroupWrapper,
        SubscriptionGroupList,
        QueryConsumeQueueResponseBody,
        ColdDataFlowCtrInfo,
        SetMessageRequestModeRequestBody,
        ConsumerOffsetSerializeWrapper,
        HeartbeatData,
        CheckClientRequestBody,
        TopicRouteData,
        ClusterInfo,
        GetBrokerMemberGroupResponseBody,
        TopicList,
        KvTable,
        TopicConfigSerializeWrapper,
        TopicConfigFile,
        CreateTopicListRequestBody,
        TopicStatsTable,
        GroupList,
        RegisterBrokerBody,
        UserInfo,
        AclInfo,
    );
    let _ = RegisterBrokerBody::decode(bytes, false, None, 479);
    let _ = RegisterBrokerBody::decode(bytes, true, None, 479);
    let _ = RegisterBrokerBody::decode_sections(bytes, 479);
    for kind in [CompressionType::Zlib, CompressionType::Lz4, CompressionType::Zstd] {
        let _ =
            decompress(kind, bytes, &DecompressLimits { max_bytes: 1 << 20, ..DecompressLimits::default() });
    }
    if let Ok(line) = str::from_utf8(bytes) {
        let _ = TagFilter::parse(line).accepts_tag(Some("a"));
        if let Ok(id) = line.parse::<OffsetMessageId>() {
            assert_eq!(id.to_string().parse(), Ok(id), "an id writes to itself");
        }
        if let Ok(key) = line.parse::<UniqueKey>() {
            assert_eq!(key.to_string().parse(), Ok(key), "a key writes to itself");
        }
    }
}

/// What is read must be readable after it was written, and then be written in the same way.
fn body<T: Serialize + DeserializeOwned>(bytes: &[u8]) {
    let Ok(value) = text::from_slice::<T>(bytes) else { return };
    let written = text::to_vec(&value);
    let again = text::from_slice::<T>(&written);
    let again = again.unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&written)));
    assert_eq!(text::to_vec(&again), written, "what was read writes to itself");
    let _ = text::to_config_vec(&value);
}
