import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Drives Apache's Java client from the interoperability tests: one command a run, one JSON object a line on
 * standard output, exit code 0 only when all that was asked for happened. {@link Drivers} runs the commands too, in one JVM.
 *
 * <pre>
 *   Driver send|async|oneway|batch NAMESRV TOPIC COUNT PREFIX [TAG] [BODY_BYTES]
 *   Driver push|lite|broadcast NAMESRV TOPIC COUNT GROUP [EXPRESSION]
 *   Driver transaction NAMESRV TOPIC COUNT PREFIX
 *   Driver fail NAMESRV TOPIC COUNT GROUP
 *   Driver ask NAMESRV TOPIC COUNT PREFIX
 *   Driver answer NAMESRV TOPIC COUNT GROUP
 *   Driver trace NAMESRV TOPIC COUNT GROUP
 *   Driver stream NAMESRV TOPIC PREFIX GROUP
 *   Driver key|unique|view NAMESRV TOPIC KEY_OR_ID
 * </pre>
 *
 * Message i of a producer has body PREFIX-i (padded with dots to BODY_BYTES), key PREFIX-i and, when a tag is
 * given, that tag; each carries the user property "origin" with the value "java".
 */
public final class Driver {
    /**
     * The client may skip the heartbeat after its first rebalance, because the one before is not over yet. Without the new version
     * of its subscription any broker refuses its pulls until the next heartbeat, by default 30 s later.
     */
    static final int HEARTBEAT_MS = 1000;
    private static final int TIMEOUT_SECONDS = 120;

    private final Consumer<Map<String, Object>> out;

    Driver(Consumer<Map<String, Object>> out) {
        this.out = out;
    }

    /** Names the name server, and has patience: a client that is just started on a busy machine may need more than 3 s for its first call. */
    static void reach(ClientConfig client, String nameServer) {
        client.setNamesrvAddr(nameServer);
        client.setMqClientApiTimeout(60_000);
    }

    /** Signs requests as the user that properties of the JVM name; null without them. */
    static RPCHook user() {
        String name = System.getProperty("rocketpy.test.accessKey");
        return name == null ? null : new AclClientRPCHook(new SessionCredentials(name, System.getProperty("rocketpy.test.secretKey")));
    }

    public static void main(String[] args) {
        int exitCode = 0;
        try {
            new Driver(Driver::print).run(args);
        } catch (Throwable error) { // also what the client of another version has not
            error.printStackTrace();
            exitCode = 1;
        }
        System.exit(exitCode); // some client threads are not daemons
    }

    void run(String[] args) throws Exception {
        switch (args[0]) {
            case "send", "async", "oneway", "batch" -> produce(args);
            case "transaction" -> transactions(args);
            case "push", "broadcast" -> push(args);
            case "fail" -> fail(args);
            case "ask" -> ask(args);
            case "answer" -> answer(args);
            case "lite" -> lite(args);
            case "trace" -> trace(args);
            case "stream" -> stream(args);
            case "key", "unique", "view" -> query(args);
            default -> throw new IllegalArgumentException("unknown command: " + args[0]);
        }
    }

