//! Clusters that share a name server with users: nobody takes a name or a topic of another cluster without its right.

use std::sync::Arc;

use rocketpy_auth::{Accounts, Caller, Guard, Rules};
use rocketpy_env::now_ms;
use rocketpy_model::system;
use rocketpy_protocol::body::{AclInfo, Password, PolicyEntryInfo, PolicyInfo, UserInfo};
use rocketpy_protocol::code::{request, response};
use rocketpy_protocol::proof::ProofStream;
use rocketpy_protocol::{Command, header};

use crate::support::{Bench, Broker, MASTER, registration, text};

/// Brokers of another cluster.
const EVIL: Broker = Broker { cluster: "evil", name: "b-evil", addr: "10.0.0.9:10911", ..MASTER };

struct Shared {
    bench: Bench,
    accounts: Arc<Accounts>,
    proofs: ProofStream,
    _folder: tempfile::TempDir,
}

impl Shared {
    /// Users `admin`, a super user, and `eve`, who may change the cluster `evil`.
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let accounts = Accounts::open(folder.path().join("users.json")).unwrap();
        accounts.ensure_super("admin", "secret").unwrap();
        let info = UserInfo { password: Some(Password("secret".to_owned())), ..UserInfo::default() };
        accounts.create_user("eve", &info, Caller::Super).unwrap();
        let rules =
            Rules { authentication: true, authorization: true, cluster: "c1".to_owned(), ..Rules::default() };
        let guard = Guard::new(accounts.clone(), rules, None);
        let bench = Bench::start_with(|config| config.guard = Some(guard)).await;
        let shared = Self { bench, accounts, proofs: ProofStream::new([1, 2]), _folder: folder };
        shared.grant("Cluster:evil");
        shared
    }

    fn grant(&self, resource: &str) {
        let entry = PolicyEntryInfo {
            resource: Some(resource.to_owned()),
            actions: vec!["All".to_owned()],
            decision: Some("Allow".to_owned()),
            source_ips: Vec::new(),
        };
        let policies = vec![PolicyInfo { entries: vec![entry], policy_type: None }];
        self.accounts.set_policies("User:eve", &AclInfo { policies, subject: None }, Caller::Super).unwrap();
    }

    async fn call(&self, user: &str, mut command: Command) -> Command {
        self.proofs.sign(&mut command, user, "secret", now_ms());
        self.bench.call(command).await
    }

    async fn register(&self, user: &str, broker: Broker, topics: &[&str]) -> i32 {
        self.call(user, registration(broker, topics, 1)).await.code
    }

    async fn route(&self, topic: &str) -> String {
        let header = header::GetRouteInfoRequestHeader { topic, accept_standard_json_only: None };
        text(&self.call("admin", Command::request(request::GET_ROUTEINFO_BY_TOPIC, &header)).await)
    }
}

/// Unregistration of a broker name at an address, in the name of a cluster.
fn unregistration(broker: Broker) -> Command {
    let header = header::UnRegisterBrokerRequestHeader {
        broker_name: broker.name,
        broker_addr: broker.addr,
        cluster_name: broker.cluster,
        broker_id: broker.id,
    };
    Command::request(request::UNREGISTER_BROKER, &header)
}

fn members(broker: Broker) -> Command {
    let header =
        header::GetBrokerMemberGroupRequestHeader { cluster_name: broker.cluster, broker_name: broker.name };
    Command::request(request::GET_BROKER_MEMBER_GROUP, &header)
}

#[tokio::test]
async fn broker_name_of_another_cluster_needs_its_right_also_while_no_broker_has_it() {
    let shared = Shared::start().await;
    assert_eq!(shared.register("admin", MASTER, &["orders", "x"]).await, response::SUCCESS);
    let thief = Broker { name: MASTER.name, ..EVIL };
    for command in [
        registration(thief, &["orders", "x"], 1),
        unregistration(Broker { addr: MASTER.addr, ..thief }),
        members(thief),
    ] {
        let answer = shared.call("eve", command).await;
        let remark = answer.remark.unwrap_or_default();
        assert_eq!(answer.code, response::NO_PERMISSION, "{remark}");
        assert!(remark.contains("Cluster:c1") && remark.contains(MASTER.name), "{remark}");
    }
    assert!(shared.route("orders").await.contains(MASTER.addr));
    assert_eq!(shared.call("admin", unregistration(MASTER)).await.code, response::SUCCESS);
    assert_eq!(shared.register("eve", thief, &["orders", "x"]).await, response::NO_PERMISSION);
    assert_eq!(shared.register("admin", MASTER, &["orders", "x"]).await, response::SUCCESS);
    assert_eq!(shared.call("admin", unregistration(MASTER)).await.code, response::SUCCESS);
    shared.grant("Cluster:c1");
    assert_eq!(shared.register("eve", thief, &["orders", "x"]).await, response::SUCCESS);
}

#[tokio::test]
async fn topics_of_another_cluster_are_left_out_of_a_registration_without_its_right() {
    let shared = Shared::start().await;
    assert_eq!(
        shared.register("admin", MASTER, &["orders", "TBW102", system::SCHEDULE_TOPIC]).await,
        response::SUCCESS
    );
    assert_eq!(
        shared.register("eve", EVIL, &["orders", "own", "TBW102", system::SCHEDULE_TOPIC]).await,
        response::SUCCESS
    );
    let orders = shared.route("orders").await;
    assert!(orders.contains(MASTER.name) && !orders.contains(EVIL.name), "{orders}");
    assert!(shared.route("own").await.contains(EVIL.name));
    assert!(
        !shared.route("TBW102").await.contains(EVIL.name),
        "new topics of others would be created at this broker"
    );
    assert!(shared.route(system::SCHEDULE_TOPIC).await.contains(EVIL.name), "no client sends to it");
    shared.grant("Cluster:c1");
    assert_eq!(shared.register("eve", EVIL, &["orders", "own"]).await, response::SUCCESS);
    let orders = shared.route("orders").await;
    assert!(orders.contains(MASTER.name) && orders.contains(EVIL.name), "{orders}");
}
