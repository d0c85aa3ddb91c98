//! The producers of open transactions whom the broker asks: they answer some of its questions, and leave others without an answer. Where
//! the server ends meanwhile, the next one has to ask.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use parking_lot::Mutex;
use rocketpy_protocol::body::{HeartbeatData, ProducerData};
use rocketpy_protocol::code::request;
use rocketpy_protocol::header::{CheckTransactionStateRequestHeader, Header};
use rocketpy_protocol::{Command, json};
use rocketpy_remoting as remoting;

use super::later::is_committed;
use super::load::{Load, RETRY_PAUSE};
use super::pull::ANSWERED_WITHIN;
use crate::history::Call;
use crate::later::{ASKED_PRODUCERS, Half, answer_question};

/// Broker settings by which questions come within the lives of this harness.
pub(super) const SETTINGS: [(&str, &str); 3] =
    [("transactionTimeOut", "100"), ("transactionCheckInterval", "100"), ("transactionCheckMax", "100000")];
const HEARTBEAT_EVERY: Duration = Duration::from_millis(300);

/// Questions without an answer.
#[derive(Debug, Default)]
struct Questions(Mutex<Vec<Half>>);

/// Another producer of the group, which knows none of its transactions.
#[derive(Debug)]
struct Silent;

impl remoting::Handler for Silent {
    fn handle(&self, _connection: &Arc<remoting::Connection>, _request: Command, reply: remoting::Reply) {
        reply.send_nothing();
    }
}

impl remoting::Handler for Questions {
    fn handle(&self, _connection: &Arc<remoting::Connection>, request: Command, reply: remoting::Reply) {
        if request.code == request::CHECK_TRANSACTION_STATE
            && let Ok(header) = CheckTransactionStateRequestHeader::read(&request.ext)
            && let Some(message) = header.msg_id.and_then(|key| u64::from_str_radix(key, 16).ok())
        {
            self.0.lock().push(Half {
                message,
                queue_offset: header.tran_state_table_offset,
                physical_offset: header.commit_log_offset,
                is_committed: is_committed(message),
                was_ended: false,
            });
        }
        reply.send_nothing();
    }
}

/// Answers while messages are sent, or if it `lasts` until it is dropped.
pub(super) async fn answer(load: Load, broker: String, mut rng: Rng, lasts: bool) {
    let caller = remoting::Client::new(remoting::ClientConfig::default());
    let questions = Arc::new(Questions::default());
    caller.set_request_handler(questions.clone());
    let mut shown_at = None::<Instant>;
    while lasts || !load.sends_no_more() {
        if shown_at.is_none_or(|at| at.elapsed() > HEARTBEAT_EVERY) {
            let shown = caller.call(&broker, heartbeat("asked-payer"), ANSWERED_WITHIN).await;
            shown_at = shown.is_ok().then(Instant::now);
        }
        let asked = questions.0.lock().pop();
        if let Some(half) = asked.filter(|_| rng.bool()) {
            let call = Call::Decide { message: half.message, committed: half.is_committed };
            load.call_later(&caller, &broker, answer_question(&half), call).await;
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Belongs to the group as long as [`answer`] does, and answers nothing: the broker has to ask the other one too.
pub(super) async fn stand_by(load: Load, broker: String, lasts: bool) {
    let caller = remoting::Client::new(remoting::ClientConfig::default());
    caller.set_request_handler(Arc::new(Silent));
    while lasts || !load.sends_no_more() {
        drop(caller.call(&broker, heartbeat("asked-stranger"), ANSWERED_WITHIN).await);
        tokio::time::sleep(HEARTBEAT_EVERY).await;
    }
}

fn heartbeat(client_id: &str) -> Command {
    let data = HeartbeatData {
        client_id: client_id.to_owned(),
        producer_data_set: [ProducerData { group_name: ASKED_PRODUCERS.to_owned() }].into(),
        ..HeartbeatData::default()
    };
    Command::bare_request(request::HEART_BEAT).with_body(json::to_vec(&data))
}
