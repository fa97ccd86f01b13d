#include <cerrno>
#include <system_error>

#include "bindings.h"
#include "external_sort.h"

namespace dorylus {

namespace {

void py_add(EdgeSort& sort, nb::handle rows_, nb::handle columns_, nb::handle weights_, bool weighted) {
  Array rows(rows_, "rows"), columns(columns_, "columns"), weights(weights_, "weights");
  const int32_t* row = rows.required<int32_t>(-1);
  const int32_t* column = columns.required<int32_t>(rows.rows());
  const float* weight = weighted ? weights.required<float>(rows.rows()) : nullptr;
  if (!weighted && weights.present()) bad_value("weights are given, but the sort was made without weighted=True");
  nb::gil_scoped_release released;
  sort.add({row, column, weight, rows.rows()});
}

std::unique_ptr<SortedEdges> py_sorted(EdgeSort& sort, int64_t memory_bytes, int64_t block_edges) {
  if (block_edges < 1) bad_value("block_edges is " + std::to_string(block_edges) + ": give at least 1");
  nb::gil_scoped_release released;
  return sort.sorted(memory_bytes, block_edges);
}

nb::object py_next(SortedEdges& edges) {
  std::optional<SortedBlock> block;
  {
    nb::gil_scoped_release released;
    std::optional<SortedBlock> made = edges.next();
    if (made) block.emplace(std::move(*made));
  }
  if (!block) return nb::none();
  nb::object weights = block->weights ? block->weights->to_python() : nb::none();
  return nb::make_tuple(block->rows.to_python(), block->columns.to_python(), weights);
}

// Failures of the file become OSError with its number; two weights of one edge become the Python error WeightClash.
void translate(const std::exception_ptr& failure, void*) {
  try {
    std::rethrow_exception(failure);
  } catch (const WeightClash& clash) {
    nb::object error = nb::module_::import_("dorylus.backends.native.edge_input").attr("WeightClash");
    PyErr_SetObject(error.ptr(), nb::make_tuple(clash.row, clash.column, clash.first, clash.second).ptr());
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
  }
}

// Both destructors join a thread: they release the interpreter lock while they wait.
template <class T> class Held {
 public:
  explicit Held(std::unique_ptr<T> inner) : inner_(std::move(inner)) {}
  Held(Held&&) = default;
  ~Held() { close(); }
  T& operator*() {
    if (!inner_) bad_value("it was closed");
    return *inner_;
  }
  void close() {
    nb::gil_scoped_release released;
    inner_.reset();
  }

 private:
  std::unique_ptr<T> inner_;
};

struct SortHandle : Held<EdgeSort> {
  SortHandle(std::unique_ptr<EdgeSort> inner, bool weighted) : Held(std::move(inner)), weighted(weighted) {}
  bool weighted;
};
struct SortedHandle : Held<SortedEdges> {
  using Held::Held;
};

}  // namespace

void bind_external(nb::module_& m) {
  nb::register_exception_translator(translate);
  nb::class_<SortedHandle>(m, "SortedEdges")
      .def("next", [](SortedHandle& edges) { return py_next(*edges); })
      .def("close", [](SortedHandle& edges) { edges.close(); });
  nb::class_<SortHandle>(m, "EdgeSort")
      .def("__init__",
           [](SortHandle* place, int descriptor, int64_t memory_bytes, bool weighted, bool undirected,
              bool drop_self_loops, bool coalesce) {
             SortOptions options{memory_bytes, weighted, undirected, drop_self_loops, coalesce};
             new (place) SortHandle(EdgeSort::make(descriptor, options), weighted);
           })
      .def("add", [](SortHandle& sort, nb::handle rows, nb::handle columns,
                     nb::handle weights) { py_add(*sort, rows, columns, weights, sort.weighted); },
           nb::arg(), nb::arg(), nb::arg().none())
      .def("sorted", [](SortHandle& sort, int64_t memory_bytes,
                        int64_t block_edges) { return SortedHandle(py_sorted(*sort, memory_bytes, block_edges)); })
      .def("spooled_bytes",
           [](SortHandle& sort) {
             nb::gil_scoped_release released;
             return (*sort).spooled_bytes();
           })
      .def("close", [](SortHandle& sort) { sort.close(); });
}

}  // namespace dorylus
