// Everything but extend.h.
#pragma once

#include "ridgeline/context.h"
#include "ridgeline/dtype.h"
#include "ridgeline/error.h"
#include "ridgeline/model.h"
#include "ridgeline/op.h"
#include "ridgeline/ops.h"
#include "ridgeline/optimize.h"
#include "ridgeline/plan.h"
#include "ridgeline/profile.h"
#include "ridgeline/run.h"
#include "ridgeline/tensor.h"
