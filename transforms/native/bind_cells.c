/* Binds the loops over cells of CSV and JSON Lines. */

#include "bind.h"
#include "loops.h"

PyObject *count_ends(PyObject *self, PyObject *args)
{
    Py_buffer text;
    int64_t count;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*:row_ends", &text))
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    count = count_row_ends(text.buf, text.len);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    return PyLong_FromLongLong(count);
}

PyObject *split_all(PyObject *self, PyObject *args)
{
    Py_buffer text, offsets, valid, facts, target;
    Py_ssize_t max_rows;
    int delimiter, quote;
    int64_t found = -1;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "y*iinw*w*w*w*:cells", &text, &delimiter, &quote, &max_rows, &offsets,
            &valid, &facts, &target))
        return NULL;
    int64_t columns = facts.len / 16;
    struct Cells cells = {
        text.buf, text.len, (uint8_t)delimiter, (uint8_t)quote, columns, max_rows,
        offsets.buf, valid.buf, facts.buf, (int64_t *)facts.buf + columns, target.buf};
    int good = text.len <= INT32_MAX && delimiter >= 0 && delimiter < 256 && quote >= 0
        && quote < 256 && delimiter != quote && columns > 0 && max_rows >= 0
        && max_rows < INT32_MAX && offsets.len / 4 / columns > max_rows
        && valid.len / columns >= (max_rows + 7) / 8
        && (target.len - text.len) / columns >= CELL_SLACK;
    Py_BEGIN_ALLOW_THREADS
    if (good)
        found = split_cells(&cells);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&text);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&valid);
    PyBuffer_Release(&facts);
    PyBuffer_Release(&target);
    if (!good)
        return refuse("cells: there is no place for so many rows and bytes");
    return PyLong_FromLongLong(found);
}

/* Returns whether the sizes of names, paths, columns and their buffers are consistent. */
static int are_paths(
    const Py_buffer *names, const Py_buffer *ends, const Py_buffer *paths,
    const Py_buffer *holds, const Py_buffer *facts, const Py_buffer *seen)
{
    const int32_t *path = paths->buf;
    int64_t count = paths->len / 4;
    int good = ends->len / 4 == count + 1 && are_offsets(ends, 4, 0, count, names->len)
        && facts->len / 16 <= holds->len && seen->len / 8 == holds->len;
    for (int64_t each = 0; good && each < count; each++)
        good = path[each] >= 0 && path[each] < holds->len;
    return good;
}

PyObject *split_lines(PyObject *self, PyObject *args)
{
    Py_buffer text, names, ends, paths, holds, seen, spans, places, offsets, valid, facts,
        target;
    int64_t found = 0, odd = 0;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "y*y*y*y*y*w*w*w*w*w*w*w*:objects", &text, &names, &ends, &paths, &holds,
            &seen, &spans, &places, &offsets, &valid, &facts, &target))
        return NULL;
    int64_t columns = facts.len / 16, max_rows = places.len / 8;
    struct Objects objects = {
        text.buf, text.len, names.buf, ends.buf, paths.buf, holds.buf, paths.len / 4,
        columns, max_rows, seen.buf, spans.buf, places.buf, offsets.buf, valid.buf,
        facts.buf, (int64_t *)facts.buf + columns, target.buf};
    int good = text.len > 0 && text.len <= INT32_MAX && columns > 0
        && ((const char *)text.buf)[text.len - 1] == '\n'
        && are_paths(&names, &ends, &paths, &holds, &facts, &seen)
        && spans.len / 8 / columns >= max_rows && offsets.len / 4 / columns > max_rows
        && valid.len / columns >= (max_rows + 7) / 8
        && (target.len - text.len) / columns >= CELL_SLACK;
    Py_BEGIN_ALLOW_THREADS
    if (good)
        found = split_objects(&objects, &odd);
    Py_END_ALLOW_THREADS
    Py_buffer *all[] = {&text, &names, &ends, &paths, &holds, &seen, &spans, &places,
                        &offsets, &valid, &facts, &target};
    for (size_t each = 0; each < sizeof all / sizeof *all; each++)
        PyBuffer_Release(all[each]);
    if (!good || found < 0)
        return refuse("objects: there is no place for so many rows and bytes");
    return Py_BuildValue("LL", (long long)found, (long long)odd);
}

PyObject *read_all_numbers(PyObject *self, PyObject *args)
{
    Py_buffer offsets, data, valid = {0}, target;
    PyObject *validity;
    int found = 0, is_float;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "y*y*Opw*:numbers", &offsets, &data, &validity, &is_float, &target))
        return NULL;
    int64_t count = target.len / 8;
    int taken = validity == Py_None
        || PyObject_GetBuffer(validity, &valid, PyBUF_SIMPLE) == 0;
    int good = taken && are_offsets(&offsets, 4, 0, count, data.len)
        && (valid.buf == NULL || valid.len >= (count + 7) / 8);
    struct Texts cells = {offsets.buf, data.buf, valid.buf};
    Py_BEGIN_ALLOW_THREADS
    if (good)
        found = is_float ? read_decimals(&cells, count, target.buf)
                         : read_integers(&cells, count, target.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&target);
    if (taken && validity != Py_None)
        PyBuffer_Release(&valid);
    if (!taken)
        return NULL;
    if (!good)
        return refuse("numbers: the cells are outside the data");
    return PyBool_FromLong(found);
}

PyObject *mark_numbers(PyObject *self, PyObject *args)
{
    Py_buffer offsets, data, marks;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*w*:long_numbers", &offsets, &data, &marks))
        return NULL;
    int good = are_offsets(&offsets, 4, 0, marks.len, data.len);
    Py_BEGIN_ALLOW_THREADS
    if (good)
        mark_long_numbers(offsets.buf, data.buf, marks.len, marks.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&marks);
    if (!good)
        return refuse("long_numbers: the cells are outside the data");
    Py_RETURN_TRUE;
}
