// The pipeline timeline: a canvas with a lane for every server and thread, and a box for every task.
"use strict";
(() => {
  const LANE = 18, GAP = 8, AXIS = 26, LEAST_US = 5;
  const COLOURS = {
    "GA": "#4a86c5", "∇GA": "#2f6ea8", "AV": "#e0913a", "∇AV": "#b8632a", "AV+loss+∇AV": "#cf4a45",
    "SC": "#55a85c", "∇SC": "#36793e", "AE": "#a678c4", "∇AE": "#7a4f9e", "WU": "#7d838c",
  };
  const dark = new Set(["AV", "SC", "AE"]);  // whose labels are dark
  const colourOf = (kind) => COLOURS[kind] || "#8a8f98";

  const micro = (us) => {
    const a = Math.abs(us), digits = (v) => String(+v.toPrecision(3));
    return a < 1000 ? digits(us) + " µs" : a < 1e6 ? digits(us / 1e3) + " ms" : digits(us / 1e6) + " s";
  };

  class Timeline {
    constructor(canvas, readout, tip) {
      this.canvas = canvas;
      this.readout = readout;
      this.tip = tip;
      this.picture = null;
      this.from = 0;
      this.to = 1;
      this.chosen = -1;
      this.pending = false;
      this.pointers = new Map();
      canvas.addEventListener("wheel", (e) => this.wheel(e), {passive: false});
      canvas.addEventListener("pointerdown", (e) => this.down(e));
      canvas.addEventListener("pointermove", (e) => this.move(e));
      for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, (e) => this.pointers.delete(e.pointerId));
      canvas.addEventListener("pointerleave", () => this.point(-1));
      canvas.addEventListener("dblclick", () => this.reset());
      canvas.addEventListener("keydown", (e) => this.key(e));
      new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    }

    show(picture, keep) {
      this.picture = picture;
      const t = picture.tasks;
      this.end = 1;
      for (let k = 0; k < t.start.length; k++) this.end = Math.max(this.end, t.start[k] + t.took[k]);
      this.order = t.start.map((_, k) => k).sort((a, b) => t.start[a] - t.start[b]);
      this.tops = [];
      let y = AXIS, last = null;
      for (const [server] of picture.lanes) {
        if (last !== null && server !== last) y += GAP;
        this.tops.push(y);
        y += LANE;
        last = server;
      }
      this.height = y + 6;
      this.chosen = -1;
      if (!keep) this.reset();
      this.draw();
    }

    get left() { return this.width < 560 ? 66 : 128; }
    x(us) { return this.left + (us - this.from) / (this.to - this.from) * (this.width - this.left - 8); }
    us(x) { return this.from + (x - this.left) / (this.width - this.left - 8) * (this.to - this.from); }

    reset() { this.view(0, this.end || 1); }

    view(from, to) {
      const span = Math.min(Math.max(to - from, LEAST_US), this.end);
      const middle = (from + to) / 2;
      this.from = Math.min(Math.max(middle - span / 2, 0), this.end - span);
      this.to = this.from + span;
      this.canvas.dataset.from = this.from.toFixed(3);
      this.canvas.dataset.to = this.to.toFixed(3);
      this.draw();
    }

    zoom(factor, at) {
      const span = Math.min(Math.max((this.to - this.from) * factor, LEAST_US), this.end);
      const share = (at - this.from) / (this.to - this.from);
      this.view(at - span * share, at + span * (1 - share));
    }

    pan(share) {
      const by = (this.to - this.from) * share;
      const moved = Math.min(Math.max(by, -this.from), this.end - this.to);
      this.view(this.from + moved, this.to + moved);
    }

    wheel(e) {
      if (!this.picture) return;
      const whole = this.to - this.from >= this.end * 0.9999;
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey) {
        if (whole) return;
        e.preventDefault();
        return this.pan((e.deltaX || e.deltaY) / 600);
      }
      if (e.deltaY > 0 && whole) return;  // nothing to zoom out of: the page scrolls
      e.preventDefault();
      this.zoom(Math.exp(Math.max(-0.6, Math.min(0.6, e.deltaY / 300))), this.us(e.offsetX));
    }

    down(e) {
      this.pointers.set(e.pointerId, e.offsetX);
      try { this.canvas.setPointerCapture(e.pointerId); } catch { /* the pointer is gone already */ }
      this.point(this.at(e.offsetX, e.offsetY));
    }

    move(e) {
      if (!this.picture) return;
      if (!this.pointers.has(e.pointerId)) {
        const task = this.at(e.offsetX, e.offsetY);
        this.point(task);
        return this.place(task, e.clientX, e.clientY);
      }
      const before = [...this.pointers.values()];
      const moved = e.offsetX - this.pointers.get(e.pointerId);
      this.pointers.set(e.pointerId, e.offsetX);
      this.tip.hidden = true;
      if (this.pointers.size === 1) return this.pan(-moved / (this.width - this.left - 8));
      const after = [...this.pointers.values()];
      const apart = (xs) => Math.max(8, Math.abs(xs[0] - xs[1]));
      this.zoom(apart(before) / apart(after), this.us((after[0] + after[1]) / 2));
    }

    key(e) {
      if (!this.picture || e.ctrlKey || e.metaKey || e.altKey) return;
      const middle = (this.from + this.to) / 2;
      const actions = {
        "+": () => this.zoom(0.7, middle), "=": () => this.zoom(0.7, middle), "-": () => this.zoom(1 / 0.7, middle),
        "ArrowLeft": () => this.pan(-0.15), "ArrowRight": () => this.pan(0.15),
        "PageUp": () => this.pan(-0.9), "PageDown": () => this.pan(0.9),
        "Home": () => this.view(0, this.to - this.from), "End": () => this.view(this.end - (this.to - this.from), this.end),
        "0": () => this.reset(), "n": () => this.step(1), "p": () => this.step(-1),
      };
      if (!actions[e.key]) return;
      e.preventDefault();
      actions[e.key]();
    }

    step(by) {
      const place = this.order.indexOf(this.chosen);
      const next = place < 0 ? this.order.findIndex((k) => this.picture.tasks.start[k] >= this.from) : place + by;
      const task = this.order[Math.min(Math.max(next, 0), this.order.length - 1)];
      const {start, took} = this.picture.tasks;
      if (start[task] < this.from || start[task] + took[task] > this.to) {
        const half = (this.to - this.from) / 2;
        this.view(start[task] - half, start[task] + half);
      }
      this.point(task);
    }

    at(x, y) {
      const t = this.picture.tasks;
      const lane = this.tops.findIndex((top) => y >= top && y < top + LANE);
      if (lane < 0 || x < this.left) return -1;
      const us = this.us(x), slack = (this.to - this.from) / this.width * 1.5;
      let best = -1;
      for (let k = 0; k < t.start.length; k++)
        if (t.lane[k] === lane && us >= t.start[k] - slack && us <= t.start[k] + t.took[k] + slack)
          if (best < 0 || t.took[k] < t.took[best]) best = k;
      return best;
    }

    words(task) {
      const t = this.picture.tasks, [server, thread] = this.picture.lanes[t.lane[task]];
      const [kind, name] = this.picture.kinds[t.kind[task]];
      const what = kind === name ? name : `${name} (${kind})`;
      return `${what}, interval ${t.interval[task]}, epoch ${t.epoch[task]}: ${micro(t.took[task])}, from ${micro(t.start[task])} on, server ${server}, thread ${thread}`;
    }

    point(task) {
      if (task < 0) this.tip.hidden = true;
      if (task === this.chosen) return;
      this.chosen = task;
      if (task >= 0) this.readout.textContent = this.words(task);
      this.draw();
    }

    place(task, x, y) {
      this.tip.hidden = task < 0;
      if (task < 0) return;
      this.tip.textContent = this.words(task);
      const {width, height} = this.tip.getBoundingClientRect();
      this.tip.style.left = Math.max(4, Math.min(x + 12, innerWidth - width - 8)) + "px";
      this.tip.style.top = (y + height + 24 > innerHeight ? y - height - 12 : y + 16) + "px";
    }

    draw() {
      if (this.pending || !this.picture) return;
      this.pending = true;
      requestAnimationFrame(() => { this.pending = false; this.paint(); });
    }

    paint() {
      const canvas = this.canvas, ratio = devicePixelRatio || 1;
      this.width = Math.max(240, canvas.parentElement.clientWidth);
      const pixels = [Math.round(this.width * ratio), Math.round(this.height * ratio)];
      if (canvas.width !== pixels[0] || canvas.height !== pixels[1]) [canvas.width, canvas.height] = pixels;
      canvas.style.height = this.height + "px";
      const g = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
      const ink = (name) => style.getPropertyValue(name).trim();
      g.setTransform(ratio, 0, 0, ratio, 0, 0);
      g.clearRect(0, 0, this.width, this.height);
      g.font = "12px system-ui, sans-serif";
      g.textBaseline = "middle";
      this.axis(g, ink);
      this.labels(g, ink);
      g.save();
      g.beginPath();
      g.rect(this.left, AXIS - 2, this.width - this.left - 8, this.height);
      g.clip();
      this.boxes(g, ink);
      g.restore();
    }

    axis(g, ink) {
      const rough = (this.to - this.from) / Math.max(2, (this.width - this.left) / 110);
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = [1, 2, 5, 10].map((k) => k * power).find((s) => s >= rough);
      g.strokeStyle = ink("--line");
      g.fillStyle = ink("--faint");
      g.textAlign = "center";
      g.beginPath();
      for (let k = Math.ceil(this.from / step); k * step <= this.to; k++) {
        const x = Math.round(this.x(k * step)) + 0.5;
        g.moveTo(x, AXIS - 4);
        g.lineTo(x, this.height);
        if (x > this.left + 14 && x < this.width - 24) g.fillText(k ? this.tick(k * step, step) : "0", x, 12);
      }
      g.stroke();
    }

    tick(us, step) {
      const [unit, scale] = this.to < 1000 ? ["µs", 1] : this.to < 1e6 ? ["ms", 1e3] : ["s", 1e6];
      return (us / scale).toFixed(Math.max(0, Math.min(6, -Math.floor(Math.log10(step / scale) + 1e-9)))) + " " + unit;
    }

    labels(g, ink) {
      const narrow = this.width < 560;
      g.textAlign = "left";
      this.picture.lanes.forEach(([server, thread, place], lane) => {
        const y = this.tops[lane], before = this.picture.lanes[lane - 1];
        g.fillStyle = ink("--panel");
        g.fillRect(this.left, y + 1, this.width - this.left - 8, LANE - 2);
        if (place) return;
        const first = !before || before[0] !== server;
        g.fillStyle = ink("--ink");
        if (first) g.fillText(narrow ? `s${server}` : `server ${server}`, 8, y + LANE / 2);
        g.fillStyle = ink("--faint");
        g.fillText(narrow ? `t${thread}` : `thread ${thread}`, narrow ? 36 : 70, y + LANE / 2);
      });
    }

    boxes(g, ink) {
      const t = this.picture.tasks, colours = this.picture.kinds.map(([kind]) => colourOf(kind));
      const drawn = new Map();
      g.textAlign = "center";
      g.font = "10px system-ui, sans-serif";
      for (const k of this.order) {
        const end = t.start[k] + t.took[k];
        if (end < this.from || t.start[k] > this.to) continue;
        const a = this.x(t.start[k]), b = Math.max(this.x(end), a + 0.7), y = this.tops[t.lane[k]] + 1;
        if (b - a < 1) {  // one of many in the same pixel is enough
          const pixel = `${t.lane[k]} ${t.kind[k]}`, x = Math.floor(a);
          if (drawn.get(pixel) === x) continue;
          drawn.set(pixel, x);
        }
        g.globalAlpha = t.epoch[k] % 2 ? 1 : 0.74;
        g.fillStyle = colours[t.kind[k]];
        g.fillRect(a, y, b - a - (b - a > 3 ? 0.6 : 0), LANE - 2);
        g.globalAlpha = 1;
        const label = String(t.interval[k]);
        if (b - a > 7 * label.length + 4) {
          g.fillStyle = dark.has(this.picture.kinds[t.kind[k]][0]) ? "#14181d" : "#fff";
          g.fillText(label, (Math.max(a, this.left) + Math.min(b, this.width - 8)) / 2, y + LANE / 2 - 0.5);
        }
      }
      if (this.chosen >= 0) {
        const a = this.x(t.start[this.chosen]), b = this.x(t.start[this.chosen] + t.took[this.chosen]);
        g.strokeStyle = ink("--ink");
        g.lineWidth = 2;
        g.strokeRect(a - 1, this.tops[t.lane[this.chosen]] + 1, Math.max(2, b - a + 1), LANE - 2);
        g.lineWidth = 1;
      }
    }
  }

  window.DorylusTimeline = {Timeline, colourOf};
})();
