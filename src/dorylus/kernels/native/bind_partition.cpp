#include <algorithm>

#include "arguments.h"
#include "bindings.h"
#include "partition.h"

namespace dorylus {

namespace {

std::string str(int64_t number) { return std::to_string(number); }

// Numbers come from outside and are used as positions: one out of bounds is named, not read.
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

// Clusters that hold every vertex once.
class ClusterArguments {
 public:
  ClusterArguments(nb::handle starts, nb::handle members, int64_t num_rows)
      : starts_(starts, "starts"), members_(members, "members") {
    const int64_t* offsets = starts_.required<int64_t>(-1);
    const int32_t* vertices = members_.required<int32_t>(num_rows);
    if (starts_.rows() == 0) bad_value("starts must have one more element than there are clusters, not 0");
    check_numbers(members_, vertices, 0, num_rows);
    clusters = {starts_.rows() - 1, offsets, vertices};
    const int64_t last = clusters.count;
    bool rising = std::adjacent_find(offsets, offsets + last + 1, [](int64_t a, int64_t b) { return b <= a; }) ==
                  offsets + last + 1;
    if (!rising || offsets[0] != 0 || offsets[last] != num_rows)
      bad_value("starts must rise from 0 to the " + str(num_rows) + " members: a cluster holds at least one vertex");
  }

  Clusters clusters{};

 private:
  Array starts_, members_;
};

int64_t num_rows_of(nb::handle indptr) {
  Array offsets(indptr, "indptr");
  offsets.required<int64_t>(-1);
  return std::max<int64_t>(offsets.rows() - 1, 0);
}

int64_t py_partition_merge(nb::handle indptr, nb::handle indices, nb::handle starts, nb::handle members,
                           nb::handle labels_, int64_t vertex_room, int64_t edge_room, uint64_t seed) {
  GraphRows graph(indptr, indices, 0, num_rows_of(indptr));
  ClusterArguments a(starts, members, graph.num_rows);
  Array labels(labels_, "labels", true);
  int32_t* numbers = labels.required<int32_t>(graph.num_rows);
  check_numbers(labels, numbers, 0, graph.num_rows);
  nb::gil_scoped_release released;
  return partition_merge(graph.csr, graph.num_rows, a.clusters, numbers, {vertex_room, edge_room}, seed);
}

int64_t py_partition_place(nb::handle indptr, nb::handle indices, nb::handle starts, nb::handle members,
                           nb::handle parts_, int64_t num_parts, int64_t vertex_limit, int64_t edge_limit,
                           int steepness, bool strict) {
  GraphRows graph(indptr, indices, 0, num_rows_of(indptr));
  ClusterArguments a(starts, members, graph.num_rows);
  Array parts(parts_, "parts", true);
  int32_t* numbers = parts.required<int32_t>(graph.num_rows);
  Placing how{checked_parts(num_parts), {vertex_limit, edge_limit}, steepness, strict};
  if (steepness < 0 || steepness > 6) bad_value("steepness must lie in 0..6: steeper prices overflow");
  check_numbers(parts, numbers, -1, num_parts);
  nb::gil_scoped_release released;
  return partition_place(graph.csr, graph.num_rows, a.clusters, numbers, how);
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

nb::tuple py_partition_cuts(nb::handle indptr, nb::handle indices, nb::handle parts_, int64_t num_parts) {
  GraphRows graph(indptr, indices, 0, num_rows_of(indptr));
  Array parts(parts_, "parts");
  const int32_t* numbers = parts.required<int32_t>(graph.num_rows);
  const int32_t count = checked_parts(num_parts);
  check_numbers(parts, numbers, 0, num_parts);
  Fresh<int64_t> cut(count), ghosts(count);
  {
    nb::gil_scoped_release released;
    partition_cuts(graph.csr, graph.num_rows, numbers, count, cut.data(), ghosts.data());
  }
  return nb::make_tuple(cut.to_python(), ghosts.to_python());
}

}  // namespace

void bind_partition(nb::module_& m) {
  m.def("partition_merge", &py_partition_merge);
  m.def("partition_place", &py_partition_place);
  m.def("partition_deal", &py_partition_deal);
  m.def("partition_cuts", &py_partition_cuts);
}

}  // namespace dorylus
