#include "record/metrics_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/base/hex.hpp>
#include <lockstep/base/log.hpp>

#include "base/file_io.hpp"
#include "base/file_type.hpp"
#include "base/foreign_json.hpp"
#include "checkpoint/file.hpp"
#include "checkpoint/folder_lock.hpp"
#include "record/evaluation_json.hpp"

namespace lockstep {

using Json = nlohmann::ordered_json;

namespace {

// Checks with findings of their own.
constexpr std::string_view attestation = "attestation", audit = "audit";

/// A file that holds something else would be lost. Devices and pipes hold nothing.
void require_replaceable(const std::filesystem::path& path, const std::string& name) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::file_size(path, error) == 0) return;
  constexpr std::string_view begin = R"({"kind":")";
  std::string found(begin.size(), ' ');
  std::ifstream{path}.read(found.data(), static_cast<std::streamsize>(found.size()));
  if (found != begin)
    throw ConfigError{fmt::format(
        "{}: is a file of something else, which would be lost; expected a new file, or one of metrics", name)};
}

/// No fault of what the user gave, which is found before.
[[noreturn]] void fail_to_write(const std::string& name, const std::string& why) {
  throw CheckpointError{fmt::format("{}: cannot be written: {}", name, why)};
}

// Far more than a line of metrics takes: the longest are those about 10,000 replicas.
constexpr std::streamsize longest_line = 1 << 22;

/// A line. Error, in words that follow its place, if it is none of metrics.
OrderedJson parse_line(const std::string& line) {
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

/// The lines of a file of metrics about some steps.
struct KeptLines {
  std::string text = {};
  std::int64_t samples = 0;  ///< as the last line about a step says
};

/// Those about the first `steps` steps. A killed run may have cut its last line.
KeptLines lines_until(const std::filesystem::path& path, std::int64_t steps, const std::string& name) {
  KeptLines kept;
  std::string buffer(longest_line, '\0');
  std::error_code error;
  if (steps == 0 || !std::filesystem::is_regular_file(path, error)) return kept;
  std::ifstream file{path};
  for (std::int64_t number = 1; file.getline(buffer.data(), longest_line) || file.gcount() > 0; ++number) {
    const bool is_last = file.eof(), fits = !file.fail();
    const auto bytes = static_cast<std::size_t>(file.gcount()) - (fits && !is_last ? 1 : 0);  // without its end
    const std::string line = buffer.substr(0, bytes);
    try {
      if (!fits) throw Error{fmt::format("has more than {} bytes", longest_line - 1)};
      const OrderedJson metrics = parse_line(line);
      if (metrics["step"].get<std::int64_t>() > steps) continue;
      kept.text += line + '\n';
      if (const auto samples = metrics.find("samples"); samples != metrics.end() && samples->is_number_integer())
        kept.samples = *samples;
    } catch (const Error& fault) {
      if (is_last) break;
      throw ConfigError{fmt::format("{}:{}: {}; expected a line of metrics, as lockstep-train writes it, or a new file",
                                    name, number, fault.what())};
    }
  }
  return kept;
}

/// As a whole: whoever is killed here leaves the old lines or the new ones.
void replace(const std::filesystem::path& path, const std::string& text, const std::string& what, ExclusiveUse* use) {
  std::optional<NewFile> file;
  try {
    file.emplace(path, what);
  } catch (const CheckpointError& error) {
    if (is_full(errno)) throw;
    throw ConfigError{error.what()};
  }
  file->write(std::as_bytes(std::span{text}));
  if (use) use->extend_to(file->descriptor());
  file->commit();
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
    : path_{std::move(path)}, name_{fmt::format("{} {}", name, path_.string())}, use_{use_of(path_, name_)} {
  require_replaceable(path_, name_);
  const KeptLines kept = lines_until(path_, steps, name_);
  samples_before_ = kept.samples;
  if (!kept.text.empty()) replace(path_, kept.text, name, use_.get());
  std::string why;
  file_.reset(open_output(path_, kept.text.empty() ? OpenOutput::empty : OpenOutput::at_end, why));
  if (!file_ && is_full(errno)) fail_to_write(name_, why);
  if (!file_) throw ConfigError{fmt::format("{}: {}; expected a file that can be written", name_, why)};
  for (const std::string_view check : {attestation, audit}) {
    const std::filesystem::path findings = findings_of(check);
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
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fputc('\n', file_.get()) < 0 || std::fflush(file_.get()) != 0)
    fail_to_write(name_, std::strerror(errno));
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
