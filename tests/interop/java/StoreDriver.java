import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.remoting.protocol.header.SendMessageRequestHeader;

/**
 * Fills a store with every kind of message and reads it back, by Apache's Java client, as often as it is asked to: one JSON
 * object a line on standard input, such as {"name_server": "127.0.0.1:9876", "command": "fill", "arguments": ["t", "a"]},
 * answered by JSON objects, one a line, of which the last is {"done": true} or {"failed": "why"}.
 *
 * <pre>
 *   fill    TOPIC PREFIX [delay] [far-delay] [timer] [transaction] [long]
 *   flood   TOPIC PREFIX        one message after the other until one fails; each that was acknowledged, at once
 *   read    TOPIC...            every message of every queue, from minimum to maximum offset
 *   consume TOPIC COUNT GROUP   as a member of the group, until that many came
 *   query                       answers "questions"
 * </pre>
 */
public final class StoreDriver {
    private static final int FOUR_MIB = 4 << 20;
    private static final String LONG_GROUP = "g".repeat(150);

    private final String nameServer;

    private StoreDriver(String nameServer) {
        this.nameServer = nameServer;
    }

    public static void main(String[] args) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String text = requests.readLine(); text != null; text = requests.readLine()) {
            try {
                run(JSON.parseObject(text));
                print(Map.of("done", true));
            } catch (Exception error) {
                error.printStackTrace();
                print(Map.of("failed", error.toString()));
            }
        }
        System.exit(0); // some client threads are not daemons
    }

    private static void run(JSONObject request) throws Exception {
        StoreDriver driver = new StoreDriver(request.getString("name_server"));
        List<String> rest = request.getList("arguments", String.class);
        switch (request.getString("command")) {
            case "fill" -> driver.fill(rest.get(0), rest.get(1), rest.subList(2, rest.size()));
            case "flood" -> driver.flood(rest.get(0), rest.get(1));
            case "read" -> driver.read(rest);
            case "consume" -> driver.consume(rest.get(0), Integer.parseInt(rest.get(1)), rest.get(2));
            case "query" -> driver.query(request.getList("questions", JSONObject.class));
            default -> throw new IllegalArgumentException("unknown command: " + request);
        }
    }

    // ---- fill

    private void fill(String topic, String prefix, List<String> more) throws Exception {
        DefaultMQProducer producer = started(new DefaultMQProducer("fill"));
        for (int i = 0; i < 12; i++) {
            sent("plain", producer, message(topic, prefix + "-plain-" + i, text(20)));
        }
        sent("compressed", producer, message(topic, prefix + "-compressed", text(100_000)));
        Message severalKeys = message(topic, "", text(10));
        severalKeys.setKeys(List.of(prefix + "-one", prefix + "-two", prefix + "-\u4e2d\u6587"));
        sent("keys", producer, severalKeys);
        Message rich = message(topic, prefix + "-rich", text(10));
        for (int i = 0; i < 60; i++) {
            rich.putUserProperty("name-" + i, "value \u00e4\u00f6\u4e2d\u6587 = " + "v".repeat(i * 8));
        }
        rich.setFlag(42);
        sent("rich", producer, rich);
        sent("bare", producer, new Message(topic, new byte[] {7}));
        for (int i = 0; i < 3; i++) {
            sent("big", producer, message(topic, prefix + "-big-" + i, noise(FOUR_MIB, i)));
        }
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            batch.add(message(topic, prefix + "-batch-" + i, text(30)));
        }
        SendResult result = producer.send(batch);
        for (Message one : batch) {
            print(sentLine("batch", one, result));
        }
        if (more.contains("delay")) {
            delayed(producer, topic, prefix, 1); // delivered soon
        }
        if (more.contains("far-delay")) {
            delayed(producer, topic, prefix, 18); // delivered when the store is opened with a shorter level
        }
        if (more.contains("timer")) {
            Message timed = message(topic, prefix + "-timer", text(10));
            timed.setDelayTimeSec(3600);
            sent("timer", producer, timed);
        }
        if (more.contains("long")) {
            sendToLongTopic(producer, topic, prefix);
        }
        if (more.contains("transaction")) {
            transactions(topic, prefix);
        }
        producer.shutdown();
    }

    private void flood(String topic, String prefix) throws Exception {
        DefaultMQProducer producer = started(new DefaultMQProducer("flood"));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(60_000);
        producer.setCompressMsgBodyOverHowmuch(FOUR_MIB);
        byte[] body = noise(20_000, 1);
        try {
            for (int i = 0; ; i++) {
                String key = prefix + "-flood-" + i;
                if (!producer.send(message(topic, key, body)).getSendStatus().name().equals("SEND_OK")) {
                    break;
                }
                print(Map.of("keys", key));
            }
        } catch (Exception ended) {
            System.err.println("flood ended: " + ended);
        }
        producer.shutdown();
    }

    private void delayed(DefaultMQProducer producer, String topic, String prefix, int level) throws Exception {
        Message message = message(topic, prefix + "-delay-" + level, text(10));
        message.setDelayTimeLevel(level);
        sent("delay", producer, message);
    }

    private void transactions(String topic, String prefix) throws Exception {
        TransactionMQProducer producer = started(new TransactionMQProducer("fill-transaction"));
        for (LocalTransactionState state : LocalTransactionState.values()) {
            producer.setTransactionListener(new TransactionListener() {
                @Override
                public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                    return state;
                }

                @Override
                public LocalTransactionState checkLocalTransaction(MessageExt message) {
                    return state;
                }
            });
            Message message = message(topic, prefix + "-" + state, text(10));
            print(sentLine(state.name(), message, producer.sendMessageInTransaction(message, null)));
        }
        producer.shutdown();
    }

    /** A name that long has only the retry topic of a long group; the client's own checks would not let it pass. */
    private void sendToLongTopic(DefaultMQProducer producer, String topic, String prefix) throws Exception {
        Message message = message("%RETRY%" + LONG_GROUP, prefix + "-long", text(10));
        MessageClientIDSetter.setUniqID(message);
        SendMessageRequestHeader header = new SendMessageRequestHeader();
        header.setProducerGroup("fill");
        header.setTopic(message.getTopic());
        header.setDefaultTopic("TBW102");
        header.setDefaultTopicQueueNums(1);
        header.setQueueId(0);
        header.setSysFlag(0);
        header.setBornTimestamp(System.currentTimeMillis());
        header.setFlag(0);
        header.setReconsumeTimes(0);
        header.setProperties(MessageDecoder.messageProperties2String(message.getProperties()));
        RemotingCommand request = RemotingCommand.createRequestCommand(10, header);
        request.setBody(message.getBody());
        var factory = producer.getDefaultMQProducerImpl().getMqClientFactory();
        String broker = factory.findBrokerAddressInPublish(producer.fetchPublishMessageQueues(topic).get(0).getBrokerName());
        RemotingCommand answer = factory.getMQClientAPIImpl().getRemotingClient().invokeSync(broker, request, 10_000);
        if (answer.getCode() != 0) {
            throw new IllegalStateException("long topic: " + answer.getCode() + " " + answer.getRemark());
        }
        Map<String, Object> line = line("long", message);
        line.put("msg_id", message.getProperty("UNIQ_KEY"));
        print(line);
    }

    private static Message message(String topic, String key, byte[] body) {
        Message message = new Message(topic, "TagA", key, body);
        message.putUserProperty("origin", "java");
        return message;
    }

    private static byte[] text(int bytes) {
        return "text ".repeat(bytes / 5).getBytes(StandardCharsets.UTF_8);
    }

    /** Noise that repeats, so that a store takes little space in the stored answers. */
    private static byte[] noise(int bytes, int seed) {
        byte[] part = new byte[20_000];
        new Random(seed).nextBytes(part);
        byte[] body = new byte[bytes];
        for (int at = 0; at < bytes; at += part.length) {
            System.arraycopy(part, 0, body, at, Math.min(part.length, bytes - at));
        }
        return body;
    }

    private static void sent(String kind, DefaultMQProducer producer, Message message) throws Exception {
        producer.setCompressMsgBodyOverHowmuch(message.getBody().length == FOUR_MIB ? FOUR_MIB + 1 : 4096);
        String body = sha256(message.getBody());
        Map<String, Object> line = sentLine(kind, message, producer.send(message));
        line.put("body", body);
        print(line);
    }

    private static Map<String, Object> sentLine(String kind, Message message, SendResult result) throws Exception {
        if (!result.getSendStatus().name().equals("SEND_OK")) {
            throw new IllegalStateException(kind + ": " + result);
        }
        Map<String, Object> line = line(kind, message);
        line.put("msg_id", message.getProperty("UNIQ_KEY"));
        return line;
    }

    private static Map<String, Object> line(String kind, Message message) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("kind", kind);
        line.put("topic", message.getTopic());
        line.put("keys", message.getKeys());
        line.put("body", sha256(message.getBody()));
        return line;
    }

    // ---- read

    private void read(List<String> topics) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("read");
        Driver.reach(consumer, nameServer);
        consumer.start();
        for (String topic : topics) {
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic)) {
                readQueue(consumer, queue);
            }
        }
        consumer.shutdown();
    }

    private static void readQueue(DefaultMQPullConsumer consumer, MessageQueue queue) throws Exception {
        long offset = consumer.minOffset(queue);
        long end = consumer.maxOffset(queue);
        while (offset < end) {
            PullResult result = consumer.pull(queue, "*", offset, 32, 20_000);
            if (result.getPullStatus() != PullStatus.FOUND) {
                throw new IllegalStateException(queue + " at " + offset + " of " + end + ": " + result);
            }
            for (MessageExt message : result.getMsgFoundList()) {
                print(readLine(message));
            }
            offset = result.getNextBeginOffset();
        }
    }

    private void consume(String topic, int count, String group) throws Exception {
        CountDownLatch left = new CountDownLatch(count);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        Driver.reach(consumer, nameServer);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setAwaitTerminationMillisWhenShutdown(5000); // for the offset of what was counted last
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print(Map.of("keys", message.getKeys() == null ? "" : message.getKeys()));
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!left.await(90, TimeUnit.SECONDS)) {
            throw new IllegalStateException("still missing: " + left.getCount());
        }
        consumer.shutdown();
    }

    private static Map<String, Object> readLine(MessageExt message) throws Exception {
        Map<String, Object> line = line("read", message);
        line.put("queue_id", message.getQueueId());
        line.put("queue_offset", message.getQueueOffset());
        line.put("physical_offset", message.getCommitLogOffset());
        line.put("size_bytes", message.getStoreSize());
        line.put("msg_id", message.getMsgId());
        line.put("tag", message.getTags());
        line.put("sys_flag", message.getSysFlag());
        line.put("flag", message.getFlag());
        line.put("stored_at_ms", message.getStoreTimestamp());
        line.put("born_host", message.getBornHost().toString());
        line.put("store_host", message.getStoreHost().toString());
        line.put("properties", message.getProperties());
        return line;
    }

    // ---- query

    /** {"key": K, "topic": T, "begin": ms, "end": ms} or {"topic": T, "queue_id": Q, "at_ms": ms} or {"topic": T, "msg_id": M}. */
    private void query(List<JSONObject> questions) throws Exception {
        DefaultMQProducer producer = started(new DefaultMQProducer("query"));
        for (JSONObject question : questions) {
            try {
                question.put("answer", answer(producer, question));
            } catch (Exception error) {
                question.put("error", error.toString());
            }
            print(question);
        }
        producer.shutdown();
    }

    private static Object answer(DefaultMQProducer producer, JSONObject question) throws Exception {
        String topic = question.getString("topic");
        if (question.containsKey("at_ms")) {
            for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
                if (queue.getQueueId() == question.getIntValue("queue_id")) {
                    return producer.searchOffset(queue, question.getLongValue("at_ms"));
                }
            }
            throw new IllegalStateException("no such queue");
        }
        if (question.containsKey("msg_id")) {
            return List.of(place(producer.viewMessage(topic, question.getString("msg_id"))));
        }
        long begin = question.getLongValue("begin");
        long end = question.getLongValue("end");
        List<List<Long>> found = new ArrayList<>();
        for (MessageExt message : producer.queryMessage(topic, question.getString("key"), 64, begin, end).getMessageList()) {
            found.add(place(message));
        }
        return found;
    }

    private static List<Long> place(MessageExt message) {
        return List.of((long) message.getQueueId(), message.getQueueOffset());
    }

    // ---- shared

    private <P extends DefaultMQProducer> P started(P producer) throws Exception {
        Driver.reach(producer, nameServer);
        producer.setSendMsgTimeout((int) TimeUnit.SECONDS.toMillis(20));
        producer.start();
        return producer;
    }

    private static String sha256(byte[] bytes) throws Exception {
        return bytes == null ? null : HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    private static synchronized void print(Map<String, Object> line) {
        System.out.println(JSON.toJSONString(line, JSONWriter.Feature.EscapeNoneAscii));
    }
}
