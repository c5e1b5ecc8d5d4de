"""The page in a real browser: it loads, every control changes what it should, and the networks learn."""

import functools
import http.server
import re
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def address(site):
    """The page on the disk."""
    return (site / "explore/index.html").as_uri()


@pytest.fixture
def page(browser, address):
    """The page, where nothing moves unless told to."""
    browser.open(address, still=True)
    browser.wait_for("document.querySelector('#layer-snr').textContent")
    yield browser
    assert browser.errors == []


def text(page, selector):
    return page.evaluate(f"document.querySelector('{selector}').textContent")


def picture(page, canvas):
    """What a canvas shows, after the frame in which changes are drawn."""
    page.evaluate(f"document.getElementById('{canvas}').scrollIntoView({{ block: 'center' }})")
    after_frames(page, 3)
    return page.evaluate(f"document.getElementById('{canvas}').toDataURL()")


def after_frames(page, count):
    page.evaluate(f"""new Promise((done) => {{
        let left = {count};
        const frame = () => (left-- > 0 ? requestAnimationFrame(frame) : done());
        frame();
    }})""")


def slide(page, name, *keys):
    """Move a slider by keys, as a person would."""
    page.evaluate(f"document.querySelector('[data-state=\"{name}\"]').focus()")
    page.press(*keys)
    after_frames(page, 3)


def remembers(page, part):
    """Whether the address comes to contain this; it is written a moment after a change."""
    return page.wait_for(f"location.hash.split(/[#&]/).some((each) => each.startsWith('{part}'))")


def frames_per_second(page):
    return page.evaluate("""new Promise((done) => {
        const start = performance.now();
        let frames = 0;
        const frame = (now) => {
            frames++;
            if (now - start > 1000) done((1000 * frames) / (now - start));
            else requestAnimationFrame(frame);
        };
        requestAnimationFrame(frame);
    })""")


def test_it_loads_from_the_disk_without_an_error_and_no_request_leaves_it(browser, address):
    browser.open(address)
    after_frames(browser, 30)
    assert browser.errors == []
    assert [request for request in browser.requests if not request.startswith("data:")] == [address]


def test_its_sources_are_the_same_page_on_a_web_server_without_a_build(browser):
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=ROOT / "docs")
    handler.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        origin = f"http://127.0.0.1:{server.server_port}/"
        browser.open(f"{origin}explore/index.html", still=True)
        browser.click("#field-train")
        browser.wait_for("document.querySelector('.maps progress').value > 0")
        server.shutdown()
    assert browser.errors == []
    assert all(request.startswith(origin) for request in browser.requests)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_window(browser, address, width, dark, tmp_path):
    browser.open(address, width=width, dark=dark, still=True)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(18, 21, 29)" if dark else "rgb(253, 253, 251)"
    )
    browser.screenshot(tmp_path / "page.png")
    assert browser.errors == []


@pytest.mark.parametrize(
    ("name", "canvas"),
    [
        ("layer.k", "layer-filters"),
        ("layer.neurons", "layer-filters"),
        ("circuit.alpha", "circuit-rates"),
        ("circuit.alpha", "circuit-chart"),
        ("circuit.tau", "circuit-rates"),
        ("circuit.bias", "circuit-rates"),
        ("grids.k", "grids-input"),
        ("grids.k", "grids-neurons"),
        ("grids.stride", "grids-neurons"),
    ],
)
def test_a_slider_changes_its_picture_its_number_and_the_address(page, name, canvas):
    before, number = picture(page, canvas), f'[data-state="{name}"]'
    shown = page.evaluate(f"document.querySelector('{number}').parentElement.querySelector('output').value")
    slide(page, name, "ArrowRight")
    assert picture(page, canvas) != before
    assert page.evaluate(f"document.querySelector('{number}').parentElement.querySelector('output').value") != shown
    assert remembers(page, f"{name}=")


@pytest.mark.parametrize(("name", "floor"), [("layer.gamma", "layer-floor"), ("layer.sigma", "layer-noise-floor")])
def test_decay_and_noise_raise_their_floors(page, name, floor):
    before = float(text(page, f"#{floor}").replace("−", "-"))
    slide(page, name, "ArrowRight", "ArrowRight", "ArrowRight")
    assert float(text(page, f"#{floor}").replace("−", "-")) > before


