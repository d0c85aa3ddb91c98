//! A broker without connections and threads, for the simulator: its caller lets each service do its rounds, so that a seed determines the
//! order.

use std::net::SocketAddr;
use std::sync::Arc;

use rocketpy_env::Disk;
use rocketpy_model::{PhysicalOffset, QueueOffset, TopicConfig};
use rocketpy_protocol::Command;
use rocketpy_protocol::header::{
    ConsumerSendMsgBackRequestHeader, EndTransactionRequestHeader, Header, RecallMessageRequestHeader,
};
use rocketpy_protocol::message_id::UniqueKeys;
use rocketpy_store::Store;
use tokio::runtime::{Builder, Runtime};

use crate::blocking::on_disk;
use crate::ground::hot_bytes;
use crate::operation::end_transaction::{Ending, end_half, half_of};
use crate::operation::look_up::record_at;
use crate::operation::recall::store as store_recall;
use crate::operation::send_back::take_back;
use crate::parts::{Foundation, Parts};
use crate::put::{AckCondition, Delay, NewMessage, Origin, put_and_make};
use crate::refusal::Refusal;
use crate::role::{Role, RoleCell};
use crate::{BrokerConfig, BrokerError, delay, process, timer, transaction};

/// A broker whose services are stepped.
pub struct SteppedBroker<D: Disk> {
    parts: Parts<D>,
    runtime: Runtime,
}

/// A message that is to be stored, as its client sends it.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "those of `NewMessage`")]
pub struct Sent<'a> {
    pub topic: &'a str,
    pub sys_flag: i32,
    pub born_at_ms: i64,
    pub born_host: SocketAddr,
    pub body: &'a [u8],
    pub properties: &'a [u8],
}

/// Where a message was stored.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "their types say it")]
pub struct Placed {
    pub queue_offset: QueueOffset,
    pub physical_offset: PhysicalOffset,
    /// The answer waits until the log is flushed up to here.
    pub flushed: Option<PhysicalOffset>,
}

/// Why a request was not done: the code and the text of its answer.
pub type NotDone = (i32, String);

fn not_done(refusal: &Refusal) -> NotDone {
    (refusal.code(), refusal.to_string())
}

