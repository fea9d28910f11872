/* The Python module `_loops`: checks its arguments, gives the interpreter free, loops.

   What each function does stands in __init__.py. All arrays are contiguous buffers;
   positions are int64. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000 /* one file for Python 3.11 and all later ones */
#include <Python.h>
#include <stdlib.h>
#include <string.h>

#include "loops.h"

static PyObject *refuse(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return NULL;
}

/* Returns whether each frame is long enough and lies inside the data. */
static int all_inside(
    const int64_t *starts, const int64_t *lengths, int64_t count, int64_t size)
{
    for (int64_t each = 0; each < count; each++)
        if (starts[each] < 0 || lengths[each] < FRAME_BYTES || lengths[each] > size
            || starts[each] > size - lengths[each])
            return 0;
    return 1;
}

static int all_ordered(const int64_t *starts, int64_t count, int64_t size)
{
    for (int64_t each = 0; each < count; each++)
        if (starts[each] < 0 || starts[each + 1] > size
            || starts[each + 1] < starts[each] + FRAME_BYTES)
            return 0;
    return 1;
}

static PyObject *seal_all(PyObject *self, PyObject *args)
{
    Py_buffer data, starts;
    (void)self;
    if (!PyArg_ParseTuple(args, "w*y*:seal", &data, &starts))
        return NULL;
    int64_t count = starts.len / 8 - 1;
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = count >= 0 && all_ordered(starts.buf, count, data.len);
    if (good)
        seal_frames(data.buf, starts.buf, count);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    if (!good)
        return refuse("seal: a frame is outside the data, or has less than 16 bytes");
    Py_RETURN_NONE;
}

static PyObject *seal_around(PyObject *self, PyObject *args)
{
    Py_buffer data, starts, cuts, sizes, crcs;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "w*y*y*y*y*:seal_around", &data, &starts, &cuts, &sizes, &crcs))
        return NULL;
    int64_t count = cuts.len / 8;
    const int64_t *start = starts.buf, *cut = cuts.buf, *size = sizes.buf;
    uint32_t all = 0;
    int good = starts.len / 8 == count + 1 && sizes.len / 8 == count
        && crcs.len / 4 == count;
    Py_BEGIN_ALLOW_THREADS
    good = good && all_ordered(start, count, data.len);
    for (int64_t each = 0; good && each < count; each++)
        good = size[each] >= 0 && cut[each] >= start[each] + HEAD_BYTES
            && cut[each] <= start[each + 1] - TAIL_BYTES;
    if (good)
        all = seal_around_cells(data.buf, start, cut, size, crcs.buf, count);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&cuts);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&crcs);
    if (!good)
        return refuse("seal_around: a frame is outside the data, or a cell outside it");
    return PyLong_FromUnsignedLong(all);
}

static PyObject *read_jpeg(PyObject *self, PyObject *object)
{
    Py_buffer data;
    int32_t found[3];
    (void)self;
    if (PyObject_GetBuffer(object, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    int good = read_whole_jpeg(data.buf, data.len, found);
    PyBuffer_Release(&data);
    if (!good)
        Py_RETURN_NONE;
    return Py_BuildValue("(iii)", (int)found[0], (int)found[1], (int)found[2]);
}

static PyObject *find_one(PyObject *self, PyObject *args)
{
    Py_buffer data, starts, lengths;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*y*y*:damaged", &data, &starts, &lengths))
        return NULL;
    int64_t count = starts.len / 8, found = -1;
    int good;
    Py_BEGIN_ALLOW_THREADS
    good = lengths.len == starts.len
        && all_inside(starts.buf, lengths.buf, count, data.len);
    if (good)
        found = find_damaged(data.buf, starts.buf, lengths.buf, count);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&lengths);
    if (!good)
        return refuse("damaged: a frame is outside the data, or has less than 16 bytes");
    return PyLong_FromLongLong(found);
}

static PyObject *find_all(PyObject *self, PyObject *args)
{
    Py_buffer data, starts;
    Py_ssize_t at;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nw*:frames", &data, &at, &starts))
        return NULL;
    int64_t most = starts.len / 8 - 1, found = 0;
    int good = at >= 0 && at <= data.len && most >= 0;
    Py_BEGIN_ALLOW_THREADS
    if (good)
        found = find_frames(data.buf, data.len, at, starts.buf, most);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    if (!good)
        return refuse("frames: outside the data, or no place for a start");
    return PyLong_FromLongLong(found);
}

static PyObject *gather_all(PyObject *self, PyObject *args)
{
    Py_buffer offsets, starts, lengths, target;
    int descriptor;
    (void)self;
    if (!PyArg_ParseTuple(
            args, "iy*y*y*w*:gather", &descriptor, &offsets, &starts, &lengths, &target))
        return NULL;
    int64_t count = offsets.len / 8, found = -1;
    const int64_t *from = offsets.buf, *to = starts.buf, *size = lengths.buf;
    int good = starts.len == offsets.len && lengths.len == offsets.len;
    Py_BEGIN_ALLOW_THREADS
    for (int64_t each = 0; good && each < count; each++)
        good = from[each] >= 0 && to[each] >= 0 && size[each] >= 0
            && size[each] <= target.len && to[each] <= target.len - size[each];
    if (good)
        found = gather_parts(descriptor, from, to, size, count, target.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&target);
    if (!good)
        return refuse("gather: a part is outside the target");
    return PyLong_FromLongLong(found);
}

/* Makes room for the files' bytes. Returns a list of them, or NULL with an exception. */
static PyObject *room_for(
    PyObject *paths, const int64_t *sizes, int64_t count, const char **names,
    uint8_t **targets)
{
    PyObject *files = PyList_New((Py_ssize_t)count);
    for (int64_t each = 0; files != NULL && each < count; each++) {
        PyObject *file = NULL, *path = PyTuple_GetItem(paths, (Py_ssize_t)each);
        names[each] = path == NULL ? NULL : PyBytes_AsString(path);
        if (names[each] != NULL)
            file = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)sizes[each]);
        if (file == NULL || PyList_SetItem(files, (Py_ssize_t)each, file) < 0) {
            Py_DECREF(files);
            return NULL;
        }
        targets[each] = (uint8_t *)PyBytes_AsString(file);
    }
    return files;
}

