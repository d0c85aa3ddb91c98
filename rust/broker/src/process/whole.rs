//! Whole tables, as slaves and tools ask for them.
//!
//! # Source
//! docs/reference/protocol.md 2.6.1, 2.6.3 and 2.6.5.

use std::collections::BTreeMap;

use rocketpy_protocol::Header;
use rocketpy_protocol::body::{
    ConsumerOffsetSerializeWrapper, ProducerInfo, ProducerTableInfo, QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody, TopicList,
};
use rocketpy_protocol::header::{
    QueryCorrectionOffsetRequestHeader, QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader, ResumeCheckHalfMessageRequestHeader,
};
use rocketpy_remoting::{Reply, Response};

use crate::call::{Answer, Call, answer_from_header, success_json};
use crate::operation::administer::{self, LowestOffset};
use crate::table::topic::is_system;

/// GET_ALL_CONSUMER_OFFSET.
pub(super) fn consumer_offsets(Call { desk, .. }: Call<'_>) -> Answer {
    // The numbers first: offsets of a topic that is created again meanwhile then count as those of the earlier one.
    let creation_table = desk.ground.creations().all();
    let content = desk.members.offsets().content();
    Ok(success_json(&ConsumerOffsetSerializeWrapper { creation_table, ..content }))
}

/// GET_ALL_DELAY_OFFSET.
pub(super) fn delay_offsets(Call { desk, .. }: Call<'_>) -> Answer {
    Ok(success_json(&*desk.delays.content()))
}

/// GET_SYSTEM_TOPIC_LIST_FROM_BROKER.
pub(super) fn system_topics(Call { desk, .. }: Call<'_>) -> Answer {
    let (_, topics) = desk.ground.topics().all();
    let of_system = topics.into_keys().filter(|name| is_system(name, &desk.ground.config()));
    Ok(success_json(&TopicList {
        broker_addr: None,
        topic_list: of_system.map(|name| name.to_string()).collect(),
    }))
}

/// GET_ALL_PRODUCER_INFO.
pub(super) fn producers(Call { desk, .. }: Call<'_>) -> Answer {
    let info = |member: &crate::table::client::Member| ProducerInfo {
        client_id: member.client_id.to_string(),
        language: member.language.name().to_owned(),
        last_update_timestamp: member.heard_at_ms(),
        remote_ip: member.connection.peer().to_string(),
        version: member.version,
    };
    let mut data = BTreeMap::new();
    for (group, members) in desk.members.clients().producers() {
        let mut infos: Vec<ProducerInfo> = members.iter().map(info).collect();
        infos.sort_unstable();
        data.insert(group, infos);
    }
    Ok(success_json(&ProducerTableInfo { data }))
}

/// QUERY_TOPICS_BY_CONSUMER: topics of which a group has offsets.
pub(super) fn topics_of_group(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = QueryTopicsByConsumerRequestHeader::read(&request.ext)?;
    let mut topic_list = desk.members.offsets().topics_of(header.group);
    topic_list.sort_unstable();
    Ok(success_json(&TopicList { broker_addr: None, topic_list }))
}

/// QUERY_SUBSCRIPTION_BY_CONSUMER.
pub(super) fn subscription(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = QuerySubscriptionByConsumerRequestHeader::read(&request.ext)?;
    let view = desk.members.clients().consumer_group(header.group);
    let subscription = view.and_then(|mut view| view.subscriptions.remove(header.topic));
    Ok(success_json(&QuerySubscriptionResponseBody {
        group: header.group.to_owned(),
        subscription_data: subscription.map(|subscription| subscription.data.clone()),
        topic: header.topic.to_owned(),
    }))
}

/// QUERY_CORRECTION_OFFSET: lowest offset of any group per queue; none where the compared group has a lower one.
pub(super) fn correction(Call { desk, request, .. }: Call<'_>) -> Answer {
    let header = QueryCorrectionOffsetRequestHeader::read(&request.ext)?;
    let left_out = header.filter_groups.into_iter().flat_map(|list| list.split(','));
    let compared = header.compare_group.filter(|group| !group.is_empty());
    let lowest = administer::lowest_offsets(&desk.ground, &desk.members, header.topic, left_out, compared);
    let to_wire = |(queue_id, lowest)| match lowest {
        LowestOffset::OfGroups(offset) => (queue_id as i32, offset),
        LowestOffset::OfCompared => (queue_id as i32, i64::MAX),
    };
    Ok(success_json(&QueryCorrectionOffsetBody {
        correction_offsets: lowest.into_iter().map(to_wire).collect(),
    }))
}

/// RESUME_CHECK_HALF_MESSAGE: a half message that was given up becomes one again, and its producer is asked from the beginning.
pub(super) fn resume_check(call: Call<'_>, reply: Reply) {
    let connection_id = call.connection.id();
    answer_from_header(call, reply, |owner, request| async move {
        let header = ResumeCheckHalfMessageRequestHeader::read(&request.ext)?;
        administer::resume_check(&owner.intake, &owner.reads.look_ups, connection_id, header.msg_id).await?;
        Ok(Response::success())
    });
}
