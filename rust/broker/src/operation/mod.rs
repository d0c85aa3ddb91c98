//! What clients and operators ask a broker to do, whatever protocol they speak: typed questions to the parts, without headers, frames,
//! connections and replies.
//!
//! A send is [`crate::put::put`].

pub(crate) mod administer;
pub(crate) mod end_transaction;
pub(crate) mod group;
pub(crate) mod look_up;
pub(crate) mod member;
pub(crate) mod offset;
pub(crate) mod pull;
pub(crate) mod recall;
pub(crate) mod reset;
pub(crate) mod send_back;
pub(crate) mod topic;
pub(crate) mod which_broker;

use crate::refusal::Refusal;

/// # Errors
/// The number is below 0.
pub(crate) fn queue_id(value: i32) -> Result<u32, Refusal> {
    u32::try_from(value).map_err(|_| Refusal::Value {
        field: "queueId",
        wanted: "0 or more",
        value: value.to_string(),
    })
}
