//! Who may change the role of a broker, or detach a slave.

use super::*;
use crate::testing::TestBroker;

/// The role changes of a slave with the token `secret`, and what proves to know another one.
fn with_token(broker: &TestBroker, other: &str) -> (RoleChanges, Past<RealDisk>) {
    let past = Some(Arc::new(Past::of_token(broker, "secret")));
    let peers = Peers::new(broker.peers.slaves().clone(), past);
    let (metadata, advertised) =
        (broker.role_changes.metadata().clone(), broker.endpoints.advertised.clone());
    let changes = RoleChanges::new(
        broker.ground.clone(),
        advertised,
        peers,
        Replication::default(),
        metadata,
        watch::Sender::default(),
    );
    (changes, Past::of_token(broker, other))
}

#[tokio::test]
async fn a_role_change_needs_the_token_or_the_machine_of_the_broker() {
    let broker = TestBroker::open(|config| config.broker_id = 1);
    let [own, remote]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 9].into()];
    let wanted = |is_forced| WantedRole { role: BrokerRole::AsyncMaster, broker_id: None, is_forced };
    let text = signature::role_change("ASYNC_MASTER", None, true);
    assert_eq!(wanted(true).text(), text);
    for (token, is_accepted) in [("secret", true), ("other", false)] {
        let (changes, knows) = with_token(&broker, token);
        for local in [own, [127, 0, 0, 1].into()] {
            changes.check_command((local, own), &wanted(true), None).unwrap();
        }
        assert!(changes.check_command((remote, own), &wanted(true), None).is_err());
        let challenge = changes.challenge().unwrap();
        let proof = knows.prove(&[challenge.as_bytes(), text.as_bytes()]);
        let check = |is_forced| changes.check_command((remote, own), &wanted(is_forced), proof.as_deref());
        assert!(check(false).is_err(), "it proves another command");
        assert_eq!(check(true).is_ok(), is_accepted, "{token}");
        assert!(check(true).is_err(), "a proof serves once");
    }
    let refused = broker.role_changes.check_command((remote, own), &wanted(true), Some("x"));
    assert!(refused.unwrap_err().to_string().contains("--token-file"), "without a token");
}

#[tokio::test]
async fn a_slave_with_a_token_leaves_its_master_for_nobody_without_it() {
    let broker = TestBroker::open(|config| config.broker_id = 1);
    let (changes, stranger) = with_token(&broker, "other");
    let proof = |past: &Past<RealDisk>| past.prove(&[changes.challenge().unwrap().as_bytes(), LEAVE]);
    for proof in [None, proof(&stranger)] {
        let refused = changes.leave_master(proof.as_deref()).unwrap_err();
        assert!(refused.to_string().contains("did not prove"), "{refused}");
    }
    changes.leave_master(proof(&Past::of_token(&broker, "secret")).as_deref()).unwrap();
}
