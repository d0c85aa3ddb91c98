//! END_TRANSACTION: a producer says what becomes of its half message.

use rocketpy_auth::Action;
use rocketpy_model::sys_flag;
use rocketpy_protocol::header::{EndTransactionRequestHeader, Header};
use rocketpy_remoting::{Reply, Response};
use tracing::{debug, warn};

use super::accounts::RecordCheck;
use crate::call::{Call, read_record};
use crate::operation::end_transaction::{EndTransaction, Ending, end_half, half_of};
use crate::put::acknowledge;
use crate::refusal::Refusal;
use crate::waiting::header_bytes;

/// Decoded request; `None` for a state that is neither commit nor rollback.
pub(crate) fn asked(header: &EndTransactionRequestHeader<'_>) -> Option<EndTransaction> {
    let commits = match header.commit_or_rollback {
        sys_flag::TRANSACTION_COMMIT => true,
        sys_flag::TRANSACTION_ROLLBACK => false,
        _ => return None,
    };
    Some(EndTransaction {
        group: header.producer_group.to_owned(),
        half_at: header.commit_log_offset,
        half_offset: header.tran_state_table_offset,
        msg_id: header.msg_id.to_owned(),
        commits,
        is_asked: header.from_transaction_check == Some(true),
    })
}

/// Ends a transaction. A state that is neither commit nor rollback gets no answer.
pub(super) fn end(call: Call<'_>, reply: Reply) {
    let Call { desk, request, .. } = call;
    let asked = match EndTransactionRequestHeader::read(&request.ext).map(|header| asked(&header)) {
        Ok(Some(asked)) => asked,
        Ok(None) => return reply.send_nothing(),
        Err(error) => return reply.send(Refusal::from(error).response()),
    };
    let (offset, bytes, owner) = (asked.half_at, header_bytes(request), desk.clone());
    let check = RecordCheck::of(call);
    let read = move || (half_of(&owner.ground, &asked), owner, asked);
    read_record(
        &desk.ground,
        &desk.reads.look_ups,
        offset,
        reply,
        bytes,
        read,
        move |(half, desk, asked), reply| {
            let denied = half.as_ref().ok().zip(check.as_ref());
            if let Some(denied) =
                denied.and_then(|(half, check)| check.refusal(asked.half_at, half, &[Action::Pub]))
            {
                return reply.send(denied);
            }
            let owner = desk.clone();
            desk.ground.tasks().run(async move {
                let ending = Ending {
                    intake: &owner.intake,
                    transactions: &owner.transactions,
                    look_ups: &owner.reads.look_ups,
                    connection_id: reply.connection().id(),
                };
                let ended = match half {
                    Ok(half) => end_half(&ending, &asked, &half).await,
                    Err(refusal) => Err(refusal),
                };
                match ended {
                    Ok(ack) => acknowledge(&owner.acks, ack, reply, Response::success()),
                    Err(refusal) => {
                        if matches!(refusal, Refusal::NoTopic { .. } | Refusal::EarlierTopic { .. }) {
                            warn!(%refusal, "message of a transaction not deliverable, the transaction stays open"); // its producer may ask for no answer
                        } else {
                            debug!(%refusal, peer = %reply.connection().peer(), "transaction not ended");
                        }
                        reply.send(refusal.response());
                    }
                }
            });
        },
    );
}
