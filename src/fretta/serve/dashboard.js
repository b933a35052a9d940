// Everything that comes from the service is put in as text, never as markup.
"use strict";
(() => {
  const { box, curves, seconds } = SETTINGS;
  const $ = (selector, root = document) => root.querySelector(selector);
  const SHOWN = ["entropy", "nrs", "changed", "drift"];  // curves of a stream, in this order
  const EVENTS = 50;
  let token = sessionStorage.getItem("fretta-token") || "";
  let busy = false, rows = [];

  // ---- text -----------------------------------------------------------------------------------
  const count = (n) => n.toLocaleString("en-US");
  const known = (x) => typeof x === "number" && isFinite(x);
  const percent = (x) => (known(x) ? `${(100 * x).toFixed(1)} %` : "–");
  const short = (x) => (!known(x) ? "–" : x && Math.abs(x) < 1e-3 ? x.toExponential(1) : String(Number(x.toPrecision(3))));
  const fixed = (x) => (known(x) ? x.toFixed(3) : "–");
  const bytes = (x) => (x < 2 ** 20 ? `${(x / 2 ** 10).toFixed(0)} KiB` : `${(x / 2 ** 20).toFixed(1)} MiB`);
  const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1);
  const signed = (x) => (x < 0 ? "−" : "+") + Math.abs(100 * x).toFixed(1);
  const total = (parts) => parts.reduce((sum, x) => sum + (x || 0), 0);
  const acted = (row) => total(Object.values(row.actions || {}));
  const selected = () => { try { return decodeURIComponent(location.hash.slice(1)); } catch { return ""; } };

  function ago(time) {
    if (!known(time)) return "–";
    const s = Math.max(0, Date.now() / 1000 - time);
    return s < 5 ? "now" : s < 100 ? `${s.toFixed(0)} s ago` : s < 6000 ? `${(s / 60).toFixed(0)} min ago` : `${(s / 3600).toFixed(0)} h ago`;
  }
  function estimate(e) {
    if (!e || !known(e.change)) return "–";
    const ends = known(e.low) && known(e.high) ? ` (${signed(e.low)} to ${signed(e.high)})` : "";
    return `${percent(e.source)} → ${percent(e.adapted)}${ends}`;
  }
  function actions(row) {
    const parts = Object.entries(row.actions || {}).filter(([, n]) => n);
    return parts.map(([name, n]) => `${name} ${count(n)}`).join(", ") || "–";
  }
  const verdictClass = (word) => (word === "helps" ? "good" : word === "hurts" || word === "collapsed" ? "bad" : "");

  // ---- elements -------------------------------------------------------------------------------
  const put = (node, text) => { if (node.textContent !== text) node.textContent = text; };
  const made = (tag, text, attributes = {}) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const drawn = (tag, attributes, text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (text !== undefined) node.textContent = text;
    return node;
  };

  // ---- charts: as in summary.html -------------------------------------------------------------
  function ticks(low, high, integers) {
    const rough = (high - low) / 4, power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough * (1 - 1e-9));
    if (integers) step = Math.max(step, 1);
    const [first, last] = integers
      ? [Math.ceil(low / step), Math.floor(high / step)]
      : [Math.floor(low / step + 1e-9), Math.ceil(high / step - 1e-9)];
    return Array.from({ length: last - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(12)));
  }
  function chart(name, history) {
    const [caption, unit] = curves[name], scale = unit.startsWith("%") ? 100 : 1;
    const points = history.filter((h) => known(h[name])).map((h) => [h.batch, scale * h[name]]);
    if (!points.length) return null;
    const values = points.map((p) => p[1]);
    let low = Math.min(...values), high = Math.max(...values);
    if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) {
      [low, high] = [low - (Math.abs(low) / 2 || 0.5), high + (Math.abs(high) / 2 || 0.5)];
    }
    const levels = ticks(low, high, false);
    [low, high] = [levels[0], levels[levels.length - 1]];
    const first = history[0].batch, last = Math.max(history[history.length - 1].batch, first + 1);
    const x = (batch) => box.left + ((box.right - box.left) * (batch - first)) / (last - first);
    const y = (value) => box.bottom - ((box.bottom - box.top) * (value - low)) / (high - low);
    const facts = { first: values[0], last: values[values.length - 1], lowest: Math.min(...values), highest: Math.max(...values) };
    const range = Object.entries(facts).map(([word, value]) => `${word} ${short(value)}`).join(" · ");
    const svg = drawn("svg", { viewBox: `0 0 ${box.width} ${box.height}`, role: "img", "aria-label": `${caption}: ${range}` });
    svg.append(drawn("text", { x: box.left, y: box.top - 8 }, unit));
    svg.append(drawn("text", { x: box.right, y: box.height - 4, "text-anchor": "end" }, "batch"));
    for (const value of levels) {
      svg.append(drawn("line", { class: "grid", x1: box.left, x2: box.right, y1: y(value), y2: y(value) }));
      svg.append(drawn("text", { x: box.left - 5, y: y(value) + 3.5, "text-anchor": "end" }, String(value)));
    }
    for (const batch of ticks(first, last, true)) {
      svg.append(drawn("line", { class: "axis", x1: x(batch), x2: x(batch), y1: box.bottom, y2: box.bottom + 4 }));
      if (x(batch) < box.right - 45) svg.append(drawn("text", { x: x(batch), y: box.height - 4, "text-anchor": "middle" }, count(batch)));
    }
    const corner = `${box.left},${box.top} ${box.left},${box.bottom} ${box.right},${box.bottom}`;
    svg.append(drawn("polyline", { class: "axis", points: corner }));
    for (const h of history) {
      if (h.action) svg.append(drawn("line", { class: "mark", x1: x(h.batch), x2: x(h.batch), y1: box.top, y2: box.bottom }));
    }
    if (points.length === 1) svg.append(drawn("circle", { class: "line", cx: x(points[0][0]), cy: y(points[0][1]), r: 2.5 }));
    else svg.append(drawn("polyline", { class: "line", points: points.map(([b, v]) => `${x(b).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }));
    const figure = made("figure"), legend = made("figcaption", caption);
    legend.append(made("br"), made("small", range));
    figure.append(svg, legend);
    return figure;
  }

  // ---- all streams ----------------------------------------------------------------------------
  function showAll() {
    const tiles = [
      [count(rows.length), "streams"],
      [count(total(rows.map((r) => r.images))), "images"],
      [count(rows.filter((r) => r.verdict === "helps").length), "where adapting helps"],
      [count(rows.filter((r) => verdictClass(r.verdict) === "bad").length), "where it hurts"],
      [count(total(rows.map(acted))), "batches the guard acted on"],
    ];
    const place = $("#tiles");
    while (place.children.length < tiles.length) {
      const tile = made("div");
      tile.append(made("b"), made("span"));
      place.append(tile);
    }
    tiles.forEach(([value, word], i) => {
      put(place.children[i].children[0], value);
      put(place.children[i].children[1], word);
    });
    const body = $("#streams tbody"), wanted = $("#find").value.toLowerCase(), now = selected();
    const shown = rows.filter((r) => r.name.toLowerCase().includes(wanted));
    while (body.rows.length > shown.length) body.lastChild.remove();
    shown.forEach((r, i) => {
      if (!body.rows[i]) {
        const line = body.insertRow();
        for (let k = 0; k < 8; k += 1) line.insertCell().className = [3, 4, 5, 7].includes(k) ? "extra" : "";
        line.cells[0].append(made("button", "", { type: "button" }));
      }
      const line = body.rows[i], [name, images, verdict, ...rest] = line.cells;
      put(name.firstChild, r.name);
      put(images, known(r.images) ? count(r.images) : "–");
      put(verdict, (r.verdict || "–") + (r.frozen ? ", frozen" : ""));
      verdict.className = verdictClass(r.verdict);
      const cells = [estimate(r.estimate), fixed(r.entropy), fixed(r.nrs), actions(r), ago(r.updated)];
      rest.forEach((cell, k) => put(cell, r.in_memory === false && !known(r.images) ? (k ? "–" : "put away") : cells[k]));
      if (r.name === now) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    });
  }

  // ---- one stream -----------------------------------------------------------------------------
  function showOne(d) {
    $("#one").hidden = !d;
    if (!d) return;
    put($("#name"), d.name);
    put($("#text"), sentence(d.text || "no verdict yet"));
    put($("#problem"), d.problem || "");
    $("#problem").hidden = !d.problem;
    const facts = [
      `${d.method}, guard ${d.guard}`,
      `${count(d.images || 0)} images in ${count(d.batches || 0)} batches, ${count(d.learned || 0)} learned`,
      `the source model predicted ${count(d.by_source || 0)}`,
      known(d.labeled) && d.labeled ? `${count(d.labeled)} labels came later` : "",
      known(d.memory_bytes) ? `${bytes(d.memory_bytes)} of its own` : "",
      d.frozen ? "frozen" : "",
    ];
    put($("#facts"), facts.filter(Boolean).join(" · "));
    const history = d.history || [];
    $("#charts").replaceChildren(...SHOWN.map((name) => chart(name, history)).filter(Boolean));
    const happened = [
      ...history.filter((h) => h.action).map((h) => [h.batch, h.action, h.reason || ""]),
      ...(d.events || []).map((e) => [e.batch, e.event, "asked for"]),
    ].sort((a, b) => b[0] - a[0]).slice(0, EVENTS);
    $("#calm").hidden = happened.length > 0;
    $("#happened").hidden = happened.length === 0;
    $("#happened tbody").replaceChildren(...happened.map(([batch, ...words]) => {
      const line = made("tr");
      line.append(made("td", count(batch)), ...words.map((word) => made("td", String(word))));
      return line;
    }));
  }

  // ---- asking the service ---------------------------------------------------------------------
  class Refused extends Error {}
  async function get(path) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    const answer = await fetch(path, { headers, cache: "no-store", credentials: "omit" });
    if (answer.status === 401) throw new Refused();
    if (answer.status === 404) return null;
    if (!answer.ok) throw new Error(`the service answers ${answer.status}`);
    return answer.json();
  }
  async function look() {
    if (busy || document.hidden) return;
    busy = true;
    try {
      rows = (await get("streams")) || [];
      $("#ask").hidden = true;
      $("#all").hidden = false;
      showAll();
      const name = selected();
      const found = name && rows.some((r) => r.name === name);
      const one = found ? await get(`streams/${encodeURIComponent(name)}`) : null;
      if (selected() === name) showOne(one);
      const first = rows.length ? "Choose a stream for its health over time." : "No stream yet: POST /predict begins one.";
      put($("#status"), `${found ? "" : first + " "}Updated ${new Date().toLocaleTimeString()}.`);
    } catch (error) {
      if (error instanceof Refused) {
        put($("#status"), token ? "This token is not accepted." : "Nothing is shown without the token.");
        $("#ask").hidden = false;
        $("#all").hidden = $("#one").hidden = true;
      } else {
        put($("#status"), `The service cannot be reached (${error.message}); trying again. What is shown is old.`);
      }
    } finally {
      busy = false;
    }
  }

  $("#ask").addEventListener("submit", (event) => {
    event.preventDefault();
    token = $("#token").value.trim();
    sessionStorage.setItem("fretta-token", token);
    $("#token").value = "";
    look();
  });
  $("#streams tbody").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) location.hash = encodeURIComponent(button.textContent);
  });
  $("#find").addEventListener("input", showAll);
  window.addEventListener("hashchange", () => { showAll(); look(); });
  document.addEventListener("visibilitychange", look);
  setInterval(look, 1000 * seconds);
  look();
})();
