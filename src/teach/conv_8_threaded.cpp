// 8. Threaded: each thread computes strips of its own.
//
// A strip of the image is packed by the thread that uses it, so that nothing is shared but the image and the weights,
// which are read only; no thread waits for another before the end. The last strips may leave a thread without work: 16
// strips are as good as it gets on 2, 4 or 8 threads, on 3 one of them has a strip more.
#include "core/thread_pool.h"
#include "teach/conv_steps.h"

namespace ridgeline::teach {

void conv_8_threaded(const Conv& t) {
  conv_pack_weights(t, t.scratch);
  const auto strips = [&t](int64_t begin, int64_t end, int thread) {
    conv_strips(t, begin, end, t.scratch, t.scratch + packed_weights(t) + packed_sums(t) + thread * packed_strip(t));
  };
  ThreadPool(t.threads).run(round_up(t.height, kStripRows) / kStripRows, 1, strips);
}

}  // namespace ridgeline::teach
