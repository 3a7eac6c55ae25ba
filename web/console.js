// The console: a client of the public API like any other. Text from the model is only ever put into the page as text
// (textContent); nothing is stored, nothing is fetched from elsewhere.
"use strict";

const $ = (id) => document.getElementById(id);
const turns = [];       // messages of the conversation, as the API takes them
let images = [];        // data URLs of the message being written
let running = null;     // AbortController of the answer under way

function element(kind, className, text) {
  const made = document.createElement(kind);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function notice(text) { $("notice").textContent = text; }

function headers() {
  const all = { "Content-Type": "application/json" };
  if ($("logprobs").checked) all["x-explain"] = "tokens";  // ids and drafts come as comments of the stream
  if ($("key").value) all.Authorization = "Bearer " + $("key").value;
  return all;
}

function parsed(id, name) {
  const text = $(id).value.trim();
  if (!text) return undefined;
  try { return JSON.parse(text); } catch (error) { throw new Error(name + " is not JSON: " + error.message); }
}

function number(id) { return $(id).value === "" ? undefined : Number($(id).value); }

function requestBody() {
  const messages = $("system").value ? [{ role: "system", content: $("system").value }] : [];
  const thinking = $("thinking").value;
  const schema = parsed("schema", "The JSON schema");
  const body = {
    model: $("model").value, messages: messages.concat(turns), stream: true,
    thinking: { type: thinking === "off" ? "disabled" : "enabled" },
    temperature: number("temperature"), top_p: number("top-p"), max_tokens: number("max-tokens"), seed: number("seed"),
  };
  if (thinking === "max") body.reasoning_effort = "max";
  if ($("stop").value) body.stop = [$("stop").value];
  if (schema) body.response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
  const tools = parsed("tools", "The list of tools");
  if (tools) body.tools = tools;
  if ($("logprobs").checked) { body.logprobs = true; body.top_logprobs = 3; }
  return body;
}

// ---- turns on the page

function showUser(message) {
  const item = element("li", "turn user");
  item.append(element("div", "who", "You"));
  const parts = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
  for (const part of parts) {
    if (part.type === "text") item.append(element("div", "words", part.text));
    else { const picture = element("img"); picture.src = part.image_url.url; picture.alt = "image"; item.append(picture); }
  }
  $("turns").append(item);
}

function showTool(message) {
  const item = element("li", "turn user");
  item.append(element("div", "who", "Result of " + message.tool_call_id), element("div", "words", message.content));
  $("turns").append(item);
}

// One answer on the page; grows while it streams.
class AnswerView {
  constructor() {
    this.item = element("li", "turn model");
    this.fold = element("details");
    this.thought = element("div", "thought");
    this.fold.append(element("summary", "", "Thinking"), this.thought);
    this.fold.hidden = true;
    this.words = element("div", "words");
    this.calls = element("div");
    this.tokens = element("details", "tokens");
    this.tokensTitle = element("summary");
    this.tokenList = element("ol");
    this.tokens.append(this.tokensTitle, this.tokenList);
    this.tokens.hidden = true;
    this.numTokens = this.numDrafts = 0;
    this.figures = element("div", "figures", "…");
    this.item.append(element("div", "who", "Model"), this.fold, this.words, this.calls, this.tokens, this.figures);
    $("turns").append(this.item);
    $("turns").scrollTop = $("turns").scrollHeight;  // the reader asked for it; from here on keepingPlace()
    this.callViews = [];
  }
  // Follows the end only when the reader is there.
  keepingPlace(change) {
    const list = $("turns");
    const atEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 40;
    change();
    if (atEnd) list.scrollTop = list.scrollHeight;
  }
  addThought(text) { this.fold.hidden = false; this.thought.append(text); }
  addWords(text) { this.words.append(text); }
  addTokens(tokens, into) {
    for (const token of tokens) {
      const p = Math.exp(token.logprob);
      const view = element("span", "token p" + (p < 0.1 ? 0 : p < 0.5 ? 1 : p < 0.9 ? 2 : 3), token.token);
      view.title = (100 * p).toFixed(1) + " %" + token.top_logprobs.map(
        (other) => "\n" + JSON.stringify(other.token) + " " + (100 * Math.exp(other.logprob)).toFixed(1) + " %").join("");
      into.append(view);
    }
  }
  // [choice, id, text, was a draft, logprob or null] of each token as the engine gave it.
  addTokenRows(rows) {
    this.tokens.hidden = false;
    for (const [, id, text, wasDraft, logprob] of rows) {
      const row = element("li", wasDraft ? "draft" : "");
      const p = logprob === null ? "" : (100 * Math.exp(logprob)).toFixed(1) + " %";
      row.append(element("span", "id", String(id)), element("span", "text", JSON.stringify(text).slice(1, -1)), element("span", "share", p));
      row.title = wasDraft ? "an accepted draft" : "picked by the model";
      this.tokenList.append(row);
      this.numTokens += 1;
      this.numDrafts += wasDraft ? 1 : 0;
    }
    this.tokensTitle.textContent = this.numTokens + " tokens, " + this.numDrafts + " of them accepted drafts";
  }
  addCall(index, name) {
    const view = element("div", "call", name + " ");
    this.callViews[index] = view;
    this.calls.append(view);
  }
  addArguments(index, text) { if (this.callViews[index]) this.callViews[index].append(text); }
  // A form under a finished call: what is typed becomes its result.
  askForResult(index, call) {
    const form = element("form"), input = element("input"), button = element("button", "", "Answer the call");
    input.setAttribute("aria-label", "Result of " + call.function.name);
    form.append(input, button);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      form.remove();
      const message = { role: "tool", tool_call_id: call.id, content: input.value };
      turns.push(message);
      showTool(message);
      const asked = turns.filter((turn) => turn.tool_calls).flatMap((turn) => turn.tool_calls.map((one) => one.id));
      const given = new Set(turns.filter((turn) => turn.role === "tool").map((turn) => turn.tool_call_id));
      if (asked.every((id) => given.has(id))) answer();
    });
    this.callViews[index].append(form);
  }
  fail(text) { this.figures.textContent = ""; this.figures.append(element("span", "error", text)); }
}

