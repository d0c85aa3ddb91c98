import com.alibaba.fastjson2.JSON;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;
import java.util.function.IntToLongFunction;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.impl.factory.MQClientInstance;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.MixAll;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The load of one row of apache.py on one broker:
 * {@code Load NAMESRV KIND COUNT WARM_UP WAITING PER_SECOND QUEUES THREADS BODY_BYTES}.
 *
 * <p>Does the work with WARM_UP messages of the topic "warm", prepares the topic "load", prints {@code {"ready": true}},
 * waits for a line on standard input, does the work with COUNT messages and prints its figures. Lines with "doing" tell
 * how far it is. The body of message i begins with i: each has to come once.
 */
public final class Load {
    private static final int MAX_COUNT = 1 << 22; // bounds the table of what has come
    private static final int FILL_BATCH = 64;
    private static final int FILL_THREADS = 64;
    private static final int BATCH = 32;
    private static final int WINDOW = 1000; // asynchronous sends without an answer yet
    private static final int READERS = 10;
    private static final int FLIGHT = 10_000; // one-way sends that the topic may not have yet
    private static final int PUSH_THREADS = 20;
    private static final int PULL_BATCH = 32; // what Apache's consumers ask for, and the most that its broker gives
    private static final int TIMER_LEAD_MS = 10_000; // the first timer is due so long after its sending
    private static final long FAR_MS = 24 * 3600 * 1000L; // the first of the waiting timers is due after the run
    private static final long FAR_SPREAD_MS = 3600 * 1000L;
    private static final int REQUEST_TIMEOUT_MS = 60_000;
    private static final int STALL_MS = 120_000;
    private static final int STILL_MS = 3000; // a topic that does not grow for so long has all that it will get

    private final TransactionMQProducer producer = new TransactionMQProducer("load-producer");
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("load-consumer");
    private final String kind;
    private final int waiting;
    private final int perSecond;
    private final int queueCount;
    private final int threads;
    private final int bodyBytes;
    private final String nameServer;
    private List<MessageExt> pulled;

    private interface Call {
        void run(int number) throws Exception;
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    public static void main(String[] args) {
        int exitCode = 0;
        try {
            new Load(args).measure(Integer.parseInt(args[2]), Integer.parseInt(args[3]));
        } catch (Throwable error) {
            error.printStackTrace();
            exitCode = 1;
        }
        System.exit(exitCode); // some client threads are not daemons
    }

    private Load(String[] args) throws Exception {
        nameServer = args[0];
        kind = args[1];
        waiting = Integer.parseInt(args[4]);
        perSecond = Integer.parseInt(args[5]);
        queueCount = Integer.parseInt(args[6]);
        threads = Integer.parseInt(args[7]);
        bodyBytes = Integer.parseInt(args[8]);
        producer.setNamesrvAddr(args[0]);
        producer.setSendMsgTimeout(REQUEST_TIMEOUT_MS);
        producer.setRetryTimesWhenSendFailed(0);
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
        consumer.setNamesrvAddr(args[0]);
        consumer.start();
    }

    private void measure(int count, int warmUp) throws Exception {
        prepare("warm", warmUp);
        run("warm", warmUp);
        if (kind.equals("timer")) {
            long first = System.currentTimeMillis() + FAR_MS;
            inParallel("timers to wait", FILL_THREADS, waiting, i -> {
                Message message = message("load", i);
                message.setDeliverTimeMs(first + i * FAR_SPREAD_MS / waiting);
                check(producer.send(message));
            });
        }
        prepare("load", count);
        print(Map.of("ready", true));
        System.in.read();
        long began = System.nanoTime();
        Map<String, Object> figures = run("load", count);
        figures.putIfAbsent("seconds", (System.nanoTime() - began) / 1e9);
        figures.put("messages", count);
        print(figures);
    }

