// The automaton of a small regular expression, as SVG: states in layers, left to right.
// Owns the layout. What the automaton is, the server says.

const NS = "http://www.w3.org/2000/svg";
const R = 15, GAP = 66, LONGEST = 14;

function make(name, attributes, text) {
  const made = document.createElementNS(NS, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/** Draw {states, edges, is_whole}; returns an <svg>. */
export function draw({ states, edges }) {
  const depth = new Array(states.length).fill(-1);
  depth[0] = 0;
  const queue = [0];
  while (queue.length) {
    const state = queue.shift();
    for (const edge of edges) {
      if (edge.from === state && depth[edge.to] < 0) {
        depth[edge.to] = depth[state] + 1;
        queue.push(edge.to);
      }
    }
  }
  const layers = [];
  depth.forEach((layer, state) => (layers[layer] ??= []).push(state));
  // Wide enough for the longest label between two layers.
  const widths = layers.map((_, layer) => Math.max(GAP, ...edges
    .filter(edge => depth[edge.from] === layer && depth[edge.to] === layer + 1)
    .map(edge => 2 * R + 18 + 7.2 * Math.min(edge.label.length, LONGEST))));
  const most = Math.max(...layers.map(layer => layer.length));
  const loops = edges.some(edge => edge.from === edge.to);
  const back = edges.some(edge => depth[edge.to] <= depth[edge.from] && edge.from !== edge.to);
  const tall = most * 72;
  const top = loops ? 40 : 14;
  const height = top + tall + (back ? 46 + 12 * layers.length : 14);
  const places = [];
  let x = 34;
  layers.forEach((layer, i) => {
    layer.forEach((state, j) => {
      places[state] = { x, y: top + tall / 2 + (j - (layer.length - 1) / 2) * 72 };
    });
    x += widths[i];
  });
  const width = x - widths.at(-1) + R + 22;
  const svg = make("svg", { class: "automaton", width, height, viewBox: `0 0 ${width} ${height}`,
    role: "img" });
  const listed = edges.map(edge => `${edge.from} to ${edge.to} by ${edge.label}`).join("; ");
  const ends = states.flatMap((state, i) => state.accepting ? [i] : []).join(", ");
  svg.append(make("title", {}, `States 0 to ${states.length - 1}; a match may end in ${ends}. ${listed}.`));
  const defs = make("defs", {});
  const marker = make("marker", { id: "arrow", viewBox: "0 0 8 8", refX: 7, refY: 4,
    markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" });
  marker.append(make("path", { d: "M0 0L8 4L0 8z", class: "arrow" }));
  defs.append(marker);
  svg.append(defs);
  const labels = [];
  const line = (d, label, at) => {
    svg.append(make("path", { d, class: "edge", "marker-end": "url(#arrow)" }));
    if (!label) return;
    const short = label.length > LONGEST ? `${label.slice(0, LONGEST - 1)}…` : label;
    const text = make("text", { x: at.x, y: at.y, class: "label" }, short);
    if (short !== label) text.append(make("title", {}, label));
    labels.push(text);
  };
  line(`M4 ${places[0].y}L${places[0].x - R - 1} ${places[0].y}`);
  for (const edge of edges) {
    const a = places[edge.from], b = places[edge.to];
    if (edge.from === edge.to) {
      line(`M${a.x - 7} ${a.y - R + 2}C${a.x - 20} ${a.y - R - 30} ${a.x + 20} ${a.y - R - 30} ${a.x + 7} ${a.y - R + 1}`,
        edge.label, { x: a.x, y: a.y - R - 24 });
      continue;
    }
    const layersApart = depth[edge.to] - depth[edge.from];
    if (layersApart === 1) {
      const angle = Math.atan2(b.y - a.y, b.x - a.x);
      const [dx, dy] = [R * Math.cos(angle), R * Math.sin(angle)];
      line(`M${a.x + dx} ${a.y + dy}L${b.x - dx} ${b.y - dy}`, edge.label,
        { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 - 5 });
      continue;
    }
    if (layersApart === 0) {  // beside what lies between: down on the right, up on the left
      const sign = b.y > a.y ? 1 : -1;
      const bow = R + 14 + Math.abs(b.y - a.y) / 6;
      line(`M${a.x + sign * 12} ${a.y + sign * 9}Q${a.x + sign * bow} ${(a.y + b.y) / 2} ${b.x + sign * 12} ${b.y - sign * 9}`,
        edge.label, { x: a.x + sign * (bow + 12) / 2, y: (a.y + b.y) / 2 + 4 });
      continue;
    }
    // Over or under what lies between.
    const down = layersApart < 0;
    const reach = 26 + 10 * Math.abs(layersApart);
    const side = down ? Math.max(a.y, b.y) + R + reach : Math.min(a.y, b.y) - R - reach;
    const sign = down ? 1 : -1;
    line(`M${a.x} ${a.y + sign * R}Q${(a.x + b.x) / 2} ${side} ${b.x} ${b.y + sign * (R + 1)}`,
      edge.label, { x: (a.x + b.x) / 2, y: (a.y + b.y) / 4 + side / 2 + 4 + sign * 6 });
  }
  states.forEach((state, i) => {
    const { x, y } = places[i];
    svg.append(make("circle", { cx: x, cy: y, r: R, class: "state" }));
    if (state.accepting) svg.append(make("circle", { cx: x, cy: y, r: R - 3.5, class: "ends" }));
    svg.append(make("text", { x, y: y + 4 }, String(i)));
  });
  svg.append(...labels);
  return svg;
}