@pytest.mark.parametrize("name", ["layer.rate", "layer.momentum", "layer.gamma", "layer.sigma"])
@pytest.mark.parametrize("rule", ["hebbian", "circuit"])
def test_a_night_goes_otherwise_with_other_settings(page, name, rule):
    if (name, rule) == ("layer.sigma", "circuit"):
        pytest.skip("the circuit has no noise")

    def night():
        page.click("#layer-restart")
        for _ in range(3):  # asleep, awake, asleep: ten steps each
            page.click("#layer-switch")
        after_frames(page, 3)
        return page.evaluate("document.querySelector('#layer-filters').toDataURL()")

    page.click(f'input[value="{rule}"]')
    before = night()
    assert night() == before
    slide(page, name, *["ArrowRight" if name in ("layer.sigma", "layer.gamma") else "ArrowLeft"] * 8)
    assert night() != before


def test_each_rule_sleeps_in_its_own_way(page):
    found = {}
    for rule in ("instant", "hebbian", "circuit"):
        page.click(f'input[value="{rule}"]')
        page.click("#layer-restart")
        page.click("#layer-switch")
        after_frames(page, 3)
        assert text(page, "#layer-phase") == "asleep"
        found[rule] = text(page, "#layer-snr")
        disabled = page.evaluate("[...document.querySelectorAll('#layer input:disabled')].map(i => i.dataset.state)")
        assert ("layer.sigma" in disabled) == (rule != "hebbian")
        assert ("layer.gamma" in disabled) == (rule == "instant")
    assert found["instant"] == "−∞"
    assert len(set(found.values())) == 3


def test_the_night_comes_down_to_the_floor_of_equation_5(page):
    page.click('[data-state="layer.alternate"]')
    page.click("#layer-switch")
    page.click("#layer-play")
    number = "parseFloat(document.querySelector('#{}').textContent.replace('−', '-'))"
    page.wait_for(f"{number.format('layer-snr')} < {number.format('layer-floor')} + 0.15")
    page.click("#layer-play")
    assert text(page, "#layer-play") == "Play"


def test_day_and_night_come_by_themselves_only_if_they_may(page):
    page.click("#layer-play")
    page.wait_for("document.querySelector('#layer-phase').textContent === 'asleep'")
    page.click('[data-state="layer.alternate"]')
    page.click("#layer-restart")
    after_frames(page, 100)  # of five steps each: a day has 400
    assert text(page, "#layer-phase") == "awake"
    assert remembers(page, "layer.alternate=0")


def test_weights_without_bound_are_said_and_mended_by_a_lower_rate(page):
    slide(page, "layer.rate", "End")
    slide(page, "layer.k", "End")
    page.click("#layer-switch")
    page.click("#layer-play")
    page.wait_for("document.querySelector('#layer-note').textContent.includes('lower learning rate')")
    slide(page, "layer.rate", "Home")
    after_frames(page, 3)
    assert text(page, "#layer-note") == ""


def test_a_larger_bias_leaves_fewer_rates_below_zero(page):
    picture(page, "circuit-rates")
    slide(page, "circuit.bias", "Home")
    without = int(text(page, "#circuit-negative"))
    slide(page, "circuit.bias", "End")
    assert int(text(page, "#circuit-negative")) < without


def test_the_bias_of_finite_inhibition_grows_and_it_stops_at_the_best_moment(page):
    page.click("#circuit-play")
    page.wait_for("parseFloat(document.querySelector('#circuit-bias').textContent) > 20")
    page.click('[data-state="circuit.stop"]')
    page.wait_for("document.querySelector('#circuit-play').textContent === 'Play'")
    after_frames(page, 3)
    presentations = text(page, "#circuit-presentations")
    assert text(page, "#circuit-best").endswith(f"after {presentations}")
    assert 1000 < int(presentations.replace(",", "")) < 4000
    page.click("#circuit-restart")
    after_frames(page, 3)
    assert text(page, "#circuit-presentations") == "0"


