//! Conditions for the answer to a put.

use std::sync::Arc;

use rocketpy_env::failpoint::{self, Point};
use rocketpy_model::PhysicalOffset;
use rocketpy_protocol::code::response;
use rocketpy_remoting::{Reply, Response};

use crate::ground::Ground;
use crate::ha::Slaves;
use crate::held_send::{Held, HeldSends};
use crate::metrics::TimedSend;
use crate::registration::{Announced, Registrar};
use crate::tables_at_slaves::TablesAtSlaves;

/// Conditions for sending an answer: every mark that is set must be reached. Without marks it is sent at once.
#[derive(Debug, Default)]
pub(crate) struct AckCondition {
    /// The flush has reached this physical offset, the end of the record.
    pub(crate) flushed: Option<PhysicalOffset>,
    /// Slaves have the log up to this physical offset, the end of the record.
    pub(crate) replicated: Option<PhysicalOffset>,
    /// The name servers know the topic that the request made or changed.
    pub(crate) announced: Option<Announced>,
    /// How to take the time of the request, of some sends.
    pub(crate) timed: Option<TimedSend>,
}

/// Answers of puts: each is sent once its condition is met.
#[derive(Debug)]
pub(crate) struct Acks {
    ground: Arc<Ground>,
    registrar: Option<Arc<Registrar>>,
    slaves: Arc<Slaves>,
    /// Sends that wait for the flush.
    held: Arc<HeldSends>,
    /// Sends that wait for slaves.
    held_for_slaves: Arc<HeldSends>,
    /// Changes of tables that slaves are to have before they are answered.
    tables_at_slaves: TablesAtSlaves,
}

impl Acks {
    /// `held` are the sends that wait for the flush, and those that wait for slaves.
    pub(crate) fn new(
        ground: Arc<Ground>,
        slaves: Arc<Slaves>,
        registrar: Option<Arc<Registrar>>,
        [held, held_for_slaves]: [Arc<HeldSends>; 2],
    ) -> Self {
        let tables_at_slaves = TablesAtSlaves::new(ground.clone(), slaves.clone());
        Self { ground, registrar, slaves, held, held_for_slaves, tables_at_slaves }
    }

    pub(crate) fn tables_at_slaves(&self) -> &TablesAtSlaves {
        &self.tables_at_slaves
    }

    /// The flush has reached an offset.
    pub(crate) fn flushed(&self, offset: PhysicalOffset) {
        self.held.reached(offset);
    }

    /// Sends that wait for the flush, and those that wait for slaves.
    pub(crate) fn held(&self) -> [&Arc<HeldSends>; 2] {
        [&self.held, &self.held_for_slaves]
    }
}

