#include "runtime/profile/picture.h"

#include <cairo-svg.h>
#include <cairo.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/plural.h"
#include "base/visible.h"

static const double GIB = 1024.0 * 1024.0 * 1024.0;

/* Pixels. */
enum {
    MARGIN = 64,
    TOP = 196,
    BOTTOM = 800,
    BAR_LEFT = 64,
    BAR_WIDTH = 130,
    LABEL_LEFT = 240,
    LABEL_HEIGHT = 50,
    PLOT_LEFT = 590,
    PLOT_RIGHT = 1476,
    SLOTS_HEIGHT = 130, /* of the plot of state slots, below that of blocks */
    SLOTS_GAP = 66,
    MAX_POINTS = PLOT_RIGHT - PLOT_LEFT
};

struct color {
    double r, g, b;
};
static const struct color INK = {0.13, 0.15, 0.19}, FAINT = {0.42, 0.45, 0.50}, USED = {0.13, 0.40, 0.67},
                          CACHED = {0.57, 0.76, 0.88}, FREE = {0.945, 0.95, 0.96}, RUNNING = {0.85, 0.42, 0.05},
                          PREEMPTED = {0.76, 0.10, 0.20};

static void set_color(cairo_t *c, struct color color)
{
    cairo_set_source_rgb(c, color.r, color.g, color.b);
}

static void fill_rectangle(cairo_t *c, double x, double y, double width, double height, struct color color)
{
    set_color(c, color);
    cairo_rectangle(c, x, y, width, height);
    cairo_fill(c);
}

static void draw_line(cairo_t *c, double x0, double y0, double x1, double y1, struct color color, double width)
{
    set_color(c, color);
    cairo_set_line_width(c, width);
    cairo_move_to(c, x0, y0);
    cairo_line_to(c, x1, y1);
    cairo_stroke(c);
}

static void draw_frame(cairo_t *c, double x, double y, double width, double height)
{
    set_color(c, FAINT);
    cairo_set_line_width(c, 1);
    cairo_rectangle(c, x, y, width, height);
    cairo_stroke(c);
}

/* ---- text ---- */

enum align { LEFT, CENTER, RIGHT };
struct font {
    double size;
    bool bold;
    struct color color;
};

