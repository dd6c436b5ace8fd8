#!/usr/bin/python3
"""Opens a report of two real runs in Chromium, and looks.

  browser.py DELINK RECIPE [--screenshots FOLDER]

Exit status 77: skipped, there is no Chromium or no Selenium.
"""
import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import runs

try:
    from selenium import webdriver
    from selenium.webdriver.chrome.options import Options
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.by import By
except ImportError as missing:
    print(f"SKIPPED: {missing}; install python3-selenium")
    sys.exit(77)

STEPS = 20
GROWS = "stage.0.depth=1"  # the first run, to all blocks with the next stage
STOP = 13  # of the first run, which is resumed there
# A name that is HTML, should anybody take it for that.
ODD = "b <img src=x onerror=document.title=1>"
WIDTHS = (1280, 390)


def browser():
    options = Options()
    options.binary_location = shutil.which("chromium")
    # Containers let root have no sandbox, and little shared memory.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--force-color-profile=srgb", "--disable-gpu", "--disable-background-networking"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(service=Service(shutil.which("chromedriver")), options=options)


def train(delink, recipe, corpus, out, *sets, more=()):
    words = [delink, "train", recipe, "--out", out, "--threads", "1", *more]
    for key in (f"data.train={corpus}/train", "run.validate_every=5", "run.probe_every=2", *sets):
        words += ["--set", key]
    subprocess.run(words, check=True, capture_output=True)


def make_report(delink, folders, out):
    done = subprocess.run([delink, "report", *folders, "--out", out], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == out, done.stdout
    return done.stderr


def resize(driver, width):
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
        "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600})


def open_page(driver, path, width):
    resize(driver, width)
    driver.get("file://" + path)


def check_quiet(driver, path):
    """Nothing was asked for but the page itself, and the console is empty."""
    said = [entry["message"] for entry in driver.get_log("browser")]
    assert said == [], said
    asked = set()
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    asked = {url for url in asked if not url.startswith("data:")}
    assert asked <= {"file://" + path}, asked
    loaded = driver.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith("data:") for name in loaded), loaded


# How many pixels of each canvas are drawn, and how many have the colour of a line.
COUNT_PIXELS = """
const paint = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
const parse = (color) => {
  paint.clearRect(0, 0, 1, 1);
  paint.fillStyle = color;
  paint.fillRect(0, 0, 1, 1);
  return paint.getImageData(0, 0, 1, 1).data;
};
return [...document.querySelectorAll('canvas')].filter((canvas) => Chart.getChart(canvas)).map((canvas) => {
  // A copy: reading the canvas itself makes the browser complain of us.
  const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height });
  const context = copy.getContext('2d', { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const { datasets } = Chart.getChart(canvas).data;
  const colors = [...new Set(datasets.map((dataset) => dataset.borderColor))].map(parse).filter((c) => c[3] === 255);
  const alike = (i, c) => Math.abs(data[i] - c[0]) + Math.abs(data[i + 1] - c[1]) + Math.abs(data[i + 2] - c[2]) < 30;
  let drawn = 0, colored = 0;
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 0) ++drawn;
    if (data[i + 3] > 200 && colors.some((color) => alike(i, color))) ++colored;
  }
  return [canvas.getAttribute('aria-label'), drawn, colored];
});
"""


def check_drawn(driver, at_least):
    counts = driver.execute_script(COUNT_PIXELS)
    assert len(counts) >= at_least, counts
    for label, drawn, colored in counts:
        assert drawn > 2000 and colored > 40, f"{label}: {drawn} pixels, {colored} of a line"


def check_width(driver, width):
    inner, scroll = driver.execute_script("return [innerWidth, document.documentElement.scrollWidth]")
    assert inner == width and scroll <= width, f"the page is {scroll} pixels wide of {inner}"


def canvas_of(driver, title):
    return driver.execute_script("""
        for (const figure of document.querySelectorAll('figure')) {
          if (figure.querySelector('h3').textContent === arguments[0]) {
            return figure.querySelector('canvas');
          }
        }""", title)


