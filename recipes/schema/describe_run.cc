// [run].
#include <string_view>

#include "recipes/schema/describe.h"
#include "recipes/schema/limits.h"

namespace delink::schema {

std::string_view Word(RunConfig::Device device) {
  switch (device) {
    case RunConfig::Device::kAuto:
      return "auto";
    case RunConfig::Device::kCpu:
      return "cpu";
    case RunConfig::Device::kCuda:
      return "cuda";
  }
  return "";
}

std::string_view Word(MasterForm master) {
  switch (master) {
    case MasterForm::kWhole:
      return "fp32";
    case MasterForm::kSplit:
      return "split";
    case MasterForm::kNone:
      return "none";
  }
  return "";
}

std::string_view Word(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone:
      return "none";
    case Recompute::kNormActivation:
      return "norm+activation";
    case Recompute::kBlock:
      return "block";
  }
  return "";
}

std::string_view Word(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "fp32";
    case DType::kBF16:
      return "bf16";
    case DType::kF64:
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
      break;
  }
  return "";
}

static std::string_view Word(MicroBatchOrder order) {
  switch (order) {
    case MicroBatchOrder::kMicroBatchMajor:
      return "micro_batch";
    case MicroBatchOrder::kLayerMajor:
      return "layer";
  }
  return "";
}

namespace {

void DescribeStopAfter(Section& s, StopAfter& stop) {
  s.Int("validations", &stop.validations,
        {.doc = "the run ends after this many consecutive validations of its "
                "last stage without improvement; 0: never",
         .min = 0,
         .max = kMaxSteps});
  s.Float("delta", &stop.delta,
          {.doc = "an improvement lowers the loss by more than this many nats",
           .min = 0.0,
           .max = 1e3});
}

// A run's device, precision and order of computation.
void DescribeComputing(Section& s, RunConfig& run) {
  s.Enum("device", &run.device, Word,
         {.doc = "where to compute; auto: on a GPU if there is one"});
  s.Int("ranks_per_gpu", &run.ranks_per_gpu,
        {.doc = "how many ranks of a machine may share a GPU",
         .min = 1,
         .max = 64});
  s.Enum("precision", &run.precision, Word,
         {.doc = "precision of the weights and activations that layers compute "
                 "with. With bf16 sums stay fp32. Gradients of weights "
                 "(`gradients`), the weights that are updated and saved "
                 "(`master`) and optimizer state (`optimizer.moments`) stay "
                 "fp32 unless their keys change that"});
  s.Enum("master", &run.master, Word,
         {.doc = "master weights for updates of bf16 weights. fp32: additional "
                 "fp32 weights (4 bytes each); split: the same in 2 bytes, the "
                 "16 bits that a bf16 weight lacks; none: the bf16 weights "
                 "alone, rounded stochastically"});
  s.Enum("gradients", &run.gradients, Word,
         {.doc = "precision of gradients of bf16 weights, which are summed "
                 "over micro-batches, layers that share and ranks. bf16: 2 "
                 "bytes each instead of 4. Each addition is computed in fp32 "
                 "and rounded, so contributions below 1/512 of the sum are "
                 "lost"});
  s.Int("micro_batch", &run.micro_batch,
        {.doc = "sequences that a rank computes at once; gradients are "
                "accumulated over its share of the batch",
         .when_omitted = "the largest divisor of batch / data ranks, at most "
                         "8; with a pipeline small enough for 4 x pipeline "
                         "micro-batches per step, if the batch is large "
                         "enough; interleaved also for a multiple of pipeline",
         .min = 1,
         .max = kMaxSequences});
  s.Enum("recompute", &run.recompute, Word,
         {.doc = "what backward recomputes instead of keeping it. "
                 "norm+activation: norms and activations of the MLP, at hardly "
                 "any cost; block: the whole block, of which only the input is "
                 "kept"});
  s.Enum("order", &run.order, Word,
         {.doc = "micro_batch: a micro-batch passes all layers before the next "
                 "one starts; layer: all micro-batches pass a layer before the "
                 "next one starts. A pipeline refuses layer; its order is "
                 "`parallel.schedule`"});
  s.Bool("deterministic", &run.deterministic,
         {.doc = "true: every run gives the same bits; false: also faster "
                 "kernels without this guarantee (on a GPU in bf16 cuDNN's "
                 "backward pass of attention, which then also needs less "
                 "memory)"});
  s.Int("threads", &run.threads,
        {.doc = "threads per rank",
         .when_omitted = "the machine's cores divided by its ranks",
         .min = 1,
         .max = kMaxThreads});
}

}  // namespace

void DescribeRun(Section& s, RunConfig& run) {
  s.Int("seed", &run.seed,
        {.doc = "seed of initialisation, dropout and the order of the data",
         .fixed = true,
         .min = 0});
  DescribeComputing(s, run);
  s.Int("log_every", &run.log_every,
        {.doc = "steps between two log lines", .min = 1, .max = kMaxSteps});
  s.Int("validate_every", &run.validate_every,
        {.doc = "steps between two validations, in addition to the one at the "
                "end; 0: only at the end",
         .min = 0,
         .max = kMaxSteps});
  s.Int("checkpoint_every", &run.checkpoint_every,
        {.doc = "steps between two checkpoints, in addition to those at "
                "switches and at the end; 0: only those",
         .min = 0,
         .max = kMaxSteps});
  s.Int("keep", &run.keep,
        {.doc = "number of newest checkpoints to keep; 0: all",
         .min = 0,
         .max = kMaxSteps});
  s.Bool("keep_best", &run.keep_best,
         {.doc = "save a checkpoint when a validation finds the lowest loss so "
                 "far, and keep it as `checkpoints/best`"});
  s.SubTable("stop_after", {.doc = "early stopping"},
             [&](Section& t) { DescribeStopAfter(t, run.stop_after); });
  if (s.complete() && run.stop_after.validations > 0 &&
      run.validate_every == 0) {
    s.Error("stop_after.validations",
            "counts validations, but run.validate_every is 0: there are none "
            "before the end");
  }
  s.Int("probe_every", &run.probe_every,
        {.doc = "steps between two probes, which measure how well the "
                "gradients of layers that share agree; 0: none, except ten per "
                "window in a stage with until.gradient",
         .min = 0,
         .max = kMaxSteps});
  s.Int("norms_every", &run.norms_every,
        {.doc = "steps between two lines of metrics with the norms of "
                "gradients and weights by layer; 0: none",
         .min = 0,
         .max = kMaxSteps});
  s.Int("watchdog", &run.watchdog,
        {.doc = "seconds that ranks wait for a rank without progress before "
                "they name it and end; 0: no limit",
         .min = 0,
         .max = kMaxSteps});
  s.Float("outlier", &run.outlier,
          {.doc = "warn of a step whose gradient norm is this many standard "
                  "deviations above the mean of the last 100 steps, and keep "
                  "its batch; 0: never",
           .min = 0.0,
           .max = 1e6});
}

}  // namespace delink::schema
