#include "apps/options/option_parser.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <lockstep/base/error.hpp>
#include <lockstep/control/tag.hpp>

namespace lockstep {

OptionParser::OptionParser(std::string program, const std::string& description)
    : program_{std::move(program)}, app_{std::make_unique<CLI::App>(description, program_)}, current_{app_.get()} {
  app_->set_help_flag("-h,--help", "Print this help and exit");
  app_->set_version_flag("--version", program_ + " " LOCKSTEP_VERSION, "Print the version and exit");
  app_->get_formatter()->column_width(32);
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

void OptionParser::option(const std::string& name, const char* value_name, const std::string& help, Take take) {
  current_
      ->add_option_function<std::string>(
          name, [name, take](const std::string& text) { take(name, text); }, help)
      ->type_name(value_name)
      ->group(group_)
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
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
    return app_->help();
  } catch (const CLI::CallForVersion&) {
    return app_->version() + "\n";
  } catch (const CLI::ParseError& error) {
    const CLI::App* const command = named_command();
    throw ConfigError{fmt::format("{}; {}{} --help lists the options", what_is_wrong(one_line(error.what())), program_,
                                  command ? " " + command->get_name() : "")};
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
    return fmt::format("'{}' comes before the command: expected {} {} and its options", early.front(), program_,
                       command->get_name());
  if (const std::vector<std::string> extras = app_->remaining(true); !extras.empty()) {
    const std::string& first = extras.front();
    if (first.starts_with("-") && first != "--") return fmt::format("there is no option {}", first);
    if (!commands_.empty() && !command) return fmt::format("there is no command '{}': expected {}", first, commands());
    return fmt::format("'{}' belongs to no option: expected options only", first);
  }
  const CLI::Option* const option =
      (command ? command : app_.get())->get_option_no_throw(parse_error.substr(0, parse_error.find(':')));
  if (!option) return parse_error;
  if (option->count() > 1) return fmt::format("{} was given more than once: expected it once", option->get_name());
  return fmt::format("{} has no value: expected {} {}", option->get_name(), option->get_name(),
                     option->get_type_name());
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
