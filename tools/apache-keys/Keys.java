import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.Map;
import java.util.TreeMap;

/** Prints the keys in the configuration files of Apache's servers: KEY, TYPE and DEFAULT, with tabs between them. */
public class Keys {
    private static final String[] CLASSES = {
        "common.BrokerConfig", "store.config.MessageStoreConfig", "common.namesrv.NamesrvConfig",
        "auth.config.AuthConfig", "remoting.netty.NettyServerConfig", "remoting.netty.NettyClientConfig",
    };

    public static void main(String[] arguments) throws Exception {
        Map<String, String> rows = new TreeMap<>();
        for (String name : CLASSES) {
            Class<?> type = find(name);
            if (type != null) {
                collect(type, rows);
            }
        }
        rows.values().forEach(System.out::println);
    }

    /** The class under either group; null in a version without it. */
    private static Class<?> find(String name) {
        for (String group : new String[] {"org.apache.rocketmq.", "com.alibaba.rocketmq."}) {
            try {
                return Class.forName(group + name);
            } catch (ClassNotFoundException | NoClassDefFoundError absent) {
                continue;
            }
        }
        return null;
    }

    /** Apache reads keys by setters (MixAll.properties2Object) and writes them by fields (object2Properties). */
    private static void collect(Class<?> type, Map<String, String> rows) throws Exception {
        Object config = type.getConstructor().newInstance();
        for (Class<?> part = type; part != Object.class; part = part.getSuperclass()) {
            for (Field field : part.getDeclaredFields()) {
                if (!Modifier.isStatic(field.getModifiers())) {
                    field.setAccessible(true);
                    put(rows, field.getName(), field.getType(), field.get(config));
                }
            }
        }
        for (Method setter : type.getMethods()) {
            if (setter.getName().matches("set.+") && setter.getParameterCount() == 1) {
                String tail = setter.getName().substring(3);
                put(rows, tail.substring(0, 1).toLowerCase() + tail.substring(1), setter.getParameterTypes()[0], null);
            }
        }
    }

    private static void put(Map<String, String> rows, String key, Class<?> type, Object value) {
        if (type.isPrimitive() || type == String.class || type.isEnum()) {
            String text = value == null ? "" : value.toString();
            rows.putIfAbsent(key, String.join("\t", key, type.isEnum() ? "enum" : type.getSimpleName(), text));
        }
    }
}
