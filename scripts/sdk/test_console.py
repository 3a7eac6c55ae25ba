"""The web console in a real browser: send, stream, stop, retry, errors, images, calls, schema, tokens, copies, the live page,
the keyboard, the dark; at phone and desk width."""
import base64
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Service, wait_for
from test_openai import png

playwright = pytest.importorskip("playwright.sync_api")
BROWSER = shutil.which("chromium-headless-shell") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium-headless-shell on this machine")
SHOTS = Path(os.environ.get("CONSOLE_SHOTS") or ROOT / "build/console_shots")  # what the pages looked like


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(params=[(320, 640), (1400, 900)], ids=["phone", "desk"])
def page(request, browser, service):
    opened = browser.new_page(viewport={"width": request.param[0], "height": request.param[1]})
    opened.add_init_script("""window.shifts = [];
        new PerformanceObserver((list) => list.getEntries().forEach((one) => !one.hadRecentInput && shifts.push(one.value)))
            .observe({type: "layout-shift", buffered: true});""")
    complaints = []
    opened.on("console", lambda message: message.type == "error" and complaints.append(message.text))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.goto(service.url + "/")
    opened.wait_for_selector("#model option", state="attached")
    yield opened
    assert opened.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    SHOTS.mkdir(parents=True, exist_ok=True)
    opened.screenshot(path=str(SHOTS / f"{request.node.name}.png"))
    assert [text for text in complaints if "status of 400" not in text] == []
    opened.close()


def changing(page, **members):
    """Adds members to what the console asks for, as a model that is cleverer would not need."""
    page.route("**/v1/chat/completions", lambda route: route.continue_(
        post_data=json.dumps({**json.loads(route.request.post_data), **members})))


def until(page, condition, seconds=30):
    """The page's policy forbids eval, so the condition is asked for from outside."""
    wait_for(lambda: page.evaluate(condition), seconds)


def settings(page, **values):
    page.click("#show-settings")
    for name, value in values.items():
        field = page.locator("#" + name.replace("_", "-"))
        if name == "thinking":
            field.select_option(value)
        elif name == "logprobs":
            field.set_checked(value)
        else:
            field.fill(value)
    page.click("#show-settings")


def ask(page, text):
    page.fill("#text", text)
    page.press("#text", "Enter")


def finished(page, count=1):
    until(page, f"document.querySelectorAll('.turn.model').length === {count} && !document.querySelector('#send').hidden")
    return page.locator(".turn.model").last


def test_send_think_retry(page):
    settings(page, temperature="0")
    ask(page, "What is 12 + 7?")
    answer = finished(page)
    assert answer.locator(".words").text_content() == "12 + 7 = 19"
    assert answer.locator("details:not(.tokens)").get_attribute("open") is None
    assert answer.locator(".thought").text_content()
    assert "tokens/s" in answer.locator(".figures").text_content()
    page.click("#retry")
    assert finished(page).locator(".words").text_content() == "12 + 7 = 19"


def test_a_long_chat_follows_its_newest_answer(page):
    settings(page, temperature="0", thinking="off", max_tokens="20")
    for count in range(1, 7):
        ask(page, "What is 12 + 7?")
        finished(page, count)
    page.click("#retry")
    figures = finished(page, 6).locator(".figures").bounding_box()
    room = page.locator("#turns").bounding_box()
    assert figures["y"] + figures["height"] <= room["y"] + room["height"] + 1


def test_model_text_is_never_markup(page):
    settings(page, temperature="0", thinking="off", logprobs=True)
    ask(page, "<img src=x onerror=alert(1)><b>What is 12 + 7?</b>")
    answer = finished(page)
    assert page.locator("#turns b, #turns img").count() == 0
    assert answer.locator(".token").count() > 0


def test_stop(page):
    changing(page, ignore_eos=True)
    settings(page, max_tokens="20000")
    ask(page, "Tell me everything.")
    page.wait_for_selector("#stop-answer:visible")
    until(page, "document.querySelector('.turn.model').textContent.length > 40")
    page.keyboard.press("Escape")
    assert "stopped" in finished(page).locator(".figures").text_content()


