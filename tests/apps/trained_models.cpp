// What is done with a trained model, on simulated ranks: evaluating it without training, beginning another training
// with its weights, all or some of which change, writing them to a file,
// and predicting samples without labels.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/tf/extended/extended.hpp>

#include "apps/image_files.hpp"
#include "apps/simulated_training.hpp"
#include "support/quiet_log.hpp"
#include "support/refused_options.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

/// Every file below `folder`, with its bytes.
std::map<std::string, std::string> every_file_of(const std::filesystem::path& folder) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : std::filesystem::recursive_directory_iterator{folder})
    if (entry.is_regular_file()) contents[entry.path()] = read_file(entry.path());
  return contents;
}

/// One tensor of a file of weights.
std::vector<float> tensor_in(const std::filesystem::path& file, const std::string& name, const Shape& shape) {
  std::vector<float> elements;
  sim::run({.ranks = 1}, [&](Strategy& strategy, int) {
    const auto variable = strategy.create_variable({.name = name}, [&] { return Tensor::zeros(DType::f32, shape); });
    strategy.seal();
    CHECK(load_weights(strategy, file).taken == 1);
    elements = variable.local().to_vector<float>();
  });
  return elements;
}

/// The lines that a prediction prints.
std::vector<Json> predictions(int ranks, const Arguments& arguments) {
  const Trained printed = train_simulated(ranks, arguments);
  std::vector<Json> lines;
  std::istringstream all{printed.written + printed.result.dump()};
  for (std::string line; std::getline(all, line);) lines.push_back(Json::parse(line));
  return lines;
}

/// Requires that the evaluations of two runs have the same bits.
void check_same_evaluation(const Json& one, const Json& other) {
  for (const char* key : {"eval_loss", "eval_accuracy", "weights_digest"}) {
    INFO(key);
    CHECK(one.at(key) == other.at(key));
  }
}

}  // namespace

TEST_CASE("an evaluation alone finds what the training found, on any number of ranks, and writes nothing") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 53, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::filesystem::path checkpoints = folder.path() / "checkpoints";
  const Arguments model{"--data", images.path(), "--model", "convnet", "--batch-norm", "--quiet"};
  const Trained trained =
      train_simulated(2, model + Arguments{"--steps", "3", "--dropout", "0.3", "--global-batch", "16",
                                           "--checkpoint-dir", checkpoints, "--checkpoint-every", "2"});
  const auto before = every_file_of(folder.path());
  const Arguments newest{"--eval-only", "--resume", "auto", "--checkpoint-dir", checkpoints};
  for (const int ranks : {1, 2, 4, 8}) {
    INFO(ranks << " ranks");
    // What shaped the training, dropout too, shapes no evaluation.
    const Json found = train_simulated(ranks, model + newest + Arguments{"--optimizer", "adamw"}).result;
    check_same_evaluation(trained.result, found);
    CHECK(found["steps"] == 3);
    CHECK(found["eval_samples"] == 53);
    CHECK(found["weights"] == (checkpoints / "step-3").string());
    CHECK_FALSE(found.contains("train_loss"));
  }
  const Json earlier =
      train_simulated(2, model + Arguments{"--eval-only", "--resume", checkpoints / "step-2", "--eval-samples", "20"})
          .result;
  CHECK(earlier["steps"] == 2);
  CHECK(earlier["eval_samples"] == 20);
  CHECK(earlier["weights_digest"] != trained.result["weights_digest"]);
  CHECK(every_file_of(folder.path()) == before);

  // What the model is, the checkpoint says; an option that says something else is wrong.
  const Arguments unnamed{"--data", images.path(), "--quiet"};
  check_same_evaluation(trained.result, train_simulated(2, unnamed + newest).result);
  const std::string contradicts = ": contradicts " + checkpoints.string() + ", which has ";
  check_all_refused({{{"--model", "convnet", "--sync-batch-norm"},
                      {"--sync-batch-norm" + contradicts + "--batch-norm; expected the same, or no"}},
                     {{"--dtype", "f64"}, {"--dtype f64" + contradicts + "--dtype f32"}},
                     {{"--dropout", "0.5"}, {"--dropout 0.5" + contradicts + "--dropout 0.3"}},
                     {{"--hidden", "5"}, {"--hidden: expected only with --model mlp"}}},
                    [&](const Arguments& more) { (void)train_simulated(2, unnamed + more + newest); });
  CHECK_THROWS_AS(train_simulated(2, model + Arguments{"--eval-only", "--resume", "auto", "--checkpoint-dir",
                                                       folder.path() / "nothing"}),
                  CheckpointError);
  CHECK_THROWS_WITH(train_simulated(1, {"--data", "/proc/none", "--quiet", "--resume", checkpoints / "step-9"}),
                    "checkpoint " + (checkpoints / "step-9").string() + ": there is none");
}

