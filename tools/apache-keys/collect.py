"""Writes rust/server/src/config/apache-keys.tsv: the configuration keys of Apache's servers with their versions.

Needs Maven and a JDK. Run it after a change of VERSIONS, and read the difference: a new key is ignored with a warning
unless apache.rs says otherwise.
"""

import socket
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "rust" / "server" / "src" / "config" / "apache-keys.tsv"

# 4.0.0 was published as 4.0.0-incubating. The store of 3.5.8, with MessageStoreConfig, was never published.
VERSIONS = {
    "3.2.6": ("com.alibaba.rocketmq", ["store"]),
    "3.5.8": ("com.alibaba.rocketmq", ["common", "remoting"]),
    "4.0.0-incubating": ("org.apache.rocketmq", ["store"]),
    "4.9.7": ("org.apache.rocketmq", ["store"]),
    "5.0.0": ("org.apache.rocketmq", ["store"]),
    "5.5.0": ("org.apache.rocketmq", ["store", "auth"]),
}
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>rocketpy</groupId><artifactId>apache-keys</artifactId><version>1</version>
<dependencies>{}</dependencies></project>"""
JAR = "<dependency><groupId>{}</groupId><artifactId>rocketmq-{}</artifactId><version>{}</version></dependency>"
# Defaults must not depend on the machine: cores, home folder, and the keys with its name and address.
JAVA = ["java", "-XX:ActiveProcessorCount=8", "-Duser.home=/home/rocketmq", "-Drocketmq.home.dir=/opt/rocketmq"]
OF_MACHINE = {"brokerName": "broker-a", "brokerIP1": "192.0.2.1", "brokerIP2": "192.0.2.1"}


def main() -> None:
    """Collects the keys of each version and writes the table. Type and default are those of the last version."""
    types: dict[str, tuple[str, str]] = {}
    versions: dict[str, list[str]] = {}
    for version in VERSIONS:
        for row in rows_of(version):
            key, kind, default = row.split("\t")
            types[key] = (kind, OF_MACHINE.get(key, default))
            versions.setdefault(key, []).append(version.removesuffix("-incubating"))
    host = socket.gethostname()
    rows = sorted(f"{key}\t{kind}\t{default}\t{' '.join(versions[key])}" for key, (kind, default) in types.items())
    assert not any(host in row.split("\t") for row in rows), "a default names this machine"
    TABLE.write_text("".join(f"{row}\n" for row in ["key\ttype\tdefault\tversions", *rows]))


def rows_of(version: str) -> list[str]:
    """Returns the rows that Keys.java prints with the jars of a version."""
    group, jars = VERSIONS[version]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pom.xml").write_text(POM.format("".join(JAR.format(group, jar, version) for jar in jars)))
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        subprocess.run(copy, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        program = [*JAVA, "-cp", f"{folder}/lib/*", str(Path(__file__).with_name("Keys.java"))]
        return subprocess.run(program, check=True, capture_output=True, text=True).stdout.splitlines()


if __name__ == "__main__":
    main()
