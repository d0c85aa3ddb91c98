import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.body.ConsumerRunningInfo;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Scenarios of the message model by Apache's Java client, side by side in one process, run by {@link Drivers}: one JSON object
 * a line, each with the name of its "scenario".
 *
 * <pre>
 *   Scenarios NAMESRV PREFIX levels|timers|retries|reset...
 * </pre>
 *
 * The topic of a scenario is PREFIX-scenario, its group PREFIX-scenario-group.
 */
public final class Scenarios {
    private static final int TIMEOUT_SECONDS = 180;
    private static final int LEVELS = 18;
    private static final int ATTEMPTS = 17;

    private final String nameServer;
    private final String name;
    private final String topic;
    private final String group;

    private final Consumer<Map<String, Object>> out;

    private Scenarios(String nameServer, String prefix, String name, Consumer<Map<String, Object>> out) {
        this.out = out;
        this.nameServer = nameServer;
        this.name = name;
        topic = prefix + "-" + name;
        group = topic + "-group";
    }

    /** Runs scenarios to their end; the arguments are NAMESRV PREFIX SCENARIO... */
    static void run(List<String> args, Consumer<Map<String, Object>> out) throws Exception {
        ExecutorService threads = Executors.newCachedThreadPool();
        try {
            List<Future<?>> running = new ArrayList<>();
            for (String name : args.subList(2, args.size())) {
                Scenarios scenario = new Scenarios(args.get(0), args.get(1), name, out);
                running.add(threads.submit(() -> {
                    scenario.run();
                    return null;
                }));
            }
            for (Future<?> one : running) {
                one.get(TIMEOUT_SECONDS, TimeUnit.SECONDS);
            }
        } finally {
            threads.shutdown();
        }
    }

    private void run() throws Exception {
        switch (name) {
            case "levels" -> levels();
            case "timers" -> timers();
            case "retries" -> retries();
            case "reset" -> reset();
            default -> throw new IllegalArgumentException("unknown scenario: " + name);
        }
    }

    /** One message a level, level i with key level-i. */
    private void levels() throws Exception {
        CountDownLatch left = new CountDownLatch(LEVELS);
        start(consumer(), message -> left.countDown());
        DefaultMQProducer producer = producer();
        for (int level = 1; level <= LEVELS; level++) {
            Message message = message("level-" + level);
            message.setDelayTimeLevel(level);
            producer.send(message);
        }
        await(left);
    }

    /** Messages with a time in each of three ways, and some that are recalled; the last one comes after all of these. */
    private void timers() throws Exception {
        CountDownLatch last = new CountDownLatch(1);
        start(consumer(), message -> {
            if (message.getKeys().equals("last")) {
                last.countDown();
            }
        });
        DefaultMQProducer producer = producer();
        for (int delayMs : new int[] {10, 500, 2000, 20_000}) {
            Message delayed = message("delay-" + delayMs);
            delayed.setDelayTimeMs(delayMs);
            producer.send(delayed);
            Message timed = message("deliver-" + delayMs);
            timed.setDeliverTimeMs(System.currentTimeMillis() + delayMs);
            producer.send(timed);
        }
        Message seconds = message("seconds-2");
        seconds.setDelayTimeSec(2);
        producer.send(seconds);
        for (int i = 0; i < 3; i++) {
            Message recalled = message("recalled-" + i);
            recalled.setDeliverTimeMs(System.currentTimeMillis() + 15_000);
            SendResult result = producer.send(recalled);
            String recalledId = producer.recallMessage(topic, result.getRecallHandle());
            print(Map.of("recalled", recalled.getKeys(), "is_it", result.getMsgId().equals(recalledId)));
        }
        Message end = message("last");
        end.setDelayTimeMs(21_000);
        producer.send(end);
        await(last);
    }

