#include "apps/lockstep-report/page.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "apps/lockstep-report/findings.hpp"
#include "apps/lockstep-report/json_members.hpp"
#include "apps/lockstep-report/page_files.hpp"

namespace lockstep::report {
namespace {

// Of each kind: more would lie on top of each other.
constexpr std::size_t most_events = 500;

/// With the digits that a curve shows; null if it is not finite.
OrderedJson short_number(double value) {
  if (!std::isfinite(value)) return nullptr;
  const std::string text = fmt::format("{:.6g}", value);
  double rounded = value;
  std::from_chars(text.data(), text.data() + text.size(), rounded);
  return rounded;
}

/// Which value of a column is the best.
enum class Best : std::uint8_t { none, least, greatest };

struct Column {
  std::size_t index;
  const char* name;
  Best best = Best::none;
};

/// The first point that has the best value of all.
std::size_t best_point(const Curves& curves, const Column& column) {
  const Curves::Range all = curves.total(column.index);
  const auto has_best = [&](const Curves::Point& point) {
    const Curves::Range& range = point.columns[column.index];
    return column.best == Best::least ? range.least == all.least : range.greatest == all.greatest;
  };
  return static_cast<std::size_t>(std::ranges::find_if(curves.points(), has_best) - curves.points().begin());
}

/// {"step":[…],"samples":[…],"seconds":[…],NAME:{"mean":[…],"least":[…],"greatest":[…],"best":3},…}. A column without
/// values is left out, and so are the least and the greatest if each point is one value.
OrderedJson curves_json(const Curves& curves, std::initializer_list<Column> columns) {
  OrderedJson json{
      {"step", OrderedJson::array()}, {"samples", OrderedJson::array()}, {"seconds", OrderedJson::array()}};
  bool merged = false;
  for (const Curves::Point& point : curves.points()) {
    json["step"].push_back(point.last.step);
    json["samples"].push_back(short_number(point.last.samples));
    json["seconds"].push_back(short_number(point.last.seconds));
    merged |= point.steps > 1;
  }
  for (const Column& column : columns) {
    const auto [index, name, best] = column;
    if (curves.total(index).count == 0) continue;
    OrderedJson mean = OrderedJson::array(), least = mean, greatest = mean;
    for (const Curves::Point& point : curves.points()) {
      const Curves::Range& range = point.columns[index];
      mean.push_back(short_number(range.mean()));
      least.push_back(short_number(range.least));
      greatest.push_back(short_number(range.greatest));
    }
    json[name] = {{"mean", std::move(mean)}};
    if (best != Best::none) json[name]["best"] = best_point(curves, column);
    if (!merged) continue;
    json[name]["least"] = std::move(least);
    json[name]["greatest"] = std::move(greatest);
  }
  return json;
}

OrderedJson parts_json(const PartSums& parts) {
  if (parts.empty()) return nullptr;
  OrderedJson ranks = OrderedJson::array();
  std::vector<const PartSums::Rank*> late;
  for (const auto& [replica, rank] : parts.ranks()) {
    OrderedJson seconds;
    for (std::size_t part = 0; part < PartSums::names.size(); ++part)
      seconds[std::string{PartSums::names[part]}] = short_number(rank.seconds[part]);
    ranks.push_back({{"replica", replica},
                     {"name", rank.name},
                     {"host", rank.host},
                     {"steps", rank.steps},
                     {"elapsed", short_number(rank.elapsed)},
                     {"seconds", std::move(seconds)},
                     {"late", short_number(rank.late())},
                     {"mostly", rank.mostly()}});
    if (rank.late_seconds > 0) late.push_back(&rank);
  }
  // Over the steps, only for those that the others waited for most: more colours cannot be told apart.
  constexpr std::size_t most = 5;
  std::stable_sort(late.begin(), late.end(),
                   [](const auto* one, const auto* other) { return one->late_seconds > other->late_seconds; });
  if (late.size() > most) late.resize(most);
  OrderedJson over{{"step", OrderedJson::array()}, {"replicas", OrderedJson::array()}, {"late", OrderedJson::array()}};
  for (const PartSums::Stretch& stretch : parts.stretches()) over["step"].push_back(stretch.last_step);
  for (const PartSums::Rank* const rank : late) {
    OrderedJson shares = OrderedJson::array();
    for (const PartSums::Stretch& stretch : parts.stretches()) {
      const auto found = stretch.late_seconds.find(rank->replica);
      shares.push_back(short_number(found == stretch.late_seconds.end() ? 0 : found->second / stretch.elapsed));
    }
    over["replicas"].push_back(rank->replica);
    over["late"].push_back(std::move(shares));
  }
  return {{"ranks", std::move(ranks)}, {"over", std::move(over)}};
}

OrderedJson timeline_json(const Run& run) {
  if (!run.timeline) return nullptr;
  OrderedJson events = OrderedJson::array();
  for (const Event& event : thinned(run.timeline->events, most_events)) {
    OrderedJson json{{"kind", event.kind}, {"time", event.time}, {"start", event.start}};
    if (event.step >= 0) json["step"] = event.step;
    if (event.ranks > 0) json["ranks"] = event.ranks;
    if (event.seconds > 0) json["seconds"] = short_number(event.seconds);
    if (!event.text.empty()) json["text"] = event.text;
    if (event.exit_code != 0) json["exit_code"] = event.exit_code;
    events.push_back(std::move(json));
  }
  return events;
}

/// Names and texts, for tables.
OrderedJson texts_of(const OrderedJson* object) {
  OrderedJson texts = OrderedJson::object();
  if (object && object->is_object())
    for (const auto& [name, value] : object->items())
      texts.get_ref<OrderedJson::object_t&>().emplace_back(name, shown(value));
  return texts;
}

std::string command_of(const OrderedJson& record) {
  const OrderedJson* const command = member(record, "command");
  if (!command || !command->is_array()) return shown_at(record, "command");
  std::string line;
  for (const OrderedJson& word : *command)
    line += (line.empty() ? "" : " ") + (word.is_string() ? word.get<std::string>() : word.dump());
  return line;
}

OrderedJson record_json(const Run& run) {
  OrderedJson facts = OrderedJson::object();
  if (const std::string command = command_of(run.record); !command.empty()) facts["command"] = command;
  for (const char* const key : {"program", "lockstep", "mpi", "fingerprint", "started", "ended", "starts", "cluster"})
    if (const std::string text = shown_at(run.record, key); !text.empty()) facts[key] = text;
  for (const char* const group : {"data", "paths"}) {
    const OrderedJson texts = texts_of(member(run.record, group));
    for (const auto& [name, text] : texts.items())
      if (text != "") facts[fmt::format("{}: {}", group, name)] = text;
  }
  OrderedJson tasks = OrderedJson::array();
  if (const OrderedJson* const ranks = member(run.record, "ranks"); ranks && ranks->is_array())
    for (const OrderedJson& rank : *ranks) tasks.push_back(texts_of(&rank));
  return {{"facts", std::move(facts)},
          {"options", texts_of(member(run.record, "options"))},
          {"result", texts_of(member(run.record, "result"))},
          {"tasks", std::move(tasks)}};
}

OrderedJson run_json(const Run& run) {
  const Metrics& metrics = run.metrics;
  OrderedJson json{{"name", run.name}, {"state", run.state()}};
  json.update(record_json(run));
  json["findings"] = findings_of(run);
  json["notes"] = run.notes;
  json["steps"] = metrics.steps;
  json["epochs"] = metrics.epochs;
  json["training_seconds"] = short_number(metrics.training_seconds);
  json["evaluation_seconds"] = short_number(metrics.evaluation_seconds);
  json["last_loss"] = short_number(metrics.last_loss);
  json["train"] = curves_json(metrics.train, {{train_loss, "loss"},
                                              {train_learning_rate, "learning_rate"},
                                              {train_gradient_norm, "gradient_norm"},
                                              {train_samples_per_second, "samples_per_second"},
                                              {train_step_seconds, "step_seconds"},
                                              {train_batch, "batch"}});
  json["eval"] = curves_json(metrics.evaluations, {{eval_loss, "loss", Best::least},
                                                   {eval_accuracy, "accuracy", Best::greatest},
                                                   {eval_bits_per_byte, "bits_per_byte", Best::least},
                                                   {eval_r2, "r2", Best::greatest},
                                                   {eval_absolute_error, "mean_absolute_error", Best::least}});
  if (const auto& lowest = metrics.lowest_evaluation_loss)
    json["best_evaluation"] = {{"step", lowest->step}, {"loss", short_number(lowest->loss)}};
  json["parts"] = parts_json(metrics.parts);
  json["timeline"] = timeline_json(run);
  return json;
}

/// As text in HTML.
std::string escaped_html(std::string_view text) {
  std::string escaped;
  for (const char c : text) switch (c) {
      case '<': escaped += "&lt;"; break;
      case '>': escaped += "&gt;"; break;
      case '&': escaped += "&amp;"; break;
      case '"': escaped += "&quot;"; break;
      default: escaped += c;
    }
  return escaped;
}

std::string title_of(const std::vector<Run>& runs) {
  std::string names;
  constexpr std::size_t most = 4;
  for (std::size_t i = 0; i < std::min(most, runs.size()); ++i) names += (i > 0 ? ", " : "") + runs[i].name;
  if (runs.size() > most) names += fmt::format(" and {} more", runs.size() - most);
  return escaped_html(as_utf8(names));
}

/// A script must not hold what ends it.
std::string in_script(std::string_view script) {
  std::string text{script};
  for (std::size_t at = 0; (at = text.find("</", at)) != text.npos; at += 3) text.replace(at, 2, "<\\/");
  return text;
}

}  // namespace

std::string page_data(const std::vector<Run>& runs) {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  OrderedJson data{{"version", LOCKSTEP_VERSION},
                   {"made", fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now))},
                   {"parts", PartSums::names},
                   {"runs", OrderedJson::array()}};
  for (const Run& run : runs) data["runs"].push_back(run_json(run));
  const Sameness same = sameness_of(runs);
  data["same"] = {{"known", same.known}, {"unknown", same.unknown}};
  const std::string plain = data.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  // The only characters with a meaning in a script of HTML. JSON has them only within strings.
  std::string text;
  text.reserve(plain.size());
  for (const char c : plain) {
    if (c == '<' || c == '>' || c == '&')
      text += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    else
      text += c;
  }
  return text;
}

bool page_has_charts() {
  return !page_files::charts.empty();
}

std::string page_of(const std::vector<Run>& runs) {
  std::string page{page_begin};
  std::string_view rest = page_files::html;
  const auto put = [&](std::string_view mark, std::string_view text) {
    const std::size_t at = rest.find(mark);
    page += rest.substr(0, at);
    page += text;
    rest.remove_prefix(at + mark.size());
  };
  put("@TITLE@", title_of(runs));
  put("@STYLE@", page_files::style);
  put("@DATA@", page_data(runs));
  put("@CHARTS@", in_script(page_files::charts));
  put("@FIGURES@", in_script(page_files::figures));
  put("@SCRIPT@", in_script(page_files::script));
  return page += rest;
}

}  // namespace lockstep::report