def test_errors_are_shown(page):
    settings(page, max_tokens="999999")
    ask(page, "hi")
    assert "max" in finished(page).locator(".error").text_content()
    settings(page, tools="{not json")
    ask(page, "hi")
    assert "not JSON" in page.locator("#notice").text_content()


def test_image(page):
    picture = base64.b64encode(png(64, 64, (0, 0, 200))).decode()
    page.set_input_files("#file", {"name": "a.png", "mimeType": "image/png", "buffer": base64.b64decode(picture)})
    page.wait_for_selector("#images img")
    settings(page, thinking="off", max_tokens="16")
    ask(page, "What is this?")
    finished(page)
    assert page.locator(".turn.user img").count() == 1
    assert page.locator(".error").count() == 0


def test_images_are_dropped_onto_the_page(page):
    picture = base64.b64encode(png(32, 32, (200, 0, 0))).decode()
    page.evaluate("""(bytes) => {
        const held = new DataTransfer();
        held.items.add(new File([Uint8Array.from(atob(bytes), (c) => c.charCodeAt(0))], "b.png", {type: "image/png"}));
        document.querySelector("#turns").dispatchEvent(new DragEvent("drop", {dataTransfer: held, bubbles: true, cancelable: true}));
    }""", picture)
    page.wait_for_selector("#images img")
    assert page.locator("#images img").get_attribute("src") == "data:image/png;base64," + picture


ADD = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"],
    "additionalProperties": False}}}


def test_calls_of_tools_are_shown_and_answered(page):
    changing(page, tool_choice="required", parallel_tool_calls=False)
    settings(page, temperature="0", thinking="off", tools=json.dumps([ADD]), max_tokens="200")
    ask(page, "Use the tool for 12 + 7.")
    call = finished(page).locator(".call")
    assert call.count() == 1 and call.text_content().startswith("add {")
    assert "tool_calls" in page.locator(".turn.model .figures").text_content()
    page.unroute("**/v1/chat/completions")
    call.locator("input").fill("19")
    call.locator("input").press("Enter")
    finished(page, 2)
    assert page.locator(".turn.user").last.locator(".words").text_content() == "19"
    sent = page.evaluate("turns.map((turn) => turn.role)")
    assert sent == ["user", "assistant", "tool", "assistant"]
    assert page.locator(".error").count() == 0


def test_a_json_schema_shapes_the_answer(page):
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
    settings(page, temperature="0", thinking="off", schema=json.dumps(schema), max_tokens="100")
    ask(page, "What is 12 + 7?")
    value = json.loads(finished(page).locator(".words").text_content())
    assert list(value) == ["sum"] and isinstance(value["sum"], int)


def test_everything_is_reached_by_keyboard(page):
    assert page.evaluate("document.activeElement.id") == "text"
    page.keyboard.type("What is 12 + 7?")
    page.keyboard.press("Shift+Enter")
    assert page.input_value("#text").endswith("\n")
    page.keyboard.press("Enter")
    finished(page)
    assert page.input_value("#text") == ""
    page.locator("body").evaluate("(body) => document.activeElement.blur()")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        now = page.evaluate("document.activeElement.id || document.activeElement.tagName")
        if now == "show-settings" and "show-settings" not in reached:
            page.keyboard.press("Enter")
        if now not in ("BODY", "HTML"):
            shown = page.evaluate("getComputedStyle(document.activeElement.closest('.file') || document.activeElement).outlineStyle")
            assert shown != "none", now
        reached.append(now)
    assert page.evaluate("scrollY") == 0  # what is reached moves the lists, not the page
    everything = page.evaluate("""[...document.querySelectorAll('button, input, select, textarea, summary')]
        .filter((one) => one.offsetParent && !one.disabled).map((one) => one.id || one.tagName)""")
    assert set(everything) <= set(reached)


def test_nothing_jumps_while_an_answer_streams(page):
    settings(page, temperature="0", max_tokens="120")
    changing(page, ignore_eos=True)
    page.evaluate("shifts.length = 0")
    ask(page, "What is 12 + 7?")
    finished(page)
    assert page.evaluate("shifts.reduce((sum, one) => sum + one, 0)") < 0.1  # what is called good: web.dev/cls


