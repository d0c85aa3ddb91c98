import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Consumer;

/**
 * One JVM for many scenarios, side by side: one JSON object a line on standard input, such as
 * {"id": 7, "main": "Driver", "arguments": ["send", "127.0.0.1:9876", "t", "1", "p"]}. The answers carry the same id: {"id": 7,
 * "line": {...}} for each object that the scenario prints, then {"id": 7, "done": true} or {"id": 7, "failed": "why"}.
 *
 * <pre>
 *   Driver       as the class of this name
 *   Scenarios    as the class of this name
 *   FilterTable  as the class of this name
 *   mqadmin      NAMESRV COMMAND...   Apache's tools; the only line is {"printed": "...", "errors": "..."}
 * </pre>
 *
 * A scenario that has to be killed, or that needs a client id or a folder of its own, runs in a process of its own.
 */
public final class Drivers {
    private static final PrintStream ANSWERS = System.out;
    private static final ExecutorService THREADS = Executors.newCachedThreadPool();

    private Drivers() {
    }

    public static void main(String[] args) throws Exception {
        System.setOut(System.err); // clients print too
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            JSONObject request = JSON.parseObject(line);
            THREADS.submit(() -> answer(request));
        }
        System.exit(0); // the test process has ended
    }

    private static void answer(JSONObject request) {
        int id = request.getIntValue("id");
        try {
            run(request, line -> print(Map.of("id", id, "line", line)));
            print(Map.of("id", id, "done", true));
        } catch (Throwable error) { // also what the client of another version has not
            StringWriter text = new StringWriter();
            error.printStackTrace(new PrintWriter(text, true));
            print(Map.of("id", id, "failed", text.toString()));
        }
    }

    private static void run(JSONObject request, Consumer<Map<String, Object>> out) throws Exception {
        List<String> arguments = request.getList("arguments", String.class);
        switch (request.getString("main")) {
            case "Driver" -> new Driver(out).run(arguments.toArray(new String[0]));
            case "Scenarios" -> Scenarios.run(arguments, out);
            case "FilterTable" -> FilterTable.run(Path.of(arguments.get(0)), out);
            case "mqadmin" -> out.accept(administer(arguments));
            default -> throw new IllegalArgumentException("unknown main: " + request);
        }
    }

    /** One at a time: the tools read the name server from a property of the JVM, and print to its standard output and error. */
    private static synchronized Map<String, Object> administer(List<String> arguments) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream log = System.err;
        System.setProperty("rocketmq.namesrv.addr", arguments.get(0));
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        Thread tool = Thread.currentThread();
        Thread hurry = new Thread(() -> wakeEventThreads(tool));
        hurry.setDaemon(true);
        hurry.start();
        try {
            String[] command = arguments.subList(1, arguments.size()).toArray(new String[0]);
            // By its name: it is not on the class path of 4.9.
            Class<?> tools = Class.forName("org.apache.rocketmq.tools.command.MQAdminStartup");
            Field commands = tools.getDeclaredField("SUB_COMMANDS");
            commands.setAccessible(true);
            // It adds a new object for each command; the one of the last run keeps a client that has ended.
            ((List<?>) commands.get(null)).clear();
            tools.getMethod("main", String[].class).invoke(null, (Object) command);
        } finally {
            hurry.interrupt();
            System.setOut(before);
            System.setErr(log);
            System.clearProperty("rocketmq.namesrv.addr");
        }
        return Map.of(
            "printed", printed.toString(StandardCharsets.UTF_8), "errors", errors.toString(StandardCharsets.UTF_8));
    }

    /** A client that stops waits for a thread that looks every 3 s only whether it is to end; an interrupt makes it look. */
    private static void wakeEventThreads(Thread tool) {
        while (!Thread.currentThread().isInterrupted()) {
            if (isStopping(tool)) {
                Thread[] threads = new Thread[2 * Thread.activeCount()];
                for (int i = Thread.enumerate(threads) - 1; i >= 0; i--) {
                    if (threads[i].getName().startsWith("NettyEventExecutor")) {
                        threads[i].interrupt();
                    }
                }
            }
            try {
                Thread.sleep(20);
            } catch (InterruptedException error) {
                return;
            }
        }
    }

    private static boolean isStopping(Thread tool) {
        for (StackTraceElement frame : tool.getStackTrace()) {
            if (frame.getClassName().endsWith(".ServiceThread") && frame.getMethodName().equals("shutdown")) {
                return true;
            }
        }
        return false;
    }

    private static synchronized void print(Map<String, Object> answer) {
        ANSWERS.println(JSON.toJSONString(answer, JSONWriter.Feature.EscapeNoneAscii));
    }
}
