// Console: theme, zone, refresh, keys, charts. No string is ever evaluated, and text is written by textContent only.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("js");
  const $ = (selector, from = document) => from.querySelector(selector);
  const all = (selector, from = document) => [...from.querySelectorAll(selector)];
  const keep = (name, value) => {
    document.cookie = `${name}=${value}; path=/; max-age=31536000; samesite=strict`;
  };
  const kept = (name) => document.cookie.split("; ").find((one) => one.startsWith(`${name}=`))?.slice(name.length + 1) ?? "";

  // Refresh: polls stop in hidden tabs, while paused, and while a field of the polled part has the focus.
  let paused = kept("rp-refresh") === "off";
  document.addEventListener("htmx:before:request", (event) => {
    const ctx = event.detail?.ctx;
    if (ctx?.sourceEvent?.type !== "every") return;
    const field = document.activeElement?.matches("input:not([type=checkbox]), textarea, select") && event.target.contains(document.activeElement);
    if (document.hidden || paused || field) event.preventDefault();
  });
  const pollers = () => all("[hx-trigger~='every']");
  const refreshNow = () => {
    pollers().forEach((one) => one.dispatchEvent(new CustomEvent("refresh")));
    charts.forEach((one) => one.load());
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) refreshNow(); });
  const pause = (on) => {
    paused = on;
    keep("rp-refresh", on ? "off" : "on");
    const button = $("#refresh");
    button.textContent = on ? "○ paused" : "● 5 s";
    button.setAttribute("aria-pressed", String(!on));
    if (!on) refreshNow();
  };

  // Charts
  const charts = [];
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const dashes = [[], [6, 3], [2, 3], [8, 3, 2, 3]];
  const two = (number) => String(number).padStart(2, "0");
  const clock = (at, seconds) => {
    const time = utc() ? new Date(at * 1000 + new Date(at * 1000).getTimezoneOffset() * 60000) : new Date(at * 1000);
    return `${two(time.getHours())}:${two(time.getMinutes())}${seconds ? `:${two(time.getSeconds())}` : ""}`;
  };
  const utc = () => kept("rp-zone") === "";
  const short = (value) => {
    if (value == null) return "–";
    if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toFixed(1)}M`;
    if (Math.abs(value) >= 1e4) return `${+(value / 1e3).toFixed(1)}k`;
    return value >= 100 || Number.isInteger(value) ? String(Math.round(value)) : value.toFixed(1);
  };
  class Chart {
    constructor(section) {
      this.section = section;
      this.labels = section.dataset.labels.split("|");
      this.unit = section.dataset.unit;
      this.span = "1h";
      all("[data-span]", section).forEach((button) => button.addEventListener("click", () => {
        this.span = button.dataset.span;
        all("[data-span]", section).forEach((one) => one.setAttribute("aria-pressed", String(one === button)));
        this.load();
      }));
      new ResizeObserver(() => this.plot?.setSize(this.size())).observe($(".plot", section));
    }
    size() { return { width: Math.max(200, $(".plot", this.section).clientWidth), height: 160 }; }
    async load() {
      const url = this.section.dataset.chart;
      try {
        const found = await fetch(`${url}${url.includes("?") ? "&" : "?"}span=${this.span}`, { headers: { Accept: "application/json" } });
        if (!found.ok) return;
        const data = await found.json();
        this.draw([data.times, ...data.series]);
      } catch { /* the page says what does not answer */ }
    }
    legend(index) {
      const box = $(".legend", this.section);
      box.replaceChildren(...this.labels.map((label, at) => {
        const values = this.data[at + 1];
        const last = index ?? values.findLastIndex((one) => one != null);
        const item = document.createElement("span");
        item.className = `key s${at + 1}`;
        item.textContent = `${label} ${short(values[last])}${this.unit}`;
        return item;
      }));
      if (index != null) box.append(clock(this.data[0][index], true));
    }
    draw(data) {
      this.data = data;
      if (this.plot) { this.plot.setData(data); this.legend(); return; }
      const line = colour("--line"), muted = colour("--muted");
      const font = "12px system-ui, sans-serif";
      this.plot = new uPlot({
        ...this.size(),
        legend: { show: false },
        cursor: { points: { size: 5 }, y: false },
        tzDate: (at) => utc() ? uPlot.tzDate(new Date(at * 1000), "Etc/UTC") : new Date(at * 1000),
        scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [
          { stroke: muted, font, grid: { show: false }, ticks: { stroke: line, width: 1, size: 4 }, size: 28, space: 70, values: (_plot, ticks) => ticks.map((at) => clock(at)) },
          { stroke: muted, font, grid: { stroke: line, width: 1 }, ticks: { show: false }, size: 48, space: 36, values: (_plot, ticks) => ticks.map(short) },
        ],
        series: [{}, ...this.labels.map((label, at) => ({ label, stroke: colour(`--series-${at + 1}`), width: 1.5, dash: dashes[at], points: { show: false }, spanGaps: false }))],
        hooks: { setCursor: [(plot) => this.legend(plot.cursor.idx)] },
      }, data, $(".plot", this.section));
      this.legend();
    }
    again() { this.plot?.destroy(); this.plot = undefined; this.load(); }
  }

  // Theme and zone
  const theme = () => root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const setTheme = (name) => {
    root.dataset.theme = name;
    keep("rp-theme", name);
    charts.forEach((one) => one.again());
  };
  const setZone = (local) => {
    keep("rp-zone", local ? -new Date().getTimezoneOffset() || "" : "");
    location.reload();
  };

  // Keys: single ones are off in fields, and can be turned off.
  const keysOff = () => localStorage.getItem("rp-keys") === "off";
  let went = 0;
  const rows = () => all("tbody tr").filter((one) => $("a", one));
  const step = (by) => {
    const list = rows();
    const at = list.findIndex((one) => one.classList.contains("at"));
    const next = list[Math.min(list.length - 1, Math.max(0, at + by))];
    list[at]?.classList.remove("at");
    next?.classList.add("at");
    $("a", next)?.focus();
  };
  const star = (button) => {
    const names = new Set(kept("rp-stars").split(".").filter(Boolean));
    if (!names.delete(button.dataset.star) && names.size < 100) names.add(button.dataset.star);
    keep("rp-stars", [...names].join("."));
    const on = names.has(button.dataset.star);
    button.setAttribute("aria-pressed", String(on));
    button.textContent = on ? "★" : "☆";
  };
  const actions = {
    "/": () => $("#find")?.focus(),
    j: () => step(1),
    k: () => step(-1),
    x: () => $("tr.at input[type=checkbox]")?.click(),
    r: refreshNow,
    p: () => pause(!paused),
    "[": () => $(".pager [rel=prev]")?.click(),
    "]": () => $(".pager [rel=next]")?.click(),
    "?": () => $("#keys").showModal(),
    g: () => { went = Date.now(); },
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keysOff()) return;
    if (event.target.matches?.("input:not([type=checkbox]), textarea, select, [contenteditable]") || $("dialog[open]")) return;
    const goal = Date.now() - went < 1500 ? $(`[data-go="${CSS.escape(event.key)}"]`) : null;
    const action = goal ? () => goal.click() : actions[event.key];
    if (!action) return;
    went = 0;
    event.preventDefault();
    action();
  });

  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button");
    if (!button) return;
    if (button.id === "theme") setTheme(theme() === "dark" ? "light" : "dark");
    else if (button.id === "refresh") pause(!paused);
    else if (button.id === "keys-open") $("#keys").showModal();
    else if (button.dataset.star !== undefined) star(button);
    else if (button.dataset.copy !== undefined) {
      await navigator.clipboard?.writeText($("code, pre", button.parentElement).textContent);
      button.textContent = "Copied";
    }
  });
  document.addEventListener("change", (event) => {
    const field = event.target;
    if (field.id === "zone") setZone(field.value === "local");
    else if (field.id === "keys-off") localStorage.setItem("rp-keys", field.checked ? "off" : "on");
    else if (field.dataset.all !== undefined) all(`input[name="${CSS.escape(field.dataset.all)}"]`).forEach((one) => { one.checked = field.checked; });
    else if (field.dataset.submit !== undefined) field.form.requestSubmit();
  });
  // The button of a dangerous form works as soon as the name is typed; the server checks it again.
  document.addEventListener("input", (event) => {
    const field = event.target;
    if (field.dataset?.confirm === undefined) return;
    $("button.danger", field.form).disabled = field.value !== field.dataset.confirm;
  });
  document.addEventListener("DOMContentLoaded", () => {
    if ($("#keys-off")) $("#keys-off").checked = keysOff();
    all("[data-confirm]").forEach((one) => { $("button.danger", one.form).disabled = one.value !== one.dataset.confirm; });
    all("[data-chart]").forEach((one) => { const made = new Chart(one); charts.push(made); made.load(); });
    setInterval(() => { if (!document.hidden && !paused) charts.forEach((one) => one.load()); }, 10000);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((one) => one.again()));
  });
})();
