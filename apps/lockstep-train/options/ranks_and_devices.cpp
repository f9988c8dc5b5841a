#include <chrono>
#include <string>

#include "apps/lockstep-train/options/option_setters.hpp"
#include "apps/lockstep-train/options/option_table.hpp"
#include "apps/options/reduction_values.hpp"
#include "core/cluster/device_binding.hpp"
#include "core/cluster/device_list.hpp"
#include "core/order/shard_request.hpp"
#include "models/ops/kernel_choice.hpp"

namespace lockstep {
namespace {

/// The runtime reads it again, when it knows the GPUs.
std::string parse_device(const std::string& option, const std::string& text) {
  (void)parse_device_request(text, option);
  return text;
}

std::string parse_devices(const std::string& option, const std::string& text) {
  (void)DeviceList::parse(text, option);
  return text;
}

/// Whoever asks for a number wants results that do not depend on the number of ranks.
void set_shards(CommandLine& line, const std::string&, const std::string& text) {
  line.training.shards = ShardRequest::parse(text);
  if (line.training.shards.kind == ShardRequest::Kind::count)
    line.runtime.reductions.kind = ReductionOptions::Kind::fixed_order;
}

void set_compression(CommandLine& line, const std::string& option, const std::string& text) {
  line.runtime.reductions.gradient_compression = parse_compression(option, text);
}

void share_optimizer(CommandLine& line, const std::string&, const std::string&) {
  line.runtime.reductions.shard_optimizer = true;
}

std::chrono::duration<double> parse_timeout(const std::string& option, const std::string& text) {
  const std::chrono::duration<double> timeout{parse_positive(option, text)};
  if (timeout > std::chrono::hours{24 * 365})
    throw ConfigError{fmt::format("{} {}: expected at most a year (31536000)", option, shown(text))};
  return timeout;
}

RuntimeOptions::OnStall parse_on_stall(const std::string& option, const std::string& text) {
  return parse_choice<RuntimeOptions::OnStall>(
      option, text, {{"end", RuntimeOptions::OnStall::end}, {"observe", RuntimeOptions::OnStall::observe}});
}

RuntimeOptions::MpiThreads parse_mpi_threads(const std::string& option, const std::string& text) {
  return parse_choice<RuntimeOptions::MpiThreads>(
      option, text, {{"any", RuntimeOptions::MpiThreads::any}, {"main", RuntimeOptions::MpiThreads::main}});
}

}  // namespace

OptionGroup rank_and_device_options() {
  return {
      "Ranks and devices",
      {
          {.name = "--cluster-spec",
           .value_name = "FILE",
           .help = "JSON that says which task each rank is (default: TF_CONFIG, or one task per rank if that is not "
                   "set)",
           .set = set(&RuntimeOptions::cluster_spec, parse_file_name)},
          {.name = "--device",
           .value_name = "auto|cpu|cuda",
           .help = "What each rank computes on (default auto)",
           .set = set(&RuntimeOptions::device, parse_device),
           .elsewhere = {"gpu", "gpus"}},
          {.name = "--devices",
           .value_name = "LIST",
           .help = "Devices of the ranks of each node, in order, such as 0,2 or GPU-<UUID>,GPU:1; or of all tasks, "
                   "such as /job:worker/task:0/device:GPU:2,... (default: the first GPUs of the node)",
           .set = set(&RuntimeOptions::devices, parse_devices)},
          {.name = "--shards",
           .value_name = "V|ranks",
           .help = "Slices of every batch. The result depends on them, not on the number of ranks. 'ranks' means one "
                   "per rank, the fastest (default 8, on GPUs 'ranks')",
           .set = set_shards},
          {.name = "--compress-gradients",
           .value_name = compression_values,
           .help = compression_help,
           .set = set_compression,
           .use = OptionUse::training},
          {.name = "--shard-optimizer",
           .help = shard_optimizer_help,
           .set = share_optimizer,
           .use = OptionUse::training},
          {.name = "--allow-shared-gpu",
           .help = "For tests: let ranks share GPUs if a node has too few",
           .set = set_to(&RuntimeOptions::allow_shared_gpu, true)},
          {.name = "--threads",
           .value_name = "T",
           .help = "Threads per rank (default 1)",
           .set = set(&TrainingOptions::threads, count(1, 1024))},
          {.name = "--kernels",
           .value_name = "auto|reference|onednn|cuda",
           .help = "Kernels to compute with (default auto)",
           .set = set(&TrainingOptions::kernels, named(ops::parse_kernel_choice))},
          {.name = "--stall-timeout",
           .value_name = "SECONDS",
           .help = "How long a rank may be silent, late, or stuck in its GPU or its driver before the job ends "
                   "(default 60)",
           .set = set(&RuntimeOptions::stall_timeout, parse_timeout)},
          {.name = "--on-stall",
           .value_name = "end|observe",
           .help =
               "What a silent or late rank does to the job: ends it, or only makes a warning, once (default end). A "
               "rank that is gone ends the job in any case",
           .set = set(&RuntimeOptions::on_stall, parse_on_stall)},
          {.name = "--mpi-threads",
           .value_name = "any|main",
           .help = "Threads of a rank that may call MPI (default any). 'main' asks for MPI_THREAD_FUNNELED, for builds "
                   "of UCX, UCC or hcoll that refuse MPI_THREAD_MULTIPLE",
           .set = set(&RuntimeOptions::mpi_threads, parse_mpi_threads)},
          {.name = "--network",
           .value_name = "CIDR",
           .help = "Network, such as 10.77.0.0/24, in which ranks of different nodes send each other heartbeats "
                   "(default: that of btl_tcp_if_include, or any)",
           .set = set(&RuntimeOptions::network, parse_network_name)},
      }};
}

}  // namespace lockstep
