// SPDX-License-Identifier: MIT
#include "grammar/format_language.h"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

const std::string kLeap = "(?:[0-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)";
const std::string kDate =
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    "02-(?:0[1-9]|1[0-9]|2[0-8]))|" +
    kLeap + "-02-29)";
const std::string kHour = "(?:[01][0-9]|2[0-3])";
const std::string kOctet = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
const std::string kIpv4 = "(?:" + kOctet + "(?:\\." + kOctet + "){3})";
const std::string kWord = "[0-9A-Fa-f]{1,4}";
const std::string kLast = "(?:" + kWord + ":" + kWord + "|" + kIpv4 + ")";

// RFC 3986, IPv6address.
std::string ipv6() {
  std::string all = fmt::format("(?:{0}:){{6}}{1}|::(?:{0}:){{5}}{1}", kWord, kLast);
  for (int left = 1; left <= 5; ++left)
    all += fmt::format("|(?:(?:{0}:){{0,{1}}}{0})?::(?:{0}:){{{2}}}{3}", kWord, left - 1, 5 - left, kLast);
  all += fmt::format("|(?:(?:{0}:){{0,5}}{0})?::{0}|(?:(?:{0}:){{0,6}}{0})?::", kWord);
  return "(?:" + all + ")";
}

// A leap second falls at 23:59 UTC. Offsets are whole quarters of an hour, as all in use are.
Result<RegexId> full_time(RegexPool& pool) {
  ASSIGN_OR_RETURN(
      const RegexId ordinary,
      parse_whole_regex(pool, fmt::format("{0}:[0-5][0-9]:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]{0}:[0-5][0-9])|"
                                          "23:59:60(?:\\.[0-9]+)?(?:[Zz]|[+-]00:00)",
                                          kHour)));
  ASSIGN_OR_RETURN(const RegexId fraction, parse_whole_regex(pool, "(?:\\.[0-9]+)?"));
  const auto text = [&](const std::string& t) { return pool.text(std::u32string(t.begin(), t.end())); };
  std::vector<RegexId> ways{ordinary};
  for (int quarter = 1; quarter < 96; ++quarter) {
    const auto clock = [](int minutes) { return fmt::format("{:02}:{:02}", minutes / 60, minutes % 60); };
    const int east = quarter * 15, west = 1440 - east;  // offsets at which the same local time is 23:59 UTC
    const RegexId offsets = pool.either(text("+" + clock(east)), text("-" + clock(west)));
    ways.push_back(pool.concat(text(clock((1439 + east) % 1440) + ":60"), pool.concat(fraction, offsets)));
  }
  return pool.either(std::move(ways));
}

Result<RegexId> date_time(RegexPool& pool) {
  ASSIGN_OR_RETURN(const RegexId date, parse_whole_regex(pool, kDate + "[Tt]"));
  ASSIGN_OR_RETURN(const RegexId time, full_time(pool));
  return pool.concat(date, time);
}

std::string duration() {
  const std::string time = "(?:T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))";
  const std::string date = "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)";
  return "P(?:" + date + time + "?|" + time + "|[0-9]+W)";
}

// RFC 3986 appendix A; `more` are the code points that RFC 3987 adds.
std::string uri(bool is_reference, const std::string& more, const std::string& query_more) {
  const std::string escape = "%[0-9A-Fa-f]{2}";
  const std::string sub = "!$&'()*+,;=";
  const std::string unreserved = "A-Za-z0-9\\-._~" + more;
  const std::string pchar = fmt::format("(?:[{}{}:@]|{})", unreserved, sub, escape);
  const std::string no_colon = fmt::format("(?:[{}{}@]|{})", unreserved, sub, escape);
  const std::string host = fmt::format("(?:\\[(?:{}|[vV][0-9A-Fa-f]+\\.[{}{}:]+)\\]|(?:[{}{}]|{})*)", ipv6(),
                                       "A-Za-z0-9\\-._~", sub, unreserved, sub, escape);
  const std::string authority = fmt::format("(?:(?:[{}{}:]|{})*@)?{}(?::[0-9]*)?", unreserved, sub, escape, host);
  const std::string abempty = fmt::format("(?:/{}*)*", pchar);
  const std::string tail = fmt::format("(?:\\?(?:{0}|[/?{1}])*)?(?:#(?:{0}|[/?])*)?", pchar, query_more);
  const std::string absolute = fmt::format("/(?:{0}+(?:/{0}*)*)?", pchar);
  const std::string full = fmt::format("[A-Za-z][A-Za-z0-9+\\-.]*:(?://{}{}|{}|{}+{}|){}", authority, abempty, absolute,
                                       pchar, abempty, tail);
  if (!is_reference) return full;
  const std::string relative =
      fmt::format("(?://{}{}|{}|{}+{}|){}", authority, abempty, absolute, no_colon, abempty, tail);
  return full + "|" + relative;
}

