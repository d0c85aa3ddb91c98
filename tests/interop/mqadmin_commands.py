"""The 96 commands of Apache's mqadmin 5.5.0, as the tests run them: arguments, and what RocketPy makes of each."""

from dataclasses import dataclass

POP = "POP consumption is not supported"
USERS = "users are off on this broker, set authenticationEnabled=true"
"""Reason of brokers without authenticationEnabled; test_access_control.py runs the commands at one that has it."""
WITH_USERS = "works with `authenticationEnabled=true`"
LITE = "lite topics are not supported"
CONTROLLER = "a controller answers it"
CONTAINER = "brokers run in no container here"
ROCKSDB = "this broker keeps nothing in RocksDB"
STATIC = "static topics are not supported"
SYSTEM_TOPICS = "it has other topics of its own, and makes no retry topics with groups"
UNREADABLE = "the tool cannot read its table of topics once it has a static one"


@dataclass(frozen=True)
class Run:
    """One call of a command. Names in braces are places of the cluster under test."""

    command: str
    arguments: str = ""
    refused: str = ""
    """Why RocketPy refuses it: a part of the output."""
    says: tuple[str, ...] = ()
    """Texts of the output, of which nothing else is compared: it differs from run to run, or tells no reason."""
    fails: str = ""
    """Why the command itself fails, at Apache's brokers too: a part of the output."""

    any_order: bool = False
    """Whether its lines come in an order of their own: topics of the name server, brokers of a cluster."""
    differs: str = ""
    """Why Apache's broker answers otherwise."""

    @property
    def is_stored(self) -> bool:
        """Whether the whole output is compared with the stored one."""
        return not (self.refused or self.says or self.fails)

    @property
    def line(self) -> str:
        return f"{self.command} {self.arguments}".strip()


NEVER_END = {
    "startMonitoring": "watches until it is killed: 206, 208, 203, 307, all served",
    "clusterRT": "sends until it is killed: 106, 310, both served",
}
"""Commands that the tests do not run."""