static double text_width(cairo_t *c, const struct font *f, const char *text)
{
    cairo_text_extents_t extents;
    cairo_select_font_face(c, "sans-serif", CAIRO_FONT_SLANT_NORMAL,
                           f->bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_set_font_size(c, f->size);
    cairo_text_extents(c, text, &extents);
    return extents.x_advance;
}

/* y: the baseline. Returns the text's width. */
static double draw_text(cairo_t *c, const struct font *f, double x, double y, enum align align, const char *text)
{
    const double width = text_width(c, f, text);
    set_color(c, f->color);
    cairo_move_to(c, x - (align == LEFT ? 0 : align == CENTER ? width / 2 : width), y);
    cairo_show_text(c, text);
    return width;
}

static const struct font LABEL = {22, false, {0.13, 0.15, 0.19}}, VALUE = {19, false, {0.42, 0.45, 0.50}},
                         AXIS = {19, false, {0.42, 0.45, 0.50}}, HEAD = {24, true, {0.13, 0.15, 0.19}};

/* A font of at most that size in which the text is no wider than so many pixels. */
static struct font fitting(cairo_t *c, struct font f, const char *text, double width)
{
    while (f.size > 10 && text_width(c, &f, text) > width) f.size--;
    return f;
}

/* ---- the title ---- */

/* The last part of a path; all of a name such as "org/model" that is no path from the root. */
static const char *short_name(const char *model)
{
    size_t length = strlen(model);
    while (length > 1 && model[length - 1] == '/') length--;
    const char *slash = memrchr(model, '/', length);
    return model[0] == '/' || model[0] == '.' ? slash ? slash + 1 : model : model;
}

static void draw_title(cairo_t *c, const struct picture *p)
{
    char line[320];
    struct text name = {0};
    const char *model = short_name(p->model);
    const char *device = p->device ? p->device : p->memory->discrete ? p->memory->device : "CPU";
    const int64_t num_steps = p->series->count ? p->series->rows[p->series->count - 1].step : 0;
    const bool ok = visible_append(&name, model, strlen(model)) && text_append_string(&name, " on ") &&
                    visible_append(&name, device, strlen(device));
    const char *title = ok ? name.data : "";
    const struct font wanted = {40, true, INK}, under = {23, false, FAINT};
    const struct font title_font = fitting(c, wanted, title, PICTURE_WIDTH - 2 * MARGIN);
    draw_text(c, &title_font, MARGIN, 76, LEFT, title);
    snprintf(line, sizeof line, "%s block%s of %d tokens, %s; %s prompt%s, %s step%s, %s preemption%s",
             grouped(p->memory->num_blocks).text, plural(p->memory->num_blocks), p->block_size,
             dtype_name(p->memory->cache_dtype), grouped(p->num_prompts).text, plural(p->num_prompts),
             grouped(num_steps).text, plural(num_steps), grouped(p->num_preemptions).text, plural(p->num_preemptions));
    draw_text(c, &under, MARGIN, 116, LEFT, line);
    text_free(&name);
}

/* ---- memory by purpose ---- */

struct segment {
    const char *name;
    int64_t bytes;
    struct color color;
    double middle, label; /* y of the segment's middle, and of its label's */
};
enum { MAX_SEGMENTS = 12 };

static int make_segments(const struct memory_profile *p, struct segment out[MAX_SEGMENTS])
{
    const int64_t rest = p->discrete ? p->total - memory_profile_fixed(p) - p->kv_cache : 0;
    const struct segment all[MAX_SEGMENTS] = {
        {"unused", rest, FREE},
        {"KV cache", p->kv_cache, USED},
        {"weights", p->weights, {0.16, 0.55, 0.48}},
        {"draft model", memory_profile_draft(p), {0.36, 0.67, 0.80}},
        {"activations", p->activations, {0.94, 0.72, 0.22}},
        {"workspace", p->workspace, {0.87, 0.54, 0.27}},
        {"graphs", p->graphs, {0.65, 0.47, 0.72}},
        {"state", p->state, {0.78, 0.62, 0.80}},
        {"states of sequences", p->state_slots - memory_profile_snapshots(p), {0.62, 0.66, 0.86}},
        {"snapshots", memory_profile_snapshots(p), {0.76, 0.80, 0.93}},
        {p->others_unknown ? "context, others" : "CUDA context", p->context, {0.55, 0.58, 0.63}},
        {"held by others", p->discrete ? p->others : 0, {0.74, 0.76, 0.79}},
    };
    int count = 0;
    for (int i = 0; i < MAX_SEGMENTS; i++)
        if (all[i].bytes > 0) out[count++] = all[i];
    return count;
}

/* Puts labels beside the middles of their segments, moved as far as it takes for them not to overlap. */
static void place_labels(struct segment *s, int count)
{
    double last = TOP - LABEL_HEIGHT / 2.0;
    for (int i = 0; i < count; i++) {
        s[i].label = s[i].middle < last + LABEL_HEIGHT ? last + LABEL_HEIGHT : s[i].middle;
        last = s[i].label;
    }
    double lowest = BOTTOM - 8;
    for (int i = count - 1; i >= 0; i--) {
        if (s[i].label > lowest) s[i].label = lowest;
        lowest = s[i].label - LABEL_HEIGHT;
    }
}

void picture_size(char out[32], int64_t bytes, int64_t whole)
{
    const bool in_gib = (double)whole >= GIB;
    const double size = (double)bytes / (in_gib ? GIB : GIB / 1024);
    snprintf(out, 32, "%.*f %s", size >= 100 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 2 : 3, size, in_gib ? "GiB" : "MiB");
}

static void draw_segment_label(cairo_t *c, const struct segment *s, int64_t total)
{
    char value[32], line[64];
    const double bar_right = BAR_LEFT + BAR_WIDTH;
    set_color(c, FAINT);
    cairo_set_line_width(c, 1.5);
    cairo_move_to(c, bar_right + 3, s->middle);
    cairo_line_to(c, bar_right + 14, s->middle);
    cairo_line_to(c, LABEL_LEFT - 20, s->label);
    cairo_line_to(c, LABEL_LEFT - 8, s->label);
    cairo_stroke(c);
    picture_size(value, s->bytes, total);
    const double percent = 100 * (double)s->bytes / (double)total;
    snprintf(line, sizeof line, percent >= 0.1 ? "%s, %.*f %%" : "%s", value, percent >= 9.95 ? 0 : 1, percent);
    draw_text(c, &LABEL, LABEL_LEFT, s->label - 1, LEFT, s->name);
    draw_text(c, &VALUE, LABEL_LEFT, s->label + 22, LEFT, line);
}

static void draw_memory(cairo_t *c, const struct memory_profile *p)
{
    struct segment s[MAX_SEGMENTS];
    const int count = make_segments(p, s);
    char size[32], whole[32], line[96];
    int64_t total = 0;
    for (int i = 0; i < count; i++) total += s[i].bytes;
    picture_size(size, total, total);
    picture_size(whole, p->total, p->total);
    snprintf(line, sizeof line, p->discrete ? "memory: %s" : "memory: %s of %s", size, whole);
    draw_text(c, &HEAD, MARGIN, TOP - 24, LEFT, line);
    double y = TOP;
    for (int i = 0; i < count; i++) {
        const double height = (double)s[i].bytes / (double)total * (BOTTOM - TOP);
        fill_rectangle(c, BAR_LEFT, y, BAR_WIDTH, height, s[i].color);
        s[i].middle = y + height / 2;
        y += height;
        if (i + 1 < count && height > 3) draw_line(c, BAR_LEFT, y, BAR_LEFT + BAR_WIDTH, y, (struct color){1, 1, 1}, 1);
    }
    place_labels(s, count);
    for (int i = 0; i < count; i++) draw_segment_label(c, &s[i], total);
    draw_frame(c, BAR_LEFT - 0.5, TOP - 0.5, BAR_WIDTH + 1, BOTTOM - TOP + 1);
}

/* ---- blocks and state slots over the steps ---- */

struct plot {
    cairo_t *c;
    struct series_row rows[MAX_POINTS];
    size_t count;
    double bottom;                                /* y of the plot of blocks */
    double most_blocks, most_slots, most_running; /* at the top */
};

/* What is drawn as an area: the sum of up to two counts of a row. */
struct area {
    double top, bottom, most;
    size_t in_use, cached; /* offsets in struct series_row, of an int32_t each */
};

/* The distance of ticks: 1, 2 or 5 times a power of ten, so that there are `most` of them at the most. */
static double tick_distance(double range, int most)
{
    double distance = 1;
    for (double power = 1; distance < range / most; power *= 10)
        for (int i = 0; i < 3 && distance < range / most; i++) distance = power * (i == 0 ? 2 : i == 1 ? 5 : 10);
    return distance;
}

static double column(const struct plot *p, size_t i)
{
    return PLOT_LEFT + (double)(PLOT_RIGHT - PLOT_LEFT) * (double)i / (double)p->count;
}

static double height_between(double top, double bottom, double value, double most)
{
    return bottom - (most > 0 ? value / most : 0) * (bottom - top);
}

static double height_of(const struct plot *p, double value, double most)
{
    return height_between(TOP, p->bottom, value, most);
}

static int32_t value_of(const struct series_row *row, size_t offset)
{
    return *(const int32_t *)((const char *)row + offset);
}

/* A row stands for its part of the axis, so the outline goes in steps. */
static void fill_area(const struct plot *p, const struct area *a, bool with_cached, struct color color)
{
    cairo_move_to(p->c, PLOT_LEFT, a->bottom);
    for (size_t i = 0; i < p->count; i++) {
        const int32_t value = value_of(&p->rows[i], a->in_use) + (with_cached ? value_of(&p->rows[i], a->cached) : 0);
        const double y = height_between(a->top, a->bottom, value, a->most);
        cairo_line_to(p->c, column(p, i), y);
        cairo_line_to(p->c, column(p, i + 1), y);
    }
    cairo_line_to(p->c, PLOT_RIGHT, a->bottom);
    cairo_close_path(p->c);
    set_color(p->c, color);
    cairo_fill(p->c);
}

static void draw_area(const struct plot *p, const struct area *a)
{
    fill_rectangle(p->c, PLOT_LEFT, a->top, PLOT_RIGHT - PLOT_LEFT, a->bottom - a->top, FREE);
    fill_area(p, a, true, CACHED);
    fill_area(p, a, false, USED);
}

static void draw_ticks(const struct plot *p, const struct area *a, int most)
{
    const double distance = tick_distance(a->most, most);
    for (double v = 0; v <= a->most; v += distance) {
        const double y = height_between(a->top, a->bottom, v, a->most);
        draw_text(p->c, &AXIS, PLOT_LEFT - 14, y + 7, RIGHT, grouped((int64_t)v).text);
        draw_line(p->c, PLOT_LEFT - 8, y, PLOT_LEFT, y, FAINT, 1);
    }
}

static void draw_running(const struct plot *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const double y = height_of(p, p->rows[i].num_running, p->most_running);
        if (i == 0)
            cairo_move_to(p->c, column(p, i), y);
        else
            cairo_line_to(p->c, column(p, i), y);
        cairo_line_to(p->c, column(p, i + 1), y);
    }
    cairo_set_line_join(p->c, CAIRO_LINE_JOIN_ROUND);
    cairo_set_line_width(p->c, 6);
    cairo_set_source_rgba(p->c, 1, 1, 1, 0.85);
    cairo_stroke_preserve(p->c);
    cairo_set_line_width(p->c, 3);
    set_color(p->c, RUNNING);
    cairo_stroke(p->c);
}

