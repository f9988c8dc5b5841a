// Removes one line of a rank from a stream.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "apps/lockstep-run/rank_label.hpp"

namespace lockstep::run {

/// Holds back what may be the beginning of the line, or of a launcher's label before it, until it is caught.
class LineCatcher {
 public:
  /// `line` is given without its end.
  explicit LineCatcher(std::string_view line, RankLabels labels = {})
      : wanted_{std::string{line} + '\n'}, labels_{std::move(labels)} {}

  /// The part of the next bytes, however they are cut, that passes through.
  std::string pass(std::string_view bytes);

  /// What is held back still, at the end.
  std::string rest() { return std::move(held_); }

 private:
  std::string wanted_;
  RankLabels labels_;
  std::string held_;
  bool may_match_ = true;  ///< everything since the beginning of the line is held
  bool caught_ = false;
};

}  // namespace lockstep::run