def hover(driver, title, part=0.5):
    """What the tooltip says with the pointer at a part of the plot's width."""
    canvas = canvas_of(driver, title)
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    area = driver.execute_script("""
        const { left, right, top, bottom } = Chart.getChart(arguments[0]).chartArea;
        return [left, right, top, bottom];""", canvas)
    x = area[0] + part * (area[1] - area[0]) - canvas.size["width"] / 2
    y = (area[2] + area[3]) / 2 - canvas.size["height"] / 2
    ActionChains(driver).move_to_element_with_offset(canvas, round(x), round(y)).perform()
    end = time.monotonic() + 5
    while True:
        tip = driver.execute_script("""
            const { tooltip } = Chart.getChart(arguments[0]);
            return [tooltip.opacity, (tooltip.title || []).join(), (tooltip.body || []).flatMap((b) => b.lines)];
            """, canvas)
        if tip[0] == 1 or time.monotonic() > end:
            break
        time.sleep(0.05)
    assert tip[0] == 1, f"no tooltip over {title}: {tip}"
    return tip[1], tip[2]


def press(driver, host, text):
    for button in driver.find_elements(By.CSS_SELECTOR, f"#{host} button"):
        if button.text == text:
            button.click()
            return
    raise AssertionError(f"no button {text} in #{host}")


def set_smoothing(driver, value):
    driver.execute_script("""
        const slider = document.getElementById('smooth');
        slider.value = arguments[0];
        slider.dispatchEvent(new Event('input'));""", value)


def scale_of(driver, title, axis):
    return driver.execute_script(
        "const s = Chart.getChart(arguments[0]).scales[arguments[1]]; return [s.type, s.min, s.max, s.options.title.text];",
        canvas_of(driver, title), axis)


def mean_around(values, step, half_life):
    weights = {at: 2 ** (-abs(at - step) / half_life) for at in values}
    return sum(weights[at] * values[at] for at in values) / sum(weights.values())


def check_hover(driver, folders):
    """The values under the pointer are those of the metrics."""
    press(driver, "axis", "Steps")
    set_smoothing(driver, 0)
    title, lines = hover(driver, "Training loss")
    assert title.startswith("step "), title
    step = int(title.split()[1])
    assert abs(step - STEPS / 2) <= 1, title
    assert len(lines) == len(folders), lines
    for line, folder in zip(lines, folders):
        value = line.split()[-1]
        assert value == f"{runs.losses(folder)[step]:.4f}", f"{line}, not {runs.losses(folder)[step]}"
    set_smoothing(driver, 2)  # a half-life of two steps
    title, lines = hover(driver, "Training loss", 0.6)
    for line, folder in zip(lines, folders, strict=True):
        words = line.replace(ODD, "").split()
        assert words[-1] == f"{runs.losses(folder)[int(title.split()[1])]:.4f})", line
        mean = mean_around(runs.losses(folder), int(title.split()[1]), 2)
        assert words[-4] == f"{mean:.4f}", f"{line}, not {mean}"
    for plot in ("Validation loss", "Gradient norm", "Learning rate", "Speed", "Matmul peak reached",
                 "Agreement of gradients"):
        _, lines = hover(driver, plot, 0.3)
        assert len(lines) >= 1, plot


def check_flops(driver, folders):
    """Curves end where what their stages take a token says, a resume or not."""
    press(driver, "axis", "FLOPs")
    ends = driver.execute_script("""
        const { datasets } = Chart.getChart(arguments[0]).data;
        return datasets.filter(({ silent }) => !silent).map(({ data }) => data[data.length - 1].x);
        """, canvas_of(driver, "Training loss"))
    for end, folder in zip(ends, folders, strict=True):
        per_token = tokens = flops = 0
        for row in runs.rows(folder):
            per_token = row.get("flops_per_token", per_token)
            if "loss" in row:
                flops += (row["tokens"] - tokens) * per_token
                tokens = row["tokens"]
        assert abs(end - flops) < 1e-6 * flops, (end, flops)
    assert ends[0] < 0.9 * ends[1], ends  # of one block, until it grows
    assert scale_of(driver, "Training loss", "x")[2:] == [ends[1], "FLOPs computed"]
    title, lines = hover(driver, "Training loss")
    assert title.endswith("FLOP") and len(lines) == 2, (title, lines)


def check_axes(driver, folders):
    press(driver, "axis", "Tokens")
    kind, _, most, text = scale_of(driver, "Training loss", "x")
    tokens = max(row["tokens"] for row in runs.rows(folders[0]) if "loss" in row)
    assert (kind, most, text) == ("linear", tokens, "tokens"), (kind, most, text)
    check_flops(driver, folders)
    press(driver, "axis", "Time")
    assert scale_of(driver, "Validation loss", "x")[3].startswith("time, ")
    for box, plot, axis in (("log-x", "Speed", "x"), ("log-y", "Training loss", "y")):
        driver.find_element(By.ID, box).click()
        assert scale_of(driver, plot, axis)[0] == "logarithmic", plot
        check_drawn(driver, 6)
        driver.find_element(By.ID, box).click()
        assert scale_of(driver, plot, axis)[0] == "linear", plot
    press(driver, "axis", "Tokens")