// ---- streaming

// Calls onEvent(data) for each event of a body of server-sent events, onComment(text) for each comment.
async function readEvents(body, onEvent, onComment) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    pending += value;
    const frames = pending.split("\n\n");
    pending = frames.pop();
    for (const frame of frames) {
      const data = frame.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
      if (data.length) onEvent(data.join("\n"));
      else if (frame.startsWith(": ")) onComment(frame.slice(2));
    }
  }
}

async function errorText(response) {
  const text = await response.text();
  try { return JSON.parse(text).error.message; } catch { return text || "The server said " + response.status + "."; }
}

function takeChunk(chunk, message, view) {
  if (chunk.error) throw new Error(chunk.error.message);
  const choice = chunk.choices[0], delta = choice.delta;
  const tokens = choice.logprobs || {};
  if (delta.reasoning_content) {
    message.reasoning_content = (message.reasoning_content || "") + delta.reasoning_content;
    if (tokens.reasoning_content) { view.fold.hidden = false; view.addTokens(tokens.reasoning_content, view.thought); }
    else view.addThought(delta.reasoning_content);
  }
  if (delta.content) {
    message.content += delta.content;
    if (tokens.content) view.addTokens(tokens.content, view.words);
    else view.addWords(delta.content);
  }
  for (const call of delta.tool_calls || []) {
    message.tool_calls = message.tool_calls || [];
    if (call.id) {
      message.tool_calls[call.index] = { id: call.id, type: "function", function: { name: call.function.name, arguments: "" } };
      view.addCall(call.index, call.function.name);
    }
    if (call.function.arguments) {
      message.tool_calls[call.index].function.arguments += call.function.arguments;
      view.addArguments(call.index, call.function.arguments);
    }
  }
}

function showFigures(view, usage, finish, begin, first) {
  const end = performance.now(), rate = (usage.completion_tokens - 1) / Math.max((end - first) / 1000, 1e-3);
  view.figures.textContent = [
    usage.prompt_tokens + " prompt tokens (" + usage.prompt_tokens_details.cached_tokens + " cached)",
    usage.completion_tokens + " tokens", "first after " + Math.round(first - begin) + " ms",
    usage.completion_tokens > 1 ? rate.toFixed(1) + " tokens/s" : "", finish].filter(Boolean).join(" · ");
}

