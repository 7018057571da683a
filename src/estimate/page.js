// The report's pictures and tables, from columns of data, one array for each field of the kernels. On canvases, so that a
// page of 100,000 kernels holds no more elements than one of ten.
(function () {
  const NETWORK = -1, HOST = -2, SPARSE = -3, ROW = 22, LEFT = 84, SHOWN = 200, TOP = 40;
  const BOTH = "#3aa675", ALONE = "#d0433b";

  // ---- One report's data
  function decode(section) {
    const d = JSON.parse(section.querySelector("script[type='application/json']").textContent);
    const text = (column, i) => d.texts[d[column][i]];
    d.count = d.start.length;
    d.text = text;
    d.weight = i => d.lane[i] < 0 ? d.exposed[i] : d.seconds_of[i] * d.runs[i];
    // Texts of kernels in small letters, for the search; made when first wanted.
    let low = null;
    d.matches = (i, wanted) => {
      low = low || d.start.map((_, k) => ["name", "detail", "source", "scope"].map(c => text(c, k)).join(" ").toLowerCase());
      return low[i].includes(wanted);
    };
    d.share = s => d.all > 0 ? (100 * s / d.all).toFixed(1) + "% of the step" : "";
    return d;
  }

  const file = source => source.slice(source.lastIndexOf("/") + 1);

  // ---- Timeline: kernels by depth of loops, collectives, copies to and from the host, and what is beside what.
  // Where each loop begins and ends, with all its turns.
  function loopSpans(d) {
    const spans = d.loops.map(([name, seconds, turns, parent]) =>
      ({name: d.texts[name], seconds, turns, parent, start: Infinity}));
    for (let i = 0; i < d.count; i++)
      for (let l = d.loop[i]; l; l = spans[l - 1].parent) spans[l - 1].start = Math.min(spans[l - 1].start, d.start[i]);
    for (const s of spans) {
      s.level = 0;
      for (let p = s.parent; p; p = spans[p - 1].parent) s.level++;
    }
    return spans;
  }

  // When kernels and communication run in the first turns: [from, to, both].
  function overlaps(d) {
    const busy = [], pieces = [];
    for (let i = 0; i < d.count; i++) {
      if (d.lane[i] < 0) continue;
      const last = busy[busy.length - 1], end = d.start[i] + d.seconds_of[i];
      if (last && d.start[i] <= last[1]) last[1] = Math.max(last[1], end);
      else busy.push([d.start[i], end]);
    }
    let b = 0;
    for (let i = 0; i < d.count; i++) {
      if (d.lane[i] !== NETWORK) continue;
      let at = d.start[i];
      const end = at + d.seconds_of[i];
      while (b && busy[b - 1][1] > at) b--;
      while (b < busy.length && busy[b][1] <= at) b++;
      for (let k = b; at < end; k++) {
        const next = busy[k] || [end, end];
        if (next[0] > at) pieces.push([at, Math.min(next[0], end), false]);
        if (next[0] < end) pieces.push([Math.max(at, next[0]), Math.min(next[1], end), true]);
        at = Math.max(at, next[1]);
        if (!busy[k]) break;
      }
    }
    return pieces;
  }

  function lanesOf(d) {
    let deepest = 0;
    const has = new Set(d.lane);
    for (const l of has) deepest = Math.max(deepest, l);
    const lanes = [];
    for (let l = 0; l <= deepest; l++) lanes.push([l, l ? "in loops " + l : "kernels"]);
    if (has.has(NETWORK)) lanes.push([NETWORK, "collectives"], ["overlap", "overlap"]);
    if (has.has(HOST)) lanes.push([HOST, "host link"]);
    if (has.has(SPARSE)) lanes.push([SPARSE, "SparseCores"]);
    return lanes;
  }

  function timeline(section, d) {
    const element = section.querySelector(".flow"), every = section.querySelector(".turns");
    const lanes = lanesOf(d), rowOf = new Map(lanes.map((l, i) => [l[0], i]));
    const spans = loopSpans(d), pieces = rowOf.has("overlap") ? overlaps(d) : [];
    let drawn = [], view = null;

    // Calls f(shift) for each turn in which a kernel is to be seen; as one, [shift, length], where turns are too short.
    function turns(i, scale, f) {
      const chain = [];
      if (every.checked) for (let l = d.loop[i]; l; l = spans[l - 1].parent) chain.unshift(spans[l - 1]);
      const place = (depth, shift) => {
        if (depth === chain.length) return f(shift, 0);
        const l = chain[depth], at = l.start + shift;
        if (l.seconds * scale < 0.5) return f(shift, l.seconds * l.turns);
        const first = Math.max(0, Math.floor((view.from - at) / l.seconds));
        const last = Math.min(l.turns - 1, Math.floor((view.to - at) / l.seconds));
        for (let k = first; k <= last; k++) place(depth + 1, shift + k * l.seconds);
      };
      place(0, 0);
    }

    function drawOp(g, width, scale, i, last, wanted) {
      const row = rowOf.get(d.lane[i]);
      turns(i, scale, (shift, length) => {
        const x0 = LEFT + (d.start[i] + shift - view.from) * scale, x1 = x0 + Math.max(d.seconds_of[i], length) * scale;
        if (x1 < LEFT || x0 > width || x1 < last[row] + 0.5) return;  // another op has that pixel
        const x = Math.max(x0, LEFT), w = Math.max(Math.min(x1, width) - x - 0.3, 0.5);
        g.globalAlpha = wanted && !d.matches(i, wanted) ? 0.12 : 1;
        g.fillStyle = d.colors[d.bound[i]];
        g.fillRect(x, row * ROW + 2, w, ROW - 4);
        g.fillStyle = "#fff";
        page.label(g, d.text("name", i), x, w, row * ROW + ROW / 2);
        last[row] = x1;
        drawn.push([row, x, x + Math.max(w, 2), i]);
      });
    }

    function drawLoops(g, width, scale) {
      for (const l of spans) {
        const x0 = Math.max(LEFT, LEFT + (l.start - view.from) * scale);
        const x1 = Math.min(width, LEFT + (l.start + l.seconds * l.turns - view.from) * scale);
        if (!(x1 - x0 > 0.5)) continue;
        g.fillStyle = page.color("--line");
        g.fillRect(x0, l.level * ROW + 2, x1 - x0, ROW - 4);
        g.fillStyle = page.color("--soft");
        page.label(g, l.name + ": " + l.turns + " turns", x0, x1 - x0, l.level * ROW + ROW / 2);
      }
    }

    function draw(g, width) {
      const scale = (width - LEFT) / (view.to - view.from), last = lanes.map(() => -1), wanted = page.wanted();
      drawn = [];
      g.fillStyle = page.color("--soft");
      lanes.forEach((l, i) => g.fillText(l[1], 0, i * ROW + ROW / 2));
      for (let i = 0; i <= 4; i++) {
        g.textAlign = i === 4 ? "right" : "left";
        g.fillText(page.time(view.from + (view.to - view.from) * i / 4), LEFT + (width - LEFT) * i / 4,
          lanes.length * ROW + 12);
      }
      g.textAlign = "left";
      drawLoops(g, width, scale);
      for (let i = 0; i < d.count; i++) drawOp(g, width, scale, i, last, wanted);
      g.globalAlpha = 1;
      for (const [a, b, both] of pieces) {
        const x0 = Math.max(LEFT, LEFT + (a - view.from) * scale), x1 = LEFT + (b - view.from) * scale;
        if (x1 < LEFT || x0 > width) continue;
        g.fillStyle = both ? BOTH : ALONE;
        g.fillRect(x0, rowOf.get("overlap") * ROW + 6, Math.max(x1 - x0, 0.5), ROW - 12);
      }
    }

    const again = page.canvas(element, () => lanes.length * ROW + 24, draw);
    view = page.zoom(element, d.all || 1, () => [LEFT, element.clientWidth - LEFT], again);
    element.addEventListener("mousemove", e => {
      const row = Math.floor(e.offsetY / ROW);
      const at = drawn.find(b => b[0] === row && b[1] <= e.offsetX && e.offsetX <= b[2]), i = at && at[3];
      page.show(e, at && [d.text("name", i), d.text("detail", i), page.time(d.seconds_of[i])
        + (d.runs[i] > 1 ? " x " + d.runs[i] : "") + ", " + d.share(d.weight(i)) + (d.lane[i] < 0 ? " exposed" : ""),
      "bound by " + d.bounds[d.bound[i]], d.text("source", i), d.text("scope", i)].filter(t => t).join("\n"));
    });
    every.onchange = again;
    page.onsearch(again);
    again();
  }

  // ---- Time by the model's scopes: JAX's names without what transformations, loops and primitives add.
  const WRAPPED = /^(?:jit|pjit|jvp|transpose|vmap|checkpoint|remat|shard_map|custom_jvp|custom_vjp)\((.*)\)$/;
  const MADE = /^(while|body|cond|checkpoint|remat|rematted_computation|closed_call|core_call|branch_\d+_fun|)$/;
  function scopePath(scope, together) {
    const parts = scope.split("/").slice(0, -1).map((part, i) => {
      const whole = part;
      for (let m; (m = WRAPPED.exec(part));) part = m[1];
      return !i && /^p?jit\(/.test(whole) ? "" : together ? part.replace(/\d+/g, "*") : part;
    }).filter(part => !MADE.test(part));
    return parts.length ? parts : ["(no scope)"];
  }

  function scopeTree(d, together) {
    const node = (name, parent) => ({name, parent, seconds: 0, again: 0, flops: 0, parts: new Map()});
    const tree = node("step", null), paths = new Map();
    for (let i = 0; i < d.count; i++) {
      const key = d.scope[i];
      if (!paths.has(key)) paths.set(key, scopePath(d.texts[key], together));
      let at = tree;
      const path = paths.get(key), w = d.weight(i), flops = d.flops[i] * d.runs[i];
      for (let k = -1; k < path.length; k++) {
        if (k >= 0) {
          if (!at.parts.has(path[k])) at.parts.set(path[k], node(path[k], at));
          at = at.parts.get(path[k]);
        }
        at.seconds += w;
        at.again += d.again[i] ? w : 0;
        at.flops += flops;
      }
    }
    return tree;
  }
  const bySeconds = n => [...n.parts.values()].sort((a, b) => b.seconds - a.seconds);
  const depth = n => 1 + bySeconds(n).reduce((most, p) => Math.max(most, depth(p)), 0);
  const hue = text => [...text].reduce((h, c) => (h * 31 + c.charCodeAt(0)) % 360, 7);

  function scopes(section, d) {
    const element = section.querySelector(".scopes"), table = section.querySelector(".by-scope");
    const together = section.querySelector(".layers");
    let tree = null, top = null, boxes = [];
    const again = page.canvas(element, () => Math.min(depth(top), 14) * ROW, (g, width) => {
      const wanted = page.wanted();
      boxes = [];
      const place = (node, x, w, row) => {
        if (w < 0.5 || row >= 14) return;
        g.globalAlpha = wanted && !node.name.toLowerCase().includes(wanted) ? 0.35 : 1;
        g.fillStyle = `hsl(${hue(node.name)} 45% 42%)`;
        g.fillRect(x, row * ROW, Math.max(w - 1, 0.5), ROW - 1);
        g.fillStyle = "#fff";
        page.label(g, node.name, x, w, row * ROW + ROW / 2);
        boxes.push([row, x, x + w, node]);
        for (const part of bySeconds(node)) {
          const share = node.seconds > 0 ? w * part.seconds / node.seconds : 0;
          place(part, x, share, row + 1);
          x += share;
        }
      };
      place(top, 0, width, 0);
      g.globalAlpha = 1;
    });
    function rows() {
      const found = [], wanted = page.wanted();
      const visit = (node, path) => {
        for (const part of node.parts.values()) {
          const name = path ? path + "/" + part.name : part.name;
          if (name.toLowerCase().includes(wanted)) found.push([name, part]);
          visit(part, name);
        }
      };
      visit(tree, "");
      found.sort((a, b) => b[1].seconds - a[1].seconds);
      page.fill(table, found.slice(0, TOP).map(([name, n]) => [name,
        {text: (n.seconds * 1e6).toFixed(2), value: n.seconds},
        {text: d.all > 0 ? (100 * n.seconds / d.all).toFixed(1) : "", value: n.seconds},
        {text: n.again ? (n.again * 1e6).toFixed(2) : "\u2013", value: n.again},
        {text: (n.flops / 1e9).toPrecision(4), value: n.flops}]));
    }
    const rebuild = () => {
      top = tree = scopeTree(d, together.checked);
      again();
      rows();
    };
    const box = e => (boxes.find(b => b[0] === Math.floor(e.offsetY / ROW) && b[1] <= e.offsetX && e.offsetX < b[2])
      || [])[3];
    element.onmousemove = e => {
      const n = box(e);
      page.show(e, n && `${n.name}\n${page.time(n.seconds)}, ${d.share(n.seconds)}\n${(n.flops / 1e9).toPrecision(4)} GFLOP`);
    };
    element.onclick = e => {
      const n = box(e);
      if (n) top = n === top ? n.parent || tree : n;
      again();
    };
    together.onchange = rebuild;
    page.onsearch(() => {
      again();
      rows();
    });
    rebuild();
  }

  // ---- Roofline
  function roofline(section, d) {
    const element = section.querySelector(".roofline");
    if (!element) return;
    const x0 = -2, x1 = 4, y1 = Math.ceil(Math.log10(d.peak_flops)), y0 = Math.floor(Math.log10(d.peak_flops)) - 5;
    let drawn = [];
    const again = page.canvas(element, () => 320, (g, width) => {
      const px = v => 60 + (Math.log10(v) - x0) / (x1 - x0) * (width - 90);
      const py = v => 290 - (Math.log10(v) - y0) / (y1 - y0) * 270;
      const line = (...points) => {
        g.beginPath();
        points.forEach(([x, y], i) => i ? g.lineTo(x, y) : g.moveTo(x, y));
        g.stroke();
      };
      g.strokeStyle = page.color("--line");
      g.fillStyle = page.color("--soft");
      for (let x = x0; x <= x1; x++) {
        line([px(10 ** x), 20], [px(10 ** x), 290]);
        g.fillText(String(+(10 ** x).toPrecision(1)), px(10 ** x) - 8, 302);
      }
      for (let y = y0; y <= y1; y++) {
        line([60, py(10 ** y)], [width - 30, py(10 ** y)]);
        g.fillText(+(10 ** (y - 12)).toPrecision(1) + " TF/s", 0, py(10 ** y));
      }
      g.fillText("FLOP per byte of HBM", width / 2 - 60, 314);
      g.strokeStyle = page.color("--soft");
      g.lineWidth = 2;
      line([px(0.01), py(0.01 * d.hbm_rate)], [px(d.peak_flops / d.hbm_rate), py(d.peak_flops)],
        [width - 30, py(d.peak_flops)]);
      // Kernels that fall on one another are one circle.
      const circles = new Map(), wanted = page.wanted();
      for (let i = 0; i < d.count; i++) {
        if (d.lane[i] < 0 || !(d.flops[i] > 0) || !(d.seconds_of[i] > 0)) continue;
        const x = d.hbm[i] > 0 ? Math.min(9e3, d.flops[i] / d.hbm[i]) : 9e3, y = d.flops[i] / d.seconds_of[i];
        if (x < 0.01 || Math.log10(y) < y0) continue;
        const found = !wanted || d.matches(i, wanted);
        const key = ((Math.round(px(x)) * 512 + Math.round(py(y))) * 8 + d.bound[i]) * 2 + found;
        const c = circles.get(key);
        if (c) c.seconds += d.seconds_of[i] * d.runs[i], c.count++;
        else circles.set(key, {x: px(x), y: py(y), seconds: d.seconds_of[i] * d.runs[i], count: 1, found, i});
      }
      drawn = [...circles.values()].sort((a, b) => b.seconds - a.seconds);
      for (const c of drawn) {
        c.radius = 3 + 26 * Math.sqrt(c.seconds / d.all);
        g.globalAlpha = c.found ? 0.55 : 0.06;
        g.fillStyle = d.colors[d.bound[c.i]];
        g.beginPath();
        g.arc(c.x, c.y, c.radius, 0, 7);
        g.fill();
      }
      g.globalAlpha = 1;
    });
    element.onmousemove = e => {
      const hits = drawn.filter(c => (e.offsetX - c.x) ** 2 + (e.offsetY - c.y) ** 2 <= c.radius ** 2);
      const c = hits[hits.length - 1];  // the smallest
      page.show(e, c && [d.text("name", c.i) + (c.count > 1 ? ` and ${c.count - 1} more` : ""), d.text("detail", c.i),
        `${(d.flops[c.i] / d.seconds_of[c.i] / 1e12).toPrecision(3)} TFLOP/s, ${d.share(c.seconds)}`].join("\n"));
    };
    page.onsearch(again);
    again();
  }

  // ---- Kernels
  function kernels(section, d) {
    const table = section.querySelector(".kernels"), said = section.querySelector(".shown");
    const order = d.start.map((_, i) => i);
    order.sort((a, b) => d.seconds_of[b] * d.runs[b] - d.seconds_of[a] * d.runs[a]);
    const figure = (value, text) => ({value, text: value ? text : "\u2013"});
    const rows = () => {
      const wanted = page.wanted(), found = wanted ? order.filter(i => d.matches(i, wanted)) : order;
      said.textContent = `${found.length} of ${d.count}` + (found.length > SHOWN ? `, the longest ${SHOWN} are listed` : "")
        + ". A click on a heading sorts.";
      page.fill(table, found.slice(0, SHOWN).map(i => {
        const all = d.seconds_of[i] * d.runs[i], share = d.all > 0 ? 100 * d.weight(i) / d.all : 0;
        const rate = d.seconds_of[i] > 0 ? d.flops[i] / d.seconds_of[i] / 1e12 : 0;
        const hbm = d.seconds_of[i] > 0 ? d.hbm[i] / d.seconds_of[i] / 1e9 : 0;
        return [figure(all, (all * 1e6).toFixed(2)), figure(share, share.toFixed(1)), figure(d.runs[i], d.runs[i]),
          {text: d.bounds[d.bound[i]], color: d.colors[d.bound[i]]}, d.sources[d.from[i]], d.text("name", i),
          d.text("detail", i), figure(rate, rate.toPrecision(3)), figure(hbm, hbm.toPrecision(4)),
          {text: file(d.text("source", i)), title: d.text("source", i) + " " + d.text("scope", i)}];
      }));
    };
    page.onsearch(rows);
    rows();
  }

  // ---- Memory over time: the largest values by name, the rest as one.
  function memory(section, d) {
    const element = section.querySelector(".memory"), HEIGHT = 220, steps = Math.max(1, d.steps.length);
    const lives = d.lives.map(([name, type, source, bytes, from, to]) =>
      ({name: d.texts[name], type: d.texts[type], source: d.texts[source], bytes, from, to}));
    const named = [...lives].sort((a, b) => b.bytes - a.bytes).slice(0, TOP), top = new Set(named);
    const rest = new Float64Array(steps + 1);
    for (const l of lives) if (!top.has(l)) rest[l.from] += l.bytes, rest[l.to + 1] -= l.bytes;
    for (let s = 1; s <= steps; s++) rest[s] += rest[s - 1];
    const sums = Float64Array.from(rest, r => r + d.kept);
    for (const l of named) for (let s = l.from; s <= l.to && s < steps; s++) sums[s] += l.bytes;
    const most = sums.reduce((a, b) => Math.max(a, b), 1), high = d.limit && d.limit < 2.5 * most ? Math.max(most, d.limit) : most;
    let view = null, columns = [];
    // The step of each pixel's column that needs the most.
    function pick(width) {
      const found = [];
      for (let x = 0; x < width; x++) {
        const a = view.from + (view.to - view.from) * x / width, b = view.from + (view.to - view.from) * (x + 1) / width;
        let best = Math.min(Math.floor(a), steps - 1);
        for (let s = best; s < b && s < steps; s++) if (sums[s] > sums[best]) best = s;
        found.push(best);
      }
      return found;
    }
    const again = page.canvas(element, () => HEIGHT + 24, (g, width) => {
      const y = bytes => HEIGHT - bytes / high * (HEIGHT - 4), wanted = page.wanted();
      columns = pick(Math.floor(width - LEFT));
      columns.forEach((s, x) => {
        let at = 0;
        const band = (bytes, color, alpha) => {
          if (!(bytes > 0)) return;
          g.globalAlpha = alpha;
          g.fillStyle = color;
          g.fillRect(LEFT + x, y(at + bytes), 1.05, y(at) - y(at + bytes));
          at += bytes;
        };
        band(d.kept, "#7d8998", 1);
        for (const l of named) {
          if (l.from > s || l.to < s) continue;
          const found = !wanted || (l.name + " " + l.type + " " + l.source).toLowerCase().includes(wanted);
          band(l.bytes, `hsl(${hue(l.name)} 55% 50%)`, found ? 1 : 0.2);
        }
        band(rest[s], "#b9c2cc", 1);
      });
      g.globalAlpha = 1;
      g.fillStyle = page.color("--soft");
      g.fillText(page.bytes(most), 0, y(most) + 6);
      g.fillText("0", 0, HEIGHT - 6);
      if (d.limit && d.limit <= high) {
        g.fillStyle = page.color("--bad");
        g.fillRect(LEFT, y(d.limit), width - LEFT, 1);
        g.fillText("all of " + page.bytes(d.limit), LEFT + 4, y(d.limit) + 8);
        g.fillStyle = page.color("--soft");
      }
      const name = s => d.steps.length ? d.texts[d.steps[Math.min(s, steps - 1)]] : "";
      g.fillText(name(Math.floor(view.from)), LEFT, HEIGHT + 12);
      g.textAlign = "right";
      g.fillText(name(Math.ceil(view.to) - 1), width, HEIGHT + 12);
      g.textAlign = "left";
    });
    view = page.zoom(element, steps, () => [LEFT, element.clientWidth - LEFT], again);
    element.addEventListener("mousemove", e => {
      const s = columns[Math.floor(e.offsetX - LEFT)];
      if (s === undefined) return page.show(e, "");
      const there = named.filter(l => l.from <= s && s <= l.to);
      page.show(e, [`at ${d.steps.length ? d.texts[d.steps[s]] : ""}: ${page.bytes(sums[s])}`,
        `${page.bytes(d.kept)}  arguments and results`,
        ...there.slice(0, 10).map(l => `${page.bytes(l.bytes)}  ${l.name} ${l.type} ${file(l.source)}`),
        there.length > 10 ? `and ${there.length - 10} more` : "", rest[s] ? `${page.bytes(rest[s])}  smaller values` : ""]
        .filter(t => t).join("\n"));
    });
    page.onsearch(again);
    again();
  }

  // ---- Two reports, line by line
  function compare(table, a, b) {
    const lines = new Map();
    [a, b].forEach((d, which) => {
      for (let i = 0; i < d.count; i++) {
        const key = d.text("source", i) || d.text("name", i).replace(/\.\d+$/, "") + " (no line)";
        if (!lines.has(key)) lines.set(key, [0, 0]);
        lines.get(key)[which] += d.weight(i);
      }
    });
    const order = [...lines].sort((x, y) => Math.abs(y[1][1] - y[1][0]) - Math.abs(x[1][1] - x[1][0]));
    const us = s => ({text: (s * 1e6).toFixed(2), value: s * 1e6});
    const rows = () => page.fill(table, order.filter(([line]) => line.toLowerCase().includes(page.wanted())).slice(0, SHOWN)
      .map(([line, [x, y]]) => [line, us(x), us(y), us(y - x), x > 0 ? {text: (y / x).toFixed(3), value: y / x}
        : {text: "\u2013", value: 0}]));
    page.onsearch(rows);
    rows();
  }

  document.addEventListener("DOMContentLoaded", () => {
    const all = [...document.querySelectorAll("section.report")].map(section => {
      const d = decode(section);
      timeline(section, d);
      scopes(section, d);
      roofline(section, d);
      kernels(section, d);
      memory(section, d);
      return d;
    });
    const table = document.querySelector("table.lines");
    if (table) compare(table, all[0], all[1]);
  });
})();
