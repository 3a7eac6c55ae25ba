"""A running service for the tests: the mini model on a free port of this machine."""
import os
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODEL = "DeepSeek-V4.1-Flash"


class Service:
    def __init__(self, *options, env=None, prefix=(), stderr=None):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        command = [*prefix, os.environ["DEEPINFER"], "serve",
                   *([] if "--model" in options else ["--model", str(ROOT / "models/mini")]),
                   *([] if "--port" in options else ["--port", "0"]), *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr or self.log, text=True, env=env)
        line = self.process.stdout.readline()
        if not line.startswith(("ready http://", "ready https://")):
            raise RuntimeError(f"expected a ready line, found {line!r}: {Path(self.log.name).read_text()}")
        self.url = line.split()[1]

    def stop(self, sent=signal.SIGTERM):
        self.process.send_signal(sent)
        return self.process.wait(timeout=90)


@pytest.fixture(scope="session")
def service():
    started = Service()
    yield started
    assert started.stop() == 0
    assert "prompt text that must not be logged" not in Path(started.log.name).read_text()


@pytest.fixture
def start_service():
    started = []

    def start(*options):
        started.append(Service(*options))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.stop()


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
