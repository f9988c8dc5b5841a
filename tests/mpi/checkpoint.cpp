// Saving and restoring what a strategy's variables hold. Components differ on every rank; sums are exact.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <catch2/catch.hpp>

#include <lockstep/core/base/error.hpp>
#include <lockstep/sync/checkpoint/checkpoint.hpp>
#include <lockstep/sync/optim/sgd.hpp>

#include "core/control/meeting_point.hpp"
#include "shared_folder.hpp"
#include "support/job.hpp"
#include "support/ranks.hpp"
#include "sync/group/replica_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using namespace lockstep::test;
namespace fs = std::filesystem;

namespace {

/// Overwrites this rank's component, whatever the context and the kind of variable.
void put(Strategy& strategy, const Variable& variable, const Tensor& value) {
  copy(value.view(), variable.local(), strategy.stream());
}

template <class T>
std::vector<T> component(const Variable& variable) {
  return variable.local().to_vector<T>();
}

/// The words of the failure: the chief's own CheckpointError, and the others' PeerError around it.
template <class Body>
std::string failure_of(Body&& body) {
  try {
    body();
  } catch (const CheckpointError& error) {
    CHECK(runtime().is_chief());
    return error.what();
  } catch (const PeerError& error) {
    CHECK_FALSE(runtime().is_chief());
    CHECK(error.rank() == 0);
    CHECK(error.cause() == Error::ExitCode::checkpoint);
    const std::string words = error.what();
    const std::string start = ") failed: ";
    const std::size_t begin = words.find(start);
    REQUIRE(begin != std::string::npos);
    return words.substr(begin + start.size());
  }
  return "no failure";
}

/// Variables of every kind.
struct SavedProgram {
  Strategy strategy = runtime().make_strategy();
  MirroredVariable flag, weights, bias, steps, half;
  SyncOnReadVariable sum, count, mean, first;

  SavedProgram()
      : flag{mirrored("flag", Tensor::scalar(std::uint8_t{1}))},
        weights{mirrored("dense/weights", Tensor::from({1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F}, {2, 3}))},
        bias{mirrored("größe \"b\"", Tensor::from({0.25, -0.5}, {2}))},
        steps{mirrored("steps", Tensor::from({std::int32_t{7}}, {1}))},
        half{mirrored("half", Tensor::zeros(DType::bf16, {3}))},
        sum{sync_on_read("sum", Variable::Aggregation::sum, Tensor::from({1.0, 2.0}, {2}))},
        count{sync_on_read("count", Variable::Aggregation::sum, Tensor::scalar(std::int64_t{0}))},
        mean{sync_on_read("mean", Variable::Aggregation::mean, Tensor::scalar(0.0F))},
        first{sync_on_read("first", Variable::Aggregation::only_first_replica, Tensor::scalar(0.0))} {
    strategy.seal();
  }

  /// Values such that what the sync-on-read variables are read as is the same on any number of ranks.
  void train() {
    put(strategy, weights, Tensor::from({1.5F, -2.0F, 3.0F, 4.0F, 5.0F, -0.0F}, {2, 3}));
    put(strategy, steps, Tensor::from({std::int32_t{1000}}, {1}));
    const bool last = rank() + 1 == ranks();
    // Each but the last brings its number, and the last what is missing to the whole.
    const int others = ranks() * (ranks() - 1) / 2;
    put(strategy, sum, Tensor::from({last ? 36.0 - (others - rank()) : 1.0 * rank(), last ? 72.0 : 0.0}, {2}));
    put(strategy, count, Tensor::scalar(std::int64_t{last ? 50 - (others - rank()) : rank()}));
    put(strategy, mean, Tensor::scalar(last ? static_cast<float>(3 * ranks()) : 0.0F));
    put(strategy, first, Tensor::scalar(5.0 + rank()));
  }

  void spoil() {
    for (const auto& state : inside(strategy.store()).variables()) {
      const auto variable = handle_of<MirroredVariable>(state);
      const Tensor value = Tensor::zeros(variable.dtype(), variable.shape());
      std::fill_n(value.view().data(), value.view().bytes(), static_cast<std::byte>(rank() + 1));
      put(strategy, variable, value);
    }
  }

