"use strict";
// What each figure draws, and the table behind it. A figure is {title, look, height, points, chart(), head, rows(),
// key}: `look` says what to look for, `chart` is what Chart.js draws, `points` how many values there are.

const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs;
const several = runs.length > 1;
const view = { x: "step", log: false, hidden: new Set() };

// --- numbers and colours ---

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** With about four digits: what a reader can use. */
function number(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size > 0 && size < 1e-3) return value.toExponential(2);
  if (size >= 1e4) return Math.round(value).toLocaleString("en");
  return plain.format(value);
}
function tick(value) {
  const size = Math.abs(value);
  return size > 0 && size < 1e-3 ? value.toExponential() : size < 1e4 ? plain.format(value) : compact.format(value);
}
/** `value` in another unit; null, which is no value, stays null. */
const scaled = (value, scale) => value === null ? null : value * scale;
const percent = value => `${plain.format(Math.round(value * 1000) / 10)}%`;

/** A unit of time in which `seconds` is a handy number. */
function unitOf(seconds) {
  if (seconds < 1e-3) return { name: "µs", scale: 1e6 };
  if (seconds < 1) return { name: "ms", scale: 1e3 };
  if (seconds < 300) return { name: "s", scale: 1 };
  return seconds < 3 * 3600 ? { name: "min", scale: 1 / 60 } : { name: "h", scale: 1 / 3600 };
}
function duration(seconds) {
  if (!seconds) return "–";
  const unit = unitOf(seconds);
  return `${plain.format(Number((seconds * unit.scale).toPrecision(3)))} ${unit.name}`;
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const runColour = index => colour(`run${index % 6}`);
/** Runs beyond the sixth share a colour with another, and differ in their dashes. */
const runDash = index => [[], [8, 3], [2, 3], [10, 3, 2, 3]][Math.floor(index / 6) % 4];

// --- curves ---

const axes = {
  step: { title: "step", of: curves => curves.step, scale: () => ({ name: "", scale: 1 }) },
  samples: { title: "samples", of: curves => curves.samples, scale: () => ({ name: "", scale: 1 }) },
  seconds: { title: "training time", of: curves => curves.seconds, scale: unitOf },
};

function axisUnit() {
  const axis = axes[view.x];
  return axis.scale(Math.max(...runs.flatMap(run => axis.of(run.train).slice(-1)), 0));
}

function scaleOptions(title, more = {}) {
  return {
    title: { display: true, text: title, color: colour("soft") },
    grid: { color: colour("line") },
    ticks: { color: colour("soft"), maxRotation: 0, autoSkipPadding: 16, callback: tick },
    ...more,
  };
}

function chartOptions(x, y, more = {}) {
  return {
    animation: false,
    responsive: true,
    maintainAspectRatio: false,
    scales: { x, y },
    ...more,
    plugins: { legend: { display: false }, ...more.plugins },
  };
}

/** The steps that a point stands for. */
function stepsOf(curves, i) {
  const last = curves.step[i], first = i > 0 ? curves.step[i - 1] + 1 : Math.min(1, last);
  return first < last && curves.merged ? `${first}–${last}` : `${last}`;
}
for (const run of runs)
  for (const curves of [run.train, run.eval])
    curves.merged = Object.values(curves).some(column => column.least);

/** The lines of one column of a run: its mean and, if points stand for several values, the band that they fill. */
function linesOf(run, index, source, column, unit, scale) {
  const curves = run[source], values = curves[column], lines = [];
  if (!values) return lines;
  const x = axes[view.x].of(curves).map(value => scaled(value, unit.scale));
  const points = of => x.map((at, i) => ({ x: at, y: scaled(of[i], scale) })).filter(point => point.x !== null);
  const isEvaluation = source === "eval";
  const common = { run: index, hidden: view.hidden.has(index), parsing: false, pointRadius: 0, pointHitRadius: 0 };
  if (values.least) {
    const band = { ...common, band: true, borderWidth: 0, backgroundColor: `${runColour(index)}40` };
    lines.push({ ...band, data: points(values.least), fill: false });
    lines.push({ ...band, data: points(values.greatest), fill: "-1" });
  }
  lines.push({
    ...common, source, curves, values, scale,
    label: several ? run.name : isEvaluation ? "evaluation" : "training",
    data: points(values.mean), borderColor: runColour(index), backgroundColor: runColour(index),
    borderWidth: 1.75, borderDash: isEvaluation ? [5, 4] : runDash(index),
    pointRadius: values.mean.length < (isEvaluation ? 60 : 2) ? 3 : 0,
  });
  if (values.best !== undefined && x[values.best] !== null)
    lines.push({
      ...common, source, curves, values, scale, best: true, label: several ? `best of ${run.name}` : "best",
      data: [{ x: x[values.best], y: scaled(values.mean[values.best], scale) }], showLine: false, pointRadius: 7, pointHitRadius: 7,
      pointStyle: "rectRot", borderColor: colour("ink"), backgroundColor: runColour(index), borderWidth: 1.5, order: -1,
    });
  return lines;
}

/** Which point of the curve an item of a tooltip shows. */
const pointOf = item => item.dataset.best ? item.dataset.values.best : item.dataIndex;

function curveLabel(item) {
  const { label, source, values, scale } = item.dataset, i = pointOf(item);
  const range = values.least ? ` (${number(scaled(values.least[i], scale))} to ${number(scaled(values.greatest[i], scale))})` : "";
  return `${label}${several && source === "eval" ? ", evaluation" : ""}: ${number(scaled(values.mean[i], scale))}${range}`;
}

/** Where an axis may end so that a few peaks, such as the first step, do not flatten the rest; undefined if it need not. */
function endOfAxis(columns) {
  const values = runs.flatMap(run => columns.flatMap(([source, column]) => {
    const values = run[source][column];
    return values ? (values.greatest ?? values.mean).filter(value => value !== null) : [];
  })).sort((a, b) => a - b);
  const usual = values[Math.floor(0.97 * values.length)];
  return values.length > 20 && values[values.length - 1] > 4 * usual ? 2 * usual : undefined;
}

/** A figure of curves over the steps; undefined if no run has values. `columns` are pairs like ["train", "loss"]. */
function curveFigure(title, look, unitName, columns, more = {}) {
  const { scale = 1 } = more;
  const there = columns.filter(([source, column]) => runs.some(run => run[source][column]));
  if (there.length === 0) return undefined;
  const each = use => runs.flatMap((run, index) => there.flatMap(([source, column]) => use(run, index, source, column)));
  const rowsOf = (run, index, source, column) => {
    const curves = run[source], values = curves[column];
    if (!values) return [];
    return values.mean.map((mean, i) => [
      ...(several ? [run.name] : []), ...(there.length > 1 ? [source === "eval" ? "evaluation" : "training"] : []),
      stepsOf(curves, i), `${number(scaled(mean, scale))}${i === values.best ? " (best)" : ""}`,
      ...(values.least ? [number(scaled(values.least[i], scale)), number(scaled(values.greatest[i], scale))] : []),
    ]);
  };
  const usualEnd = more.cut ? endOfAxis(there) : undefined;
  const end = usualEnd && Number((usualEnd * scale).toPrecision(2));
  return {
    title, look: end ? `${look} Peaks above ${number(end)} are cut off.` : look, height: 280,
    points: each((run, index, source, column) => (run[source][column]?.mean ?? []).filter(v => v !== null)).length,
    head: [...(several ? ["run"] : []), ...(there.length > 1 ? ["of"] : []), "step", "#mean", "#least", "#greatest"],
    rows: () => each(rowsOf),
    chart: () => {
      const unit = axisUnit(), x = axes[view.x], logarithmic = view.log && more.log;
      return {
        type: "line",
        data: { datasets: each((run, index, source, column) => linesOf(run, index, source, column, unit, scale)) },
        options: chartOptions(
          scaleOptions(unit.name ? `${x.title} (${unit.name})` : x.title, { type: "linear", min: 0 }),
          scaleOptions(unitName, {
            type: logarithmic ? "logarithmic" : "linear", max: logarithmic ? undefined : end, ...more.y,
          }),
          {
            interaction: { mode: "nearest", axis: "x", intersect: false },
            plugins: {
              tooltip: {
                filter: item => !item.dataset.band,
                callbacks: {
                  title: items => items.length ? `step ${stepsOf(items[0].dataset.curves, pointOf(items[0]))}` : "",
                  label: curveLabel,
                },
              },
            },
          }),
      };
    },
    ...more,
  };
}

// --- bars of ranks ---

const rankName = rank => [rank.replica, rank.name, rank.host].filter(text => text !== "").join(" · ");
const mostBars = 16;

/** The ranks that a figure has room for: those that the others waited for most, in the order of the ranks. */
function shownRanks(run) {
  const ranks = [...run.parts.ranks].sort((a, b) => b.late - a.late).slice(0, mostBars);
  return ranks.sort((a, b) => a.replica - b.replica);
}
const limited = run => run.parts.ranks.length > mostBars
  ? ` Of ${run.parts.ranks.length} ranks, the ${mostBars} that were late the most.` : "";

function barOptions(xTitle, { x, y, ...more }) {
  return chartOptions(
    scaleOptions(xTitle, { beginAtZero: true, ...x }),
    scaleOptions("", { title: { display: false }, grid: { display: false }, ticks: { color: colour("ink"), autoSkip: false }, ...y }),
    { indexAxis: "y", ...more });
}
const partLegend = () => ({
  legend: { display: true, position: "bottom", labels: { color: colour("ink"), boxWidth: 12, boxHeight: 12 } },
});

function partsFigure(run) {
  const ranks = shownRanks(run), perStep = (rank, part) => rank.seconds[part] / Math.max(1, rank.steps);
  const unit = unitOf(Math.max(...ranks.map(rank => rank.elapsed / Math.max(1, rank.steps))));
  const parts = data.parts.filter(part => run.parts.ranks.some(rank => rank.seconds[part] > 0));
  return {
    title: `Parts of a step by rank${several ? `: ${run.name}` : ""}`,
    look: "A rank with little waiting and a longer part than the others holds them up; if all ranks wait, the time goes into the " +
      "sums between them. Checkpoints and evaluations are spread over the steps." + limited(run),
    height: 125 + 26 * ranks.length, points: ranks.length * parts.length,
    head: ["rank", "host", ...parts.map(part => `#${part} (${unit.name})`)],
    rows: () => run.parts.ranks.map(rank =>
      [`${rank.replica} ${rank.name}`, rank.host, ...parts.map(part => number(perStep(rank, part) * unit.scale))]),
    chart: () => ({
      type: "bar",
      data: {
        labels: ranks.map(rankName),
        datasets: parts.map(part => ({
          label: part, data: ranks.map(rank => perStep(rank, part) * unit.scale), backgroundColor: colour(part),
          borderColor: colour("card"), borderWidth: { right: 1 }, maxBarThickness: 20,
        })),
      },
      options: barOptions(`mean of a step (${unit.name})`, {
        x: { stacked: true }, y: { stacked: true },
        plugins: {
          ...partLegend(),
          tooltip: { callbacks: { label: item => `${item.dataset.label}: ${number(item.raw)} ${unit.name}` } },
        },
      }),
    }),
  };
}

function latenessFigure(run) {
  const ranks = run.parts.ranks.filter(rank => rank.late > 0).sort((a, b) => b.late - a.late);
  if (ranks.length === 0) return undefined;
  const shown = ranks.slice(0, 12), parts = data.parts.filter(part => shown.some(rank => rank.mostly === part));
  const unknown = shown.some(rank => !parts.includes(rank.mostly)) ? ["other"] : [];
  const partOf = rank => parts.includes(rank.mostly) ? rank.mostly : "other";
  return {
    title: `Whom the others waited for${several ? `: ${run.name}` : ""}`,
    look: "The share of the time that the others waited for a rank; the colour is the part in which it lost most of it. " +
      "Below 5%, look elsewhere.",
    height: 125 + 26 * shown.length, points: shown.length,
    head: ["rank", "host", "#late", "mostly in"],
    rows: () => ranks.map(rank => [`${rank.replica} ${rank.name}`, rank.host, percent(rank.late), rank.mostly]),
    chart: () => ({
      type: "bar",
      data: {
        labels: shown.map(rankName),
        datasets: [...new Set([...parts, ...unknown])].map(part => ({
          label: part, data: shown.map(rank => partOf(rank) === part ? rank.late * 100 : null),
          backgroundColor: colour(part), maxBarThickness: 20,
        })),
      },
      options: barOptions("share of the time (%)", {
        x: { stacked: true, suggestedMax: 10 }, y: { stacked: true },
        plugins: {
          ...partLegend(),
          tooltip: { callbacks: { label: item => `late ${percent(item.raw / 100)}, mostly in ${item.dataset.label}` } },
        },
      }),
    }),
  };
}

function latenessOverStepsFigure(run) {
  const { step, replicas, late } = run.parts.over;
  if (replicas.length === 0 || step.length < 2) return undefined;
  const names = replicas.map(replica => rankName(run.parts.ranks.find(rank => rank.replica === replica)));
  return {
    title: `When the others waited${several ? `: ${run.name}` : ""}`,
    look: "A rank that is late throughout is slow; one that becomes late at a step met something then.",
    height: 240, points: step.length * replicas.length,
    head: ["step", ...names.map(name => `#${name}`)],
    rows: () => step.map((at, i) => [at, ...late.map(shares => percent(shares[i]))]),
    chart: () => ({
      type: "line",
      data: {
        datasets: late.map((shares, i) => ({
          // A value holds for the steps before it.
          label: names[i], parsing: false,
          data: [{ x: 0, y: shares[0] * 100 }, ...step.map((at, k) => ({ x: at, y: shares[k] * 100 }))],
          borderColor: runColour(i), backgroundColor: runColour(i), borderWidth: 1.75, stepped: "after",
          borderDash: [[], [6, 3], [2, 2], [8, 3, 2, 3], [12, 4]][i], pointRadius: 0,
        })),
      },
      options: chartOptions(
        scaleOptions("step", { type: "linear", min: 0 }),
        scaleOptions("late (% of the time)", { beginAtZero: true, suggestedMax: 10 }),
        {
          interaction: { mode: "index", axis: "x", intersect: false },
          plugins: {
            legend: { display: true, position: "bottom", labels: { color: colour("ink"), boxWidth: 24, boxHeight: 0 } },
            tooltip: { callbacks: {
              title: items => items.length ? `up to step ${items[0].raw.x}` : "",
              label: item => `${item.dataset.label}: ${percent(item.raw.y / 100)}`,
            } },
          },
        }),
    }),
  };
}

// --- the time line ---

const eventRows = [["training", "backward"], ["evaluation", "evaluation"], ["checkpoint", "checkpoint"],
                   ["stop", "other"], ["failure", "alarm"]];

function told(event) {
  return [`start ${event.start}`, event.step !== undefined ? `step ${event.step}` : "",
          event.ranks ? `${event.ranks} ranks` : "", event.seconds ? `took ${duration(event.seconds)}` : "",
          event.exit_code ? `exit code ${event.exit_code}` : "", event.text ?? ""].filter(Boolean).join(", ");
}

function timelineFigure(run) {
  const events = run.timeline;
  if (!events || events.length === 0) return undefined;
  const first = Math.min(...events.map(event => event.time - (event.seconds ?? 0)));
  const unit = unitOf(Math.max(1, events[events.length - 1].time - first));
  const at = time => (time - first) * unit.scale;
  const bars = [];
  for (const event of events) {
    if (event.kind === "start") {
      const ofStart = events.filter(other => other.start === event.start).map(other => other.time);
      bars.push({ y: "training", x: [at(event.time), at(Math.max(...ofStart))], text: told(event) });
    } else if (event.kind !== "end") {
      bars.push({ y: event.kind, x: [at(event.time - (event.seconds ?? 0)), at(event.time)], text: told(event) });
    }
  }
  const rows = eventRows.filter(([kind]) => bars.some(bar => bar.y === kind));
  return {
    title: `Starts, checkpoints and failures${several ? `: ${run.name}` : ""}`,
    look: "A bar of training for each start, up to the last thing that it wrote; between two, the run was down. Wide " +
      "checkpoints or evaluations keep the ranks from training.",
    height: 80 + 30 * rows.length, points: bars.length,
    head: ["time (UTC)", "what", "details"],
    rows: () => events.map(event =>
      [new Date(event.time * 1000).toISOString().replace("T", " ").slice(0, 19), event.kind, told(event)]),
    chart: () => ({
      type: "bar",
      data: {
        labels: rows.map(([kind]) => kind),
        datasets: rows.map(([kind, tint]) => ({
          label: kind, data: bars.filter(bar => bar.y === kind), backgroundColor: colour(tint), grouped: false,
          minBarLength: 3, maxBarThickness: 16, borderColor: colour("card"), borderWidth: { left: kind === "training" ? 1 : 0 },
        })),
      },
      options: barOptions(`since the first start (${unit.name})`, {
        x: { type: "linear", min: 0 },
        plugins: { tooltip: { callbacks: { label: item => item.raw.text } } },
      }),
    }),
  };
}