TEST_CASE("a gpt is evaluated on the same text, in bits, and writes the sample that it wrote after its training") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const Arguments model{"--data",    folder.write("text", small_text(2000)),
                        "--model",   "gpt",
                        "--layers",  "1",
                        "--heads",   "2",
                        "--embed",   "16",
                        "--context", "16",
                        "--sample",  "20",
                        "--quiet"};
  const std::string checkpoints = folder.path() / "checkpoints";
  const Trained trained = train_simulated(1, model + Arguments{"--steps", "2", "--checkpoint-dir", checkpoints});
  const Arguments use{"--data", folder.path() / "text", "--quiet", "--sample", "20", "--eval-only"};
  const Trained found = train_simulated(4, use + Arguments{"--resume", checkpoints + "/step-2"});
  check_same_evaluation(trained.result, found.result);
  CHECK(found.result["bits_per_byte"] == trained.result["bits_per_byte"]);
  CHECK(found.written == trained.written);
}

TEST_CASE("a training begins with the weights of a checkpoint or a file, on any number of ranks") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::string checkpoints = folder.path() / "checkpoints";
  const Arguments run{"--data", images.path(), "--quiet", "--hidden", "5", "--steps", "2"};
  const Trained first = train_simulated(2, run + Arguments{"--checkpoint-dir", checkpoints, "--seed", "7"});
  const auto evaluation = [&](int ranks, const std::string& from) {
    return train_simulated(ranks, {"--data", images.path(), "--quiet", "--hidden", "5", "--eval-only", "--init-from",
                                   checkpoints + from})
        .result;
  };
  check_same_evaluation(first.result, evaluation(1, "/step-2"));
  check_same_evaluation(first.result, evaluation(8, "/latest"));
  check_same_evaluation(first.result, evaluation(4, "/step-2/weights.safetensors"));

  // The optimizer, the seed and the place in the data are the new training's.
  const Arguments begun{"--init-from", checkpoints + "/step-2", "--optimizer", "adamw"};
  const Trained second = train_simulated(1, run + begun);
  CHECK(second.digest() != train_simulated(1, run + Arguments{"--optimizer", "adamw"}).digest());
  CHECK(train_simulated(8, run + begun).digest() == second.digest());
  // A checkpoint of the new training counts for more than the weights that it began with.
  const Arguments resumed{"--checkpoint-dir", folder.path() / "second", "--resume", "auto"};
  const Arguments three = Arguments{"--data", images.path(), "--quiet", "--hidden", "5", "--steps", "3"} + begun;
  CHECK(train_simulated(2, run + begun + resumed).digest() == second.digest());
  CHECK(train_simulated(4, three + resumed).digest() == train_simulated(1, three).digest());
}

