/* The messages between node 0 and the others. Nodes run the same executable, so structs are sent as they are. */
#ifndef QUIRE_MODEL_NODES_MESSAGES_H
#define QUIRE_MODEL_NODES_MESSAGES_H

#include "kernels/collective.h"
#include "model/model.h"

/* What a message asks for, and what its bytes are. */
enum node_message {
    NODE_CREATE,         /* struct node_create */
    NODE_ATTACH,         /* the drafter to its target */
    NODE_ALLOCATE_CACHE, /* int32_t num_blocks */
    NODE_RELEASE_CACHE,
    NODE_GROW_BLOCKS, /* int32_t limit */
    NODE_GROW_SLOTS,  /* int32_t limit */
    NODE_SET_IDLE,    /* int32_t idle */
    NODE_CAPTURE,
    NODE_WAIT_FOR_WEIGHTS,
    NODE_SAMPLING_STATE, /* int32_t state_index, num_tokens; struct sampling_state; tokens [num_tokens] */
    NODE_SUBMIT,         /* batch_message.h */
    NODE_COLLECT,
    NODE_TAKE_DRAFTS, /* int32_t pass, num_samples */
    NODE_MEMORY,
    NODE_END,    /* no more comes */
    NODE_FAILED, /* the sentence */
    NODE_ANSWER  /* struct node_answer; the sentence of a failure */
};

/* Messages begin with this. */
struct node_header {
    char mark[8]; /* NODE_MARK, and 0 */
    uint32_t message;
    uint32_t model; /* 0: the target; 1: its drafter */
    uint64_t bytes; /* that follow */
};
#define NODE_MARK "quire-m"

struct node_answer {
    int32_t status; /* enum status */
    int32_t added;
    int64_t available, total; /* of NODE_MEMORY */
};

struct node_create {
    struct model_options options; /* the pointers are NULL */
    int32_t can_cancel;           /* options.cancel was not NULL */
    uint8_t id[COLLECTIVE_ID_BYTES];
};

#endif
