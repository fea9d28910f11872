/* Binds the loops over examples: acquires the buffers of columns. */

#include "bind.h"
#include "loops.h"

#include <stdlib.h>
#include <string.h>

enum { FIELDS = 6, BUFFERS = 5 }; /* fields of a column; all but the kind are buffers */

/* Columns whose buffers are held until `release_columns`. */
struct Columns {
    struct Entry *entries, *hollow; /* the column whose bytes are left out, or NULL */
    int64_t count;
    Py_buffer *buffers;
    Py_ssize_t num_buffers;
};

static void release_columns(struct Columns *columns)
{
    for (Py_ssize_t each = 0; each < columns->num_buffers; each++)
        PyBuffer_Release(columns->buffers + each);
    free(columns->buffers);
    free(columns->entries);
    memset(columns, 0, sizeof *columns);
}

/* Acquires one field, which may be None. Returns 0 with an exception set on failure. */
static int take(struct Columns *columns, PyObject *object, Py_buffer **taken)
{
    *taken = NULL;
    if (object == Py_None)
        return 1;
    Py_buffer *buffer = columns->buffers + columns->num_buffers;
    if (PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) < 0)
        return 0;
    columns->num_buffers++;
    *taken = buffer;
    return 1;
}

int are_offsets(
    const Py_buffer *buffer, int bytes, int64_t first, int64_t end, int64_t limit)
{
    if (buffer == NULL || buffer->len / bytes <= end)
        return 0;
    const int32_t *narrow = buffer->buf;
    const int64_t *wide = buffer->buf;
    int64_t before = 0;
    for (int64_t each = first; each <= end; each++) {
        int64_t offset = bytes == 4 ? narrow[each] : wide[each];
        if (offset < before)
            return 0;
        before = offset;
    }
    return before <= limit;
}

/* Acquires the buffers of a column for the rows from `first` to `end`. */
static int take_column(
    struct Columns *columns, struct Entry *entry, PyObject *tuple, int64_t first,
    int64_t end)
{
    Py_buffer *key, *values, *offsets, *lists, *valid;
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != FIELDS) {
        PyErr_SetString(PyExc_TypeError, "expected columns of six fields");
        return 0;
    }
    long kind = PyLong_AsLong(PyTuple_GetItem(tuple, 1));
    if (PyErr_Occurred() || !take(columns, PyTuple_GetItem(tuple, 0), &key)
        || !take(columns, PyTuple_GetItem(tuple, 2), &values)
        || !take(columns, PyTuple_GetItem(tuple, 3), &offsets)
        || !take(columns, PyTuple_GetItem(tuple, 4), &lists)
        || !take(columns, PyTuple_GetItem(tuple, 5), &valid))
        return 0;
    int is_left_out = kind == LEFT_OUT;
    if (is_left_out)
        kind = BYTES_LIST;
    int64_t first_value = first, end_value = end;
    int fits = key != NULL && values != NULL && (valid == NULL || valid->len >= end)
        && (kind == BYTES_LIST || kind == FLOAT_LIST || kind == INT64_LIST);
    if (fits && lists != NULL) {
        fits = are_offsets(lists, 8, first, end, INT64_MAX);
        first_value = fits ? ((const int64_t *)lists->buf)[first] : 0;
        end_value = fits ? ((const int64_t *)lists->buf)[end] : 0;
    }
    if (fits && is_left_out)
        fits = columns->hollow == NULL && lists == NULL && valid == NULL
            && !values->readonly && values->len / 8 >= end
            && are_offsets(offsets, 4, first, end, INT32_MAX);
    else if (fits && kind == BYTES_LIST)
        fits = are_offsets(offsets, 4, first_value, end_value, values->len);
    else if (fits)
        fits = values->len / (kind == FLOAT_LIST ? 4 : 8) >= end_value;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "a column's buffers do not fit its rows");
        return 0;
    }
    /* The entry begins with row `first`: lists point to values; without lists, each row
       has one value. */
    int64_t skipped = lists == NULL ? first : 0;
    entry->key = key->buf;
    entry->key_size = key->len;
    entry->kind = (enum Kind)kind;
    entry->integers = (const int64_t *)values->buf + skipped;
    entry->floats = (const float *)values->buf + skipped;
    entry->data = values->buf;
    entry->offsets = offsets == NULL ? NULL : (const int32_t *)offsets->buf + skipped;
    entry->lists = lists == NULL ? NULL : (const int64_t *)lists->buf + first;
    entry->valid = valid == NULL ? NULL : (const uint8_t *)valid->buf + first;
    if (is_left_out) {
        entry->cuts = (int64_t *)values->buf + first;
        columns->hollow = entry;
    }
    return 1;
}

