// Draws the runs that are in the page, or that a stream sends. Text of a run only ever becomes text nodes.
"use strict";
(() => {
  const {Timeline, colourOf} = window.DorylusTimeline;
  const data = JSON.parse(document.getElementById("data").textContent);
  const main = document.getElementById("main"), head = document.getElementById("head");
  const tip = document.getElementById("tip");
  let runs = data.runs;

  // Elements -------------------------------------------------------------------------------------------------------

  const element = (tag, attributes, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "class") made.className = value;
      else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined));
    return made;
  };
  const text = (tag, words, cls) => element(tag, cls ? {class: cls} : {}, String(words));
  const dot = (colour) => {
    const made = element("span", {class: "dot", "aria-hidden": "true"});
    made.style.background = colour;
    return made;
  };
  const empty = (words) => text("p", words, "empty");
  const colour = (k) => `var(--c${k % 8})`;
  const several = () => runs.length > 1;
  const nameOf = (run, k) => element("h3", {}, several() ? dot(colour(k)) : null, run.name);

  // What is new is drawn in place of what was there; a section that a reader opened stays open.
  const sections = new Map(), visible = new Set(), overdue = new Map();
  const section = (id, title, build) => {
    if (!sections.has(id)) {
      const made = element("section", {id, "aria-labelledby": id + "-title"}, element("h2", {id: id + "-title"}, title), element("div"));
      sections.set(id, made.lastChild);
      main.append(made);
      seen.observe(made);
    }
    const content = build();
    if (content) sections.get(id).replaceChildren(...[content].flat(2).filter(Boolean));
  };

  // A change is drawn when its section comes into view: what is out of sight takes no time from the training.
  const seen = new IntersectionObserver((entries) => {
    for (const {target, isIntersecting} of entries) {
      visible[isIntersecting ? "add" : "delete"](target.id);
      const draw = isIntersecting && overdue.get(target.id);
      overdue.delete(isIntersecting ? target.id : "");
      if (draw) draw();
    }
  }, {rootMargin: "200px"});
  const change = (id, draw) => {
    if (visible.has(id)) draw();
    else overdue.set(id, draw);
  };

  const table = (heads, rows, {numbers = [], stack = false} = {}) => {
    const cell = (tag, value, k) => element(tag, {class: numbers.includes(k) ? "num" : "text", scope: tag === "th" ? "col" : null}, String(value));
    const body = rows.map((row) => element("tr", {class: row.cls}, (row.cells || row).map((value, k) =>
      k ? cell("td", value, k) : element("th", {scope: "row", class: numbers.includes(0) ? "num" : null}, String(value)))));
    const headRow = heads ? element("thead", {}, element("tr", {}, heads.map((value, k) => cell("th", value, k)))) : null;
    return element("div", {class: "scroll", tabindex: "0", role: "group", "aria-label": "table"},
      element("table", {class: stack ? "wide stack" : "wide"}, headRow, element("tbody", {}, body)));
  };

  const bars = (rows) => {
    const most = Math.max(...rows.map((row) => row.share), 1e-12);
    const made = element("div", {class: "bars"});
    for (const {name, share, value, fill} of rows) {
      const bar = element("div", {class: "fill"});
      bar.style.width = (100 * share / most) + "%";
      bar.style.background = fill;
      made.append(text("div", name), element("div", {class: "track", "aria-hidden": "true"}, bar), text("div", value, "value"));
    }
    return made;
  };

  // Numbers --------------------------------------------------------------------------------------------------------

  const short = (v, digits = 4) => v === null || v === undefined ? "–" : String(+v.toPrecision(digits));
  const percent = (v) => v === null || v === undefined ? "–" : (100 * v).toFixed(1) + " %";
  const seconds = (s) => s === null || s === undefined ? "–" : s === 0 ? "0 s" : s < 1e-3 ? short(s * 1e6, 3) + " µs" : s < 1 ? short(s * 1e3, 3) + " ms" : short(s, 3) + " s";
  const bytes = (b) => {
    if (b === null || b === undefined) return "–";
    let unit = 0;
    while (b >= 1024 && unit < 4) { b /= 1024; unit++; }
    return short(b, 3) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
  };
  const usd = (v) => v === null || v === undefined ? "–" : v === 0 ? "$0" : v >= 1 ? "$" + v.toFixed(2)
    : v >= 0.001 ? "$" + short(v, 3) : "$" + v.toExponential(1);

  // Curves ---------------------------------------------------------------------------------------------------------

  const SCORES = ["val_accuracy", "test_accuracy", "train_accuracy", "val_micro_f1", "test_micro_f1", "train_micro_f1",
    "val_macro_f1", "test_macro_f1", "train_macro_f1"];
  const plain = (score) => score.replace("val_", "validation ").replace("_f1", " F1").replace("_", " ");
  const charts = new Map();

  const linesOf = (name, label) => runs.map((run, k) => ({
    label: several() ? run.name : label, points: run.curves[name], colour: `--c${k % 8}`,
  }));
  const scoreLines = () => runs.flatMap((run, k) => SCORES.filter((name) => run.scores[name] && run.scores[name][0].length)
    .filter((name) => name.endsWith(run.multilabel ? "_f1" : "_accuracy"))
    .filter((name) => !several() || !name.startsWith("train_") && !name.includes("macro"))
    .map((name, j) => ({
      label: several() ? `${run.name}, ${plain(name)}` : plain(name), points: run.scores[name],
      colour: `--c${(several() ? k : j) % 8}`, dash: several() && j ? [5, 4] : undefined, dots: true,
    })));
  const CHARTS = [
    {id: "loss", title: "Loss", unit: short, lines: () => linesOf("loss", "loss"), none: "No epoch has ended yet."},
    {id: "scores", title: "Scores", unit: percent, lines: scoreLines, none: "No evaluation in the log: the graph has no held-out vertices, or eval_every is 0 and the run has not ended."},
    {id: "seconds", title: "Seconds per epoch", unit: seconds, lines: () => linesOf("seconds", "seconds"), zero: true, none: "No epoch has ended yet."},
    {id: "epoch_usd", title: "Dollars per epoch", unit: usd, lines: () => linesOf("epoch_usd", "dollars"), zero: true, none: "No dollars in the log."},
    {id: "usd", title: "Dollars so far", unit: usd, lines: () => linesOf("usd", "dollars"), zero: true, none: "No dollars in the log."},
    {id: "memory", title: "Memory over epochs", unit: bytes, incrs: [...Array(46).keys()].map((k) => 2 ** k), zero: true, none: "No memory in the log.",
      lines: () => several() ? linesOf("memory_bytes") : [...linesOf("memory_bytes", "resident"),
        ...runs.map((run) => ({label: "of it mapped files and libraries", points: run.curves.mapped_bytes, colour: "--c1"}))]},
  ];

  const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const wide = (host) => Math.max(220, Math.floor(host.clientWidth));

  const drawChart = (spec, figure) => {
    const lines = spec.lines().filter((line) => line.points && line.points[0].length);
    const signature = JSON.stringify(lines.map((line) => [line.label, line.colour]));
    const known = charts.get(spec.id);
    const host = figure.lastChild, note = figure.firstChild.lastChild;
    note.textContent = summary(spec, lines);
    host.setAttribute("aria-label", `${spec.title}: ${note.textContent || spec.none}`);
    if (!lines.length) {
      if (known) known.destroy();
      charts.delete(spec.id);
      return host.replaceChildren(empty(spec.none));
    }
    const joined = uPlot.join(lines.map((line) => line.points));
    if (known && known.signature === signature) return known.setData(joined);
    if (known) known.destroy();
    host.replaceChildren();
    const axis = {stroke: () => ink("--faint"), grid: {stroke: () => ink("--grid"), width: 1}, ticks: {stroke: () => ink("--grid"), width: 1}, font: "12px system-ui, sans-serif"};
    const chart = new uPlot({
      width: wide(host), height: 210, pxAlign: 1,
      cursor: {sync: {key: "epochs"}, drag: {x: true, y: false}, points: {size: 6}},
      scales: {x: {time: false}, y: {range: (u, low, high) => spread(low, high, spec.zero)}},
      axes: [{...axis, size: 34, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6, 1e7]},
        {...axis, size: 74, ...(spec.incrs ? {incrs: spec.incrs} : {}), values: (u, ticks) => ticks.map((v) => spec.unit(v))}],
      series: [{label: "epoch", value: (u, v) => v === null ? "–" : String(v)},
        ...lines.map((line) => ({
          label: line.label, stroke: () => ink(line.colour), width: 1.6, dash: line.dash, spanGaps: true,
          points: {show: line.dots || line.points[0].length < 3, size: 5, fill: () => ink(line.colour)}, value: (u, v) => spec.unit(v),
        }))],
    }, joined, host);
    chart.signature = signature;
    charts.set(spec.id, chart);
  };

  const spread = (low, high, zero) => {
    if (low === null || high === null) return [0, 1];
    if (zero && low > 0) low = 0;
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [zero && low === 0 ? 0 : low - room, high + room];
  };

  const summary = (spec, lines) => {
    if (lines.length !== 1) return "";
    const [epochs, values] = lines[0].points;
    const last = values[values.length - 1];
    return values.length < 2 ? spec.unit(last) : `${spec.unit(values[0])} at epoch ${epochs[0]}, ${spec.unit(last)} at epoch ${epochs[epochs.length - 1]}`;
  };

  const drawCurves = () => {
    section("curves", "Curves", () => {
      const host = sections.get("curves");
      if (host.firstChild) return null;
      return [element("div", {class: "grid"}, CHARTS.map((spec) => element("figure", {},
          element("figcaption", {}, text("b", spec.title), text("span", "")),
          element("div", {class: "chart", id: "chart-" + spec.id, role: "img"})))),
        text("p", "Drag over a chart to zoom all epochs in, double-click to zoom out. Long curves show the lowest and highest value of each range of epochs.", "faint")];
    });
    const figures = sections.get("curves").querySelectorAll("figure");
    CHARTS.forEach((spec, k) => drawChart(spec, figures[k]));
  };

  // Sections -------------------------------------------------------------------------------------------------------

  const drawHead = () => {
    const states = runs.map((run, k) => element("p", {}, several() ? dot(colour(k)) : null,
      several() ? element("span", {class: "run-name"}, `${run.name}: `) : null,
      several() ? `${run.title} ` : null,
      element("span", {class: "state " + (live ? live.kind : run.state.kind)}, live ? live.text(run) : run.state.text),
      element("br"), element("span", {class: "faint"}, several() ? run.about : `${run.name} · ${run.about}`)));
    head.replaceChildren(text("h1", several() ? `${runs.length} runs` : runs[0].title), ...states);
  };

  const drawFigures = () => section("figures", "In figures", () => {
    if (!several()) return [
      element("div", {class: "tiles"}, runs[0].tiles.map(([value, what]) => element("div", {class: "tile"}, text("b", value), text("span", what)))),
      table(null, runs[0].rows, {stack: true})];
    const names = [...new Set(runs.flatMap((run) => [...run.tiles.map((tile) => tile[1]), ...run.rows.map((row) => row[0])]))];
    const of = (run, name) => (run.tiles.find((tile) => tile[1] === name) || [])[0] || (run.rows.find((row) => row[0] === name) || [])[1] || "–";
    return table(["", ...runs.map((run) => run.name)], names.map((name) => [name, ...runs.map((run) => of(run, name))]));
  });

  const each = (build, none) => {
    const parts = runs.map((run, k) => [several() ? nameOf(run, k) : null, build(run, k) || empty(none)]);
    return parts.flat(2);
  };

  const drawTime = () => section("time", "Where the time went", () => [
    text("p", "Shares of the time that threads and functions spent on tasks of each kind.", "faint"),
    ...each((run) => run.tasks.length ? bars(run.tasks.map(([kind, name, share, took]) => (
      {name: kind === name ? name : `${name} (${kind})`, share, value: `${percent(share)} · ${took}`, fill: colourOf(kind)}))) : null,
    "No tasks in the log: no epoch has ended yet."),
    ...runs.map((run, k) => run.busy.length ? element("p", {class: "faint"}, (several() ? run.name + ": " : "") + "at least one task at a time: " +
      run.busy.map(([name, share]) => `${name} ${percent(share)}`).join(", ") + " of the time") : null)]);

  const timelines = [];
  const drawTimelines = () => section("timeline", "Pipeline timeline", () => {
    timelines.length = 0;
    const parts = each((run) => run.timeline.length ? timelineOf(run) : null,
      "No traced tasks in the log: trace_epochs is 0, or no epoch has ended yet.");
    return [text("p", "A box is a task of one interval, whose number is in it; every second epoch is paler. Wheel zooms, dragging moves. With the keyboard: + and - zoom, ← and → move, 0 shows all, n and p go from task to task.", "faint"), ...parts];
  });

  const timelineOf = (run) => {
    const canvas = element("canvas", {tabindex: "0", role: "application", "aria-label": `Timeline of ${run.name}: tasks by server and thread`, "aria-roledescription": "zoomable timeline"});
    const frame = element("div", {class: "timeline"}, canvas);
    const readout = element("div", {class: "readout", role: "status", "aria-live": "polite"}, "Point at a task to read it.");
    const legend = element("div", {class: "legend"}), note = text("p", "", "faint");
    const choice = element("select", {"aria-label": "Traced epochs"}, run.timeline.map((picture, k) =>
      element("option", {value: String(k)}, `${picture.label}, ${picture.start} into the run`)));
    const drawn = new Timeline(canvas, readout, tip);
    const show = () => {
      const picture = run.timeline[+choice.value || 0];
      drawn.show(picture);
      legend.replaceChildren(...picture.kinds.map(([kind, name]) => element("span", {}, dot(colourOf(kind)), kind === name ? name : `${name} (${kind})`)));
      const count = picture.tasks.start.length;
      note.textContent = count < picture.of ? `The longest ${count.toLocaleString("en")} of ${picture.of.toLocaleString("en")} tasks.` : `${count.toLocaleString("en")} tasks.`;
    };
    choice.addEventListener("change", show);
    const button = (label, name, act) => {
      const made = element("button", {type: "button", "aria-label": name, title: name}, label);
      made.addEventListener("click", act);
      return made;
    };
    const middle = () => (drawn.from + drawn.to) / 2;
    timelines.push(drawn);
    const made = [element("div", {class: "tools"}, choice, button("+", "Zoom in", () => drawn.zoom(0.6, middle())),
      button("−", "Zoom out", () => drawn.zoom(1 / 0.6, middle())), button("←", "Earlier", () => drawn.pan(-0.3)),
      button("→", "Later", () => drawn.pan(0.3)), button("All", "Show all", () => drawn.reset())),
      legend, frame, readout, note];
    show();
    return made;
  };

  const drawAges = () => section("ages", "Ages of values read", () => [
    text("p", "How many epochs old a value of another interval was when a task read it. Negative: from an interval that is ahead.", "faint"),
    ...each((run, k) => {
      const {counts, bound, waits} = run.ages, total = counts.reduce((sum, [, count]) => sum + count, 0);
      if (!total) return null;
      return [bars(counts.map(([age, count]) => ({
        name: age === 1 ? "1 epoch" : `${age} epochs`, share: count / total, value: `${percent(count / total)} · ${count.toLocaleString("en")} values`, fill: colour(several() ? k : 0)}))),
      element("p", {class: "faint"}, (bound ? `The bound is ${bound}. ` : "") + (waits ? `Intervals waited at it ${waits.toLocaleString("en")} times.` : "No interval waited at it."))];
    }, "All values were of their own epoch: the run is exact.")]);

  const drawMemory = () => section("memory", "Memory", () => each((run) => {
    const {measured, predicted, kinds} = run.memory;
    if (!measured.length && !predicted.length) return null;
    const names = [...new Set([...measured, ...predicted].map(([name]) => name))];
    const of = (rows, name) => (rows.find((row) => row[0] === name) || ["", "–"])[1];
    const both = table(["", "predicted", "measured"], names.map((name) => [name, of(predicted, name), of(measured, name)]), {numbers: [1, 2]});
    if (!kinds.length) return [both, text("p", "The parts are predicted for runs with a memory limit.", "faint")];
    const most = kinds.reduce((sum, [, , size]) => sum + size, 0);
    return [both, text("h3", "Predicted by kind"), bars(kinds.map(([name, size, count]) => (
      {name, share: count / most, value: size, fill: name.endsWith("in files") ? "var(--c7)" : "var(--c0)"})))];
  }, "No memory in the log."));

  const drawTraffic = () => section("servers", "Servers and traffic", () => each((run) => {
      if (!run.traffic.length && !run.servers.length) return null;
      const most = Math.max(...run.traffic.map(([, count]) => count), 1);
      return [run.traffic.length ? bars(run.traffic.map(([name, count, value]) => ({name, share: count / most, value, fill: "var(--c6)"}))) : null,
        run.servers.length ? table(["server", "host", "mean epoch", "sent per epoch", "peak memory"], run.servers, {numbers: [2, 3, 4]}) : null].filter(Boolean);
    }, "Nothing was sent between servers."));

  const drawBill = () => section("bill", "Bill", () => each((run) => {
    const {rows, total, paper} = run.bill;
    if (!rows) return total ? element("p", {}, `${total} so far, at list prices; the lines of the bill come with the result.`) : null;
    return [table(["item", "quantity", "unit price", "dollars", "source of the price"],
      [...rows, {cls: "sum", cells: ["total", "", "", total, ""]}], {numbers: [1, 2, 3], stack: true}),
    text("p", `${paper} counted as the paper does: graph servers and functions, while training. Computed from list prices, not from an invoice.`, "faint")];
  }, "No bill in the log: the run has no result yet."));

  const drawEvents = () => section("events", "Events", () => each((run) => run.events.length
    ? element("ol", {class: "events"}, run.events.map(([t, words]) => element("li", {}, text("time", t), text("span", words)))) : null,
  "Nothing out of the ordinary."));

  const drawSettings = () => section("settings", "Settings", () => {
    const names = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
    const row = (name) => [name, ...runs.map((run) => run.settings[name] ?? "–")];
    const differs = (name) => new Set(runs.map((run) => run.settings[name])).size > 1;
    const heads = several() ? ["setting", ...runs.map((run) => run.name)] : null;
    const all = table(heads, names.map((name) => several() && differs(name) ? {cls: "other", cells: row(name)} : row(name)));
    if (!several()) return names.length ? element("details", {}, text("summary", `All ${names.length} settings`), all) : empty("No settings in the log.");
    const other = names.filter(differs);
    return [text("h3", "Those that differ"), other.length ? table(heads, other.map(row)) : empty("All settings are the same."),
      element("details", {}, text("summary", `All ${names.length} settings`), all)];
  });

  const drawRepeat = () => section("repeat", "Repeat the run", () => each((run) => {
    if (!run.repeat.text) return null;
    const note = {shell: "In a shell:", python: "In Python; the run was started there, with a graph and a model of its own:"}[run.repeat.how];
    return [note ? text("p", note, "faint") : null, element("pre", {tabindex: "0"}, element("code", {}, run.repeat.text))];
  }, "The log does not say how the run was started."));

  // All of it, and again when it changes ---------------------------------------------------------------------------

  let live = null;
  const drawAll = () => {
    document.body.dataset.drawn = "no";
    if (!runs.length) return head.replaceChildren(text("h1", "Dorylus"), element("p", {}, element("span", {class: "state"}, live ? live.text(null) : "no runs")));
    drawHead();
    drawFigures();
    drawCurves();
    drawTime();
    drawTimelines();
    drawAges();
    drawMemory();
    drawTraffic();
    drawBill();
    drawEvents();
    drawSettings();
    drawRepeat();
    document.body.dataset.drawn = "yes";
  };

  const drawChanges = (withTimeline) => {
    drawHead();
    const changed = {figures: drawFigures, curves: drawCurves, time: drawTime, ages: drawAges, memory: drawMemory,
      servers: drawTraffic, bill: drawBill, events: drawEvents, ...(withTimeline ? {timeline: drawTimelines} : {})};
    for (const [id, draw] of Object.entries(changed)) change(id, draw);
  };

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const chart of charts.values()) chart.redraw(false);
    for (const drawn of timelines) drawn.draw();
  });
  let resized = 0;
  new ResizeObserver(() => {
    cancelAnimationFrame(resized);
    resized = requestAnimationFrame(() => {
      for (const chart of charts.values()) {
        const host = chart.root.parentElement;
        if (host && chart.width !== wide(host)) chart.setSize({width: wide(host), height: 210});
      }
    });
  }).observe(main);

  // The live page --------------------------------------------------------------------------------------------------

  const MOST = 4000;
  const append = (all, more) => {
    for (const [name, [epochs, values]] of Object.entries(more)) {
      const [xs, ys] = all[name] = all[name] || [[], []];
      xs.push(...epochs);
      ys.push(...values);
      if (xs.length > MOST) all[name] = thin(xs, ys, MOST / 2);
    }
  };
  const thin = (xs, ys, most) => {
    const kept = [0], width = (xs[xs.length - 1] - xs[0]) / (most / 2) || 1;
    for (let begin = 0, end = 0; begin < xs.length; begin = end) {
      const bucket = Math.floor((xs[begin] - xs[0]) / width);
      let low = begin, high = begin;
      for (end = begin; end < xs.length && Math.floor((xs[end] - xs[0]) / width) === bucket; end++) {
        if (ys[end] < ys[low]) low = end;
        if (ys[end] > ys[high]) high = end;
      }
      kept.push(Math.min(low, high), Math.max(low, high));
    }
    kept.push(xs.length - 1);
    const chosen = [...new Set(kept)];
    return [chosen.map((k) => xs[k]), chosen.map((k) => ys[k])];
  };

  const follow = () => {
    let waiting = null;  // what came while the page was hidden, or while a frame was being drawn
    let status = "connecting", over = false;
    live = {kind: "", text: (run) => status === "live" ? (run ? "running" : "waiting for the first record") : status === "ended" ? (run ? run.state.text : "the run has ended") : status};
    const set = (now) => {
      status = now;
      live.kind = now === "live" ? "live" : now === "ended" && runs[0] && runs[0].state.kind !== "bad" ? "" : now === "ended" ? "" : "bad";
      if (runs.length) drawHead();
      else drawAll();
    };
    const flush = () => {
      if (waiting === null || document.hidden) return;
      const what = waiting;
      waiting = null;
      if (what === "all") drawAll();
      else drawChanges(what === "timeline");
    };
    const later = (what) => {
      waiting = waiting === "all" || what === "all" ? "all" : waiting === "timeline" ? waiting : what;
      requestAnimationFrame(flush);
    };
    document.addEventListener("visibilitychange", flush);
    const source = new EventSource("events");
    source.addEventListener("open", () => set("live"));
    source.addEventListener("all", (e) => {
      runs = [JSON.parse(e.data)];
      later("all");
    });
    source.addEventListener("more", (e) => {
      if (!runs.length) return;
      const {more, more_scores: scores, ...figures} = JSON.parse(e.data);
      append(runs[0].curves, more);
      append(runs[0].scores, scores);
      Object.assign(runs[0], figures);
      later(figures.timeline ? "timeline" : "more");
    });
    source.addEventListener("end", () => {
      over = true;
      source.close();
      set("ended");
    });
    source.addEventListener("error", () => {
      if (!over) set("no connection to the run: trying again");
    });
  };

  if (data.live) follow();
  drawAll();
})();
