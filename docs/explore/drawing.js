/** Canvases that are sharp on every screen, colours that follow the page's scheme, and charts. */

/** The font of texts on canvases. */
export const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif';

/** A canvas as wide as its place in the page and as high as `height(width)`. */
export class Surface {
  constructor(canvas, height, redraw) {
    Object.assign(this, { canvas, heightOf: height, context: canvas.getContext("2d"), width: 0, height: 0 });
    new ResizeObserver(() => {
      this.fit();
      redraw();
    }).observe(canvas);
    this.fit();
  }

  fit() {
    this.width = this.canvas.clientWidth || 300;
    this.height = Math.round(this.heightOf(this.width));
    this.canvas.style.height = `${this.height}px`;
    const scale = Math.min(devicePixelRatio || 1, 2);
    const [width, height] = [Math.round(this.width * scale), Math.round(this.height * scale)];
    if (this.canvas.width !== width) this.canvas.width = width;
    if (this.canvas.height !== height) this.canvas.height = height;
    this.scale = scale;
  }

  /** An empty canvas, measured in CSS pixels. */
  clear() {
    this.context.setTransform(this.scale, 0, 0, this.scale, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.context.font = FONT;
    this.context.textBaseline = "middle";
    return this.context;
  }

  /** Where a pointer is, in CSS pixels of the canvas. */
  pointer(event) {
    const box = this.canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  }
}

const inks = new Map();

/** A colour of the style sheet by its name. */
export function ink(name) {
  if (!inks.has(name)) inks.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  return inks.get(name);
}

/** Forget colours when the scheme changes, then call `redraw`. */
export function followScheme(redraw) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    inks.clear();
    redraw();
  });
}

/** Red, green and blue of a weight, from the most negative (−limit) over zero to the most positive. */
export function weightColour(value, limit) {
  const part = Math.min(Math.abs(value) / limit, 1) || 0;
  const [end, zero] = [ink(value < 0 ? "low" : "high"), ink("zero")].map((text) => text.split(" ").map(Number));
  return zero.map((from, i) => from + part * (end[i] - from));
}

/** Draws filters of k × k weights, many in a frame: colours come from a table made once per scheme. */
export class FilterPainter {
  constructor(limit) {
    Object.assign(this, { limit, canvas: document.createElement("canvas"), table: null, scheme: "" });
  }

  paint(context, weight, k, boxes) {
    const scheme = ink("low") + ink("zero") + ink("high");
    if (scheme !== this.scheme) {
      this.scheme = scheme;
      this.table = Array.from({ length: 513 }, (_, i) => weightColour(((i - 256) / 256) * this.limit, this.limit));
    }
    const filters = weight.length / (k * k);
    if (this.canvas.width !== k || this.canvas.height !== k * filters) {
      Object.assign(this.canvas, { width: k, height: k * filters });
      this.image = this.canvas.getContext("2d").createImageData(k, k * filters);
    }
    const { data } = this.image;
    for (let n = 0; n < weight.length; n++) {
      const level = Math.round(256 + (256 * weight[n]) / this.limit);
      const [red, green, blue] = this.table[Math.min(Math.max(level, 0), 512) || 0];
      data[4 * n] = red;
      data[4 * n + 1] = green;
      data[4 * n + 2] = blue;
      data[4 * n + 3] = 255;
    }
    this.canvas.getContext("2d").putImageData(this.image, 0, 0);
    context.imageSmoothingEnabled = false;
    boxes.forEach(([x, y, size], i) => context.drawImage(this.canvas, 0, i * k, k, k, x, y, size, size));
  }
}

/** Axes of a plot: maps numbers to places, draws the frame and lines. */
export class Plot {
  constructor(context, { left, top, width, height, x, y }) {
    Object.assign(this, { context, left, top, width, height, xRange: x, yRange: y });
  }

  x(value) {
    return this.left + ((value - this.xRange[0]) / (this.xRange[1] - this.xRange[0])) * this.width;
  }

  y(value) {
    const place = this.top + ((this.yRange[1] - value) / (this.yRange[1] - this.yRange[0])) * this.height;
    return Math.min(Math.max(place, this.top), this.top + this.height);
  }

  /** Horizontal lines with their numbers on the left. */
  horizontals(values, label = (value) => String(value).replace("-", "−")) {
    const { context } = this;
    context.lineWidth = 1;
    context.textAlign = "right";
    for (const value of values) {
      context.strokeStyle = ink("line");
      context.beginPath();
      context.moveTo(this.left, this.y(value));
      context.lineTo(this.left + this.width, this.y(value));
      context.stroke();
      context.fillStyle = ink("faint");
      context.fillText(label(value), this.left - 6, this.y(value));
    }
  }

  /** Numbers below the plot. */
  bottomLabels(values, label = String) {
    const { context } = this;
    context.fillStyle = ink("faint");
    values.forEach((value, i) => {
      context.textAlign = i === 0 ? "left" : i === values.length - 1 ? "right" : "center";
      context.fillText(label(value), this.x(value), this.top + this.height + 11);
    });
  }

  /** A line through points; a y that is not a number breaks it. */
  line(points, colour, { width = 2, dash = [] } = {}) {
    const { context } = this;
    context.strokeStyle = colour;
    context.lineWidth = width;
    context.lineJoin = "round";
    context.setLineDash(dash);
    context.beginPath();
    let drawing = false;
    for (const [x, y] of points) {
      if (Number.isNaN(y)) drawing = false;
      else if (drawing) context.lineTo(this.x(x), this.y(y));
      else {
        context.moveTo(this.x(x), this.y(y));
        drawing = true;
      }
    }
    context.stroke();
    context.setLineDash([]);
  }

  /** A text with the paper's colour behind it, so that lines do not cross it. */
  label(text, x, y, colour, align = "left") {
    const { context } = this;
    context.textAlign = align;
    context.lineJoin = "round";
    context.lineWidth = 4;
    context.strokeStyle = ink("paper");
    context.strokeText(text, x, y);
    context.fillStyle = colour;
    context.fillText(text, x, y);
  }
}

/** Round numbers, at most `count`, between two. */
export function ticks(low, high, count) {
  const rough = (high - low) / count;
  const step = [1, 2, 5, 10].map((m) => m * 10 ** Math.floor(Math.log10(rough))).find((s) => s >= rough);
  const values = [];
  for (let n = Math.ceil(low / step); n * step <= high; n++) values.push(Number((n * step).toFixed(6)));
  return values;
}