TEST_CASE("weights are not exported over a file that the run reads or writes, nor over an open one") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const std::string data = folder.write("data.csv", "a,label\n1,0\n2,1\n3,0\n4,1\n5,0\n6,1\n7,0\n8,1\n9,0\n"),
                    link = folder.path() / "link", metrics = folder.path() / "metrics";
  std::filesystem::create_symlink("/proc/self/fd/1", link);
  const ImageFiles images{{.train = 9, .test = 3, .rows = 2, .columns = 2}};
  const std::string same = folder.path() / "." / "data.csv", of_images = images.path() + "/" + test_labels;
  const std::string expected = "; expected a file that can be written",
                    is_data = ": is a file of --data too" + expected, notes = folder.write("notes", "mine"),
                    is_other =
                        ": holds something else, which would be lost; expected a new file, or weights "
                        "that lockstep wrote";
  check_all_refused(
      {{{data, "--data", data}, {"--export " + data + is_data}},
       {{same, "--data", data}, {"--export " + same + is_data}},
       {{of_images, "--data", images.path()}, {"--export " + of_images + is_data}},
       {{metrics, "--data", data}, {"--export " + metrics + ": is a file of --metrics too" + expected}},
       {{notes, "--data", data}, {"--export " + notes + is_other}},
       {{link, "--data", data}, {"--export " + link + ": is what a process has open, not a file" + expected}}},
      [&](const Arguments& arguments) {
        (void)train_simulated(1, Arguments{"--metrics", metrics, "--steps", "1", "--quiet", "--export"} + arguments);
      });
  // A link to a file is replaced itself, a file that is new is nobody's, and one that lockstep wrote is replaced.
  std::filesystem::remove(link);
  std::filesystem::create_symlink("notes", link);
  const std::string again = folder.path() / "again";
  for (const std::string& file : {link, images.path() + "/weights", again, again}) {
    (void)train_simulated(1, {"--data", images.path(), "--hidden", "1", "--steps", "1", "--quiet", "--export", file});
    CHECK(std::filesystem::is_regular_file(std::filesystem::symlink_status(file)));
  }
  CHECK(read_file(notes) == "mine");
}

TEST_CASE("initial weights of another model are refused, and --partial takes what matches") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::string checkpoints = folder.path() / "checkpoints";
  const Arguments run{"--data", images.path(), "--quiet", "--steps", "1"};
  (void)train_simulated(2, run + Arguments{"--hidden", "5", "--checkpoint-dir", checkpoints});
  const std::string weights = checkpoints + "/step-1/weights.safetensors";
  const Arguments from{"--init-from", weights}, partial{"--partial"};
  const Arguments wider{"--hidden", "6"}, deeper{"--hidden", "5,10"}, flat{"--hidden", "10"};
  const std::string file = "--init-from " + weights;
  check_all_refused<CheckpointError>(
      {{wider + from, {file, "has 'dense_0/weight' as f32[64, 5], and the variable is f32[64, 6]"}},
       {deeper + from, {file, "has no 'dense_2/weight', 'dense_2/bias'", "(--partial takes what matches)"}},
       {wider + Arguments{"--dtype", "f64"} + from + partial, {file, "has no value for any variable"}}},
      [&](const Arguments& arguments) { (void)train_simulated(2, run + arguments); });
  CHECK_THROWS_WITH(train_simulated(2, run + wider + Arguments{"--init-from", checkpoints}),
                    Catch::Contains("is a folder of checkpoints; expected one of them, such as step-1"));
  for (const char* const option : {"--init-from", "--resume"})
    CHECK_THROWS_WITH(train_simulated(2, run + Arguments{"--hidden", "5", option, folder.path()}),
                      Catch::Contains("is no checkpoint, but has some in it; expected one of them, such as ") &&
                          Catch::Contains("/step-1"));
  CHECK_THROWS_WITH(train_simulated(2, run + wider + Arguments{"--init-from", "/nothing"}),
                    Catch::Contains("checkpoint /nothing"));

  const Trained taken = train_simulated(1, run + deeper + from + partial);
  CHECK(taken.digest() != train_simulated(1, run + deeper).digest());
  CHECK(train_simulated(4, run + deeper + from + partial).digest() == taken.digest());

  // Bytes that no longer have the digest of the manifest.
  std::string bytes = read_file(weights);
  bytes.back() ^= 1;
  std::ofstream{weights, std::ios::binary} << bytes;
  CHECK_THROWS_WITH(train_simulated(2, run + Arguments{"--hidden", "5", "--init-from", checkpoints + "/step-1"}),
                    Catch::Contains("has been altered"));
}

