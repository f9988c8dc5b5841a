// A meeting point with a script of what the other ranks do.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/control/meeting_point.hpp"
#include "core/control/tag.hpp"
#include "support/scripted_channel.hpp"

namespace lockstep::test {

using Calls = std::vector<std::string>;

inline std::vector<std::string> names() {
  return {"replica 0 (chief:0)", "replica 1 (worker:0)", "replica 2 (worker:1)"};
}

inline MeetingPoint meeting_on(Script& script, PhaseTable* phases = nullptr) {
  return MeetingPoint{std::make_unique<ScriptedChannel>(script), names(), phases};
}

inline Tag elsewhere(TagKind kind = TagKind::reduce) {
  Tag tag;
  tag.kind = kind;
  std::string_view{"other.cpp:7"}.copy(tag.site, Tag::site_capacity);
  tag.step = 1;
  tag.sequence = 1;
  tag.count = 1;
  return tag;
}

inline Tag failing(std::string_view text, Error::ExitCode cause = Error::ExitCode::failure) {
  Tag tag;
  tag.kind = TagKind::error;
  tag.cause = cause;
  tag.set_text(text);
  return tag;
}

inline void agree(MeetingPoint& meeting, std::string_view text = {}, Here here = Here::current()) {
  meeting.agree(TagKind::merge, 0, here, text);
}

inline std::exception_ptr exception(const std::string& what) {
  return std::make_exception_ptr(std::runtime_error{what});
}

/// Announces `error` and returns what that threw.
inline std::exception_ptr thrown_by_fail(MeetingPoint& meeting, std::exception_ptr error) {
  try {
    meeting.fail(std::move(error));
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace lockstep::test
