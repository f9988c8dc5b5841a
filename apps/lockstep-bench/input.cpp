#include "apps/lockstep-bench/input.hpp"

#include <fstream>
#include <system_error>
#include <vector>

#include "apps/lockstep-bench/mpi_baseline.hpp"
#include "apps/lockstep-bench/timing.hpp"
#include "apps/lockstep-train/trainer.hpp"

namespace lockstep::bench {
namespace {

namespace fs = std::filesystem;

/// The bytes that this process has read so far, from wherever the system had them. 0 if the system does not say.
double bytes_read() {
  std::ifstream counters{"/proc/self/io"};
  std::string name;
  double read = 0;
  return counters >> name >> read && name == "rchar:" ? read : 0;
}

/// Of the file, or of the files in the folder.
std::int64_t bytes_of(const fs::path& data) {
  std::error_code ignored;
  if (!fs::is_directory(data, ignored)) return static_cast<std::int64_t>(fs::file_size(data, ignored));
  std::int64_t bytes = 0;
  std::error_code unreadable;
  for (fs::directory_iterator entry{data, unreadable}, end; !unreadable && entry != end; entry.increment(unreadable))
    if (entry->is_regular_file(ignored)) bytes += static_cast<std::int64_t>(entry->file_size(ignored));
  return bytes;
}

TrainingOptions one_step(const InputOptions& options) {
  TrainingOptions training{.data = options.data, .model = options.model};
  training.data_memory_bytes = options.memory_bytes;
  if (options.model == ModelKind::mlp) training.hidden = {1};
  if (options.model == ModelKind::gpt) {
    training.layers = training.heads = 1;
    training.embed = 8;
  }
  training.steps = 1;
  training.evaluation_samples = 1;
  training.progress = ShowProgress::no;
  return training;
}

}  // namespace

std::string bench_input(Runtime& runtime, const InputOptions& options, const AddRow& add) {
  MpiBaseline mpi;
  mpi.barrier();
  const double before = bytes_read();
  const double time = microseconds([&] {
    (void)Trainer{runtime.strategy(), runtime.device_name(), one_step(options)}.train();
  });
  const double read = bytes_read() - before;
  // Each node's ranks have a share of one in the number of nodes.
  const std::vector<double> mean = mpi.mean({read, 1.0 / mpi.ranks_on_node()});
  const double of_node = mean[0] / mean[1];
  const std::int64_t bytes = bytes_of(options.data);
  add({{"data", "B", bytes, Place::column, 13},
       {"read", "B/node", static_cast<std::int64_t>(of_node), Place::column, 13},
       {"ratio", "read/data", of_node / static_cast<double>(bytes)},
       {"first_step", "s", mpi.largest({time / 1e6})[0]}});
  return {};
}

}  // namespace lockstep::bench
