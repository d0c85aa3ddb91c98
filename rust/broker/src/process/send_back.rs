//! CONSUMER_SEND_MSG_BACK: a consumer gives back a message that it could not handle.

use rocketpy_auth::Action;
use rocketpy_protocol::ExtFields;
use rocketpy_protocol::header::{ConsumerSendMsgBackRequestHeader, Header, key};
use rocketpy_remoting::{Reply, Response};
use tracing::debug;

use super::accounts::RecordCheck;
use crate::call::{Call, read_record};
use crate::operation::look_up::record_at;
use crate::operation::send_back::{SendBack, take_back};
use crate::put::acknowledge;
use crate::refusal::Refusal;
use crate::waiting::header_bytes;

/// Decoded request.
pub(crate) fn asked(header: &ConsumerSendMsgBackRequestHeader<'_>, fields: &ExtFields) -> SendBack {
    SendBack {
        offset: header.offset,
        group: header.group.to_owned(),
        delay_level: header.delay_level,
        max_reconsume_times: header.max_reconsume_times,
        error: fields.get(key::SEND_BACK_ERROR).map(str::to_owned),
    }
}

/// Stores the message again: for its group's retries, or as a dead letter.
pub(super) fn send_back(call: Call<'_>, reply: Reply) {
    let Call { desk, request, .. } = call;
    let asked = match ConsumerSendMsgBackRequestHeader::read(&request.ext) {
        Ok(header) => asked(&header, &request.ext),
        Err(error) => return reply.send(Refusal::from(error).response()),
    };
    let (offset, bytes, owner) = (asked.offset, header_bytes(request), desk.clone());
    let check = RecordCheck::of(call);
    let read = move || (record_at(owner.ground.store(), offset), owner, asked);
    read_record(
        &desk.ground,
        &desk.reads.look_ups,
        offset,
        reply,
        bytes,
        read,
        move |(record, desk, asked), reply| {
            let denied = record.as_ref().ok().zip(check.as_ref());
            if let Some(denied) =
                denied.and_then(|(record, check)| check.refusal(offset, record, &[Action::Sub]))
            {
                return reply.send(denied);
            }
            let owner = desk.clone();
            desk.ground.tasks().run(async move {
            match take_back(&owner.intake, &asked, record).await {
                Ok(ack) => acknowledge(&owner.acks, ack, reply, Response::success()),
                Err(refusal) => {
                    debug!(%refusal, peer = %reply.connection().peer(), "message returned by a consumer not accepted");
                    reply.send(refusal.response());
                }
            }
        });
        },
    );
}
