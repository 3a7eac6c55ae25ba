"""The web console in a real browser: send, stream, stop, retry, errors, image, live page; at phone and desk width."""
import base64
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, wait_for
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


def test_model_text_is_never_markup(page):
    settings(page, temperature="0", thinking="off", logprobs=True)
    ask(page, "<img src=x onerror=alert(1)><b>What is 12 + 7?</b>")
    answer = finished(page)
    assert page.locator("#turns b, #turns img").count() == 0
    assert answer.locator(".token").count() > 0


def test_stop(page):
    page.route("**/v1/chat/completions", lambda route: route.continue_(
        post_data=route.request.post_data.replace('"stream":true', '"stream":true,"ignore_eos":true')))
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


def test_live_page_and_the_timeline_of_requests(page):
    settings(page, thinking="off", max_tokens="40")
    ask(page, "What is 12 + 7?")
    finished(page)
    page.click("#show-live")
    until(page, "document.querySelectorAll('#figures tr').length > 8")
    assert page.locator("#figures").get_by_text("Running requests").count() == 1
    assert page.locator("#figures").get_by_text("Tokens a second").count() == 1
    until(page, "document.querySelectorAll('#timeline g').length > 0")
    told = page.locator("#timeline g title").first.text_content()
    assert "/v1/chat/completions" in told and "first token after" in told and "drafts accepted" in told


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
