// What lockstep-run reads in the command of a job: how it is started again, and how long it takes on other ranks.
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include "apps/lockstep-run/supervised_command.hpp"
#include "support/refused_options.hpp"

namespace lockstep::test::run_command_cases {

using namespace lockstep::run;

namespace {

using Words = std::vector<std::string>;

SupervisedCommand training(const Words& more = {}) {
  Words words{"bin/lockstep-train", "--data", "x", "--checkpoint-dir", "run1"};
  words.insert(words.end(), more.begin(), more.end());
  return SupervisedCommand{words};
}

}  // namespace

TEST_CASE("a training is started again from its newest checkpoint, with the same shards") {
  const SupervisedCommand plain = training({"--seed", "2"});
  CHECK(plain.is_training());
  CHECK(plain.checkpoints() == "run1");
  CHECK(plain.words() == Words{"bin/lockstep-train", "--data", "x", "--checkpoint-dir", "run1", "--seed", "2"});
  Words again = plain.words();
  again.insert(again.end(), {"--resume", "auto"});
  CHECK(plain.again(4, 4, {}) == again);
  CHECK(training({"--resume", "none", "--seed", "2"}).again(4, 4, {}) == again);
  CHECK(training({"--resume=auto", "--seed", "2"}).again(4, 4, {.written = true}) == again);
  // From a checkpoint of its choice, until it has written one.
  const SupervisedCommand from = training({"--resume", "run0/step-7"});
  CHECK(from.again(4, 4, {}) == from.words());
  CHECK(from.again(4, 4, {.written = true}) == training().again(4, 4, {}));

  // The number of shards is the training's, whatever the number of ranks would make of it.
  const auto ends = [](const SupervisedCommand& command, int ranks, int first, const SeenCheckpoints& seen) {
    const Words words = command.again(ranks, first, seen);
    return Words{words.end() - 2, words.end()};
  };
  CHECK(training({"--stall-timeout", "7"}).stall_timeout().count() == 7);
  CHECK(ends(training(), 2, 4, {}) == Words{"--shards", "8"});
  CHECK(ends(training({"--device", "cuda"}), 2, 4, {}) == Words{"--shards", "4"});
  CHECK(ends(training({"--devices", "0,1"}), 2, 4, {}) == Words{"--shards", "4"});
  CHECK(ends(training({"--shards=ranks"}), 2, 4, {}) == Words{"--shards", "4"});
  CHECK(ends(training({"--shards", "16"}), 2, 4, {.shards = 4}) == Words{"--shards", "4"});
  // What was in the folder before may be another training's.
  CHECK(ends(training({"--resume", "run0/step-7"}), 2, 4, {.shards = 4}) == Words{"--shards", "8"});
  CHECK(ends(training({"--resume", "run0/step-7"}), 2, 4, {.written = true, .shards = 4}) == Words{"--shards", "4"});
  // By the share of the rank that has most; 0 for numbers of ranks that cannot go on.
  const auto times = [](const SupervisedCommand& command, int first) {
    std::vector<double> times;
    for (int ranks = first; ranks > 0; --ranks) times.push_back(command.relative_time(ranks, first, {}).value_or(0));
    return times;
  };
  using Times = std::vector<double>;
  CHECK(times(training(), 8) == Times{1, 2, 2, 2, 2, 3, 4, 8});
  for (const Words& option :
       {Words{"--threads", "2"}, {"--device", "cuda"}, {"--devices", "0,1"}, {"--compress-gradients", "bf16"}})
    CHECK(times(training({option[0], option[1], "--shards", "8"}), 8) == Times{1, 2, 2, 2, 2, 4, 4, 8});
  CHECK(times(training({"--devices", "CPU,CPU"}), 8) == times(training(), 8));
  CHECK(times(training({"--shards", "32"}), 8) == Times{4, 5, 6, 7, 8, 12, 16, 32});
  CHECK(times(training({"--shards", "4"}), 4) == Times{1, 2, 2, 4});
  CHECK(times(training({"--shards", "2"}), 3) == Times{1. / 3, 1. / 2, 1});  // it says itself that this cannot be
  CHECK(times(training({"--cluster-spec", "two.json"}), 4) == Times{2, 0, 0, 0});
  CHECK(times(SupervisedCommand{{"python3", "train.py"}}, 3) == Times{1. / 3, 1. / 2, 1});

  const Words other{"python3", "train.py", "--resume", "x"};
  CHECK(SupervisedCommand{other}.again(1, 2, {.written = true}) == other);
  test::check_all_refused({{{"lockstep-train", "--data", "x"},
                            {"lockstep-train without --checkpoint-dir or --run-dir: expected a folder of checkpoints"}},
                           {{}},
                           {{"x", ":", "y"}, {"mpirun would start two"}}},
                          [](const Words& words) { (void)SupervisedCommand{words}; });
}

TEST_CASE(
    "the options of a training are read as the training reads them, and wrong ones are refused before it starts") {
  // What looks like an option is the value of the one before it.
  const SupervisedCommand odd =
      training({"--label-column", "--resume", "--metrics=--shards=3", "--freeze", "--shards"});
  const Words again = odd.again(2, 4, {});
  CHECK(Words{again.begin(), again.end() - 4} == odd.words());
  CHECK(Words{again.end() - 4, again.end()} == Words{"--resume", "auto", "--shards", "8"});
  CHECK(SupervisedCommand{{"lockstep-train", "--data=--checkpoint-dir", "--checkpoint-dir=", "run2"}}.checkpoints() ==
        "run2");
  CHECK(training({"--resume=", "run0/step-7"}).again(4, 4, {.written = true}) == training().again(4, 4, {}));
  test::check_all_refused(
      {{{"--shards", "0"}, {"--shards is '0'; expected a number"}},
       {{"--sede", "1"}, {"there is no option --sede; did you mean --seed?"}},
       {{"--resume", "auto", "--resume", "none"}, {"--resume was given more than once: expected it once;"}}},
      training);
}

}  // namespace lockstep::test::run_command_cases
