// The text that the chief writes while the others wait.
#include <string>

#include <catch2/catch.hpp>

#include <lockstep/sync/strategy/strategy.hpp>

#include "apps/lockstep-train/tasks/task.hpp"
#include "core/control/meeting_point.hpp"
#include "support/phase_rows.hpp"
#include "sync/group/local_group.hpp"
#include "sync/strategy/inside.hpp"

using namespace lockstep;
using lockstep::test::Table;

namespace {

/// Keeps the phase in which its rank writes.
class WritingTask final : public TrainingTask {
 public:
  explicit WritingTask(const PhaseTable& phases) : phases_{phases} {}

  std::string write_sample() override {
    seen_ = phases_.read(0).phase;
    place_ = describe(phases_.read(0).position.where, phases_.read(0).position.kind, phases_.read(0).position.step);
    return "a text";
  }
  Phase seen() const { return seen_; }
  const std::string& place() const { return place_; }

  FitOptions::Samples samples() const override { throw InvalidArgument{"no samples"}; }
  std::uint64_t data_digest() const override { return 0; }
  ModelDescription description() const override { return {}; }
  const DataSchema& schema() const override { throw InvalidArgument{"no data"}; }
  void require_model_fits(const FitOptions&, const Room&) const override {}
  nn::Model& make_model(Strategy&, std::shared_ptr<const ops::Kernels>) override { throw InvalidArgument{"no model"}; }
  std::unique_ptr<Predictor> make_predictor(Stream&) override { return nullptr; }

 private:
  const PhaseTable& phases_;
  Phase seen_ = Phase::absent;
  std::string place_;
};

}  // namespace

TEST_CASE("the chief is not late, however long it writes") {
  Table table;
  const auto group = make_local_group();
  Strategy strategy = strategy_on(*group);
  group->meeting().set_phases(&table.rows);
  WritingTask task{table.rows};
  strategy.run([](ReplicaContext&) {});
  CHECK(write_sample(strategy, task, 12, 1.0) == "a text");
  CHECK(task.seen() == Phase::alone);
  CHECK(task.place() == "in the sample after step 12");
  CHECK(table.rows.read(0).phase == Phase::computing);
  group->meeting().set_phases(nullptr);
}
