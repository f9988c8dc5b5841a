#include <cerrno>
#include <cstring>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/error.hpp>
#include <lockstep/train/metrics_file.hpp>

namespace lockstep {

using Json = nlohmann::ordered_json;

MetricsFile::MetricsFile(std::filesystem::path path) : path_{std::move(path)}, file_{std::fopen(path_.c_str(), "w")} {
  if (!file_)
    throw ConfigError{
        fmt::format("--metrics {}: {}; expected a file that can be written", path_.string(), std::strerror(errno))};
}

void MetricsFile::write(const std::string& line) {
  if (std::fputs(line.c_str(), file_.get()) < 0 || std::fputc('\n', file_.get()) < 0 || std::fflush(file_.get()) != 0)
    throw Error{fmt::format("metrics file {}: {}", path_.string(), std::strerror(errno))};
}

void MetricsFile::on_step(const StepReport& report) {
  write(Json{{"kind", "train"},
             {"step", report.step},
             {"epoch", report.epoch},
             {"samples", report.samples},
             {"loss", report.loss},
             {"seconds", report.seconds},
             {"samples_per_second", report.samples_per_second}}
            .dump());
}

void MetricsFile::on_evaluation(const EvaluationReport& report) {
  Json line{{"kind", "eval"}, {"step", report.step}, {"epoch", report.epoch}, {"loss", report.loss}};
  if (report.bits_per_byte) line["bits_per_byte"] = *report.bits_per_byte;
  line["accuracy"] = report.accuracy;
  line["seconds"] = report.seconds;
  write(line.dump());
}

}  // namespace lockstep