static void draw_triangle(cairo_t *c, double x, double y)
{
    set_color(c, PREEMPTED);
    cairo_move_to(c, x - 6, y - 11);
    cairo_line_to(c, x + 6, y - 11);
    cairo_line_to(c, x, y);
    cairo_close_path(c);
    cairo_fill(c);
}

/* A triangle above the plot and a fine line through it; where there are many, no nearer to each other than can be told
 * apart. */
static void draw_preemptions(const struct plot *p)
{
    double last_line = PLOT_LEFT - 100, last = last_line;
    for (size_t i = 0; i < p->count; i++) {
        if (p->rows[i].num_preemptions == 0) continue;
        const double x = floor((column(p, i) + column(p, i + 1)) / 2) + 0.5;
        if (x - last_line >= 4) {
            cairo_set_source_rgba(p->c, 1, 1, 1, 0.35);
            cairo_set_line_width(p->c, 1);
            cairo_move_to(p->c, x, TOP);
            cairo_line_to(p->c, x, p->bottom);
            cairo_stroke(p->c);
            last_line = x;
        }
        if (x - last < 13) continue;
        draw_triangle(p->c, x, TOP - 1);
        last = x;
    }
}

static void draw_running_axis(const struct plot *p)
{
    const double running = tick_distance(p->most_running, 6);
    struct font right = AXIS;
    right.color = RUNNING;
    for (double v = 0; v <= p->most_running; v += running) {
        const double y = height_of(p, v, p->most_running);
        draw_text(p->c, &right, PLOT_RIGHT + 14, y + 7, LEFT, grouped((int64_t)v).text);
        draw_line(p->c, PLOT_RIGHT, y, PLOT_RIGHT + 8, y, RUNNING, 1);
    }
}

