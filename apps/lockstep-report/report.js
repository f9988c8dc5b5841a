"use strict";
// Puts the page together from the data in it. Every text of a run goes in as text, never as HTML.

window.addEventListener("error", event => {
  const errors = document.getElementById("errors");
  errors.hidden = false;
  errors.textContent += `${event.message} (line ${event.lineno})\n`;
});

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  made.append(...children);
  return made;
}

/** A head that begins with # is that of numbers. */
function table(head, rows) {
  const isNumber = head.map(text => text.startsWith("#"));
  const cell = (name, content, i) => element(name, isNumber[i] ? { className: "number" } : {}, content ?? "");
  return element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((text, i) => cell("th", text.replace(/^#/, ""), i)))),
    element("tbody", {}, ...rows.map(row => element("tr", {}, ...row.map((content, i) => cell("td", content, i))))));
}

/** Is filled when it is opened: the tables of long runs have thousands of rows. */
function tableBehind(head, rows, summary = "Table") {
  const details = element("details", {}, element("summary", {}, summary));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) details.append(element("div", { className: "scroll" }, table(head, rows())));
  });
  return details;
}

// --- figures ---

const drawn = [];

function redraw() {
  for (const figure of drawn) {
    figure.chart?.destroy();
    figure.chart = new Chart(figure.canvas, figure.made.chart());
  }
}

function show(made) {
  const head = element("div", {}, element("h3", {}, made.title), element("p", { className: "look" }, made.look));
  const figure = element("figure", {}, head);
  figure.dataset.points = made.points;
  if (made.key) head.append(made.key());
  if (typeof Chart === "undefined") {
    figure.append(element("div", { className: "scroll" }, table(made.head, made.rows())));
    return figure;
  }
  const canvas = element("canvas", { role: "img", "aria-label": `${made.title}. ${made.look}` });
  figure.append(element("div", { className: "canvas", style: `height: ${made.height}px` }, canvas),
                tableBehind(made.head, made.rows));
  drawn.push({ canvas, made });
  return figure;
}

function grid(figures) {
  return element("div", { className: figures.length === 3 ? "grid thirds" : "grid" }, ...figures.map(show));
}

/** Each of `groups` is a list of figures, of which some may be undefined. */
function section(title, ...groups) {
  const there = groups.map(group => group.filter(Boolean)).filter(group => group.length > 0);
  if (there.length > 0) main.append(element("h2", {}, title), ...there.map(grid));
}

const lossKey = () => element("div", { className: "key" },
  element("span", {}, element("i"), "training"), element("span", {}, element("i", { className: "dashed" }), "evaluation"),
  ...(runs.some(run => run.eval.loss) ? [element("span", {}, "◆ best evaluation")] : []),
  ...(runs.some(run => run.train.merged)
    ? [element("span", {}, element("i", { className: "band" }), "least to greatest step in a point")] : []));

// --- what is said in words ---

const swatch = index => element("span", { className: "swatch", style: `border-color: var(--run${index % 6})` });
const named = (run, index) => element("span", {}, swatch(index), ` ${run.name}`);

function standsOut() {
  main.append(element("h2", {}, "What stands out"));
  runs.forEach((run, index) => {
    const card = element("div", { className: "card" });
    if (several) card.append(element("h3", {}, named(run, index)));
    card.append(run.findings.length > 0
      ? element("ul", { className: "stands-out" }, ...run.findings.map(text => element("li", {}, text)))
      : element("p", {}, run.parts && run.timeline
        ? "Nothing: no failure, no rank that the others waited for, no loss that is wrong."
        : "Nothing, but these files do not show whether a rank was late or the run failed."));
    for (const note of run.notes) card.append(element("p", { className: "look" }, `Note: ${note}.`));
    main.append(card);
  });
}

const lastOf = column => column ? column.mean.filter(value => value !== null).at(-1) : undefined;

function samplesPerSecond(run) {
  const samples = run.train.samples.at(-1);
  return typeof samples === "number" && run.training_seconds > 0 ? samples / run.training_seconds : undefined;
}

function summaryTable() {
  const columns = [
    ["run", named],
    ["state", run => element("span", { className: run.state === "failed" ? "failed" : "" }, run.state || "–")],
    ["#steps", run => number(run.steps)], ["#epochs", run => number(run.epochs)],
    ["#training loss", run => number(run.last_loss)],
    ["#evaluation loss", run => number(lastOf(run.eval.loss))],
    ["best evaluation", run => run.best_evaluation
      ? `${number(run.best_evaluation.loss)} at step ${run.best_evaluation.step}` : "–", run => run.best_evaluation],
    ["#accuracy", run => number(lastOf(run.eval.accuracy)), run => run.eval.accuracy],
    ["#R²", run => number(lastOf(run.eval.r2)), run => run.eval.r2],
    ["#bits per byte", run => number(lastOf(run.eval.bits_per_byte)), run => run.eval.bits_per_byte],
    ["#samples/s", run => number(samplesPerSecond(run))],
    ["#training time", run => duration(run.training_seconds)],
    ["#evaluations", run => duration(run.evaluation_seconds)],
    ["#ranks", run => number(run.parts?.ranks.length || run.tasks.length || null)],
  ].filter(([, , isThere]) => !isThere || runs.some(isThere));
  main.append(element("h2", {}, several ? "Runs" : "Run"), element("div", { className: "card" },
    table(columns.map(([head]) => head), runs.map((run, index) => columns.map(([, text]) => text(run, index))))));
}

