// The report's pictures, on canvases: a page of 100,000 kernels holds no more elements than one of ten.
// Data: {bounds, colors, seconds, ops: [name, detail, source, scope, start, seconds, runs, exposed, lane, bound, flops]}.
(function () {
  const root = document.currentScript.parentNode;
  const data = JSON.parse(root.querySelector("script[type='application/json']").textContent);
  const [NAME, DETAIL, SOURCE, SCOPE, START, SECONDS, RUNS, EXPOSED, LANE, BOUND, FLOPS] = Array(11).keys();
  const NETWORK = -1, HOST = -2;
  const search = root.querySelector("input"), tip = root.querySelector(".tip");
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name);

  const time = s => s >= 1 ? s.toPrecision(4) + " s" : s >= 1e-3 ? (s * 1e3).toPrecision(4) + " ms"
    : (s * 1e6).toPrecision(4) + " \u00b5s";
  const weight = o => o[LANE] < 0 ? o[EXPOSED] : o[SECONDS] * o[RUNS];
  const share = s => data.seconds > 0 ? (100 * s / data.seconds).toFixed(1) + "% of the step" : "";

  // A canvas of so many CSS pixels in height that draws by itself when its width changes.
  function canvas(selector, height, draw) {
    const c = root.querySelector(selector), g = c.getContext("2d");
    const again = () => {
      const width = c.clientWidth, scale = window.devicePixelRatio || 1;
      c.width = width * scale;
      c.height = height() * scale;
      c.style.height = height() + "px";
      g.scale(scale, scale);
      g.font = "11px system-ui,sans-serif";
      g.textBaseline = "middle";
      draw(g, width);
    };
    c.onmouseleave = () => { tip.style.display = "none"; };
    window.addEventListener("resize", again);
    matchMedia("(prefers-color-scheme:dark)").addEventListener("change", again);
    return [c, again];
  }

  function show(event, text) {
    tip.style.display = text ? "block" : "none";
    tip.textContent = text || "";
    tip.style.left = Math.min(event.pageX + 12, document.body.clientWidth - 380) + "px";
    tip.style.top = event.pageY + 12 + "px";
  }

  function label(g, text, x, width, y) {
    if (width < 40) return;
    const fits = Math.floor(width / 6.5);
    g.fillText(text.length > fits ? text.slice(0, fits - 1) + "\u2026" : text, x + 3, y);
  }

  // ---- Timeline: kernels by depth of loops, then collectives, then copies to and from the host.
  const LEFT = 84, ROW = 22;
  const deepest = data.ops.reduce((most, o) => Math.max(most, o[LANE]), 0);
  const lanes = [];
  for (let l = 0; l <= deepest; l++) lanes.push([l, l ? "in loops " + l : "kernels"]);
  if (data.ops.some(o => o[LANE] === NETWORK)) lanes.push([NETWORK, "collectives"]);
  if (data.ops.some(o => o[LANE] === HOST)) lanes.push([HOST, "host link"]);
  const rowOf = new Map(lanes.map((l, i) => [l[0], i]));
  // Loops: kernels of the first turn that follow each other, and how long all turns take.
  const loops = [];
  for (const o of data.ops) {
    if (o[LANE] < 1) continue;
    const last = loops[loops.length - 1];
    if (last && last.runs === o[RUNS] && o[START] < last.end + (last.end - last.start) + 1e-6)
      last.end = Math.max(last.end, o[START] + o[SECONDS]);
    else
      loops.push({start: o[START], end: o[START] + o[SECONDS], runs: o[RUNS]});
  }
  let from = 0, to = data.seconds || 1, drawn = [], wanted = "";
  const matches = o => !wanted || (o[NAME] + " " + o[DETAIL] + " " + o[SOURCE] + " " + o[SCOPE]).toLowerCase()
    .includes(wanted);

  const [flow, drawFlow] = canvas(".flow", () => lanes.length * ROW + 24, (g, width) => {
    const scale = (width - LEFT) / (to - from), last = lanes.map(() => -1);
    drawn = [];
    g.fillStyle = color("--soft");
    lanes.forEach((l, i) => g.fillText(l[1], 0, i * ROW + ROW / 2));
    for (let i = 0; i <= 4; i++) {
      g.textAlign = i === 4 ? "right" : "left";
      g.fillText(time(from + (to - from) * i / 4), LEFT + (width - LEFT) * i / 4, lanes.length * ROW + 12);
    }
    g.textAlign = "left";
    for (const l of loops) {
      const x0 = Math.max(LEFT, LEFT + (l.start - from) * scale);
      const x1 = Math.min(width, LEFT + (l.start + (l.end - l.start) * l.runs - from) * scale);
      if (x1 - x0 < 0.5) continue;
      g.fillStyle = color("--line");
      g.fillRect(x0, 2, x1 - x0, ROW - 4);
      g.fillStyle = color("--soft");
      label(g, l.runs + " turns", x0, x1 - x0, ROW / 2);
    }
    for (const o of data.ops) {
      const x0 = LEFT + (o[START] - from) * scale, x1 = x0 + o[SECONDS] * scale, row = rowOf.get(o[LANE]);
      if (x1 < LEFT || x0 > width || x1 < last[row] + 0.5) continue;  // another op has that pixel
      const x = Math.max(x0, LEFT), w = Math.max(x1 - x - 0.3, 0.5);
      g.globalAlpha = matches(o) ? 1 : 0.12;
      g.fillStyle = data.colors[o[BOUND]];
      g.fillRect(x, row * ROW + 2, w, ROW - 4);
      g.fillStyle = "#fff";
      label(g, o[NAME], x, w, row * ROW + ROW / 2);
      last[row] = x1;
      drawn.push([row, x, x + Math.max(w, 2), o]);
    }
    g.globalAlpha = 1;
  });
  const timeAt = x => from + (x - LEFT) / (flow.clientWidth - LEFT) * (to - from);
  const zoom = (a, b) => {
    const least = data.seconds * 1e-7, span = Math.min(Math.max(b - a, least), data.seconds);
    from = Math.min(Math.max(a, 0), data.seconds - span);
    to = from + span;
    drawFlow();
  };
  flow.addEventListener("wheel", e => {
    e.preventDefault();
    const t = timeAt(e.offsetX), f = Math.exp(e.deltaY * 0.002);
    zoom(t - (t - from) * f, t + (to - t) * f);
  }, {passive: false});
  flow.ondblclick = () => zoom(0, data.seconds);
  flow.onmousemove = e => {
    if (e.buttons & 1) {
      const by = -e.movementX / (flow.clientWidth - LEFT) * (to - from);
      return zoom(from + by, to + by);
    }
    const row = Math.floor(e.offsetY / ROW);
    const at = drawn.find(d => d[0] === row && d[1] <= e.offsetX && e.offsetX <= d[2]);
    const o = at && at[3];
    show(e, o && [o[NAME], o[DETAIL], time(o[SECONDS]) + (o[RUNS] > 1 ? " x " + o[RUNS] : "") + ", "
      + share(weight(o)) + (o[LANE] < 0 ? " exposed" : ""), "bound by " + data.bounds[o[BOUND]], o[SOURCE], o[SCOPE]]
      .filter(t => t).join("\n"));
  };

  // ---- Time by the model's scopes: a loop's layers are one scope, with all its turns.
  const tree = {name: "step", seconds: 0, flops: 0, parts: new Map(), parent: null};
  for (const o of data.ops) {
    let node = tree;
    const path = o[SCOPE] ? o[SCOPE].split("/") : ["(no scope)"];
    for (let i = -1; i < path.length; i++) {
      if (i >= 0) {
        if (!node.parts.has(path[i]))
          node.parts.set(path[i], {name: path[i], seconds: 0, flops: 0, parts: new Map(), parent: node});
        node = node.parts.get(path[i]);
      }
      node.seconds += weight(o);
      node.flops += o[FLOPS] * o[RUNS];
    }
  }
  const depth = n => 1 + Math.max(0, ...[...n.parts.values()].map(depth));
  const hue = text => [...text].reduce((h, c) => (h * 31 + c.charCodeAt(0)) % 360, 7);
  let top = tree, boxes = [];
  const [scopes, drawScopes] = canvas(".scopes", () => Math.min(depth(top), 14) * ROW, (g, width) => {
    boxes = [];
    const place = (node, x, w, row) => {
      if (w < 0.5 || row >= 14) return;
      const found = !wanted || node.name.toLowerCase().includes(wanted);
      g.globalAlpha = found ? 1 : 0.35;
      g.fillStyle = `hsl(${hue(node.name)} 45% 42%)`;
      g.fillRect(x, row * ROW, Math.max(w - 1, 0.5), ROW - 1);
      g.fillStyle = "#fff";
      label(g, node.name, x, w, row * ROW + ROW / 2);
      boxes.push([row, x, x + w, node]);
      for (const part of [...node.parts.values()].sort((a, b) => b.seconds - a.seconds)) {
        const share = node.seconds > 0 ? w * part.seconds / node.seconds : 0;
        place(part, x, share, row + 1);
        x += share;
      }
    };
    place(top, 0, width, 0);
    g.globalAlpha = 1;
  });
  const box = e => (boxes.find(b => b[0] === Math.floor(e.offsetY / ROW) && b[1] <= e.offsetX && e.offsetX < b[2])
    || [])[3];
  scopes.onmousemove = e => {
    const n = box(e);
    show(e, n && `${n.name}\n${time(n.seconds)}, ${share(n.seconds)}\n${(n.flops / 1e9).toPrecision(4)} GFLOP`);
  };
  scopes.onclick = e => {
    const n = box(e);
    if (n) top = n === top ? n.parent || tree : n;
    drawScopes();
  };

  search.oninput = () => {
    wanted = search.value.toLowerCase();
    drawFlow();
    drawScopes();
  };
  drawFlow();
  drawScopes();
})();
