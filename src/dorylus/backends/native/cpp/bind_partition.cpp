#include <algorithm>

#include "arguments.h"
#include "bindings.h"
#include "partition.h"

namespace dorylus {

namespace {

std::string str(int64_t number) { return std::to_string(number); }

// Numbers used as positions are not trusted: one out of bounds is reported, not read.
void check_numbers(const Array& array, const int32_t* numbers, int64_t low, int64_t high) {
  for (int64_t i = 0; i < array.rows(); ++i)
    if (numbers[i] < low || numbers[i] >= high)
      bad_value(std::string(array.name()) + "[" + str(i) + "] is " + str(numbers[i]) + ", outside " + str(low) + ".." +
                str(high - 1));
}

int32_t checked_parts(int64_t num_parts) {
  if (num_parts < 1 || num_parts > INT32_MAX) bad_value("num_parts must lie in 1..2147483647");
  return int32_t(num_parts);
}

// Clusters of distinct vertices, and the rows that hold their in-edges.
class ClusterArguments {
 public:
  ClusterArguments(const GraphRows& graph, nb::handle starts, nb::handle members, int64_t num_vertices,
                   int64_t first_cluster, bool in_order)
      : starts_(starts, "starts"), members_(members, "members") {
    const int64_t* offsets = starts_.required<int64_t>(-1);
    const int32_t* vertices = members_.required<int32_t>(in_order ? graph.num_rows : -1);
    if (starts_.rows() == 0) bad_value("starts must have one more element than there are clusters, not 0");
    check_numbers(members_, vertices, 0, num_vertices);
    if (!in_order && graph.num_rows != num_vertices)
      bad_value("indptr has " + str(graph.num_rows) + " rows for " + str(num_vertices) + " vertices");
    clusters = {starts_.rows() - 1, first_cluster, offsets, vertices, in_order};
    const int64_t last = clusters.count;
    bool rising = std::adjacent_find(offsets, offsets + last + 1, [](int64_t a, int64_t b) { return b <= a; }) ==
                  offsets + last + 1;
    if (!rising || offsets[0] != 0 || offsets[last] != members_.rows())
      bad_value("starts must rise from 0 to the " + str(members_.rows()) +
                " members: a cluster holds at least one vertex");
  }

  Clusters clusters{};

