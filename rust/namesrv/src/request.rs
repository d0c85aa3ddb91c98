//! The table of requests: for each code that a name server can get, the function that serves it.

use rocketpy_protocol::code::{AfterDispatch, Handling};
use rocketpy_protocol::request_table;
use rocketpy_remoting::Reply;

use crate::processor::{Answer, Call, Processor};

/// What is done with a request.
#[derive(Debug)]
pub(crate) enum Route {
    /// The function returns the answer.
    Served(fn(&Processor, Call<'_>) -> Answer),
    /// The function answers, at once or when a file is written.
    AnsweredLater(fn(&Processor, Call<'_>, Reply)),
}

request_table! {
    Route:

    // Clients and tools.
    GET_ROUTEINFO_BY_TOPIC => Route::Served(Processor::route);
    GET_BROKER_CLUSTER_INFO => Route::Served(Processor::cluster_info);
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER => Route::Served(Processor::topics);
    GET_TOPICS_BY_CLUSTER => Route::Served(Processor::topics_by_cluster);
    GET_SYSTEM_TOPIC_LIST_FROM_NS => Route::Served(Processor::system_topics);
    WIPE_WRITE_PERM_OF_BROKER => Route::Served(Processor::wipe_write_perm);
    ADD_WRITE_PERM_OF_BROKER => Route::Served(Processor::add_write_perm);
    DELETE_TOPIC_IN_NAMESRV => Route::Served(Processor::delete_topic);
    REGISTER_TOPIC_IN_NAMESRV => Route::Served(Processor::register_topic);
    PUT_KV_CONFIG => Route::AnsweredLater(Processor::put_kv);
    GET_KV_CONFIG => Route::Served(Processor::get_kv);
    DELETE_KV_CONFIG => Route::AnsweredLater(Processor::delete_kv);
    GET_KVLIST_BY_NAMESPACE => Route::Served(Processor::kv_list);
    GET_NAMESRV_CONFIG => Route::Served(Processor::config);
    UPDATE_NAMESRV_CONFIG => Route::AnsweredLater(Processor::update_config);
    GET_UNIT_TOPIC_LIST => Route::Served(Processor::unit_topics);
    GET_HAS_UNIT_SUB_TOPIC_LIST => Route::Served(Processor::unit_sub_topics);
    GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST => Route::Served(Processor::unit_sub_ununit_topics);

    // Users and policies.
    AUTH_CREATE_USER
    | AUTH_UPDATE_USER
    | AUTH_DELETE_USER
    | AUTH_CREATE_ACL
    | AUTH_UPDATE_ACL
    | AUTH_DELETE_ACL => Route::AnsweredLater(Processor::change_accounts);
    AUTH_GET_USER | AUTH_LIST_USER | AUTH_GET_ACL | AUTH_LIST_ACL => Route::Served(Processor::ask_accounts);

    // Brokers.
    REGISTER_BROKER => Route::Served(Processor::register);
    UNREGISTER_BROKER => Route::Served(Processor::unregister);
    BROKER_HEARTBEAT => Route::Served(Processor::heartbeat);
    QUERY_DATA_VERSION => Route::Served(Processor::query_data_version);
    GET_BROKER_MEMBER_GROUP => Route::Served(Processor::broker_members);
}

/// What a name server does with each request that it can get, by code.
pub fn requests() -> impl Iterator<Item = (i32, Handling)> {
    let handling = |route: &Route| match route {
        Route::Served(_) | Route::AnsweredLater(_) => Handling::Served { after_dispatch: AfterDispatch::No },
    };
    CODES.iter().filter_map(move |&code| Some((code, handling(route_of(code)?))))
}

#[cfg(test)]
mod tests {
    use rocketpy_protocol::code::request::{self, Party};

    use super::*;

    #[test]
    fn every_request_to_a_name_server_has_a_route_and_no_other_has() {
        for row in request::ALL {
            // Those about users are asked of brokers too.
            let is_ours = row.asked_of == Party::NameServer || row.name.starts_with("AUTH_");
            assert_eq!(route_of(row.code).is_some(), is_ours, "{}", row.name);
        }
    }
}
