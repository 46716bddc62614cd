#!/usr/bin/env python3
"""Sets the project up in .venv and runs its example, its tests or its checks.

    python3 dev.py example             run examples/flights.py
    python3 dev.py test [paths]        run the tests, every behaviour once: some minutes
    python3 dev.py test --all          run every test, with all examples of each property
    python3 dev.py test --changed=REV  run the tests that import a file changed since a commit, or
                                       since the last one without =REV
    python3 dev.py test --failed       run the tests that failed in the last run
    python3 dev.py check               run lint, format, types and the examples in the docs, and
                                       build the site of the docs
    python3 dev.py docs [--no-serve]   build the site of the docs and serve it on this machine;
                                       --help lists the options
    python3 dev.py journey             list the files and functions that a row crosses from file to
                                       file; --counts prints only their numbers
    python3 dev.py weight              count lines of code, files and repeated names by room;
                                       --against COMMIT shows the differences to a commit
    python3 dev.py setup [versions]    install all that these commands need, and that tests with
                                       other versions of Spark need, such as 4.1

    --spark 4.1                        after the command: with this version of Spark

Further arguments of test are those of pytest, such as -k NAME or -n 1 for one process.

Needs Python 3.11 or later and Java 17 or later; everything else is installed into .venv beside
this file, on the first run and again when pyproject.toml changes. With --spark, .venv-spark-4.1
and the like stand in its place.
"""

from __future__ import annotations

import doctest
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Written for Python 3.8, so that an older interpreter than the project's gets to its message.
OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17

ROOT = Path(__file__).resolve().parent

