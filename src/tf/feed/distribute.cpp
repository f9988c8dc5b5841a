#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>
#include <lockstep/core/base/log.hpp>
#include <lockstep/tf/feed/distribute.hpp>

namespace lockstep::detail {

void require_files(std::size_t files) {
  if (files == 0) throw InvalidArgument{"a dataset of 0 files; expected 1 or more"};
}

bool is_by_file(InputOptions::AutoShard shard) {
  switch (shard) {
    case InputOptions::AutoShard::off:
    case InputOptions::AutoShard::by_element: return false;
    case InputOptions::AutoShard::by_file:
    case InputOptions::AutoShard::automatic: return true;
  }
  return false;  // make_sharded_iterator refuses it
}

std::vector<std::filesystem::path> files_of(const std::vector<std::filesystem::path>& files,
                                            InputOptions::AutoShard shard, const InputContext& context) {
  if (!is_by_file(shard)) return files;
  std::vector<std::filesystem::path> own;
  const auto pipelines = static_cast<std::size_t>(context.num_input_pipelines());
  for (auto file = static_cast<std::size_t>(context.input_pipeline_id()); file < files.size(); file += pipelines)
    own.push_back(files[file]);
  return own;
}

std::string describe_files(std::size_t files, InputOptions::AutoShard shard) {
  return fmt::format("a dataset of {} file{}{}", files, files == 1 ? "" : "s",
                     is_by_file(shard) ? ", sharded by file" : "");
}

void warn_of_files(std::size_t files, InputOptions::AutoShard shard, const InputContext& context) {
  const auto replicas = static_cast<std::size_t>(context.num_input_pipelines());
  if (!is_by_file(shard) || files >= replicas || context.input_pipeline_id() != 0) return;
  log::warning(fmt::format("{} file{} for {} replicas: {}", files, files == 1 ? "" : "s", replicas,
                           files + 1 == replicas ? fmt::format("replica {} gets none", files)
                                                 : fmt::format("replicas {} to {} get none", files, replicas - 1)));
}

}  // namespace lockstep::detail