    private void produce(String[] args) throws Exception {
        String topic = args[2];
        int count = Integer.parseInt(args[3]);
        String prefix = args[4];
        String tag = args.length > 5 && !args[5].isEmpty() ? args[5] : null;
        int bodyBytes = args.length > 6 ? Integer.parseInt(args[6]) : 0;
        DefaultMQProducer producer = new DefaultMQProducer("interop-java-producer", user());
        reach(producer, args[1]);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            messages.add(message(topic, tag, prefix + "-" + i, bodyBytes));
        }
        switch (args[0]) {
            case "send" -> {
                for (Message message : messages) {
                    print(producer.send(message));
                }
            }
            case "async" -> sendAsync(producer, messages);
            case "oneway" -> {
                print(producer.send(messages.get(0))); // a route and a connection first: one-way reports nothing
                for (Message message : messages.subList(1, messages.size())) {
                    producer.sendOneway(message);
                }
            }
            case "batch" -> print(producer.send(messages));
            default -> throw new IllegalStateException(args[0]);
        }
        producer.shutdown();
    }

    static Message message(String topic, String tag, String text, int bodyBytes) {
        StringBuilder body = new StringBuilder(text);
        while (body.length() < bodyBytes) {
            body.append('.');
        }
        Message message = new Message(topic, tag, text, body.toString().getBytes(StandardCharsets.UTF_8));
        message.putUserProperty("origin", "java");
        return message;
    }

    private void sendAsync(DefaultMQProducer producer, List<Message> messages) throws Exception {
        CountDownLatch done = new CountDownLatch(messages.size());
        AtomicInteger failed = new AtomicInteger();
        for (Message message : messages) {
            producer.send(message, new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    print(result);
                    done.countDown();
                }

                @Override
                public void onException(Throwable error) {
                    failed.incrementAndGet();
                    error.printStackTrace();
                    done.countDown();
                }
            });
        }
        if (!done.await(TIMEOUT_SECONDS, TimeUnit.SECONDS) || failed.get() > 0) {
            throw new IllegalStateException("asynchronous sends failed: " + failed.get() + ", missing: " + done.getCount());
        }
    }

    /** Message i is committed (i % 4 = 0), rolled back (1), or left open and then committed (2) or rolled back (3) when the broker asks. */
    private void transactions(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        CountDownLatch open = new CountDownLatch(count / 4 * 2);
        Set<String> asked = ConcurrentHashMap.newKeySet();
        TransactionMQProducer producer = new TransactionMQProducer("interop-java-payer", user());
        reach(producer, args[1]);
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return switch ((int) number % 4) {
                    case 0 -> LocalTransactionState.COMMIT_MESSAGE;
                    case 1 -> LocalTransactionState.ROLLBACK_MESSAGE;
                    default -> LocalTransactionState.UNKNOW;
                };
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                if (asked.add(message.getKeys())) {
                    open.countDown();
                }
                int number = Integer.parseInt(message.getKeys().substring(message.getKeys().lastIndexOf('-') + 1));
                return number % 4 == 2 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
            }
        });
        producer.start();
        for (int i = 0; i < count; i++) {
            print(producer.sendMessageInTransaction(message(args[2], null, args[4] + "-" + i, 0), i));
        }
        if (!open.await(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not asked for: " + open.getCount());
        }
        producer.shutdown();
    }

    /** Sends until the group gets the body "stop", and prints every result and every message. Reads its routes each second. */
    private void stream(String[] args) throws Exception {
        CountDownLatch stopped = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[4]);
        reach(consumer, args[1]);
        consumer.setInstanceName(args[4]);
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                out.accept(Map.of("consumed", body));
                if (body.equals("stop")) {
                    stopped.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        DefaultMQProducer producer = new DefaultMQProducer(args[4] + "-producer");
        reach(producer, args[1]);
        producer.setInstanceName(args[4]);
        producer.setPollNameServerInterval(1000);
        producer.setRetryTimesWhenSendFailed(0); // a refused send is not hidden by a second one
        consumer.start();
        producer.start();
        for (int i = 0; !stopped.await(10, TimeUnit.MILLISECONDS); i++) {
            print(producer.send(message(args[2], null, args[3] + "-" + i, 0)));
        }
        producer.shutdown();
        consumer.shutdown();
    }

    /**
     * With message trace: sends, commits one more in a transaction and recalls a delayed one; then a group of the same name consumes.
     * It is killed at the end: its shutdown does not wait for the answers to the last traces, which it sends within 5 s.
     */
    private void trace(String[] args) throws Exception {
        String topic = args[2];
        int count = Integer.parseInt(args[3]);
        TransactionMQProducer producer = new TransactionMQProducer(args[4]);
        reach(producer, args[1]);
        producer.setEnableTrace(true);
        System.setProperty("com.rocketmq.recall.default.trace.enable", "true"); // before it starts
        producer.setSendMsgTimeout(10_000);
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        producer.start();
        for (int i = 0; i < count; i++) {
            print(producer.send(message(topic, "TagA", "trace-" + i, 0)));
        }
        print(producer.sendMessageInTransaction(message(topic, "TagA", "trace-half", 0), null));
        Message delayed = message(topic, "TagA", "trace-later", 0);
        delayed.setDelayTimeSec(3600);
        SendResult result = producer.send(delayed);
        print(result);
        producer.recallMessage(topic, result.getRecallHandle());
        CountDownLatch left = new CountDownLatch(count + 1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[4]);
        reach(consumer, args[1]);
        consumer.setEnableTrace(true);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(message -> left.countDown());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("still missing: " + left.getCount());
        }
        System.in.read();
    }

    /** Handles no message, and prints each that comes; after its one retry it is dead. */
    private void fail(String[] args) throws Exception {
        CountDownLatch left = new CountDownLatch(2 * Integer.parseInt(args[3]));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[4]);
        reach(consumer, args[1]);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setMaxReconsumeTimes(1);
        consumer.setAwaitTerminationMillisWhenShutdown(10_000); // the last ones are given back before it ends
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print(message);
                left.countDown();
            }
            context.setDelayLevelWhenNextConsume(1);
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        if (!left.await(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("still missing: " + left.getCount());
        }
        consumer.shutdown();
    }

    /** Sends requests one after the other, the odd ones with a callback, and prints each reply. */
    private void ask(String[] args) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("interop-java-asker");
        reach(producer, args[1]);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        for (int i = 0; i < Integer.parseInt(args[3]); i++) {
            Message request = message(args[2], null, args[4] + "-" + i, 0);
            if (i % 2 == 0) {
                print((MessageExt) producer.request(request, TIMEOUT_SECONDS * 1000L));
                continue;
            }
            CompletableFuture<Message> reply = new CompletableFuture<>();
            producer.request(request, new RequestCallback() {
                @Override
                public void onSuccess(Message message) {
                    if (message != null) { // null says only that the request was sent
                        reply.complete(message);
                    }
                }

                @Override
                public void onException(Throwable error) {
                    reply.completeExceptionally(error);
                }
            }, TIMEOUT_SECONDS * 1000L);
            print((MessageExt) reply.get(TIMEOUT_SECONDS, TimeUnit.SECONDS));
        }
        producer.shutdown();
    }

    /** Replies to requests with their text after "re:", and prints what became of each reply. */
    private void answer(String[] args) throws Exception {
        CountDownLatch left = new CountDownLatch(Integer.parseInt(args[3]));
        DefaultMQProducer replies = new DefaultMQProducer("interop-java-replies");
        reach(replies, args[1]);
        replies.setSendMsgTimeout(10_000);
        replies.start();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[4]);
        reach(consumer, args[1]);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(args[2], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                byte[] body = ("re:" + new String(message.getBody(), StandardCharsets.UTF_8)).getBytes(StandardCharsets.UTF_8);
                try {
                    print(replies.send(MessageUtil.createReplyMessage(message, body)));
                    left.countDown();
                } catch (Exception error) {
                    error.printStackTrace();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("still missing: " + left.getCount());
        }
        consumer.shutdown();
        replies.shutdown();
    }

    /** Tags, or after "sql:" an expression over properties. */
    private static MessageSelector selector(String[] args) {
        String expression = args.length > 5 ? args[5] : "*";
        return expression.startsWith("sql:")
            ? MessageSelector.bySql(expression.substring("sql:".length()))
            : MessageSelector.byTag(expression);
    }

    private void push(String[] args) throws Exception {
        int count = Integer.parseInt(args[3]);
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(args[4], user(), new AllocateMessageQueueAveragely());
        reach(consumer, args[1]);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (args[0].equals("broadcast")) {
            broadcast(consumer);
        }
        consumer.subscribe(args[2], selector(args));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print(message);
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException("still missing: " + left.getCount());
        }
        consumer.shutdown();
    }

    /** Not of 4.9, where the class has another name. */
    private static void broadcast(DefaultMQPushConsumer consumer) {
        consumer.setMessageModel(MessageModel.BROADCASTING);
    }

    private void lite(String[] args) throws Exception {
        int left = Integer.parseInt(args[3]);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(args[4]);
        reach(consumer, args[1]);
        consumer.setHeartbeatBrokerInterval(HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAutoCommit(false);
        consumer.subscribe(args[2], selector(args));
        consumer.start();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_SECONDS);
        while (left > 0 && System.nanoTime() < deadline) {
            for (MessageExt message : consumer.poll(500)) {
                print(message);
                left--;
            }
        }
        consumer.commitSync(); // 4.9 has no other
        consumer.shutdown();
        if (left > 0) {
            throw new IllegalStateException("still missing: " + left);
        }
    }

    /** Looks messages up as Apache's command line tools do. */
    private void query(String[] args) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setInstanceName("interop-" + args[0]);
        admin.setNamesrvAddr(args[1]); // not by reach: 4.9 has no such class, and would look for it
        admin.setMqClientApiTimeout(60_000);
        admin.start();
        try {
            if (args[0].equals("view")) {
                print(admin.viewMessage(args[2], args[3]));
                return;
            }
            QueryResult result = args[0].equals("key")
                ? admin.queryMessage(args[2], args[3], 64, 0, Long.MAX_VALUE)
                : admin.queryMessageByUniqKey(null, args[2], args[3], 32, 0, Long.MAX_VALUE);
            result.getMessageList().forEach(this::print);
        } finally {
            admin.shutdown();
        }
    }

    private void print(SendResult result) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("status", result.getSendStatus().name());
        line.put("msg_id", result.getMsgId());
        line.put("offset_msg_id", result.getOffsetMsgId());
        line.put("queue_id", result.getMessageQueue().getQueueId());
        line.put("queue_offset", result.getQueueOffset());
        line.put("region_id", result.getRegionId());
        line.put("trace_on", result.isTraceOn());
        line.put("transaction_id", result.getTransactionId());
        line.put("recall_handle", JSONObject.from(result).getString("recallHandle")); // 4.9 has none
        out.accept(line);
    }

    private void print(MessageExt message) {
        out.accept(line(message));
    }

    static Map<String, Object> line(MessageExt message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", message.getTopic());
        line.put("queue_id", message.getQueueId());
        line.put("queue_offset", message.getQueueOffset());
        line.put("msg_id", message.getMsgId());
        line.put("tag", message.getTags());
        line.put("keys", message.getKeys());
        line.put("body", new String(message.getBody(), StandardCharsets.UTF_8));
        line.put("origin", message.getUserProperty("origin"));
        return line;
    }

    static synchronized void print(Map<String, Object> line) {
        System.out.println(JSON.toJSONString(line));
    }
}