    /**
     * Fails at every message. "later" is answered RECONSUME_LATER, "thrown" throws, each until its last attempt;
     * "doomed" is given up at once.
     */
    private void retries() throws Exception {
        CountDownLatch left = new CountDownLatch(2 * ATTEMPTS + 1);
        DefaultMQPushConsumer consumer = consumer();
        consumer.setAwaitTerminationMillisWhenShutdown(10_000); // the last ones are given back before it ends
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0); // one at a time by default
            print(message);
            left.countDown();
            switch (message.getKeys()) {
                case "thrown" -> throw new IllegalStateException("on purpose");
                case "doomed" -> context.setDelayLevelWhenNextConsume(-1);
                default -> { }
            }
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        DefaultMQProducer producer = producer();
        for (String key : List.of("later", "thrown", "doomed")) {
            producer.send(message(key));
        }
        await(left);
        consumer.shutdown();
    }

    /** Asks a running member what it does, lets it handle a message directly, and resets it to a time in the middle. */
    private void reset() throws Exception {
        BlockingQueue<String> came = new LinkedBlockingQueue<>();
        DefaultMQPushConsumer consumer = consumer();
        consumer.setPersistConsumerOffsetInterval(200);
        start(consumer, message -> came.add(message.getKeys()));
        DefaultMQProducer producer = producer();
        String first = null;
        for (int i = 0; i < 8; i++) {
            SendResult result = producer.send(message("old-" + i), queue(producer, i));
            first = first == null ? result.getMsgId() : first;
        }
        take(came, 8);
        TimeUnit.MILLISECONDS.sleep(50); // between the times of old and new
        long middle = System.currentTimeMillis();
        TimeUnit.MILLISECONDS.sleep(50);
        for (int i = 0; i < 4; i++) {
            producer.send(message("new-" + i), queue(producer, i));
        }
        take(came, 4);

        DefaultMQAdminExt admin = new DefaultMQAdminExt();
        admin.setInstanceName(group);
        admin.setNamesrvAddr(nameServer); // not by reach: 4.9 has no such class, and would look for it
        admin.setMqClientApiTimeout(60_000);
        admin.start();
        while (sum(committed(admin)) < 12) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        String client = admin.examineConsumerConnectionInfo(group).getConnectionSet().iterator().next().getClientId();
        print(running(admin.getConsumerRunningInfo(group, client, true)));
        print(Map.of("directly", admin.consumeMessageDirectly(group, client, topic, first).getConsumeResult().name()));
        take(came, 1);
        print(Map.of("before", sum(admin.getConsumeStatus(topic, group, client).get(client).values())));
        print(Map.of("reset", sum(admin.resetOffsetByTimestamp(topic, group, middle, true).values())));
        take(came, 4);
        admin.shutdown();
    }

    private List<Long> committed(DefaultMQAdminExt admin) throws Exception {
        var queues = admin.examineConsumeStats(group, topic).getOffsetTable().values();
        return queues.stream().map(one -> one.getConsumerOffset()).toList();
    }

    private Map<String, Object> running(ConsumerRunningInfo info) {
        Map<String, Object> line = new TreeMap<>();
        line.put("topics", info.getSubscriptionSet().stream().map(one -> one.getTopic()).sorted().toList());
        line.put("queues", info.getMqTable().keySet().stream().filter(one -> one.getTopic().equals(topic)).count());
        line.put("type", info.getProperties().getProperty(ConsumerRunningInfo.PROP_CONSUME_TYPE));
        line.put("has_stacks", info.getJstack() != null && info.getJstack().contains("ConsumeMessageThread"));
        return line;
    }

    private MessageQueue queue(DefaultMQProducer producer, int number) throws Exception {
        return producer.fetchPublishMessageQueues(topic).stream().sorted().toList().get(number % 4);
    }

    private static long sum(Iterable<Long> offsets) {
        long sum = 0;
        for (long offset : offsets) {
            sum += offset;
        }
        return sum;
    }

    private static void take(BlockingQueue<String> came, int count) throws Exception {
        for (int i = 0; i < count; i++) {
            if (came.poll(TIMEOUT_SECONDS, TimeUnit.SECONDS) == null) {
                throw new IllegalStateException("still missing: " + (count - i));
            }
        }
    }

    private void await(CountDownLatch left) throws Exception {
        if (!left.await(TIMEOUT_SECONDS, TimeUnit.SECONDS)) {
            throw new IllegalStateException(name + ": still missing: " + left.getCount());
        }
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(topic + "-producer");
        Driver.reach(producer, nameServer);
        producer.setInstanceName(topic + "-producer");
        producer.setSendMsgTimeout(30_000);
        producer.start();
        return producer;
    }

    private DefaultMQPushConsumer consumer() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        Driver.reach(consumer, nameServer);
        consumer.setInstanceName(topic);
        consumer.setHeartbeatBrokerInterval(Driver.HEARTBEAT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private void start(DefaultMQPushConsumer consumer, Consumer<MessageExt> seen) throws Exception {
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                print(message);
                seen.accept(message);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
    }

    private Message message(String key) {
        return Driver.message(topic, "TagA", key, 0);
    }

    private void print(MessageExt message) {
        Map<String, Object> line = Driver.line(message);
        line.put("came_at_ms", System.currentTimeMillis());
        line.put("born_at_ms", message.getBornTimestamp());
        line.put("stored_at_ms", message.getStoreTimestamp());
        line.put("reconsume_times", message.getReconsumeTimes());
        line.put("properties", new TreeMap<>(message.getProperties()));
        print(line);
    }

    private void print(Map<String, Object> facts) {
        Map<String, Object> line = new TreeMap<>(facts);
        line.put("scenario", name);
        out.accept(line);
    }
}