  std::uint64_t meetings() { return inside(strategy).group().meeting().meetings(); }

 private:
  MirroredVariable mirrored(const char* name, const Tensor& value) {
    return strategy.create_variable({.name = name}, [&] { return value; });
  }
  SyncOnReadVariable sync_on_read(const char* name, Variable::Aggregation aggregation, const Tensor& value) {
    return strategy.create_sync_on_read({.name = name, .aggregation = aggregation}, [&] { return value; });
  }
};

/// One variable of three floats, in a file of its own.
struct SmallProgram {
  Strategy strategy = runtime().make_strategy();
  MirroredVariable w = strategy.create_variable({.name = "w"}, [] { return Tensor::from({1.0F, 2.0F, 3.0F}, {3}); });

  SmallProgram() { strategy.seal(); }
};

std::string file_of(const std::string& header, std::string_view data) {
  const std::uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + std::string{data};
}

constexpr std::string_view three_floats{"\0\0\0\x41\0\0\x20\x41\0\0\x40\x41", 12};  // 8, 10, 12

}  // namespace

TEST_CASE("a mirrored variable is saved once, under its name, and restored on every rank", "[C-45]") {
  const SharedFolder folder;
  SavedProgram program;
  program.train();
  save_checkpoint(program.strategy, folder / "c");
  if (runtime().is_chief()) CHECK(folder.names() == std::vector<std::string>{"c"});
  program.spoil();
  restore_checkpoint(program.strategy, folder / "c");
  CHECK(component<float>(program.weights) == std::vector<float>{1.5F, -2, 3, 4, 5, -0.0F});
  CHECK(component<double>(program.bias) == std::vector<double>{0.25, -0.5});
  CHECK(component<std::uint8_t>(program.flag) == std::vector<std::uint8_t>{1});
  CHECK(component<std::int32_t>(program.steps) == std::vector<std::int32_t>{1000});
  CHECK(Tensor::on_host(program.half.local()).view().data()[5] == std::byte{0});
  program.strategy.attest();
}

TEST_CASE("a sync-on-read variable is saved as it is read, and restored in parts", "[C-46]") {
  const SharedFolder folder;
  SavedProgram program;
  program.train();
  save_checkpoint(program.strategy, folder / "c");
  CHECK(component<double>(program.first) == std::vector<double>{5.0 + rank()});  // as it was
  program.spoil();
  restore_checkpoint(program.strategy, folder / "c");
  CHECK(component<double>(program.sum) == std::vector<double>{36.0 / ranks(), 72.0 / ranks()});
  CHECK(component<std::int64_t>(program.count) ==
        std::vector<std::int64_t>{50 / ranks() + (rank() < 50 % ranks() ? 1 : 0)});
  CHECK(component<float>(program.mean) == std::vector<float>{3});
  CHECK(component<double>(program.first) == std::vector<double>{5});
  CHECK(program.count.read().to_vector<std::int64_t>() == std::vector<std::int64_t>{50});
}

TEST_CASE(
    "a save is an agreement on the path, one on whether means are alike, one on all that is combined, and one on "
    "the end",
    "[C-46]") {
  const SharedFolder folder;
  SavedProgram program;
  const auto before = program.meetings();
  save_checkpoint(program.strategy, folder / "c");
  CHECK(program.meetings() == before + 4);
  SmallProgram small;
  const auto before_small = program.meetings();
  save_checkpoint(small.strategy, folder / "c");
  CHECK(program.meetings() == before_small + 2);
}

