"""Faults that happen to services: clients that leave, a killed process, a full disk, no descriptors, many streams. Nothing
may leak, and nobody else's tokens may change. FAULTS=long runs the full counts (`make test-long`): 10,000 disconnects,
1,000 streams for two minutes."""
import asyncio
import json
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from conftest import MODEL, Service, wait_for

LONG = os.environ.get("FAULTS") == "long"


def body(max_tokens, stream=True, **more):
    return {"model": MODEL, "max_tokens": max_tokens, "stream": stream, "ignore_eos": True, "temperature": 1.0,
            "thinking": {"type": "disabled"}, "messages": [{"role": "user", "content": "Tell me a fact."}], **more}


def message(sent):
    data = json.dumps(sent).encode()
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            % len(data)) + data


def ask(url, sent):
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(sent).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["message"]["content"]


def metric(url, name):
    text = urllib.request.urlopen(url + "/metrics", timeout=20).read().decode()
    return float(re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M).group(1))


def held(service):
    """Descriptors and resident MiB of the process; blocks that neither are free nor kept for reuse."""
    pid = service.process.pid
    resident = int(re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text()).group(1)) / 1024
    blocks = [metric(service.url, f"deepinfer_kv_blocks{kind}") for kind in ("", "_free", "_cached")]
    return len(os.listdir(f"/proc/{pid}/fd")), resident, blocks[0] - blocks[1] - blocks[2]


def idle(service):
    wait_for(lambda: metric(service.url, "vllm:num_requests_running") == 0 and
             metric(service.url, "vllm:num_requests_waiting") == 0, 60)


async def leave_at_random(host, port, count, seed):
    """Requests that are dropped after a random number of tokens, before the first, or in the middle of the request."""
    rng = random.Random(seed)
    for _ in range(count):
        reader, writer = await asyncio.open_connection(host, port)
        sent = message(body(400, n=rng.choice([1, 1, 1, 3])))
        if rng.random() < 0.1:
            sent = sent[:rng.randrange(1, len(sent))]
        writer.write(sent)
        await writer.drain()
        try:
            for _ in range(rng.choice([0, 0, 1, 2, 3, 8, 20])):
                await asyncio.wait_for(reader.readuntil(b"\n\n"), 60)
        except (asyncio.IncompleteReadError, asyncio.TimeoutError, ConnectionError):
            pass
        if rng.random() < 0.5:  # a reset instead of an end
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.close()


def test_disconnects_leak_nothing_and_change_nobodys_tokens(start_service):
    service = start_service("--max-concurrency", "16")
    host, port = service.url[len("http://"):].split(":")
    fixed = body(40, stream=False, seed=11)
    expected = ask(service.url, fixed)
    num_clients, count = 16, 625 if LONG else 12

    async def run(count):
        others = [asyncio.to_thread(ask, service.url, fixed) for _ in range(4)]
        leaving = [leave_at_random(host, int(port), count, seed) for seed in range(num_clients)]
        answers = await asyncio.gather(*others, *leaving)
        return answers[:4]

    assert asyncio.run(run(4)) == [expected] * 4  # warm: pools have their size
    idle(service)
    fds, resident, blocks = held(service)
    assert blocks == 0
    assert asyncio.run(run(count)) == [expected] * 4
    idle(service)
    wait_for(lambda: held(service)[0] <= fds + 1)
    after = held(service)
    print(f"{num_clients * count} disconnects: descriptors {fds} -> {after[0]}, resident {resident:.1f} -> {after[1]:.1f} MiB, "
          f"blocks not free {after[2]:.0f}")
    assert after[2] == 0
    assert after[1] < resident + 16
    assert ask(service.url, fixed) == expected