TEST_CASE("what a file of weights does not have keeps its value, and the rest is told in words") {
  const TemporaryDirectory folder;
  const std::string path = folder.path() / "weights";
  const auto write = [&](Strategy& strategy, int) {
    (void)strategy.create_variable({.name = "both"}, [] { return Tensor::scalar(3.0F); });
    (void)strategy.create_variable({.name = "wider"}, [] { return Tensor::zeros(DType::f32, {2}); });
    (void)strategy.create_variable({.name = "there"}, [] { return Tensor::scalar(4.0F); });
    strategy.seal();
    save_checkpoint(strategy, path);
  };
  sim::run({.ranks = 2}, write);
  sim::run({.ranks = 3}, [&](Strategy& strategy, int) {
    const auto both = strategy.create_variable({.name = "both"}, [] { return Tensor::scalar(1.0F); });
    const auto wider = strategy.create_variable({.name = "wider"}, [] { return Tensor::zeros(DType::f32, {3}); });
    const auto average = strategy.create_sync_on_read({.name = "average", .aggregation = Variable::Aggregation::sum},
                                                      [] { return Tensor::scalar(0.0F); });
    strategy.seal();
    average.assign(Tensor::scalar(6.0F));
    const auto loaded = load_weights(strategy, path);
    CHECK(loaded.taken == 1);
    CHECK(loaded.rest ==
          "has no 'average'; has 'wider' as f32[2], and the variable is f32[3]; has 'there', which no "
          "variable is called");
    CHECK(both.local().to_vector<float>().front() == 3);
    CHECK(StrategyExtended{strategy}.read_var(average).to_vector<float>().front() == 6);
  });
}

TEST_CASE("exported weights are those of the checkpoint, and what was there is replaced") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::string checkpoints = folder.path() / "checkpoints", file = folder.path() / "exported";
  const std::string other = folder.write("other", "something else");
  std::filesystem::create_symlink(other, file);
  const Arguments model{"--data", images.path(), "--quiet", "--model", "convnet", "--batch-norm"};
  const Trained trained =
      train_simulated(2, model + Arguments{"--steps", "2", "--checkpoint-dir", checkpoints, "--export", file});
  const std::string weights = read_file(checkpoints + "/step-2/weights.safetensors");
  CHECK(read_file(file) == weights);
  CHECK(read_file(other) == "something else");
  for (const int ranks : {1, 8}) {
    const std::string again = folder.path() / std::to_string(ranks);
    const Arguments evaluation{"--eval-only", "--init-from", file, "--export", again};
    check_same_evaluation(trained.result, train_simulated(ranks, model + evaluation).result);
    CHECK(read_file(again) == weights);
  }
}

TEST_CASE("frozen variables stay as they are, and the others change") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const auto train_to = [&](const std::string& file, const Arguments& arguments) {
    const Arguments run{"--data", images.path(), "--quiet", "--hidden", "9,5", "--weight-decay", "0.1"};
    (void)train_simulated(2, run + Arguments{"--export", folder.path() / file} + arguments);
    return folder.path() / file;
  };
  const Arguments frozen{"--freeze", "dense_0*", "--freeze", "*_2/bias"};
  const auto one = train_to("one", Arguments{"--steps", "1"} + frozen),
             four = train_to("four", Arguments{"--steps", "4"} + frozen);
  const auto same = [&](const std::string& name, const Shape& shape) {
    return tensor_in(one, name, shape) == tensor_in(four, name, shape);
  };
  CHECK(same("dense_0/weight", {64, 9}));
  CHECK(same("dense_0/bias", {9}));
  CHECK(same("dense_2/bias", {10}));
  CHECK_FALSE(same("dense_1/weight", {9, 5}));
  CHECK_FALSE(same("dense_1/bias", {5}));
  CHECK_FALSE(same("dense_2/weight", {5, 10}));
}