def test_a_click_or_an_arrow_chooses_a_neuron_and_says_with_whom_it_shares(page):
    page.click("#grids-neurons", 0.97, 0.93)
    assert remembers(page, "grids.neuron=159")
    after_frames(page, 3)
    assert "belongs to grid 1 and shares with 23 others" in text(page, "#grids-note")
    page.evaluate("document.querySelector('#grids-neurons').focus()")
    page.press("ArrowLeft")
    after_frames(page, 3)
    assert "belongs to grid 3 and shares with 19 others" in text(page, "#grids-note")
    assert remembers(page, "grids.neuron=158")


def test_input_grids_are_activated_one_after_another(page):
    for turn in range(1, 10):
        page.click("#grids-next")
        after_frames(page, 3)
        assert f"Input grid {turn} of 9 is active" in text(page, "#grids-note")
    page.click("#grids-next")
    after_frames(page, 3)
    assert "Input grid 1 of 9" in text(page, "#grids-note")
    page.click("#grids-play")
    page.wait_for("document.querySelector('#grids-note').textContent.includes('Input grid 3 of 9')")
    page.click("#grids-dark")
    after_frames(page, 3)
    assert "Input grid" not in text(page, "#grids-note")


def test_places_are_painted_by_pointer_keys_and_presets(page):
    page.click('[data-paint="none"]')
    after_frames(page, 3)
    assert "0 of 85" in text(page, "#field-note")
    page.click("#field-train")
    after_frames(page, 3)
    assert "Paint at least one place" in text(page, "#field-note")
    page.drag("#field-paint", *[((column + 0.5) / 17, 0.5) for column in range(4)])
    after_frames(page, 3)
    assert "4 of 85" in text(page, "#field-note")
    page.evaluate("document.querySelector('#field-paint').focus()")
    page.press("ArrowDown", " ", "ArrowRight", " ", "ArrowUp", "ArrowLeft", " ")
    after_frames(page, 3)
    assert "5 of 85" in text(page, "#field-note")
    for preset, places in [("left", 25), ("middle", 25), ("stripes", 10)]:
        page.click(f'[data-paint="{preset}"]')
        after_frames(page, 3)
        assert f"{places} of 85" in text(page, "#field-note")
    assert remembers(page, "field.places=")


def test_a_shared_address_shows_the_same_view(browser, address):
    shared = "#grids&layer.rule=circuit&layer.k=7&circuit.alpha=4&grids.k=4&grids.neuron=20&field.places=0-0-v-0-0"
    browser.open(address + shared, still=True)
    assert browser.evaluate("document.querySelector('[value=circuit]').checked")
    assert browser.evaluate("document.querySelector('[data-state=\"layer.k\"]').value") == "7"
    browser.wait_for("document.querySelector('#grids').getBoundingClientRect().top < 200")
    browser.wait_for("document.querySelector('#grids-note').textContent.startsWith('16 grids')")
    assert set(browser.evaluate("location.hash")[1:].split("&")) == set(shared[1:].split("&"))
    browser.click('nav a[href="#field"]')
    browser.wait_for("document.querySelector('#field-note').textContent.startsWith('5 of 85')")
    assert browser.evaluate("location.hash").startswith("#field&layer.")
    assert browser.errors == []


@pytest.mark.parametrize(
    "nonsense", ["#layer.k=x&layer.rule=none", "#field.places=zz&grids.lit=-4", "#no&such=1&layer.k=", "#%E0"]
)
def test_an_address_that_says_nonsense_is_no_error(browser, address, nonsense):
    browser.open(address + nonsense, still=True)
    browser.wait_for("document.querySelector('#layer-snr').textContent")
    assert browser.evaluate("document.querySelector('[data-state=\"layer.k\"]').value") == "5"
    assert browser.errors == []


def test_a_number_beyond_the_end_of_a_slider_is_taken_as_its_end(browser, address):
    browser.open(address + "#layer.k=99", still=True)
    browser.wait_for("document.querySelector('#layer-snr').textContent")
    assert browser.evaluate("document.querySelector('[data-state=\"layer.k\"]').value") == "9"
    assert browser.errors == []


