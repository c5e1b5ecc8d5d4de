/** The page: its four parts, one clock for all of them, and the workers, which run this same script. */
import { followScheme } from "./drawing.js";
import { Settings } from "./settings.js";
import { CircuitView } from "./view-circuit.js";
import { FieldView, trainAndReport } from "./view-field.js";
import { GridsView } from "./view-grids.js";
import { LayerView } from "./view-layer.js";

let ownAddress = null;

/** Built pages carry the script within, so that they also work from the disk, where a browser loads no module. */
function startWorker() {
  const script = document.querySelector("script[type=module]");
  if (script.src) return new Worker(script.src, { type: "module" });
  ownAddress ??= URL.createObjectURL(new Blob([script.textContent], { type: "text/javascript" }));
  return new Worker(ownAddress);
}

/** Before each frame, moves the parts that are being looked at and draws what has changed. */
class Clock {
  constructor() {
    this.views = new Map();
    this.requested = false;
    this.watcher = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.views.get(target).watched = isIntersecting;
      this.start();
    }, { rootMargin: "0px 0px -35% 0px" }); // a part that only peeps in from below waits
  }

  add(section, view) {
    this.views.set(section, view);
    this.watcher.observe(section);
  }

  start() {
    if (this.requested) return;
    this.requested = true;
    requestAnimationFrame((now) => this.frame(now));
  }

  frame(now) {
    this.requested = false;
    const views = [...this.views.values()];
    views.filter((view) => view.watched && view.playing).forEach((view) => view.move(now));
    for (const view of views.filter((each) => each.dirty)) {
      view.dirty = false;
      view.draw();
    }
    if (views.some((view) => view.watched && view.playing)) this.start();
  }
}

function startPage() {
  const find = (id) => document.getElementById(id);
  const settings = new Settings();
  const clock = new Clock();
  const shared = { find, changed: () => clock.start(), startWorker };
  const views = {
    layer: new LayerView(settings, shared),
    circuit: new CircuitView(settings, shared),
    grids: new GridsView(settings, shared),
    field: new FieldView(settings, shared),
  };
  for (const [id, view] of Object.entries(views)) clock.add(find(id), view);
  settings.read();
  followScheme(() => Object.values(views).forEach((view) => view.redraw()));
  followLinks(settings, find);
  if (!matchMedia("(prefers-reduced-motion: reduce)").matches) {
    views.layer.play(true);
    views.circuit.play(true);
  }
}

/** Links to a section scroll to it and keep the settings in the address. */
function followLinks(settings, find) {
  const go = () => { if (settings.section) find(settings.section)?.scrollIntoView(); };
  for (const link of document.querySelectorAll(".top nav a")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      settings.section = link.hash.slice(1);
      settings.writeNow();
      go();
      find(settings.section).querySelector("button, input").focus({ preventScroll: true });
    });
  }
  addEventListener("hashchange", go);
  go();
}

if (globalThis.document) startPage();
else globalThis.onmessage = ({ data }) => trainAndReport(data, (message) => postMessage(message));
