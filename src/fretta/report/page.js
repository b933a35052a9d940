// The page works without this file; it adds sorting, filtering, toggles, details of runs, live updates.
// Everything that comes from the store is put in as text, never as markup.
"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const state = { sort: {}, off: {}, open: {}, scroll: {} };
  let data = JSON.parse($("#data").textContent);

  const element = (tag, text, props = {}) => {
    const made = Object.assign(document.createElement(tag), props);
    if (text !== undefined && text !== null) made.textContent = text;
    return made;
  };

  // ---- sorting: rows within their section; empty cells stay last ----------------------------------
  const value = (row, index) => row.cells[index].dataset.v;
  function sortTable(table, index, direction) {
    const sign = direction === "ascending" ? 1 : -1;
    for (const body of table.tBodies) {
      const rows = $$("tr.row", body);
      rows.forEach((row, i) => { row.dataset.i ??= i; });
      rows.sort((a, b) => {
        if (direction === "none") return a.dataset.i - b.dataset.i;
        const x = value(a, index), y = value(b, index);
        if (x === "" || y === "") return (x === "") - (y === "") || a.dataset.i - b.dataset.i;
        const numeric = index > 0 && !isNaN(x) && !isNaN(y);
        return sign * (numeric ? x - y : x.localeCompare(y, undefined, { numeric: true })) || a.dataset.i - b.dataset.i;
      });
      body.append(...rows);
    }
    const heads = $$("thead tr:last-child th", table);
    heads.forEach((head, i) => {
      if (i === index && direction !== "none") head.setAttribute("aria-sort", direction);
      else head.removeAttribute("aria-sort");
    });
    state.sort[table.dataset.name] = direction === "none" ? null : [index, direction];
  }
  function nextSort(button) {
    const head = button.closest("th"), table = head.closest("table");
    const index = $$("thead tr:last-child th", table).indexOf(head);
    // Numbers start with the highest, names with a; the third time restores the order of the suite.
    const cycle = index === 0 ? ["none", "ascending", "descending"] : ["none", "descending", "ascending"];
    const now = head.getAttribute("aria-sort") || "none";
    sortTable(table, index, cycle[(cycle.indexOf(now) + 1) % 3]);
  }

  // ---- filter -------------------------------------------------------------------------------------
  function filter() {
    const words = $("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0, all = 0;
    for (const block of $$(".block")) {
      let here = 0;
      for (const row of $$("tr.row", block)) {
        const text = row.cells[0].textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        here += !row.hidden;
        all += 1;
      }
      block.classList.toggle("nothing", here === 0 && words.length > 0);
      shown += here;
    }
    $("#count").textContent = words.length ? `${shown} of ${all} rows` : "";
  }

  // ---- figures: toggle series, show values ----------------------------------------------------------
  function toggleSeries(button) {
    const figure = button.closest("figure"), name = button.dataset.series;
    const off = button.getAttribute("aria-pressed") === "true";
    button.setAttribute("aria-pressed", String(!off));
    for (const part of $$(`.drawing .series.${name}`, figure)) part.classList.toggle("off", off);
    (state.off[figure.dataset.name] ??= {})[button.textContent] = off;
  }
  const tip = $("#tip");
  function showTip(target) {
    tip.textContent = target.dataset.label;
    tip.hidden = false;
    const box = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
    const left = Math.min(Math.max(4, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 4);
    const above = box.top - own.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
  }
  for (const [on, off] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
    document.addEventListener(on, (e) => { const t = e.target.closest?.("[data-label]"); if (t) showTip(t); });
    document.addEventListener(off, (e) => { if (e.target.closest?.("[data-label]")) tip.hidden = true; });
  }

  // ---- a number's runs ------------------------------------------------------------------------------
  const percent = (v) => (v === null || v === undefined ? "–" : `${(100 * v).toFixed(2)} %`);
  const plain = (v) => (v !== null && typeof v === "object" ? JSON.stringify(v) : String(v));
  function list(entries) {
    const dl = element("dl");
    for (const [name, v] of entries) {
      if (v === null || v === undefined || v === "" || (typeof v === "object" && !Object.keys(v).length)) continue;
      dl.append(element("dt", name), element("dd", plain(v)));
    }
    return dl;
  }
  function table(head, rows) {
    const made = element("table", null, { className: "plain" });
    const top = made.createTHead().insertRow(), body = made.createTBody();
    for (const name of head) top.append(element("th", name, { scope: "col" }));
    for (const row of rows) { const tr = body.insertRow(); for (const v of row) tr.append(element("td", v)); }
    const scroll = element("div", null, { className: "scroll" });
    scroll.append(made);
    return scroll;
  }
  function command(group, runs) {
    const seeds = [...new Set(runs.map((r) => r.seed))].sort((a, b) => a - b);
    if (group.command.startsWith("fretta evaluate")) return seeds.map((s) => `${group.command} --seed ${s}`).join("\n");
    return group.command + seeds.map((s) => ` --seed ${s}`).join("");
  }
  function showRuns(numbers, column) {
    const runs = numbers.map((n) => data.runs[n]), body = $("#dialog-body");
    const groups = [...new Set(runs.map((r) => r.group))];
    const first = data.groups[groups[0]];
    body.replaceChildren();
    const close = element("button", "×", { type: "button", className: "close" });
    close.setAttribute("aria-label", "Close");
    close.addEventListener("click", () => $("#dialog").close());
    body.append(close, element("h2", first.label, { id: "dialog-title" }));
    body.append(element("p", [first.suite, column].filter(Boolean).join(" · "), { className: "muted" }));
    const named = first.domains.length > 1 && first.domains.includes(column);
    const head = ["seed", ...(groups.length > 1 ? ["case"] : []), ...(named ? [column] : []), "mean over domains", "seconds", "status", "record"];
    body.append(element("h3", runs.length > 1 ? `${runs.length} runs` : "The run"), table(head, runs.map((r) => {
      const g = data.groups[r.group], at = g.domains.indexOf(column);
      return [r.seed, ...(groups.length > 1 ? [g.case] : []), ...(named ? [percent(at < 0 ? null : r.domains[at])] : []), percent(r.accuracy),
        r.seconds === null ? "–" : r.seconds.toFixed(1), r.status, r.key];
    })));
    for (const run of runs.filter((r) => r.error)) body.append(element("h3", `Why seed ${run.seed} failed`), element("pre", run.error));
    body.append(element("h3", "Run it again"));
    const text = groups.map((i) => command(data.groups[i], runs.filter((r) => r.group === i))).join("\n");
    body.append(element("pre", text));
    if (navigator.clipboard) {
      const copy = element("button", "Copy", { type: "button", className: "action" });
      copy.addEventListener("click", () => navigator.clipboard.writeText(text).then(() => { copy.textContent = "Copied"; }, () => { copy.textContent = "Not allowed here"; }));
      body.append(copy);
    }
    if (first.needs) body.append(element("p", `It needs ${first.needs}.`, { className: "muted" }));
    const { run } = first;
    body.append(element("h3", "Settings"), list([["method", run.method], ["chosen by", first.tuning], ...Object.entries(first.settings)]));
    body.append(element("h3", "Run"), list(Object.entries(run).filter(([k]) => k !== "method")));
    for (const i of new Set(runs.map((r) => r.from))) body.append(element("h3", "Provenance"), list(Object.entries(data.provenance[i]).map(([k, v]) => [k, k === "dirty" ? (v ? "yes: uncommitted code" : v === false ? "no" : "") : v])));
    if (runs.length === 1) body.append(list(Object.entries(runs[0].own).map(([k, v]) => [k, k === "finished" ? new Date(1000 * v).toISOString() : v])));
    const dialog = $("#dialog");
    dialog.showModal();
    dialog.scrollTop = 0;
    close.focus();
  }
  $("#dialog").addEventListener("click", (e) => { if (e.target === e.currentTarget) e.currentTarget.close(); });

  // ---- arrow keys inside a table: one stop for Tab, then from number to number -----------------------
  function roam(event) {
    const cell = event.target.closest?.(".cell"), step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!cell || !step) return;
    const rows = $$("tr.row", cell.closest("table")).filter((r) => !r.hidden);
    let at = rows.indexOf(cell.closest("tr")), index = cell.closest("td").cellIndex, next = null;
    do { at += step[0]; index += step[1]; next = rows[at]?.cells[index]; } while (next && !$(".cell", next));
    if (!next) return;
    event.preventDefault();
    const to = $(".cell", next);
    cell.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  document.addEventListener("keydown", roam);
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("button");
    if (!button) return;
    if (button.matches(".sort")) nextSort(button);
    else if (button.matches(".toggle")) toggleSeries(button);
    else if (button.dataset.runs) showRuns(button.dataset.runs.split(" ").map(Number), button.dataset.column || "");
    else if (button.id === "paper") setPaper(button.getAttribute("aria-pressed") !== "true");
  });
  function setPaper(on) {
    $("#paper").setAttribute("aria-pressed", String(on));
    document.documentElement.classList.toggle("show-paper", on);
  }
  $("#filter").addEventListener("input", filter);

  function prepare() {
    for (const each of $$("table[data-name]")) { const first = $(".cell", each); if (first) first.tabIndex = 0; }
    $("#paper").hidden = !$("td .paper");
  }
  prepare();

  // ---- live: ask for the version, swap the content when it changed ------------------------------------
  if (!("live" in document.documentElement.dataset)) return;
  let version = document.documentElement.dataset.live, misses = 0;
  function remember() {
    for (const d of $$("details[id]")) state.open[d.id] = d.open;
    for (const s of $$(".block > .scroll")) state.scroll[s.parentElement.id] = s.scrollLeft;
    const top = $$(".block[id], figure[id], h2[id]").find((b) => b.getBoundingClientRect().bottom > 0);
    return { id: top?.id, y: top?.getBoundingClientRect().top };
  }
  function focusPath() {
    const cell = document.activeElement?.closest?.("td, th"), table = cell?.closest("table[data-name]");
    return table && cell.closest("tr.row") ? [table.dataset.name, cell.closest("tr").cells[0].textContent, cell.cellIndex] : null;
  }
  function restore(anchor, path) {
    for (const each of $$("table[data-name]")) { const s = state.sort[each.dataset.name]; if (s) sortTable(each, ...s); }
    for (const [id, open] of Object.entries(state.open)) { const d = document.getElementById(id); if (d) d.open = open; }
    for (const [id, left] of Object.entries(state.scroll)) { const b = document.getElementById(id); if (b) $(".scroll", b).scrollLeft = left; }
    for (const figure of $$("figure[data-name]")) for (const b of $$(".toggle", figure)) if (state.off[figure.dataset.name]?.[b.textContent]) toggleSeries(b);
    filter();
    if (path) {
      const row = $$("tr.row", $$("table[data-name]").find((t) => t.dataset.name === path[0]) || document.createElement("p")).find((r) => r.cells[0].textContent === path[1]);
      $("button", row?.cells[path[2]] || document.createElement("p"))?.focus({ preventScroll: true });
    }
    const at = anchor.id && document.getElementById(anchor.id);
    if (at) scrollBy({ top: at.getBoundingClientRect().top - anchor.y, behavior: "instant" });
  }
  async function update() {
    const answer = await fetch("/", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const anchor = remember(), path = focusPath();
    data = JSON.parse(page.getElementById("data").textContent);
    $("#content").replaceChildren(...page.getElementById("content").childNodes);
    document.title = page.title;
    version = page.documentElement.dataset.live;
    prepare();
    restore(anchor, path);
  }
  async function poll() {
    try {
      const answer = await fetch("/version", { cache: "no-store" });
      const now = await answer.json();
      if (now.version !== version && !$("#dialog").open) await update();
      misses = 0;
      $("#status").textContent = `Watching ${now.store}. ${now.records} records${now.running.length ? `, ${now.running.length} in flight` : ""}.`;
    } catch {
      misses += 1;
      $("#status").textContent = "The server does not answer; is `fretta watch` still running?";
    }
    setTimeout(poll, misses ? 5000 : 1500);
  }
  poll();
})();