 private:
  Array starts_, members_;
};

// Pairs of int64 as the load of each label.
Work* held_of(const Array& held, int64_t num_labels) {
  static_assert(sizeof(Work) == 2 * sizeof(int64_t));
  return reinterpret_cast<Work*>(held.required<int64_t>(2 * num_labels));
}

int64_t num_rows_of(nb::handle indptr) {
  Array offsets(indptr, "indptr");
  offsets.required<int64_t>(-1);
  return std::max<int64_t>(offsets.rows() - 1, 0);
}

nb::object py_partition_held(nb::handle indptr_, nb::handle labels_, int64_t num_labels) {
  Array indptr(indptr_, "indptr"), labels(labels_, "labels");
  const int64_t num_rows = num_rows_of(indptr_);
  const int64_t* offsets = indptr.required<int64_t>(-1);
  const int32_t* numbers = labels.required<int32_t>(num_rows);
  if (num_labels < 0) bad_value("num_labels must not be negative");
  check_numbers(labels, numbers, -1, num_labels);
  Fresh<int64_t> held(2 * num_labels);
  {
    nb::gil_scoped_release released;
    partition_held(offsets, num_rows, numbers, num_labels, reinterpret_cast<Work*>(held.data()));
  }
  return held.to_python();
}

int64_t py_partition_merge(nb::handle indptr, nb::handle indices, nb::handle starts, nb::handle members,
                           nb::handle labels_, nb::handle held_, int64_t vertex_room, int64_t edge_room, uint64_t seed,
                           int64_t first_cluster, bool in_order) {
  GraphRows graph(indptr, indices, 0, num_rows_of(indptr));
  Array labels(labels_, "labels", true), held(held_, "held", true);
  int32_t* numbers = labels.required<int32_t>(-1);
  ClusterArguments a(graph, starts, members, labels.rows(), first_cluster, in_order);
  check_numbers(labels, numbers, 0, labels.rows());
  Work* loads = held_of(held, labels.rows());
  nb::gil_scoped_release released;
  return partition_merge(graph.csr, a.clusters, labels.rows(), numbers, loads, {vertex_room, edge_room}, seed);
}

int64_t py_partition_place(nb::handle indptr, nb::handle indices, nb::handle starts, nb::handle members,
                           nb::handle parts_, nb::handle held_, int64_t num_edges, int64_t vertex_limit,
                           int64_t edge_limit, int steepness, bool strict, bool in_order) {
  GraphRows graph(indptr, indices, 0, num_rows_of(indptr));
  Array parts(parts_, "parts", true), held(held_, "held", true);
  int32_t* numbers = parts.required<int32_t>(-1);
  ClusterArguments a(graph, starts, members, parts.rows(), 0, in_order);
  held.required<int64_t>(-1);
  const int32_t num_parts = checked_parts(held.rows() / 2);
  Work* loads = held_of(held, num_parts);
  Placing how{num_parts, {parts.rows(), num_edges}, {vertex_limit, edge_limit}, steepness, strict};
  if (steepness < 0 || steepness > 6) bad_value("steepness must lie in 0..6: steeper prices overflow");
  check_numbers(parts, numbers, -1, num_parts);
  nb::gil_scoped_release released;
  return partition_place(graph.csr, a.clusters, numbers, loads, how);
}

nb::object py_partition_deal(nb::handle indptr_, nb::handle order_, int64_t num_parts, int64_t vertex_limit) {
  Array indptr(indptr_, "indptr"), order(order_, "order");
  const int64_t num_rows = num_rows_of(indptr_);
  const int64_t* offsets = indptr.required<int64_t>(-1);
  const int32_t* vertices = order.required<int32_t>(num_rows);
  check_numbers(order, vertices, 0, num_rows);
  const int32_t count = checked_parts(num_parts);
  if (vertex_limit < 0 || vertex_limit < (num_rows + count - 1) / count)
    bad_value("vertex_limit " + str(vertex_limit) + " leaves some of the " + str(num_rows) + " vertices without a part");
  Fresh<int32_t> parts(num_rows);
  {
    nb::gil_scoped_release released;
    partition_deal(offsets, num_rows, vertices, count, vertex_limit, parts.data());
  }
  return parts.to_python();
}

int64_t py_partition_across(nb::handle indptr, nb::handle indices, nb::handle parts_, nb::handle readers_,
                            nb::handle targets_, int64_t first_part, int64_t first_row) {
  GraphRows graph(indptr, indices, 0, num_rows_of(indptr));
  Array parts(parts_, "parts"), readers(readers_, "readers", true), targets(targets_, "targets", true);
  const int32_t* numbers = parts.required<int32_t>(-1);
  int32_t* reading = readers.required<int32_t>(parts.rows());
  int32_t* written = targets.present() ? targets.required<int32_t>(parts.rows()) : nullptr;
  if (first_row < 0 || first_row + graph.num_rows > parts.rows())
    bad_value("rows " + str(first_row) + " to " + str(first_row + graph.num_rows - 1) + " of " + str(parts.rows()));
  nb::gil_scoped_release released;
  return partition_across(graph.csr, graph.num_rows, first_row, numbers, first_part, reading, written);
}

}  // namespace

void bind_partition(nb::module_& m) {
  m.def("partition_held", &py_partition_held);
  m.def("partition_merge", &py_partition_merge);
  m.def("partition_place", &py_partition_place);
  m.def("partition_deal", &py_partition_deal);
  m.def("partition_across", &py_partition_across, "indptr"_a, "indices"_a, "parts"_a, "readers"_a, "targets"_a.none(),
        "first_part"_a, "first_row"_a);
}

}  // namespace dorylus
