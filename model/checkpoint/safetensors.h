/* Reader of the safetensors format (https://github.com/huggingface/safetensors, "Format"): an 8-byte little-endian
 * header length, a JSON header, then the tensors' bytes. Included by tensor_file.c alone.
 *
 * Checked, in 64-bit arithmetic that cannot overflow: the header length is within the file and 100 MB; the header
 * starts with '{' and ends with '}' and the format's padding (spaces); strict JSON (no duplicate keys, no trailing
 * text); __metadata__ is an object of strings; each dtype is known; shape x element size = span; the spans, sorted by
 * start, have no gap and no overlap, and end with the file. */
#ifndef QUIRE_MODEL_CHECKPOINT_SAFETENSORS_H
#define QUIRE_MODEL_CHECKPOINT_SAFETENSORS_H

#include "model/checkpoint/tensor_file.h"

/* Adds the tensors of one file to *set, which owns them; or those of all files of a folder. On failure *set may hold
 * some of them. */
enum status safetensors_add_file(struct tensor_file *set, const char *path, struct error *err);
enum status safetensors_add_folder(struct tensor_file *set, const char *folder, struct error *err);

#endif
