"""The KV store behind the service: a long conversation goes on after a restart, from one directory and from twelve shard
servers of which one is killed; what may never hit does not. FAULTS=long (`make test-long`) has 20,000 tokens of
conversation instead of 3,000."""
import hashlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from conftest import MODEL, ROOT, Service, wait_for

NUM_TOKENS = 20_000 if os.environ.get("FAULTS") == "long" else 3_000
BLOCK = 128  # tokens


def conversation(seed=1):
    words = "river stone lamp orchard winter copper signal garden thread harbour".split()
    chosen = random.Random(seed)
    text = " ".join(f"{chosen.choice(words)} {chosen.randrange(1000)}" for _ in range(NUM_TOKENS // 4))
    return [{"role": "user", "content": text}, {"role": "assistant", "content": "I have read it."},
            {"role": "user", "content": "Which word comes first?"}]


def ask(service, messages, user="red", fields=(), **more):
    body = {"model": MODEL, "messages": messages, "max_tokens": 16, "temperature": 1, "seed": 7, "logprobs": True,
            "user": user, "thinking": {"type": "disabled"}, **more}
    if "tools" not in more:
        body["ignore_eos"] = True
    request = urllib.request.Request(service.url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json", "x-explain": "1", **dict(fields)})
    with urllib.request.urlopen(request, timeout=500) as response:
        answer, explain = json.load(response), json.loads(response.headers["x-explain"])["choices"][0]
    tokens = [(one["token"], one["logprob"]) for one in answer["choices"][0]["logprobs"]["content"]]
    assert len(tokens) >= 2
    return tokens, explain, answer["usage"]["prompt_tokens"]


@pytest.fixture(scope="module")
def cold():
    service = Service("--replay", "exact")
    tokens, explain, num_prompt = ask(service, conversation())
    assert service.stop() == 0
    assert explain["store_miss"] is None and explain["store_tokens"] == 0
    assert num_prompt >= NUM_TOKENS
    return tokens, num_prompt


def check_hit(answer, cold):
    tokens, explain, num_prompt = answer
    assert (tokens, num_prompt) == cold
    assert explain["store_tokens"] == (num_prompt - 1) // BLOCK * BLOCK  # every full block but the last token's
    assert explain["cached_tokens"] == explain["store_tokens"]
    assert explain["store_miss"] == "none"


def first_life(options, cold):
    service = Service("--replay", "exact", *options)
    tokens, explain, num_prompt = ask(service, conversation())
    assert (tokens, num_prompt) == cold
    assert (explain["store_tokens"], explain["store_miss"]) == (0, "never_stored")
    assert service.stop() == 0


def test_a_conversation_goes_on_after_a_restart(cold, tmp_path):
    options = ["--store", str(tmp_path / "kv")]
    first_life(options, cold)
    service = Service("--replay", "exact", *options)
    check_hit(ask(service, conversation()), cold)
    # Another tenant has neither the store's blocks nor, behind that answer, the device's.
    tokens, explain, _ = ask(service, conversation(), user="blue")
    assert (tokens, explain["store_tokens"], explain["cached_tokens"]) == (cold[0], 0, 0)
    assert explain["store_miss"] == "never_stored"
    assert service.stop() == 0


def test_another_model_never_hits(cold, tmp_path):
    options = ["--store", str(tmp_path / "kv")]
    first_life(options, cold)
    shutil.copytree(ROOT / "models/mini", tmp_path / "mini")  # the same bytes, as another checkpoint
    with open(tmp_path / "mini/config.json", "a") as config:
        config.write("\n")
    service = Service("--replay", "exact", *options, "--model", str(tmp_path / "mini"))
    _, explain, _ = ask(service, conversation())
    assert (explain["store_tokens"], explain["store_miss"]) == (0, "never_stored")
    assert service.stop() == 0


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


# Tools, or the client's own word, make an agent: the windows at the end of its turn are kept for the next one. Its tokens
# are those of a service without a store.
@pytest.mark.parametrize("asked, is_agent", [
    ({"tools": [TOOL]}, True), ({}, False), ({"fields": {"x-kv-class": "agent"}}, True),
    ({"tools": [TOOL], "fields": {"x-kv-class": "chat"}}, False)])
def test_an_agents_next_turn_goes_on_behind_a_stored_tail(start_service, tmp_path, asked, is_agent):
    options = ["--replay", "exact", "--store", str(tmp_path / "kv")]
    first = conversation(2)
    second = [*first, {"role": "assistant", "content": "All of them."}, *conversation(3)[:1]]
    service = start_service(*options)
    ask(service, first, **asked)
    assert service.stop() == 0
    service = start_service(*options)
    tokens, explain, _ = ask(service, second, **asked)
    assert service.stop() == 0
    assert explain["store_tokens"] > NUM_TOKENS - BLOCK
    # Where chunks end follows the machine's speed, and a chunk that ends far behind a block's end no longer holds its
    # windows: an agent's turn may leave none (StepLoopStore's test says where it must).
    assert explain["tail_tokens"] <= (explain["cached_tokens"] if is_agent else 0)
    if explain["tail_tokens"]:
        assert explain["replayed_tokens"] == explain["cached_tokens"] - explain["tail_tokens"]
    else:
        assert explain["replayed_tokens"] > 0
    assert tokens == ask(start_service("--replay", "exact"), second, **asked)[0]


def test_an_unknown_class_is_refused(service):
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(service, conversation(), fields={"x-kv-class": "forever"})
    assert refused.value.code == 400 and "x-kv-class" in refused.value.read().decode()


def posted(url, body, key):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Authorization": "Bearer " + key})
    try:
        return urllib.request.urlopen(request, timeout=60).status
    except urllib.error.HTTPError as error:
        return error.code


def figures(url, key):
    request = urllib.request.Request(url + "/metrics", headers={"Authorization": "Bearer " + key})
    lines = urllib.request.urlopen(request, timeout=60).read().decode().splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


# An operator deletes what is stored of a key: nobody finds it any more, of whatever user, and misses say why, also after a
# restart. Prompts are pinned by keys that may, and a pin holds nothing of whom it was deleted.
def test_an_operator_deletes_a_keys_data_and_pins_hold(tmp_path):
    keys = [{"name": name, "sha256": hashlib.sha256(key.encode()).hexdigest(), **more}
            for name, key, more in (("alice", "k1", {"pins": True}), ("bob", "k2", {}))]
    (tmp_path / "keys.json").write_text(json.dumps({"keys": keys}))
    environment = {**os.environ, "DEEPINFER_ADMIN_KEY": "for-admin"}
    options = ["--api-keys", str(tmp_path / "keys.json"), "--admin-port", "0", "--log", "json",
               "--replay", "exact", "--store", str(tmp_path / "kv")]

    def start():
        service = Service(*options, env=environment)
        log = [json.loads(line) for line in Path(service.log.name).read_text().splitlines() if line.startswith("{")]
        return service, "http://127.0.0.1:%d" % next(line["admin_port"] for line in log if "admin_port" in line)

    def hit(service, key, user="red", **fields):
        return ask(service, conversation(4)[:1], user=user, fields={"Authorization": "Bearer " + key, **fields})[1]

    service, admin = start()
    assert hit(service, "k1", **{"x-kv-pin": "on"})["store_miss"] == "never_stored"
    # Blocks are written, and pinned, behind the answer.
    wait_for(lambda: int(figures(admin, "for-admin")["deepinfer_store_pinned_blocks"]) >= NUM_TOKENS // BLOCK)
    hit(service, "k1", user="green")
    hit(service, "k2")
    for fields, status in (({"x-kv-pin": "on"}, 403), ({"x-kv-pin": "maybe"}, 400)):
        with pytest.raises(urllib.error.HTTPError) as refused:
            hit(service, "k2", **fields)
        assert refused.value.code == status
    assert service.stop() == 0

    service, admin = start()
    assert hit(service, "k1")["store_tokens"] > 0
    forget = admin + "/admin/store/forget"
    assert posted(forget, {"owner": "alice"}, "k1") == 403
    assert posted(forget, {"who": "alice"}, "for-admin") == 400
    assert posted(forget, {"owner": "nobody"}, "for-admin") == 404
    assert posted(forget, {"owner": "alice"}, "for-admin") == 200
    for user in ("red", "green"):
        explain = hit(service, "k1", user)
        assert (explain["store_tokens"], explain["cached_tokens"], explain["store_miss"]) == (0, 0, "tenant")
    assert service.stop() == 0

    service, admin = start()
    assert hit(service, "k1")["store_tokens"] > 0  # what was stored since
    assert hit(service, "k1", "grey")["store_miss"] == "tenant"
    assert hit(service, "k2")["store_tokens"] > 0
    assert hit(service, "k1", **{"x-kv-pin": "off"})
    assert service.stop() == 0


class Shard:
    def __init__(self, path, *options):
        self.process = subprocess.Popen(
            [os.environ["DEEPINFER"], "store", "serve", "--path", str(path), "--port", "0", *options],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.address = self.process.stdout.readline().split()[1]

    def end(self, sent=signal.SIGTERM):
        self.process.send_signal(sent)
        self.process.wait(timeout=60)
        self.process.stdout.close()


def test_twelve_shard_servers_serve_it_and_one_may_be_killed(cold, tmp_path):
    shards = [Shard(tmp_path / f"d{i}") for i in range(12)]
    try:
        options = ["--store-shards", ",".join(shard.address for shard in shards),
                   "--store-tenants", str(tmp_path / "tenants.json")]
        first_life(options, cold)
        service = Service("--replay", "exact", *options)
        shards[4].end(signal.SIGKILL)
        check_hit(ask(service, conversation()), cold)
        assert service.stop() == 0
        service = Service("--replay", "exact", *options)  # it opens without that one, too
        check_hit(ask(service, conversation()), cold)
        assert service.stop() == 0
    finally:
        for shard in shards:
            if shard.process.poll() is None:
                shard.end()


@pytest.fixture
def etcd(tmp_path):
    if not shutil.which("etcd"):
        pytest.skip("etcd is not installed (package etcd-server)")
    ports = []
    for _ in range(2):
        with socket.socket() as one:
            one.bind(("127.0.0.1", 0))
            ports.append(one.getsockname()[1])
    client, peer = (f"http://127.0.0.1:{port}" for port in ports)
    process = subprocess.Popen(
        ["etcd", "--data-dir", str(tmp_path / "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
         "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def is_up():
        try:
            return json.load(urllib.request.urlopen(client + "/health", timeout=2))["health"] == "true"
        except OSError:
            return False

    wait_for(is_up, 60)
    yield client.removeprefix("http://")
    process.kill()
    process.wait()


# Shard servers register themselves in etcd; the service finds them there, notices the end of a killed one's lease and
# takes it back from another port.
# Both ends show certificates, and blocks are encrypted on the shards.
def test_shard_servers_are_found_in_etcd(cold, tmp_path, etcd):
    pem, key, master = (str(tmp_path / name) for name in ("own.pem", "own.key", "master"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
                    "-out", pem, "-days", "2", "-subj", "/CN=store", "-addext", "subjectAltName=IP:127.0.0.1"], check=True,
                   stderr=subprocess.DEVNULL)
    Path(master).write_text("5a" * 32 + "\n")
    os.chmod(master, 0o600)
    tls = ["--tls-cert", pem, "--tls-key", key, "--tls-ca", pem]
    shards = [Shard(tmp_path / f"d{i}", "--etcd", etcd + "/kv", "--name", f"d{i:02}", *tls) for i in range(12)]
    options = ["--store-etcd", etcd + "/kv", "--store-tenants", str(tmp_path / "tenants.json"), "--store-encryption-key", master,
               *(word.replace("--tls", "--store-tls") for word in tls)]
    try:
        first_life(options, cold)
        service = Service("--replay", "exact", *options)
        log = Path(service.log.name)
        shards[4].end(signal.SIGKILL)
        wait_for(lambda: 'shard server is away  shard="d04"' in log.read_text(), 60)
        check_hit(ask(service, conversation()), cold)
        shards[4] = Shard(tmp_path / "d4", "--etcd", etcd + "/kv", "--name", "d04", *tls)
        wait_for(lambda: 'shard server is there  shard="d04"' in log.read_text(), 60)
        stranger = subprocess.run([os.environ["DEEPINFER"], "store", "stat", "--etcd", etcd + "/kv"],
                                  capture_output=True, text=True)
        assert stranger.returncode != 0 and "held by process" in stranger.stderr
        assert service.stop() == 0
    finally:
        for shard in shards:
            if shard.process.poll() is None:
                shard.end()