// RFC 3987: ucschar, iprivate.
const std::string kIriMore =
    "\\u{A0}-\\u{D7FF}\\u{F900}-\\u{FDCF}\\u{FDF0}-\\u{FFEF}\\u{10000}-\\u{1FFFD}\\u{20000}-\\u{2FFFD}"
    "\\u{30000}-\\u{3FFFD}\\u{40000}-\\u{4FFFD}\\u{50000}-\\u{5FFFD}\\u{60000}-\\u{6FFFD}"
    "\\u{70000}-\\u{7FFFD}\\u{80000}-\\u{8FFFD}\\u{90000}-\\u{9FFFD}\\u{A0000}-\\u{AFFFD}"
    "\\u{B0000}-\\u{BFFFD}\\u{C0000}-\\u{CFFFD}\\u{D0000}-\\u{DFFFD}\\u{E1000}-\\u{EFFFD}";
const std::string kIriPrivate = "\\u{E000}-\\u{F8FF}\\u{F0000}-\\u{FFFFD}\\u{100000}-\\u{10FFFD}";

std::string uri_template() {
  const std::string varchar = "(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})";
  const std::string spec = fmt::format("{0}+(?:\\.{0}+)*(?::[1-9][0-9]{{0,3}}|\\*)?", varchar);
  const std::string expression = fmt::format("\\{{[+#./;?&=,!@|]?{0}(?:,{0})*\\}}", spec);
  return fmt::format("(?:[!#$&'()*+,\\-./0-9:;=?@A-Z\\[\\]_a-z~{}{}]|%[0-9A-Fa-f]{{2}}|{})*", kIriMore, kIriPrivate,
                     expression);
}

std::string email(const std::string& more) {
  const std::string atom = "[A-Za-z0-9!#$%&'*+\\-/=?^_`{|}~" + more + "]+";
  const std::string quoted = "\"(?:[ !#-\\[\\]-~" + more + "]|\\\\[ -~])*\"";
  const std::string label = fmt::format("[A-Za-z0-9{0}](?:[A-Za-z0-9\\-{0}]*[A-Za-z0-9{0}])?", more);
  return fmt::format("(?:{0}(?:\\.{0})*|{1})@(?:{2}(?:\\.{2})*|\\[(?:{3}|IPv6:{4})\\])", atom, quoted, label, kIpv4,
                     ipv6());
}

std::optional<std::string> pattern_of(std::string_view format) {
  const std::string pointer = "(?:/(?:[^/~]|~[01])*)*";
  if (format == "date") return kDate;
  if (format == "duration") return duration();
  if (format == "email") return email("");
  if (format == "idn-email") return email("\\u{80}-\\u{D7FF}\\u{E000}-\\u{10FFFF}");
  if (format == "ipv4") return kIpv4;
  if (format == "ipv6") return ipv6();
  if (format == "uri") return uri(false, "", "");
  if (format == "uri-reference") return uri(true, "", "");
  if (format == "iri") return uri(false, kIriMore, kIriPrivate);
  if (format == "iri-reference") return uri(true, kIriMore, kIriPrivate);
  if (format == "uri-template") return uri_template();
  if (format == "uuid") return "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
  if (format == "json-pointer") return pointer;
  if (format == "relative-json-pointer") return "(?:0|[1-9][0-9]*)(?:#|" + pointer + ")";
  return std::nullopt;
}

Result<RegexId> hostname(RegexPool& pool) {
  ASSIGN_OR_RETURN(const RegexId labels, parse_whole_regex(pool,
                                                           "[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?"
                                                           "(?:\\.[A-Za-z0-9](?:[A-Za-z0-9\\-]{0,61}[A-Za-z0-9])?)*"));
  ASSIGN_OR_RETURN(const RegexId a_label, parse_whole_regex(pool, "(?:[^]*\\.)?[xX][nN]--[^]*"));
  return pool.both({labels, pool.negated(a_label), pool.repeat(pool.chars(CharSet::all()), 1, 253)});
}

}  // namespace

Result<std::optional<RegexId>> format_language(RegexPool& pool, std::string_view format, bool lenient) {
  if (format == "hostname" && lenient) {
    ASSIGN_OR_RETURN(const RegexId id, hostname(pool));
    return std::optional<RegexId>(id);
  }
  if (format == "regex" || format == "idn-hostname" || format == "hostname")
    return unimplemented(fmt::format("format \"{}\" cannot be decided by a grammar", format));
  if (format == "time" || format == "date-time") {
    ASSIGN_OR_RETURN(const RegexId id, format == "time" ? full_time(pool) : date_time(pool));
    return std::optional<RegexId>(id);
  }
  const std::optional<std::string> pattern = pattern_of(format);
  if (!pattern) return std::optional<RegexId>();
  ASSIGN_OR_RETURN(const RegexId id, parse_whole_regex(pool, *pattern));
  return std::optional<RegexId>(id);
}

}  // namespace deepinfer