RUNS = [
    Run("clusterList", says=("#Cluster Name", "shop-a", "V5_")),
    Run("updateTopic", "-c shop -t made -r 3 -w 3 -a +message.type=FIFO"),
    Run("updateTopicList", "-b {broker} -f {folder}/topics.json", any_order=True),
    Run("updateTopicPerm", "-c shop -t made -p 4"),
    Run("topicRoute", "-t orders"),
    Run("topicStatus", "-t orders"),
    Run("topicClusterList", "-t orders"),
    Run("topicList", any_order=True, differs=SYSTEM_TOPICS),
    Run("topicList", "-c", any_order=True, differs=SYSTEM_TOPICS),
    Run("updateSubGroup", "-c shop -g made-group -q 2"),
    Run("updateSubGroupList", "-b {broker} -f {folder}/groups.json"),
    Run("getConsumerConfig", "-g made-group"),
    Run("setConsumeMode", "-c shop -t made -g made-group -m PULL"),
    Run("setConsumeMode", "-b {broker} -t made -g made-group -m POP", refused=POP),
    Run(
        "updateBrokerConfig", "-b {broker} -k fileReservedTime -v 48", says=("update broker config success, {broker}",)
    ),
    Run("getBrokerConfig", "-b {broker}", says=("brokerName", "shop-a", "fileReservedTime")),
    Run("getBrokerConfig", "-c shop", says=("Master: {broker}", "Slave: {slave}")),
    Run("brokerStatus", "-b {broker}", says=("brokerVersionDesc", "commitLogMaxOffset", "putTps")),
    Run("brokerStatus", "-c shop", says=("{broker}", "{slave}", "brokerVersionDesc")),
    Run("addBroker", "-c {broker} -b {folder}/broker.conf", refused=CONTAINER),
    Run("removeBroker", "-c {broker} -b shop:shop-a:1", refused=CONTAINER),
    Run("resetMasterFlushOffset", "-b {slave} -o 0"),
    Run("queryMsgById", "-t orders -i {offset_id}", says=("Message Body Path", "[key-0]", "readers", "CONSUMED")),
    Run("queryMsgByKey", "-t orders -k key-0", says=("#IndexKey", "{msg_id}")),
    Run("queryMsgByUniqueKey", "-t orders -i {msg_id}", says=("Message Body Path", "key-0", "readers", "CONSUMED")),
    Run("queryMsgByOffset", "-t orders -b shop-a -i 0 -o 0", says=("Message Body Path", "[key-", "readers")),
    Run("sendMessage", "-t orders -p hello -m true", says=("SEND_OK", "shop-a")),
    Run("queryMsgTraceById", "-i {traced}", says=("#Type", "Pub", "success")),
    Run("printMsg", "-t orders -d true", says=("MSGID", "key-3")),
    Run("printMsgByQueue", "-t orders -a shop-a -i 0 -p true -f true", says=("MSGID", "Tag: red")),
    Run("consumeMessage", "-t orders -b shop-a -i 0 -o 0 -c 1", says=("Consume ok", "MSGID")),
    Run("queryCq", "-t orders -q 0 -i 0 -c 1 -b {broker} -g readers", says=("Subscription data", "physicOffset")),
    Run("sendMsgStatus", "-b shop-a -s 10 -c 1", says=("rt=", "SEND_OK")),
    Run("checkMsgSendRT", "-t orders -a 2 -s 10", says=("#Broker Name", "true", "Avg RT")),
    Run("brokerConsumeStats", "-b {broker}", says=("#Topic", "#Group", "Diff Total")),
    Run("producerConnection", "-g makers -t orders", says=("PYTHON", "127.0.0.1")),
    Run("producer", "-b {broker}", says=("makers",)),
    Run("consumerConnection", "-g readers", says=("orders", "CONSUME_PASSIVELY", "CLUSTERING")),
    Run("consumerProgress", says=("readers", "#Diff Total")),
    Run("consumerProgress", "-g readers", says=("orders", "Consume Diff Total")),
    Run("consumerStatus", "-g readers", says=("#ConsumerRunningInfoFile", "Same subscription", "Rebalance OK")),
    Run("cloneGroupOffset", "-s readers -d made-group -t orders", says=("clone group offset success",)),
    Run("statsAll", "-t orders", says=("#Topic", "orders", "readers")),
    Run("updateKvConfig", "-s space -k one -v 1"),
    Run("deleteKvConfig", "-s space -k one"),
    Run("updateOrderConf", "-t orders -m put -v shop-a:2"),
    Run("updateOrderConf", "-t orders -m get"),
    Run("updateOrderConf", "-t orders -m delete"),
    Run("wipeWritePerm", "-b shop-a", says=("wipe write perm of broker[shop-a] in name server[{names}] OK",)),
    Run("addWritePerm", "-b shop-a", says=("add write perm of broker[shop-a] in name server[{names}] OK",)),
    Run("resetOffsetByTime", "-g made-group -t orders -s 0", any_order=True),
    Run("skipAccumulatedMessage", "-g made-group -t orders", says=("shop-a", "#offset")),
    Run("cleanExpiredCQ", "-c shop", any_order=True),
    Run("deleteExpiredCommitLog", "-c shop", any_order=True),
    Run("cleanUnusedTopic", "-c shop", any_order=True),
    Run("allocateMQ", "-t orders -i a,b", says=('"a"', '"b"', "shop-a")),
    Run("getNamesrvConfig", says=("orderMessageEnable",)),
    Run("updateNamesrvConfig", "-k orderMessageEnable -v false", says=("update name server config success",)),
    Run("updateStaticTopic", "-c shop -t static -qn 2", refused=STATIC),
    Run("remappingStaticTopic", "-c shop -t static", refused=STATIC, says=("Exception",)),
    Run(
        "exportMetadata",
        "-c shop -f {folder}/export",
        says=("export {folder}/export/metadata.json success",),
        differs=UNREADABLE,
    ),
    Run("exportConfigs", "-c shop -f {folder}/export", says=("export {folder}/export/configs.json success",)),
    Run(
        "exportMetrics",
        "-c shop -f {folder}/export",
        says=("export {folder}/export/metrics.json success",),
        differs=UNREADABLE,
    ),
    Run("exportMetadataInRocksDB", "-p {folder}/none -t topics", fails="RocksDB path is invalid"),
    Run("exportPopRecord", "-b {broker}"),
    Run("haStatus", "-c shop", says=("#MasterAddr\t{broker}", "#MasterCommitLogMaxOffset", "#InSyncSlaveNum\t1")),
    Run("haStatus", "-b {slave}", says=("#LastReadTime", "#MasterFlushOffset")),
    Run("getSyncStateSet", "-a {broker} -b shop-a", refused=CONTROLLER),
    Run("getBrokerEpoch", "-b shop-a", refused="there is no controller here"),
    Run("getControllerMetaData", "-a {broker}", refused=CONTROLLER),
    Run("getControllerConfig", "-a {broker}", refused=CONTROLLER),
    Run("updateControllerConfig", "-a {broker} -k a -v b", refused=CONTROLLER),
    Run("electMaster", "-a {broker} -b 1 -bn shop-a -c shop", refused=CONTROLLER),
    Run("cleanBrokerMetadata", "-a {broker} -b 1 -bn shop-a -c shop", refused=CONTROLLER),
    Run("dumpCompactionLog", "-f {folder}/none", fails="not exist"),
    Run("updateColdDataFlowCtrGroupConfig", "-c shop -g readers -v 1048576", any_order=True),
    Run("getColdDataFlowCtrInfo", "-c shop", any_order=True, differs="it has limits for all groups"),
    Run("removeColdDataFlowCtrGroupConfig", "-c shop -g readers", any_order=True),
    Run("setCommitLogReadAheadMode", "-c shop -m 0", any_order=True),
    Run("setCommitLogReadAheadMode", "-b {broker} -m 1", fails="READ_AHEAD_MODE 1 (random) is not supported"),
    Run("switchTimerEngine", "-c shop -e F", any_order=True),
    Run("switchTimerEngine", "-b {broker} -e R", fails="E_T must be F"),
    Run("createUser", "-b {broker} -u joe -p secret", fails=USERS),
    Run("updateUser", "-b {broker} -u joe -p secret", fails=USERS),
    Run("deleteUser", "-b {broker} -u joe", fails=USERS),
    Run("getUser", "-b {broker} -u joe", fails=USERS),
    Run("listUser", "-b {broker}", fails=USERS),
    Run("copyUser", "-f {broker} -t {slave} -u joe", fails=USERS),
    Run("createAcl", "-b {broker} -s User:joe -r Topic:orders -a Pub -d Allow", fails=USERS),
    Run("updateAcl", "-b {broker} -s User:joe -r Topic:orders -a Pub -d Allow", fails=USERS),
    Run("deleteAcl", "-b {broker} -s User:joe", fails=USERS),
    Run("getAcl", "-b {broker} -s User:joe", fails=USERS),
    Run("listAcl", "-b {broker}", fails=USERS),
    Run("copyAcl", "-f {broker} -t {slave} -s User:joe", fails=USERS),
    Run("rocksDBConfigToJson", "-t topics -b {broker}", refused=ROCKSDB, says=("{broker} export error",)),
    Run("checkRocksdbCqWriteProgress", "-c shop -n {names}", refused=ROCKSDB),
    Run("getBrokerLiteInfo", "-b {broker}", refused=LITE),
    Run("getParentTopicInfo", "-p orders", refused=LITE, says=("error",)),
    Run("getLiteTopicInfo", "-p orders -l one", refused=LITE, says=("error",)),
    Run("getLiteClientInfo", "-p orders -g readers -c one", refused=LITE, says=("error",)),
    Run("getLiteGroupInfo", "-p orders -g readers", refused=LITE, says=("error",)),
    Run("triggerLiteDispatch", "-p orders -g readers", refused=LITE, says=("error",)),
    Run("deleteTopic", "-c shop -t listed-2", any_order=True),
    Run("deleteSubGroup", "-c shop -g listed-group-2 -r true", any_order=True),
    Run("deleteTopic", "-c shop -t never-there"),
]
"""In the order of the test: later ones see what earlier ones changed."""


def results() -> dict[str, str]:
    """What the page says of each command."""
    found: dict[str, str] = {}
    for run in RUNS:
        result = f"refused: {run.refused}" if run.refused else f"fails: {run.fails}" if run.fails else "works"
        result = WITH_USERS if USERS in {run.refused, run.fails} else result
        found[run.command] = found.get(run.command, result)
    return found | {name: f"not run: {why}" for name, why in NEVER_END.items()}