EXTRAS = {
    "example": {"examples"},
    "test": {"dev", "examples"},
    "check": {"dev", "docs", "examples"},
    "docs": {"docs"},
    "journey": {"dev"},
    "setup": {"dev", "docs", "examples"},
}
STARTED = {
    "example": ["examples/flights.py"],
    "test": ["-m", "pytest"],
    "docs": ["-m", "docs.pages"],
    "journey": ["-m", "benchmarks.journey.run"],
    "weight": ["benchmarks/weight.py"],
}
PARALLEL = ["--numprocesses", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
CHECKS = {
    "lint": ["-m", "ruff", "check"],
    "format": ["-m", "ruff", "format", "--check"],
    "types": ["-m", "mypy"],
    "types of programs": ["-m", "pytest", "-q", "--all", "tests/test_types_of_programs.py"],
    "examples in docstrings": [
        *["-m", "pytest", "-q", "--doctest-modules"],
        *["dev.py", "flow", "flow_windowing", "recovery"],
    ],
    "examples in documents": ["dev.py", "documents"],
    "site of the docs": ["-m", "docs.pages", "--check"],
}


class SetupError(Exception):
    """What is missing on this machine and how to get it, in one sentence."""


class Environment:
    """A virtual environment with the project, beside this file.

    Args:
        spark: the version of Spark in it, as major and minor; the newest supported one by default.
    """

    def __init__(self, spark: str | None = None) -> None:
        self.spark = spark
        self.folder = ROOT / (f".venv-spark-{spark}" if spark else ".venv")
        self.programs = self.folder / ("Scripts" if os.name == "nt" else "bin")
        self.python = self.programs / ("python.exe" if os.name == "nt" else "python")
        self.stamp = self.folder / "installed.json"

    def fingerprint(self) -> dict[str, str]:
        """Return the properties that an installation depends on, besides its extras."""
        return {
            # A copied folder still leads to the folder that it was made in.
            "place": str(self.folder),
            "python": platform.python_version(),
            "pyproject": hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest(),
        }

    def read_stamp(self) -> dict[str, Any]:
        """Return the note of the last complete installation; empty without one."""
        try:
            stamp = json.loads(self.stamp.read_text())
        except (OSError, ValueError):
            return {}
        return stamp if isinstance(stamp, dict) else {}

    def write_stamp(self, extras: list[str]) -> None:
        """Note a complete installation with these extras."""
        self.stamp.write_text(json.dumps({**self.fingerprint(), "extras": extras}))

    def works(self) -> bool:
        """Return True if the environment is whole and of the Python that runs this script."""
        asked = "import pip, platform; print(platform.python_version())"
        try:
            done = subprocess.run(
                [str(self.python), "-c", asked],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        except OSError:
            return False
        return done.stdout.strip() == platform.python_version()

    def variables(self) -> dict[str, str]:
        """Return the variables with which Spark and its workers are those of the environment.

        Modules are compiled once, into the environment, even where the machine's variables tell
        Python to keep no compiled modules: each process would compile them anew, for seconds.
        """
        left_out = {"SPARK_HOME", "PYTHONDONTWRITEBYTECODE"}
        own = {name: value for name, value in os.environ.items() if name not in left_out}
        return {
            **own,
            "PATH": os.pathsep.join([str(self.programs), own.get("PATH", os.defpath)]),
            "VIRTUAL_ENV": str(self.folder),
            "PYSPARK_PYTHON": str(self.python),
            "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode"),
        }


def require_python() -> None:
    """Raises SetupError when this interpreter is too old for the project."""
    if sys.version_info >= OLDEST_PYTHON:
        return
    oldest = ".".join(map(str, OLDEST_PYTHON))
    raise SetupError(
        f"Python {oldest} or later is needed and {sys.executable} is Python "
        f"{platform.python_version()}: run this script with a newer one, for example "
        f"python{oldest} {' '.join(sys.argv)}."
    )


def require_java() -> None:
    """Raises SetupError when Spark would find no Java, or one too old."""
    java, described = find_java()
    found = java_version(java) if java else None
    if found is not None and java_major(found) >= OLDEST_JAVA:
        return
    if java and found:
        described = f"{java} is Java {found}"
    elif java:
        described = f"{java} does not run"
    raise SetupError(
        f"Spark needs Java {OLDEST_JAVA} or later and {described}: install one with "
        f"'apt-get install openjdk-17-jre-headless', 'brew install openjdk@17' or from "
        f"https://adoptium.net (JAVA_HOME, when it is set, has to name its folder)."
    )


def find_java() -> tuple[str | None, str]:
    """The java that Spark would start, and what to say when there is none."""
    home = os.environ.get("JAVA_HOME")
    if not home:
        return shutil.which("java"), "no java was found in JAVA_HOME or on PATH"
    # Spark does not look on PATH when JAVA_HOME is set, so neither does this.
    java = shutil.which("java", path=str(Path(home) / "bin"))
    return java, f"JAVA_HOME is {home}, which has no bin/java"


def java_version(java: str) -> str | None:
    """The version that `java -version` reports, None when it reports none."""
    try:
        done = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', done.stdout)
    return found.group(1) if found else None


def java_major(version: str) -> int:
    """The major version of a Java version string, 0 when it holds no number.

    >>> [java_major(version) for version in ("1.8.0_392", "11.0.2", "17.0.15", "21-ea")]
    [8, 11, 17, 21]
    """
    # Up to Java 8 the first number was always 1.
    found = re.match(r"(?:1\.)?(\d+)", version)
    return int(found.group(1)) if found else 0


def set_up(*wanted: tuple[Environment, set[str]]) -> None:
    """Makes environments with the project and their extras; leaves those that are there."""
    for place, extras in wanted:
        names = install(place, extras)
        if names:
            # Few tests run with another version of Spark: they would gain less than this takes.
            if not place.spark:
                prepare(place)
            place.write_stamp(names)


def install(place: Environment, extras: set[str]) -> list[str]:
    """Installs the project with these extras; returns all its extras, or none if it was there."""
    installed = place.read_stamp()
    held = set(installed.pop("extras", []))
    if place.python.exists() and installed == place.fingerprint() and extras <= held:
        return []
    name = place.folder.name
    if not place.works():
        say(f"setting up {name} ...")
        quietly([sys.executable, "-m", "venv", "--clear", str(place.folder)])
    place.stamp.unlink(missing_ok=True)
    names = sorted(extras | held)
    say(f"installing the project with {', '.join(names)} (the first time takes minutes) ...")
    spark = [f"pyspark=={place.spark}.*"] if place.spark else []
    install_packages(place, [*spark, "--editable", f"{ROOT}[{','.join(names)}]"])
    return names


def install_packages(place: Environment, packages: list[str]) -> None:
    """Installs packages with uv, which takes a fifth of pip's processor time.

    uv does not read pip's settings, such as an index: where it fails, pip installs the packages.
    """
    # Python compiles the modules that it imports; all of them would take half a minute.
    pip = [str(place.python), "-m", "pip", "install", "--quiet", "--no-input", "--no-compile"]
    pip.append("--disable-pip-version-check")
    # A cache would keep PySpark's sources, wheel and files: over a gigabyte for each version.
    uv = [str(place.python), "-m", "uv", "pip", "install", "--quiet", "--no-cache"]
    with tempfile.TemporaryDirectory(prefix="flow-setup-") as folder:
        # PySpark is built from its sources. Its jars are compressed already: a wheel stores them.
        settings = Path(folder) / "distutils.cfg"
        settings.write_text("[bdist_wheel]\ncompression = stored\n")
        variables = {**os.environ, "DIST_EXTRA_CONFIG": str(settings)}
        try:
            quietly([*pip, "uv"])
            quietly([*uv, "--python", str(place.python), *packages], variables)
        except SetupError:
            say("installing with pip, as uv has failed ...")
            quietly([*pip, *packages], variables)


def prepare(place: Environment) -> None:
    """Has Spark start faster from an environment, or says why it does not."""
    say(f"having Spark start faster from {place.folder.name} ...")
    child = captured([str(place.python), "-m", "flow.prepare"], place.variables())
    output, _ = child.communicate()
    if child.returncode:
        say(f"Spark does not start faster from {place.folder.name}: {output.strip()}")


def quietly(command: list[str], env: dict[str, str] | None = None) -> None:
    """Runs a command and shows its output only when it fails."""
    child = captured(command, env)
    output, _ = child.communicate()
    if child.returncode:
        say(output)
        raise SetupError(f"this command failed, see above: {' '.join(command)}")


def captured(command: list[str], env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Starts a command in the project's folder, with its output in a pipe."""
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )


def run(place: Environment, arguments: list[str]) -> int:
    """Runs an environment's Python from the project's folder and returns its exit code."""
    return exit_code(start(place, arguments))


def start(place: Environment, arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
    """Starts an environment's Python in the project's folder, with these options of Popen."""
    command = [str(place.python), *arguments]
    return subprocess.Popen(command, cwd=ROOT, env=place.variables(), **options)


def exit_code(child: subprocess.Popen[bytes]) -> int:
    """Waits for the end of a child and returns the code for this process to exit with.

    Ctrl-C reaches the child as it does this process: it is left to end in its own time.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    # A child that a signal ended has the negated signal, which no process can exit with.
    return code if code >= 0 else 128 - code


def check(place: Environment) -> int:
    """Runs all checks at once and returns the exit code of the first one that failed.

    What each of them prints is shown when it is over, in the order of `CHECKS`.
    """
    started, codes = {}, {}
    with tempfile.TemporaryDirectory(prefix="flow-checks-") as folder:
        for name, arguments in CHECKS.items():
            with (Path(folder) / name).open("wb") as output:
                started[name] = start(place, arguments, stdout=output, stderr=subprocess.STDOUT)
        for name, child in started.items():
            codes[name] = exit_code(child)
            output_text = (Path(folder) / name).read_text(encoding="utf-8", errors="replace")
            say(f"{name} ...\n{output_text}".rstrip())
    failed = [name for name, code in codes.items() if code]
    say(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return codes[failed[0]] if failed else 0


def check_documents() -> int:
    """Runs the examples in README.md and docs/, each document with names of its own."""
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for path in [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        name = str(path.relative_to(ROOT))
        examples = python_blocks(path.read_text(encoding="utf-8"))
        # Named as at the prompt, so that Spark sends what a block defines to its workers by value.
        names = {"__name__": "__main__"}
        runner.run(doctest.DocTestParser().get_doctest(examples, names, name, str(path), 0))
    failed, tried = runner.summarize(verbose=False)
    say(f"{tried} examples in documents, {failed} failed")
    return 1 if failed else 0


def python_blocks(text: str) -> str:
    """A Markdown text with every line outside its Python blocks emptied.

    The lines inside keep their numbers, and a block's closing fence ends an expected output.
    """
    lines = []
    inside = False
    for line in text.splitlines():
        fence = line.strip()
        if fence.startswith("```"):
            inside = not inside and fence == "```python"
            lines.append("")
        else:
            lines.append(line if inside else "")
    return "\n".join(lines) + "\n"


def say(text: str) -> None:
    """Prints at once, so that the line comes before what a child process prints."""
    print(text, flush=True)


def main(arguments: list[str]) -> int:
    """Runs the command that the arguments name and returns the exit code."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if command == "documents":  # what check() starts inside .venv
        return check_documents()
    if command == "weight":  # needs the standard library alone
        require_python()
        return exit_code(subprocess.Popen([sys.executable, *STARTED[command], *rest], cwd=ROOT))
    if command == "setup":
        require_python()
        require_java()
        others = [(environment_with(version), EXTRAS["test"]) for version in rest]
        set_up((Environment(), EXTRAS[command]), *others)
        return 0
    place, rest = chosen(rest)
    if command not in EXTRAS or (rest and command == "check"):
        print(__doc__, file=sys.stdout if command in {"", "-h", "--help"} else sys.stderr)
        return 0 if command in {"", "-h", "--help"} else 2
    require_python()
    # The site is made of the docstrings, and tests that need Java are skipped without it.
    if command not in {"docs", "test"}:
        require_java()
    set_up((place, EXTRAS[command]))
    if command == "check":
        return check(place)
    if command == "test":
        rest = pytest_arguments(rest)
    return run(place, [*STARTED[command], *rest])


def pytest_arguments(arguments: list[str]) -> list[str]:
    """Return the arguments of pytest for those of the command, with a process for each core.

    >>> pytest_arguments(["--failed", "-n", "1"])
    ['--last-failed', '--last-failed-no-failures', 'none', '-n', '1']
    """
    failed = ["--last-failed", "--last-failed-no-failures", "none"]
    given = [part for one in arguments for part in (failed if one == "--failed" else [one])]
    if any(re.match(r"-n|--numprocesses|--pdb|[^-].*::", one) for one in given):
        return given
    return [*PARALLEL, *given]


def chosen(arguments: list[str]) -> tuple[Environment, list[str]]:
    """Return the environment that --spark names, or .venv, and the other arguments.

    >>> place, rest = chosen(["--spark", "4.1", "-x"])
    >>> place.folder.name, rest
    ('.venv-spark-4.1', ['-x'])
    """
    if arguments[:1] != ["--spark"]:
        return Environment(), arguments
    return environment_with(arguments[1] if len(arguments) > 1 else ""), arguments[2:]


def environment_with(version: str) -> Environment:
    """Return the environment with a version of Spark."""
    if not re.fullmatch(r"\d+\.\d+", version):
        given = repr(version) if version else "nothing"
        raise SetupError(f"a version of Spark is written like 4.1, and here it is {given}.")
    return Environment(version)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except SetupError as error:
        print(f"dev.py: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
