"""The page in a real browser, which is not installed here: without one the tests are skipped."""

import base64
import os
import shutil
import signal
from contextlib import contextmanager

import numpy as np
import pytest

from compositefl.report import page
from tests.report.pages import everything

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 120  # seconds, for a busy machine


@contextmanager
def time_limit(seconds):
    def stop(number, frame):
        raise TimeoutError(f"no answer of the browser in {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(scope="module")
def browser():
    binary = next(filter(None, map(shutil.which, BROWSERS)), None)
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.skip("no browser here: `apt install chromium chromium-driver`, or `make browser`")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for word in ("headless=new", "disable-dev-shm-usage", "disable-gpu", "window-size=1200,900"):
        options.add_argument(f"--{word}")
    if os.getuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with time_limit(PATIENCE):
        made = webdriver.Chrome(options, webdriver.ChromeService(driver))
        made.set_page_load_timeout(PATIENCE)
        made.set_script_timeout(PATIENCE)
    yield made
    made.quit()


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """The page with every section, drawn."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    page.write(file, "Every section", everything())
    browser.get(file.as_uri())
    wait(browser, "return document.body.dataset.drawn")
    return browser


def wait(browser, question):
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, PATIENCE).until(lambda b: b.execute_script(question))


@pytest.fixture
def screen(opened):
    """Set the width, the colours or the paper; as at first afterwards."""

    def set_(width=1200, scheme="light", media=""):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wait(opened, f"return innerWidth == {width}")
        opened.execute_script("drawAll()")  # the page's own answer may still be on its way

    with time_limit(PATIENCE):
        yield set_
        set_()


PLOTS = "return [...document.querySelectorAll('.chart')].map(c => {0})"


def test_every_chart_is_drawn_and_nothing_complains(opened):
    assert all(opened.execute_script(PLOTS.format("c.querySelectorAll('svg.main-svg').length > 0")))
    assert [line for line in opened.get_log("browser") if line["level"] == "SEVERE"] == []
    asked = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert [a for a in opened.execute_script(asked) if not a.startswith("data:")] == []


def test_small_numbers_of_logarithmic_axes_are_powers_of_ten(opened):
    ticks = "return [...document.querySelectorAll('.xtick text, .ytick text')].map(t => {0})"
    said = opened.execute_script(ticks.format("t.textContent.replace(/\u200b/g, '')"))
    assert said.count("10−2") == 3 and not {"0.01", "10m"} & set(said)


def test_a_click_on_the_legend_hides_a_curve_in_every_panel(opened):
    drawn = """return [...document.querySelectorAll('.chart[data-kind=curves] .scatterlayer path')]
        .filter(p => p.classList.contains('js-line') && p.getTotalLength() > 0).length"""
    before = opened.execute_script(drawn)
    toggles = opened.find_elements("css selector", ".chart[data-kind=curves] .legendtoggle")
    assert len(toggles) == 3
    toggles[1].click()
    wait(opened, f"{drawn} < {before}")
    hidden = """return document.querySelector('.chart[data-kind=curves]').plot._fullData
        .filter(t => t.visible === 'legendonly').map(t => t.name)"""
    names = wait(opened, hidden)
    assert set(names) == {"ZA1 <b>"} and len(names) == 8  # four panels, lines and bands
    # other axes leave it hidden
    choose(opened, "x", "bytes_up")
    assert set(opened.execute_script(hidden)) == {"ZA1 <b>"}
    wait_for_second_click(opened, hidden)


def wait_for_second_click(opened, hidden):
    """Two clicks in short order would be a double click, which shows one curve alone."""
    import time

    time.sleep(0.6)
    opened.find_elements("css selector", ".chart[data-kind=curves] .legendtoggle")[1].click()
    wait(opened, hidden.replace(".map(t => t.name)", ".length == 0"))
    choose(opened, "x", "round")


def choose(opened, what, value):
    from selenium.webdriver.support.ui import Select

    Select(opened.find_element("css selector", f"select[data-choice={what}]")).select_by_value(
        value
    )


def test_ratios_to_fednmap(opened):
    choose(opened, "ratio", "ratio")
    values = """return document.querySelector('.chart[data-kind=curves]').plot.data
        .filter(t => t.yaxis === 'y').map(t => t.y)"""
    mine, other, _ = opened.execute_script(values)
    assert np.allclose(mine, 1) and np.allclose(other, 2)  # residuals of twice the size
    choose(opened, "ratio", "")


@pytest.mark.parametrize("width", [360, 800])
def test_nothing_is_wider_than_the_screen(screen, opened, width):
    screen(width)
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width
    wide = (
        "return Math.max(...[...document.querySelectorAll('svg.main-svg')].map(s => s.clientWidth))"
    )
    assert opened.execute_script(wide) <= width
    small = """return [...document.querySelectorAll('main p, main td, .chart text')]
        .filter(e => e.textContent && parseFloat(getComputedStyle(e).fontSize) < 9).length"""
    assert opened.execute_script(small) == 0


def contrast(one, other):
    """WCAG's ratio of two colours "rgb(r, g, b)"."""

    def light(colour):
        parts = (
            np.array([float(p) for p in colour[colour.index("(") + 1 : -1].split(",")[:3]]) / 255
        )
        linear = np.where(parts <= 0.03928, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722] + 0.05

    a, b = light(one), light(other)
    return max(a, b) / min(a, b)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_from_the_page(screen, opened, scheme):
    screen(scheme=scheme)
    paper = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
    colours = opened.execute_script(
        """const all = [...document.querySelectorAll('h1, p, td, th, figcaption')]
            .map(e => getComputedStyle(e).color);
        const inside = [...document.querySelectorAll('.chart text')].filter(e => e.textContent)
            .map(e => getComputedStyle(e).fill);
        return [...new Set(all.concat(inside))]"""
    )
    assert min(contrast(colour, paper) for colour in colours) > 4.5
    lines = opened.execute_script(
        """return [...document.querySelectorAll('.scatterlayer .js-line')]
            .map(e => getComputedStyle(e).stroke).filter(c => c.startsWith('rgb('))"""
    )
    assert lines and min(contrast(colour, paper) for colour in lines) > 2


def test_on_paper_it_is_black_on_white_even_from_a_dark_screen(screen, opened):
    screen(width=794, scheme="dark", media="print")
    ink = wait(opened, "return getComputedStyle(document.querySelector('.chart text')).fill")
    assert contrast(ink, "rgb(255, 255, 255)") > 10
    hidden = "return getComputedStyle(document.querySelector('.controls')).display"
    assert opened.execute_script(hidden) == "none"
    pdf = base64.b64decode(opened.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert pdf.startswith(b"%PDF") and len(pdf) > 20_000
