#include "apps/options/option_parser.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <lockstep/core/base/error.hpp>

#include "apps/options/standard_output.hpp"
#include "apps/options/tool_main.hpp"
#include "apps/options/wrapped_text.hpp"
#include "core/base/excerpt.hpp"

namespace lockstep {
namespace {

constexpr std::size_t help_width = 80;
constexpr std::size_t help_column = 28;  // where descriptions begin

/// How many letters must be added, removed, replaced or exchanged with their neighbour to make one of the other.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        table[i][j] = i + j;
        continue;
      }
      table[i][j] =
          std::min({table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        table[i][j] = std::min(table[i][j], table[i - 2][j - 2] + 1);
    }
  return table[a.size()][b.size()];
}

/// The parts of "--learning-rate": "learning" and "rate".
std::vector<std::string> parts_of(std::string_view name) {
  std::vector<std::string> parts{""};
  for (const char each : name)
    if (each != '-')
      parts.back() += each;
    else if (!parts.back().empty())
      parts.emplace_back();
  return parts;
}

}  // namespace

std::vector<std::string> similar_to(const std::string& name, const std::vector<std::string>& names) {
  std::vector<std::pair<std::size_t, std::string>> found;
  const std::vector<std::string> parts = parts_of(name);
  for (const std::string& each : names) {
    const std::size_t errors = distance(name, each);
    const std::vector<std::string> others = parts_of(each);
    const bool shares = std::ranges::any_of(parts, [&](const std::string& part) {
      return part.size() > 2 && std::ranges::find(others, part) != others.end();
    });
    if (errors <= std::max<std::size_t>(1, name.size() / 4))
      found.emplace_back(errors, each);
    else if (shares || (name.size() > 4 && each.starts_with(name)))
      found.emplace_back(name.size() + errors, each);
  }
  std::ranges::stable_sort(found, {}, &std::pair<std::size_t, std::string>::first);
  // Where one is nearly the same, what has a part in common is not meant.
  const auto far = std::ranges::find_if(found, [&](const auto& each) { return each.first >= name.size(); });
  if (far != found.begin()) found.erase(far, found.end());
  std::vector<std::string> likely;
  for (const auto& [errors, each] : found)
    if (likely.size() < 3) likely.push_back(each);
  return likely;
}

OptionParser::OptionParser(std::string program, const std::string& description)
    : program_{std::move(program)}, app_{std::make_unique<CLI::App>(description, program_)}, current_{app_.get()} {
  app_->set_help_flag("-h,--help", "Print this help and exit");
  app_->set_version_flag("--version", version_of(program_), "Print the version and exit");
  app_->get_formatter()->column_width(help_column);
  app_->get_formatter()->label("REQUIRED", "");
  app_->get_formatter()->label("Subcommands", "Commands");
  app_->get_formatter()->label("SUBCOMMAND", "COMMAND");
}

OptionParser::~OptionParser() = default;

void OptionParser::command(const std::string& name, const std::string& help) {
  current_ = app_->add_subcommand(name, help)->group("Commands");
  commands_.push_back(current_);
  app_->require_subcommand(0, 1);  // not (1, 1): CLI11 would word the missing command its own way
}

void OptionParser::known_elsewhere(const std::string& name, const std::vector<std::string>& as) {
  for (const std::string& other : as) elsewhere_["--" + other] = name;
}

void OptionParser::option(const std::string& name, const char* value_name, const std::string& help, Take take) {
  current_
      ->add_option_function<std::string>(
          name, [name, take](const std::string& text) { take(name, text); }, help)
      ->type_name(value_name)
      ->group(group_)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

void OptionParser::repeatable(const std::string& name, const char* value_name, const std::string& help, Take take) {
  current_
      ->add_option_function<std::vector<std::string>>(
          name,
          [name, take](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) take(name, text);
          },
          help)
      ->type_name(value_name)
      ->group(group_)
      ->allow_extra_args(false)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

void OptionParser::words(const char* name, const std::string& help, Take take) {
  const auto take_all = [name, take = std::move(take)](const std::vector<std::string>& texts) {
    for (const std::string& text : texts) take(name, text);
  };
  current_->add_option_function<std::vector<std::string>>(name, take_all, help)->type_name("")->group(group_);
}

void OptionParser::flag(const std::string& name, const std::string& help, std::function<void()> take) {
  current_->add_flag_callback(name, std::move(take), help)
      ->group(group_)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
}

std::optional<std::string> OptionParser::parse(int argc, const char* const* argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return wrapped(app_->help(), std::min(columns_of_output(), help_width));
  } catch (const CLI::CallForVersion&) {
    return app_->version() + "\n";
  } catch (const CLI::ParseError& error) {
    const CLI::App* const command = named_command();
    const std::string wrong = what_is_wrong(error.what());
    throw ConfigError{fmt::format("{}{} {}{} --help lists the options", wrong, wrong.ends_with('?') ? "" : ";",
                                  program_, command ? " " + command->get_name() : "")};
  }
  if (const CLI::App* const command = named_command()) chosen_ = command->get_name();
  if (!commands_.empty() && chosen_.empty())
    throw ConfigError{fmt::format("no command was given: expected {}; {} --help describes them", commands(), program_)};
  return std::nullopt;
}

/// CLI11's verdict in our own words, for the errors that users meet.
std::string OptionParser::what_is_wrong(const std::string& parse_error) const {
  const CLI::App* const command = named_command();
  if (const std::vector<std::string> early = app_->remaining(false); command && !early.empty())
    return fmt::format("'{}' comes before the command: expected {} {} and its options", excerpt(early.front()),
                       program_, command->get_name());
  if (const std::vector<std::string> extras = app_->remaining(true); !extras.empty()) {
    const std::string& first = extras.front();
    if (first.starts_with("-") && first != "--") return unknown_option(first);
    if (!commands_.empty() && !command)
      return fmt::format("there is no command '{}': expected {}", excerpt(first), commands());
    return fmt::format("'{}' belongs to no option: expected options only", excerpt(first));
  }
  const CLI::Option* const option =
      (command ? command : app_.get())->get_option_no_throw(parse_error.substr(0, parse_error.find(':')));
  if (!option) return excerpt(parse_error);
  if (option->count() > 1) return fmt::format("{} was given more than once: expected it once", option->get_name());
  return fmt::format("{} has no value: expected {} {}", option->get_name(), option->get_name(),
                     option->get_type_name());
}

/// "there is no option --lerning-rate; did you mean --learning-rate?"
std::string OptionParser::unknown_option(const std::string& given) const {
  const CLI::App* const command = named_command();
  std::vector<std::string> names;
  for (const CLI::Option* option : (command ? command : app_.get())->get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string name = given.substr(0, given.find('='));
  if (const auto found = elsewhere_.find(name); found != elsewhere_.end())
    return fmt::format("there is no option {}; did you mean {}?", excerpt(given), found->second);
  std::string meant;
  for (const std::string& each : similar_to(name, names)) meant += (meant.empty() ? "" : " or ") + each;
  return fmt::format("there is no option {}{}", excerpt(given),
                     meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

const CLI::App* OptionParser::named_command() const {
  for (const CLI::App* const command : commands_)
    if (command->parsed()) return command;
  return nullptr;
}

std::string OptionParser::commands() const {
  std::string names;
  for (const CLI::App* const command : commands_) names += (names.empty() ? "" : " or ") + command->get_name();
  return names;
}

}  // namespace lockstep