static void draw_steps_axis(const struct plot *p)
{
    const double last = p->count ? (double)p->rows[p->count - 1].step : 1, distance = tick_distance(last, 8);
    for (double v = 0; v <= last; v += distance) {
        const double x = PLOT_LEFT + v / last * (PLOT_RIGHT - PLOT_LEFT);
        draw_line(p->c, x, BOTTOM, x, BOTTOM + 8, FAINT, 1);
        draw_text(p->c, &AXIS, x, BOTTOM + 32, CENTER, grouped((int64_t)v).text);
    }
    draw_text(p->c, &AXIS, (PLOT_LEFT + PLOT_RIGHT) / 2.0, BOTTOM + 64, CENTER, "steps");
}

static double legend_entry(cairo_t *c, double x, double y, struct color color, const char *name)
{
    fill_rectangle(c, x, y - 15, 18, 18, color);
    draw_frame(c, x + 0.5, y - 14.5, 17, 17);
    return x + 26 + draw_text(c, &AXIS, x + 26, y, LEFT, name) + 26;
}

static void draw_legend(cairo_t *c, bool preempted)
{
    const double y = TOP - 24;
    double x = PLOT_LEFT + draw_text(c, &HEAD, PLOT_LEFT, y, LEFT, "blocks") + 30;
    x = legend_entry(c, x, y, USED, "in use");
    x = legend_entry(c, x, y, CACHED, "cached");
    x = legend_entry(c, x, y, FREE, "free");
    if (preempted) {
        draw_triangle(c, x + 8, y);
        draw_text(c, &AXIS, x + 22, y, LEFT, "preemption");
    }
    const struct font right = {24, true, RUNNING};
    draw_text(c, &right, PLOT_RIGHT, y, RIGHT, "requests running");
}

