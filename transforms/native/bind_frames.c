/* Binds the loops over frames. */

#include "bind.h"
#include "loops.h"

/* Returns whether each frame is long enough and within the data. */
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

PyObject *seal_all(PyObject *self, PyObject *args)
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

PyObject *seal_around(PyObject *self, PyObject *args)
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

PyObject *find_one(PyObject *self, PyObject *args)
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

PyObject *find_all(PyObject *self, PyObject *args)
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
