import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.parser.SelectorParser;

/** Evaluates the expressions of a table, rust/filter/src/sql/table.txt, by Apache's filter: one JSON object for each line. */
public final class FilterTable implements EvaluationContext {
    /** Those of rust/filter/src/sql/tests.rs. */
    private static final Map<String, Object> PROPERTIES = Map.of(
        "a", "3", "d", "3.5", "n", "-2", "s", "abc", "t", "true", "f", "no", "e", "", "q", "it's",
        "big", "9223372036854775807");

    static void run(Path table, Consumer<Map<String, Object>> out) throws Exception {
        for (String line : Files.readAllLines(table)) {
            int end = line.lastIndexOf("=>");
            if (!line.startsWith("#") && end >= 0) {
                String expression = line.substring(0, end);
                out.accept(Map.of("expression", expression, "result", result(expression)));
            }
        }
    }

    private static String result(String text) throws Exception {
        Expression expression = SelectorParser.parse(text);
        try {
            return String.valueOf(expression.evaluate(new FilterTable()));
        } catch (RuntimeException error) {
            return "throws";
        }
    }

    @Override
    public Object get(String name) {
        return PROPERTIES.get(name);
    }

    @Override
    public Map<String, Object> keyValues() {
        return PROPERTIES;
    }
}
