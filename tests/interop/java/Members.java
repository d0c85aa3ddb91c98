import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Members of a group by Apache's Java client that work until they are killed: one JSON object a line on standard output.
 *
 * <pre>
 *   Members orderly NAMESRV TOPIC GROUP [HANGS]
 *   Members payer NAMESRV TOPIC GROUP KEY...
 *   Members balanced NAMESRV TOPIC GROUP average|circle|hash NAME
 * </pre>
 *
 * An orderly member prints that it "began" a message, and "ended" it; it does not come to an end with those whose key ends with
 * HANGS.
 *
 * A payer sends one half message for each key, and says when it is a "half", and when it is "asked" for it. It commits and rolls
 * back at once what begins with "committed" and "rolled". It hangs within the transaction of "hanging", and in the answer for
 * "mute", until it reads a line; then it commits both. Of all others it does not know the end before it has read the line.
 *
 * A balanced member, whose client id is host@NAME, prints which queues its strategy "allocated" to it, and which queue it has "read"
 * a message of. It leaves the group when it reads a line.
 */
public final class Members {
    private static final int TIMEOUT_SECONDS = 180;

    private final CountDownLatch told = new CountDownLatch(1);

    public static void main(String[] args) {
        int exitCode = 0;
        try {
            List<String> rest = List.of(args).subList(4, args.length);
            switch (args[0]) {
                case "orderly" -> orderly(args[1], args[2], args[3], rest);
                case "balanced" -> balanced(args[1], args[2], args[3], args[4], args[5]);
                case "payer" -> new Members().pay(args[1], args[2], args[3], rest);
                default -> throw new IllegalArgumentException("unknown member: " + args[0]);
            }
            TimeUnit.SECONDS.sleep(TIMEOUT_SECONDS);
            throw new IllegalStateException("nobody ended the driver");
        } catch (Throwable error) {
            error.printStackTrace();
            exitCode = 1;
        }
        System.exit(exitCode);
    }

    private static void orderly(String nameServer, String topic, String group, List<String> hangs) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        Driver.reach(consumer, nameServer);
        consumer.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            MessageExt message = messages.get(0); // one at a time by default
            print("began", message.getKeys(), message);
            if (hangs.stream().anyMatch(message.getKeys()::endsWith)) {
                sleepForEver();
            }
            print("ended", message.getKeys(), message);
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
    }

    private static void balanced(String nameServer, String topic, String group, String strategy, String name) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        Driver.reach(consumer, nameServer);
        consumer.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        consumer.setClientIP("host");
        consumer.setInstanceName(name);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        AllocateMessageQueueStrategy chosen = switch (strategy) {
            case "average" -> new AllocateMessageQueueAveragely();
            case "circle" -> new AllocateMessageQueueAveragelyByCircle();
            case "hash" -> new AllocateMessageQueueConsistentHash();
            default -> throw new IllegalArgumentException("unknown strategy: " + strategy);
        };
        consumer.setAllocateMessageQueueStrategy(new AllocateMessageQueueStrategy() {
            @Override
            public List<MessageQueue> allocate(String group, String me, List<MessageQueue> queues, List<String> members) {
                List<MessageQueue> share = chosen.allocate(group, me, queues, members);
                if (queues.get(0).getTopic().equals(topic)) {
                    List<Integer> numbers = share.stream().map(MessageQueue::getQueueId).sorted().toList();
                    Driver.print(Map.of("allocated", numbers, "members", members));
                }
                return share;
            }

            @Override
            public String getName() {
                return chosen.getName();
            }
        });
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> Driver.print(Map.of("read", message.getQueueId())));
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (System.in.read() >= 0) {
            consumer.shutdown();
            System.exit(0);
        }
    }

    private static void sleepForEver() {
        while (true) {
            try {
                TimeUnit.DAYS.sleep(1);
            } catch (InterruptedException ignored) {
                // as a member that does not react
            }
        }
    }

    private void pay(String nameServer, String topic, String group, List<String> keys) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        Driver.reach(producer, nameServer);
        producer.setSendMsgTimeout(30_000);
        producer.setHeartbeatBrokerInterval(500); // soon known to a broker that was restarted
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                print("half", message.getKeys(), null);
                return switch (message.getKeys().split("-")[0]) {
                    case "committed" -> LocalTransactionState.COMMIT_MESSAGE;
                    case "rolled" -> LocalTransactionState.ROLLBACK_MESSAGE;
                    case "hanging" -> commitWhenTold();
                    default -> LocalTransactionState.UNKNOW;
                };
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                print("asked", message.getKeys(), null);
                boolean waits = message.getKeys().startsWith("mute");
                return waits || told.getCount() == 0 ? commitWhenTold() : LocalTransactionState.UNKNOW;
            }
        });
        producer.start();
        producer.send(Driver.message(topic + "-plain", null, "plain", 0)); // a member of the group whatever comes next
        for (String key : keys) {
            Thread sender = new Thread(() -> sendHalf(producer, Driver.message(topic, null, key, 0)));
            sender.setDaemon(true);
            sender.start();
        }
        if (System.in.read() >= 0) {
            told.countDown();
        }
    }

    private static void sendHalf(TransactionMQProducer producer, Message message) {
        try {
            producer.sendMessageInTransaction(message, null);
        } catch (Exception error) {
            error.printStackTrace();
        }
    }

    private LocalTransactionState commitWhenTold() {
        try {
            told.await();
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
        return LocalTransactionState.COMMIT_MESSAGE;
    }

    private static void print(String what, String key, MessageExt message) {
        Driver.print(message == null
            ? Map.of(what, key)
            : Map.of(what, key, "queue_id", message.getQueueId(), "at_ms", System.currentTimeMillis()));
    }
}
