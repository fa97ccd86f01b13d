#include <nanobind/stl/string.h>

#include <algorithm>

#include "bindings.h"
#include "edge_text.h"

namespace dorylus {

namespace {

nb::object to_python(Fresh<int64_t>& ends) { return ends.to_python(); }
nb::object to_python(Names& names) { return nb::make_tuple(names.bytes.to_python(), names.offsets.to_python()); }

template <class Read> nb::tuple edges_of(Read read, std::string_view text, const TextForm& form) {
  auto edges = [&] {
    nb::gil_scoped_release released;
    return read(text, form);
  }();
  const TextEnd& end = edges.end;
  nb::object weight = edges.weight ? edges.weight->to_python() : nb::none();
  return nb::make_tuple(to_python(edges.source), to_python(edges.destination), weight, end.num_lines, int(end.fault),
                        end.fault_begin, end.fault_end);
}

nb::tuple py_edge_text(nb::handle text_, int64_t source, int64_t destination, int64_t weight, int64_t num_fields,
                       const std::string& separator, bool quotes, const std::string& comments, int64_t lowest,
                       int64_t highest, bool names) {
  Array text(text_, "text");
  const uint8_t* bytes = text.required<uint8_t>(-1);
  if (separator.size() > 1 || separator == "\n") bad_value("separator must be one character of ASCII, or none");
  if (std::min(source, destination) < 0 || std::max({source, destination, weight}) >= num_fields)
    bad_value("columns must lie in 0.." + std::to_string(num_fields - 1));
  TextForm form{source, destination, weight, num_fields, separator.empty() ? '\0' : separator[0],
                quotes, comments,    lowest, highest};
  std::string_view view(reinterpret_cast<const char*>(bytes), size_t(text.rows()));
  return names ? edges_of(read_name_edges, view, form) : edges_of(read_number_edges, view, form);
}

}  // namespace

void bind_edge_text(nb::module_& m) { m.def("edge_text", &py_edge_text); }

}  // namespace dorylus
