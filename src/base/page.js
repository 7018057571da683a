// What every page does: tables sort by the head that is clicked, the search field hides rows and dims marks that do not
// match, hovering says what a mark is (its <title>), and pictures of class "time" zoom along time. Scripts of one page
// draw their canvases with page.canvas.
const page = (() => {
  const color = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const searches = [], canvases = [];
  let tip = null, wanted = "";

  // ---- Figures for people
  const time = s => s >= 1 ? s.toPrecision(4) + " s" : s >= 1e-3 ? (s * 1e3).toPrecision(4) + " ms"
    : (s * 1e6).toPrecision(4) + " \u00b5s";
  const bytes = b => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let i = 0;
    for (; b >= 1024 && i + 1 < units.length; i++) b /= 1024;
    return (i ? b.toPrecision(4) : b) + " " + units[i];
  };

  // ---- Hovering
  function show(event, text) {
    tip.style.display = text ? "block" : "none";
    if (!text) return;
    tip.textContent = text;
    tip.style.left = Math.max(0, Math.min(event.pageX + 12, document.body.clientWidth - 380)) + "px";
    tip.style.top = event.pageY + 12 + "px";
  }
  const titled = node => {
    while (node && node.tagName !== "svg" && !node.dataset.title) node = node.parentNode;
    return node && node.dataset ? node.dataset.title : "";
  };
  // Titles become data, or the browser would show them a second time.
  function hover(svg) {
    for (const title of svg.querySelectorAll("title")) {
      title.parentNode.dataset.title = title.textContent;
      title.parentNode.setAttribute("aria-label", title.textContent);
      title.remove();
    }
    svg.onmousemove = e => show(e, titled(e.target));
    svg.onmouseleave = e => show(e, "");
  }

  // ---- Zoom: from and to are what is shown of 0 to `all`.
  // `place`: where the picture is now, [left, width] in CSS pixels of the element.
  function zoom(element, all, place, draw) {
    const view = {from: 0, to: all};
    const set = (a, b) => {
      const span = Math.min(Math.max(b - a, all * 1e-7), all);
      view.from = Math.min(Math.max(a, 0), all - span);
      view.to = view.from + span;
      draw();
    };
    element.addEventListener("wheel", e => {
      e.preventDefault();
      const [left, width] = place(), f = Math.exp(e.deltaY * 0.002), x = e.clientX - element.getBoundingClientRect().left;
      const at = view.from + (x - left) / width * (view.to - view.from);
      set(at - (at - view.from) * f, at + (view.to - at) * f);
    }, {passive: false});
    element.addEventListener("mousemove", e => {
      if (!(e.buttons & 1)) return;
      const by = -e.movementX / place()[1] * (view.to - view.from);
      set(view.from + by, view.to + by);
    });
    element.addEventListener("dblclick", () => set(0, all));
    return view;
  }

  // A picture of class "time" has its labels left of data-left, in its own units; all else moves and stretches.
  function zoomSvg(svg) {
    const width = svg.viewBox.baseVal.width, left = +svg.dataset.left || 0;
    const marks = [...svg.querySelectorAll("rect,text,path")].map(m => [m, +m.getAttribute("x") || 0,
      +m.getAttribute("width") || 0]).filter(([m, x]) => x >= left && !m.classList.contains("back"));
    const scale = () => svg.getBoundingClientRect().width / width;
    const view = zoom(svg, width - left, () => [left * scale(), (width - left) * scale()], () => {
      const f = (width - left) / (view.to - view.from), x0 = x => left + (x - left - view.from) * f;
      for (const [m, x, w] of marks) {
        if (m.tagName === "path") {
          m.setAttribute("transform", `translate(${left - (left + view.from) * f} 0) scale(${f} 1)`);
        } else if (m.tagName === "text") {
          m.setAttribute("x", x0(x));
          m.style.visibility = x0(x) < left || x0(x) > width ? "hidden" : "";
        } else {
          const a = Math.max(left, x0(x)), b = Math.min(width, x0(x + w));
          m.setAttribute("x", a);
          m.setAttribute("width", Math.max(0, b - a));
        }
      }
    });
  }

  // ---- Canvases: `height` in CSS pixels, drawn again when width or colours change, and for paper.
  function canvas(element, height, draw) {
    const g = element.getContext("2d");
    const again = () => {
      const width = element.clientWidth, scale = window.devicePixelRatio || 1;
      element.width = width * scale;
      element.height = height() * scale;
      element.style.height = height() + "px";
      g.scale(scale, scale);
      g.font = "11px system-ui,sans-serif";
      g.textBaseline = "middle";
      draw(g, width);
    };
    element.onmouseleave = e => show(e, "");
    canvases.push(again);
    return again;
  }
  const redraw = () => canvases.forEach(again => again());
  function label(g, text, x, width, y) {
    if (width < 40) return;
    const fits = Math.floor(width / 6.5);
    g.fillText(text.length > fits ? text.slice(0, fits - 1) + "\u2026" : text, x + 3, y);
  }

  // ---- Tables
  function sort(head) {
    const table = head.closest("table"), i = [...head.parentNode.children].indexOf(head), body = table.tBodies[0];
    const way = head.dataset.way = head.dataset.way === "1" ? "-1" : "1";
    const key = row => row.cells[i].dataset.v || row.cells[i].textContent;
    [...body.rows].map(row => [key(row), row]).sort(([a], [b]) => {
      const x = parseFloat(a), y = parseFloat(b);
      return (isNaN(x) || isNaN(y) ? a.localeCompare(b) : y - x) * way;
    }).forEach(([, row]) => body.appendChild(row));
  }
  // Rows of cells: texts, or numbers with how they are written. Only as many as somebody reads.
  function fill(table, rows) {
    const body = table.tBodies[0] || table.createTBody();
    body.replaceChildren(...rows.map(cells => {
      const row = document.createElement("tr");
      for (const c of cells) {
        const cell = row.insertCell();
        cell.textContent = c.text === undefined ? c : c.text;
        if (c.value !== undefined) cell.className = "n", cell.dataset.v = c.value;
        if (c.color) {
          const dot = document.createElement("i");
          dot.className = "dot";
          dot.style.background = c.color;
          cell.prepend(dot);
        }
        if (c.title) cell.title = c.title;
      }
      return row;
    }));
  }

  // ---- Search
  function search(text) {
    wanted = text.toLowerCase();
    for (const row of document.querySelectorAll("table:not(.filled) tbody tr"))
      row.hidden = wanted && !row.textContent.toLowerCase().includes(wanted);
    for (const mark of document.querySelectorAll("svg [data-title]"))
      mark.classList.toggle("dim", wanted !== "" && !mark.dataset.title.toLowerCase().includes(wanted));
    for (const card of document.querySelectorAll(".chips .card"))
      card.classList.toggle("dim", wanted !== "" && !card.textContent.toLowerCase().includes(wanted));
    searches.forEach(f => f());
  }

  document.addEventListener("DOMContentLoaded", () => {
    tip = document.body.appendChild(document.createElement("div"));
    tip.className = "tip";
    document.querySelectorAll("svg").forEach(hover);
    document.querySelectorAll("svg.time").forEach(zoomSvg);
    document.querySelectorAll("th").forEach(head => {
      head.onclick = () => sort(head);
    });
    const field = document.querySelector("nav input");
    field.oninput = () => search(field.value);
    window.addEventListener("resize", redraw);
    for (const media of ["(prefers-color-scheme:dark)", "print"])
      matchMedia(media).addEventListener("change", redraw);
  });
  return {color, time, bytes, show, zoom, canvas, label, fill, wanted: () => wanted, onsearch: f => searches.push(f)};
})();
