//! The table of requests: for each code that a broker can get, the function that serves it, or why none does.
//!
//! What is true of a request whoever serves it (its effect, who asks) is in [`rocketpy_protocol::code::request`].

use rocketpy_protocol::body::MessageRequestModes;
use rocketpy_protocol::code::{AfterDispatch, Handling};
use rocketpy_protocol::{Command, request_table};
use rocketpy_remoting::{Reply, Response};

use super::{
    accounts, client, end_transaction, forward, group, held, message, offset, quota, recall, reset, send,
    send_back, send_reply, state, statistics, topic, tuning, whole,
};
use crate::call::{Call, Function, Serve, success_json};

/// Treatment of a request.
#[derive(Debug)]
pub(crate) enum Route {
    /// The function sends the answer, at once or later.
    Replies(fn(Call<'_>, Reply)),
    /// The function returns the answer.
    Answers { function: Function, waits: Waits },
    /// The answer is REQUEST_CODE_NOT_SUPPORTED.
    Refused { why: &'static str },
}

/// Whether an answer waits until dispatch has reached what readers may see of the log when the request comes. It has to when it
/// comes from consume queues or index: whoever got an acknowledgement before asks for a message that is there.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Waits {
    No,
    Yes,
    /// It waits, but not for a request of which `test` is true; `says` describes it.
    Unless {
        test: fn(&Command) -> bool,
        says: &'static str,
    },
}

impl Waits {
    pub(super) fn for_dispatch(self, request: &Command) -> bool {
        match self {
            Self::No => false,
            Self::Yes => true,
            Self::Unless { test, .. } => !test(request),
        }
    }
}

const fn answers(function: Serve) -> Route {
    Route::Answers { function: Function::AtOnce(function), waits: Waits::No }
}

const fn looks_up(function: Serve) -> Route {
    Route::Answers { function: Function::LookUp(function), waits: Waits::No }
}

const fn surveys(function: Serve) -> Route {
    Route::Answers { function: Function::Survey(function), waits: Waits::No }
}

const fn surveys_once_dispatched(function: Serve) -> Route {
    Route::Answers { function: Function::Survey(function), waits: Waits::Yes }
}

const fn looks_up_once_dispatched(function: Serve) -> Route {
    Route::Answers { function: Function::LookUp(function), waits: Waits::Yes }
}

const fn refused(why: &'static str) -> Route {
    Route::Refused { why }
}

request_table! {
    Route:

    // Messages.
    SEND_MESSAGE | SEND_MESSAGE_V2 | SEND_BATCH_MESSAGE => Route::Replies(send::send);
    PULL_MESSAGE | LITE_PULL_MESSAGE => Route::Replies(held::pull);
    VIEW_MESSAGE_BY_ID => looks_up(message::view);
    QUERY_MESSAGE => looks_up_once_dispatched(message::query);
    QUERY_CONSUME_QUEUE => looks_up_once_dispatched(message::query_queue);
    CONSUMER_SEND_MSG_BACK => Route::Replies(send_back::send_back);
    END_TRANSACTION => Route::Replies(end_transaction::end);
    RECALL_MESSAGE => Route::Replies(recall::recall);
    SEND_REPLY_MESSAGE | SEND_REPLY_MESSAGE_V2 => Route::Replies(send_reply::send_reply);

    // Offsets.
    QUERY_CONSUMER_OFFSET => Route::Answers {
        function: Function::LookUpUnless {
            test: |desk, request| offset::is_known(&desk.ground, &desk.members, request),
            serve: offset::query,
        },
        waits: Waits::Unless { test: offset::is_of_stored, says: "setZeroIfNotFound=false" },
    };
    UPDATE_CONSUMER_OFFSET => Route::Replies(offset::update);
    GET_MAX_OFFSET => Route::Answers {
        function: Function::AtOnce(offset::max),
        waits: Waits::Unless { test: offset::is_of_next, says: "committed=false" },
    };
    GET_MIN_OFFSET => answers(offset::min);
    SEARCH_OFFSET_BY_TIMESTAMP => looks_up_once_dispatched(offset::search);
    GET_EARLIEST_MSG_STORETIME => looks_up(offset::earliest_stored_at);
    INVOKE_BROKER_TO_RESET_OFFSET => Route::Replies(reset::reset);
    INVOKE_BROKER_TO_GET_CONSUMER_STATUS => Route::Replies(reset::status);
    CLONE_GROUP_OFFSET => Route::Replies(reset::copy);

    // Clients.
    HEART_BEAT => Route::Replies(client::heartbeat);
    UNREGISTER_CLIENT => answers(client::unregister);
    CHECK_CLIENT_CONFIG => answers(client::check);
    GET_CONSUMER_LIST_BY_GROUP => answers(client::list);
    LOCK_BATCH_MQ => Route::Replies(client::lock_queues);
    UNLOCK_BATCH_MQ => answers(client::unlock_queues);
    GET_CONSUMER_CONNECTION_LIST => answers(client::consumer_connections);
    GET_PRODUCER_CONNECTION_LIST => answers(client::producer_connections);

    GET_ALL_PRODUCER_INFO => answers(whole::producers);
    GET_CONSUMER_RUNNING_INFO => Route::Replies(forward::running_info);
    CONSUME_MESSAGE_DIRECTLY => Route::Replies(forward::consume_directly);

    // Topics.
    UPDATE_AND_CREATE_TOPIC => Route::Replies(topic::put);
    UPDATE_AND_CREATE_TOPIC_LIST => Route::Replies(topic::put_list);
    CLEAN_UNUSED_TOPIC => Route::Replies(topic::clean_unused);
    DELETE_TOPIC_IN_BROKER => Route::Replies(topic::delete);
    GET_ALL_TOPIC_CONFIG => answers(topic::all);
    GET_TOPIC_CONFIG => answers(topic::get);
    GET_TOPIC_STATS_INFO => surveys_once_dispatched(topic::stats);

    GET_SYSTEM_TOPIC_LIST_FROM_BROKER => answers(whole::system_topics);

    // Consumer groups.
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP => Route::Replies(group::put);
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST => Route::Replies(group::put_list);
    GET_SUBSCRIPTIONGROUP_CONFIG => answers(group::get);
    DELETE_SUBSCRIPTIONGROUP => Route::Replies(group::delete);
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG => answers(group::all);
    UPDATE_AND_GET_GROUP_FORBIDDEN => Route::Replies(group::forbid);
    GET_CONSUME_STATS => surveys_once_dispatched(group::consume_stats);
    GET_BROKER_CONSUME_STATS => surveys_once_dispatched(statistics::of_groups);
    QUERY_CONSUME_TIME_SPAN => surveys_once_dispatched(statistics::time_spans);
    QUERY_TOPIC_CONSUME_BY_WHO => answers(group::of_topic);

    QUERY_TOPICS_BY_CONSUMER => answers(whole::topics_of_group);
    QUERY_SUBSCRIPTION_BY_CONSUMER => answers(whole::subscription);
    QUERY_CORRECTION_OFFSET => surveys(whole::correction);
    RESUME_CHECK_HALF_MESSAGE => Route::Replies(whole::resume_check);

    // The broker itself.
    GET_ALL_CONSUMER_OFFSET => answers(whole::consumer_offsets);
    GET_ALL_DELAY_OFFSET => answers(whole::delay_offsets);
    GET_BROKER_CONFIG => answers(state::config);
    UPDATE_BROKER_CONFIG => Route::Replies(state::update_config);
    GET_BROKER_RUNTIME_INFO => surveys(state::runtime_info);
    VIEW_BROKER_STATS_DATA => answers(statistics::item);
    DELETE_EXPIRED_COMMITLOG => answers(|call| {
        call.desk.ground.store().delete_expired();
        Ok(Response::success())
    });
    // A round of retention: files of consume queues go with the log's. Queues stay: their numbers are nowhere else.
    CLEAN_EXPIRED_CONSUMEQUEUE => surveys(|call| {
        call.desk.ground.store().clean()?;
        Ok(Response::success())
    });

    GET_TIMER_CHECK_POINT => answers(|call| state::timer_checkpoint(&call.desk.timers));
    GET_TIMER_METRICS => answers(|Call { desk, .. }| state::timer_metrics(desk.ground.topics(), &desk.timers));
    GET_ALL_MESSAGE_REQUEST_MODE => answers(|_| Ok(success_json(&MessageRequestModes::default())));
    GET_BROKER_HA_STATUS => surveys(state::ha_status);
    CHANGE_BROKER_ROLE => Route::Replies(state::change_role);
    COPY_LOG => looks_up(state::copy_log);
    LEAVE_MASTER => surveys(state::leave_master);
    COPY_TABLES => Route::Replies(state::copy_tables);
    EXCHANGE_BROKER_HA_INFO => answers(|Call { desk, .. }| state::ha_info(desk.ground.store(), &desk.endpoints));

    AUTH_CREATE_USER
    | AUTH_UPDATE_USER
    | AUTH_DELETE_USER
    | AUTH_CREATE_ACL
    | AUTH_UPDATE_ACL
    | AUTH_DELETE_ACL => Route::Replies(accounts::change);
    AUTH_GET_USER | AUTH_LIST_USER | AUTH_GET_ACL | AUTH_LIST_ACL => answers(accounts::ask);
    COPY_ACCOUNTS => answers(accounts::copy);

    GET_QUOTAS => answers(quota::list);
    SET_QUOTA => Route::Replies(quota::set);
    REMOVE_QUOTA => Route::Replies(quota::remove);

    UPDATE_COLD_DATA_FLOW_CTR_CONFIG => Route::Replies(tuning::limit_cold_reads);
    REMOVE_COLD_DATA_FLOW_CTR_CONFIG => Route::Replies(tuning::unlimit_cold_reads);
    GET_COLD_DATA_FLOW_CTR_INFO => answers(tuning::cold_reads);
    SET_COMMITLOG_READ_MODE => answers(tuning::set_read_mode);
    SWITCH_TIMER_ENGINE => answers(tuning::switch_timers);
    SET_MESSAGE_REQUEST_MODE => answers(tuning::set_request_mode);
    // No message was popped here, so none returns.
    POP_ROLLBACK => answers(|_| Ok(Response::success()));
    RESET_MASTER_FLUSH_OFFSET => answers(tuning::reset_master_flushed);

    // Requests that are not supported.
    QUERY_BROKER_OFFSET
    | GET_TOPIC_CONFIG_LIST
    | GET_TOPIC_NAME_LIST
    | TRIGGER_DELETE_FILES
    | GET_CLIENT_CONFIG
    | RESET_CONSUMER_OFFSET_IN_BROKER
    | WHO_CONSUME_THE_MESSAGE => refused("no client or tool of Apache sends it, and none of its brokers serves it");
    REGISTER_FILTER_SERVER | REGISTER_MESSAGE_FILTER_CLASS => {
        refused("filter classes are not supported, subscribe with tags or SQL92")
    };
    CHECK_ROCKSDB_CQ_WRITE_PROGRESS | EXPORT_ROCKSDB_CONFIG_TO_JSON => {
        refused("this broker keeps nothing in RocksDB")
    };
    UPDATE_AND_CREATE_STATIC_TOPIC => {
        refused("static topics are not supported, create the topic with its queues on each broker")
    };
    ADD_BROKER | REMOVE_BROKER => refused("brokers run in no container here, start each one by itself");
    NOTIFY_MIN_BROKER_ID_CHANGE => {
        refused("a slave of this broker does not act as the master, promote it (rocketpy ha promote)")
    };
    GET_BROKER_EPOCH_CACHE | NOTIFY_BROKER_ROLE_CHANGED => {
        refused("there is no controller here, GET_BROKER_HA_STATUS shows the epochs of the log")
    };
    QUERY_ASSIGNMENT
    | POP_MESSAGE
    | ACK_MESSAGE
    | PEEK_MESSAGE
    | CHANGE_MESSAGE_INVISIBLETIME
    | NOTIFICATION
    | POLLING_INFO
    | BATCH_ACK_MESSAGE => refused(tuning::NO_POP);
    POP_LITE_MESSAGE
    | LITE_SUBSCRIPTION_CTL
    | ACK_LITE_MESSAGE
    | GET_BROKER_LITE_INFO
    | GET_PARENT_TOPIC_INFO
    | GET_LITE_TOPIC_INFO
    | GET_LITE_CLIENT_INFO
    | GET_LITE_GROUP_INFO
    | TRIGGER_LITE_DISPATCH => refused("lite topics are not supported, use topics");
}

/// Treatment of each request, by code.
pub fn requests() -> impl Iterator<Item = (i32, Handling)> {
    CODES.iter().filter_map(|&code| Some((code, handling(route_of(code)?))))
}

fn handling(route: &Route) -> Handling {
    let after_dispatch = match route {
        Route::Refused { why } => return Handling::Refused { why },
        Route::Replies(_) | Route::Answers { waits: Waits::No, .. } => AfterDispatch::No,
        Route::Answers { waits: Waits::Yes, .. } => AfterDispatch::Yes,
        Route::Answers { waits: Waits::Unless { says, .. }, .. } => AfterDispatch::Unless(says),
    };
    Handling::Served { after_dispatch }
}

#[cfg(test)]
mod tests {
    use rocketpy_protocol::code::request::{self, Party};

    use super::*;

    #[test]
    fn every_request_to_a_broker_has_a_route_and_no_other_has() {
        for row in request::ALL {
            let is_ours = row.asked_of == Party::Broker;
            assert_eq!(route_of(row.code).is_some(), is_ours, "{}", row.name);
        }
    }
}
