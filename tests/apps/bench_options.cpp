// Command lines of lockstep-bench that are refused: what it says of each.
#include <cstdint>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <catch2/catch.hpp>

#include "apps/lockstep-bench/command_line.hpp"
#include "support/refused_options.hpp"

using lockstep::test::check_all_refused;
using lockstep::test::RefusedOptions;

namespace {

void parse(const std::vector<std::string>& arguments) {
  std::vector<const char*> argv{"lockstep-bench"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  (void)lockstep::bench::parse_command_line(static_cast<int>(argv.size()), argv.data());
}

}  // namespace

TEST_CASE("a command line that cannot be read is refused with what is wrong with it") {
  const std::string iterations = "expected a whole number from 1 to 1000000";
  const std::string bytes = "expected a whole number from 1 to 4294967296, such as 65536, 64K, 1M or 1G";
  const std::string nodes = "expected numbers of nodes from 1 to 1024, separated by commas, such as 2,3,4";
  const std::string rates =
      "expected rates of wires, such as 100mbit or 1gbit,500kbit, or measured ones, such as 8.6MB/s";
  const std::vector<RefusedOptions> rows{
      {{},
       {"no command was given: expected all-reduce or merge-call or requests or exact-sum or network or step or "
        "arithmetic or predict or input or watchdog or scale",
        "lockstep-bench --help"}},
      {{"all-scatter"},
       {"there is no command 'all-scatter': expected all-reduce or merge-call or requests or exact-sum or network or "
        "step or arithmetic or predict or input or watchdog or scale"}},
      {{"--iterations", "3"}, {"there is no option --iterations; lockstep-bench --help"}},
      {{"--iterations", "3", "all-reduce"},
       {"'--iterations' comes before the command: expected lockstep-bench all-reduce and its options"}},
      {{"input"}, {"--data is missing: expected data as lockstep-train takes them"}},
      {{"all-reduce", "merge-call"}, {"'merge-call' belongs to no option"}},
      {{"merge-call", "--min-bytes", "8"}, {"there is no option --min-bytes; lockstep-bench merge-call --help"}},
      {{"all-reduce", "--merges", "8"}, {"there is no option --merges; lockstep-bench all-reduce --help"}},
      {{"all-reduce", "--max-byte", "8"},
       {"there is no option --max-byte; did you mean --max-bytes? lockstep-bench all-reduce --help"}},
      {{"all-reduce", "--min-bytes"}, {"--min-bytes has no value: expected --min-bytes N"}},
      {{"all-reduce", "--dtype", "f32", "--dtype", "f32"}, {"--dtype was given more than once: expected it once"}},
      {{"all-reduce", "--min-bytes", "0"}, {"--min-bytes 0: " + bytes}},
      {{"all-reduce", "--min-bytes", "-8"}, {"--min-bytes -8: " + bytes}},
      {{"all-reduce", "--max-bytes", "64MB"}, {"--max-bytes 64MB: " + bytes}},
      {{"all-reduce", "--max-bytes", "64k"}, {"--max-bytes 64k: " + bytes}},
      {{"all-reduce", "--max-bytes", "M"}, {"--max-bytes M: " + bytes}},
      {{"all-reduce", "--max-bytes", "5G"}, {"--max-bytes 5G: " + bytes}},
      {{"all-reduce", "--max-bytes", "4294967297"}, {"--max-bytes 4294967297: " + bytes}},
      {{"all-reduce", "--min-bytes", "16", "--max-bytes", "8"},
       {"--min-bytes 16 is above --max-bytes 8: expected at most the latter"}},
      {{"network", "--min-bytes", "16", "--max-bytes", "8"},
       {"--min-bytes 16 is above --max-bytes 8: expected at most the latter"}},
      {{"requests", "--min-bytes", "6"}, {"--min-bytes 6: expected a multiple of 4, the bytes of one f32"}},
      {{"exact-sum", "--bytes", "12"}, {"--bytes 12: expected a multiple of 8, the bytes of one f64"}},
      {{"exact-sum", "--local-bytes", "1004"}, {"--local-bytes 1004: expected a multiple of 8, the bytes of one f64"}},
      {{"exact-sum", "--bytes", "2G"}, {"--bytes 2G: expected a whole number from 1 to 1073741824,"}},
      {{"network", "--min-bytes", "6"}, {"--min-bytes 6: expected a multiple of 4, the bytes of one f32"}},
      {{"network", "--max-bytes", "2G"}, {"--max-bytes 2G: expected a whole number from 1 to 1073741824,"}},
      {{"network", "--dtype", "f32"}, {"there is no option --dtype; lockstep-bench network --help"}},
      {{"all-reduce", "--min-bytes", "6"}, {"--min-bytes 6: expected a multiple of 4, the bytes of one f32"}},
      {{"all-reduce", "--dtype", "f64", "--min-bytes", "4"}, {"--min-bytes 4: expected a multiple of 8"}},
      {{"all-reduce", "--dtype", "f16"}, {"--dtype f16: expected f32 or f64"}},
      {{"all-reduce", "--device", "gpu"}, {"--device", "expected auto, cpu or cuda"}},
      {{"all-reduce", "--iterations", "0"}, {"--iterations 0: " + iterations}},
      {{"all-reduce", "--warm-up", "-1"}, {"--warm-up -1: expected a whole number from 0 to 1000000"}},
      {{"merge-call", "--merges", "0"}, {"--merges 0: " + iterations}},
      {{"merge-call", "--iterations", "1000001"}, {"--iterations 1000001: " + iterations}},
      {{"merge-call", "--json", ""}, {"--json '': expected the name of a file"}},
      {{"step", "--model", "resnet"}, {"--model resnet: expected mlp or convnet or gpt"}},
      {{"step", "--global-batch", "0"}, {"--global-batch 0: expected a whole number from 1 to 16384"}},
      {{"step", "--hidden", "0"}, {"--hidden 0: expected a whole number from 1 to 16384"}},
      {{"step", "--global-batch", "16385"}, {"--global-batch 16385: expected a whole number from 1 to 16384"}},
      {{"step", "--steps", "0"}, {"--steps 0: " + iterations}},
      {{"step", "--iterations", "0"}, {"--iterations 0: " + iterations}},
      {{"step", "--shards", "0"}, {"--shards is '0'; expected a number up to 1024, or 'ranks'"}},
      {{"step", "--compare", "spans"},
       {"--compare spans: expected shards or kernels or trace or parts or audit or ledger or overlap"}},
      {{"step", "--compare", "trace", "--checkpoint-dir", "here"},
       {"--checkpoint-dir with --compare kernels, trace, parts, audit, ledger or overlap: expected --compare shards"}},
      {{"step", "--compress-gradients", "f32"}, {"--compress-gradients f32: expected f16 or bf16"}},
      {{"arithmetic", "--shard-optimizer"}, {"there is no option --shard-optimizer; lockstep-bench arithmetic --help"}},
      {{"step", "--merges", "1"}, {"there is no option --merges; lockstep-bench step --help"}},
      {{"step", "--device", "cpu"}, {"there is no option --device; lockstep-bench step --help"}},
      {{"predict", "--model", "resnet"}, {"--model resnet: expected mlp or convnet or gpt"}},
      {{"predict", "--nodes", "0"}, {"--nodes 0: " + nodes}},
      {{"predict", "--nodes", "2,,4"}, {"--nodes 2,,4: '': " + nodes}},
      {{"predict", "--nodes", "2,1025"}, {"--nodes 2,1025: 1025: " + nodes}},
      {{"predict", "--rate", ""}, {"--rate '': " + rates}},
      {{"predict", "--rate", "0mbit"}, {"--rate 0mbit: " + rates}},
      {{"predict", "--rate", "nanmbit"}, {"--rate nanmbit: " + rates}},
      {{"predict", "--rate", "100"}, {"--rate 100: " + rates}},
      {{"predict", "--rate", "100mbit,8MB/s"}, {"--rate 100mbit,8MB/s: " + rates}},
      {{"predict", "--rate", "8MB/s", "--delay", "1"}, {"--delay 1: expected a time such as 1ms or 250us"}},
      {{"predict", "--delay", "1ms"}, {"--delay without --rate: expected both"}},
      {{"scale", "--ranks", "2,4097"},
       {"--ranks 2,4097: 4097: expected numbers of ranks from 1 to 4096, separated by commas, such as 2,3,4"}},
      {{"scale", "--bytes", "8,6"}, {"--bytes 6: expected a multiple of 4, the bytes of one f32"}},
      {{"scale", "--bytes", "8,,4"}, {"--bytes '': expected a whole number from 1 to 1073741824,"}},
      {{"scale", "--gradients", "6"}, {"--gradients 6: expected a multiple of 4, the bytes of one f32"}},
      {{"scale", "--delay", "1s"}, {"--delay 1000ms: expected at most 100ms"}},
      {{"scale", "--rate", "fast"}, {"--rate fast: " + rates}},
      {{"predict", "--rate", "8MB/s", "--shared-cores", "0"}, {"--shared-cores 0: expected a whole number from 1"}},
  };
  check_all_refused(rows, parse);
}

TEST_CASE("a command line that is right is read") {
  CHECK_NOTHROW(parse({"all-reduce", "--min-bytes", "8", "--max-bytes", "64", "--dtype", "f64"}));
}

TEST_CASE("step compresses gradients and shares the optimizer as it is told, in all strategies of its job") {
  const char* const argv[] = {"lockstep-bench", "step", "--compress-gradients", "bf16", "--shard-optimizer"};
  const auto line = lockstep::bench::parse_command_line(5, argv);
  const auto& options = std::get<lockstep::bench::StepOptions>(line.benchmark);
  for (const auto& reductions : {options.reductions, line.runtime.reductions}) {
    CHECK(reductions.gradient_compression == lockstep::DType::bf16);
    CHECK(reductions.shard_optimizer);
  }
}

TEST_CASE("sizes have units, which are powers of 1024") {
  const auto sizes = [](const char* least, const char* most) {
    const char* const argv[] = {"lockstep-bench", "all-reduce", "--min-bytes", least, "--max-bytes", most};
    const auto line = lockstep::bench::parse_command_line(6, argv);
    const auto& options = std::get<lockstep::bench::AllReduceOptions>(line.benchmark);
    return std::pair{options.min_bytes, options.max_bytes};
  };
  CHECK(sizes("64K", "1M") == std::pair<std::int64_t, std::int64_t>{65536, 1048576});
  CHECK(sizes("12", "4G") == std::pair<std::int64_t, std::int64_t>{12, 4294967296});
}

TEST_CASE("the help fits 80 columns") {
  for (const char* command : {"", "all-reduce", "merge-call", "requests", "exact-sum", "network", "step", "predict",
                              "input", "watchdog", "scale"}) {
    const char* const argv[] = {"lockstep-bench", command, "--help"};
    const char* const alone[] = {"lockstep-bench", "--help"};
    const auto line =
        *command ? lockstep::bench::parse_command_line(3, argv) : lockstep::bench::parse_command_line(2, alone);
    std::istringstream lines{line.answer.value()};
    for (std::string each; std::getline(lines, each);) {
      INFO(each);
      CHECK(each.size() <= 80);
    }
  }
}
