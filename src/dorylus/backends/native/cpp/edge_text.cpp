#include "edge_text.h"

#include <algorithm>

#include "edge_text_fields.h"

namespace dorylus {

namespace {

// Ends of edges as numbers.
class Numbers {
 public:
  Numbers(int64_t most_edges, int64_t) : source_(most_edges), destination_(most_edges) {}

  TextFault put(int64_t edge, const EdgeFields& fields, const TextForm& form) {
    TextFault fault = to_number(fields.source.text, form, source_[edge]);
    return fault == TextFault::none ? to_number(fields.destination.text, form, destination_[edge]) : fault;
  }

  // The fast path: a line of two plain numbers and a newline. Returns the line's end, or null for any other line.
  const char* put_plain(int64_t edge, const char* at, const char* end, const TextForm& form) {
    int64_t source, destination;
    at = digits(at, end, source);
    if (at == end || !(form.separator != 0 ? *at == form.separator : is_blank(*at, form))) return nullptr;
    at = digits(at + 1, end, destination);
    if (at == end) return nullptr;
    if (*at == '\r' && at + 1 < end) ++at;
    if (*at != '\n' || std::min(source, destination) < form.lowest || std::max(source, destination) > form.highest)
      return nullptr;
    source_[edge] = source, destination_[edge] = destination;
    return at;
  }

  TextEdges<Fresh<int64_t>> finish(int64_t num_edges, std::optional<Fresh<float>> weight, const TextEnd& end) {
    source_.shrink(num_edges), destination_.shrink(num_edges);
    return {std::move(source_), std::move(destination_), std::move(weight), end};
  }

 private:
  // The number of one to eighteen digits at `at`, which cannot overflow; `end` where there is none.
  static const char* digits(const char* at, const char* end, int64_t& number) {
    const char* stop = std::min(end, at + 18);
    const char* begin = at;
    uint64_t value = 0;
    for (; at < stop && uint8_t(*at - '0') < 10; ++at) value = value * 10 + uint8_t(*at - '0');
    number = int64_t(value);
    return at == begin ? end : at;
  }

  Fresh<int64_t> source_, destination_;
};

// Ends of edges as names.
class Named {
 public:
  Named(int64_t most_edges, int64_t most_bytes)
      : source_{Fresh<uint8_t>(most_bytes), Fresh<int64_t>(most_edges + 1)},
        destination_{Fresh<uint8_t>(most_bytes), Fresh<int64_t>(most_edges + 1)} {
    source_.offsets[0] = destination_.offsets[0] = 0;
  }

  TextFault put(int64_t edge, const EdgeFields& fields, const TextForm&) {
    if (fields.source.text.empty() || fields.destination.text.empty()) return TextFault::empty;
    append(source_, edge, fields.source);
    append(destination_, edge, fields.destination);
    return TextFault::none;
  }

  const char* put_plain(int64_t, const char*, const char*, const TextForm&) { return nullptr; }

  TextEdges<Names> finish(int64_t num_edges, std::optional<Fresh<float>> weight, const TextEnd& end) {
    for (Names* names : {&source_, &destination_}) {
      names->bytes.shrink(names->offsets[num_edges]);
      names->offsets.shrink(num_edges + 1);
    }
    return {std::move(source_), std::move(destination_), std::move(weight), end};
  }

 private:
  static void append(Names& names, int64_t edge, const Field& name) {
    uint8_t* begin = names.bytes.data();
    names.offsets[edge + 1] = copy(name, begin + names.offsets[edge]) - begin;
  }

  Names source_, destination_;
};

bool is_plain(const TextForm& form) {
  return form.num_fields == 2 && form.source == 0 && form.destination == 1 && form.weight < 0;
}

template <class Ends> auto read_edges(std::string_view text, const TextForm& form) {
  const char *begin = text.data(), *end = begin + text.size();
  const int64_t most_edges = std::count(begin, end, '\n') + 1;
  Ends ends(most_edges, int64_t(text.size()));
  std::optional<Fresh<float>> weight;
  if (form.weight >= 0) weight.emplace(most_edges);
  const bool plain = is_plain(form);
  int64_t num_edges = 0;
  TextEnd done{0, TextFault::none, 0, 0};
  for (const char* at = begin; at < end; ++done.num_lines) {
    if (plain) {
      const char* newline = ends.put_plain(num_edges, at, end, form);
      if (newline != nullptr) {
        at = newline + 1, ++num_edges;
        continue;
      }
    }
    const char* newline = static_cast<const char*>(std::memchr(at, '\n', size_t(end - at)));
    const char* stop = newline != nullptr ? newline : end;
    std::string_view line(at, size_t(stop - at));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    std::string_view content = without_comment(line, form);
    if (!content.empty()) {
      EdgeFields fields;
      TextFault fault = LineFields(content, form).take(fields);
      if (fault == TextFault::none) fault = ends.put(num_edges, fields, form);
      if (fault == TextFault::none && weight && !to_weight(fields.weight.text, (*weight)[num_edges]))
        fault = TextFault::weight;
      if (fault != TextFault::none) {
        done = {done.num_lines, fault, line.data() - begin, line.data() + line.size() - begin};
        break;
      }
      ++num_edges;
    }
    at = stop + 1;
  }
  if (weight) weight->shrink(num_edges);
  return ends.finish(num_edges, std::move(weight), done);
}

}  // namespace

TextEdges<Fresh<int64_t>> read_number_edges(std::string_view text, const TextForm& form) {
  return read_edges<Numbers>(text, form);
}

TextEdges<Names> read_name_edges(std::string_view text, const TextForm& form) { return read_edges<Named>(text, form); }

}  // namespace dorylus