def check_marks(driver):
    """Lines where a stage begins, and where a run was resumed."""
    canvas = canvas_of(driver, "Training loss")
    marks = driver.execute_script(
        "return marksOf(Chart.getChart(arguments[0])).map((m) => [m.text, m.dash, m.pixel])", canvas)
    resumed = [mark for mark in marks if mark[0] == "a: resumed"]
    stages = [mark for mark in marks if mark[0].endswith(": real")]
    assert len(marks) == 3 and len(resumed) == 1 and len(stages) == 2, marks
    assert resumed[0][1] != stages[0][1] and resumed[0][2] > stages[0][2], marks


def check_choice_of_runs(driver):
    button = driver.find_elements(By.CSS_SELECTOR, "#runs button")[0]
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert len(hover(driver, "Training loss")[1]) == 1
    button.click()
    assert len(hover(driver, "Training loss")[1]) == 2


def check_text(driver):
    assert driver.find_elements(By.TAG_NAME, "img") == []
    assert ODD in driver.find_element(By.TAG_NAME, "h1").text
    text = driver.find_element(By.TAG_NAME, "main").text
    for word in ("finished", "optimizer.lr", "0.002", "optimizer state", "unchanged", "Processor", "1 rank",
                 "1 (pseudo) \u2192 4 (real)", f"--until-step {STOP}", "--resume"):
        assert word in text, f"'{word}' is not in the page"


def check_colors(driver):
    background = "return getComputedStyle(document.body).backgroundColor"
    light = driver.execute_script(background)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
        "features": [{"name": "prefers-color-scheme", "value": "dark"}]})
    time.sleep(0.3)
    assert driver.execute_script(background) != light
    check_drawn(driver, 6)


def take_screenshots(driver, folder):
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {
                "features": [{"name": "prefers-color-scheme", "value": scheme}]})
            resize(driver, width)
            time.sleep(0.5)
            height = driver.execute_script("scrollTo(0, 0); return document.documentElement.scrollHeight")
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
                "width": width, "height": height, "deviceScaleFactor": 1, "mobile": False})
            time.sleep(0.5)
            driver.save_screenshot(os.path.join(folder, f"report-{width}-{scheme}.png"))