TEST_CASE("frozen variables have no share in the norm of the gradient, which the clip norm is compared with") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const Arguments run{"--data", images.path(), "--quiet", "--hidden", "9", "--steps", "2"};
  const auto norm = [&](const Arguments& arguments) {
    return train_simulated(2, run + arguments).metrics.front().at("gradient_norm").get<double>();
  };
  const double first = norm({"--freeze", "dense_1*"}), second = norm({"--freeze", "dense_0*"});
  CHECK(norm({}) == Approx(std::hypot(first, second)).epsilon(1e-5));  // rounding of f32
  // A norm between that of one layer and that of both clips nothing where the other layer is frozen.
  const Arguments clip{"--freeze", "dense_0*", "--clip-norm", std::to_string((second + std::hypot(first, second)) / 2)};
  const Arguments one_step{"--data", images.path(), "--quiet", "--hidden", "9", "--steps", "1"};
  CHECK(train_simulated(2, one_step + clip).digest() ==
        train_simulated(2, one_step + Arguments{"--freeze", "dense_0*"}).digest());
}

TEST_CASE("any number of ranks trains what is not frozen to the same bytes, and goes on with the same alone") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const Arguments common{"--quiet", "--clip-norm", "0.5", "--weight-decay", "0.1", "--global-batch", "37"};
  const std::vector<Arguments> runs{
      {"--data", images.path(), "--hidden", "9,5", "--accumulate", "2", "--freeze", "dense_1/*"},
      {"--data", images.path(), "--model", "convnet", "--sync-batch-norm", "--freeze", "*conv*"},
      {"--data", folder.write("text", small_text(2000)), "--model", "gpt", "--layers", "2", "--heads", "2", "--embed",
       "16", "--context", "16", "--freeze", "block_0*", "--freeze", "*embed*"}};
  int number = 0;
  for (const Arguments& run : runs) {
    INFO(run[3]);
    const Arguments three = common + run + Arguments{"--steps", "3"};
    const Trained whole = train_simulated(1, three);
    for (const int ranks : {2, 4, 8}) CHECK(train_simulated(ranks, three).digest() == whole.digest());
    const std::string checkpoints = folder.path() / std::to_string(++number);
    (void)train_simulated(2, common + run + Arguments{"--steps", "2", "--checkpoint-dir", checkpoints});
    const Arguments resumed{"--resume", checkpoints + "/step-2"};
    CHECK(train_simulated(4, three + resumed).digest() == whole.digest());
    CHECK_THROWS_WITH(train_simulated(2, three + resumed + Arguments{"--freeze", "*bias"}),
                      Catch::Contains("is of a training with frozen variables "));
  }
}

