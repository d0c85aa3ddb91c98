"""Handshakes with the broker of a topic by OpenSSL, as a load of `apache.py`: each is a connection that ends at once.

python benches/macro/loads/handshakes.py NAME_SERVER TOPIC COUNT WARM_UP THREADS
"""

import json
import socket
import ssl
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import rocketpy


def shake_hands(address: tuple[str, int], context: ssl.SSLContext) -> float:
    """Microseconds from the TCP connection to the end of the handshake."""
    with socket.create_connection(address) as plain:
        began = time.perf_counter()
        with context.wrap_socket(plain, server_hostname="localhost"):
            return 1e6 * (time.perf_counter() - began)


def main() -> None:
    name_server, topic, count, warm_up, threads = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    with rocketpy.Admin(name_servers=name_server, tls=False) as admin:
        broker = admin.describe_topic(topic).brokers[0].addresses[0]
    host, port = broker.rsplit(":", 1)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ThreadPoolExecutor(threads) as pool:

        def run(total: int) -> list[float]:
            return list(pool.map(lambda _: shake_hands((host, int(port)), context), range(total)))

        run(warm_up)
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.readline()
        began = time.perf_counter()
        times = sorted(run(count))
        seconds = time.perf_counter() - began
    at = {
        name: times[min(count - 1, int(part * count))] for name, part in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
    }
    print(
        json.dumps({"messages": count, "seconds": seconds} | {f"call_{name}_us": at[name] for name in at}), flush=True
    )


if __name__ == "__main__":
    main()