def check_broken(driver, delink, straight, folder):
    """What a crash leaves is shown as far as it goes."""
    torn, empty = os.path.join(folder, "torn"), os.path.join(folder, "empty")
    os.makedirs(empty)
    os.makedirs(torn)
    with open(os.path.join(straight, "metrics.jsonl"), encoding="utf-8") as file:
        text = file.read()
    with open(os.path.join(torn, "metrics.jsonl"), "w", encoding="utf-8") as file:
        file.write(text[:len(text) // 2])
    page = os.path.join(folder, "broken.html")
    said = make_report(delink, [torn, empty], page)
    open_page(driver, page, 1280)
    shown = driver.find_element(By.ID, "notes").text
    for words in ("is incomplete", "no recipe.toml", "the folder is empty"):
        assert words in said, said
        assert words in shown, shown
    check_drawn(driver, 3)
    check_quiet(driver, page)
    page = os.path.join(folder, "nothing.html")
    make_report(delink, [empty], page)
    open_page(driver, page, 390)
    assert "nothing to plot" in driver.find_element(By.TAG_NAME, "main").text
    check_width(driver, 390)
    check_quiet(driver, page)


def check_experts(driver, delink, dense, corpus, folder):
    """Loads of experts by layer, at a step that can be chosen; nothing of a model without experts."""
    assert not driver.find_element(By.ID, "routing").is_displayed()
    out, page = os.path.join(folder, "experts"), os.path.join(folder, "experts.html")
    recipe = os.path.join(os.path.dirname(os.path.abspath(dense)), "tiny_moe.toml")
    train(delink, recipe, corpus, out)
    routing = {row["step"]: row["routing"] for row in runs.rows(out) if "routing" in row}
    assert len(routing) == STEPS, routing.keys()
    make_report(delink, [out], page)
    for width in WIDTHS:
        open_page(driver, page, width)
        check_drawn(driver, 7)
        check_width(driver, width)
    open_page(driver, page, WIDTHS[0])
    section = driver.find_element(By.ID, "routing")
    assert section.is_displayed()

    def largest(step):
        loads = [[count * len(layer) / sum(layer) for count in layer] for layer in routing[step]["choices"]]
        load, row = max((max(layer), -row) for row, layer in enumerate(loads))
        expert = loads[-row].index(load)
        return f"Largest: {routing[step]['layers'][-row]}, expert {expert}: {float(f'{load:.3g}'):g} times the mean"

    slider = section.find_element(By.CSS_SELECTOR, "input[type=range]")
    for index, shown in ((None, f"{STEPS}, real"), (4, "5, pseudo")):
        if index is not None:
            driver.execute_script("""
                arguments[0].value = arguments[1];
                arguments[0].dispatchEvent(new Event('input'));""", slider, index)
        assert section.find_element(By.TAG_NAME, "output").text == shown
        under = section.find_element(By.CSS_SELECTOR, ".heat > p").text
        assert under == largest(int(shown.split(",")[0])), under
    press(driver, "axis", "Steps")
    menu = section.find_element(By.TAG_NAME, "select")
    for option, name in ((0, "max_violation"), (2, "entropy"), (3, "aux_loss"), (4, "z")):
        driver.execute_script("""
            arguments[0].value = arguments[1];
            arguments[0].dispatchEvent(new Event('change'));""", menu, option)
        title, lines = hover(driver, "Balance of experts")
        found = routing[int(title.split()[1])]
        wanted = [f"{layer}  {float(f'{value:.3g}'):g}" for layer, value in zip(found["layers"], found[name])]
        assert lines == wanted, (name, lines, wanted)
    marks = driver.execute_script("return marksOf(Chart.getChart(arguments[0])).map((m) => m.text)",
                                  canvas_of(driver, "Balance of experts"))
    assert marks == ["real"], marks
    colors = """
        const canvas = document.querySelector('.heat canvas');
        const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height });
        const context = copy.getContext('2d', { willReadFrequently: true });
        context.drawImage(canvas, 0, 0);
        const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
        const seen = new Set();
        for (let i = 0; i < data.length; i += 4) {
          if (data[i + 3] > 0) seen.add(data.slice(i, i + 4).join());
        }
        return seen.size;"""
    assert driver.execute_script(colors) > 8, "the map has no colours"
    check_quiet(driver, page)
    # As with more than 256 experts.
    path = os.path.join(out, "metrics.jsonl")
    rows = runs.rows(out)
    for row in rows:
        row.get("routing", {}).pop("choices", None)
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    make_report(delink, [out], page)
    open_page(driver, page, WIDTHS[0])
    assert not driver.find_element(By.CSS_SELECTOR, ".heat").is_displayed()
    press(driver, "axis", "Steps")
    title, lines = hover(driver, "Loads of experts")
    found = routing[int(title.split()[1])]
    assert lines == [f"{layer}  {float(f'{load[-1]:.3g}'):g}" for layer, load in zip(found["layers"], found["load"])]
    check_quiet(driver, page)


def cells(driver):
    """The rows of the sweep's table."""
    return driver.execute_script("""
        return [...document.querySelectorAll('#sweeps tbody tr')].map(
            (row) => [...row.children].map((cell) => cell.textContent));""")


def check_sweep(driver, delink, recipe, corpus, folder):
    """Means over seeds, sorted by a click; the runs behind them as curves."""
    spec, out = os.path.join(folder, "sweep.toml"), os.path.join(folder, "swept")
    with open(spec, "w", encoding="utf-8") as file:
        file.write(f"""
            recipe = "{os.path.abspath(recipe)}"
            seeds = [1, 2, 3]
            set = ["schedule.steps=4", "stage.0.until.steps=2", "run.checkpoint_every=0"]
            [[axis]]
            key = "optimizer.lr"
            values = [1e-2, 1e-3]
            [[axis]]
            name = "corpus"
            key = "data.train"
            values = ["{corpus}/train", "nowhere"]
            labels = ["here", "nowhere"]
            [[skip]]
            where = {{ corpus = "nowhere", lr = 1e-2 }}""")
    done = subprocess.run([delink, "sweep", spec, "--out", out], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    page = os.path.join(folder, "sweep.html")
    assert make_report(delink, [out], page) == ""
    open_page(driver, page, 1280)
    check_drawn(driver, 6)
    heads = [head.text.split()[0] for head in driver.find_elements(By.CSS_SELECTOR, "#sweeps thead th")]
    assert heads[:3] == ["lr", "corpus", "runs"], heads
    column = [head.text for head in driver.find_elements(By.CSS_SELECTOR, "#sweeps thead th")].index("validation loss")
    rows = cells(driver)
    assert [row[:3] for row in rows] == [["0.01", "here", "3"], ["0.001", "here", "3"],
                                         ["0.001", "nowhere", "0 of 3"]], rows
    for row in rows[:2]:
        found = []
        for seed in (1, 2, 3):
            metrics = runs.rows(os.path.join(out, "runs", f"lr={row[0]}_corpus=here_seed={seed}"))
            found.append([line["validation_loss"] for line in metrics if "validation_loss" in line][-1])
        mean = sum(found) / 3
        spread = (sum((value - mean) ** 2 for value in found) / 2) ** 0.5
        assert row[column] == f"{mean:.4f} \u00b1 {spread:.4f}", (row[column], mean, spread)
    assert "failed: error: " in driver.find_element(By.ID, "sweeps").text
    for order in ("ascending", "descending"):
        driver.find_elements(By.CSS_SELECTOR, "#sweeps thead button")[column].click()
        head = driver.find_elements(By.CSS_SELECTOR, "#sweeps thead th")[column]
        assert head.get_attribute("aria-sort") == order
        losses_shown = [row[column] for row in cells(driver)]
        known = [float(text.split()[0]) for text in losses_shown[:2]]
        assert known == sorted(known, reverse=order == "descending") and losses_shown[2] == "\u2013", losses_shown
    assert len(driver.find_elements(By.CSS_SELECTOR, "#runs button")) == 2 + 6
    press(driver, "runs", "none")
    assert driver.execute_script("return shownRuns().length") == 0
    driver.find_elements(By.CSS_SELECTOR, "#runs button")[3].click()
    assert driver.execute_script("return shownRuns().map((run) => run.index)") == [1]
    press(driver, "runs", "all")
    assert driver.execute_script("return shownRuns().length") == 6
    check_quiet(driver, page)
    open_page(driver, page, 390)
    check_width(driver, 390)
    check_quiet(driver, page)
    # A measure that one of three runs has not.
    with open(os.path.join(out, "sweep.json"), encoding="utf-8") as file:
        table = json.load(file)
    measure = table["measures"].index("validation_loss")
    table["rows"][0]["measures"][measure] = None
    with open(os.path.join(out, "sweep.json"), "w", encoding="utf-8") as file:
        json.dump(table, file)
    make_report(delink, [out], page)
    open_page(driver, page, 1280)
    assert [row[column].endswith(" (2 of 3)") for row in cells(driver)] == [True, False, False], cells(driver)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("delink")
    parser.add_argument("recipe")
    parser.add_argument("--screenshots")
    options = parser.parse_args()
    if not shutil.which("chromium") or not shutil.which("chromedriver"):
        print("SKIPPED: there is no chromium; install chromium and chromium-driver")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        corpus = runs.build_corpus(options.delink, folder)
        folders = [os.path.join(folder, name) for name in ("a", ODD)]
        train(options.delink, options.recipe, corpus, folders[0], GROWS, more=("--until-step", str(STOP)))
        train(options.delink, options.recipe, corpus, folders[0], GROWS, more=("--resume",))
        train(options.delink, options.recipe, corpus, folders[1], "optimizer.lr=0.002")
        page = os.path.join(folder, "report.html")
        assert make_report(options.delink, folders, page) == ""
        driver = browser()
        try:
            for width in WIDTHS:
                open_page(driver, page, width)
                check_drawn(driver, 6)
                check_width(driver, width)
                check_text(driver)
                if width == WIDTHS[0]:
                    check_hover(driver, folders)
                    check_axes(driver, folders)
                    check_marks(driver)
                    check_choice_of_runs(driver)
                check_quiet(driver, page)
            check_colors(driver)
            check_quiet(driver, page)
            if options.screenshots:
                take_screenshots(driver, options.screenshots)
            check_experts(driver, options.delink, options.recipe, corpus, folder)
            if options.screenshots:
                os.makedirs(os.path.join(options.screenshots, "experts"), exist_ok=True)
                take_screenshots(driver, os.path.join(options.screenshots, "experts"))
            check_broken(driver, options.delink, folders[0], folder)
            check_sweep(driver, options.delink, options.recipe, corpus, folder)
        finally:
            driver.quit()
    print("ok")


if __name__ == "__main__":
    main()
