/* Text written in the user's editor: $VISUAL, else $EDITOR, else vi. */
#ifndef QUIRE_RUNTIME_EXTERNAL_EDITOR_H
#define QUIRE_RUNTIME_EXTERNAL_EDITOR_H

#include "base/array.h"
#include "base/status.h"

/* Opens the text in the editor and replaces it by what was saved, without newlines at its end. The editor has the
 * terminal until it ends; Ctrl-C is its key meanwhile. On failure, which includes an editor that ends with a status
 * other than 0, *text is as it was. */
enum status external_editor_run(struct text *text, struct error *err);

#endif
