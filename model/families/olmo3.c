/* OLMo 3 (OLMo Team, 2025): OLMo 2 with a window in three of four layers, whose rope is not scaled. */
#include "model/families/families.h"

static void read(struct json_reader *r, struct model_spec *spec)
{
    family_read_olmo2(r, spec);
    family_read_alternating_windows(r, 4, spec);
    family_set_two_ropes(spec);
}

const struct family family_olmo3 = {.model_type = "olmo3",
                                    .architecture = "Olmo3ForCausalLM",
                                    .read = read,
                                    .rope_theta = 500000,
                                    .rope_local_theta = 500000,
                                    .reads = "attention_bias sliding_window layer_types",
                                    .ignores = "use_sliding_window"};
