/**
 * What the controls say, and the address that remembers it: `#circuit&circuit.alpha=4&layer.k=7`, of which the first part
 * is a section and the others are whatever differs from the start.
 */
export class Settings {
  constructor(root = document) {
    this.controls = new Map();
    this.hidden = new Map();
    this.listeners = [];
    this.section = "";
    for (const input of root.querySelectorAll("[data-state]")) {
      const name = input.dataset.state;
      this.controls.set(name, [...(this.controls.get(name) ?? []), input]);
      input.addEventListener("input", () => this.changed(name));
    }
    this.starts = new Map([...this.controls.keys()].map((name) => [name, this.text(name)]));
    addEventListener("hashchange", () => this.read());
  }

  /** Remember something that has no control of its own; `valid` says which texts are understood. */
  remember(name, start, valid) {
    this.hidden.set(name, { text: start, valid });
    this.starts.set(name, start);
  }

  /** Call `listener(name)` when a setting changes whose name starts with `section.`. */
  listen(section, listener) {
    this.listeners.push([`${section}.`, listener]);
  }

  number(name) {
    const [input] = this.controls.get(name);
    return input.dataset.power ? Number(input.dataset.power) ** Number(input.value) : Number(input.value);
  }

  text(name) {
    if (this.hidden.has(name)) return this.hidden.get(name).text;
    const inputs = this.controls.get(name);
    if (inputs[0].type === "checkbox") return inputs[0].checked ? "1" : "0";
    return inputs[0].type === "radio" ? inputs.find((input) => input.checked).value : inputs[0].value;
  }

  set(name, text) {
    if (text === this.text(name)) return;
    if (this.hidden.has(name)) {
      if (!this.hidden.get(name).valid(text)) return;
      this.hidden.get(name).text = text;
    } else {
      const inputs = this.controls.get(name);
      if (inputs[0].type === "checkbox") inputs[0].checked = text === "1";
      else if (inputs[0].type === "radio") inputs.forEach((input) => { if (input.value === text) input.checked = true; });
      else if (text && Number.isFinite(Number(text))) inputs[0].value = text;
    }
    this.changed(name);
  }

  changed(name) {
    this.showValue(name);
    for (const [section, listener] of this.listeners) if (name.startsWith(section)) listener(name);
    this.write();
  }

  /** Write a slider's value beside its name. */
  showValue(name) {
    const input = this.controls.get(name)?.[0];
    const output = input?.parentElement.querySelector("output");
    if (output) output.value = short(this.number(name)) + (input.dataset.unit ?? "");
  }

  /** Take what the address says; a setting that it does not name is as at the start. */
  read() {
    clearTimeout(this.writing);
    this.writing = null;
    const parts = location.hash.slice(1).split("&").filter(Boolean);
    const given = new Map(parts.filter((part) => part.includes("=")).map((part) => part.split("=", 2)));
    this.section = parts.find((part) => !part.includes("=")) ?? "";
    for (const [name, start] of this.starts) this.set(name, given.get(name) ?? start);
    for (const name of this.controls.keys()) this.showValue(name);
  }

  /** Write the address soon: browsers allow only a few changes of it in a second, and a slider makes many. */
  write() {
    this.writing ??= setTimeout(() => this.writeNow(), 350);
  }

  writeNow() {
    clearTimeout(this.writing);
    this.writing = null;
    const changed = [...this.starts].filter(([name, start]) => this.text(name) !== start);
    const parts = changed.map(([name]) => `${name}=${this.text(name)}`);
    const hash = [this.section, ...parts].filter(Boolean).join("&");
    if (hash !== location.hash.slice(1)) history.replaceState(null, "", `#${hash}`);
  }
}

/** A number in as few characters as it needs. */
export function short(value) {
  if (value !== 0 && Math.abs(value) < 1e-3) return value.toExponential(0).replace("e-", "·10⁻").replace(/\d$/, superscript);
  return String(Number(value.toPrecision(2))).replace("-", "−");
}

const superscript = (digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit];