TEST_CASE("images are predicted in their order, as an evaluation counts them, on any number of ranks") {
  const QuietLog quiet;
  // More than are predicted in one round, and no multiple of what a rank takes at once.
  const ImageFiles images{{.train = 90, .test = 4200, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const Arguments model = GENERATE(Arguments{"--hidden", "5"}, Arguments{"--model", "convnet", "--batch-norm"});
  const std::string weights = folder.path() / "weights";
  const Arguments training{"--data", images.path(), "--steps", "5", "--export", weights};
  const bool is_convnet = model.front() == "--model";
  const Arguments few = is_convnet ? Arguments{"--eval-samples", "100"} : Arguments{};
  const std::int64_t count = is_convnet ? 100 : 4200;
  const Trained trained = train_simulated(2, Arguments{"--quiet"} + model + training + few);
  // The same images in a file of their own.
  const std::string file = folder.write("images", lockstep::test::images(static_cast<std::uint32_t>(count), 8, 8));
  const Arguments prediction = Arguments{"--quiet", "--predict", file, "--init-from", weights} + model;
  const std::vector<Json> found = predictions(1, prediction);
  REQUIRE(std::ssize(found) == count);
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Json& line = found[static_cast<std::size_t>(i)];
    CHECK(line["index"] == i);
    CHECK(line["probability"] >= 0.1);
    CHECK(line["probability"] <= 1);
    right += line["class"] == i % 10 ? 1 : 0;
  }
  CHECK(static_cast<double>(right) / static_cast<double>(count) == trained.result["eval_accuracy"]);
  for (const int ranks : {2, 8}) CHECK(predictions(ranks, prediction) == found);
}

TEST_CASE("--top names the likeliest classes in their order, the same on any number of ranks") {
  const QuietLog quiet;
  const ImageFiles images{{.train = 90, .test = 20, .rows = 8, .columns = 8}};
  const TemporaryDirectory folder;
  const std::string weights = folder.path() / "weights",
                    file = folder.write("images", lockstep::test::images(20, 8, 8));
  (void)train_simulated(2, {"--quiet", "--data", images.path(), "--steps", "5", "--hidden", "5", "--export", weights});
  const Arguments prediction{"--quiet", "--predict", file, "--init-from", weights, "--hidden", "5"};
  const std::vector<Json> likeliest = predictions(1, prediction),
                          three = predictions(1, prediction + Arguments{"--top", "3"}),
                          all = predictions(4, prediction + Arguments{"--top", "10"});
  CHECK(predictions(4, prediction + Arguments{"--top", "3"}) == three);
  for (std::size_t i = 0; i < 20; ++i) {
    INFO(all[i].dump());
    std::set<std::int64_t> classes;
    double sum = 0, before = 1;
    for (const Json& each : all[i]["top"]) {
      classes.insert(each["class"].get<std::int64_t>());
      CHECK(each["label"] == std::to_string(each["class"].get<std::int64_t>()));
      CHECK(each["probability"] <= before);
      sum += before = each["probability"];
    }
    CHECK(classes.size() == 10);
    CHECK(sum == Approx(1));
    const Json& first = all[i]["top"][0];
    CHECK((first["class"] == likeliest[i]["class"] && first["probability"] == likeliest[i]["probability"]));
    CHECK((likeliest[i]["label"] == first["label"] && !likeliest[i].contains("top")));
    CHECK(three[i]["top"] == Json{first, all[i]["top"][1], all[i]["top"][2]});
  }
  CHECK_THROWS_WITH(train_simulated(2, prediction + Arguments{"--top", "11"}),
                    "--top 11: expected a number from 1 to 10, as the model has so many classes");
}

TEST_CASE("a gpt writes after each line of a text, and after an empty first one what it writes as a sample") {
  const QuietLog quiet;
  const TemporaryDirectory folder;
  const Arguments model{"--model", "gpt",       "--layers", "1",       "--heads",  "2", "--embed",
                        "16",      "--context", "16",       "--quiet", "--sample", "20"};
  const std::string checkpoints = folder.path() / "checkpoints";
  const Trained trained = train_simulated(2, model + Arguments{"--data", folder.write("text", small_text(2000)),
                                                               "--steps", "2", "--checkpoint-dir", checkpoints});
  const std::string lines = folder.write("lines", "\nthe ranks\n\nsum\nthe last, without a line break");
  const Arguments prediction = model + Arguments{"--predict", lines, "--resume", checkpoints + "/step-2"};
  const std::vector<Json> found = predictions(1, prediction);
  REQUIRE(found.size() == 5);
  CHECK(found[0]["text"].get<std::string>() + "\n" == trained.written);
  for (std::size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i]["index"] == i);
    CHECK(bytes_of(found[i]["text"]) == 20);
    if (i > 0) CHECK(found[i]["text"] != found[0]["text"]);
  }
  for (const int ranks : {2, 4}) CHECK(predictions(ranks, prediction) == found);

  const std::vector<Json> ranked = predictions(2, prediction + Arguments{"--top", "256"});
  REQUIRE(ranked.size() == 5);
  for (std::size_t i = 0; i < ranked.size(); ++i) {
    CHECK(ranked[i]["text"] == found[i]["text"]);
    double sum = 0;
    for (const Json& each : ranked[i]["top"]) sum += each["probability"].get<double>();
    CHECK(sum == Approx(1).epsilon(1e-12));
  }
  CHECK(ranked[1]["top"] != ranked[3]["top"]);
  CHECK_THROWS_WITH(train_simulated(1, prediction + Arguments{"--top", "257"}),
                    "--top 257: expected a number from 1 to 256, as there are so many bytes");
}