TEST_CASE("the bytes of a checkpoint are those of the format, whatever the number of ranks", "[C-47]") {
  const SharedFolder folder;
  SavedProgram program;
  program.train();
  save_checkpoint(program.strategy, folder / "c");
  if (!runtime().is_chief()) return;
  const std::string bytes = read_file(folder / "c");
  const std::string header =
      R"({"__metadata__":{"writer":"lockstep"},"größe \"b\"":{"dtype":"F64","shape":[2],"data_offsets":[0,16]},)"
      R"("sum":{"dtype":"F64","shape":[2],"data_offsets":[16,32]},)"
      R"("count":{"dtype":"I64","shape":[],"data_offsets":[32,40]},)"
      R"("first":{"dtype":"F64","shape":[],"data_offsets":[40,48]},)"
      R"("dense/weights":{"dtype":"F32","shape":[2,3],"data_offsets":[48,72]},)"
      R"("steps":{"dtype":"I32","shape":[1],"data_offsets":[72,76]},)"
      R"("mean":{"dtype":"F32","shape":[],"data_offsets":[76,80]},)"
      R"("half":{"dtype":"BF16","shape":[3],"data_offsets":[80,86]},)"
      R"("flag":{"dtype":"U8","shape":[],"data_offsets":[86,87]}})";
  const std::size_t padded = (header.size() + 7) / 8 * 8;
  REQUIRE(bytes.size() == 8 + padded + 87);
  CHECK(static_cast<unsigned char>(bytes[0]) + 256U * static_cast<unsigned char>(bytes[1]) == padded);
  CHECK(bytes.substr(8, padded) == header + std::string(padded - header.size(), ' '));
  const auto number = [&](std::size_t offset, auto like) {
    std::copy_n(bytes.data() + 8 + padded + offset, sizeof like, reinterpret_cast<char*>(&like));
    return like;
  };
  CHECK(number(0, 0.0) == 0.25);
  CHECK(number(24, 0.0) == 72.0);
  CHECK(number(32, std::int64_t{}) == 50);
  CHECK(number(40, 0.0) == 5.0);
  CHECK(number(52, 0.0F) == -2.0F);
  CHECK(number(72, std::int32_t{}) == 1000);
  CHECK(number(76, 0.0F) == 3.0F);
  CHECK(bytes.back() == 1);
}

TEST_CASE("a file that another program wrote is restored, in whatever order it is", "[C-47]") {
  const SharedFolder folder;
  Strategy strategy = runtime().make_strategy();
  const auto w = strategy.create_variable({.name = "w"}, [] { return Tensor::from({1.0F, 2.0F}, {2}); });
  const auto n = strategy.create_variable({.name = "n"}, [] { return Tensor::scalar(std::uint8_t{0}); });
  strategy.seal();
  folder.write("c", file_of(R"({"w": {"shape": [2], "data_offsets": [1, 9], "dtype": "F32"},
                               "n": {"dtype": "U8", "shape": [], "data_offsets": [0, 1]}})",
                            {"\x07\0\0\0\x41\0\0\x20\x41", 9}));
  restore_checkpoint(strategy, folder / "c");
  CHECK(component<float>(w) == std::vector<float>{8, 10});
  CHECK(component<std::uint8_t>(n) == std::vector<std::uint8_t>{7});
}

TEST_CASE("what is restored is read in bf16 too") {
  const SharedFolder folder;
  SmallProgram program;
  if (program.strategy.stream().kind() != DeviceKind::cpu) return;
  const auto rounded = [&] {
    const auto numbers = program.w.for_reading(DType::bf16).to_vector<BFloat16>();
    return std::vector<float>{numbers.begin(), numbers.end()};
  };
  save_checkpoint(program.strategy, folder / "c");
  program.w.assign(Tensor::from({5.0F, 6.0F, 7.0F}, {3}));
  CHECK(rounded() == std::vector<float>{5, 6, 7});
  restore_checkpoint(program.strategy, folder / "c");
  CHECK(rounded() == std::vector<float>{1, 2, 3});
}

TEST_CASE("saving and restoring works in a scope and in a merge function, and nowhere in replica context") {
  const SharedFolder folder;
  SmallProgram program;
  const Scope scope = program.strategy.scope();
  save_checkpoint(program.strategy, folder / "c");
  program.strategy.run([&](ReplicaContext& context) {
    CHECK_THROWS_WITH(save_checkpoint(program.strategy, folder / "c"),
                      Catch::StartsWith("save_checkpoint (checkpoint.cpp:"));
    CHECK_THROWS_AS(restore_checkpoint(program.strategy, folder / "c"), ContextError);
    put(program.strategy, program.w, Tensor::from({0.0F, 0.0F, 1.0F * rank()}, {3}));
    context.merge_call([&](Strategy& strategy) { restore_checkpoint(strategy, folder / "c"); });
  });
  CHECK(component<float>(program.w) == std::vector<float>{1, 2, 3});
}

