#include "kernels/cpu/conv/narrow.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kChannelsLast;

Support supports_types(const Problem& p) {
  const DType x = p.input(0).dtype, w = p.input(1).dtype;
  if (sums_integers(p)) {
    if (!is_byte(x) || !is_byte(w)) return no("takes 8-bit integers");
    if (p.has(2) && p.input(2).elements() != 1) return no("a zero point of x that is no scalar");
    for (int zero : {2, 3})
      if (p.has(zero) && !p.input(zero).layout.is_row_major()) return no("strided zero points");
    return yes();
  }
  if (x != DType::kBF16 || w != DType::kBF16) return no("x is {} and w is {}: bf16 is wanted", name(x), name(w));
  if (p.has(2) && !p.input(2).layout.is_row_major()) return no("the bias is strided");
  return yes();
}

}  // namespace

bool sums_integers(const Problem& p) { return p.op->name == "ConvInteger"; }

std::vector<NarrowRider> narrow_riders(const Problem& p) {
  std::vector<NarrowRider> out;
  const Extents& shape = p.output().shape();
  for (int i = p.op_inputs; i < int(p.inputs.size()); ++i) {
    const Operand& operand = p.input(i);
    NarrowRider r;
    r.input = i;
    r.element = bytes_of(operand.dtype, 1);
    const auto strides = broadcast_strides(operand.layout, shape);
    if (strides) {
      r.strides = *strides;
      const bool one_pixel = !r.strides.image && !r.strides.row && !r.strides.pixel;
      if (one_pixel && r.strides.channel == 0)
        r.kind = DotRider::kScalar;
      else if (one_pixel && r.strides.channel == 1)
        r.kind = DotRider::kColumns;
      else if (operand.shape() == shape)  // asked first: image_strides takes layouts of an image's rank alone
        if (const auto whole = image_strides(operand.layout, kOrder)) r.kind = DotRider::kRows, r.strides = *whole;
    }
    out.push_back(r);
  }
  return out;
}

std::vector<DotRider> kinds_of(const std::vector<NarrowRider>& riders) {
  std::vector<DotRider> kinds;
  for (const NarrowRider& r : riders) kinds.push_back(r.kind);
  return kinds;
}

bool mark_wanted(std::vector<NarrowRider>& riders, const DotEpilogue& epilogue) {
  bool any = false;
  for (size_t i = 0; i < riders.size(); ++i) any |= riders[i].wanted = epilogue.reads(int(i));
  return any;
}

void place_riders(const std::vector<NarrowRider>& riders, const Buffers& buffers, int64_t image, int64_t channel,
                  int64_t oy, int64_t ox, TileInput* operands) {
  for (size_t i = 0; i < riders.size(); ++i) {
    const NarrowRider& r = riders[i];
    if (!r.wanted) continue;
    const int64_t at =
        image * r.strides.image + oy * r.strides.row + ox * r.strides.pixel + channel * r.strides.channel;
    operands[i] = {static_cast<const char*>(buffers.inputs[r.input]) + at * r.element, r.strides.pixel,
                   r.strides.channel};
  }
}

Support supports_narrow(const Problem& p) {
  if (Support s = supports_types(p); !s.ok) return s;
  const Operand &x = p.input(0), &w = p.input(1);
  const int rank = x.layout.rank();
  if (rank != 3 && rank != 4) return no("takes one or two spatial axes, not {}", rank - 2);
  if (w.elements() == 0) return no("empty weights");
  if (!w.layout.is_row_major()) return no("the weights are not row-major");
  if (!image_strides(p.output().layout, kOrder)) return no("y is not channels-last");
  const std::vector<NarrowRider> riders = narrow_riders(p);
  for (const NarrowRider& r : riders)
    if (!broadcast_strides(p.input(r.input).layout, p.output().shape()))
      return no("an operand of the epilogue does not broadcast to the output");
  if (std::string why = DotEpilogue::reject(p, sums_integers(p), kinds_of(riders)); !why.empty()) return no("{}", why);
  return yes();
}

bool narrow_in_place(const Problem& p, int input) {
  if (input < p.op_inputs || p.input(input).dtype != p.output().dtype) return false;
  const auto operand = image_strides(p.input(input).layout, kOrder);
  return p.input(input).shape() == p.output().shape() && operand &&
         *operand == *image_strides(p.output().layout, kOrder);
}

int32_t narrow_zero(const Problem& p, const Buffers& buffers, int input, int64_t at) {
  if (!p.has(input)) return 0;
  const uint8_t byte = static_cast<const uint8_t*>(buffers.inputs[input])[at];
  return p.input(input).dtype == DType::kI8 ? int8_t(byte) : byte;
}

}  // namespace ridgeline::cpu
