"""Debian's Chromium without a window, driven by Selenium."""

import base64
import contextlib
import os
import shutil
from pathlib import Path

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WIDTH = 1100


def missing() -> str:
  """Why pages cannot be opened here, or nothing."""
  import importlib.util
  if not CHROMIUM or not DRIVER:
    return "no chromium and chromedriver here (tools/setup.sh test installs them where there are packages)"
  return "" if importlib.util.find_spec("selenium") else "selenium is not installed"


@contextlib.contextmanager
def opened():
  """A browser."""
  from selenium import webdriver
  from selenium.webdriver.chrome.service import Service
  options = webdriver.ChromeOptions()
  options.binary_location = CHROMIUM
  for word in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"window-size={WIDTH},900",
               "force-device-scale-factor=1", "hide-scrollbars"):
    options.add_argument("--" + word)
  options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
  driver = webdriver.Chrome(options=options, service=Service(DRIVER))
  try:
    yield Browser(driver)
  finally:
    driver.quit()


class Browser:
  """One page at a time."""

  def __init__(self, driver):
    self.driver = driver

  def open(self, path, scheme="light"):
    """Opens a file as somebody would whose desktop is light or dark."""
    self.media(scheme)
    self.errors()
    self.driver.get(Path(path).resolve().as_uri())

  def media(self, scheme, kind="screen"):
    self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "media": kind, "features": [{"name": "prefers-color-scheme", "value": scheme}]})

  def errors(self):
    """What the console has said since it was last asked."""
    return [entry["message"] for entry in self.driver.get_log("browser")]

  def js(self, code, *arguments):
    return self.driver.execute_script(code, *arguments)

  def texts(self, selector):
    return self.js("return [...document.querySelectorAll(arguments[0])].filter(e => !e.hidden).map(e => e.innerText)", selector)

  def rows(self, selector):
    return self.js("return [...document.querySelectorAll(arguments[0] + ' tbody tr')].filter(r => !r.hidden)"
                   ".map(r => [...r.cells].map(c => c.innerText))", selector)

  def inked(self, selector):
    """How many colours a canvas shows: one where nothing is drawn."""
    return self.js("""
        const c = document.querySelector(arguments[0]), p = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return new Set(new Uint32Array(p.buffer)).size""", selector)

  def search(self, text):
    self.js("const f = document.querySelector('nav input'); f.value = arguments[0]; f.dispatchEvent(new Event('input'))", text)

  def mouse(self, selector, kind, x, y, **more):
    """An event at a place of an element, in parts of its size. What hovering shows then."""
    return self.js("""
        const [selector, kind, x, y, more] = arguments, e = document.querySelector(selector);
        e.scrollIntoView({block: 'center'});
        const r = e.getBoundingClientRect(), type = kind === 'wheel' ? WheelEvent : MouseEvent;
        const at = {clientX: r.left + x * r.width, clientY: r.top + y * r.height, bubbles: true, cancelable: true, ...more};
        (document.elementFromPoint(at.clientX, at.clientY) || e).dispatchEvent(new type(kind, at));
        const tip = document.querySelector('.tip');
        return tip.style.display === 'block' ? tip.textContent : ''""", selector, kind, x, y, more)

  def picture(self, path, height=900):
    """A PNG of the page's top, with few colours so that it stays small."""
    import io
    from PIL import Image
    shot = self.driver.execute_cdp_cmd("Page.captureScreenshot", {
        "format": "png", "captureBeyondViewport": True,
        "clip": {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": 1}})
    image = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
    image.quantize(255, dither=Image.Dither.NONE).save(path, optimize=True)
    assert os.path.getsize(path) <= 200 << 10, f"{path} is too large to be kept"