TEST_CASE("variables without memory can be neither saved nor restored, before any communication") {
  const SharedFolder folder;
  SmallProgram program;
  (void)program.strategy.create_variable({.name = "late"}, [] { return Tensor::scalar(1.0F); });
  const auto before = inside(program.strategy).group().meeting().meetings();
  CHECK_THROWS_AS(save_checkpoint(program.strategy, folder / "c"), ContextError);
  CHECK_THROWS_AS(restore_checkpoint(program.strategy, folder / "c"), ContextError);
  CHECK(inside(program.strategy).group().meeting().meetings() == before);
}

TEST_CASE("ranks that name other paths, or do not do the same, are told so") {
  if (ranks() == 1) return;
  const SharedFolder folder;
  SmallProgram program;
  const std::string paths =
      mismatch_of([&] { save_checkpoint(program.strategy, rank() == 1 ? "/nowhere/one" : "/nowhere/other"); });
  CHECK_THAT(paths, Catch::Contains("save_checkpoint #") && Catch::Contains("with /nowhere/one") &&
                        Catch::Contains("with /nowhere/other"));
  const std::string acts = mismatch_of([&] {
    if (rank() == 1) {
      save_checkpoint(program.strategy, folder / "c");
    } else {
      restore_checkpoint(program.strategy, folder / "c");
    }
  });
  CHECK_THAT(acts, Catch::Contains("is at save_checkpoint #") && Catch::Contains("at restore_checkpoint #"));
  save_checkpoint(program.strategy, folder / "c");
}

TEST_CASE("what cannot be written fails on every rank, and leaves nothing behind") {
  const SharedFolder folder;
  SmallProgram program;
  const fs::path nowhere = folder / "missing/c";
  CHECK(failure_of([&] { save_checkpoint(program.strategy, nowhere); }) ==
        "checkpoint " + nowhere.string() + ": cannot be made: No such file or directory");
  if (runtime().is_chief()) fs::create_directory(folder / "c");
  CHECK(failure_of([&] { save_checkpoint(program.strategy, folder / "c"); }) ==
        "checkpoint " + (folder / "c").string() + ": cannot be put in its place: Is a directory");
  if (runtime().is_chief()) CHECK(folder.names() == std::vector<std::string>{"c"});
  save_checkpoint(program.strategy, folder / "d");
}

