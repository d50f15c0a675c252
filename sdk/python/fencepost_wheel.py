"""Builds the wheel: the build backend of this package (PEP 517), without dependencies.

FENCEPOST_WHEEL_BINARY names the program to put into the wheel, and FENCEPOST_WHEEL_TARGET its target. Without them the wheel
contains no program and finds one by FENCEPOST_BIN or on PATH. The same input gives the same bytes.
"""

import base64
import hashlib
import os
import pathlib
import re
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
# The Linux programs are static, so they run with any C library, and with any kernel that Rust supports.
TAGS = {
    "x86_64-unknown-linux-musl": "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64",
    "aarch64-unknown-linux-musl": "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64",
    "x86_64-apple-darwin": "macosx_11_0_x86_64",
    "aarch64-apple-darwin": "macosx_11_0_arm64",
}


def _project():
    """Reads the few keys of pyproject.toml that the metadata needs; Python before 3.11 has no parser for it."""
    text = (HERE / "pyproject.toml").read_text(encoding="utf-8")

    def value(key):
        return re.search(rf'^{key} = "(.*)"$', text, re.MULTILINE).group(1)

    classifiers = re.search(r"^classifiers = \[(.*?)\]", text, re.MULTILINE | re.DOTALL).group(1)
    scripts = text.split("[project.scripts]\n", 1)[1].split("\n[", 1)[0]
    return {
        "name": value("name"),
        "version": value("version"),
        "summary": value("description"),
        "python": value("requires-python"),
        "license": value("license"),
        "classifiers": re.findall(r'"(.*?)"', classifiers),
        "scripts": re.findall(r'^(\S+) = "(.*)"$', scripts, re.MULTILINE),
    }


def _metadata(project):
    lines = [
        "Metadata-Version: 2.1",
        f"Name: {project['name']}",
        f"Version: {project['version']}",
        f"Summary: {project['summary']}",
        f"License: {project['license']}",
        f"Requires-Python: {project['python']}",
        *(f"Classifier: {classifier}" for classifier in project["classifiers"]),
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text(encoding="utf-8"),
    ]
    return "\n".join(lines)


def _files(project, target, binary):
    """The files of the wheel: name, content, mode."""
    info = f"{project['name']}-{project['version']}.dist-info"
    package = HERE / "src" / "fencepost"
    for path in sorted(package.rglob("*.py")) + sorted(package.rglob("py.typed")):
        yield f"fencepost/{path.relative_to(package).as_posix()}", path.read_bytes(), 0o644
    if binary:
        yield "fencepost/bin/fencepost", pathlib.Path(binary).read_bytes(), 0o755
    for name in ("LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY-LICENCES.txt"):
        # Beside the program in an archive, at the root of a clone.
        found = [place / name for place in (pathlib.Path(binary or HERE).parent, HERE.parent.parent) if (place / name).exists()]
        if found:
            yield f"{info}/{name}", found[0].read_bytes(), 0o644
    tags = [f"py3-none-{part}" for part in (TAGS[target] if binary else "any").split(".")]
    wheel = ["Wheel-Version: 1.0", "Generator: fencepost_wheel", f"Root-Is-Purelib: {str(not binary).lower()}"]
    wheel += [f"Tag: {tag}" for tag in tags]
    yield f"{info}/WHEEL", ("\n".join(wheel) + "\n").encode(), 0o644
    yield f"{info}/METADATA", _metadata(project).encode(), 0o644
    scripts = "".join(f"{name} = {place}\n" for name, place in project["scripts"])
    yield f"{info}/entry_points.txt", f"[console_scripts]\n{scripts}".encode(), 0o644


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    binary, target = os.environ.get("FENCEPOST_WHEEL_BINARY"), os.environ.get("FENCEPOST_WHEEL_TARGET")
    if binary and target not in TAGS:
        raise SystemExit(f"FENCEPOST_WHEEL_TARGET is {target!r}; it has to be one of {', '.join(TAGS)}")
    project = _project()
    name = f"{project['name']}-{project['version']}-py3-none-{TAGS[target] if binary else 'any'}.whl"
    stamp = time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", "315532800")))[:6]
    record, record_name = [], f"{project['name']}-{project['version']}.dist-info/RECORD"

    def add(archive, path, content, mode):
        entry = zipfile.ZipInfo(path, stamp)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.create_system = 3
        archive.writestr(entry, content)

    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as archive:
        for path, content, mode in _files(project, target, binary):
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(content)}\n")
            add(archive, path, content, mode)
        add(archive, record_name, "".join(record) + f"{record_name},,\n", 0o644)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("fencepost has no source distribution: its wheels contain the program. The sources are in the repository.")
