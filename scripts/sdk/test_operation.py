"""What an operator does: TLS and its renewal, keys from file, environment and admin, spans, signals, refusals at start."""
import hashlib
import http.server
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import openai
import pytest
from conftest import MODEL, ROOT, Service, wait_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def certificate(folder, name):
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", str(key),
                    "-out", str(cert)], check=True, capture_output=True)
    return cert, key


def serial(service, trusted):
    context = ssl.create_default_context(cafile=str(trusted))
    port = int(service.url.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
        with context.wrap_socket(plain, server_hostname="localhost") as secure:
            assert secure.version() in ("TLSv1.2", "TLSv1.3")
            return secure.getpeercert()["serialNumber"]


def status(url, key=None, method="GET", **fields):
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(url, method=method, headers={**headers, **fields})
    try:
        return urllib.request.urlopen(request, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code


def ask(url, **more):
    client = openai.OpenAI(base_url=url + "/v1", api_key=more.pop("api_key", "unused"), max_retries=0)
    return client.chat.completions.create(model=MODEL, max_tokens=4, messages=[{"role": "user", "content": "hi"}], **more)


def test_tls_and_its_renewal(start_service, tmp_path):
    cert, key = certificate(tmp_path, "a")
    service = start_service("--tls-cert", str(cert), "--tls-key", str(key))
    assert service.url.startswith("https://")
    first = serial(service, cert)
    program = ("import openai; stream = openai.OpenAI().chat.completions.create(model=%r, max_tokens=8, stream=True, "
               "messages=[{'role': 'user', 'content': 'hi'}]); print(list(stream)[-1].choices[0].finish_reason)" % MODEL)
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "OPENAI_BASE_URL": service.url + "/v1", "OPENAI_API_KEY": "unused", "SSL_CERT_FILE": str(cert)})
    assert told.stdout.strip() in ("length", "stop"), told.stderr[-2000:]
    new_cert, new_key = certificate(tmp_path, "b")
    os.replace(new_cert, cert)
    os.replace(new_key, key)
    service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "read again" in Path(service.log.name).read_text())
    assert serial(service, cert) != first
    key.write_text("no key at all")
    service.process.send_signal(signal.SIGHUP)
    wait_for(lambda: "stay as they were" in Path(service.log.name).read_text())
    assert serial(service, cert) != first  # the last good one
    assert "https" in str(urllib.request.urlopen(service.url + "/health",
                                                 context=ssl.create_default_context(cafile=str(cert))).url)


def test_keys_of_file_environment_and_admin_are_apart_and_read_again(tmp_path):
    def write(*names):
        (tmp_path / "keys.json").write_text(json.dumps({"keys": [
            {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest()} for name in names]}))
    write("k1")
    environment = {**os.environ, "DEEPINFER_API_KEY": "from-env", "DEEPINFER_ADMIN_KEY": "for-admin"}
    service = Service("--api-keys", str(tmp_path / "keys.json"), env=environment)  # what it says to try is tried
    said = Path(service.log.name).read_text()
    tried = next(line[5:] for line in said.splitlines() if line.startswith("try: "))
    assert "[DONE]" in subprocess.run(["bash", "-c", tried], capture_output=True, text=True, env=environment, timeout=60).stdout
    assert service.stop() == 0
    service = Service("--api-keys", str(tmp_path / "keys.json"), "--admin-port", "0", "--log", "json", env=environment)
    try:
        log = [json.loads(line) for line in Path(service.log.name).read_text().splitlines() if line.startswith("{")]
        admin = "http://127.0.0.1:%d" % next(line["admin_port"] for line in log if "admin_port" in line)
        models = service.url + "/v1/models"
        assert [status(models, key) for key in (None, "k1", "from-env", "k2", "for-admin")] == [401, 200, 200, 401, 401]
        assert [status(admin + "/metrics", key) for key in (None, "k1", "from-env", "for-admin")] == [401, 403, 403, 200]
        assert status(admin + "/v1/models", "for-admin") == 404
        write("k2")
        service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: status(models, "k2") == 200)
        assert status(models, "k1") == 401 and status(models, "from-env") == 200
        (tmp_path / "keys.json").write_text("{")
        service.process.send_signal(signal.SIGHUP)
        wait_for(lambda: "stay as they were" in Path(service.log.name).read_text())
        assert status(models, "k2") == 200
        assert "from-env" not in Path(service.log.name).read_text()
    finally:
        service.stop()


