"""schemathesis holds the running service to its own OpenAPI document: no 5xx, every answer as the document says.
OPENAPI_EXAMPLES sets how many requests an operation gets (short form in ctest: 15; `make test-long`: 300)."""
import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

pytest.importorskip("schemathesis")
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def test_every_answer_is_as_the_document_says(start_service, tmp_path):
    service = start_service("--context", "256")  # answers are short, whatever they are asked for
    tool = Path(sys.executable).parent / "schemathesis"
    command = [tool, "run", service.url + "/openapi.json", "--checks", CHECKS, "--phases", "examples,coverage,fuzzing",
               "--max-examples", os.environ.get("OPENAPI_EXAMPLES", "15"), "--seed", "1", "--request-timeout", "60",
               "--generation-database", "none", "--no-color", "--suppress-health-check", "all", "--max-failures", "5"]
    done = subprocess.run([str(word) for word in command], cwd=tmp_path, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    print("\n".join(line for line in done.stdout.splitlines() if "generated" in line or "passed" in line))


def test_the_document_names_every_path(service):
    document = json.load(urllib.request.urlopen(service.url + "/openapi.json"))
    assert document["openapi"].startswith("3.1")
    operations = {(method, path) for path, item in document["paths"].items() for method in item}
    for expected in [("post", "/v1/chat/completions"), ("post", "/v1/responses"), ("get", "/v1/responses/{id}"),
                     ("delete", "/v1/responses/{id}"), ("post", "/v1/messages"), ("post", "/v1/messages/count_tokens"),
                     ("post", "/v1/completions"), ("get", "/v1/models"), ("post", "/tokenize"), ("post", "/detokenize"),
                     ("get", "/health/live"), ("get", "/health/ready"), ("get", "/metrics"), ("get", "/openapi.json")]:
        assert expected in operations
    body = document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["required"]) == {"model", "messages"}
