// How far `fit` has come with the variables of a store: what checkpoints save of it, and what they bring back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <lockstep/sync/strategy/variable_store.hpp>

#include "core/base/parts.hpp"

namespace lockstep::detail {

class LOCKSTEP_PARTS_API FitProgress {
 public:
  /// A checkpoint that was restored, until `fit` goes on from it or the program has trained on by itself.
  struct Restored {
    std::string checkpoint;  ///< as messages name it
    std::int64_t step;       ///< that it is of
    /// Observer::State as text. Nothing if it was saved before any `fit`, by an older version, or by save_checkpoint.
    std::optional<std::string> state;
    int fits_before = 0;               ///< how many the program had made before that one
    std::int64_t optimizer_steps = 0;  ///< of all optimizers, as it was restored
  };

  /// Of the store, which keeps it.
  static FitProgress& of(VariableStore& store);

  /// The steps that the optimizers of a store have made, all together.
  static std::int64_t optimizer_steps(VariableStore& store);

  // --- for checkpoints ---

  /// What the checkpoint of a program with a `fit` holds beside what the program gives, by the names below.
  std::map<std::string, std::string> saved() const;
  void restore(Restored restored) { restored_ = std::move(restored); }
  void forget_restored() { restored_.reset(); }

  static constexpr const char* state_name = "fit";
  static constexpr const char* fits_before_name = "fits before";

  // --- for `fit` ---

  /// Nothing if the program has trained on by itself since.
  const std::optional<Restored>& restored(VariableStore& store);

  /// How many have begun.
  int fits() const { return fits_; }

  /// A `fit` that has begun. `state` returns its Observer::State as text, which is kept when it ends.
  class [[nodiscard]] Underway {
   public:
    Underway(FitProgress& progress, std::function<std::string()> state);
    Underway(const Underway&) = delete;
    ~Underway();

   private:
    FitProgress& progress_;
  };

 private:
  std::optional<Restored> restored_;
  int fits_ = 0;
  std::function<std::string()> state_;  ///< of the newest; empty before the first
};

}  // namespace lockstep::detail