    /** What has to be there before the measured part. */
    private void prepare(String topic, int count) throws Exception {
        waitUntil("a route of " + topic, () -> producer.fetchPublishMessageQueues(topic).size() == queueCount);
        if (!List.of("pull", "push", "filter", "send-back", "readers").contains(kind)) {
            return;
        }
        int batches = (count + FILL_BATCH - 1) / FILL_BATCH;
        inParallel("batches to fill " + topic, FILL_THREADS, batches, i -> {
            List<Message> batch = new ArrayList<>();
            for (int number = i * FILL_BATCH; number < Math.min(count, (i + 1) * FILL_BATCH); number++) {
                Message message = message(topic, number);
                if (kind.equals("filter")) {
                    message.putUserProperty("n", Integer.toString(number % 100));
                }
                batch.add(message);
            }
            check(producer.send(batch));
        });
        if (kind.equals("filter")) { // SQL92 only goes to a broker whose version a heartbeat has brought
            MQClientInstance client = consumer.getDefaultMQPullConsumerImpl().getRebalanceImpl().getmQClientFactory();
            client.updateTopicRouteInfoFromNameServer(topic);
            client.sendHeartbeatToAllBrokerWithLock();
        }
        if (kind.equals("send-back")) {
            pulled = Collections.synchronizedList(new ArrayList<>(count));
            new Reading(topic, "*", count, pulled::add).finish();
        }
    }

    private Map<String, Object> run(String topic, int count) throws Exception {
        return switch (kind) {
            case "send" -> calls(inParallel("sends", threads, count, i -> check(producer.send(message(topic, i)))));
            case "batch" -> calls(inParallel("batches", threads, count / BATCH, i -> check(producer.send(batch(topic, i)))));
            case "one-way" -> oneWay(topic, count);
            case "asynchronous" -> asynchronous(topic, count);
            case "push" -> push(topic, count);
            case "latency" -> latency(topic, count);
            case "readers" -> readers(topic, count);
            case "pull" -> new Reading(topic, "*", count, message -> { }).finish();
            case "filter" -> new Reading(topic, "n < 50", count / 100 * 50 + Math.min(count % 100, 50), message -> { }).finish();
            case "delay" -> delay(topic, count);
            case "timer" -> timer(topic, count);
            case "transaction" -> transaction(topic, count);
            case "send-back" -> sendBack(topic);
            default -> throw new IllegalArgumentException("unknown kind of work: " + kind);
        };
    }

    private List<Message> batch(String topic, int number) {
        List<Message> batch = new ArrayList<>();
        for (int i = 0; i < BATCH; i++) {
            batch.add(message(topic, number * BATCH + i));
        }
        return batch;
    }

    /**
     * Nobody says whether a message arrived: those that the topic does not get are counted as lost. Sent in flights: without an end to
     * what waits in the client, it closes its connection and hangs.
     */
    private Map<String, Object> oneWay(String topic, int count) throws Exception {
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic);
        long before = stored(queues);
        long[] nanos = new long[count];
        long lost = 0;
        for (int first = 0; first < count; first += FLIGHT) {
            int from = first;
            int flight = Math.min(FLIGHT, count - first);
            System.arraycopy(
                inParallel("one-way sends", threads, flight, i -> producer.sendOneway(message(topic, from + i))), 0, nanos, first, flight);
            long last = -1;
            long grewAt = System.nanoTime();
            while (last < first + flight - lost && System.nanoTime() - grewAt < STILL_MS * 1_000_000L) {
                long now = stored(queues) - before;
                if (now > last) {
                    last = now;
                    grewAt = System.nanoTime();
                }
            }
            lost = first + flight - last;
        }
        Arrays.sort(nanos);
        Map<String, Object> figures = calls(nanos);
        figures.put("lost", lost);
        return figures;
    }