async function answer() {
  let body;
  try { body = requestBody(); } catch (error) { notice(error.message); return; }
  notice("");
  const view = new AnswerView();
  const message = { role: "assistant", content: "" };
  running = new AbortController();
  setBusy(true);
  const begin = performance.now();
  let first = 0;
  try {
    const response = await fetch("/v1/chat/completions",
      { method: "POST", headers: headers(), body: JSON.stringify(body), signal: running.signal });
    if (!response.ok) throw new Error(await errorText(response));
    await readEvents(response.body, (data) => {
      if (data === "[DONE]") return;
      first = first || performance.now();
      const chunk = JSON.parse(data);
      view.keepingPlace(() => takeChunk(chunk, message, view));
      if (chunk.usage) view.keepingPlace(() => showFigures(view, chunk.usage, chunk.choices[0].finish_reason, begin, first));
    }, (comment) => {
      if (comment.startsWith("x-tokens ")) view.keepingPlace(() => view.addTokenRows(JSON.parse(comment.slice(9))));
    });
  } catch (error) {
    view.keepingPlace(() => error.name === "AbortError" ? (view.figures.textContent = "stopped") : view.fail(error.message));
  }
  running = null;
  setBusy(false);
  if (message.content || message.tool_calls || message.reasoning_content) {
    turns.push(message);
    (message.tool_calls || []).forEach((call, index) => view.askForResult(index, call));
  }
}

function setBusy(busy) {
  $("send").hidden = busy;
  $("stop-answer").hidden = !busy;
  $("retry").disabled = busy;
}

function send() {
  const text = $("text").value;
  if (running || (!text.trim() && !images.length)) return;
  const content = images.length
    ? images.map((url) => ({ type: "image_url", image_url: { url } })).concat([{ type: "text", text }]) : text;
  turns.push({ role: "user", content });
  showUser(turns[turns.length - 1]);
  $("text").value = "";
  images = [];
  $("images").replaceChildren();
  $("turns").scrollTop = $("turns").scrollHeight;
  answer();
}

function retry() {
  if (running || !turns.length) return;
  if (turns[turns.length - 1].role === "assistant") turns.pop();
  const last = $("turns").lastElementChild;
  if (last && last.classList.contains("model")) last.remove();
  if (turns.length) answer();
}

// ---- images

function addImages(files) {
  for (const file of files) {
    if (!file.type.startsWith("image/")) continue;
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      images.push(reader.result);
      const picture = element("img");
      picture.src = reader.result;
      picture.alt = file.name;
      $("images").append(picture);
    });
    reader.readAsDataURL(file);
  }
}

// ---- copies

function copy(text) {
  navigator.clipboard.writeText(text).then(() => notice("Copied."), () => notice("The browser did not allow copying."));
}

function quoted(text) { return "'" + text.replaceAll("'", "'\\''") + "'"; }

function copyCurl() {
  const key = $("key").value ? " -H 'Authorization: Bearer YOUR_KEY'" : "";
  copy("curl " + location.origin + "/v1/chat/completions -H 'Content-Type: application/json'" + key + " -d " +
    quoted(JSON.stringify(requestBody())));
}

function copyPython() {
  const { model, messages, ...more } = requestBody();
  copy("import json\nimport openai\n\nclient = openai.OpenAI(base_url=" + JSON.stringify(location.origin + "/v1") +
    ", api_key=\"YOUR_KEY\")\nstream = client.chat.completions.create(\n    model=" + JSON.stringify(model) +
    ",\n    messages=json.loads(" + JSON.stringify(JSON.stringify(messages)) + "),\n    stream=True,\n    extra_body=json.loads(" +
    JSON.stringify(JSON.stringify({ ...more, stream: undefined })) +
    "))\nfor chunk in stream:\n    print(chunk.choices[0].delta.content or \"\", end=\"\", flush=True)\n");
}

// ---- live figures

function readMetrics(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:]+)(\{.*\})? (\S+)$/.exec(line);
    if (!match) continue;
    const labels = match[2] || "";
    const device = /device="([^"]*)",state="([^"]*)"/.exec(labels);
    const label = /(?:reason|class)="([^"]*)"/.exec(labels);
    const part = device ? " " + device[1] + ": " + device[2] : label ? " " + label[1] : "";
    values.set(match[1] + part, Number(match[3]));
  }
  return values;
}

