"""The documentation as a site: builds without warnings, from pages and notebooks alike, and no link of it is dead."""

import html.parser
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse

import pytest

TOP = pathlib.Path(__file__).resolve().parents[2]
MISSING = [m for m in ("sphinx", "myst_parser", "furo") if not importlib.util.find_spec(m)]
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")


class Page(html.parser.HTMLParser):
  """What can be linked to on it, and its links."""

  def __init__(self, path):
    super().__init__()
    self.names, self.links, self.text = set(), [], path.read_text()
    self.feed(self.text)

  def handle_starttag(self, tag, attrs):
    self.names |= {v for k, v in attrs if k in ("id", "name")}
    self.links += [v for k, v in attrs if k in ("href", "src") and v]


def build(docs, out):
  return subprocess.run(
      [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-c", TOP / "tools" / "site",
       "-d", f"{out}.cache", docs, out], capture_output=True, text=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})


@pytest.fixture(scope="module")
def site(tmp_path_factory):
  out = tmp_path_factory.mktemp("site") / "html"
  done = build(TOP / "docs", out)
  assert done.returncode == 0 and not done.stderr, done.stderr[-4000:]
  return {p: Page(p) for p in out.resolve().rglob("*.html")}


def test_no_link_is_dead(site):
  dead, seen = [], 0
  for path, page in site.items():
    for link in page.links:
      if re.match(r"[a-z]+:", link):
        continue
      seen += 1
      file, _, name = urllib.parse.unquote(link).partition("#")
      there = (path.parent / file.partition("?")[0]).resolve() if file else path
      if not there.exists() or (name and there in site and name not in site[there].names):
        dead.append(f"{path.name}: {link}")
  assert not dead and seen > 1000


def test_every_page_notebook_and_module_is_there(site):
  names = {p.name for p in site}
  for source in [*(TOP / "docs").rglob("*.md"), *(TOP / "docs").rglob("*.ipynb")]:
    assert source.with_suffix(".html").name in names, source
  notebook = next(page for path, page in site.items() if path.name == "first_kernel.html")
  assert "pallas_call" in notebook.text and '"cell_type"' not in notebook.text
  index = next(page for path, page in site.items() if path.name == "README.html" and path.parent.name == "html")
  for part in ("Tutorials", "How to", "Reference", "Explanation"):
    assert part in index.text


def test_a_dead_link_is_a_warning(tmp_path):
  shutil.copytree(TOP / "docs", tmp_path / "docs")
  (tmp_path / "docs" / "go.md").open("a").write("\n[nowhere](pod.md#no-such-heading) [nor here](no_such_page.md)\n")
  shutil.copytree(TOP / "examples", tmp_path / "examples")
  done = build(tmp_path / "docs", tmp_path / "html")
  assert done.returncode and "no-such-heading" in done.stderr and "no_such_page.md" in done.stderr, done.stderr