    /** A refused send is counted, and not repeated. */
    private Map<String, Object> asynchronous(String topic, int count) throws Exception {
        Semaphore window = new Semaphore(WINDOW);
        AtomicInteger refused = new AtomicInteger();
        long[] nanos = new long[count];
        inParallel("asynchronous sends", threads, count, i -> {
            window.acquire();
            long began = System.nanoTime();
            producer.send(message(topic, i), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    done(result.getSendStatus() == SendStatus.SEND_OK);
                }

                @Override
                public void onException(Throwable error) {
                    done(false);
                }

                private void done(boolean isStored) {
                    nanos[i] = System.nanoTime() - began;
                    if (!isStored) {
                        refused.incrementAndGet();
                    }
                    window.release();
                }
            });
        });
        window.acquire(WINDOW);
        Arrays.sort(nanos);
        Map<String, Object> figures = calls(nanos);
        figures.put("lost", refused.get());
        return figures;
    }

    private interface Batch {
        void take(List<MessageExt> messages);
    }

    private DefaultMQPushConsumer pushConsumer(String topic, ConsumeFromWhere from, Batch batch) throws Exception {
        DefaultMQPushConsumer push = new DefaultMQPushConsumer("load-push-" + topic);
        push.setNamesrvAddr(nameServer);
        push.setConsumeFromWhere(from);
        push.setConsumeThreadMin(PUSH_THREADS);
        push.setConsumeThreadMax(PUSH_THREADS);
        push.setConsumeMessageBatchMaxSize(PULL_BATCH);
        push.subscribe(topic, "*");
        push.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            batch.take(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        push.start();
        return push;
    }

    /** The time counts from the first message on: before it the client looks for its queues. */
    private Map<String, Object> push(String topic, int count) throws Exception {
        AtomicInteger came = new AtomicInteger();
        AtomicInteger duplicates = new AtomicInteger();
        AtomicLong firstAt = new AtomicLong();
        AtomicIntegerArray seen = new AtomicIntegerArray(count);
        DefaultMQPushConsumer push = pushConsumer(topic, ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, messages -> {
            firstAt.compareAndSet(0, System.nanoTime());
            for (MessageExt message : messages) {
                (seen.getAndIncrement(number(message)) == 0 ? came : duplicates).incrementAndGet();
            }
        });
        watch("messages of " + topic, count, came, new AtomicReference<>());
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("seconds", (System.nanoTime() - firstAt.get()) / 1e9);
        figures.put("duplicates", duplicates.get());
        push.shutdown();
        return figures;
    }

    /** From when a message was to be sent to when a push consumer has it, at a steady rate. */
    private Map<String, Object> latency(String topic, int count) throws Exception {
        AtomicInteger came = new AtomicInteger();
        long[] nanos = new long[count];
        AtomicLong firstAt = new AtomicLong(Long.MAX_VALUE);
        IntToLongFunction dueAt = i -> firstAt.get() + i * 1_000_000_000L / perSecond;
        AtomicInteger early = new AtomicInteger();
        DefaultMQPushConsumer push = pushConsumer(topic, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, messages -> {
            long now = System.nanoTime();
            for (MessageExt message : messages) {
                int number = number(message);
                if (number == count) {
                    early.incrementAndGet();
                } else {
                    nanos[number] = now - dueAt.applyAsLong(number);
                    came.incrementAndGet();
                }
            }
        });
        while (early.get() == 0) { // from the first of these that comes on, the consumer reads the queues
            for (int i = 0; i < queueCount; i++) {
                check(producer.send(message(topic, count)));
            }
            Thread.sleep(100);
        }
        firstAt.set(System.nanoTime() + 500_000_000L);
        inParallel("sends", threads, count, i -> {
            LockSupport.parkNanos(dueAt.applyAsLong(i) - System.nanoTime());
            check(producer.send(message(topic, i)));
        });
        watch("messages of " + topic, count, came, new AtomicReference<>());
        push.shutdown();
        Arrays.sort(nanos);
        Map<String, Object> figures = calls(nanos);
        figures.put("seconds", (double) count / perSecond);
        return figures;
    }

    /** Senders, beside readers that read a backlog over and over. */
    private Map<String, Object> readers(String topic, int count) throws Exception {
        AtomicBoolean isOver = new AtomicBoolean();
        AtomicLong read = new AtomicLong();
        AtomicReference<Throwable> failed = new AtomicReference<>();
        List<MessageQueue> queues = new ArrayList<>(producer.fetchPublishMessageQueues(topic));
        for (int reader = 0; reader < READERS; reader++) {
            MessageQueue queue = queues.get(reader % queues.size());
            daemon(failed, () -> {
                long end = producer.maxOffset(queue);
                long next = 0;
                while (!isOver.get()) {
                    PullResult result = consumer.pull(queue, "*", next, PULL_BATCH);
                    next = result.getPullStatus() == PullStatus.FOUND && result.getNextBeginOffset() < end
                        ? result.getNextBeginOffset() : 0;
                    read.addAndGet(result.getPullStatus() == PullStatus.FOUND ? result.getMsgFoundList().size() : 0);
                }
            });
        }
        long began = System.nanoTime();
        Map<String, Object> figures = calls(inParallel("sends", threads, count, i -> check(producer.send(message(topic, i)))));
        figures.put("read_per_s", read.get() / ((System.nanoTime() - began) / 1e9));
        isOver.set(true);
        if (failed.get() != null) {
            throw new IllegalStateException("a reader", failed.get());
        }
        return figures;
    }

    private Map<String, Object> delay(String topic, int count) throws Exception {
        Reading reading = new Reading(topic, "*", count, message -> { });
        long[] nanos = inParallel("sends", threads, count, i -> {
            Message message = message(topic, i);
            message.setDelayTimeLevel(1 + i % 18);
            check(producer.send(message));
        });
        reading.finish();
        return calls(nanos);
    }

    private Map<String, Object> timer(String topic, int count) throws Exception {
        long[] lateMs = new long[count];
        AtomicInteger sentLate = new AtomicInteger();
        Reading reading = new Reading(topic, "*", count, message ->
            lateMs[number(message)] = message.getStoreTimestamp()
                - Long.parseLong(message.getProperty(MessageConst.PROPERTY_TIMER_DELIVER_MS)));
        long firstMs = System.currentTimeMillis() + TIMER_LEAD_MS;
        IntToLongFunction dueMs = i -> firstMs + i * 1000L / perSecond;
        long[] nanos = inParallel("timers", threads, count, i -> {
            Message message = message(topic, i);
            message.setDeliverTimeMs(dueMs.applyAsLong(i));
            check(producer.send(message));
            if (System.currentTimeMillis() > dueMs.applyAsLong(i)) {
                sentLate.incrementAndGet();
            }
        });
        Map<String, Object> figures = reading.finish();
        figures.putAll(calls(nanos));
        Arrays.sort(lateMs);
        figures.put("late_p50_ms", part(lateMs, 0.5));
        figures.put("late_p99_ms", part(lateMs, 0.99));
        figures.put("sent_late", sentLate.get());
        return figures;
    }

    private Map<String, Object> transaction(String topic, int count) throws Exception {
        long[] nanos = inParallel("transactions", threads, count, i ->
            check(producer.sendMessageInTransaction(message(topic, i), null)));
        List<MessageQueue> queues = producer.fetchPublishMessageQueues(topic); // a commit has no answer
        waitUntil("the committed messages", () -> stored(queues) == count);
        return calls(nanos);
    }

    /** Through the client's own request: its public method sends a copy instead when the broker refuses. */
    private Map<String, Object> sendBack(String topic) throws Exception {
        String group = "load-" + topic;
        String brokerName = pulled.get(0).getBrokerName();
        MQClientInstance client = producer.getDefaultMQProducerImpl().getMqClientFactory();
        String address = client.findBrokerAddressInPublish(brokerName);
        long[] nanos = inParallel("send-backs", threads, pulled.size(), i -> client.getMQClientAPIImpl().consumerSendMessageBack(
            address, brokerName, pulled.get(i), group, 1, REQUEST_TIMEOUT_MS, 16));
        List<MessageQueue> retry = List.of(new MessageQueue(MixAll.getRetryTopic(group), brokerName, 0));
        waitUntil("the messages of the retry topic", () -> stored(retry) == pulled.size());
        return calls(nanos);
    }

    private long stored(List<MessageQueue> queues) throws Exception {
        long sum = 0;
        for (MessageQueue queue : queues) {
            sum += producer.maxOffset(queue);
        }
        return sum;
    }

    /** Reads all queues of a topic from their beginning, a thread for each, until {@code count} messages have come. */
    private final class Reading {
        private final String topic;
        private final int count;
        private final AtomicInteger came = new AtomicInteger();
        private final AtomicInteger duplicates = new AtomicInteger();
        private final AtomicIntegerArray seen = new AtomicIntegerArray(MAX_COUNT);
        private final AtomicReference<Throwable> failed = new AtomicReference<>();
        private final List<Long> nanos = Collections.synchronizedList(new ArrayList<>());

        Reading(String topic, String expression, int count, Consumer<MessageExt> each) throws Exception {
            this.topic = topic;
            this.count = count;
            MessageSelector selector = expression.equals("*") ? MessageSelector.byTag("*") : MessageSelector.bySql(expression);
            for (MessageQueue queue : producer.fetchPublishMessageQueues(topic)) {
                daemon(failed, () -> read(queue, selector, each));
            }
        }

        private void read(MessageQueue queue, MessageSelector selector, Consumer<MessageExt> each) throws Exception {
            long queueOffset = 0;
            while (came.get() < count) {
                long began = System.nanoTime();
                PullResult result = consumer.pullBlockIfNotFoundWithMessageSelector(queue, selector, queueOffset, PULL_BATCH);
                queueOffset = result.getNextBeginOffset();
                if (result.getPullStatus() != PullStatus.FOUND) {
                    continue;
                }
                nanos.add(System.nanoTime() - began);
                int fresh = 0;
                for (MessageExt message : result.getMsgFoundList()) {
                    if (seen.getAndIncrement(number(message)) > 0) {
                        duplicates.incrementAndGet();
                        continue;
                    }
                    each.accept(message);
                    fresh++;
                }
                came.addAndGet(fresh);
            }
        }

        Map<String, Object> finish() throws Exception {
            watch("messages of " + topic, count, came, failed);
            long[] sorted = nanos.stream().mapToLong(Long::longValue).toArray();
            Arrays.sort(sorted);
            Map<String, Object> figures = calls(sorted);
            figures.put("duplicates", duplicates.get());
            return figures;
        }
    }

    /** Runs a call for each number; returns how long each took, sorted. */
    private static long[] inParallel(String doing, int threads, int count, Call call) throws Exception {
        long[] nanos = new long[count];
        AtomicInteger next = new AtomicInteger();
        AtomicInteger done = new AtomicInteger();
        AtomicReference<Throwable> failed = new AtomicReference<>();
        for (int thread = 0; thread < threads; thread++) {
            daemon(failed, () -> {
                for (int i = next.getAndIncrement(); i < count && failed.get() == null; i = next.getAndIncrement()) {
                    long began = System.nanoTime();
                    call.run(i);
                    nanos[i] = System.nanoTime() - began;
                    done.incrementAndGet();
                }
            });
        }
        watch(doing, count, done, failed);
        Arrays.sort(nanos);
        return nanos;
    }

    private interface Work {
        void run() throws Exception;
    }

    private static void daemon(AtomicReference<Throwable> failed, Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (Throwable error) {
                failed.compareAndSet(null, error);
            }
        });
        thread.setDaemon(true);
        thread.start();
    }

    /** Waits until a counter is full, and tells how far it is. */
    private static void watch(String doing, int count, AtomicInteger done, AtomicReference<Throwable> failed) throws Exception {
        int last = -1;
        long movedMs = System.currentTimeMillis();
        long printedMs = 0;
        while (true) {
            int now = done.get();
            if (failed.get() != null) {
                throw new IllegalStateException(doing + ": " + now + " of " + count, failed.get());
            }
            if (now >= count) {
                return;
            }
            long nowMs = System.currentTimeMillis();
            if (now != last) {
                last = now;
                movedMs = nowMs;
            } else if (nowMs - movedMs > STALL_MS) {
                throw new IllegalStateException(doing + ": only " + now + " of " + count);
            }
            if (nowMs - printedMs > 500) {
                printedMs = nowMs;
                print(Map.of("doing", doing, "done", now, "of", count));
            }
            Thread.sleep(1);
        }
    }

    /** A topic that is not there yet is an error of the client. */
    private static void waitUntil(String what, Condition condition) throws Exception {
        long untilMs = System.currentTimeMillis() + STALL_MS;
        while (true) {
            MQClientException refused = null;
            try {
                if (condition.holds()) {
                    return;
                }
            } catch (MQClientException error) {
                refused = error;
            }
            if (System.currentTimeMillis() > untilMs) {
                throw new IllegalStateException("no " + what, refused);
            }
            Thread.sleep(10);
        }
    }

    private Message message(String topic, int number) {
        return new Message(topic, ByteBuffer.allocate(bodyBytes).putInt(number).array());
    }

    private static int number(MessageExt message) {
        return ByteBuffer.wrap(message.getBody()).getInt();
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException(result.toString());
        }
    }

    private static Map<String, Object> calls(long[] sortedNanos) {
        Map<String, Object> figures = new LinkedHashMap<>();
        figures.put("call_p50_us", part(sortedNanos, 0.5) / 1000);
        figures.put("call_p99_us", part(sortedNanos, 0.99) / 1000);
        figures.put("call_p999_us", part(sortedNanos, 0.999) / 1000);
        return figures;
    }

    private static long part(long[] sorted, double part) {
        return sorted[(int) Math.min(sorted.length - 1, sorted.length * part)];
    }

    private static synchronized void print(Map<String, Object> line) {
        System.out.println(JSON.toJSONString(line));
    }
}