let before = null;

function figures(now, seconds) {
  const value = (name) => now.get(name) || 0;
  const rate = (name) => before && seconds > 0 ? (value(name) - (before.get(name) || 0)) / seconds : 0;
  const share = (part, whole) => whole > 0 ? (100 * part / whole).toFixed(1) + " %" : "–";
  const ms = (name) => (1000 * value(name)).toFixed(2) + " ms";
  const rows = [
    ["Running requests", value("vllm:num_requests_running")],
    ["Waiting requests", value("vllm:num_requests_waiting")],
    ["Tokens a second", rate("deepinfer_output_tokens_total").toFixed(0)],
    ["Prompt rows a second", rate("deepinfer_prompt_rows_total").toFixed(0)],
    ["Decode rows a second", rate("deepinfer_decode_rows_total").toFixed(0)],
    ["Drafts accepted of verified", share(value("vllm:spec_decode_num_accepted_tokens_total"), value("vllm:spec_decode_num_draft_tokens_total"))],
    ["Prompt tokens from the cache", share(value("vllm:prefix_cache_hits_total"), value("vllm:prefix_cache_queries_total"))],
    ["KV in use", share(value("vllm:kv_cache_usage_perc"), 1)],
    ["KV blocks kept for reuse", value("deepinfer_kv_blocks_cached") + " of " + value("deepinfer_kv_blocks")],
    ["Last step", ms("deepinfer_last_step_seconds") + (value("deepinfer_last_step_predicted_seconds") > 0
      ? ", predicted " + ms("deepinfer_last_step_predicted_seconds") : "")],
    ["Engine idle", before ? share(Math.max(0, 1 - rate("deepinfer_engine_busy_seconds_total")), 1) : "–"],
    ["Open connections", value("deepinfer_http_connections")],
    ["Output tokens of finished requests", value("vllm:generation_tokens_total")],
  ];
  if (now.has("deepinfer_store_blocks")) {
    rows.push(["Store: blocks kept", value("deepinfer_store_blocks")]);
    rows.push(["Store: blocks found of asked", share(value("deepinfer_store_hits_total"), value("deepinfer_store_queries_total"))]);
    rows.push(["Store: blocks pinned", value("deepinfer_store_pinned_blocks")]);
    rows.push(["Store: slowest reads (99th percentile)", ms("deepinfer_store_read_seconds_p99")]);
    for (const [name, count] of now) {
      if (name.startsWith("deepinfer_store_misses_total ") && count > 0) rows.push(["Store: ended, " + name.split(" ")[1], count]);
      if (name.startsWith("deepinfer_store_effective_ttl_seconds ")) rows.push(["Store: data stays, " + name.split(" ")[1], (count / 3600).toFixed(1) + " h"]);
      if (name.startsWith("deepinfer_store_device_state ")) {
        const end = name.lastIndexOf(": ");
        rows.push(["Store: shard " + name.slice(29, end), name.slice(end + 2)]);
      }
    }
  }
  for (const [name, count] of now)
    if (name.startsWith("deepinfer_prefix_cache_misses_total ")) rows.push(["Cache lookups ended: " + name.split(" ")[1], count]);
  return rows;
}

// ---- the timeline: one line a request, its waiting, its prompt and its answer

const TIMELINE = { seconds: 60, rows: 24, rowHeight: 18, label: 200, narrowLabel: 100, narrow: 480 };

function drawn(kind, attributes, className, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, String(value));
  if (className) made.setAttribute("class", className);
  if (text !== undefined) made.textContent = text;
  return made;
}