@pytest.fixture
def collector():
    bodies = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            bodies.append((self.path, self.headers["Content-Type"],
                           json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    server.shutdown()


def test_spans_continue_the_callers_trace(start_service, collector):
    url, bodies = collector
    service = start_service("--otlp-endpoint", url)
    response = openai.OpenAI(base_url=service.url + "/v1", api_key="unused").chat.completions.with_raw_response.create(
        model=MODEL, max_tokens=4, messages=[{"role": "user", "content": "prompt text that must not be logged"}],
        extra_headers={"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"})
    assert response.headers["traceresponse"].split("-")[1] == TRACE
    ask(service.url, extra_headers={"traceparent": f"00-{'a' * 32}-00f067aa0ba902b7-00"})  # not sampled
    wait_for(lambda: any(TRACE in json.dumps(body) for _, _, body in bodies))
    path, kind, _ = bodies[0]
    assert path == "/v1/traces" and kind == "application/json"
    spans = [span for _, _, body in bodies for resource in body["resourceSpans"] for scope in resource["scopeSpans"]
             for span in scope["spans"]]
    ours = {span["name"]: span for span in spans if span["traceId"] == TRACE}
    top = ours["POST /v1/chat/completions"]
    assert top["parentSpanId"] == "00f067aa0ba902b7" and top["kind"] == 2
    assert top["spanId"] == response.headers["traceresponse"].split("-")[2]
    assert {"queue", "prompt", "decode"} <= set(ours)
    for name in ("queue", "prompt", "decode"):
        assert ours[name]["parentSpanId"] == top["spanId"]
        assert int(top["startTimeUnixNano"]) <= int(ours[name]["startTimeUnixNano"]) <= int(ours[name]["endTimeUnixNano"])
    values = {one["key"]: one["value"] for one in top["attributes"]}
    assert values["gen_ai.usage.output_tokens"] == {"intValue": "4"}
    assert values["http.response.status_code"] == {"intValue": "200"}
    assert not any(span["traceId"] == "a" * 32 for span in spans)
    assert "must not be logged" not in json.dumps(bodies)


def test_a_collector_that_is_away_harms_nobody(start_service):
    service = start_service("--otlp-endpoint", "http://127.0.0.1:9")
    for _ in range(3):
        assert ask(service.url).usage.completion_tokens == 4
    wait_for(lambda: "spans are lost" in Path(service.log.name).read_text())
    assert service.stop() == 0


def long_stream(url):
    client = openai.OpenAI(base_url=url + "/v1", api_key="unused", max_retries=0)
    stream = client.chat.completions.create(model=MODEL, max_tokens=3000, stream=True,
                                            extra_body={"ignore_eos": True, "thinking": {"type": "disabled"}},
                                            messages=[{"role": "user", "content": "hi"}])
    next(iter(stream))
    return stream


# The listener closes soon after the signal. Until then a client is answered that the server drains; one that connects in
# the very moment of closing may be reset, by the kernel.
def refuses_connections(url):
    try:
        with urllib.request.urlopen(url + "/health", timeout=5) as answer:
            pytest.fail(f"a draining server called itself {answer.read()}")
    except urllib.error.HTTPError as answered:
        assert answered.code == 503
        return False
    except urllib.error.URLError as failed:
        return isinstance(failed.reason, ConnectionRefusedError)
    except ConnectionResetError:
        return False


def test_a_signal_drains_and_a_second_one_stops():
    service = Service("--drain-seconds", "60")
    running = openai.OpenAI(base_url=service.url + "/v1", api_key="unused", max_retries=0).chat.completions.create(
        model=MODEL, max_tokens=200, stream=True, extra_body={"ignore_eos": True, "thinking": {"type": "disabled"}},
        messages=[{"role": "user", "content": "hi"}])
    next(iter(running))
    service.process.send_signal(signal.SIGTERM)
    assert list(running)[-1].choices[0].finish_reason == "length"
    assert service.process.wait(timeout=60) == 0
    service = Service("--drain-seconds", "600")
    running = long_stream(service.url)
    service.process.send_signal(signal.SIGTERM)
    wait_for(lambda: "draining" in Path(service.log.name).read_text())
    wait_for(lambda: refuses_connections(service.url))
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(timeout=20) == 128 + signal.SIGTERM
    service = Service("--drain-seconds", "1")  # the drain is bounded
    running = long_stream(service.url)
    service.process.send_signal(signal.SIGTERM)
    assert service.process.wait(timeout=60) == 0
    del running


@pytest.mark.parametrize("options, said", [
    (["--host", "0.0.0.0"], "--api-keys"), (["--tls-cert", "x.pem"], "--tls-key"),
    (["--tls-cert", "/no/such.pem", "--tls-key", "/no/such.key"], "/no/such.pem"),
    (["--api-keys", "/no/such.json"], "/no/such.json"), (["--otlp-endpoint", "localhost"], "--otlp-endpoint"),
    (["--port", "70000"], "65535"), (["--prot", "1"], "--port"), (["--model", "/no/such/model"], "/no/such/model")])
def test_what_cannot_start_says_why(options, said):
    done = subprocess.run([os.environ["DEEPINFER"], "serve", *(options if "--port" in options else ["--port", "0", *options])], capture_output=True, text=True, timeout=60)
    assert done.returncode in (1, 2) and done.stdout == ""
    assert said in done.stderr


def test_a_port_in_use_is_named(service):
    port = service.url.rsplit(":", 1)[1]
    done = subprocess.run([os.environ["DEEPINFER"], "serve", "--port", port], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and port in done.stderr and "in use" in done.stderr


def test_json_errors_have_a_position(service):
    request = urllib.request.Request(service.url + "/v1/chat/completions", method="POST", data=b'{"model": "m", "messages": [}')
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 400
    assert "28" in json.load(refused.value)["error"]["message"]