/// Sends the answer once its condition is met. The only place that reads a condition.
///
/// Answers that wait for the flush leave together, when one flush has covered their records ([`crate::held_send`]). When no
/// flush does in time, the answer becomes FLUSH_DISK_TIMEOUT. An announcement that no name server takes in time is not waited
/// for any longer.
pub(crate) fn acknowledge(acks: &Arc<Acks>, mut condition: AckCondition, reply: Reply, response: Response) {
    let store = acks.ground.store();
    let AckCondition { flushed, replicated, .. } = condition;
    assert!(
        flushed.zip(replicated).is_none_or(|(flushed, replicated)| flushed == replicated),
        "an answer waits for flush and slaves up to the same end: {flushed:?}, {replicated:?}"
    );
    let end = flushed.max(replicated);
    assert!(
        end <= Some(store.max_physical_offset()),
        "an acknowledgement waits for an offset within the log: {end:?}"
    );
    if let Some(announced) = condition.announced.take() {
        if let Some(end) = condition.flushed {
            store.request_flush(end);
        }
        let owner = acks.clone();
        return acks.ground.tasks().spawn(async move {
            if let Some(registrar) = &owner.registrar {
                let within = owner.ground.config().announce_wait;
                registrar.taken(&announced, within).await;
            }
            acknowledge(&owner, condition, reply, response);
        });
    }
    let config = acks.ground.config();
    let mut held = Held { reply, response, slaves_within: None, timed: condition.timed };
    if let Some(end) = condition.replicated {
        match acks.slaves.are_there_for(end) {
            Ok(()) => held.slaves_within = Some(config.replication.slave_timeout),
            Err(too_few) => {
                held.response.command.code = response::SLAVE_NOT_AVAILABLE;
                held.response.command.remark =
                    Some(format!("the message is stored only on this broker: {too_few}"));
            }
        }
    }
    match (condition.flushed, condition.replicated.zip(held.slaves_within)) {
        (Some(end), _) => {
            let flushed = || store.flushed_offset();
            acks.held.hold(end, config.sync_flush_timeout, held, flushed);
            store.request_flush(end);
        }
        (None, Some((end, within))) => acks.held_for_slaves.hold_for_slaves(end, within, held),
        (None, None) => {
            failpoint::reach(Point::BeforeAcknowledge);
            held.answer();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use rocketpy_model::TopicConfig;
    use rocketpy_protocol::Command;
    use rocketpy_remoting::{Client, ClientConfig, Connection, Handler, Server, ServerConfig};

    use super::*;
    use crate::desk::Desk;
    use crate::service::Services;
    use crate::table::topic::TopicChange;
    use crate::testing::{TestBroker, until};

    const PATIENCE: Duration = Duration::from_secs(60);

    fn serve(handler: Arc<dyn Handler>) -> (Server, String) {
        let config = ServerConfig::new("127.0.0.1:0".parse().unwrap());
        let server = Server::bind(config, handler).unwrap();
        let address = server.local_addr().to_string();
        (server, address)
    }

    /// A name server that takes the first registration and keeps the others waiting.
    #[derive(Default)]
    struct SlowNameServer {
        has_one: Mutex<bool>,
        waiting: Mutex<Vec<Reply>>,
    }

    impl Handler for SlowNameServer {
        fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
            if std::mem::replace(&mut *self.has_one.lock(), true) {
                self.waiting.lock().push(reply);
            } else {
                reply.send(Response::success());
            }
        }
    }

    /// Answers every request once a topic is announced and the whole log is flushed.
    struct Asker(Arc<Desk>);

    impl Handler for Asker {
        fn handle(&self, _connection: &Arc<Connection>, _request: Command, reply: Reply) {
            let change = TopicChange { topics: vec![Arc::new(TopicConfig::new("orders", 1))] };
            let condition = AckCondition {
                flushed: Some(self.0.ground.store().max_physical_offset()),
                replicated: None,
                announced: self.0.intake.announce(&change),
                timed: None,
            };
            acknowledge(&self.0.acks, condition, reply, Response::success());
        }
    }

    #[tokio::test]
    async fn an_answer_waits_for_every_mark_and_for_no_name_server_that_is_gone() {
        let names = Arc::new(SlowNameServer::default());
        let (_name_server, name_address) = serve(names.clone());
        let client = Client::new(ClientConfig::default());
        let broker = TestBroker::registering(client.clone(), &[name_address], |_| {});
        let (services, registrar) = (Services::default(), broker.registrar());
        registrar.services(&broker.ground).for_each(|service| services.start(service));
        assert!(registrar.registered(PATIENCE).await);

        let (_server, address) = serve(Arc::new(Asker(broker.clone())));
        let mut call = client.start_call(&address, Command::bare_request(1), PATIENCE).await.unwrap();
        until("the announcement is under way", || !names.waiting.lock().is_empty()).await;
        let early = tokio::time::timeout(Duration::from_millis(20), &mut call).await;
        assert!(early.is_err(), "flushed, but not announced");

        services.stop_all(Duration::ZERO).await;
        registrar.unregister().await;
        assert_eq!(call.await.unwrap().code, response::SUCCESS);
        broker.ground.tasks().join(PATIENCE).await;
    }
}
