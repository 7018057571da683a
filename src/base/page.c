#include "base/page.h"

static const char kStyle[] =
    "<style>"
    ":root{--ink:#1c2430;--soft:#5d6b7a;--line:#e3e8ee;--paper:#fff;--back:#"
    "f5f7fa}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6ebf1;--soft:#9aa8b7;"
    "--line:#2c3643;--paper:#171e27;--back:#10151c}}"
    "body{margin:0;background:var(--back);color:var(--ink);"
    "font:14px/1.45 system-ui,sans-serif}"
    "main{max-width:1080px;margin:0 auto;padding:24px 20px 60px}"
    "h1{font-size:22px;margin:0}h2{font-size:16px;margin:32px 0 10px}"
    "p{color:var(--soft);margin:4px 0 12px}"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(180px,"
    "1fr));"
    "gap:12px;margin-top:18px}"
    ".card,figure,table{background:var(--paper);border:1px solid var(--line);"
    "border-radius:8px}"
    ".card{padding:12px 14px}.card "
    "b{display:block;font-size:22px;font-weight:600}"
    ".card span{color:var(--soft);font-size:12px}"
    "figure{margin:0;padding:12px;overflow-x:auto}svg{display:block;max-width:"
    "100%}"
    "svg text{fill:var(--soft);font-size:11px}"
    "table{border-collapse:separate;border-spacing:0;width:100%;font-size:12."
    "5px}"
    "th{text-align:left;color:var(--soft);font-weight:500;cursor:pointer;"
    "position:sticky;top:0;background:var(--paper)}"
    "th,td{padding:5px 8px;border-bottom:1px solid var(--line);"
    "vertical-align:top}td.n,th.n{text-align:right;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}"
    ".w{white-space:nowrap}td code{font:12px "
    "ui-monospace,monospace;overflow-wrap:anywhere}"
    ".dot{display:inline-block;width:9px;height:9px;border-radius:5px;"
    "margin-right:5px}.key{margin-right:16px;color:var(--soft);font-size:12px}"
    ".bar{height:14px;display:flex;border-radius:4px;overflow:hidden}"
    ".bar i{display:block}.bad{color:#d0433b}"
    "</style>";

// Sorts a table by the column whose head is clicked.
static const char kScript[] =
    "<script>document.querySelectorAll('th').forEach(function(h){h.onclick="
    "function(){var "
    "t=h.closest('table'),i=[].indexOf.call(h.parentNode.children,"
    "h),b=t.tBodies[0],d=h.dataset.d=h.dataset.d=='1'?'-1':'1';[].slice.call("
    "b.rows).sort(function(x,y){var "
    "p=x.cells[i].dataset.v||x.cells[i].textContent,"
    "q=y.cells[i].dataset.v||y.cells[i].textContent,m=parseFloat(p),n="
    "parseFloat(q);"
    "return "
    "(isNaN(m)||isNaN(n)?p.localeCompare(q):n-m)*d}).forEach(function(r){"
    "b.appendChild(r)})}})</script>";

void at_page_text(at_strbuf *out, const char *text) {
  for (; *text; text++) switch (*text) {
      case '<':
        at_strbuf_addz(out, "&lt;");
        break;
      case '>':
        at_strbuf_addz(out, "&gt;");
        break;
      case '&':
        at_strbuf_addz(out, "&amp;");
        break;
      case '"':
        at_strbuf_addz(out, "&quot;");
        break;
      default:
        at_strbuf_addc(out, *text);
    }
}

void at_page_begin(at_strbuf *out, const char *title) {
  at_strbuf_addz(out,
                 "<!doctype html><html lang=en><head><meta charset=utf-8>"
                 "<meta name=viewport content=\"width=device-width\"><title>");
  at_page_text(out, title);
  at_strbuf_addz(out, "</title>");
  at_strbuf_addz(out, kStyle);
  at_strbuf_addz(out, "</head><body><main>");
}

void at_page_end(at_strbuf *out) {
  at_strbuf_addz(out, "</main>");
  at_strbuf_addz(out, kScript);
  at_strbuf_addz(out, "</body></html>\n");
}
