//! Whole tables, as slaves and tools ask for them.
//!
//! # Source
//! docs/reference/protocol.md 2.6.1, 2.6.3 and 2.6.5.

use std::collections::{BTreeMap, BTreeSet};

use rocketpy_model::{property, system};
use rocketpy_protocol::Header;
use rocketpy_protocol::body::{
    ConsumerOffsetSerializeWrapper, ProducerInfo, ProducerTableInfo, QueryCorrectionOffsetBody,
    QuerySubscriptionResponseBody, TopicList,
};
use rocketpy_protocol::header::{
    QueryCorrectionOffsetRequestHeader, QuerySubscriptionByConsumerRequestHeader,
    QueryTopicsByConsumerRequestHeader, ResumeCheckHalfMessageRequestHeader,
};
use rocketpy_protocol::message_id::OffsetMessageId;
use rocketpy_protocol::record::RecordView;
use rocketpy_remoting::{Reply, Response};

use crate::call::{Answer, Call, answer_from_header, success_json};
use crate::disk_read::look_up_aside;
use crate::put::StoredAgain;
use crate::refusal::Refusal;
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
    let mut groups = BTreeSet::from_iter(desk.members.offsets().groups_of(header.topic));
    for left_out in header.filter_groups.into_iter().flat_map(|list| list.split(',')) {
        groups.remove(left_out);
    }
    let queues = desk.ground.topics().get(header.topic).map_or(0, |topic| topic.queues());
    let mut body = QueryCorrectionOffsetBody::default();
    for queue_id in 0..queues {
        let offsets =
            groups.iter().filter_map(|group| desk.members.offsets().get(group, header.topic, queue_id));
        let lowest = offsets.min();
        let Some(lowest) = lowest else { continue };
        let compared = header.compare_group.filter(|group| !group.is_empty());
        let compared = compared.and_then(|group| desk.members.offsets().get(group, header.topic, queue_id));
        let is_behind = compared.is_some_and(|offset| offset < lowest);
        body.correction_offsets.insert(queue_id as i32, if is_behind { i64::MAX } else { lowest });
    }
    Ok(success_json(&body))
}

/// RESUME_CHECK_HALF_MESSAGE: a half message that was given up becomes one again, and its producer is asked from the beginning.
pub(super) fn resume_check(call: Call<'_>, reply: Reply) {
    let connection_id = call.connection.id();
    answer_from_header(call, reply, |owner, request| async move {
        let header = ResumeCheckHalfMessageRequestHeader::read(&request.ext)?;
        let wanted = "the offset message id of a half message that was given up";
        let bad = || Refusal::Value { field: "msgId", wanted, value: header.msg_id.to_owned() };
        let place: OffsetMessageId = header.msg_id.parse().map_err(|_| bad())?;
        let (store, at) = (owner.ground.store().clone(), place.physical_offset);
        let bytes =
            look_up_aside(&owner.reads.look_ups, connection_id, move || store.record_at(at)).await??;
        let bytes = bytes.ok_or(Refusal::NoMessageAt { offset: at.to_wire() })?;
        let record = RecordView::parse(&bytes).map_err(|_| Refusal::NoMessageAt { offset: at.to_wire() })?;
        let is_half = record.property(property::REAL_TOPIC).is_some();
        if !is_half || record.topic != system::TRANSACTION_CHECK_MAX_TIME_TOPIC {
            return Err(bad());
        }
        let again = StoredAgain::of(&record)
            .to(system::HALF_TOPIC, 0)
            .without_property(property::TRANSACTION_CHECK_TIMES);
        drop(again.put(&owner.intake).await?);
        Ok(Response::success())
    });
}
