// The page: one file of HTML that needs no other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "apps/lockstep-report/run.hpp"

namespace lockstep::report {

/// What the page begins with; tells a file that may be replaced from others.
inline constexpr std::string_view page_begin = "<!doctype html>\n<!-- Made by lockstep-report -->";

/// Names and texts of runs may hold anything: they reach the page as data, never as its code.
std::string page_of(const std::vector<Run>& runs);

/// What the page draws, as JSON that may stand in a script of HTML.
std::string page_data(const std::vector<Run>& runs);

/// Whether the page draws curves; else it has tables only.
bool page_has_charts();

}  // namespace lockstep::report