static PyObject *read_all(PyObject *self, PyObject *args)
{
    PyObject *paths, *files = NULL, *found = NULL;
    Py_buffer sizes, modified;
    (void)self;
    if (!PyArg_ParseTuple(args, "Oy*y*:files", &paths, &sizes, &modified))
        return NULL;
    int64_t count = sizes.len / 8;
    int good = PyTuple_Check(paths) && PyTuple_Size(paths) == count
        && modified.len == sizes.len;
    for (int64_t each = 0; good && each < count; each++)
        good = ((const int64_t *)sizes.buf)[each] >= 0;
    const char **names = calloc((size_t)count + 1, sizeof *names);
    uint8_t **targets = calloc((size_t)count + 1, sizeof *targets);
    if (!good)
        refuse("files: each needs a path, a size and a time");
    else if (names == NULL || targets == NULL)
        PyErr_NoMemory();
    else
        files = room_for(paths, sizes.buf, count, names, targets);
    if (files != NULL) {
        int64_t done;
        Py_BEGIN_ALLOW_THREADS
        done = read_files(names, sizes.buf, modified.buf, count, targets);
        Py_END_ALLOW_THREADS
        found = PyList_GetSlice(files, 0, (Py_ssize_t)done);
        Py_DECREF(files);
    }
    free(names);
    free(targets);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&modified);
    return found;
}

static PyObject *ask_all(PyObject *self, PyObject *args)
{
    Py_buffer paths, sizes, modified, changed;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*w*w*w*:status", &paths, &sizes, &modified, &changed))
        return NULL;
    const char *names = paths.buf;
    int64_t count = sizes.len / 8, ends = 0;
    int good = modified.len == sizes.len && changed.len == sizes.len;
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t at = 0; at < paths.len; at++)
        ends += names[at] == 0;
    good = good && ends == count && (count == 0 || names[paths.len - 1] == 0);
    if (good)
        ask_files(names, count, sizes.buf, modified.buf, changed.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&paths);
    PyBuffer_Release(&sizes);
    PyBuffer_Release(&modified);
    PyBuffer_Release(&changed);
    if (!good)
        return refuse("status: each path needs a zero byte behind it, and a place");
    Py_RETURN_NONE;
}

/* Copies what lies behind the first `skip` bytes of the pieces. Returns how many bytes. */
static int64_t copy_behind(
    const Py_buffer *pieces, Py_ssize_t count, int64_t skip, uint8_t *target, int64_t room)
{
    int64_t done = 0;
    for (Py_ssize_t each = 0; each < count && done < room; each++) {
        int64_t size = pieces[each].len;
        if (skip >= size) {
            skip -= size;
            continue;
        }
        int64_t some = size - skip < room - done ? size - skip : room - done;
        memcpy(target + done, (const uint8_t *)pieces[each].buf + skip, (size_t)some);
        done += some;
        skip = 0;
    }
    return done;
}

static PyObject *copy_all(PyObject *self, PyObject *args)
{
    PyObject *list;
    Py_buffer target;
    Py_ssize_t skip, held = 0;
    int64_t done = 0;
    (void)self;
    if (!PyArg_ParseTuple(args, "Onw*:copy", &list, &skip, &target))
        return NULL;
    Py_ssize_t count = PyList_Size(list);
    Py_buffer *pieces = calloc((size_t)(count > 0 ? count : 0) + 1, sizeof *pieces);
    if (pieces == NULL)
        PyErr_NoMemory();
    else if (count >= 0 && skip < 0)
        refuse("copy: cannot skip less than no bytes");
    else
        while (held < count
               && PyObject_GetBuffer(
                      PyList_GetItem(list, held), pieces + held, PyBUF_SIMPLE)
                   == 0)
            held++;
    int good = !PyErr_Occurred();
    Py_BEGIN_ALLOW_THREADS
    if (good)
        done = copy_behind(pieces, count, skip, target.buf, target.len);
    Py_END_ALLOW_THREADS
    while (held > 0)
        PyBuffer_Release(pieces + --held);
    free(pieces);
    PyBuffer_Release(&target);
    return good ? PyLong_FromLongLong(done) : NULL;
}