impl<D: Disk> SteppedBroker<D> {
    /// Reads what the last life left in the store. `config` names the store's folder.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn open(store: &Arc<Store<D>>, config: BrokerConfig) -> Result<Self, BrokerError> {
        let unique_keys = UniqueKeys::new(config.listen.ip(), 0, 0); // the same in each run
        let runtime =
            Builder::new_current_thread().build().expect("a runtime without drivers needs no resource");
        let parts = Parts::open(Foundation {
            role: Arc::new(RoleCell::new(Role::of_id(config.broker_id))),
            config,
            store: store.clone(),
            registrar: None,
            unique_keys,
            runtime: runtime.handle().clone(),
            is_in_doubt: !store.recovery().clean_exit,
            hot_bytes: hot_bytes(),
        })?;
        parts.ground.observe_clock();
        Ok(Self { parts, runtime })
    }

    /// Makes a topic, unless it is there.
    ///
    /// # Errors
    /// The request is refused or not written.
    pub fn make_topic(&self, name: &str) -> Result<(), NotDone> {
        if self.parts.ground.topics().contains(name) {
            return Ok(());
        }
        let made = self
            .parts
            .ground
            .topics()
            .create(vec![TopicConfig::new(name, 1)])
            .map_err(|error| not_done(&error))?;
        self.runtime.block_on(on_disk(made.written)).map_err(|error| not_done(&error))
    }

    /// Stores a message of a client in the first queue of its topic, or where it has to wait.
    ///
    /// # Errors
    /// The message is not stored.
    pub fn send(&self, sent: &Sent<'_>) -> Result<Placed, NotDone> {
        let message = NewMessage {
            topic: sent.topic,
            template: None,
            queue_id: 0,
            flag: 0,
            sys_flag: sent.sys_flag,
            born_at_ms: sent.born_at_ms,
            born_host: sent.born_host,
            reconsume_times: 0,
            max_reconsume_times: None,
            prepared_transaction_offset: None,
            delay: Delay::Asked,
            is_batch: false,
            body: sent.body,
            properties: sent.properties,
        };
        let stored = self.runtime.block_on(put_and_make(&self.parts.intake, Origin::Client, &message));
        let stored = stored.map_err(|refusal| not_done(&refusal))?;
        let physical_offset = stored.places.as_slice()[0];
        Ok(Placed { queue_offset: stored.queue_offset, physical_offset, flushed: stored.ack.flushed })
    }

    /// END_TRANSACTION. Returns up to where the log has to be flushed before the answer.
    ///
    /// # Errors
    /// The transaction is as before, or ended otherwise.
    pub fn end_transaction(&self, request: &Command) -> Result<Option<PhysicalOffset>, NotDone> {
        let header = EndTransactionRequestHeader::read(&request.ext);
        let header = header.map_err(|error| not_done(&Refusal::from(error)))?;
        let Some(asked) = process::end_transaction::asked(&header) else { return Ok(None) };
        let Parts { ground, intake, transactions, look_ups, .. } = &self.parts;
        let half = half_of(ground, &asked).map_err(|refusal| not_done(&refusal))?;
        self.answer(end_half(&Ending { intake, transactions, look_ups, connection_id: 0 }, &asked, &half))
    }

    /// CONSUMER_SEND_MSG_BACK. Returns up to where the log has to be flushed before the answer.
    ///
    /// # Errors
    /// The message is not taken back.
    pub fn send_back(&self, request: &Command) -> Result<Option<PhysicalOffset>, NotDone> {
        let header = ConsumerSendMsgBackRequestHeader::read(&request.ext);
        let asked = header.map(|header| process::send_back::asked(&header, &request.ext));
        let asked = asked.map_err(|error| not_done(&Refusal::from(error)))?;
        let record = record_at(self.parts.ground.store(), asked.offset);
        self.answer(take_back(&self.parts.intake, &asked, record))
    }

    /// RECALL_MESSAGE. Returns up to where the log has to be flushed before the answer.
    ///
    /// # Errors
    /// The message is not stored.
    pub fn recall(
        &self,
        request: &RecallMessageRequestHeader<'_>,
        born_host: SocketAddr,
    ) -> Result<Option<PhysicalOffset>, NotDone> {
        let asked = process::recall::asked(request, born_host);
        self.answer(async { Ok(store_recall(&self.parts.intake, &asked).await?.0) })
    }

    fn answer(
        &self,
        request: impl Future<Output = Result<AckCondition, Refusal>>,
    ) -> Result<Option<PhysicalOffset>, NotDone> {
        match self.runtime.block_on(request) {
            Ok(condition) => Ok(condition.flushed),
            Err(refusal) => Err(not_done(&refusal)),
        }
    }

    /// Reads both clocks, as the broker does each second.
    pub fn observe_clock(&self) {
        self.parts.ground.observe_clock();
    }

    /// A round of the delivery of delayed messages.
    pub fn step_delays(&self) {
        let now = self.parts.ground.observe_clock();
        delay::round(&self.parts.delays, now.wall_ms, self.runtime.handle());
    }

    /// A turn of the delivery of timer messages. Returns whether there is more to do.
    pub fn step_timers(&self) -> bool {
        timer::turn(&self.parts.timers, self.parts.ground.store().now_ms(), self.runtime.handle())
    }

    /// How what waits by wheel and log of the timers differs from what the timer topic and the checkpoint say; `None` when it does not.
    /// To be asked right after [`Self::open`]. `latest_ms` is the latest time that the clock has shown.
    ///
    /// # Errors
    /// A record or a file cannot be read.
    pub fn timers_beside_rebuild(&self, latest_ms: i64) -> Result<Option<String>, NotDone> {
        timer::difference(&self.parts.timers, latest_ms).map_err(|refusal| not_done(&refusal))
    }

    /// A round that writes the progress of timers.
    pub fn step_timer_progress(&self) {
        timer::settle(&self.parts.timers, timer::settled_end(&self.parts.timers));
    }

    /// A round of the questions for open transactions. Nobody is there to be asked; it writes how far the transactions are.
    pub fn step_transactions(&self) {
        let now = self.parts.ground.observe_clock();
        transaction::round(&self.parts.transactions, now, self.runtime.handle());
    }

    /// Writes the consumer offsets, the transactions' own among them. Returns whether that worked.
    pub fn persist_offsets(&self) -> bool {
        match self.parts.members.offsets().persist() {
            Ok(written) => self.runtime.block_on(on_disk(written)).is_ok(),
            Err(_) => false,
        }
    }

    /// The last deliveries of timers before a stop in order.
    pub fn deliver_at_stop(&self) {
        timer::deliver_at_stop(&self.parts.timers, self.runtime.handle());
    }

    /// Writes the files of an orderly stop. The log must be flushed.
    pub fn stop(&self) {
        delay::write_at_stop(&self.parts.delays);
        timer::settle_at_stop(&self.parts.timers);
        transaction::settle_at_stop(&self.parts.transactions);
        self.persist_offsets();
    }
}
