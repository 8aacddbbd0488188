// AttributeProto to AttributeValue, and the check of a node's attributes against its schema.
#pragma once

#include <string>

#include "formats/onnx/external_data.h"
#include "ir/attributes.h"
#include "ir/op_schema.h"
#include "onnx.pb.h"

namespace ridgeline {

/// All attributes of a node. Throws Error with the bare reason: kUnsupported for types that no operator of ours has
/// (sparse tensors, types), kBadModel for a value that is not of the type it states. Graphs are left out, to be
/// imported with what they capture, where the operator has subgraphs (`bodies`); else they are unsupported.
Attributes take_attributes(onnx::NodeProto& node, ExternalData& external, bool bodies);

/// Refuses what the schema does not declare, and values of another type.
void check_attributes(const OpSchema& op, const Attributes& attributes);

/// Writes one attribute of a node.
void put_attribute(const std::string& name, const AttributeValue& value, const AttributeSpec* spec,
                   onnx::NodeProto& node);

}  // namespace ridgeline
