#include "apps/lockstep-bench/command_line.hpp"

#include <limits>
#include <utility>

#include <fmt/format.h>

#include "apps/options/option_parser.hpp"
#include "apps/options/option_values.hpp"
#include "apps/options/reduction_values.hpp"
#include "apps/options/run_command_line.hpp"
#include "core/base/element_type.hpp"
#include "core/cluster/device_binding.hpp"
#include "core/order/shard_request.hpp"

namespace lockstep::bench {
namespace {

// What one MPI_Allreduce can count in elements of 4 bytes, rounded down to a power of two.
constexpr std::int64_t most_bytes = std::int64_t{1} << 32;
// The same in bytes, which is how it counts messages.
constexpr std::int64_t most_message_bytes = std::int64_t{1} << 30;
constexpr std::int64_t most_iterations = 1000000;
// A benchmark keeps several batches in memory.
constexpr std::int64_t largest_global_batch = 16384;
constexpr std::int64_t most_hidden = 16384;
// Each has a thread.
constexpr int most_simulated = 4096;

/// ConfigError unless sizes are whole elements and the first is not above the last.
template <class Options>
void require_sizes(const Options& options, DType dtype) {
  const auto element_bytes = static_cast<std::int64_t>(size_of(dtype));
  if (options.min_bytes % element_bytes != 0)
    throw ConfigError{fmt::format("--min-bytes {}: expected a multiple of {}, the bytes of one {}", options.min_bytes,
                                  element_bytes, name_of(dtype))};
  if (options.min_bytes > options.max_bytes)
    throw ConfigError{fmt::format("--min-bytes {} is above --max-bytes {}: expected at most the latter",
                                  options.min_bytes, options.max_bytes)};
}

void add_json(OptionParser& parser, std::filesystem::path& json) {
  parser.option("--json", "FILE", "Write the table to FILE as JSON, in the same units",
                [&](const std::string& option, const std::string& text) { json = parse_file_name(option, text); });
}

/// The options of a benchmark of several sizes, which are at most `limit`.
template <class Options>
void add_sizes(OptionParser& parser, Options& options, std::int64_t limit) {
  parser.option("--min-bytes", "N",
                fmt::format("First size, such as 8 or 64K; each is twice the previous one (default {})",
                            size_text(options.min_bytes)),
                [&options, limit](const std::string& option, const std::string& text) {
                  options.min_bytes = parse_bytes(option, text, limit);
                });
  parser.option("--max-bytes", "N",
                fmt::format("Upper limit of the sizes, such as 1M or 1G (default {})", size_text(options.max_bytes)),
                [&options, limit](const std::string& option, const std::string& text) {
                  options.max_bytes = parse_bytes(option, text, limit);
                });
}

/// The options of every benchmark.
void add_run(OptionParser& parser, CommandLine& line) {
  add_json(parser, line.json);
  parser.option(
      "--network", "CIDR",
      "Network, such as 10.77.0.0/24, for heartbeats between nodes (default: MPI's btl_tcp_if_include, else any)",
      [&](const std::string& option, const std::string& text) {
        line.runtime.network = parse_network_name(option, text);
      });
}

/// The options of a benchmark that iterates.
template <class Options>
void add_common(OptionParser& parser, Options& options, CommandLine& line) {
  const Options defaults;
  parser.option("--warm-up", "N", fmt::format("Warm-up iterations, which do not count (default {})", defaults.warm_up),
                [&](const std::string& option, const std::string& text) {
                  options.warm_up = parse_count(option, text, 0, most_iterations);
                });
  parser.option("--iterations", "N",
                fmt::format("Iterations that count; times are medians over them (default {})", defaults.iterations),
                [&](const std::string& option, const std::string& text) {
                  options.iterations = parse_count(option, text, 1, most_iterations);
                });
  add_run(parser, line);
}

/// A benchmark of messages of several sizes.
template <class Options>
void add_messages(OptionParser& parser, const std::string& about, Options& options, CommandLine& line) {
  parser.command(Options::name, about);
  add_sizes(parser, options, most_message_bytes);
  add_common(parser, options, line);
}

/// What is trained.
void add_model(OptionParser& parser, StepOptions& step) {
  parser.option("--model", "mlp|convnet|gpt", "Model to train, on random samples (default mlp)",
                [&step](const std::string& option, const std::string& text) {
                  step.model = parse_choice<StepModel>(
                      option, text,
                      {{"mlp", StepModel::mlp}, {"convnet", StepModel::convnet}, {"gpt", StepModel::gpt}});
                });
  parser.option("--global-batch", "N", "Samples per step over all ranks (default 256, for convnet 128, for gpt 16)",
                [&step](const std::string& option, const std::string& text) {
                  step.global_batch = parse_count(option, text, 1, largest_global_batch);
                });
  parser.option("--hidden", "N", fmt::format("Units in each hidden layer of the mlp (default {})", step.hidden),
                [&step](const std::string& option, const std::string& text) {
                  step.hidden = parse_count(option, text, 1, most_hidden);
                });
}

/// What is trained, and by how many threads.
void add_trained(OptionParser& parser, StepOptions& step) {
  add_model(parser, step);
  parser.option("--threads", "T", "Threads of each rank (default 1)",
                [&step](const std::string& option, const std::string& text) {
                  step.threads = static_cast<int>(parse_count(option, text, 1, 1024));
                });
}

void add_predict(OptionParser& parser, PredictOptions& predict, CommandLine& line) {
  add_trained(parser, predict.step);
  parser.option("--nodes", "N,...", "Numbers of nodes, with one rank on each (default 2,3,4)",
                [&](const std::string& option, const std::string& text) { predict.nodes = parse_nodes(option, text); });
  parser.option("--rate", "RATE,...",
                "Of the wire of each node, such as 100mbit, the last for all further ones; or what a sum sends there, "
                "such as 8.6MB/s, the column sum of network (default: measured between the ranks of this job)",
                [&](const std::string& option, const std::string& text) {
                  const double delay = predict.links ? predict.links->delay : 0;
                  predict.links = parse_links(option, text);
                  predict.links->delay = delay;
                });
  parser.option("--delay", "TIME", "From one node to another, such as 1ms, with --rate (default 0)",
                [&](const std::string& option, const std::string& text) {
                  if (!predict.links) predict.links.emplace();
                  predict.links->delay = parse_delay(option, text);
                });
  parser.option("--shared-cores", "N", "Cores that all nodes share, as those of scripts/nodes (default: none)",
                [&](const std::string& option, const std::string& text) {
                  predict.shared_cores = static_cast<int>(parse_count(option, text, 1, 1024));
                });
  add_common(parser, predict, line);
}

void add_scale(OptionParser& parser, ScaleOptions& scale, CommandLine& line) {
  parser.command(ScaleOptions::name,
                 "How costs grow with the ranks: messages, bytes and time of agreements, sums, a step and a death, of "
                 "ranks that are simulated in one process, in virtual time");
  parser.option("--ranks", "N,...", "Numbers of ranks, up to 4096 each (default 2,8,64,512,4096)",
                [&](const std::string& option, const std::string& text) {
                  scale.ranks = parse_counts(option, text, "ranks", most_simulated);
                });
  parser.option("--per-node", "N", fmt::format("Ranks of each node (default {})", scale.ranks_per_node),
                [&](const std::string& option, const std::string& text) {
                  scale.ranks_per_node = static_cast<int>(parse_count(option, text, 1, most_simulated));
                });
  parser.option("--bytes", "SIZE,...", "Sizes of the sums, such as 8,64K,1M (default 8,1M)",
                [&](const std::string& option, const std::string& text) {
                  scale.bytes = parse_sizes(option, text, most_message_bytes);
                });
  parser.option("--gradients", "SIZE",
                fmt::format("Gradients of the step (default {})", size_text(scale.gradient_bytes)),
                [&](const std::string& option, const std::string& text) {
                  scale.gradient_bytes = parse_bytes(option, text, most_message_bytes);
                });
  parser.option("--delay", "TIME", "From one node to another, at most 100ms (default 5us)",
                [&](const std::string& option, const std::string& text) { scale.delay = parse_delay(option, text); });
  parser.option(
      "--rate", "RATE", "Of the wire of each node, such as 10gbit or 1250MB/s (default 1250MB/s)",
      [&](const std::string& option, const std::string& text) { scale.rate = parse_links(option, text).rates.back(); });
  parser.option("--seed", "N", "Another order in which the ranks take their turns (default 0)",
                [&](const std::string& option, const std::string& text) {
                  scale.seed = static_cast<std::uint64_t>(parse_count(option, text, 0));
                });
  parser.option("--watched", "N",
                fmt::format("Up to so many ranks, their watchdogs run as well (default {})", scale.watched),
                [&](const std::string& option, const std::string& text) {
                  scale.watched = static_cast<int>(parse_count(option, text, 0, most_simulated));
                });
  add_json(parser, line.json);
}

void add_exact_sum(OptionParser& parser, ExactSumOptions& exact_sum, CommandLine& line) {
  parser.command(ExactSumOptions::name,
                 "What it costs that sums are exact: of one number and of arrays over all ranks, beside sums in the "
                 "fixed order; and of a rank's own numbers, beside reading them");
  parser.option("--bytes", "N",
                fmt::format("Size of the arrays, such as 64K or 1M (default {})", size_text(exact_sum.bytes)),
                [&](const std::string& option, const std::string& text) {
                  exact_sum.bytes = parse_bytes(option, text, most_message_bytes);
                });
  parser.option("--local-bytes", "N",
                fmt::format("Size of a rank's own numbers (default {}, which caches seldom hold)",
                            size_text(exact_sum.local_bytes)),
                [&](const std::string& option, const std::string& text) {
                  exact_sum.local_bytes = parse_bytes(option, text, most_message_bytes);
                });
  add_common(parser, exact_sum, line);
}

/// ConfigError unless there are whole numbers of f64.
ExactSumOptions exact_sum_of(ExactSumOptions options) {
  for (const auto& [option, bytes] : {std::pair{"--bytes", options.bytes}, {"--local-bytes", options.local_bytes}})
    if (bytes % 8 != 0)
      throw ConfigError{fmt::format("{} {}: expected a multiple of 8, the bytes of one f64", option, bytes)};
  return options;
}

NetworkOptions network_of(NetworkOptions options, const RuntimeOptions& runtime) {
  require_sizes(options, DType::f32);
  options.network = runtime.network;
  return options;
}

RequestOptions requests_of(RequestOptions options) {
  require_sizes(options, DType::f32);
  return options;
}

StepOptions step_of(StepOptions options, const RuntimeOptions& runtime) {
  options.reductions = runtime.reductions;
  return options;
}

/// ConfigError unless sums are of whole f32, and messages arrive before the next measurement.
ScaleOptions scale_of(ScaleOptions options) {
  constexpr double longest_delay = 100;
  for (const std::int64_t bytes : options.bytes)
    if (bytes % 4 != 0)
      throw ConfigError{fmt::format("--bytes {}: expected a multiple of 4, the bytes of one f32", bytes)};
  if (options.gradient_bytes % 4 != 0)
    throw ConfigError{
        fmt::format("--gradients {}: expected a multiple of 4, the bytes of one f32", options.gradient_bytes)};
  if (options.delay > longest_delay)
    throw ConfigError{fmt::format("--delay {}ms: expected at most {}ms", options.delay, longest_delay)};
  return options;
}

PredictOptions predict_of(PredictOptions options) {
  if (options.links && options.links->rates.empty())
    throw ConfigError{"--delay without --rate: expected both, or none in a job of several nodes, which measures them"};
  return options;
}

}  // namespace

CommandLine parse_command_line(int argc, const char* const* argv) {
  CommandLine line;
  AllReduceOptions all_reduce;
  MergeCallOptions merge_call;
  RequestOptions requests;
  ExactSumOptions exact_sum;
  NetworkOptions network;
  StepOptions step;
  ArithmeticOptions arithmetic;
  PredictOptions predict;
  InputOptions input;
  ScaleOptions scale;
  WatchdogOptions watchdog;
  OptionParser parser{
      "lockstep-bench",
      "Measures what lockstep costs, compared with MPI in the same run.\n\n"
      "  mpirun -n 2 lockstep-bench all-reduce --max-bytes 1M\n"
      "  mpirun -n 2 lockstep-bench merge-call --json merge-call.json\n"
      "  mpirun -n 2 lockstep-bench step --model convnet\n\n"
      "The table goes to stdout, everything else to stderr.\n"
      "Exit codes: 0 done, 1 a sum or a number of messages was not as expected, 2 wrong input, 3 the ranks disagreed, "
      "4 a rank failed, 5 a rank stalled, 7 a file could not be written."};

  parser.command(AllReduceOptions::name, "Time of a sum over all ranks, by size");
  add_sizes(parser, all_reduce, most_bytes);
  parser.option("--dtype", "f32|f64", "Type of the elements (default f32)",
                [&](const std::string& option, const std::string& text) {
                  all_reduce.dtype = parse_choice<DType>(option, text, {{"f32", DType::f32}, {"f64", DType::f64}});
                });
  parser.option("--device", "auto|cpu|cuda", "Where the tensors are (default auto)",
                [&](const std::string& option, const std::string& text) {
                  parse_device_request(text, option);
                  line.runtime.device = text;
                });
  parser.flag("--allow-shared-gpu", "For tests: let ranks share GPUs if a node has too few",
              [&] { line.runtime.allow_shared_gpu = true; });
  parser.flag("--limit", "Also measure ordinary memory, and how fast all ranks at once copy and add",
              [&] { all_reduce.limit = true; });
  parser.option("--explain", "SIZE", "Measure nothing: show which way a sum of SIZE bytes goes, and what it costs",
                [&](const std::string& option, const std::string& text) {
                  all_reduce.explain = parse_bytes(option, text, most_bytes);
                });
  add_common(parser, all_reduce, line);

  parser.command(MergeCallOptions::name, "Cost of a merge_call that does nothing");
  parser.option("--merges", "K", fmt::format("merge_calls per run (default {})", merge_call.merges),
                [&](const std::string& option, const std::string& text) {
                  merge_call.merges = parse_count(option, text, 1, most_iterations);
                });
  parser.option("--steps", "K", "Also time K runs of one merge_call, with two agreements each as a training step has",
                [&](const std::string& option, const std::string& text) {
                  merge_call.steps = parse_count(option, text, 1, most_iterations);
                });
  add_common(parser, merge_call, line);

  add_messages(
      parser,
      "Time of a sum that is submitted and waited for, beside one that blocks, by size; and what waiting for a "
      "late rank takes",
      requests, line);
  add_exact_sum(parser, exact_sum, line);
  add_messages(parser,
               "What the links between nodes carry, one way and both ways, by TCP streams, by MPI and in a sum. Start "
               "one rank on each node. Hosts with several networks need --network, which TCP streams use too",
               network, line);

  parser.command(
      StepOptions::name,
      "Parts of a training step, with shards and with one shard per rank. A rank that is ahead of the others waits "
      "for them before each sum and agreement, which counts as waiting");
  add_trained(parser, step);
  parser.option("--shards", "V|ranks", "Shards to compare with one shard per rank (default 8)",
                [&](const std::string&, const std::string& text) { step.shards = ShardRequest::parse(text); });
  parser.option("--precision", "full|bf16",
                "full (default), or bf16, which is compared with full in the place of one shard per rank",
                [&](const std::string& option, const std::string& text) {
                  step.precision = parse_choice<nn::Model::Precision>(
                      option, text, {{"full", nn::Model::Precision::full}, {"bf16", nn::Model::Precision::bf16}});
                });
  parser.option("--compress-gradients", compression_values, compression_help,
                [&](const std::string& option, const std::string& text) {
                  line.runtime.reductions.gradient_compression = parse_compression(option, text);
                });
  parser.flag("--shard-optimizer", shard_optimizer_help, [&] { line.runtime.reductions.shard_optimizer = true; });
  parser.option("--steps", "K", fmt::format("Steps of each of the two per iteration (default {})", step.steps),
                [&](const std::string& option, const std::string& text) {
                  step.steps = parse_count(option, text, 1, most_iterations);
                });
  parser.option("--compare", "shards|kernels|trace|parts|audit|ledger|overlap",
                "What the steps alternate with: one shard per rank (shards, default); the usual kernels instead of "
                "the reference kernels (kernels); the same steps without a trace (trace), without the clock of a "
                "step's parts (parts), or without sums between nodes that start before all gradients are ready "
                "(overlap); or, after each --steps, a step that is audited (audit) or has an entry in the ledger "
                "(ledger). Only with shards and kernels is a step broken down into parts",
                [&](const std::string& option, const std::string& text) {
                  using Compare = StepOptions::Compare;
                  step.compare = parse_choice<Compare>(option, text,
                                                       {{"shards", Compare::shards},
                                                        {"kernels", Compare::kernels},
                                                        {"trace", Compare::trace},
                                                        {"parts", Compare::parts},
                                                        {"audit", Compare::audit},
                                                        {"ledger", Compare::ledger},
                                                        {"overlap", Compare::overlap}});
                });
  parser.option(
      "--checkpoint-dir", "DIR", "Also save checkpoints in DIR, and measure for how long steps wait for them",
      [&](const std::string& option, const std::string& text) { step.checkpoints = parse_file_name(option, text); });
  add_common(parser, step, line);

  parser.command(ArithmeticOptions::name,
                 "How fast the matrix products of a model's dense layers are, beside the BLAS libraries of this "
                 "machine and what a "
                 "core can compute");
  add_model(parser, arithmetic.step);
  parser.option(
      "--shards", "V|ranks", "Shards of the global batch (default 8)",
      [&](const std::string&, const std::string& text) { arithmetic.step.shards = ShardRequest::parse(text); });
  add_common(parser, arithmetic, line);

  parser.command(
      PredictOptions::name,
      "How long a training step will take on a number of nodes, and what limits it. Measures the step of one "
      "rank, and takes the links from --rate and --delay or measures those of the job");
  add_predict(parser, predict, line);

  parser.command(InputOptions::name,
                 "Bytes of data that a node reads, and the time until the first step of a training is done");
  parser.option(
      "--data", "PATH", "Data as lockstep-train takes them (required)",
      [&](const std::string& option, const std::string& text) { input.data = parse_file_name(option, text); });
  parser.option("--model", "mlp|convnet|gpt", "Model that takes them; a small one is trained (default mlp)",
                [&](const std::string& option, const std::string& text) {
                  input.model = parse_choice<ModelKind>(
                      option, text,
                      {{"mlp", ModelKind::mlp}, {"convnet", ModelKind::convnet}, {"gpt", ModelKind::gpt}});
                });
  parser.option("--data-memory", "SIZE", "As for lockstep-train (default 1G)",
                [&](const std::string& option, const std::string& text) {
                  input.memory_bytes =
                      static_cast<std::uint64_t>(parse_bytes(option, text, std::numeric_limits<std::int64_t>::max()));
                });
  add_run(parser, line);

  parser.command(WatchdogOptions::name, "Cost of being watched: a change of phase, and the watchdog's thread");
  parser.option("--seconds", "N",
                fmt::format("How long to measure the thread's CPU time (default {})", watchdog.seconds),
                [&](const std::string& option, const std::string& text) {
                  watchdog.seconds = parse_count(option, text, 1, most_iterations);
                });
  add_run(parser, line);

  add_scale(parser, scale, line);

  line.answer = parser.parse(argc, argv);
  if (line.answer) return line;
  if (parser.chosen() == InputOptions::name && input.data.empty())
    throw ConfigError{"--data is missing: expected data as lockstep-train takes them"};
  if (step.compare != StepOptions::Compare::shards && !step.checkpoints.empty())
    throw ConfigError{
        "--checkpoint-dir with --compare kernels, trace, parts, audit, ledger or overlap: expected --compare shards"};
  if (parser.chosen() == AllReduceOptions::name) {
    require_sizes(all_reduce, all_reduce.dtype);
    line.benchmark = all_reduce;
  } else {
    if (parser.chosen() == MergeCallOptions::name)
      line.benchmark = merge_call;
    else if (parser.chosen() == RequestOptions::name)
      line.benchmark = requests_of(requests);
    else if (parser.chosen() == ExactSumOptions::name)
      line.benchmark = exact_sum_of(exact_sum);
    else if (parser.chosen() == NetworkOptions::name)
      line.benchmark = network_of(network, line.runtime);
    else if (parser.chosen() == StepOptions::name)
      line.benchmark = step_of(step, line.runtime);
    else if (parser.chosen() == ArithmeticOptions::name)
      line.benchmark = arithmetic;
    else if (parser.chosen() == PredictOptions::name)
      line.benchmark = predict_of(predict);
    else if (parser.chosen() == InputOptions::name)
      line.benchmark = input;
    else if (parser.chosen() == ScaleOptions::name)
      line.benchmark = scale_of(scale);
    else
      line.benchmark = watchdog;
    line.runtime.device = "cpu";  // agreements are the host's, and a GPU still works on a step when the host goes on
  }
  line.runtime.program_options = words_of(argc, argv);
  return line;
}

}  // namespace lockstep::bench
