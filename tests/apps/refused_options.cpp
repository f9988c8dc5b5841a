// The words of lockstep-train: its help, and what it says of options that are refused. What a job makes of it is in
// bad_options.cpp.
#include "support/refused_options.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>

#include "apps/lockstep-train/options/option_table.hpp"
#include "apps/lockstep-train/saved/saved_model.hpp"
#include "apps/simulated_training.hpp"
#include "core/base/log_settings.hpp"
#include "support/quiet_log.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

void train_refused(int ranks, const Arguments& arguments) {
  const QuietLog quiet;
  (void)train_simulated(ranks, arguments);
}

/// The row's arguments on a run that is otherwise right, on one rank or two.
void check_all(const std::vector<RefusedOptions>& rows, const Arguments& right) {
  check_all_refused(rows,
                    [&, row = 0](const Arguments& wrong) mutable { train_refused(1 + ++row % 2, right + wrong); });
}

/// What the user is told of `arguments`.
std::string refusal_of(const Arguments& arguments) {
  try {
    train_refused(1, arguments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("what is refused here is trained on without the option that is wrong") {
  CHECK_NOTHROW(train_refused(1, short_run()));
}

TEST_CASE("a number that is none, or out of range, is refused by its option") {
  const std::string count = "expected a whole number from 1 to 9223372036854775807";
  check_all(
      {
          {{"--steps", "0"}, {"--steps 0: " + count}},
          {{"--steps", "-3"}, {"--steps -3: " + count}},
          {{"--steps", "9223372036854775808"}, {"--steps 9223372036854775808: " + count}},
          {{"--epochs", ""}, {"--epochs '': " + count}},
          {{"--epochs", "1.5"}, {"--epochs 1.5: " + count}},
          {{"--epochs", "9223372036854775807"}, {"--epochs is 9223372036854775807, too many", "expected at most"}},
          {{"--global-batch", "0"}, {"--global-batch 0: " + count}},
          {{"--global-batch", "256x"}, {"--global-batch 256x: " + count}},
          {{"--global-batch", "1e3"}, {"--global-batch 1e3: " + count}},
          {{"--eval-every", "0"}, {"--eval-every 0: " + count}},
          {{"--eval-every", "nan"}, {"--eval-every nan: " + count}},
          {{"--attest-every", "-1"}, {"--attest-every -1: expected a whole number from 0 to 9223372036854775807"}},
          {{"--attest-every", "never"}, {"--attest-every never: expected a whole number from 0"}},
          {{"--classes", "0"}, {"--classes 0: expected a whole number from 1 to 65536"}},
          {{"--classes", "2147483647"}, {"--classes 2147483647: expected a whole number from 1 to 65536"}},
          {{"--classes", "99999999999"}, {"--classes 99999999999: expected a whole number from 1 to 65536"}},
          {{"--seed", "-1"}, {"--seed -1: expected a whole number from 0 to 18446744073709551615"}},
          {{"--seed", "18446744073709551616"}, {"--seed 18446744073709551616: expected a whole number"}},
          {{"--learning-rate", "0"}, {"--learning-rate 0: expected a positive number"}},
          {{"--learning-rate", "-0.1"}, {"--learning-rate -0.1: expected a positive number"}},
          {{"--learning-rate", "nan"}, {"--learning-rate nan: expected a positive number"}},
          {{"--learning-rate", "inf"}, {"--learning-rate inf: expected a number below 3.4e38"}},
          {{"--learning-rate", "1e39"}, {"--learning-rate 1e39: expected a number below 3.4e38"}},
          {{"--learning-rate", "1e999"}, {"--learning-rate 1e999: expected a number below 3.4e38"}},
          {{"--learning-rate", "1e-999"}, {"--learning-rate 1e-999: expected a positive number"}},
          {{"--learning-rate", "0,1"}, {"--learning-rate 0,1: expected a positive number, such as 0.1"}},
          {{"--learning-rate", " "}, {"--learning-rate ' ': expected a positive number"}},
          {{"--learning-rate", "0.1\n0.2"}, {"--learning-rate", "expected a positive number"}},
          {{"--momentum", "1"}, {"--momentum 1: expected a number from 0 to below 1"}},
          {{"--momentum", "-0.1"}, {"--momentum -0.1: expected a number from 0 to below 1"}},
          {{"--momentum", "nan"}, {"--momentum nan: expected a number from 0 to below 1"}},
          {{"--model", "convnet", "--dropout", "1"}, {"--dropout 1: expected a number from 0 to below 1"}},
          {{"--test-fraction", "1"}, {"--test-fraction 1: expected a number from 0 to below 1"}},
          {{"--test-fraction", "0"}, {"--test-fraction is 0; expected a number between 0 and 1"}},
          {{"--weight-decay", "-0.1"}, {"--weight-decay -0.1: expected a number from 0, such as 0.1"}},
          {{"--weight-decay", "nan"}, {"--weight-decay nan: expected a number from 0"}},
          {{"--weight-decay", "1e39"}, {"--weight-decay 1e39: expected a number below 3.4e38"}},
          {{"--clip-norm", "0"}, {"--clip-norm 0: expected a positive number"}},
          {{"--clip-norm", "inf"}, {"--clip-norm inf: expected a number below 3.4e38"}},
          {{"--warmup-steps", "-1"}, {"--warmup-steps -1: expected a whole number from 0 to 9223372036854775807"}},
          {{"--warmup-steps", "5", "--steps", "5"},
           {"--warmup-steps 5: the run has 5 steps; expected fewer to warm up in"}},
          {{"--warmup-steps", "24", "--epochs", "1"}, {"--warmup-steps 24: the run has 24 steps"}},
          {{"--accumulate", "0"}, {"--accumulate 0: " + count}},
          {{"--accumulate", "33"},
           {"--accumulate 33: a batch of 256 in 8 shards has up to 32 samples in each; expected at most as many"}},
          {{"--accumulate", "9223372036854775807"}, {"--accumulate 9223372036854775807: a batch of 256"}},
          {{"--accumulate", "2", "--global-batch", "8"}, {"8 shards has up to 1 sample in each"}},
          {{"--prefetch", "-1"}, {"--prefetch -1: expected a whole number from 0 to 1024"}},
          {{"--on-stall", "ignore"}, {"--on-stall ignore: expected"}},
          {{"--mpi-threads", "one"}, {"--mpi-threads one: expected"}},
          {{"--network", ""}, {"--network: expected an IPv4 network"}},
          {{"--stall-timeout", "0"}, {"--stall-timeout 0: expected a positive number"}},
          {{"--stall-timeout", "inf"}, {"--stall-timeout inf: expected"}},
          {{"--stall-timeout", "1e300"}, {"--stall-timeout 1e300: expected"}},
          {{"--threads", "0"}, {"--threads 0: expected a whole number from 1 to 1024"}},
          {{"--threads", "1025"}, {"--threads 1025: expected a whole number from 1 to 1024"}},
          {{"--hidden", "512,"}, {"--hidden 512,:", "expected sizes from 1"}},
          {{"--hidden", "512,0"}, {"--hidden 512,0:", "expected sizes from 1, separated by commas"}},
          {{"--hidden", "512 512"}, {"--hidden", "expected sizes from 1, separated by commas"}},
          {{"--hidden", "1048576,1048576"}, {"--hidden 1048576,1048576: a model of", "expected smaller layers"}},
          {{"--hidden", "99999999"}, {"--hidden 99999999: expected at most 1048576 a layer"}},
      },
      {"--data", small_data()});
}

TEST_CASE("numbers below the smallest of their type are read as the nearest") {
  const auto parsed = [](const Arguments& arguments) { return parse(Arguments{"--data", "x"} + arguments).training; };
  CHECK(parsed({"--learning-rate", "1e-320"}).learning_rate == 1e-320);
  CHECK(parsed({"--weight-decay", "1e-999"}).weight_decay == 0);
  CHECK(parsed({"--momentum", "0.000001e-999"}).momentum == 0);
}

TEST_CASE("a choice that does not exist is refused with those that do") {
  check_all(
      {
          {{"--model", "cnn"}, {"--model cnn: expected mlp or convnet or gpt"}},
          {{"--optimizer", "adam"}, {"--optimizer adam: expected sgd or momentum or adamw"}},
          {{"--optimizer", ""}, {"--optimizer '': expected sgd or momentum or adamw"}},
          {{"--schedule", "linear"}, {"--schedule linear: expected constant or cosine"}},
          {{"--device", "gpu"}, {"--device", "expected auto, cpu or cuda", "gpu"}},
          {{"--dtype", "f16"}, {"--dtype f16: expected f32 or f64"}},
          {{"--compress-gradients", "f32"}, {"--compress-gradients f32: expected f16 or bf16"}},
          {{"--compress-gradients", "f16", "--dtype", "f64"}, {"--compress-gradients: expected --dtype f32, not f64"}},
          {{"--precision", "f16"}, {"--precision f16: expected full or bf16"}},
          {{"--precision", "bf16", "--dtype", "f64"}, {"--precision bf16: expected --dtype f32, not f64"}},
          {{"--kernels", "fast"}, {"--kernels", "'fast'", "expected auto, reference, onednn or cuda"}},
          {{"--kernels", "cuda", "--device", "cpu"}, {"cuda kernels", "the device is cpu"}},
          {{"--allow-shared-gpu", "--allow-shared-gpu"}, {"--allow-shared-gpu was given more than once"}},
          {{"--tensorboard"}, {"--tensorboard: expected --run-dir too"}},
          {{"--log-level", "loud"}, {"--log-level", "'loud'", "expected trace, debug, info, warning, error or off"}},
          {{"--shards", "0"}, {"--shards", "'0'", "expected a number up to 1024, or 'ranks'"}},
          {{"--shards", "eight"}, {"--shards", "'eight'", "expected a number up to 1024, or 'ranks'"}},
      },
      short_run());
}

TEST_CASE("an option of one model is refused with another") {
  check_all(
      {
          {{"--dropout", "0.5"}, {"--dropout: expected only with --model convnet"}},
          {{"--test-fraction", "0.5", "--model", "convnet"}, {"--test-fraction: expected only with --model mlp"}},
          {{"--batch-norm"}, {"--batch-norm: expected only with --model convnet"}},
          {{"--sync-batch-norm"}, {"--sync-batch-norm: expected only with --model convnet"}},
          {{"--model", "convnet", "--sync-batch-norm", "--audit-every", "9"},
           {"--audit-every: ", "expected --batch-norm without --sync-batch-norm"}},
          {{"--layers", "2"}, {"--layers: expected only with --model gpt"}},
          {{"--heads", "2", "--model", "convnet"}, {"--heads: expected only with --model gpt"}},
          {{"--embed", "64", "--model", "mlp"}, {"--embed: expected only with --model gpt"}},
          {{"--context", "64"}, {"--context: expected only with --model gpt"}},
          {{"--binary"}, {"--binary: expected only with --model gpt"}},
          {{"--recompute"}, {"--recompute: expected only with --model gpt"}},
          {{"--sample", "64"}, {"--sample: expected only with --model gpt"}},
          {{"--model", "convnet", "--hidden", "16"}, {"--hidden: expected only with --model mlp"}},
          {{"--model", "gpt", "--hidden", "16"}, {"--hidden: expected only with --model mlp"}},
          {{"--model", "gpt", "--classes", "10"}, {"--classes: expected only with --model mlp or convnet"}},
          {{"--model", "gpt", "--batch-norm"}, {"--batch-norm: expected only with --model convnet"}},
      },
      {"--data", small_data()});
}

TEST_CASE("weights of a model refuse the options of others as its name does") {
  const std::map<std::string, std::string> values{
      {"--classes", "3"},        {"--label-column", "x"}, {"--test-fraction", "0.5"},
      {"--task", "classes"},     {"--scale", "none"},     {"--augment", "flip"},
      {"--hidden", "5"},         {"--batch-norm", ""},    {"--dropout", "0.5"},
      {"--sync-batch-norm", ""}, {"--layers", "2"},       {"--heads", "2"},
      {"--embed", "8"},          {"--context", "8"},      {"--vocabulary", "9"},
      {"--sample", "4"},         {"--preset", "gpt2"},    {"--recompute", ""},
      {"--binary", ""}};
  int of_models = 0;
  for (const OptionGroup& group : option_table())
    for (const OptionRow& row : group.rows) {
      if (row.models.empty()) continue;
      ++of_models;
      INFO(row.name);
      const std::string value = values.at(row.name);
      const Arguments given = value.empty() ? Arguments{row.name} : Arguments{row.name, value};
      for (const auto& [name, model] : model_names()) {
        // As a line reads that leaves the model to the weights.
        const TrainingOptions options = parse(Arguments{"--data", "x", "--resume", "y"} + given).training;
        const std::string named = refusal_of(Arguments{"--data", "x", "--model", name} + given);
        if (std::ranges::find(row.models, model) == row.models.end())
          CHECK_THROWS_WITH(require_options_of(model, options), named);
        else
          CHECK_NOTHROW(require_options_of(model, options));
      }
    }
  CHECK(of_models == std::ssize(values));
}

TEST_CASE("sizes of a gpt that are none, or do not fit, are refused by their options") {
  const TemporaryDirectory folder;
  const std::string sizes = ": expected a whole number from 1 to 1048576";
  check_all(
      {
          {{"--layers", "0"}, {"--layers 0: expected a whole number from 1 to 1024"}},
          {{"--layers", "1025"}, {"--layers 1025: expected a whole number from 1 to 1024"}},
          {{"--heads", "0"}, {"--heads 0" + sizes}},
          {{"--heads", "3"}, {"--heads 3: expected a number that divides --embed, which is 128"}},
          {{"--heads", "256"}, {"--heads 256: expected a number that divides --embed, which is 128"}},
          {{"--embed", "-1"}, {"--embed -1" + sizes}},
          {{"--embed", "30"}, {"--heads 4: expected a number that divides --embed, which is 30"}},
          {{"--embed", "1048577"}, {"--embed 1048577" + sizes}},
          {{"--embed", "1048576"}, {"--embed 1048576 --context 128: a model of", "expected smaller sizes"}},
          {{"--layers", "1024", "--embed", "4096"}, {"--layers 1024 --heads 4 --embed 4096 --context 128: a model of"}},
          {{"--context", "0"}, {"--context 0" + sizes}},
          {{"--context", "2.5"}, {"--context 2.5" + sizes}},
          {{"--context", "99999999999"}, {"--context 99999999999" + sizes}},
          {{"--context", "400000"},
           {"--context 400000: a model of", "expected smaller sizes, --recompute, or fewer samples"}},
          {{"--global-batch", "9223372036854775807", "--context", "1", "--embed", "16384"},
           {"--embed 16384 --context 1: a model of", "(--global-batch, --accumulate)"}},
          {{"--sample", "0"}, {"--sample 0" + sizes}},
          {{"--sample", "1048577"}, {"--sample 1048577" + sizes}},
          {{"--accumulate", "3"}, {"--accumulate 3: a batch of 16 in 8 shards has up to 2 samples in each"}},
          {{"--kernels", "cuda"}, {"cuda kernels", "the device is cpu"}},
      },
      {"--model", "gpt", "--steps", "1", "--device", "cpu", "--data", folder.write("text", small_text(5000000))});
}

TEST_CASE("shards that do not fit the ranks are refused with the numbers that do") {
  const auto on = [](int ranks) {
    return [ranks](const Arguments& shards) { train_refused(ranks, short_run() + shards); };
  };
  check_all_refused(
      {{{"--shards", "2"},
        {"--shards is 2, and the job has 3 ranks", "expected 3 or more, or 'ranks', or a job of up to 2 (mpirun -n)"}}},
      on(3));
  check_all_refused({{{"--shards", "1025"}, {"--shards is 1025; expected 1024 or fewer"}}}, on(2));
}

TEST_CASE("a command line that cannot be read is refused with what is wrong with it") {
  check_all(
      {
          {{"--epochs", "1"}, {"--epochs and --steps were both given: expected at most one of the two"}},
          {{"--batch", "3"},
           {"there is no option --batch; did you mean --global-batch? "
            "lockstep-train --help lists the options"}},
          {{"--lerning-rate=3"}, {"there is no option --lerning-rate=3; did you mean --learning-rate? lockstep-train"}},
          {{"--spochs", "1"}, {"; did you mean --epochs? "}},
          {{"--eval", "1"}, {"; did you mean --eval-only or --eval-every or --eval-samples? "}},
          {{"--batch-norn"}, {"there is no option --batch-norn; did you mean --batch-norm? lockstep-train"}},
          {{"--learn", "1"}, {"; did you mean --learning-rate? "}},
          {{"--sede", "1"}, {"; did you mean --seed? "}},
          {{"--lr", "1"}, {"there is no option --lr; did you mean --learning-rate? "}},
          {{"--norm-batch", "1"}, {"; did you mean --global-batch or --sync-batch-norm or --clip-norm? "}},
          {{"-n", "3"}, {"there is no option -n; lockstep-train --help"}},
          {{"--s", "1"}, {"there is no option --s; lockstep-train --help"}},
          {{"--on-fire", "1"}, {"there is no option --on-fire; lockstep-train --help"}},
          {{"fashion-mnist"}, {"'fashion-mnist' belongs to no option"}},
          {{"--", "--seed"}, {"belongs to no option"}},
          {{"--seed"}, {"--seed has no value: expected --seed N;"}},
          {{"--seed="}, {"--seed has no value: expected --seed N;"}},
          {{"--seed", "1", "--seed", "1"}, {"--seed was given more than once: expected it once;"}},
          {{"--metrics", ""}, {"--metrics '': expected the name of a file"}},
          {{"--cluster-spec", ""}, {"--cluster-spec '': expected the name of a file"}},
          {{"--\xff\xfe", "1"}, {"there is no option --"}},
          {{"--seed", "\xff\xfe"}, {"--seed", "expected a whole number"}},
      },
      short_run());
  check_all({{{}, {"--data is missing", "lockstep-train --help lists the options"}}}, {});
}

TEST_CASE("an evaluation alone is refused without weights, and with what only a training does") {
  const std::string only = ": expected only in a training, not with --eval-only";
  const Arguments evaluation{"--eval-only", "--resume", "auto", "--checkpoint-dir", "somewhere"};
  const auto with = [&](const Arguments& options) { return evaluation + options; };
  check_all(
      {
          {{"--eval-only"}, {"--eval-only: expected --resume auto, --resume DIR, --init-from FILE or --run-dir DIR"}},
          {{"--eval-only", "--resume", "none"}, {"--eval-only: expected --resume auto, --resume DIR, --init-from"}},
          {{"--eval-only", "--resume", "auto"}, {"--resume auto: expected --checkpoint-dir"}},
          {with({"--steps", "3"}), {"--steps" + only}},
          {with({"--epochs", "3"}), {"--epochs" + only}},
          {with({"--eval-every", "3"}), {"--eval-every" + only}},
          {with({"--metrics", "file"}), {"--metrics" + only}},
          {with({"--keep", "3"}), {"--keep" + only}},
          {with({"--keep-best"}), {"--keep-best" + only}},
          {with({"--freeze", "*"}), {"--freeze" + only}},
          {with({"--checkpoint-every", "3"}), {"--checkpoint-every" + only}},
          {with({"--checkpoint-optional"}), {"--checkpoint-optional" + only}},
          {with({"--partial", "--init-from", "file"}), {"--partial" + only}},
          {with({"--init-from", "file"}), {"--init-from and --resume were both given: expected at most one"}},
      },
      {"--data", small_data()});
}

TEST_CASE(
    "initial weights beside a checkpoint that is named, --partial without them, and a file that cannot be made are "
    "refused") {
  check_all(
      {
          {{"--init-from", ""}, {"--init-from '': expected the name of a file"}},
          {{"--init-from", "file", "--resume", "folder"}, {"--init-from and --resume were both given"}},
          {{"--partial"}, {"--partial: expected only with --init-from"}},
          {{"--export", ""}, {"--export '': expected the name of a file"}},
          {{"--export", "/nothing/file"}, {"--export /nothing/file: No such file or directory; expected a file that"}},
          {{"--export", "/dev/null"}, {"--export /dev/null: is a device, not a regular file; expected a file"}},
          {{"--export", small_data()},
           {"--export " + small_data().string() + ": is a folder, not a regular file; expected a file"}},
      },
      short_run());
}

TEST_CASE("an override is refused without a checkpoint to go on from, and without a new value") {
  check_all(
      {
          {{"--override", "seed", "--resume", "x"},
           {"--override seed: expected learning-rate or schedule or warmup-steps or steps or epochs"}},
          {{"--override", "steps"}, {"--override: expected only with --resume auto or --resume DIR"}},
          {{"--override", "steps", "--resume", "none"}, {"--override: expected only with --resume auto"}},
          {{"--override", "learning-rate", "--resume", "x"},
           {"--override: expected --learning-rate too, with the new"}},
          {{"--override", "schedule", "--resume", "x"}, {"--override: expected --schedule too, with the new value"}},
          {{"--override", "warmup-steps", "--resume", "x"}, {"--override: expected --warmup-steps too, with the new"}},
          {{"--override", "steps", "--eval-only", "--resume", "x"}, {"--override: expected only in a training"}},
      },
      {"--data", small_data()});
  check_all(
      {{{"--override", "epochs", "--resume", "x"}, {"--override: expected --steps or --epochs too, with the new"}}},
      {"--data", small_data()});
}

TEST_CASE("a prediction is refused without weights, with what it does not do, and of a file of something else") {
  const TemporaryDirectory folder;
  const std::string text = folder.write("text", "no image"), empty = folder.write("empty", "");
  const Arguments weights{"--init-from", "file"};
  check_all(
      {
          {{"--predict", ""}, {"--predict '': expected the name of a file"}},
          {{"--predict", text}, {"--predict: expected --resume auto, --resume DIR, --init-from FILE or --run-dir DIR"}},
          {weights + Arguments{"--predict", text, "--eval-only"}, {"--eval-only and --predict were both given"}},
          {weights + Arguments{"--predict", text, "--steps", "3"}, {"--steps: expected only in a training, not with "}},
          {weights + Arguments{"--predict", text, "--eval-samples", "3"}, {"--eval-samples: expected no --predict"}},
          {weights + Arguments{"--predict", text, "--export", "file"}, {"--export: expected no --predict"}},
          {weights + Arguments{"--predict", text, "--top", "0"}, {"--top 0: expected a whole number from 1 to"}},
          {{"--data", "x", "--top", "1"}, {"--top: expected only with --predict"}},
          {weights + Arguments{"--data", "x", "--eval-only", "--top", "1"}, {"--top: expected only with --predict"}},
          {weights + Arguments{"--predict", text}, {text + ": wrong magic number"}},
          {weights + Arguments{"--predict", "/nothing"}, {"/nothing: does not exist; expected an IDX file of images"}},
          {weights + Arguments{"--predict", empty, "--model", "gpt"}, {empty + ": is empty; expected 1 line or more"}},
          {weights + Arguments{"--predict", "/nothing", "--model", "gpt"},
           {"/nothing: does not exist; expected a text"}},
      },
      {});
}

TEST_CASE("a pattern that freezes no variable is refused with the names, and one that freezes all") {
  check_all(
      {
          {{"--freeze", ""}, {"--freeze '': expected a pattern, such as 'dense_0*'"}},
          {{"--freeze"}, {"--freeze has no value: expected --freeze PATTERN;"}},
          {{"--freeze", "dense_0*", "--freeze", "conv*"},
           {"--freeze conv*: matches no variable; expected a pattern for some of dense_0/weight, dense_0/bias, "
            "dense_1/weight, dense_1/bias"}},
          {{"--freeze", "*weight", "--freeze", "*bias"},
           {"--freeze *weight --freeze *bias: freezes every variable; expected one or more that are trained"}},
      },
      short_run());
}

TEST_CASE("the help fits 80 columns, and every line of it says something") {
  std::istringstream lines{parse({"--help"}).answer.value()};
  int options = 0;
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 80);
    CHECK((line.empty() || line.back() != ' '));
    options += line.starts_with("  --");
  }
  CHECK(options > 30);
}

TEST_CASE("--quiet is no progress and a log of warnings, unless a level is given") {
  CHECK(parse({"--data", "x"}).training.progress == ShowProgress::yes);
  const CommandLine quiet = parse({"--data", "x", "--quiet"});
  CHECK(quiet.training.progress == ShowProgress::no);
  CHECK(quiet.log_level == log::Level::warning);
  CHECK(parse({"--log-level", "debug", "--data", "x", "--quiet"}).log_level == log::Level::debug);
}

TEST_CASE("options of the model that are not given are left to a checkpoint or to the defaults") {
  const TrainingOptions none = parse({"--data", "x"}).training,
                        given = parse({"--data", "x", "--hidden", "3"}).training;
  CHECK((!none.model && !none.dtype && !none.precision && !none.classes && !none.label_column && !none.hidden));
  CHECK((!none.batch_norm && !none.dropout && !none.layers && !none.heads && !none.embed && !none.context));
  CHECK((given.hidden == std::vector<std::int64_t>{3} && !given.model));
}

TEST_CASE("every option of a rank is compared with the others'") {
  const Arguments options{"--data", "a b", "--stall-timeout", "7", "--clip-norm", "1", "--accumulate", "2"};
  std::string all;
  for (const std::string& option : options) all += option + ' ';
  CHECK(parse(options).runtime.program_options == all);
}