// `width` is the picture's on the page, so that its letters keep their size on a phone.
function timelineRow(request, index, now, width) {
  const { seconds, rowHeight } = TIMELINE, isNarrow = width < TIMELINE.narrow;
  const label = isNarrow ? TIMELINE.narrowLabel : TIMELINE.label;
  const x = (ms) => label + (width - label) * Math.min(1, Math.max(0, 1 - (now - request.begin_unix_ms - ms) / (1000 * seconds)));
  const y = index * rowHeight + 3, row = drawn("g", {});
  const admitted = request.admitted_ms ?? request.end_ms, first = request.first_token_ms ?? request.end_ms;
  for (const [from, to, className] of [[0, admitted, "waiting"], [admitted, first, "prompt"], [first, request.end_ms, "answer"]])
    if (x(to) > x(from)) row.append(drawn("rect", { x: x(from), y, width: x(to) - x(from), height: rowHeight - 6 }, className));
  const state = request.status === 0 ? "running" : request.status === 200 ? request.finish : String(request.status);
  row.append(drawn("text", { x: 0, y: y + 10 }, "", request.id.slice(0, isNarrow ? 8 : 16) + " " + state));
  row.append(drawn("title", {}, "", [request.id, request.route, state, "waited " + Math.round(admitted) + " ms",
    "first token after " + Math.round(first) + " ms", "over after " + Math.round(request.end_ms) + " ms",
    request.prompt_tokens + " prompt tokens, " + request.cached_tokens + " cached (" + request.cache_miss + ")",
    request.output_tokens + " tokens, " + request.drafts_accepted + " of " + request.drafts_verified + " drafts accepted"].join("\n")));
  return row;
}

async function updateTimeline() {
  const response = await fetch("/requests", { headers: headers() });
  if (!response.ok) return;
  const now = Date.now();
  const requests = (await response.json()).requests.filter((one) => now - one.begin_unix_ms - one.end_ms < 1000 * TIMELINE.seconds)
    .slice(0, TIMELINE.rows);
  const height = TIMELINE.rowHeight * Math.max(1, requests.length);
  const picture = $("timeline");
  const width = Math.max(240, picture.clientWidth);
  picture.setAttribute("viewBox", "0 0 " + width + " " + height);
  picture.replaceChildren(...requests.map((request, index) => timelineRow(request, index, now, width)));
  $("timeline-note").textContent = requests.length ? "The last " + TIMELINE.seconds + " s, now on the right." : "No request in the last minute.";
}

async function updateLive() {
  if ($("live").hidden) return;
  updateTimeline().catch(() => {});
  try {
    const response = await fetch("/metrics", { headers: headers() });
    if (!response.ok) throw new Error(await errorText(response));
    const now = readMetrics(await response.text());
    const at = performance.now();
    const rows = figures(now, before ? (at - before.at) / 1000 : 0);
    before = now;
    before.at = at;
    const body = $("figures");
    rows.forEach(([name, value], index) => {
      let row = body.rows[index];
      if (!row) { row = element("tr"); row.append(element("th"), element("td")); body.append(row); }
      row.cells[0].textContent = name;
      row.cells[1].textContent = value;
    });
    $("live-notice").textContent = "";
  } catch (error) { $("live-notice").textContent = error.message; }
}

// ---- start

function show(page) {
  for (const name of ["chat", "live"]) {
    $(name).hidden = name !== page;
    $("show-" + name).setAttribute("aria-pressed", String(name === page));
  }
  updateLive();
}

async function loadModels() {
  const response = await fetch("/v1/models", { headers: headers() });
  if (!response.ok) { notice(await errorText(response)); return; }
  $("model").replaceChildren(...(await response.json()).data.map((model) => element("option", "", model.id)));
}

$("compose").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && running) running.abort(); });
$("stop-answer").addEventListener("click", () => running && running.abort());
$("retry").addEventListener("click", retry);
$("clear").addEventListener("click", () => { if (!running) { turns.length = 0; $("turns").replaceChildren(); } });
$("curl").addEventListener("click", copyCurl);
$("python").addEventListener("click", copyPython);
$("file").addEventListener("change", () => { addImages($("file").files); $("file").value = ""; });
document.addEventListener("dragover", (event) => event.preventDefault());
document.addEventListener("drop", (event) => { event.preventDefault(); addImages(event.dataTransfer.files); });
$("text").addEventListener("paste", (event) => addImages(event.clipboardData.files));
$("show-chat").addEventListener("click", () => show("chat"));
$("show-live").addEventListener("click", () => show("live"));
$("show-settings").addEventListener("click", () => {
  const panel = $("settings");
  panel.hidden = !panel.hidden;
  $("show-settings").setAttribute("aria-expanded", String(!panel.hidden));
});
$("key").addEventListener("change", loadModels);
setInterval(updateLive, 1000);
loadModels();
$("text").focus();