TEST_CASE("a save takes the place of an older one, and of what an interrupted one left") {
  const SharedFolder folder;
  SmallProgram program;
  folder.write("c", "older");
  folder.write(".c.part", std::string(100'000, 'x'));
  save_checkpoint(program.strategy, folder / "c");
  put(program.strategy, program.w, Tensor::zeros(DType::f32, {3}));
  restore_checkpoint(program.strategy, folder / "c");
  CHECK(component<float>(program.w) == std::vector<float>{1, 2, 3});
  if (runtime().is_chief()) CHECK(folder.names() == std::vector<std::string>{"c"});
}

TEST_CASE("variables that asked for one name are saved and restored apart, with their optimizer state", "[C-3]") {
  const SharedFolder folder;
  Strategy strategy = runtime().make_strategy();
  const auto make = [&](const char* name) {
    return strategy.create_variable({.name = name}, [] { return Tensor::scalar(0.0F); });
  };
  const MirroredVariable variables[] = {make(""), make("w"), make("w"), make("")};
  strategy.seal();
  const Sgd sgd{{.learning_rate = 1, .momentum = 0.9}};
  sgd.prepare(strategy, variables);
  const std::vector<detail::OptimizerState> state = inside(strategy.store()).optimizer_state();
  const auto fill = [&](float first) {
    for (int i = 0; i < 4; ++i) {
      put(strategy, variables[i], Tensor::scalar(first + static_cast<float>(i)));
      copy(Tensor::scalar(first + 10 + static_cast<float>(i)).view(), state[static_cast<std::size_t>(i)].value,
           strategy.stream());
    }
  };
  fill(1);
  save_checkpoint(strategy, folder / "c");
  fill(100);
  restore_checkpoint(strategy, folder / "c");
  const std::vector<std::string> names{"Variable", "w", "w_1", "Variable_1"};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(variables[i].name() == names[i]);
    CHECK(state[i].name == names[i] + "@momentum");
    CHECK(component<float>(variables[i]) == std::vector{1 + static_cast<float>(i)});
    CHECK(state[i].value.to_vector<float>() == std::vector{11 + static_cast<float>(i)});
  }
}

TEST_CASE("a variable with the name of another's optimizer state is refused, with both of them") {
  const SharedFolder folder;
  SmallProgram program;
  (void)program.strategy.create_variable({.name = "w@momentum"}, [] { return Tensor::scalar(std::int64_t{1}); });
  program.strategy.seal();
  Sgd{{.learning_rate = 1, .momentum = 0.9}}.prepare(program.strategy, {program.w});
  const std::string both = "two values are called 'w@momentum', i64[] and f32[3]; expected a name of its own for each";
  CHECK_THAT(failure_of([&] { save_checkpoint(program.strategy, folder / "c"); }), Catch::Contains(both));
  CHECK_THAT(failure_of([&] { restore_checkpoint(program.strategy, folder / "c"); }), Catch::Contains(both));
  if (runtime().is_chief()) CHECK(folder.names().empty());
}

TEST_CASE("a variable that cannot be read as one cannot be saved") {
  const SharedFolder folder;
  Strategy strategy = runtime().make_strategy();
  (void)strategy.create_sync_on_read({.name = "own"}, [] { return Tensor::scalar(1.0F); });
  strategy.seal();
  CHECK_THROWS_WITH(save_checkpoint(strategy, folder / "c"), Catch::Contains("'own'"));
  if (runtime().is_chief()) CHECK(folder.names().empty());
}

TEST_CASE("what does not fit the variables is refused with what was expected, and changes none of them") {
  const SharedFolder folder;
  SmallProgram program;
  const auto refused = [&](const std::string& bytes) {
    folder.write("c", bytes);
    const std::string words = failure_of([&] { restore_checkpoint(program.strategy, folder / "c"); });
    CHECK(component<float>(program.w) == std::vector<float>{1, 2, 3});
    CHECK_THAT(words, Catch::StartsWith("checkpoint " + (folder / "c").string() + ": "));
    return words;
  };
  const std::string right = file_of(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", three_floats);
  CHECK_THAT(refused(file_of(R"({"w":{"dtype":"F32","shape":[3,1],"data_offsets":[0,12]}})", three_floats)),
             Catch::EndsWith("entry 'w' is f32[3, 1]; expected f32[3]"));
  CHECK_THAT(refused(file_of(R"({"w":{"dtype":"I32","shape":[3],"data_offsets":[0,12]}})", three_floats)),
             Catch::EndsWith("entry 'w' is i32[3]; expected f32[3]"));
  CHECK_THAT(
      refused(file_of(R"({"v":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", three_floats)),
      Catch::Contains("has no entry 'w', and has the entry 'v'; expected one for each variable and each piece of "
                      "optimizer state, and no other"));
  std::string many;
  for (const char letter : {'g', 'f', 'e', 'd', 'c', 'b', 'a'})
    many += std::string{many.empty() ? "{\"" : ",\""} + letter + R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  CHECK_THAT(refused(file_of(many + "}", "")), Catch::Contains("has the entry 'a', 'b', 'c', 'd', 'e' and 2 more;"));
  CHECK_THAT(refused(file_of("{}", "")), Catch::Contains("has no entry 'w'; expected one for each variable"));
  CHECK_THAT(refused(right.substr(0, right.size() - 1)), Catch::Contains("expected the whole file"));
  CHECK_THAT(refused(right + " "), Catch::Contains("bytes 12 to 13 of its data belong to no entry"));
  CHECK_THAT(refused(right.substr(0, 20)), Catch::Contains("begins with a header of 55 bytes, and has 12 more"));
  CHECK_THAT(refused("1234567"), Catch::Contains("has 7 bytes; expected a file in the safetensors format"));
  folder.write("c", right);
  restore_checkpoint(program.strategy, folder / "c");
  CHECK(component<float>(program.w) == std::vector<float>{8, 10, 12});
  CHECK_THAT(failure_of([&] { restore_checkpoint(program.strategy, folder / "none"); }),
             Catch::EndsWith("cannot be read: No such file or directory"));
}
