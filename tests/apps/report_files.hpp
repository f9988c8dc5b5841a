// Files of runs for the tests of lockstep-report.
#pragma once

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/lockstep-report/json_members.hpp"
#include "apps/lockstep-report/page.hpp"
#include "apps/lockstep-report/run.hpp"

namespace lockstep::test::report_files {

using lockstep::report::page_data;
using lockstep::report::read_runs;

inline constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

inline void write(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream{path, std::ios::binary} << text;
}

inline std::string train_line(std::int64_t step, double seconds, std::string_view loss = "0.5", int batch = 64) {
  return fmt::format(
      R"({{"kind":"train","step":{},"epoch":1,"samples":{},"batch":{},"loss":{},"learning_rate":0.1,"gradient_norm":2,"seconds":{},"samples_per_second":1}})"
      "\n",
      step, 64 * step, batch, loss, seconds);
}

inline std::string eval_line(std::int64_t step, double loss) {
  return fmt::format(R"({{"kind":"eval","step":{},"epoch":1,"loss":{},"accuracy":0.75,"seconds":0.5}})"
                     "\n",
                     step, loss);
}

struct RankParts {
  std::string name, host;
  double data = 0.1, late = 0, checkpoint = 0, evaluation = 0.1, waiting = 0.3, queued = 0;
};

inline std::string parts_line(std::int64_t step, const std::vector<RankParts>& ranks) {
  std::string line = fmt::format(R"({{"kind":"parts","step":{},"steps":10,"seconds":2,"ranks":[)", step);
  for (std::size_t i = 0; i < ranks.size(); ++i)
    line += fmt::format(
        R"({}{{"replica":{},"name":"{}","host":"{}","data":{},"forward":0.2,"backward":0.4,"optimizer":0.1,"checkpoint":{},"evaluation":{},"other":0,"waiting":{},"queued":{},"late":{},"mostly":"data"}})",
        i > 0 ? "," : "", i, ranks[i].name, ranks[i].host, ranks[i].data, ranks[i].checkpoint, ranks[i].evaluation,
        ranks[i].waiting, ranks[i].queued, ranks[i].late);
  return line + "]}\n";
}

inline const std::string some_timeline =
    R"({"kind":"start","time":1000,"start":1,"ranks":2,"step":0,"resumed":false})"
    "\n"
    R"({"kind":"checkpoint","time":1010.5,"start":1,"step":10,"seconds":0.5,"path":"step-10"})"
    "\n"
    R"({"kind":"failure","time":1012,"start":1,"line":"lockstep: replica 1 is gone","exit_code":137})"
    "\n"
    R"({"kind":"start","time":1020,"start":2,"ranks":2,"step":10,"resumed":true})"
    "\n"
    R"({"kind":"end","time":1030,"start":2,"step":20})"
    "\n";

/// All three files of a run.
inline std::filesystem::path make_run(const std::filesystem::path& folder) {
  write(
      folder / "run.json",
      R"({"format":1,"lockstep":"0.1.0","options":{"model":"mlp","seed":"1"},"ranks":[{"replica":0,"host":"a"}],"ended":null})");
  std::string metrics;
  for (int step = 1; step <= 20; ++step) metrics += train_line(step, 0.1 * step);
  write(folder / "metrics.jsonl",
        metrics + eval_line(20, 0.25) + parts_line(20, {{"worker:0", "a"}, {"worker:1", "b", 0.5, 0.11}}));
  write(folder / "timeline.jsonl", some_timeline);
  return folder;
}

inline OrderedJson data_of(const std::vector<std::filesystem::path>& paths) {
  return OrderedJson::parse(page_data(read_runs(paths)));
}

inline std::string all(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace lockstep::test::report_files
