#include "models/record/metrics_file.hpp"

#include <cerrno>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/hex.hpp>
#include <lockstep/core/base/log.hpp>

#include "core/base/file_io.hpp"
#include "core/base/foreign_json.hpp"
#include "core/base/own_file.hpp"
#include "models/record/evaluation_json.hpp"
#include "sync/checkpoint/file.hpp"
#include "sync/checkpoint/file_system.hpp"
#include "sync/checkpoint/folder_lock.hpp"

namespace lockstep {

using Json = nlohmann::ordered_json;

namespace {

// Checks with findings of their own.
constexpr std::string_view attestation = "attestation", audit = "audit";

// As they begin. An object without members is nothing that would be lost.
constexpr std::string_view line_begin = R"({"kind":")", findings_begin = "{\n  \"step\": ", no_findings = "{}";

// Far more than a line of metrics takes: the longest are those about 10,000 replicas.
constexpr std::size_t longest_line = (std::size_t{4} << 20) - 1;

/// A line. Error, in words that follow its place, if it is none of metrics.
OrderedJson parse_line(std::string_view line) {
  OrderedJson metrics = parse_foreign_json(line);
  if (!metrics.is_object()) throw Error{"is no JSON object"};
  for (const char* key : {"kind", "step"}) {
    if (!metrics.contains(key)) throw Error{fmt::format("has no \"{}\"", key)};
    const OrderedJson& value = metrics[key];
    if (key == std::string_view{"kind"} ? !value.is_string() : !value.is_number_integer())
      throw Error{fmt::format("has \"{}\": {}", key, shown(value))};
  }
  return metrics;
}

/// Takes pieces of text, and writes them as a file in the place of another. As a whole: whoever is killed here leaves
/// the old lines or the new ones.
class Replacement {
 public:
  Replacement(const std::filesystem::path& path, const std::string& what) : file_{path, what} {}

  void add(std::string_view line) {
    pending_.append(line).push_back('\n');
    constexpr std::size_t at_once = std::size_t{1} << 20;
    if (pending_.size() >= at_once) flush();
  }

  void commit(ExclusiveUse* use) {
    flush();
    if (use) use->extend_to(file_.descriptor());
    file_.commit();
  }

 private:
  void flush() {
    file_.write(std::as_bytes(std::span{pending_}));
    pending_.clear();
  }

  NewFile file_;
  std::string pending_;
};

/// What a path that cannot be written says to its user.
[[noreturn]] void refuse(const FileError& error, const std::string& expected) {
  if (!is_about_path(error.code())) throw error;
  throw ConfigError{fmt::format("{}; expected {}", error.what(), expected)};
}

[[noreturn]] void refuse_line(std::string_view why) {
  throw ConfigError{fmt::format("{}; expected a line of metrics, as lockstep-train writes it, or a new file", why)};
}

std::optional<LineReader::Line> next_line(LineReader& lines) {
  try {
    return lines.next();
  } catch (const FileError& error) {
    if (error.code() != EFBIG) throw;
    refuse_line(error.what());  // it is too long
  }
}

/// Leaves the lines about the first `steps` steps. A killed run may have cut its last line.
struct KeptLines {
  bool any = false;
  std::int64_t samples = 0;  ///< as the last line about a step says
};

KeptLines keep_lines(const std::filesystem::path& path, std::int64_t steps, const std::string& what,
                     const std::string& name, ExclusiveUse* use) {
  KeptLines kept;
  std::error_code error;
  if (steps == 0 || !std::filesystem::is_regular_file(std::filesystem::status(path, error))) return kept;
  LineReader lines{open_to_read(path, name), name, longest_line};
  std::optional<Replacement> replacement;
  while (const auto line = next_line(lines)) {
    OrderedJson metrics;
    try {
      metrics = with_memory(name, [&] { return parse_line(line->text); });
    } catch (const FileError&) {
      throw;
    } catch (const Error& fault) {
      if (!line->is_whole) break;
      refuse_line(fmt::format("{}:{}: {}", name, line->number, fault.what()));
    }
    if (metrics["step"].get<std::int64_t>() > steps) continue;
    if (!replacement) try {
        replacement.emplace(path, what);
      } catch (const FileError& fault) {
        refuse(fault, "a folder that can be written");
      }
    replacement->add(line->text);
    kept.any = true;
    if (const auto samples = metrics.find("samples"); samples != metrics.end() && samples->is_number_integer())
      kept.samples = *samples;
  }
  if (replacement) replacement->commit(use);
  return kept;
}

/// Null for what is no file, and for one that cannot be written, which is told when it is opened.
std::shared_ptr<ExclusiveUse> use_of(const std::filesystem::path& path, const std::string& name) {
  std::error_code error;
  const std::filesystem::file_status there = std::filesystem::status(path, error);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) return nullptr;
  try {
    return std::make_shared<ExclusiveUse>(
        ExclusiveUse::Options{.file = path,
                              .lease = path.parent_path() / fmt::format(".{}.lease", path.filename().string()),
                              .content = ExclusiveUse::Content::own,
                              .name = name,
                              .expected = "a file that no other training writes",
                              .patience = patience_with_other_jobs()});
  } catch (const CheckpointError&) {
    return nullptr;
  }
}

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path, std::int64_t steps, std::string name)
    : path_{std::move(path)}, name_{fmt::format("{} {}", name, path_.string())} {
  finish_move_over(path_);
  require_own(path_, {line_begin}, name_, "a new file, or one of metrics");
  for (const std::string_view check : {attestation, audit})
    require_own(findings_of(check), {findings_begin, no_findings},
                fmt::format("{} {}", name, findings_of(check).string()),
                "no file of that name, or findings of an earlier run");
  use_ = use_of(path_, name_);
  const KeptLines kept = keep_lines(path_, steps, name, name_, use_.get());
  samples_before_ = kept.samples;
  try {
    file_.emplace(open_output(path_, kept.any ? OpenOutput::at_end : OpenOutput::empty, name_), path_, name_);
  } catch (const FileError& error) {
    refuse(error, "a file that can be written");
  }
  for (const std::string_view check : {attestation, audit}) {
    const std::filesystem::path findings = findings_of(check);
    finish_move_over(findings);
    std::error_code error;
    std::filesystem::remove(findings, error);
    if (error)
      throw ConfigError{
          fmt::format("{}: {}: {}; expected a file that can be removed", name_, findings.string(), error.message())};
  }
}

