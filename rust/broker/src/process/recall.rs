//! RECALL_MESSAGE: a producer takes back a message that waits for its time.

use std::net::SocketAddr;

use rocketpy_protocol::Header;
use rocketpy_protocol::code::response;
use rocketpy_protocol::header::{RecallMessageRequestHeader, RecallMessageResponseHeader, key};
use rocketpy_remoting::Reply;

use crate::call::{Call, response as respond};
use crate::operation::recall::{Recall, store};
use crate::put::acknowledge;
use crate::refusal::Refusal;

/// Decoded request.
pub(crate) fn asked(header: &RecallMessageRequestHeader<'_>, born_host: SocketAddr) -> Recall {
    let (topic, handle) = (header.topic.to_owned(), header.recall_handle.to_owned());
    Recall { topic, handle, born_host }
}

/// Stores the recall, and answers when it is durable: who got the answer counts on it.
pub(super) fn recall(Call { desk, request, connection }: Call<'_>, reply: Reply) {
    let asked = match RecallMessageRequestHeader::read(&request.ext) {
        Ok(header) => asked(&header, connection.peer()),
        Err(error) => return reply.send(Refusal::from(error).response()),
    };
    let owner = desk.clone();
    desk.ground.tasks().run(async move {
        match store(&owner.intake, &asked).await {
            Ok((ack, unique_key)) => {
                let mut answer = respond(response::SUCCESS);
                RecallMessageResponseHeader { msg_id: &unique_key }.write(&mut answer.ext);
                answer.ext.push(key::MSG_REGION, &owner.ground.config().region_id); // without it Apache's client traces no recall
                acknowledge(&owner.acks, ack, reply, answer.into());
            }
            Err(refusal) => reply.send(refusal.response()),
        }
    });
}
