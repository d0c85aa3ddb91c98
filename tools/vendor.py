"""Copies the browser files of the console from npm: `python tools/vendor.py`. Needs npm; CI only compares checksums.

Each tarball is compared with the integrity in this file before anything is read from it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import tarfile
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "python/rocketpy/console/static/vendor"
PACKAGES = {
    "htmx.org": {
        "version": "4.0.1",
        "licence": "0BSD",
        "integrity": "sha512-oF7JgXhDW9UXCy/k1ZYFUQgzu/rm19ORWPSPNL91vPluB2PB9+MV55tyQdH/w7o2EAbTYUG5SDW1R60mdkdqGg==",
        "files": {
            "htmx-4.0.1.min.js": "dist/htmx.min.js",
            "hx-sse-4.0.1.min.js": "dist/ext/hx-sse.min.js",
            "hx-csp-4.0.1.min.js": "dist/ext/hx-csp.min.js",
        },
    },
    "uplot": {
        "version": "1.6.32",
        "licence": "MIT",
        "integrity": "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==",
        "files": {"uPlot-1.6.32.iife.min.js": "dist/uPlot.iife.min.js", "uPlot-1.6.32.min.css": "dist/uPlot.min.css"},
    },
}


def content(archive: tarfile.TarFile, path: str) -> bytes:
    """Bytes of a file of a package."""
    found = archive.extractfile(f"package/{path}")
    if found is None:
        raise SystemExit(f"error: tarball has no file {path}")
    return found.read()


def without_map(code: bytes) -> bytes:
    """File without the line that names a source map, which browsers would request."""
    lines = [line for line in code.split(b"\n") if not line.startswith(b"//# sourceMappingURL=")]
    return b"\n".join(lines)


def main() -> None:
    """Fetches, checks and copies all files, and writes SOURCES.json and LICENSES."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    sources, licences = [], []
    with tempfile.TemporaryDirectory() as folder:
        for name, package in PACKAGES.items():
            spec = f"{name}@{package['version']}"
            packed = subprocess.run(
                ["npm", "pack", "--silent", "--pack-destination", folder, spec],
                check=True,
                capture_output=True,
                text=True,
            )
            tarball = Path(folder) / packed.stdout.strip().splitlines()[-1]
            digest = base64.b64encode(hashlib.sha512(tarball.read_bytes()).digest()).decode()
            if f"sha512-{digest}" != package["integrity"]:
                raise SystemExit(f"error: integrity of {spec} differs: sha512-{digest}")
            with tarfile.open(tarball) as archive:
                licences.append(f"{spec} ({package['licence']})\n\n{content(archive, 'LICENSE').decode().strip()}\n")
                for target, path in package["files"].items():
                    code = without_map(content(archive, path))
                    (FOLDER / target).write_bytes(code)
                    head = {key: package[key] for key in ("version", "licence", "integrity")}
                    digest = hashlib.sha256(code).hexdigest()
                    sources.append({"file": target, "package": name, **head, "path": path, "sha256": digest})
    (FOLDER / "SOURCES.json").write_text(json.dumps(sources, indent=2) + "\n")
    (FOLDER / "LICENSES").write_text("\n----\n\n".join(licences))


if __name__ == "__main__":
    main()