/* Acquires a list of (key, kind, values, offsets, lists, valid); see numpy_loops.Column.
   Returns 0 with an exception set if a buffer is too short for its rows. */
static int take_columns(
    struct Columns *columns, PyObject *list, int64_t first, int64_t num_rows)
{
    memset(columns, 0, sizeof *columns);
    Py_ssize_t count = PyList_Size(list);
    if (count < 0)
        return 0;
    columns->count = count;
    columns->entries = calloc((size_t)count + 1, sizeof *columns->entries);
    columns->buffers = calloc((size_t)count * BUFFERS + 1, sizeof *columns->buffers);
    if (columns->entries == NULL || columns->buffers == NULL) {
        release_columns(columns);
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t each = 0; each < count; each++)
        if (!take_column(
                columns, columns->entries + each, PyList_GetItem(list, each), first,
                first + num_rows)) {
            release_columns(columns);
            return 0;
        }
    return 1;
}

PyObject *measure_all(PyObject *self, PyObject *args)
{
    PyObject *list;
    Py_buffer sizes;
    struct Columns columns;
    (void)self;
    if (!PyArg_ParseTuple(args, "Ow*:measure", &list, &sizes))
        return NULL;
    int64_t num_rows = sizes.len / 8;
    if (!take_columns(&columns, list, 0, num_rows)) {
        PyBuffer_Release(&sizes);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    measure_features(columns.entries, columns.count, num_rows, sizes.buf);
    Py_END_ALLOW_THREADS
    release_columns(&columns);
    PyBuffer_Release(&sizes);
    Py_RETURN_NONE;
}

/* Returns whether the space for each row is as large as its example. */
static int have_room(
    const struct Columns *columns, const int64_t *sizes, const int64_t *starts,
    int64_t num_rows, int64_t room, int64_t limit)
{
    const int32_t *absent = columns->hollow == NULL ? NULL : columns->hollow->offsets;
    int good = starts[0] >= 0 && starts[num_rows] <= limit;
    for (int64_t row = 0; row < num_rows; row++) {
        int64_t size = room + example_size(sizes[row]);
        if (absent != NULL)
            size -= absent[row + 1] - absent[row];
        good &= starts[row + 1] - starts[row] == size;
    }
    return good;
}

PyObject *write_all(PyObject *self, PyObject *args)
{
    PyObject *list;
    Py_buffer sizes, starts, target;
    Py_ssize_t first, head_room, tail_room;
    struct Columns columns;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "Ony*y*nnw*:write", &list, &first, &sizes, &starts, &head_room,
            &tail_room, &target))
        return NULL;
    int64_t num_rows = sizes.len / 8;
    int good = first >= 0 && first <= INT64_MAX - num_rows && head_room >= 0
        && tail_room >= 0 && head_room <= INT32_MAX && tail_room <= INT32_MAX;
    int taken = good && take_columns(&columns, list, first, num_rows);
    if (taken) {
        good = starts.len / 8 == num_rows + 1
            && have_room(
                   &columns, sizes.buf, starts.buf, num_rows, head_room + tail_room,
                   target.len);
        Py_BEGIN_ALLOW_THREADS
        if (good)
            write_examples(
                columns.entries, columns.count, num_rows, sizes.buf, starts.buf,
                head_room, target.buf, target.len);
        Py_END_ALLOW_THREADS
        release_columns(&columns);
    }
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&target);
    if (!good)
        return refuse("write: the places of the rows do not fit their sizes");
    if (!taken)
        return NULL;
    Py_RETURN_NONE;
}