std::filesystem::path MetricsFile::findings_of(std::string_view check) const {
  return fmt::format("{}.{}.json", path_.string(), check);
}

void MetricsFile::write(const std::string& line) {
  if (use_) use_->require_not_lost();
  file_->write(line + '\n');
}

void MetricsFile::on_step(const Observer::Step& report) {
  Json line{{"kind", "train"},
            {"step", report.step},
            {"epoch", report.epoch},
            {"samples", report.samples},
            {"batch", report.batch},
            {"loss", report.loss},
            {"learning_rate", report.learning_rate}};
  if (report.gradient_norm) line["gradient_norm"] = *report.gradient_norm;
  line["seconds"] = report.seconds;
  line["samples_per_second"] = report.samples_per_second;
  write(line.dump());
}

void MetricsFile::on_evaluation(const Observer::Evaluation& report) {
  Json line{{"kind", "eval"}, {"step", report.step}, {"epoch", report.epoch}};
  add_evaluation(line, report);
  line["seconds"] = report.seconds;
  write(line.dump());
}

void MetricsFile::on_parts(const Observer::Parts& report) {
  Json ranks = Json::array();
  for (const Observer::Parts::Replica& each : report.replicas)
    ranks.push_back({{"replica", each.replica},
                     {"name", each.name},
                     {"host", each.host},
                     {"data", each.data},
                     {"forward", each.forward},
                     {"backward", each.backward},
                     {"optimizer", each.optimizer},
                     {"checkpoint", each.checkpoint},
                     {"evaluation", each.evaluation},
                     {"other", each.other},
                     {"waiting", each.waiting},
                     {"queued", each.queued},
                     {"late", each.late},
                     {"mostly", each.mostly}});
  const Json line{
      {"kind", "parts"}, {"step", report.step}, {"steps", report.steps}, {"seconds", report.seconds}, {"ranks", ranks}};
  write(line.dump());
}

void MetricsFile::on_drift(std::int64_t step, const DriftError& found) {
  Json differing = Json::array();
  for (const DriftError::Value& value : found.drift().values) {
    std::vector<std::string> digests;
    for (const std::uint64_t digest : value.digests) digests.push_back(to_hex(digest));
    differing.push_back({{"name", value.name}, {"digests", digests}});
  }
  const Json report{
      {"step", step}, {"message", found.what()}, {"blamed", found.drift().blamed}, {"differing", differing}};
  write_findings(attestation, report.dump(2) + '\n');
}

void MetricsFile::on_audit(const AuditError& found) {
  const AuditError::Finding& finding = found.finding();
  const Json report{{"step", finding.step},
                    {"shard", finding.shard},
                    {"message", found.what()},
                    {"blamed", finding.blamed},
                    {"value", finding.value}};
  write_findings(audit, report.dump(2) + '\n');
}

void MetricsFile::write_findings(std::string_view check, const std::string& text) const {
  try {
    NewFile file{findings_of(check), fmt::format("the findings of the {} in", check)};
    file.write(std::as_bytes(std::span{text}));
    file.commit();
  } catch (const CheckpointError& error) {
    log::error(error.what());
  }
}

}  // namespace lockstep
