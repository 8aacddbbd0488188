// What is selected by content: Unique and NonMaxSuppression. Source: ONNX Unique-11, NonMaxSuppression-11.
#include "ops/selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/saturate.h"
#include "ops/families.h"
#include "ops/movement.h"

namespace ridgeline {
namespace {

[[noreturn]] void needs(const Infer& i, int input) {
  throw NeedsValues(input,
                    fmt::format("{}: unsupported: the output's shape depends on the content of input '{}', which "
                                "is not a constant",
                                i.op().name, i.op().inputs[input].name));
}

// ---- NonMaxSuppression

constexpr int64_t kMostBoxes = int64_t(1) << 30;  // they are numbered in 32 bits

enum BoxInput { kBoxes, kScores, kMost, kOverlap, kThreshold };

/// What is the same for content that inference knows and for a run: `number(input, otherwise)` reads a scalar.
template <typename Number>
void set_limits(BoxSelection& s, bool has_threshold, const Number& number) {
  s.most = int64_t(std::clamp(number(kMost, 0.0), 0.0, double(s.boxes)));
  s.overlap = float(number(kOverlap, 0.0));
  s.has_threshold = has_threshold;
  s.threshold = float(number(kThreshold, 0.0));
}

void infer_boxes(Infer& i) {
  const Shape &boxes = i.shape(kBoxes), &scores = i.shape(kScores);
  const auto same = [](const Dim& a, const Dim& b) { return !a.known() || !b.known() || a == b; };
  i.require(boxes.size() == 3 && same(boxes[2], 4),
            [&] { return fmt::format("'boxes' is {}; allowed: [batches, boxes, 4]", text(boxes)); });
  i.require(!boxes[1].known() || boxes[1].value() <= kMostBoxes,
            [&] { return fmt::format("{} boxes; allowed: up to {}", boxes[1].text(), kMostBoxes); });
  i.require(scores.size() == 3 && same(scores[0], boxes[0]) && same(scores[2], boxes[1]), [&] {
    return fmt::format("'scores' is {}; allowed: [batches, classes, boxes], with 'boxes' {}", text(scores),
                       text(boxes));
  });
  for (int k : {kMost, kOverlap, kThreshold})
    if (i.has(k))
      i.require(product(i.shape(k)).is(1), [&] {
        return fmt::format("'{}' has shape {}; allowed: a scalar", i.op().inputs[k].name, text(i.shape(k)));
      });
  const int64_t center = i.integer("center_point_box");
  i.require(center == 0 || center == 1, [&] { return fmt::format("center_point_box = {}; allowed: 0 and 1", center); });
  if (!i.has(kMost) || boxes[0].is(0) || boxes[1].is(0) || scores[1].is(0))
    return i.output(0, DType::kI64, {0, 3});  // nothing is asked for, or there is nothing
  for (int k = 0; k < i.inputs(); ++k)
    if (i.has(k) && !i.constant(k)) needs(i, k);
  BoxSelection s{i.constant(kBoxes)->shape()[0], i.constant(kBoxes)->shape()[1], i.constant(kScores)->shape()[1]};
  s.box = i.constant(kBoxes)->as<float>();
  s.score = i.constant(kScores)->as<float>();
  s.center = center == 1;
  set_limits(s, i.has(kThreshold),
             [&](int k, double otherwise) { return i.has(k) ? i.constant(k)->f64(0) : otherwise; });
  i.output(0, DType::kI64, {int64_t(select_boxes(s).size()) / 3, 3});
}

void reference_boxes(Reference& r) {
  RefArray& y = r.out[0];
  if (y.elements() == 0) return;
  const std::vector<float> boxes(r.in[kBoxes].f.begin(), r.in[kBoxes].f.end());
  const std::vector<float> scores(r.in[kScores].f.begin(), r.in[kScores].f.end());
  BoxSelection s{r.in[kBoxes].dim(0), r.in[kBoxes].dim(1), r.in[kScores].dim(1)};
  s.box = boxes.data();
  s.score = scores.data();
  s.center = r.flag("center_point_box");
  set_limits(s, r.has(kThreshold),
             [&](int k, double otherwise) { return r.has(k) ? r.in[size_t(k)].number(0) : otherwise; });
  const std::vector<int64_t> chosen = select_boxes(s);
  if (int64_t(chosen.size()) != y.elements())
    fail(ErrorCode::kBadInput, "NonMaxSuppression: {} boxes are selected, the output has room for {}",
         chosen.size() / 3, y.dim(0));
  y.i = chosen;
}

struct Corners {
  float top = 0, left = 0, bottom = 0, right = 0, area = 0;
};
Corners corners_of(const float* b, bool center) {
  Corners c;
  if (center) {
    const float w = b[2] / 2, h = b[3] / 2;
    c = {b[1] - h, b[0] - w, b[1] + h, b[0] + w, 0};
  } else {
    c = {std::min(b[0], b[2]), std::min(b[1], b[3]), std::max(b[0], b[2]), std::max(b[1], b[3]), 0};
  }
  c.area = (c.bottom - c.top) * (c.right - c.left);
  return c;
}

/// Boxes that were kept, some at a time: a loop of known length is one of vectors. A place that is still free has no
/// area.
struct BoxBlock {
  static constexpr int kBoxes = 16;
  float top[kBoxes], left[kBoxes], bottom[kBoxes], right[kBoxes], area[kBoxes];
};

/// Does one of them overlap `c` too much? A box without area overlaps nothing. All in f32, one operation after the
/// other and no comparison of products, so that every compilation decides alike.
bool suppresses(const BoxBlock& b, const Corners& c, float overlap) {
  int any = 0;
  for (int k = 0; k < BoxBlock::kBoxes; ++k) {
    const float top = b.top[k] > c.top ? b.top[k] : c.top, left = b.left[k] > c.left ? b.left[k] : c.left;
    const float bottom = b.bottom[k] < c.bottom ? b.bottom[k] : c.bottom;
    const float right = b.right[k] < c.right ? b.right[k] : c.right;
    const float both = (bottom - top) * (right - left);
    any |= int(bottom > top) & int(right > left) & int(b.area[k] > 0) & int(c.area > 0) &
           int(both / (b.area[k] + c.area - both) > overlap);
  }
  return any != 0;
}

int64_t order_bytes(int64_t boxes) { return (boxes * int64_t(sizeof(int32_t)) + 63) / 64 * 64; }

// ---- Unique

/// A tensor as items to be compared: element `k` of item `n` is number first(n) + offset(k).
struct Items {
  int64_t count = 0, size = 1, inner = 1, extent = 1;
  int64_t at(int64_t item, int64_t k) const { return (k / inner * extent + item) * inner + k % inner; }
};
Items items_of(const Extents& shape, int axis, bool flat) {
  if (flat) return {element_count(shape), 1, 1, element_count(shape)};
  const AxisSpan span = span_of(shape, axis);
  return {span.extent, span.outer * span.inner, span.inner, span.extent};
}

template <typename T>
int compared(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (std::isnan(a) || std::isnan(b)) return int(std::isnan(a)) - int(std::isnan(b));
  return a < b ? -1 : int(b < a);
}

template <typename T>
UniqueItems unique_of(const std::vector<T>& x, const Items& items, bool sorted) {
  const auto order = [&](int64_t a, int64_t b) {
    for (int64_t k = 0; k < items.size; ++k)
      if (const int c = compared(x[size_t(items.at(a, k))], x[size_t(items.at(b, k))])) return c;
    return 0;
  };
  std::vector<int64_t> place(static_cast<size_t>(items.count));
  std::iota(place.begin(), place.end(), 0);
  std::stable_sort(place.begin(), place.end(), [&](int64_t a, int64_t b) { return order(a, b) < 0; });
  UniqueItems out;
  out.inverse.resize(place.size());
  for (size_t k = 0; k < place.size(); ++k) {
    if (k == 0 || order(place[k - 1], place[k]) != 0) {
      out.first.push_back(place[k]);
      out.count.push_back(0);
    }
    ++out.count.back();
    out.inverse[size_t(place[k])] = int64_t(out.first.size()) - 1;
  }
  if (sorted) return out;
  std::vector<int64_t> by_first(out.first.size()), rank(out.first.size());
  std::iota(by_first.begin(), by_first.end(), 0);
  std::sort(by_first.begin(), by_first.end(),
            [&](int64_t a, int64_t b) { return out.first[size_t(a)] < out.first[size_t(b)]; });
  UniqueItems in_order;
  for (size_t k = 0; k < by_first.size(); ++k) {
    rank[size_t(by_first[k])] = int64_t(k);
    in_order.first.push_back(out.first[size_t(by_first[k])]);
    in_order.count.push_back(out.count[size_t(by_first[k])]);
  }
  for (int64_t item : out.inverse) in_order.inverse.push_back(rank[size_t(item)]);
  return in_order;
}

void infer_unique(Infer& i) {
  const bool flat = !i.attributes().has("axis");
  const int axis = flat ? 0 : i.axis(i.integer("axis"), i.rank(0));
  const int64_t sorted = i.integer("sorted");
  i.require(sorted == 0 || sorted == 1, [&] { return fmt::format("sorted = {}; allowed: 0 and 1", sorted); });
  const Tensor* x = i.constant(0);
  if (!x) needs(i, 0);
  const int64_t count = int64_t(unique_items(*x, axis, flat, sorted == 1).first.size());
  Shape y = flat ? Shape{count} : i.shape(0);
  if (!flat) y[size_t(axis)] = count;
  i.output(0, i.dtype(0), y);
  const int64_t all = flat ? x->elements() : x->shape()[size_t(axis)];
  for (int o = 1; o < 4; ++o)
    if (i.wants(o)) i.output(o, DType::kI64, {o == 2 ? all : count});
}

void reference_unique(Reference& r) {
  const RefArray& x = r.in[0];
  const bool flat = !r.attributes->has("axis");
  const Items items = items_of(x.shape, flat ? 0 : positive_axis(r.integer("axis"), x.rank()), flat);
  const bool sorted = r.flag("sorted");
  UniqueItems u;
  if (x.is_float())
    u = unique_of(x.f, items, sorted);
  else if (x.dtype == DType::kU64)
    u = unique_of(std::vector<uint64_t>(x.i.begin(), x.i.end()), items, sorted);
  else
    u = unique_of(x.i, items, sorted);
  Items to = items;
  to.count = to.extent = int64_t(u.first.size());
  if (to.count * items.size != r.out[0].elements())
    fail(ErrorCode::kBadInput, "Unique: {} values, the output has room for {}", to.count * items.size,
         r.out[0].elements());
  for (int64_t n = 0; n < to.count; ++n)
    for (int64_t k = 0; k < items.size; ++k) r.out[0].copy(to.at(n, k), x, items.at(u.first[size_t(n)], k));
  if (r.wants(1)) r.out[1].i = u.first;
  if (r.wants(2)) r.out[2].i = u.inverse;
  if (r.wants(3)) r.out[3].i = u.count;
}

}  // namespace

int64_t box_scratch_bytes(const BoxSelection& s) {
  return order_bytes(s.boxes) +
         (s.most + BoxBlock::kBoxes - 1) / BoxBlock::kBoxes * int64_t((sizeof(BoxBlock) + 63) / 64 * 64);
}

int64_t select_boxes(const BoxSelection& s, int64_t batch, int64_t cls, void* scratch, int32_t* chosen) {
  const float* score = s.score + (batch * s.classes + cls) * s.boxes;
  int32_t* order = static_cast<int32_t*>(scratch);
  BoxBlock* kept = reinterpret_cast<BoxBlock*>(static_cast<char*>(scratch) + order_bytes(s.boxes));
  int64_t candidates = 0, count = 0;
  for (int64_t k = 0; k < s.boxes; ++k)
    if (!s.has_threshold || score[k] > s.threshold) order[candidates++] = int32_t(k);
  std::sort(order, order + candidates, [&](int32_t a, int32_t b) {
    const float p = score[a], q = score[b];
    if (std::isnan(p) || std::isnan(q)) return std::isnan(p) == std::isnan(q) ? a < b : std::isnan(q);
    return p != q ? p > q : a < b;
  });
  for (int64_t k = 0; k < candidates && count < s.most; ++k) {
    const Corners c = corners_of(s.box + (batch * s.boxes + order[k]) * 4, s.center);
    const int64_t blocks = (count + BoxBlock::kBoxes - 1) / BoxBlock::kBoxes;
    if (std::any_of(kept, kept + blocks, [&](const BoxBlock& block) { return suppresses(block, c, s.overlap); }))
      continue;
    const int64_t lane = count % BoxBlock::kBoxes;
    BoxBlock& block = kept[count / BoxBlock::kBoxes];
    if (lane == 0) block = BoxBlock{};
    block.top[lane] = c.top;
    block.left[lane] = c.left;
    block.bottom[lane] = c.bottom;
    block.right[lane] = c.right;
    block.area[lane] = c.area;
    chosen[count++] = order[k];
  }
  return count;
}

std::vector<int64_t> select_boxes(const BoxSelection& s) {
  std::vector<int64_t> all;
  if (s.most <= 0) return all;
  const Tensor scratch(DType::kU8, {box_scratch_bytes(s)});  // its memory starts at a cache line
  std::vector<int32_t> chosen(static_cast<size_t>(s.most));
  for (int64_t batch = 0; batch < s.batches; ++batch)
    for (int64_t cls = 0; cls < s.classes; ++cls) {
      const int64_t count = select_boxes(s, batch, cls, scratch.data(), chosen.data());
      for (int64_t k = 0; k < count; ++k) all.insert(all.end(), {batch, cls, int64_t(chosen[size_t(k)])});
    }
  return all;
}

UniqueItems unique_items(const Tensor& x, int axis, bool flat, bool sorted) {
  const Items items = items_of(x.shape(), axis, flat);
  if (is_float(x.dtype())) return unique_of(x.to_f64(), items, sorted);
  const std::vector<int64_t> numbers = x.to_i64();
  if (x.dtype() == DType::kU64) return unique_of(std::vector<uint64_t>(numbers.begin(), numbers.end()), items, sorted);
  return unique_of(numbers, items, sorted);
}

constinit const OpSchema kNonMaxSuppression = {
    .name = "NonMaxSuppression",
    .family = "movement",
    .kind = OpKind::kOpaque,
    .doc =
        "of each batch and class the boxes with the best scores, without those that overlap a better one by more than "
        "iou_threshold; equal scores: the lower index first; all inputs must be constants. Source: ONNX "
        "NonMaxSuppression-11",
    .since = 10,
    .versions = {10, 11},
    .inputs = {{"boxes", type_bit(DType::kF32)},
               {"scores", type_bit(DType::kF32)},
               optional_input("max_output_boxes_per_class", kInt64),
               optional_input("iou_threshold", type_bit(DType::kF32)),
               optional_input("score_threshold", type_bit(DType::kF32))},
    .outputs = {{"selected_indices"}},
    .attributes = {{"center_point_box", 0}},
    .infer = infer_boxes,
    .cost =
        [](const Problem& p) {
          // Each selected box is compared with those before it: about 14 operations.
          return Cost{.flops = saturated_product({p.output().shape()[0], p.output().shape()[0], 7}),
                      .read_bytes = p.read_bytes(),
                      .write_bytes = p.write_bytes()};
        },
    .reference = reference_boxes,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"boxes=f32[1,6,4] scores=f32[1,1,6]",
                "boxes=f32[0,6,4] scores=f32[0,2,6] "
                "max_output_boxes_per_class=i64{3}"},
};

constinit const OpSchema kUnique = {
    .name = "Unique",
    .family = "movement",
    .kind = OpKind::kOpaque,
    .doc =
        "the different elements, or slices along axis, in order or as they come; where each comes first, which one "
        "each element is, how often each comes; NaNs are equal; the input must be a constant. Source: ONNX Unique-11",
    .since = 11,
    .versions = {11, 28},
    .inputs = {{"X"}},
    .outputs = {{"Y"}, optional_output("indices"), optional_output("inverse_indices"), optional_output("counts")},
    .attributes = {{"axis", AttributeType::kInt}, {"sorted", 1}},
    .infer = infer_unique,
    .cost = cost_of_copy,
    .reference = reference_unique,
    .no_gradient = "which elements are selected depends on the content of the input",
    .samples = {"X=i64{3,1,3,1,2} outputs=4", "X=i32{2,1,1,3,4,3} sorted=0 outputs=4", "X=i64{} outputs=4",
                "X=i32{7,7,7} axis=-1"},
};

std::span<const OpSchema* const> selection_ops() {
  static constexpr const OpSchema* kOps[] = {&kNonMaxSuppression, &kUnique};
  return kOps;
}

}  // namespace ridgeline