def test_killed_and_started_again_it_answers_the_same(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    fixed, answers = body(30, stream=False, seed=3), []
    for _ in range(10 if LONG else 2):
        service = Service("--port", port)
        running = socket.create_connection(("127.0.0.1", int(port)))
        running.sendall(message(body(400)))
        answers.append(ask(service.url, fixed))
        assert running.recv(4096)
        service.process.send_signal(signal.SIGKILL)
        service.process.wait(timeout=20)
        running.close()
    assert len(set(answers)) == 1


def test_a_full_disk_for_the_log_stops_nothing():
    with open("/dev/full", "w") as full:
        service = Service(stderr=full)
    try:
        for _ in range(5):
            assert ask(service.url, body(4, stream=False))
    finally:
        assert service.stop() == 0


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("no right to mount a small disk here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_for_store_and_log_changes_no_answer(small_disk, start_service):
    """The store is a cache: what it cannot keep costs time, never an answer. With room again it goes on."""
    plain = start_service()

    def prompt(i):
        words = " ".join(f"{i * 977 + k}" for k in range(220))
        return {**body(8, stream=False, seed=1), "messages": [{"role": "user", "content": words}]}

    log = open(small_disk / "log", "w")
    service = Service("--store", str(small_disk), "--kv-tokens", "34000", stderr=log)
    try:
        assert ask(service.url, prompt(0)) == ask(plain.url, prompt(0))
        wait_for(lambda: metric(service.url, "deepinfer_store_blocks") > 0)
        kept = metric(service.url, "deepinfer_store_blocks")
        with open(small_disk / "of others", "wb", buffering=0) as filler, pytest.raises(OSError):
            while True:
                filler.write(b"x" * 4096)
        os.write(log.fileno(), b"." * (-os.fstat(log.fileno()).st_size % 4096))  # its last page had room for a few lines
        for i in range(1, 9):
            assert ask(service.url, prompt(i)) == ask(plain.url, prompt(i))
        assert ask(service.url, prompt(0)) == ask(plain.url, prompt(0))
        wait_for(lambda: metric(service.url, "deepinfer_store_writes_full_total") > 0)
        wait_for(lambda: metric(service.url, "deepinfer_log_lines_lost_total") > 0)
        assert metric(service.url, "deepinfer_store_blocks") <= kept
        (small_disk / "of others").unlink()
        full = iter(range(100, 200))

        def keeps_more():
            i = next(full)
            assert ask(service.url, prompt(i)) == ask(plain.url, prompt(i))
            time.sleep(0.5)
            return metric(service.url, "deepinfer_store_blocks") > kept

        wait_for(keeps_more, 90)
    finally:
        assert service.stop() == 0
        log.close()


def test_a_log_that_nobody_reads_stops_nothing():
    """Standard error is a pipe whose reader has stopped; what the queue before it cannot hold is lost and counted."""
    reader, writer = os.pipe()
    service = Service(stderr=writer)
    os.close(writer)
    host, port = service.url[len("http://"):].split(":")
    num_lines, one = 8000, b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nx-request-id: " + b"x" * 128 + b"\r\n\r\n"
    try:
        expected = ask(service.url, body(8, stream=False, seed=1))
        with socket.create_connection((host, int(port)), timeout=60) as client:
            threading.Thread(target=client.sendall, args=(one * num_lines,), daemon=True).start()
            got = b""
            while got.count(b'"live"') < num_lines:
                got += client.recv(1 << 20)
        assert ask(service.url, body(8, stream=False, seed=1)) == expected
        assert metric(service.url, "deepinfer_log_lines_lost_total") > 0
        read = b""
        while b"log lines were lost" not in read:
            read += os.read(reader, 1 << 20)
    finally:
        assert service.stop() == 0
        os.close(reader)


def test_without_descriptors_it_waits_and_goes_on():
    service = Service(prefix=("prlimit", "--nofile=48:48"))
    port = int(service.url.rsplit(":", 1)[1])
    try:
        expected = ask(service.url, body(8, stream=False, seed=1))
        taken = [socket.create_connection(("127.0.0.1", port)) for _ in range(100)]  # the kernel's queue takes the rest
        time.sleep(0.5)
        assert service.process.poll() is None
        for one in taken:
            one.close()
        assert ask(service.url, body(8, stream=False, seed=1)) == expected
        idle(service)
        assert held(service)[2] == 0
    finally:
        assert service.stop() == 0


async def one_stream(host, port, until, counts, number, max_tokens):
    reader, writer = await asyncio.open_connection(host, port)
    while time.monotonic() < until:
        writer.write(message(body(max_tokens, user=str(number))))
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        assert b" 200 " in head.split(b"\r\n")[0], head
        tokens = 0
        while True:
            size = int(await reader.readline(), 16)
            data = await reader.readexactly(size + 2)
            tokens += data.count(b'"delta":{"content":"')
            assert b'"error"' not in data, data
            if size == 0:
                break
        counts[number] += 1
    writer.close()


def test_many_streams_are_served_fairly_and_in_bounded_memory(start_service):
    """Every client asks for the same again and again; who waits longest is next, so no client gets ahead of another by
    more than one answer and the one under way."""
    num_streams, seconds, max_tokens = (1000, 120, 4) if LONG else (100, 6, 4)
    service = start_service("--max-concurrency", "64", "--max-queue", "4000", "--max-connections", "4000")
    host, port = service.url[len("http://"):].split(":")

    async def run(seconds):
        counts = [0] * num_streams
        until = time.monotonic() + seconds
        await asyncio.gather(*(one_stream(host, int(port), until, counts, i, max_tokens) for i in range(num_streams)))
        return counts

    asyncio.run(run(1))
    idle(service)
    before = held(service)
    counts = asyncio.run(run(seconds))
    idle(service)
    after = held(service)
    print(f"{num_streams} streams for {seconds} s: {sum(counts)} answers, {min(counts)} to {max(counts)} each; "
          f"resident {before[1]:.1f} -> {after[1]:.1f} MiB")
    assert max(counts) - min(counts) <= 2
    assert after[1] < before[1] + 32 and after[2] == 0