/** The names in any run's `group`, each with the texts of all runs. */
function compared(group) {
  const names = [...new Set(runs.flatMap(run => Object.keys(run[group])))];
  return names.map(name => [name, ...runs.map(run => run[group][name] ?? "–")]);
}

function whatWasRun() {
  const heads = ["", ...runs.map(run => several ? run.name : "value")];
  // Of a run without run.json, nothing is known.
  const told = runs.filter(run => Object.keys(run.facts).length + Object.keys(run.options).length > 0);
  const own = ["command", "started", "ended", "starts", "run-dir", "metrics", "export", "checkpoint-dir", "resume"];
  const isOwn = name => own.includes(name) || name.startsWith("paths: ");
  const differing = ["options", "facts"].flatMap(group => compared(group)).filter(([name]) => !isOwn(name))
    .filter(([name]) => new Set(told.map(run => run.options[name] ?? run.facts[name])).size > 1);
  if (several || told.length > 0) main.append(element("h2", {}, "What was run"));
  if (several) {
    main.append(element("div", { className: "card" }, element("h3", {}, "How the runs differ"),
      differing.length > 0 ? table(heads, differing) : element("p", {}, data.same.known),
      element("p", {}, data.same.unknown)));
  }
  const card = element("div", { className: "card" });
  for (const [title, group] of [["Options", "options"], ["Command, versions and data", "facts"], ["Result", "result"]]) {
    const rows = compared(group);
    if (rows.length > 0) card.append(tableBehind(heads, () => rows, `${title} (${rows.length})`));
  }
  runs.forEach(run => {
    const names = [...new Set(run.tasks.flatMap(Object.keys))];
    if (names.length > 0)
      card.append(tableBehind(names, () => run.tasks.map(task => names.map(name => task[name] ?? "")),
                              `Tasks, hosts and devices${several ? `: ${run.name}` : ""} (${run.tasks.length})`));
  });
  if (card.children.length > 0) main.append(card);
}

// --- controls ---

function controls() {
  const nav = document.getElementById("controls");
  nav.hidden = false;
  const select = element("select", {}, ...Object.entries(axes).map(([value, axis]) => element("option", { value }, axis.title)));
  select.addEventListener("change", () => { view.x = select.value; redraw(); });
  const log = element("input", { type: "checkbox" });
  log.addEventListener("change", () => { view.log = log.checked; redraw(); });
  nav.append(element("label", {}, "curves over", select), element("label", {}, log, "logarithmic losses, norms and times"));
  if (several) runs.forEach((run, index) => {
    const box = element("input", { type: "checkbox", checked: true });
    box.addEventListener("change", () => { box.checked ? view.hidden.delete(index) : view.hidden.add(index); redraw(); });
    nav.append(element("label", {}, box, swatch(index), run.name));
  });
}

// --- the page ---

const main = document.getElementById("main");
const stepUnit = unitOf(Math.max(...runs.map(run => run.training_seconds / Math.max(1, run.steps))));
document.getElementById("title").textContent = runs.map(run => run.name).join(", ");
document.getElementById("made").textContent = `Made on ${data.made} by lockstep-report ${data.version}`;
standsOut();
summaryTable();
section("How it learned", [
  curveFigure("Loss", "Training falls, and evaluation follows it. If evaluation rises while training falls, the model " +
    "learns its samples by heart.", "loss", [["train", "loss"], ["eval", "loss"]], { log: true, key: lossKey }),
  curveFigure("Accuracy", "Rises, and levels off. Still rising at the end: more steps would help.",
    "correct (share of labels)", [["eval", "accuracy"]]),
  curveFigure("Bits per byte", "Falls, and levels off: how many bits the model needs for a byte of the test text.",
    "bits per byte", [["eval", "bits_per_byte"]]),
  curveFigure("R²", "Rises towards 1, at which every prediction is exact; 0 is as good as the mean of the labels.",
    "R²", [["eval", "r2"]]),
  curveFigure("Mean absolute error", "Falls, and levels off.", "error (unit of the label)", [["eval", "mean_absolute_error"]]),
  curveFigure("Learning rate", "The schedule as intended, with its warm-up.", "learning rate", [["train", "learning_rate"]],
    { y: { beginAtZero: true } }),
  curveFigure("Gradient norm", "Calm after the first steps. Peaks come before a training that diverges: clip them, or " +
    "lower the learning rate.", "norm of the mean gradient", [["train", "gradient_norm"]], { log: true }),
]);
section("How fast it was", [
  curveFigure("Samples a second", "Level. A drop that stays is a rank, a disk or a network that became slower.",
    "samples a second", [["train", "samples_per_second"]], { y: { beginAtZero: true } }),
  curveFigure("Time of a step", "Level. Peaks at regular distances are something that happens every so many steps; " +
    "evaluations and checkpoints are not counted.", `step (${stepUnit.name})`, [["train", "step_seconds"]],
    { y: { beginAtZero: true }, scale: stepUnit.scale, log: true, cut: true }),
  runs.some(run => new Set(run.train.batch?.least ?? run.train.batch?.mean).size > 1)
    ? curveFigure("Batch", "Level, except for the last step of an epoch.", "samples in a step", [["train", "batch"]],
                  { y: { beginAtZero: true } }) : undefined,
]);
section("Where the time went", ...runs.filter(run => run.parts).map(run =>
  [partsFigure(run), latenessFigure(run), latenessOverStepsFigure(run)]));
section("When it happened", ...runs.map(run => [timelineFigure(run)]));
whatWasRun();
if (drawn.length > 0) {
  controls();
  Chart.defaults.font.family = "system-ui, sans-serif";
  redraw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}
document.body.dataset.ready = "yes";
