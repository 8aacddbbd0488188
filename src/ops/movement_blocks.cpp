// Operators that trade channels for positions: DepthToSpace and SpaceToDepth. Source: the ONNX operator standard,
// ai.onnx.
#include "ops/movement.h"

namespace ridgeline {

namespace {

struct BlockOrder {
  int64_t n, c, h, w, b;  // of the deep tensor [n, c b b, h, w]
  bool crd;               // its channel is (c, block) rather than (block, c)
};
template <typename T>
BlockOrder block_order(const T& r, const Extents& deep) {
  const int64_t b = r.integer("blocksize");
  return {deep[0], deep[1] / (b * b), deep[2], deep[3], b, r.string("mode") == "CRD"};
}

// Calls use(flat index in the deep tensor [N, C b b, H, W], flat index in the wide one [N, C, H b, W b]).
template <typename Use>
void for_blocks(const BlockOrder& o, Use use) {
  for (Index at({o.n, o.c, o.h, o.b, o.w, o.b}); at.more(); ++at) {
    const int64_t block = at[3] * o.b + at[5];
    const int64_t channel = o.crd ? at[1] * o.b * o.b + block : block * o.c + at[1];
    use(((at[0] * o.c * o.b * o.b + channel) * o.h + at[2]) * o.w + at[4], at.flat());
  }
}

int64_t checked_block(Infer& i) {
  const int64_t b = i.integer("blocksize");
  i.require(i.rank(0) == 4 && b > 0 && b < (1 << 20),
            fmt::format("input {} with blocksize {}; allowed: rank 4, blocksize from 1 to 2^20", text(i.shape(0)), b));
  const std::string mode = i.string("mode");
  i.require(mode == "DCR" || mode == "CRD", fmt::format("mode = '{}'; allowed: DCR, CRD", mode));
  return b;
}

void infer_depth_to_space(Infer& i) {
  const Shape& x = i.shape(0);
  const int64_t b = checked_block(i);
  i.require(!x[1].known() || x[1].value() % (b * b) == 0,
            fmt::format("{} channels are no multiple of blocksize^2 = {}", x[1].text(), b * b));
  i.output(0, i.dtype(0), {x[0], floor_div(x[1], b * b), x[2] * b, x[3] * b});
}

void infer_space_to_depth(Infer& i) {
  const Shape& x = i.shape(0);
  const int64_t b = checked_block(i);
  for (size_t a : {2, 3})
    i.require(!x[a].known() || x[a].value() % b == 0,
              fmt::format("axis {} of {} is no multiple of blocksize {}", a, text(x), b));
  i.output(0, i.dtype(0), {x[0], x[1] * (b * b), floor_div(x[2], b), floor_div(x[3], b)});
}

}  // namespace

constinit const OpSchema kDepthToSpace = {
    .name = "DepthToSpace",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "[N, C b b, H, W] to [N, C, H b, W b]; DCR: the block's position is the outer part of the channel, CRD: the "
        "inner",
    .versions = {1, 11, 13},
    .inputs = {{"input"}},
    .outputs = {{"output"}},
    .attributes = {{"blocksize", AttributeType::kInt, kRequired}, {"mode", "DCR"}},
    .infer = infer_depth_to_space,
    .cost = cost_of_copy,
    .reference =
        [](Reference& r) {
          for_blocks(block_order(r, r.in[0].shape),
                     [&](int64_t deep, int64_t wide) { r.out[0].copy(wide, r.in[0], deep); });
        },
    .gradient =
        [](Gradient& g) {
          Attributes same;
          same.set("blocksize", g.integer("blocksize"));
          if (g.string("mode") == "CRD") same.set("mode", std::string("CRD"));
          g.input_gradient(0, g.op("SpaceToDepth", {g.gradient()}, same));
        },
    .samples = {"input=f32[2,12,3,5] blocksize=2", "input=f32[1,27,2,3] blocksize=3 mode=CRD",
                "input=i64[0,4,2,2] blocksize=2"},
};

constinit const OpSchema kSpaceToDepth = {
    .name = "SpaceToDepth",
    .family = "movement",
    .kind = kMovement,
    .doc = "[N, C, H b, W b] to [N, b b C, H, W]: the inverse of DepthToSpace in the same mode",
    .versions = {1, 13, 28},
    .inputs = {{"input"}},
    .outputs = {{"output"}},
    .attributes = {{"blocksize", AttributeType::kInt, kRequired}, {"mode", "DCR"}},
    .infer = infer_space_to_depth,
    .cost = cost_of_copy,
    .reference =
        [](Reference& r) {
          for_blocks(block_order(r, r.out[0].shape),
                     [&](int64_t deep, int64_t wide) { r.out[0].copy(deep, r.in[0], wide); });
        },
    .gradient =
        [](Gradient& g) {
          Attributes same;
          same.set("blocksize", g.integer("blocksize"));
          if (g.string("mode") == "CRD") same.set("mode", std::string("CRD"));
          g.input_gradient(0, g.op("DepthToSpace", {g.gradient()}, same));
        },
    .samples = {"input=f32[2,3,6,10] blocksize=2", "input=f32[1,2,9,6] blocksize=3 mode=CRD",
                "input=i64[0,1,4,4] blocksize=2"},
};

std::span<const OpSchema* const> movement_blocks_ops() {
  static constexpr const OpSchema* kOps[] = {&kDepthToSpace, &kSpaceToDepth};
  return kOps;
}

}  // namespace ridgeline
