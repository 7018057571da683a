"""The documentation as a site: the pages and notebooks of docs/, ordered as docs/README.md has them. ./docs.sh builds it."""
import json
import pathlib
import re

from myst_parser.parsers.sphinx_ import MystParser

TOP = pathlib.Path(__file__).resolve().parents[2]
DOCS = TOP / "docs"

project = "Atoll"
author = copyright = "the authors of Atoll"
html_title = "Atoll"
extensions = ["myst_parser"]
root_doc = "README"
source_suffix = {".md": "markdown", ".ipynb": "notebook"}
html_theme = "furo"
# Headings are called what GitHub calls them; links to headings are checked.
myst_heading_anchors = 6
myst_enable_extensions = []
# Pages begin below their title where a page is a table of many.
suppress_warnings = ["myst.header"]
highlight_language = "text"
html_copy_source = False


class Notebook(MystParser):
  """A notebook's cells as Markdown."""

  supported = ("notebook",)

  def parse(self, inputstring, document):
    parts = []
    for cell in json.loads(inputstring)["cells"]:
      text = "".join(cell["source"])
      parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    super().parse("\n\n".join(parts) + "\n", document)


def sections(text):
  """(title, pages) of docs/README.md."""
  for part in re.split(r"^## ", text, flags=re.M)[1:]:
    title, _, rest = part.partition("\n")
    yield title.strip(), re.findall(r"\]\(([\w./-]+)\.(?:md|ipynb)\)", rest)


def add_order(app, name, source):
  """The index says in which order pages come; a page of API those below it."""
  if name == root_doc:
    for title, pages in sections(source[0]):
      source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(pages) + "\n```\n"
  elif name == "api/README":
    pages = re.findall(r"\]\(([\w.]+)\.md\)", source[0])
    source[0] += "\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def add_entrance(app, error):
  """index.html, which servers look for."""
  if not error and app.builder.name == "html":
    (pathlib.Path(app.outdir) / "index.html").write_text(
        f'<!doctype html><title>{project}</title><meta http-equiv="refresh" content="0; url={root_doc}.html">'
        f'<a href="{root_doc}.html">{project}</a>\n')


def setup(app):
  app.add_source_parser(Notebook)
  app.connect("build-finished", add_entrance)
  app.connect("source-read", add_order)