static PyObject *interleave_all(PyObject *self, PyObject *args)
{
    Py_buffer rows, pictures;
    Py_ssize_t before, count;
    (void)self;
    if (!PyArg_ParseTuple(args, "y*nnw*:interleave", &rows, &before, &count, &pictures))
        return NULL;
    int64_t row_bytes = count > 0 ? rows.len / count : 0;
    int64_t pixels = count > 0 ? pictures.len / count / 3 : 0;
    int good = before >= 0 && count >= 0 && row_bytes * count == rows.len
        && 3 * pixels * count == pictures.len
        && (count == 0 || (before <= row_bytes && 3 * pixels <= row_bytes - before));
    Py_BEGIN_ALLOW_THREADS
    if (good && count > 0)
        interleave_rows(
            (const uint8_t *)rows.buf + before, row_bytes, count, pixels, pictures.buf);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&rows);
    PyBuffer_Release(&pictures);
    if (!good)
        return refuse("interleave: the rows do not hold the planes of the pictures");
    Py_RETURN_NONE;
}

static PyObject *count_ends(PyObject *self, PyObject *args)
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

static PyObject *split_all(PyObject *self, PyObject *args)
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

enum { LEFT_OUT = 0x0b }; /* the kind of bytes that are left out; one column at most */
enum { FIELDS = 6, BUFFERS = 5 }; /* of a column; all but the kind are buffers */

/* Columns whose buffers are held until `release_columns`. */
struct Columns {
    struct Entry *entries, *hollow; /* that whose bytes are left out, or NULL */
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

/* Takes one field, which may be None. Returns 0 with an exception set on failure. */
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

/* Returns whether the offsets from `first` to `end`, of 4 or 8 bytes, are there, ascend,
   and end within `limit`. */
static int are_offsets(
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

/* Takes a column for the rows from `first` to `end`. */
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
    /* The entry begins with row `first`: lists point to values, else values are rows. */
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

/* Takes a list of (key, kind, values, offsets, lists, valid); see __init__.py.
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

static PyObject *read_all_numbers(PyObject *self, PyObject *args)
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

static PyObject *measure_all(PyObject *self, PyObject *args)
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

/* Returns whether each row's place is as large as its example. */
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

static PyObject *write_all(PyObject *self, PyObject *args)
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
    int good = first >= 0 && first <= INT64_MAX - num_rows;
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

static PyMethodDef methods[] = {
    {"measure", measure_all, METH_VARARGS, "Measures each row's Features message."},
    {"write", write_all, METH_VARARGS, "Writes each row's Example."},
    {"row_ends", count_ends, METH_VARARGS, "Counts bytes that may end a row."},
    {"cells", split_all, METH_VARARGS, "Splits the rows of a CSV text."},
    {"numbers", read_all_numbers, METH_VARARGS, "Reads cells that hold numbers."},
    {"seal", seal_all, METH_VARARGS, "Seals frames."},
    {"seal_around", seal_around, METH_VARARGS, "Seals frames that lack a cell each."},
    {"jpeg", read_jpeg, METH_O, "Finds the size of a JPEG that is surely whole."},
    {"damaged", find_one, METH_VARARGS, "Finds the first damaged frame."},
    {"frames", find_all, METH_VARARGS, "Finds frames that follow each other."},
    {"files", read_all, METH_VARARGS, "Reads whole files."},
    {"copy", copy_all, METH_VARARGS, "Copies pieces to where they stand together."},
    {"interleave", interleave_all, METH_VARARGS, "Lays planes side by side."},
    {"status", ask_all, METH_VARARGS, "Tells sizes and times of files."},
    {"gather", gather_all, METH_VARARGS, "Reads parts of a file."},
    {NULL, NULL, 0, NULL},
};

static int prepare(PyObject *module)
{
    PyObject *any_time = PyLong_FromLongLong(ANY_TIME);
    int added = any_time == NULL ? -1 : PyModule_AddObjectRef(module, "ANY_TIME", any_time);
    Py_XDECREF(any_time);
    if (added < 0 || PyModule_AddIntConstant(module, "LEFT_OUT", LEFT_OUT) < 0
        || PyModule_AddIntConstant(module, "CELL_SLACK", CELL_SLACK) < 0
        || PyModule_AddIntConstant(module, "NO_QUOTE", NO_QUOTE) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "CRC32C", crc32c_choose());
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, prepare}, {0, NULL}};

static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_loops", "Loops over the bytes of batches.", 0, methods,
    slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__loops(void)
{
    return PyModuleDef_Init(&definition);
}