def test_every_control_is_reached_by_the_tab_key(page):
    name = "(each) => each.id || each.dataset.state || each.dataset.paint || ''"
    wanted = page.evaluate(f"[...document.querySelectorAll('button, [tabindex], input')].map({name})")
    reached = set()
    for _ in range(70):
        page.press("Tab")
        reached.add(page.evaluate(f"({name})(document.activeElement)"))
    assert set(wanted) <= reached


def test_nothing_moves_by_itself_where_reduced_motion_is_asked_for(browser, address):
    browser.open(address, still=True)
    before = picture(browser, "layer-filters")
    after_frames(browser, 20)
    assert picture(browser, "layer-filters") == before
    browser.open(address)
    before = picture(browser, "layer-filters")
    after_frames(browser, 20)
    assert picture(browser, "layer-filters") != before


@pytest.mark.parametrize("rule", ["hebbian", "circuit"])
def test_a_hundred_neurons_of_nine_by_nine_move_at_half_the_rate_of_an_empty_page_or_more(browser, address, rule):
    """30 frames a second on a screen of 60; the best of up to three measurements, which other work can only lower."""
    ratios = []
    for _ in range(3):
        browser.open("data:text/html,nothing")
        empty = frames_per_second(browser)
        browser.open(f"{address}#layer.neurons=100&layer.k=9&layer.rule={rule}&layer.sigma=0.1")
        browser.click("#layer-switch")
        after_frames(browser, 10)
        ratios.append(frames_per_second(browser) / empty)
        assert text(browser, "#layer-phase") == "asleep"
        if ratios[-1] > 0.5:
            return
    pytest.fail(f"of the frames of an empty page: {ratios}")


def test_three_networks_learn_what_the_readme_shows(page):
    page.click("#field-train")
    page.wait_for("document.querySelector('#field-note').textContent.startsWith('Trained')", 240)
    after_frames(page, 3)
    accuracy = {}
    for kind in ("convolutional", "local", "sleeping"):
        label = page.evaluate(f"document.querySelector('figure[data-kind={kind}] canvas').getAttribute('aria-label')")
        accuracy[kind] = [int(number) for number in re.findall(r"\d+", label)]
        assert len(accuracy[kind]) == 17
    assert accuracy["convolutional"][12] > 90
    assert accuracy["local"][12] < 30
    assert accuracy["sleeping"][12] > 80
    assert max(accuracy["local"][8:]) < 30
    assert max(accuracy["sleeping"][6:11]) < 40
    assert min(accuracy["sleeping"][:5]) > 80
    further = page.evaluate(
        "[...document.querySelectorAll('#field-table td:nth-child(3)')].map((cell) => cell.textContent)"
    )
    assert int(further[0]) > 85 > 30 > int(further[1])
    assert int(further[2]) > 80
    page.click('[data-paint="middle"]')
    after_frames(page, 3)
    assert text(page, "#field-note") == "25 of 85 places painted."


CUT = "[...document.querySelectorAll('pre code')].filter((code) => code.scrollWidth > code.clientWidth + 1).length"


def test_every_page_of_the_site_fits_the_window_and_loads_nothing_from_elsewhere(browser, site):
    for path in sorted(site.rglob("*.html")):
        if path.name == "404.html":
            continue  # it has absolute addresses, for a server
        browser.open(path.as_uri(), width=1280, still=True)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 1280, path
        assert browser.evaluate(CUT) == 0, f"code is cut off on {path}"
        browser.resize(390)
        assert browser.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert browser.errors == [], path
        assert all(request.startswith((site.as_uri(), "data:")) for request in browser.requests), path


def test_search_finds_a_page_from_the_disk_without_asking_elsewhere(browser, site):
    browser.open((site / "index.html").as_uri(), still=True)
    browser.click(".md-search__input")
    browser.press(*"inhibitory")
    browser.wait_for("document.querySelectorAll('.md-search-result__item').length > 2")
    assert "circuit" in text(browser, ".md-search-result__list").lower()
    assert all(request.startswith((site.as_uri(), "data:")) for request in browser.requests)
