/* What moves on the page: a tick every two seconds that htmx and the plots follow, while somebody looks. */
"use strict";
(() => {
  const TICK_MS = 2000;
  const live = document.getElementById("live");
  const fresh = document.getElementById("fresh");
  const freshText = document.getElementById("fresh-text");
  const pause = document.getElementById("pause");
  let paused = false;
  let lastAnswer = freshText.textContent;

  // ---- the tick ------------------------------------------------------------------------------

  const tick = () => {
    if (paused || document.hidden || !live.hasAttribute("data-hx-get")) return;
    document.body.dispatchEvent(new CustomEvent("tick"));
    plots.forEach((plot) => plot.load());
  };

  const answered = () => {
    lastAnswer = new Date().toLocaleTimeString([], { hour12: false });
    fresh.className = "fresh live";
    freshText.textContent = `live, ${lastAnswer}`;
  };

  const lost = () => {
    fresh.className = "fresh lost";
    freshText.textContent = `no answer; this is from ${lastAnswer}`;
  };

  document.body.addEventListener("htmx:after:request", (event) => {
    (event.detail.ctx.response.status < 400 ? answered : lost)();
  });
  document.body.addEventListener("htmx:error", lost);

  pause.hidden = !live.hasAttribute("data-hx-get");
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.textContent = paused ? "Go on" : "Pause";
    if (paused) {
      fresh.className = "fresh";
      freshText.textContent = `paused at ${lastAnswer}`;
    } else tick();
  });
  document.addEventListener("visibilitychange", tick);
  window.setInterval(tick, TICK_MS);

  // ---- the plots -----------------------------------------------------------------------------

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const PHASES = ["write", "verify", "decide", "commit", "sweep"];
  const phaseColour = (name) => colour(PHASES.includes(name) ? name : "other");

  const short = (value) => {
    if (value === null || value === undefined) return "";
    const size = Math.abs(value);
    if (size >= 1e9) return `${+(value / 1e9).toPrecision(3)}G`;
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
    if (size >= 1e4) return `${+(value / 1e3).toPrecision(3)}k`;
    return `${+value.toPrecision(3)}`;
  };
  const exact = (value) => value === null || value === undefined ? "–"
    : value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : 0 });
  const SPLITS = { hour12: false };
  const clockOf = (seconds, withDay, withSeconds) => {
    const at = new Date(seconds * 1000);
    const second = withSeconds ? { second: "2-digit" } : {};
    const time = at.toLocaleTimeString([], { ...SPLITS, hour: "2-digit", minute: "2-digit", ...second });
    return withDay ? `${at.toLocaleDateString([], { day: "numeric", month: "short" })} ${time}` : time;
  };

  const axes = () => {
    const common = {
      stroke: colour("faint"), font: "12px system-ui, sans-serif",
      grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false },
    };
    return [
      { ...common, size: 26, values: (plot, splits) => {
        const span = splits.length > 1 ? splits[splits.length - 1] - splits[0] : 0;
        return splits.map((at) => clockOf(at, span > 86400, span < 240));
      }, space: 90 },
      { ...common, size: 46, values: (plot, splits) => splits.map(short), space: 34 },
    ];
  };

  const startMarks = (marks) => (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.strokeStyle = colour("faint");
    ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
    ctx.lineWidth = devicePixelRatio;
    for (const at of marks()) {
      const x = Math.round(plot.valToPos(at, "x", true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
    }
    ctx.restore();
  };

  // Each line on top of those before it; the last one is the sum.
  const stacked = (lines) => {
    const sums = [];
    for (const line of lines) {
      const below = sums[sums.length - 1];
      sums.push(line.map((value, at) => value === null ? null : value + (below ? below[at] || 0 : 0)));
    }
    return sums;
  };

  class Plot {
    constructor(figure) {
      this.kind = figure.dataset.plot;
      this.box = figure.querySelector(".plot");
      this.caption = figure.querySelector("figcaption");
      this.legend = figure.querySelector(".legend");
      this.value = document.createElement("span");
      this.value.className = "value";
      this.caption.append(this.value);
      this.marks = [];
      this.shape = "";
    }

    lines(found) {
      if (this.kind !== "phases") return { names: [this.kind], lines: [found[this.kind] || []] };
      const names = Object.keys(found.phases || {});
      return { names, lines: names.map((name) => found.phases[name]) };
    }

    show(found) {
      const { names, lines } = this.lines(found);
      const times = found.times || [];
      const empty = !lines.some((line) => line.some((value) => value !== null));
      this.box.classList.toggle("nothing", empty);
      if (empty) {
        this.drop();
        this.box.textContent = "nothing on record";
        this.value.textContent = "";
        return;
      }
      this.marks = found.marks || [];
      this.raw = lines;
      this.names = names;
      const drawn = this.kind === "phases" ? stacked(lines).reverse() : lines;
      this.known = lines[0].filter((value) => value !== null).length;
      const shape = `${names.join("|")} ${this.known < 40}`;
      if (!this.plot || this.shape !== shape) this.make(names, shape);
      this.plot.setData([times, ...drawn]);
      this.tell(null);
    }

    make(names, shape) {
      this.drop();
      this.box.textContent = "";
      this.shape = shape;
      const isStack = this.kind === "phases";
      const series = (isStack ? [...names].reverse() : names).map((name) => isStack
        ? { stroke: phaseColour(name), fill: phaseColour(name), width: 0,
            points: { show: this.known < 40, size: 4, fill: phaseColour(name) } }
        : { stroke: colour("plot"), fill: colour("plot-fill"), width: 1.5,
            points: { show: (plot, at, from, to) => to - from < 3, size: 5 } });
      if (this.legend && isStack) {
        this.legend.replaceChildren(...names.map((name) => {
          const key = document.createElement("span");
          const swatch = document.createElement("i");
          swatch.className = "swatch";
          swatch.style.background = phaseColour(name);
          key.append(swatch, name);
          return key;
        }));
      }
      this.plot = new uPlot({
        width: this.box.clientWidth, height: this.box.clientHeight,
        padding: [10, 8, 0, 0], cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } }, legend: { show: false },
        scales: { y: { range: (plot, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
        series: [{}, ...series], axes: axes(),
        hooks: { drawClear: [startMarks(() => this.marks)], setCursor: [(plot) => this.tell(plot.cursor.idx)] },
      }, [[], ...series.map(() => [])], this.box);
    }

    /* The value at a moment, or the newest there is; it is what a screen reader is told as well. */
    tell(at) {
      const sum = (index) => {
        const values = this.raw.map((line) => line[index]);
        return values.every((value) => value === null || value === undefined) ? null
          : values.reduce((total, value) => total + (value || 0), 0);
      };
      let index = at;
      if (index === null || index === undefined) {
        index = this.raw[0].length - 1;
        while (index > 0 && sum(index) === null) index -= 1;
      }
      const when = at === null || at === undefined ? "" : `${clockOf(this.plot.data[0][index], false)}  `;
      this.value.textContent = `${when}${exact(sum(index))}`;
      this.box.setAttribute("aria-label", `${this.caption.firstChild.textContent.trim()}, now ${exact(sum(index))}`);
    }

    drop() {
      if (this.plot) this.plot.destroy();
      this.plot = null;
    }

    fit() {
      if (this.plot) this.plot.setSize({ width: this.box.clientWidth, height: this.box.clientHeight });
    }
  }

  class Plots {
    constructor(element) {
      this.address = element.dataset.plots;
      this.plots = [...element.querySelectorAll("[data-plot]")].map((figure) => new Plot(figure));
      this.busy = false;
      new ResizeObserver(() => this.plots.forEach((plot) => plot.fit())).observe(element);
      window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
        this.plots.forEach((plot) => plot.drop());
        this.draw();
      });
      this.load();
    }

    async load() {
      if (this.busy) return;
      this.busy = true;
      try {
        const response = await fetch(this.address, { signal: AbortSignal.timeout(8000) });
        if (response.ok) this.found = (await response.json()).past.plots;
        this.draw();
      } catch {
        lost();
      } finally {
        this.busy = false;
      }
    }

    draw() {
      if (this.found) this.plots.forEach((plot) => plot.show(this.found));
    }
  }

  const plots = [...document.querySelectorAll("[data-plots]")].map((element) => new Plots(element));
})();