def test_the_policy_lets_no_foreign_script_run(page, browser, service):
    policy = page.request.get(service.url + "/").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    own = browser.new_page()  # its complaints are what is asked for
    own.goto(service.url + "/")
    own.evaluate("""() => {
        const script = document.createElement("script");
        script.textContent = "window.wasRun = true";
        document.body.append(script);
        const link = document.createElement("div");
        link.setAttribute("onclick", "window.wasRun = true");
        document.body.append(link);
        link.click();
    }""")
    assert own.evaluate("window.wasRun") is None
    own.close()


def test_dark_where_the_reader_likes_it_dark(page):
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    settings(page, temperature="0", logprobs=True)
    ask(page, "What is 12 + 7?")
    finished(page).locator("details.tokens summary").click()


def test_live_page_and_the_timeline_of_requests(page):
    settings(page, thinking="off", max_tokens="40")
    ask(page, "What is 12 + 7?")
    finished(page)
    page.click("#show-live")
    until(page, "document.querySelectorAll('#figures tr').length > 8")
    assert page.locator("#figures").get_by_text("Running requests").count() == 1
    for name in ("Tokens a second", "Waiting requests", "Drafts accepted of verified", "KV in use", "Last step", "Engine idle"):
        assert page.locator("#figures").get_by_text(name).count() == 1, name
    assert page.locator("#figures").get_by_text("Cache lookups ended").count() > 1
    until(page, "document.querySelectorAll('#timeline g').length > 0")
    size = page.evaluate("document.querySelector('#timeline g text').getBoundingClientRect().height")
    assert size > 9  # pixels: it can be read on a phone too
    told = page.locator("#timeline g title").first.text_content()
    assert "/v1/chat/completions" in told and "first token after" in told and "drafts accepted" in told


def test_the_live_page_shows_the_store(browser, tmp_path):
    service = Service("--store", ",".join(str(tmp_path / f"d{i}") for i in range(12)))
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    try:
        page.goto(service.url + "/")
        page.wait_for_selector("#model option", state="attached")
        settings(page, thinking="off", max_tokens="8")
        ask(page, "word " * 700)
        finished(page)
        page.click("#show-live")
        until(page, "[...document.querySelectorAll('#figures tr')].some((row) => row.textContent.startsWith('Store: blocks kept') "
                    "&& !row.textContent.endsWith('kept0'))")
        rows = dict(row.split("\t") for row in page.locator("#figures").inner_text().splitlines() if "\t" in row)
        assert rows["Store: ended, never_stored"].strip() == "1"
        assert float(rows["Store: data stays, agent"].split()[0]) == 72
        assert float(rows["Store: data stays, chat"].split()[0]) == 168
        assert {"Store: blocks found of asked", "Store: slowest reads (99th percentile)", "Store: blocks pinned"} <= set(rows)
        shards = [row for row in rows if row.startswith("Store: shard ")]
        assert len(shards) == 12 and all(rows[shard].strip() == "good" for shard in shards), rows
        SHOTS.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(SHOTS / "store.png"))
    finally:
        page.close()
        service.stop()


def test_tokens_are_shown_with_ids_and_drafts(page):
    settings(page, temperature="0", thinking="off", logprobs=True)
    ask(page, "What is 12 + 7?")
    answer = finished(page)
    answer.locator("details.tokens summary").click()
    rows = answer.locator("details.tokens li")
    assert rows.count() >= 4
    assert rows.first.locator(".id").text_content().isdigit()
    assert rows.first.locator(".share").text_content().endswith("%")
    assert "accepted drafts" in answer.locator("details.tokens summary").text_content()


def test_copies_run_elsewhere(page, service, tmp_path):
    """What is copied is run: curl as it stands, Python with the official package."""
    settings(page, temperature="0", thinking="off")
    ask(page, "What is 12 + 7?")
    finished(page)
    page.click("#clear")
    page.evaluate("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    page.evaluate("turns.push({role: 'user', content: 'What is 12 + 7?'})")
    page.click("#curl")
    curl = page.evaluate("copied")
    page.click("#python")
    python = page.evaluate("copied")
    told = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, timeout=60).stdout
    assert "[DONE]" in told
    (tmp_path / "copied.py").write_text(python)
    told = subprocess.run([sys.executable, str(tmp_path / "copied.py")], capture_output=True, text=True, timeout=60)
    assert told.stdout.strip() == "12 + 7 = 19", told.stderr
