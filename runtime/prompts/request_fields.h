/* The fields that a request may have, in quire's own form and in the bodies of OpenAI's two. The sampling fields are
 * those of scheduler/sampling_params.h; all others stand in the table of request_fields.c, and nowhere else. */
#ifndef QUIRE_RUNTIME_REQUEST_FIELDS_H
#define QUIRE_RUNTIME_REQUEST_FIELDS_H

/* The form of a request: quire's own, the body of /v1/chat/completions, or that of /v1/completions. */
enum openai_kind { OPENAI_NONE, OPENAI_CHAT, OPENAI_COMPLETION };

enum field_use {
    FIELD_UNKNOWN,    /* the form has no such field, or quire does it for no value, or for one value alone */
    FIELD_TAKEN,      /* it has the name and the meaning of quire's own */
    FIELD_TRANSLATED, /* it has a meaning of its own in this form, which openai_request.c reads */
    FIELD_IGNORED     /* it changes nothing in the answer */
};
enum field_use request_field_use(enum openai_kind kind, const char *name);

#endif