static void draw_slots(const struct plot *p)
{
    const struct area a = {BOTTOM - SLOTS_HEIGHT, BOTTOM, p->most_slots, offsetof(struct series_row, slots_in_use),
                           offsetof(struct series_row, slots_cached)};
    const double y = a.top - 16;
    draw_area(p, &a);
    draw_ticks(p, &a, 3);
    double x = PLOT_LEFT + draw_text(p->c, &HEAD, PLOT_LEFT, y, LEFT, "state slots") + 30;
    x = legend_entry(p->c, x, y, USED, "of sequences");
    x = legend_entry(p->c, x, y, CACHED, "snapshots");
    legend_entry(p->c, x, y, FREE, "free");
    draw_line(p->c, PLOT_LEFT, a.bottom, PLOT_RIGHT, a.bottom, FAINT, 1.5);
}

static void draw_blocks(const struct plot *p)
{
    const struct area a = {TOP, p->bottom, p->most_blocks, offsetof(struct series_row, blocks_in_use),
                           offsetof(struct series_row, blocks_cached)};
    draw_area(p, &a);
    draw_preemptions(p);
    draw_running(p);
    draw_ticks(p, &a, 6);
    draw_running_axis(p);
    draw_line(p->c, PLOT_LEFT, a.bottom, PLOT_RIGHT, a.bottom, FAINT, 1.5);
}

static void draw_steps(cairo_t *c, const struct picture *picture)
{
    const struct series *s = picture->series;
    struct plot p = {.c = c, .most_blocks = s->num_blocks, .most_slots = s->num_slots, .bottom = BOTTOM};
    if (s->num_slots > 0) p.bottom = BOTTOM - SLOTS_HEIGHT - SLOTS_GAP;
    p.count = series_thin(s, p.rows, MAX_POINTS);
    for (size_t i = 0; i < p.count; i++)
        if (p.rows[i].num_running > p.most_running) p.most_running = p.rows[i].num_running;
    p.most_running = p.most_running * 1.15 + 1; /* the line stays below the top */
    draw_blocks(&p);
    if (s->num_slots > 0) draw_slots(&p);
    draw_steps_axis(&p);
    draw_legend(c, picture->num_preemptions > 0);
}

/* ---- the file ---- */

static cairo_status_t write_bytes(void *stream, const unsigned char *bytes, unsigned int count)
{
    return fwrite(bytes, 1, count, stream) == count ? CAIRO_STATUS_SUCCESS : CAIRO_STATUS_WRITE_ERROR;
}

static void draw(cairo_t *c, const struct picture *p)
{
    set_color(c, (struct color){1, 1, 1});
    cairo_paint(c);
    draw_title(c, p);
    draw_memory(c, p->memory);
    draw_steps(c, p);
}

enum status picture_write(const struct picture *p, enum picture_format format, FILE *out, struct error *err)
{
    const bool svg = format == PICTURE_SVG;
    cairo_surface_t *surface =
        svg ? cairo_svg_surface_create_for_stream(write_bytes, out, PICTURE_WIDTH, PICTURE_HEIGHT)
            : cairo_image_surface_create(CAIRO_FORMAT_RGB24, PICTURE_WIDTH, PICTURE_HEIGHT);
    cairo_t *c = cairo_create(surface);
    draw(c, p);
    cairo_status_t status = cairo_status(c);
    cairo_destroy(c);
    if (svg) cairo_surface_finish(surface); /* writes */
    if (status == CAIRO_STATUS_SUCCESS)
        status = svg ? cairo_surface_status(surface) : cairo_surface_write_to_png_stream(surface, write_bytes, out);
    cairo_surface_destroy(surface);
    if (status == CAIRO_STATUS_SUCCESS && fflush(out) == 0) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot write the picture (%s)",
                     status == CAIRO_STATUS_SUCCESS ? "the file refused it" : cairo_status_to_string(status));
}
